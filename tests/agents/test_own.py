"""A loss of one's own: that it sees what the built-in terms see, and what it pulls at."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpy_sac as hand
import pytest
import tiny_agent as tiny
import tiny_sac
from own_losses import Seen

from vcrl.agents import greedy, rainbow
from vcrl.agents.rainbow import clipped
from vcrl.agents.sac import descents
from vcrl.agents.soft import encode, term_losses
from vcrl.core.errors import UserError
from vcrl.methods.configs import SPR, VCR, ControlTerms, Own, Terms
from vcrl.methods.own import code_of


def mine(name: str, **more) -> Own:
    """A loss of own_losses.py, as a method with it has it."""
    return Own(f"own_losses:{name}", code_of(f"own_losses:{name}"), **more)


LIKENESS = mine("likeness", steps=tiny.STEPS)
TAKEN = mine("taken", steps=tiny.STEPS)
ENDING = mine("ending", steps=1, numbers=(("scale", 2.0),))


def variant(**terms) -> greedy.Setup:
    return tiny.setup(tiny.agent(tiny.config(terms=Terms(**terms))))


PAIRS = {
    "spr": (variant(spr=SPR(steps=tiny.STEPS, prediction=False)), variant(own=LIKENESS)),
    "vcr": (variant(vcr=VCR(steps=tiny.STEPS, others="none")), variant(own=TAKEN)),
}


@pytest.fixture(scope="module")
def pulled(state):
    """Each built-in loss and the same one written as a user would, with their gradients, in one program."""

    def one(setup, name):
        def loss(online):
            return greedy.losses(setup, online, state, tiny.segment(), tiny.CLOCK, tiny.SEED)[0][name]

        return jax.value_and_grad(loss)(state.online)

    def both():
        return {name: (one(ours, name), one(theirs, "own")) for name, (ours, theirs) in PAIRS.items()}

    return jax.jit(both)()


@pytest.mark.parametrize("name", PAIRS)
def test_it_computes_what_the_built_in_term_computes(pulled, name):
    (ours, slope), (theirs, same) = pulled[name]
    assert abs(float(ours)) > 0.1
    assert float(theirs) == pytest.approx(float(ours), rel=1e-5)
    slope, same = tiny.leaves(slope), tiny.leaves(same)
    assert slope.keys() == same.keys()
    for path, g in slope.items():
        np.testing.assert_allclose(same[path], g, rtol=1e-3, atol=1e-6, err_msg=path)


@pytest.fixture(scope="module")
def ending():
    """An agent with SPR and a loss with a net of its own; its state; the losses and what each pulls at."""
    agent = tiny.agent(tiny.config(terms=Terms(spr=tiny.SPR2, own=ENDING)))
    setup, state = tiny.setup(agent), jax.jit(agent.init)(jnp.asarray(3))

    def losses(online, state):
        return greedy.losses(setup, online, state, tiny.segment(), tiny.CLOCK, tiny.SEED)[0]

    def look(state):
        return losses(state.online, state), jax.jacrev(losses)(state.online, state)

    return agent, state, *jax.jit(look)(state)


def test_its_net_is_made_for_the_states_and_actions_there_are(ending):
    net = ending[1].online.own
    assert net.weight.shape == (tiny.ACTIONS, 3 * 3 * 16)


def test_it_reaches_its_own_net_and_what_imagines(ending):
    pulls = ending[3]
    reached = {path.split(".")[1] for path, g in tiny.leaves(pulls["own"]).items() if np.any(g != 0)}
    assert reached == {"encoder", "transition", "own"}
    for name in ("rl", "spr"):
        assert not any(np.any(g) for g in jax.tree.leaves(pulls[name].own)), name


def test_it_imagines_as_many_steps_as_it_asks_for_and_knows_its_numbers(ending):
    """One step, where SPR beside it has two; twice what the function says by itself."""
    _, state, losses, _ = ending
    segment = tiny.segment()
    obs = segment.obs[0].astype(jnp.float32) / 255
    start = state.online.encoder(obs)
    after, _ = state.online.transition(start, segment.action[0], state.stats, learning=True)
    flat = np.asarray(jnp.stack([start, after]).reshape(2, tiny.BATCH, -1), np.float64)
    said = flat @ np.asarray(state.online.own.weight[0]) + float(state.online.own.bias[0])
    wrong = np.log1p(np.exp(said)) - said * np.asarray(segment.terminal)[:2]
    each = 2 * (np.asarray(segment.alive)[:2] * wrong).sum(axis=0)
    assert float(losses["own"]) == pytest.approx(np.mean(np.asarray(segment.weight) * each), rel=1e-4)


def test_an_update_moves_its_net(ending):
    agent, state, _, _ = ending
    after, update = jax.jit(agent.update)(state, tiny.segment(), tiny.CLOCK, tiny.SEED)
    assert np.abs(np.asarray(after.online.own.weight - state.online.own.weight)).max() > 1e-3
    assert "loss/own" in update.metrics


def test_its_net_is_clipped_by_itself(ending):
    """However steep it is there, nothing else goes slower."""
    nets = ending[1].online
    gradient = jax.tree.map(lambda x: jnp.full_like(x, 1e-3), nets)
    steep = dataclasses.replace(gradient, own=jax.tree.map(lambda x: jnp.full_like(x, 40.0), nets.own))
    plain, got = clipped(gradient, 1.0), clipped(steep, 1.0)
    assert norm(plain.own) == pytest.approx(norm(gradient.own), rel=1e-6), "far below the limit"
    assert norm(got.own) == pytest.approx(1.0, rel=1e-5)
    rest = dataclasses.replace(got, own=plain.own)
    assert all(map(np.array_equal, jax.tree.leaves(rest), jax.tree.leaves(plain)))


def norm(tree):
    return np.sqrt(sum(np.sum(np.asarray(x) ** 2) for x in jax.tree.leaves(tree)))


# Over SAC


@pytest.fixture(scope="module")
def control():
    """As above, where states are vectors and actions numbers; before and after an update."""
    own = mine("ending", steps=1)
    agent = tiny_sac.agent(tiny_sac.config(terms=ControlTerms(spr=tiny_sac.ALL.spr, own=own)))
    state, batches = tiny_sac.state(agent), tiny_sac.batches(agent)
    looked = tiny_sac.look(tiny_sac.setup(agent))(state, batches, tiny_sac.CLOCK)
    return state, looked, jax.jit(agent.update)(state, batches, tiny_sac.CLOCK, tiny_sac.SEED)


def test_over_sac_it_reaches_its_own_net_and_what_imagines(control):
    state, looked, _ = control
    assert state.online.own.weight.shape == (tiny_sac.ACTIONS, 5)
    reached = {path.split(".")[1] for path, g in tiny_sac.leaves(looked["own"][1]).items() if np.any(g != 0)}
    assert reached == {"encoder", "transition", "own"}


def test_over_sac_the_auxiliary_step_moves_its_net(control):
    before, _, (after, update) = control
    assert np.abs(np.asarray(after.online.own.weight - before.online.own.weight)).max() > 1e-3
    assert "loss/own" in update.metrics


def test_over_sac_it_computes_what_the_built_in_term_computes():
    """The actions taken against their soft targets; both critics, and none of the others."""
    built = VCR(steps=tiny_sac.STEPS, others="none")
    terms = (ControlTerms(vcr=built), ControlTerms(own=mine("taken", steps=tiny_sac.STEPS)))
    agents = [tiny_sac.agent(tiny_sac.config(terms=each)) for each in terms]
    state = tiny_sac.state(agents[0])
    looks = [tiny_sac.look(tiny_sac.setup(a))(state, tiny_sac.batches(a), tiny_sac.CLOCK) for a in agents]
    (ours, slope, _), (theirs, same, told) = looks[0]["vcr"], looks[1]["own"]
    assert float(ours) > 0.1
    assert float(theirs) == pytest.approx(float(ours), rel=1e-5)
    for path, g in tiny_sac.leaves(slope).items():
        np.testing.assert_allclose(tiny_sac.leaves(same)[path], g, rtol=1e-3, atol=1e-6, err_msg=path)
    assert float(told["own/seen"]) == 1  # windows inside an episode


def test_over_sac_the_auxiliary_step_may_move_the_critics_as_with_value_consistency():
    own = descents(tiny_sac.config(terms=ControlTerms(own=mine("taken"))))["auxiliary"]
    assert own.rates.keys() >= {"encoder", "q_head", "transition", "own"}
    heads = dataclasses.replace(tiny_sac.config().auxiliary, heads=False)
    kept = tiny_sac.config(terms=ControlTerms(own=mine("taken")), auxiliary=heads)
    assert "q_head" not in descents(kept)["auxiliary"].rates


@pytest.mark.parametrize("crop", [None, 8])
def test_over_sac_an_encoder_of_ones_own_is_given_images_and_ours_what_it_likes(crop):
    agent = tiny_sac.agent(tiny_sac.config(crop=crop))
    setup, obs = tiny_sac.setup(agent), tiny_sac.batches(agent).aux.obs[:2]
    nets, k = tiny_sac.state(agent).online, jax.random.key(0)
    wanted = encode(setup, nets.encoder, k, obs)
    np.testing.assert_array_equal(encode(setup, lambda image: nets.encoder(image * 1.0), k, obs), wanted)
    np.testing.assert_allclose(encode(setup, nets.encoder.without_gradient, k, obs), wanted, rtol=1e-6)
    assert wanted.shape[:2] == obs.shape[:2]


def test_over_sac_there_is_a_target_of_the_first_action_too():
    own = ControlTerms(own=mine("target", steps=tiny_sac.STEPS))
    agent = tiny_sac.agent(tiny_sac.config(terms=own))
    state, windows = tiny_sac.state(agent), tiny_sac.batches(agent).aux
    assert windows is not None
    aug, noise = tiny_sac.streams(tiny_sac.CLOCK)

    @jax.jit
    def told(state):
        given = (state.target, windows, tiny_sac.CLOCK, tiny_sac.SEED, aug[1], noise[1], state.online)
        return term_losses(tiny_sac.setup(agent), *given)[0]["own"]

    normal = jax.random.normal(jax.random.fold_in(noise[1], 1), (tiny_sac.WINDOWS, tiny_sac.ACTIONS))
    nets, slow = hand.numbers(state.online), hand.numbers(state.target)
    seen = np.asarray(windows.boot_obs[:1], np.float64) / 255
    y = hand.soft_target(nets, slow, seen, normal, windows.returns[:1], windows.discount[:1])
    assert float(told(state)) == pytest.approx(np.mean(y), rel=1e-4)


# What it sees


def test_what_it_did_not_ask_for_is_not_there_and_all_is_as_long_as_it_wants():
    """Beside VCR, which looks further ahead and has targets."""
    own = mine("shapes", steps=1)
    setup = variant(vcr=tiny.VCR2, own=own)
    state = jax.eval_shape(lambda: rainbow.init(setup, jnp.asarray(0)))
    with pytest.raises(Seen) as told:
        jax.eval_shape(
            lambda s: greedy.losses(setup, s.online, s, tiny.segment(), tiny.CLOCK, tiny.SEED), state
        )
    shapes = told.value.args[0]
    assert {name: shape[0] for name, shape in shapes.items()} == {
        "obs": 2, "imagined": 2, "real": 1, "action": 2, "reward": 2, "terminal": 2, "alive": 2,
        "td_target": 0, "bellman": 2, "reading": 2,
    }  # fmt: skip
    terms = ControlTerms(vcr=tiny_sac.ALL.vcr, own=own)
    agent = tiny_sac.agent(tiny_sac.config(terms=terms))
    with pytest.raises(Seen) as told:
        tiny_sac.look(tiny_sac.setup(agent)).trace(
            tiny_sac.state(agent), tiny_sac.batches(agent), tiny_sac.CLOCK
        )
    assert told.value.args[0]["td_target"][0] == 0 and told.value.args[0]["imagined"][0] == 2


# Nets and what is refused


def test_nets_may_have_parts_that_are_no_arrays():
    agent = tiny.agent(tiny.config(terms=Terms(own=mine("layered", steps=1))))
    state = jax.jit(agent.init)(jnp.asarray(3))
    shapes = sorted(x.shape for x in jax.tree.leaves(state.online.own))
    assert shapes == [(1,), (1, 4), (4,), (4, 144)]
    after, update = jax.jit(agent.update)(state, tiny.segment(steps=1, targets=1), tiny.CLOCK, tiny.SEED)
    moved = jax.tree.map(lambda a, b: bool((a != b).any()), after.online.own, state.online.own)
    assert all(jax.tree.leaves(moved)) and np.isfinite(update.metrics["loss/own"])


def test_nets_with_arrays_that_cannot_be_learned_are_refused():
    agent = tiny.agent(tiny.config(terms=Terms(own=mine("counted", steps=1))))
    with pytest.raises(UserError, match="own_losses:counted have an array of int32: only floats"):
        jax.eval_shape(agent.init, jnp.asarray(0))


def test_a_loss_that_is_not_one_number_a_sample_is_refused(ending):
    setup = variant(own=mine("whole", steps=1))
    told = r"own_losses:whole gave numbers of shape \(\): one a sample is needed, \(4,\)"
    with pytest.raises(UserError, match=told):
        jax.eval_shape(
            lambda s: greedy.losses(setup, s.online, s, tiny.segment(), tiny.CLOCK, tiny.SEED), ending[1]
        )
