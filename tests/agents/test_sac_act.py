"""The continuous base acts, looks ahead, and begins."""

import jax
import jax.numpy as jnp
import numpy as np
import numpy_sac as hand
import pytest
import tiny_sac as tiny
from scipy.stats import kstest, uniform

from vcrl.agents import sac
from vcrl.core.keys import Stream, key
from vcrl.core.protocol import Protocol
from vcrl.core.spec import Box, EnvSpec
from vcrl.core.types import Clock
from vcrl.methods.configs import ControlTerms

ROWS, FRAME = 200, 20  # of whose 20 pixels the middle 16 are seen


def clock(agent_steps: int, updates: int = 3) -> Clock:
    return Clock(jnp.asarray(agent_steps), jnp.asarray(updates))


@pytest.fixture(scope="module")
def agent():
    spec = EnvSpec((FRAME, FRAME, 1), Box(tiny.ACTIONS))
    return tiny.agent(tiny.config(crop=16, terms=ControlTerms(vcr=tiny.ALL.vcr)), spec)


@pytest.fixture(scope="module")
def state(agent):
    return tiny.state(agent)


@pytest.fixture(scope="module")
def act(agent):
    return jax.jit(agent.act, static_argnums=5)


@pytest.fixture(scope="module")
def scene():
    """Observations, and the (episode, tick) of each row."""
    rng = np.random.default_rng(0)
    obs = rng.integers(0, 256, (ROWS, FRAME, FRAME, tiny.STACK), np.uint8)
    return obs, jnp.asarray(np.stack([np.arange(ROWS) // 100, np.arange(ROWS) % 100], -1), jnp.int32)


@pytest.fixture(scope="module")
def keys(scene):
    """A key for each row, from its address alone."""
    stream = key(tiny.SEED, Stream.ACT, 0)
    return jax.vmap(lambda d: jax.random.fold_in(jax.random.fold_in(stream, d[0]), d[1]))(scene[1])


def middle(obs):
    return np.asarray(obs[:, 2:18, 2:18], np.float64) / 255


def test_any_action_is_as_good_before_learning_starts(act, state, scene, keys):
    chance = jax.vmap(lambda k: jax.random.uniform(jax.random.fold_in(k, 1), (tiny.ACTIONS + 1,)))(keys)
    expected = 2 * chance[:, 1:] - 1
    for agent_steps in (0, 9):
        actions = np.asarray(act(state, scene[0], clock(agent_steps), tiny.SEED, scene[1], True))
        np.testing.assert_array_equal(actions, expected)
    assert kstest(actions.ravel(), uniform(-1, 2).cdf).pvalue > 1e-4
    assert abs(np.corrcoef(actions.T)[0, 1]) < 0.2


def test_from_then_on_actions_are_drawn_from_the_policy(act, state, scene, keys):
    normal = jax.vmap(lambda k: jax.random.normal(k, (tiny.ACTIONS,)))(keys)
    expected, _ = hand.drawn(hand.numbers(state.online), middle(scene[0]), normal)
    for agent_steps in (10, 5000):
        actions = act(state, scene[0], clock(agent_steps), tiny.SEED, scene[1], True)
        np.testing.assert_allclose(actions, expected, atol=1e-4)
    assert np.abs(np.asarray(normal)).max() > 2


def test_evaluation_takes_the_mean(act, state, scene):
    nets = hand.numbers(state.online)
    mean, _ = hand.spread(nets.actor, hand.convolved(nets.encoder.convs, middle(scene[0])))
    for agent_steps, updates in ((0, 0), (9, 0), (500, 77)):
        actions = act(state, scene[0], clock(agent_steps, updates), tiny.SEED, scene[1], False)
        np.testing.assert_allclose(actions, np.tanh(mean), atol=1e-4)


def test_evaluation_takes_any_action_at_the_protocols_chance(state, scene):
    """As the discrete base does; on DeepMind Control the chance is none."""
    spec, obs = EnvSpec((FRAME, FRAME, 1), Box(tiny.ACTIONS)), scene[0]
    config = tiny.config(crop=16, terms=ControlTerms(vcr=tiny.ALL.vcr))
    often = sac.make_sac(config, spec, Protocol("tiny", 1000, 1, None, 1, 0.25))
    actions = np.asarray(
        jax.jit(often.act, static_argnums=5)(state, obs, clock(0), tiny.SEED, scene[1], False)
    )
    nets = hand.numbers(state.online)
    mean, _ = hand.spread(nets.actor, hand.convolved(nets.encoder.convs, middle(obs)))
    other = np.abs(actions - np.tanh(mean)).max(axis=1) > 1e-3
    assert 0.15 < other.mean() < 0.35
    assert kstest(actions[other].ravel(), uniform(-1, 2).cdf).pvalue > 1e-4


def test_an_action_depends_on_its_own_row_and_address_alone(act, state, scene):
    obs, draw = scene
    order = np.random.default_rng(1).permutation(ROWS)
    for agent_steps in (0, 10):
        plain, shuffled, later, other = (
            np.asarray(act(state, o, clock(agent_steps), tiny.SEED + more, d, True))
            for o, d, more in (
                (obs, draw, 0), (obs[order], draw[order], 0), (obs, draw.at[:100, 1].add(1000), 0), (obs, draw, 1),
            )
        )  # fmt: skip
        np.testing.assert_allclose(shuffled, plain[order], atol=1e-5)
        np.testing.assert_array_equal(later[100:], plain[100:])
        assert (later[:100] != plain[:100]).mean() > 0.9 and (other != plain).mean() > 0.9


# Looking


def test_values_along_are_the_lesser_critic_of_imagined_states(agent, state, scene):
    """Without augmentation: the middle of the image."""
    rng = np.random.default_rng(2)
    action = rng.uniform(-1, 1, (3, 7, tiny.ACTIONS)).astype(np.float32)
    along, batch = jax.jit(agent.values_along)(state, scene[0][:7], jnp.asarray(action))
    assert batch is None
    nets = hand.numbers(state.online)
    start = hand.encoded(nets.encoder, middle(scene[0][:7]))
    states = np.concatenate(
        [start[None], hand.rolled(nets.transition, start, action[:-1].astype(np.float64))]
    )
    expected = hand.critics(nets.q_head, states, action.astype(np.float64)).min(axis=-1)
    np.testing.assert_allclose(along, expected, rtol=1e-3, atol=1e-4)


def test_without_a_transition_model_only_the_real_state_is_valued(scene):
    agent = tiny.agent(tiny.config(terms=ControlTerms()))
    bare = jax.eval_shape(agent.init, jnp.asarray(0))
    obs, action = jnp.asarray(scene[0][:7, :16, :16]), jnp.zeros((1, 7, tiny.ACTIONS))
    shape, _ = jax.eval_shape(lambda s: agent.values_along(s, obs, action), bare)
    assert bare.online.transition is None and shape.shape == (1, 7)


def test_the_worth_of_a_state_is_the_lesser_critic_at_the_mean_action(agent, state, scene):
    nets, look = hand.numbers(state.online), middle(scene[0][:7])
    mean, _ = hand.spread(nets.actor, hand.convolved(nets.encoder.convs, look))
    expected = hand.critics(nets.q_head, hand.encoded(nets.encoder, look), np.tanh(mean)).min(axis=-1)
    np.testing.assert_allclose(jax.jit(agent.worth)(state, scene[0][:7]), expected, rtol=1e-3, atol=1e-4)


# The start


@pytest.fixture(scope="module")
def begun():
    """Of the agent with every term; the second seed."""
    return jax.device_get(jax.jit(tiny.full().init)(jnp.asarray(1)))


def test_slow_copies_begin_as_copies_but_the_projection_as_a_stranger(begun):
    online, target = begun.online, begun.target
    for part in ("encoder", "q_head"):
        for path, x in tiny.leaves(getattr(target, part)).items():
            np.testing.assert_array_equal(x, tiny.leaves(getattr(online, part))[path])
    for path, x in tiny.leaves(target.projection).items():
        assert (x != tiny.leaves(online.projection)[path]).all(), path
        assert x.shape == tiny.leaves(online.projection)[path].shape


def test_first_weights_are_the_references(begun):
    """Orthogonal in encoder, actor, critics and decoder, without bias; the others uniform by fan-in."""
    online = begun.online
    for net in (online.q_head.one, online.q_head.two, online.actor.layers):
        for layer in net.layers:
            assert_orthogonal(layer.weight)
            assert not layer.bias.any()
    for net in (online.encoder.trunk, online.actor.trunk):
        assert_orthogonal(net.linear.weight)
        assert not net.linear.bias.any() and (net.norm.scale == 1).all() and not net.norm.bias.any()
    kernels = [(c.weight, c.bias) for c in online.encoder.convs.convs]
    for weight, bias in (*kernels, *zip(online.decoder.weights, online.decoder.biases, strict=True)):
        at = (weight.shape[0] - 1) // 2
        assert_orthogonal(weight[at, at] / np.sqrt(2))
        rest = weight.copy()
        rest[at, at] = 0
        assert not rest.any() and not bias.any()
    assert_orthogonal(online.decoder.linear.weight)
    for model in (online.transition, online.backward):
        bound = model.hidden.weight.shape[0] ** -0.5
        assert 0.8 * bound < np.abs(model.hidden.weight).max() <= bound and model.hidden.bias.any()
    bilinear = online.likeness.bilinear
    assert bilinear.min() >= 0 and 0.8 < bilinear.max() < 1 and 0.3 < bilinear.mean() < 0.7
    assert float(online.log_alpha) == pytest.approx(np.log(0.3), rel=1e-6)


def assert_orthogonal(weight):
    tall = weight if weight.shape[0] >= weight.shape[1] else weight.T
    np.testing.assert_allclose(tall.T @ tall, np.eye(tall.shape[1]), atol=1e-5)


def test_no_two_parts_begin_alike(begun):
    """Twin critics, trunks of actor and critics, forward and backward model, projection and prediction."""
    nets = begun.online
    for one, two in (
        (nets.q_head.one, nets.q_head.two),
        (nets.encoder.trunk.linear, nets.actor.trunk.linear),
        (nets.transition.hidden, nets.backward.hidden),
        (nets.projection, nets.prediction),
    ):
        weights = (tiny.leaves(x).items() for x in (one, two))
        for (path, a), (_, b) in zip(*weights, strict=True):
            assert (a != b).mean() > 0.9 or not (a.any() or b.any()), path


def test_moments_begin_at_zero_and_none_is_kept_for_a_step_that_is_not_taken(begun):
    assert set(begun.opt) == {"critic", "auxiliary", "actor", "temperature"}
    assert not any(np.any(x) for x in jax.tree.leaves((begun.opt, begun.seldom)))
    bare = jax.eval_shape(tiny.agent(tiny.config(terms=ControlTerms())).init, jnp.asarray(0))
    assert set(bare.opt) == {"critic", "actor", "temperature"} and bare.target.projection is None
