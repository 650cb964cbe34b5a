"""The other terms and the knobs of the base: what each loss is, what it pulls at, and what it leaves alone."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_agent as tiny

from vcrl.agents import greedy
from vcrl.agents.greedy import RainbowNets
from vcrl.agents.rainbow import clipped, exploration
from vcrl.core.types import Clock
from vcrl.methods.configs import SPR, VCR, Contrast, Cycle, Priority, ReplayConfig, Reward, Slow, Terms
from vcrl.nets.augment import crop_and_pad
from vcrl.nets.layers import Linear

TERMS = Terms(
    spr=tiny.SPR2,
    vcr=tiny.VCR2,
    reward=Reward(steps=tiny.STEPS),
    cycle=Cycle(steps=tiny.STEPS, ramp=1000, copies=1),
    contrast=Contrast(weight=0.5, crop=2, hidden=8, size=6, slow=Slow(rate=0.25)),
)
TOTAL = ReplayConfig(capacity=40, priority=Priority(of="total"))


def variant(spr: SPR = tiny.SPR2, vcr: VCR | None = tiny.VCR2, **changes) -> greedy.Setup:
    return tiny.setup(tiny.agent(tiny.config(terms=Terms(spr=spr, vcr=vcr), **changes)))


SETUPS = {
    "": tiny.setup(tiny.agent(tiny.config(terms=TERMS, replay=TOTAL))),
    "quiet": variant(vcr=VCR(steps=tiny.STEPS, ramp=1000, noise=False)),
    "absorb": variant(vcr=VCR(steps=tiny.STEPS, ramp=1000, ends="absorb")),
    "bare": variant(SPR(steps=tiny.STEPS, prediction=False, over="mean"), None),
    "more": variant(vcr=None, rl_stride=1),
}
SHOWN = {"quiet": "vcr", "absorb": "vcr", "bare": "spr", "more": "rl"}


@pytest.fixture(scope="module")
def rich(state):
    """Nets with every part, online, target and momentum ones all different."""
    init = jax.jit(tiny.agent(tiny.config(terms=TERMS)).init)
    one, two = init(jnp.asarray(4)), init(jnp.asarray(5))

    def with_more(nets, other):
        parts = (other.reward, other.backward, other.contrast)
        return RainbowNets(nets.encoder, nets.q_head, nets.transition, nets.prediction, *parts)

    online, target = with_more(state.online, one.online), with_more(state.target, two.online)
    return state._replace(online=online, target=target, momentum=two.momentum)


@pytest.fixture(scope="module")
def look():
    """The losses of all variants, what each pulls at, and the surprise of the agent with every term."""

    def losses(nets, state, segment):
        online, frozen, target, momentum = nets
        state = state._replace(online=frozen, target=target, momentum=momentum)
        out = {n: greedy.losses(s, online, state, segment, tiny.CLOCK, tiny.SEED) for n, s in SETUPS.items()}
        named = out[""][0] | {n: out[n][0][shown] for n, shown in SHOWN.items()}
        return named, (named, out[""][1][1])

    def look(state, segment):
        nets = (state.online, state.online, state.target, state.momentum)
        return jax.jacrev(losses, has_aux=True)(nets, state, segment)

    return jax.jit(look)


@pytest.fixture(scope="module")
def looked(look, rich):
    return look(rich, tiny.segment())


def alone(look, state, segment, name):
    """A loss of each sample by itself."""
    out = []
    for sample in range(tiny.BATCH):
        weight = tiny.BATCH * jnp.asarray(np.arange(tiny.BATCH) == sample, jnp.float32)
        out.append(float(look(state, segment._replace(weight=weight))[1][0][name]))
    return np.array(out)


HEAD = [f".q_head.{stream}[{i}]" for stream in ("advantage", "value") for i in (0, 1)]
PROJECTION = [
    f".q_head.{stream}[0]{part}" for stream in ("advantage", "value") for part in (".weight", ".bias")
]
MEANS = [layer + part for layer in HEAD for part in (".weight", ".bias")]
SIGMAS = [layer + part for layer in HEAD for part in (".weight_sigma", ".bias_sigma")]
REACHES = {
    "reward": [".encoder", ".transition", ".reward"],
    "cycle": [".encoder", ".transition", ".backward", ".prediction", *PROJECTION],
    "contrast": [".encoder", ".contrast"],
    "quiet": [".encoder", ".transition", *MEANS],
    "absorb": [".encoder", ".transition", *MEANS, *SIGMAS],
    "bare": [".encoder", ".transition", *PROJECTION],
    "more": [".encoder", *MEANS, *SIGMAS],
}


def starts(path, parts):
    return any(path == p or path.startswith((p + ".", p + "[")) for p in parts)


@pytest.mark.parametrize("name", REACHES)
def test_a_loss_reaches_exactly_its_nets(looked, name):
    online, frozen, target, momentum = looked[0][name]
    gradient = tiny.leaves(online)
    reached = {path for path, g in gradient.items() if np.any(g != 0)}
    assert reached == {path for path in gradient if starts(path, REACHES[name])}
    assert all(np.isfinite(g).all() for g in gradient.values())
    for path, g in tiny.leaves((frozen, target, momentum)).items():
        assert not np.any(g), f"{name} pulls at its target: {path}"


# Reward prediction


def test_reward_prediction_equals_its_equation(look, looked, rich):
    segment = tiny.segment()

    @jax.jit
    def logits(state):
        z, stats = state.online.encoder(segment.obs[0].astype(jnp.float32) / 255), state.stats
        out = []
        for action in segment.action[:-1]:
            z, stats = state.online.transition(z, action, stats, learning=True)
            out.append(state.online.reward(z))
        return jnp.stack(out)

    log_p, reward = tiny.log_softmax(np.asarray(logits(rich))), np.asarray(segment.reward)
    expected = np.zeros(tiny.BATCH)
    for k, b in np.ndindex(tiny.STEPS, tiny.BATCH):  # the state t+k+1, arrived at with the reward of t+k
        expected[b] -= (
            np.asarray(segment.alive)[k, b] * log_p[k, b, 1 + int(np.sign(reward[k, b]))] / tiny.STEPS
        )
    np.testing.assert_allclose(alone(look, rich, segment, "reward"), expected, rtol=1e-4)


def test_rewards_that_count_are_those_on_the_way_there(look, rich):
    """Sample 1 ends at t, sample 2 at t+1, 3 is cut before t+2. The reward at the end counts, those behind do not."""
    segment = tiny.segment()
    plain = alone(look, rich, segment, "reward")
    counts = [
        alone(look, rich, segment._replace(reward=segment.reward.at[k].multiply(-1)), "reward") != plain
        for k in range(tiny.STEPS + 1)
    ]
    np.testing.assert_array_equal(counts, [[True] * 4, [True, False, True, True], [False] * 4])


# The way back


def test_the_cycle_leaves_out_what_ends_at_once(look, rich):
    np.testing.assert_array_equal(alone(look, rich, tiny.segment(), "cycle") > 0, [True, False, True, True])


def test_the_cycle_does_not_look_at_what_was_really_done(look, looked, rich):
    segment = tiny.segment()
    other = segment._replace(
        action=(segment.action + 1) % tiny.ACTIONS, reward=-segment.reward, obs=segment.obs.at[1:].set(0)
    )
    assert float(look(rich, other)[1][0]["cycle"]) == float(looked[1][0]["cycle"])
    seen = look(rich, segment._replace(obs=segment.obs.at[0].set(0)))
    assert float(seen[1][0]["cycle"]) != float(looked[1][0]["cycle"])


# Contrast


def test_contrast_equals_its_equation(looked, rich):
    segment = tiny.segment()
    index = list(vars(TERMS)).index("contrast")
    stream = jax.random.fold_in(tiny.key(tiny.SEED, tiny.Stream.TERM, tiny.CLOCK.updates), index)

    @jax.jit
    def vectors(state):
        one, two = (crop_and_pad(k, segment.obs[0], 2) for k in jax.random.split(stream))
        online, slow = state.online, state.momentum
        return online.contrast(online.encoder(one)), slow.contrast(slow.encoder(two))

    anchor, other = (np.asarray(v, np.float64) for v in vectors(rich))
    likeness = 0.1 * anchor @ np.asarray(rich.online.contrast.bilinear, np.float64) @ other.T
    loss = -np.diagonal(tiny.log_softmax(likeness)).mean()
    expected = np.mean(np.asarray(segment.weight)) * loss  # the batch's mean, added to every sample
    assert float(looked[1][0]["contrast"]) == pytest.approx(expected, rel=1e-4)


def test_priority_can_be_the_weighted_sum_of_all_losses(look, looked, rich):
    ramp = np.exp(-5 * (1 - 701 / 1000) ** 2)
    factor = {"rl": 1.0, "spr": 1.0, "vcr": 0.2 * ramp, "reward": 1.0, "cycle": ramp, "contrast": 0.5}
    expected = sum(f * alone(look, rich, tiny.segment(), name) for name, f in factor.items())
    np.testing.assert_allclose(looked[1][1], expected, rtol=1e-4)


@pytest.fixture(scope="module")
def curled():
    """Two updates of a tiny CURL: the states before, between and after, and the priorities of the first."""
    loss = ReplayConfig(capacity=40, priority=Priority(of="loss"))
    config = tiny.config(terms=Terms(contrast=TERMS.contrast), replay=loss, n_step=1, head_gradient=1.0)
    agent = tiny.agent(config)
    update, states = jax.jit(agent.update), [jax.jit(agent.init)(jnp.asarray(0))]
    segment, now = tiny.segment(steps=0, targets=1), tiny.CLOCK
    for _ in range(2):
        state, result = update(states[-1], segment, now, tiny.SEED)
        states, now = [*states, state], now._replace(updates=now.updates + 1)
        last = result
    return agent, states, last, segment


def test_the_momentum_copy_follows_by_its_rate(curled):
    agent, states, _, _ = curled
    assert agent.sample.steps == 0
    for path, x in tiny.leaves(states[0].momentum.encoder).items():
        np.testing.assert_array_equal(x, tiny.leaves(states[0].online.encoder)[path])
    for before, after in itertools.pairwise(states):
        for part in ("encoder", "contrast"):
            old, new, online = (
                tiny.leaves(getattr(nets, part)) for nets in (before.momentum, after.momentum, after.online)
            )
            for path in old:
                np.testing.assert_allclose(
                    new[path], 0.75 * old[path] + 0.25 * online[path], rtol=1e-5, atol=1e-6
                )
    assert states[2].online.transition is None and states[2].stats is None


def test_the_defaults_of_the_momentum_copy_are_the_references():
    assert Contrast().slow == Slow(rate=0.001, every=1)


def test_priority_can_be_the_loss(curled):
    _, _, result, segment = curled
    weighted = np.mean(np.asarray(segment.weight) * np.asarray(result.priority) ** 2)
    assert float(result.metrics["loss/rl"]) == pytest.approx(weighted, rel=1e-4)


# Knobs of SPR and VCR


def test_without_noise_vcr_is_what_it_is_with_quiet_heads(look, looked, rich):
    """Heads whose sigmas are zero: there VCR reads what it reads with its own noise off, and the RL loss changes."""

    def silent(nets):
        layers = [layer for stream in (nets.q_head.advantage, nets.q_head.value) for layer in stream]
        zero = [x for layer in layers for x in (layer.weight_sigma, layer.bias_sigma)]
        at = [id(x) for x in zero]
        return jax.tree.map(lambda x: jnp.zeros_like(x) if id(x) in at else x, nets)

    quiet = look(rich._replace(online=silent(rich.online), target=silent(rich.target)), tiny.segment())[1][0]
    noisy = looked[1][0]
    assert float(noisy["quiet"]) == pytest.approx(float(quiet["vcr"]), rel=1e-5)
    assert float(noisy["quiet"]) == pytest.approx(float(quiet["quiet"]), rel=1e-5)
    assert abs(float(noisy["vcr"] - noisy["quiet"])) > 1e-3
    assert abs(float(noisy["rl"] - quiet["rl"])) > 1e-3


def test_absorbing_adds_the_states_behind_a_terminal_at_value_zero(look, readings, state, rich):
    segment = tiny.segment()
    # Behind the terminals of samples 1 and 2; not behind the cut of sample 3.
    counted = np.asarray(segment.alive).copy()
    counted[1:, 1] = counted[2:, 2] = 1
    read = readings(state, segment, *tiny.noises())
    expected = tiny.by_hand(read, segment._replace(alive=jnp.asarray(counted)))["vcr"]
    got = alone(look, rich, segment, "absorb")
    np.testing.assert_allclose(got, expected, rtol=1e-4)
    masked = alone(look, rich, segment, "vcr")
    np.testing.assert_array_equal(np.abs(got - masked) > 1e-3, [False, True, True, False])
    # Their target is a point mass at zero, whatever they would bootstrap from.
    y = tiny.targets(read, segment)
    np.testing.assert_allclose(y[2, 2], np.arange(tiny.ATOMS) == tiny.ATOMS // 2, atol=1e-6)


def test_spr_without_prediction_compares_projections(look, readings, state, rich):
    segment = tiny.segment()
    read = readings(state, segment, *tiny.noises())
    layer: Linear = state.online.prediction
    read["predicted"] = (np.asarray(read["predicted"], np.float64) - np.asarray(layer.bias)) @ np.linalg.inv(
        np.asarray(layer.weight, np.float64)
    )
    expected = tiny.by_hand(read, segment)["spr"] / tiny.STEPS  # this variant takes a mean over the steps
    np.testing.assert_allclose(alone(look, rich, segment, "bare"), expected, rtol=1e-2, atol=1e-4)


# The RL loss on more states


def test_the_rl_loss_on_all_real_states_is_a_mean_over_those_that_exist(look, readings, state, rich):
    segment = tiny.segment()
    read = readings(state, segment, *tiny.noises())
    noise = tiny.noises()[0]

    @jax.jit
    def logits(state):
        images = segment.obs.reshape(-1, *segment.obs.shape[2:]).astype(jnp.float32) / 255
        q = state.online.q_head.draw(noise)(state.online.encoder(images))
        return q.reshape(*segment.obs.shape[:2], *q.shape[1:])

    log_p, y = tiny.log_softmax(np.asarray(logits(state))), tiny.targets(read, segment)
    alive, action = np.asarray(segment.alive), np.asarray(segment.action)
    expected = np.zeros(tiny.BATCH)
    for k, b in np.ndindex(*alive.shape):
        expected[b] -= alive[k, b] * (y[k, b] @ log_p[k, b, action[k, b]]) / alive[:, b].sum()
    np.testing.assert_allclose(alone(look, rich, segment, "more"), expected, rtol=1e-4)
    # Only t exists in the sample that ends at once.
    assert expected[1] == pytest.approx(tiny.by_hand(read, segment)["rl"][1], rel=1e-4)


@pytest.mark.parametrize(("stride", "targets"), [(None, 1), (2, 5), (1, 6), (4, 5), (9, 1)])
def test_a_stride_asks_for_as_many_targets_as_it_reads(stride, targets):
    agent = tiny.agent(tiny.config(terms=Terms(spr=SPR(steps=5)), rl_stride=stride))
    assert (agent.sample.steps, agent.sample.targets) == (5, targets)


# Clipping


def test_clip_groups_of_the_other_nets(rich):
    """Reward head with the transition model, backward model on its own, contrast with encoder and Q head."""

    def one(tree, size):
        """A gradient of this norm."""
        leaves, shape = jax.tree.flatten(jax.tree.map(lambda x: np.zeros(x.shape, np.float32), tree))
        leaves[0].flat[0] = size
        return jax.tree.unflatten(shape, leaves)

    parts = ("encoder", "q_head", "transition", "prediction", "reward", "backward", "contrast")
    sizes = dict(zip(parts, (20.0, 0.0, 6.0, 99.0, 8.0, 40.0, 15.0), strict=True))
    gradient = RainbowNets(**{part: one(getattr(rich.online, part), size) for part, size in sizes.items()})
    expected = {
        "encoder": 8,
        "q_head": 0,
        "transition": 6,
        "prediction": 99,
        "reward": 8,
        "backward": 10,
        "contrast": 6,
    }
    got = jax.jit(clipped, static_argnums=1)(gradient, 10.0)
    norms = {
        p: np.sqrt(sum(np.sum(np.asarray(x) ** 2) for x in jax.tree.leaves(getattr(got, p)))) for p in parts
    }
    assert norms == pytest.approx(expected, rel=1e-5)
    assert clipped(gradient, None) is gradient


# Exploration


def test_epsilon_falls_in_a_line_after_learning_has_started():
    config = tiny.config(learn_start=100, epsilon_start=1.0, epsilon=0.1, epsilon_decay=50)
    got = [float(exploration(config, Clock.at(s, 0))) for s in (0, 100, 101, 125, 150, 1000)]
    np.testing.assert_allclose(got, [1, 1, 1 - 0.9 / 50, 0.55, 0.1, 0.1], rtol=1e-5)


def test_epsilon_can_be_zero_throughout_or_fall_at_once():
    noisy = tiny.config(learn_start=100, epsilon_start=0.0)
    assert [float(exploration(noisy, Clock.at(s, 0))) for s in (0, 100, 101)] == [0, 0, 0]
    default = tiny.config(learn_start=100)
    assert [float(exploration(default, Clock.at(s, 0))) for s in (0, 100, 101)] == [1, 1, 0]


def test_a_method_can_have_its_own_epsilon_in_evaluation(state):
    """Always at random where the protocol would never be, and never where it always would."""
    obs = jnp.asarray(np.random.default_rng(0).integers(0, 256, (64, 16, 16, tiny.STACK), np.uint8))
    draw = jnp.stack([jnp.zeros(64, jnp.int32), jnp.arange(64)], -1)

    def play(own, protocols):
        agent = tiny.agent(tiny.config(eval_epsilon=own), eval_epsilon=protocols)
        return np.asarray(
            jax.jit(agent.act, static_argnums=5)(state, obs, tiny.CLOCK, tiny.SEED, draw, False)
        )

    np.testing.assert_array_equal(play(1.0, 0.0), play(None, 1.0))
    np.testing.assert_array_equal(play(0.0, 1.0), play(None, 0.0))
    assert (play(1.0, 0.0) != play(0.0, 1.0)).any()
