"""The discrete base: how it acts, what one update does to the weights, and how it looks ahead."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_agent as tiny
from scipy.stats import chi2

from vcrl.agents import greedy, rainbow
from vcrl.agents.base import follow, needs_copy
from vcrl.agents.greedy import RainbowNets, weights
from vcrl.agents.rainbow import clipped
from vcrl.core.keys import Stream, key
from vcrl.core.types import Clock
from vcrl.methods.configs import SPR, VCR, Adam, Priority, ReplayConfig, Scalar, Slow, Terms
from vcrl.nets.encoders import Encoder
from vcrl.nets.heads import QHead
from vcrl.nets.layers import Conv, Linear
from vcrl.nets.norms import BatchNorm
from vcrl.nets.transition import Transition

ROWS = 512


def clock(agent_steps: int, updates: int = 3) -> Clock:
    return Clock(jnp.asarray(agent_steps), jnp.asarray(updates))


# Acting


@pytest.fixture(scope="module")
def playful():
    """An agent with chances of its own: 0.25 at random while exploring, 0.5 while being evaluated."""
    return tiny.agent(tiny.config(epsilon=0.25), eval_epsilon=0.5)


@pytest.fixture(scope="module")
def act(playful):
    return jax.jit(playful.act, static_argnums=5)


@pytest.fixture(scope="module")
def scene():
    """Observations, and the (episode, tick) of each row."""
    rng = np.random.default_rng(0)
    # Blocks of light, so that the states and the best actions differ between rows.
    coarse = rng.integers(0, 256, (ROWS, 4, 4, tiny.STACK)) * (rng.random((ROWS, 4, 4, 1)) < 0.5)
    obs = jnp.asarray(np.repeat(np.repeat(coarse, 4, 1), 4, 2), jnp.uint8)
    return obs, jnp.asarray(np.stack([np.arange(ROWS) // 100, np.arange(ROWS) % 100], -1), jnp.int32)


@pytest.fixture(scope="module")
def best(state, scene):
    """The best action of each row under a noise, or under none, from the expectation of C51 in NumPy."""
    read = jax.jit(lambda head, obs: head(state.online.encoder(obs.astype(jnp.float32) / 255)))

    def best(noise=None):
        head = state.online.q_head
        logits = read(head.mean() if noise is None else head.draw(noise), scene[0])
        return np.argmax(np.exp(tiny.log_softmax(np.asarray(logits))) @ tiny.SUPPORT, axis=-1)

    return best


@pytest.fixture(scope="module")
def chances(scene):
    """Two uniform numbers of each row, from its address alone."""

    def chances(stream):
        def one(address):
            k = jax.random.fold_in(jax.random.fold_in(key(tiny.SEED, stream, 0), address[0]), address[1])
            return jax.random.uniform(k, (2,))

        return np.asarray(jax.jit(jax.vmap(one))(scene[1]))

    return chances


def test_it_plays_at_random_up_to_and_including_learn_start(act, state, scene, chances):
    expected = np.floor(chances(Stream.ACT)[:, 1] * tiny.ACTIONS)
    for agent_steps in (0, 9, 10):
        actions = np.asarray(act(state, scene[0], clock(agent_steps), tiny.SEED, scene[1], True))
        np.testing.assert_array_equal(actions, expected)
    counts = np.bincount(actions, minlength=tiny.ACTIONS)
    assert np.sum((counts - ROWS / 3) ** 2 / (ROWS / 3)) < chi2.ppf(0.9999, tiny.ACTIONS - 1)


def test_after_learn_start_it_follows_the_noise_of_the_last_update(act, state, scene, best, chances):
    chance = chances(Stream.ACT)
    for updates in (0, 3, 4):
        greedy = best(key(tiny.SEED, Stream.NOISE, updates))
        expected = np.where(chance[:, 0] < 0.25, np.floor(chance[:, 1] * tiny.ACTIONS), greedy)
        actions = act(state, scene[0], clock(11, updates), tiny.SEED, scene[1], True)
        np.testing.assert_array_equal(actions, expected)
        assert 0 < (expected != greedy).mean() < 0.25
        assert (greedy != best()).any(), "the noise is too small to be seen"


def test_by_default_only_noise_explores(state, scene, best):
    agent = tiny.agent(tiny.config())
    actions = jax.jit(agent.act, static_argnums=5)(state, scene[0], clock(11), tiny.SEED, scene[1], True)
    np.testing.assert_array_equal(actions, best(key(tiny.SEED, Stream.NOISE, 3)))


def test_evaluation_has_no_noise_and_the_protocols_epsilon(act, state, scene, best, chances):
    chance, greedy = chances(Stream.EVAL), best()
    expected = np.where(chance[:, 0] < 0.5, np.floor(chance[:, 1] * tiny.ACTIONS), greedy)
    for agent_steps, updates in ((0, 0), (11, 3), (500, 77)):
        actions = act(state, scene[0], clock(agent_steps, updates), tiny.SEED, scene[1], False)
        np.testing.assert_array_equal(actions, expected)
    assert 0.2 < (expected != greedy).mean() < 0.5
    assert len(set(greedy)) > 1
    assert (chance != chances(Stream.ACT)).all(), "evaluating must not repeat the chances of training"


@pytest.mark.parametrize("explore", [True, False])
def test_a_rows_choice_depends_on_its_own_address_only(act, state, scene, explore):
    obs, draw = scene
    order = np.random.default_rng(1).permutation(ROWS)
    now = clock(5 if explore else 50)
    plain = np.asarray(act(state, obs, now, tiny.SEED, draw, explore))
    shuffled = np.asarray(act(state, obs[order], now, tiny.SEED, draw[order], explore))
    np.testing.assert_array_equal(shuffled, plain[order])
    # Another tick or another episode in half of the rows is another choice there, and nowhere else.
    for column in (0, 1):
        moved = np.asarray(act(state, obs, now, tiny.SEED, draw.at[: ROWS // 2, column].add(1000), explore))
        np.testing.assert_array_equal(moved[ROWS // 2 :], plain[ROWS // 2 :])
        assert (moved[: ROWS // 2] != plain[: ROWS // 2]).mean() > 0.15
    other_seed = np.asarray(act(state, obs, now, tiny.SEED + 1, draw, explore))
    assert (other_seed != plain).mean() > 0.15


# One update


@pytest.fixture(scope="module")
def update(full):
    return jax.jit(full.update)


@pytest.fixture(scope="module")
def updated(update, state):
    return update(state, tiny.segment(), tiny.CLOCK, tiny.SEED)


def test_priority_is_the_root_of_the_clipped_divergence(updated, readings, state):
    segment = tiny.segment()
    kl = tiny.by_hand(readings(state, segment, *tiny.noises()), segment)["kl"]
    assert kl.min() > 1e-3
    np.testing.assert_allclose(updated[1].priority, np.sqrt(kl), rtol=1e-4)


def total_pull(pulls, state, now):
    """The gradient of the weighted sum of the losses, each differentiated on its own."""
    _, pull = pulls(state, tiny.segment(), now, tiny.SEED)
    factor = {"rl": 1.0, "spr": 1.0, "vcr": 0.2 * np.exp(-5 * (1 - (int(now.agent_steps) + 1) / 1000) ** 2)}
    each = {name: tiny.leaves(pull[name].online) for name in factor}
    return {path: sum(factor[n] * each[n][path].astype(np.float64) for n in factor) for path in each["rl"]}


def norm_of(gradient, *parts):
    return np.sqrt(sum(np.sum(g**2) for path, g in gradient.items() if path.startswith(parts)))


def clip_by_hand(gradient, limit):
    joint, own = norm_of(gradient, ".encoder", ".q_head"), norm_of(gradient, ".transition")
    assert joint > limit, "the clip should bite"
    scale = {".encoder": min(1, limit / joint), ".q_head": min(1, limit / joint)}
    scale |= {".transition": min(1, limit / own), ".prediction": 1.0}
    return {path: g * next(s for p, s in scale.items() if path.startswith(p)) for path, g in gradient.items()}


def test_two_updates_are_two_steps_of_adam_on_the_clipped_gradient(update, pulls, state, updated):
    rate, epsilon, clip = 1e-2, 1e-3, 1.0  # those of the tiny agent
    now, after, weight = tiny.CLOCK, updated, tiny.leaves(state.online)
    first = {path: np.zeros(x.shape) for path, x in weight.items()}
    second = dict(first)
    for t in (1, 2):
        whole = total_pull(pulls, state, now)
        assert float(after[1].metrics["grad_norm"]) == pytest.approx(norm_of(whole, "."), rel=1e-4)
        gradient = clip_by_hand(whole, clip)
        for path, g in gradient.items():
            first[path] = 0.9 * first[path] + 0.1 * g
            second[path] = 0.999 * second[path] + 0.001 * g**2
            root = np.sqrt(second[path] / (1 - 0.999**t))
            weight[path] = weight[path] - rate * (first[path] / (1 - 0.9**t)) / (root + epsilon)
        moved, before = tiny.leaves(after[0].online), tiny.leaves(state.online)
        for path in weight:
            np.testing.assert_allclose(moved[path], weight[path], atol=2e-6, err_msg=path)
            assert np.abs(moved[path] - before[path]).max() > 1e-4, f"{path} did not move"
        state, now = after[0], now._replace(updates=now.updates + 1)
        after = update(state, tiny.segment(), now, tiny.SEED)


def test_the_defaults_of_adam_are_the_references():
    assert Adam() == Adam(rate=1e-4, epsilon=1.5e-4, clip=10.0)


def test_the_target_follows_in_the_update(update, state, updated):
    """Rate 0.5 every 2: update 41 is the 42nd, after which the target moves; after the next it rests."""
    half = jax.tree.map(lambda new, old: old + 0.5 * (new - old), updated[0].online, state.target)
    for path, x in tiny.leaves(half).items():
        np.testing.assert_allclose(tiny.leaves(updated[0].target)[path], x, rtol=1e-6, atol=1e-7)
    later = tiny.CLOCK._replace(updates=tiny.CLOCK.updates + 1)
    rested, _ = update(updated[0], tiny.segment(), later, tiny.SEED)
    for path, x in tiny.leaves(updated[0].target).items():
        np.testing.assert_array_equal(tiny.leaves(rested.target)[path], x)


def test_the_update_keeps_the_running_statistics(updated, readings, state):
    expected = readings(state, tiny.segment(), *tiny.noises())["stats"]
    for got, by_hand in zip(updated[0].stats, expected, strict=True):
        np.testing.assert_allclose(got, by_hand, rtol=1e-4, atol=1e-6)


def test_metrics_are_the_losses(updated, pulls, state):
    losses, _ = pulls(state, tiny.segment(), tiny.CLOCK, tiny.SEED)
    metrics = updated[1].metrics
    for name in ("rl", "spr", "vcr"):
        assert float(metrics[f"loss/{name}"]) == pytest.approx(float(losses[name]), rel=1e-5)
    assert metrics.keys() == {
        "q", "grad_norm", "loss/rl", "loss/spr", "loss/vcr", "vcr/taken", "vcr/others", "value/clipped",
        "state/spread",
        "state/mean",
    }  # fmt: skip


def test_the_spread_of_states_is_their_deviation_over_the_batch(updated, update, state):
    images = np.asarray(tiny.segment().obs[0]).astype(np.float32) / 255
    states = np.asarray(state.online.encoder(jnp.asarray(images)))
    assert float(updated[1].metrics["state/spread"]) == pytest.approx(states.std(axis=0).mean(), rel=1e-4)
    assert float(updated[1].metrics["state/mean"]) == pytest.approx(states.mean(), rel=1e-4)
    alike = tiny.segment()._replace(obs=jnp.broadcast_to(tiny.segment().obs[:, :1], tiny.segment().obs.shape))
    assert float(update(state, alike, tiny.CLOCK, tiny.SEED)[1].metrics["state/spread"]) < 1e-6


def test_clipped_is_the_mean_mass_beyond_the_support(readings, update, state):
    """By hand from what the nets say: two of the four returns leave the support of -2 to 2."""
    read = readings(state, tiny.segment(), *tiny.noises())
    worth = np.exp(tiny.log_softmax(np.asarray(read["worth"][0])))
    chooser = np.exp(tiny.log_softmax(np.asarray(read["chooser"][0])))
    segment, share = tiny.segment(), np.zeros(tiny.BATCH)
    returns = np.array([1.5, -2.5, 0.3, -1.0])
    for b in range(tiny.BATCH):
        best = max(range(tiny.ACTIONS), key=lambda a: chooser[b, a] @ tiny.SUPPORT)
        for mass, atom in zip(worth[b, best], tiny.SUPPORT, strict=True):
            share[b] += mass * (abs(returns[b] + float(segment.discount[0, b]) * atom) > 2.0001)
    assert share[1] == pytest.approx(1) and share[2] == 0 and 0.01 < share[0] < 0.9
    moved = segment._replace(returns=segment.returns.at[0].set(jnp.asarray(returns, jnp.float32)))
    _, result = update(state, moved, tiny.CLOCK, tiny.SEED)
    assert float(result.metrics["value/clipped"]) == pytest.approx(share.mean(), rel=1e-4)


def small_nets(
    encoder: float, head: float, transition: float | None, prediction: float | None
) -> RainbowNets:
    """Nets with one number each that is not zero: only its place in the tree matters to the clip."""

    def linear(x: float = 0.0) -> Linear:
        return Linear(jnp.full((1, 1), x, jnp.float32), jnp.zeros(1))

    def conv(x: float = 0.0) -> Conv:
        return Conv(jnp.full((1, 1, 1, 1), x, jnp.float32), jnp.zeros(1), 1, 0)

    norm = BatchNorm(jnp.zeros(1), jnp.zeros(1))
    return RainbowNets(
        Encoder((conv(encoder),)),
        QHead((linear(head), linear()), (linear(), linear()), 1),
        None if transition is None else Transition(conv(transition), norm, conv(), 1),
        None if prediction is None else linear(prediction),
    )


@pytest.mark.parametrize(
    ("gradient", "expected"),
    [
        # 3-4-5: the joint norm of encoder and head is 50, five times the limit; 20 of its own is twice it.
        ((30.0, 40.0, 20.0, 1000.0), (6.0, 8.0, 10.0, 1000.0)),
        ((3.0, 4.0, 20.0, 1.0), (3.0, 4.0, 10.0, 1.0)),  # only the transition model is too steep
        ((8.0, 8.0, 8.0, 8.0), (8 / 128**0.5 * 10, 8 / 128**0.5 * 10, 8.0, 8.0)),  # 11.3 together
        ((6.0, 8.0, 10.0, 10.0), (6.0, 8.0, 10.0, 10.0)),  # at the limit
        ((0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0)),
        ((30.0, 40.0, None, None), (6.0, 8.0, None, None)),
    ],
)
def test_clip_groups(gradient, expected):
    got = clipped(small_nets(*gradient), 10.0)
    for part, value in zip((got.encoder, got.q_head, got.transition, got.prediction), expected, strict=True):
        if value is None:
            assert part is None
        else:
            total = sum(float(jnp.sum(x)) for x in jax.tree.leaves(part))
            assert total == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize(
    ("slow", "expected"),
    [
        (Slow(rate=1.0, every=3), [0, 0, 3, 3, 3, 6]),
        (Slow(rate=0.5, every=1), [0.5, 1.25, 2.125, 3.0625, 4.03125, 5.015625]),
        (Slow(rate=0.25, every=2), [0, 0.5, 0.5, 1.375, 1.375, 2.53125]),
        (Slow(rate=0.0, every=1), [0] * 6),
    ],
)
def test_slow_copies_by_hand(slow, expected):
    """The online weight is 1, 2, 3, ... after update 1, 2, 3, ...; its copy starts at 0."""
    copy, seen = {"w": jnp.zeros(2)}, []
    for update in range(1, 7):
        copy = follow({"w": jnp.full(2, float(update))}, copy, slow, clock(0, update))
        seen.append(float(copy["w"][1]))
    np.testing.assert_allclose(seen, expected, rtol=1e-6)


def test_a_copy_that_would_equal_the_online_weights_is_not_kept(state):
    assert follow({"w": jnp.ones(2)}, None, Slow(), clock(0)) is None
    kept = {(r, e): needs_copy(Slow(rate=r, every=e)) for r, e in itertools.product((1.0, 0.5), (1, 2))}
    assert kept == {(1.0, 1): False, (1.0, 2): True, (0.5, 1): True, (0.5, 2): True}
    for slow in (Slow(), Slow(rate=1.0, every=2)):
        fresh = jax.eval_shape(tiny.agent(tiny.config(target=slow)).init, jnp.asarray(0))
        assert (fresh.target is None) == (slow == Slow())


# Names and weights of the losses

VCRS = {
    "none": None,
    "n-step": tiny.VCR2,
    "d_mse": tiny.D_MSE,
    "d_mse_a": tiny.D_MSE_A,
}


@pytest.mark.parametrize("value", ["categorical", "scalar"])
@pytest.mark.parametrize("spr", [None, tiny.SPR2])
@pytest.mark.parametrize("vcr", VCRS)
def test_every_loss_has_a_weight_and_every_weight_a_loss(vcr, spr, value):
    terms = Terms(spr=spr, vcr=VCRS[vcr])
    kind = {"value": Scalar()} if value == "scalar" else {}
    agent = tiny.agent(tiny.config(terms=terms, **kind))
    steps = tiny.STEPS if spr or VCRS[vcr] else 0
    assert (agent.sample.steps, agent.sample.targets) == (steps, 3 if vcr == "n-step" else 1)
    shape = jax.eval_shape(agent.init, jnp.asarray(0))
    assert (shape.online.transition is not None) == (shape.stats is not None) == (steps > 0)
    assert (shape.online.prediction is not None) == (spr is not None)
    segment = tiny.segment(steps=steps, targets=agent.sample.targets)
    losses, _ = jax.eval_shape(
        lambda s: greedy.losses(tiny.setup(agent), s.online, s, segment, tiny.CLOCK, tiny.SEED), shape
    )
    names = {"rl"} | ({"spr"} if spr else set()) | ({"vcr"} if VCRS[vcr] else set())
    assert losses.keys() == weights(tiny.setup(agent), tiny.CLOCK).keys() == names
    assert all(x.shape == () for x in losses.values())


def test_a_loss_without_a_weight_is_refused(full, state, monkeypatch):
    monkeypatch.setattr(rainbow, "weights", lambda setup, clock: {"rl": jnp.ones(()), "spr": jnp.ones(())})
    with pytest.raises(AssertionError, match="vcr"):
        jax.eval_shape(lambda s: full.update(s, tiny.segment(), tiny.CLOCK, tiny.SEED), state)


def test_only_vcr_is_ramped():
    """The factors of the reference's warm-up at W = 50,000, times 0.2."""
    terms = Terms(spr=SPR(weight=3.0, steps=2), vcr=VCR(weight=0.2, steps=2))
    setup = tiny.setup(tiny.agent(tiny.config(terms=terms)))
    by_hand = {0: 0.0067, 10_000: 0.041, 25_000: 0.287, 40_000: 0.819, 50_000: 1.0, 90_000: 1.0}
    for agent_steps, factor in by_hand.items():
        weight = {n: float(w) for n, w in weights(setup, clock(agent_steps, updates=7)).items()}
        assert weight["rl"] == 1 and weight["spr"] == 3
        assert weight["vcr"] == pytest.approx(0.2 * factor, rel=0.01)


def test_without_a_ramp_the_weight_is_whole_at_once():
    terms = Terms(vcr=VCR(weight=0.2, steps=2, ramp=0))
    weight = weights(tiny.setup(tiny.agent(tiny.config(terms=terms))), clock(0))["vcr"]
    assert float(weight) == pytest.approx(0.2)


# Looking inside


@pytest.fixture(scope="module")
def gradient_norms(full):
    return jax.jit(full.gradient_norms)


def test_gradient_norms_are_those_of_the_weighted_losses(gradient_norms, pulls, state):
    norms = gradient_norms(state, tiny.segment(), tiny.CLOCK, tiny.SEED)
    _, pull = pulls(state, tiny.segment(), tiny.CLOCK, tiny.SEED)
    factor = {"rl": 1.0, "spr": 1.0, "vcr": 0.2 * np.exp(-5 * (1 - 701 / 1000) ** 2)}
    assert norms.keys() == {f"grad_norm/{name}" for name in factor}
    for name, f in factor.items():
        alone = norm_of({k: v.astype(np.float64) for k, v in tiny.leaves(pull[name].online).items()}, ".")
        assert float(norms[f"grad_norm/{name}"]) == pytest.approx(f * alone, rel=1e-4)


def test_every_state_passes_through_a_head_once(full, state, monkeypatch):
    """Bootstrap states by either head; imagined ones for the RL loss and VCR together; real ones for VCR."""
    read, passed = QHead.__call__, []

    def counted(head, states):
        passed.append(len(states))
        return read(head, states)

    monkeypatch.setattr(QHead, "__call__", counted)
    jax.eval_shape(lambda *x: full.update(*x), state, tiny.segment(), tiny.CLOCK, tiny.SEED)  # traced anew
    assert sorted(passed) == [tiny.STEPS, tiny.STEPS + 1, tiny.STEPS + 1, tiny.STEPS + 1]


def test_on_a_gpu_every_loss_pulls_as_hard(full, gradient_norms, state, monkeypatch):
    """By halves, for two seeds at once and one batched backward pass for all losses."""
    plain = gradient_norms(state, tiny.segment(), tiny.CLOCK, tiny.SEED)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    twice = jax.tree.map(lambda x: jnp.stack([x, x]), (state, tiny.segment()))
    found = jax.jit(jax.vmap(full.gradient_norms, in_axes=(0, 0, None, None)))(*twice, tiny.CLOCK, tiny.SEED)
    for name, wanted in plain.items():
        np.testing.assert_allclose(found[name], [wanted, wanted], rtol=0.03)
        assert found[name][0] != wanted


def test_the_ramp_scales_the_pull_of_vcr(gradient_norms, state):
    early, late = (
        gradient_norms(state, tiny.segment(), tiny.CLOCK._replace(agent_steps=jnp.asarray(s)), tiny.SEED)
        for s in (0, 5000)
    )
    ratio = {n.removeprefix("grad_norm/"): float(early[n] / late[n]) for n in early}
    assert ratio["vcr"] == pytest.approx(np.exp(-5 * 0.999**2), rel=1e-4)
    assert ratio["rl"] == ratio["spr"] == 1


PLACES = 5


@pytest.fixture(scope="module")
def looking(full):
    return jax.jit(full.values_along)


@pytest.fixture(scope="module")
def path():
    rng = np.random.default_rng(3)
    obs = rng.integers(0, 256, (PLACES, 16, 16, tiny.STACK), np.uint8)
    return jnp.asarray(obs), jnp.asarray(rng.integers(0, tiny.ACTIONS, (tiny.STEPS + 1, PLACES)), jnp.int32)


def stepped(state, obs, actions, learning):
    """Q of every action along the path: encode, then one call of the transition model after the other."""

    @jax.jit
    def logits(state):
        z, stats = state.online.encoder(obs.astype(jnp.float32) / 255), state.stats
        out = [state.online.q_head.mean()(z)]
        for action in actions[:-1]:
            z, stats = state.online.transition(z, action, stats, learning)
            out.append(state.online.q_head.mean()(z))
        return jnp.stack(out)

    return np.exp(tiny.log_softmax(np.asarray(logits(state)))) @ tiny.SUPPORT


@pytest.mark.parametrize("learning", [True, False])
def test_values_along_a_path_equal_stepping_by_hand(looking, state, path, learning):
    obs, actions = path
    q = stepped(state, obs, actions, learning)
    expected = np.take_along_axis(q, np.asarray(actions)[..., None], -1)[..., 0]
    got = getattr(looking(state, obs, actions), "batch" if learning else "running")
    assert got.shape == (tiny.STEPS + 1, PLACES)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_batch_and_running_statistics_differ_on_imagined_states_only(looking, state, path):
    obs, actions = path
    running, batch = looking(state, obs, actions)
    np.testing.assert_array_equal(batch[0], running[0])
    assert (np.abs(np.asarray(batch - running))[1:].max(axis=1) > 1e-4).all()


def test_with_running_statistics_a_path_does_not_see_its_neighbours(looking, state, path):
    obs, actions = path
    alone, together = (
        looking(state, o, a).running
        for o, a in ((obs, actions), (obs.at[1:].set(7), actions.at[:, 1:].set(0)))
    )
    np.testing.assert_allclose(alone[:, 0], together[:, 0], rtol=1e-5, atol=1e-6)
    assert np.abs(np.asarray(alone - together)[:, 1:]).max() > 1e-3


def test_without_a_transition_model_there_is_the_real_state_only(state, path):
    obs, actions = path
    plain = tiny.agent(tiny.config(terms=Terms()))
    bare = state._replace(
        online=RainbowNets(state.online.encoder, state.online.q_head, None, None), stats=None
    )
    got, batch = plain.values_along(bare, obs, actions)
    assert batch is None
    q = stepped(state, obs, actions[:1], False)
    assert got.shape == (1, PLACES)
    np.testing.assert_allclose(got[0], q[0][np.arange(PLACES), np.asarray(actions[0])], rtol=1e-4, atol=1e-5)


# A value that is one number


def dqn(**changes):
    """Init, update and a look at Q of the taken actions, of an agent whose values are one number each."""
    adam = Adam(rate=3e-3, epsilon=1.5e-4)
    agent = tiny.agent(
        tiny.config(value=Scalar(), noise=None, terms=Terms(), target=Slow(), adam=adam, **changes)
    )
    segment = tiny.segment(steps=0, targets=1)
    segment = segment._replace(discount=0 * segment.discount, weight=jnp.ones(tiny.BATCH))
    look = jax.jit(lambda state: agent.values_along(state, segment.obs[0], segment.action).running[0])
    return jax.jit(agent.init)(jnp.asarray(0)), jax.jit(agent.update), look, segment


def test_dqn_learns_a_regression():
    """No bootstrap, one target a sample: Q of the taken action must become the return."""
    state, update, look, segment = dqn()
    returns = jnp.array([[1.0, -1.0, 0.5, 2.0]])
    error, losses, priorities = np.asarray(look(state) - returns[0]), [], []
    for i in range(150):
        state, result = update(state, segment._replace(returns=returns), clock(100, i), tiny.SEED)
        losses.append(float(result.metrics["loss/rl"]))
        priorities.append(result.priority)
    huber = np.where(abs(error) < 1, error**2 / 2, abs(error) - 0.5)
    assert losses[0] == pytest.approx(huber.mean(), rel=1e-4)
    np.testing.assert_allclose(priorities[0], np.sqrt(np.abs(error)), rtol=1e-4)
    assert losses[-1] < 1e-3 * losses[0]
    np.testing.assert_allclose(look(state), returns[0], atol=0.05)
    assert result.metrics.keys() == {"q", "grad_norm", "loss/rl", "state/spread", "state/mean"}


@pytest.mark.parametrize(("priority", "exponent"), [(Priority(), 0.5), (None, 1)])
def test_priorities_are_clipped_before_the_exponent(priority, exponent):
    """DQN's surprise is |Q - y|: here hardly anything, 4, and far out to either side."""
    state, update, look, segment = dqn(replay=ReplayConfig(priority=priority))
    returns = (look(state) + jnp.array([0.0, 4.0, 1e9, -1e9]))[None]
    _, result = update(state, segment._replace(returns=returns), clock(100), tiny.SEED)
    np.testing.assert_allclose(result.priority, np.array([1e-6, 4, 1e6, 1e6]) ** exponent, rtol=1e-4)


def test_dqn_bootstraps_with_one_number():
    values = tiny.setup(tiny.agent(tiny.config(value=Scalar()))).values
    assert values.size == 1
    target = values.bellman(jnp.array([[3.0], [3.0]]), jnp.array([0.5, 0.5]), jnp.array([0.81, 0.0]))
    np.testing.assert_allclose(target, [[2.93], [0.5]], rtol=1e-6)
