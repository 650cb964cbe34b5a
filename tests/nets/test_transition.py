"""The transition model and the imagination it drives."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from vcrl.nets.norms import Stats
from vcrl.nets.transition import Transition, imagine

B, SIDE, C, A, K = 3, 4, 5, 3, 3


@pytest.fixture(scope="module")
def model() -> Transition:
    made = Transition.make(jax.random.key(0), C, A)
    # Other values than at the start, so that each has an effect.
    return eqx.tree_at(
        lambda t: (t.norm.scale, t.norm.bias), made, (jnp.linspace(0.5, 1.5, C), jnp.linspace(-0.2, 0.2, C))
    )


@pytest.fixture(scope="module")
def start() -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).random((B, SIDE, SIDE, C)), jnp.float32)


step = jax.jit(Transition.__call__, static_argnums=4)
roll = jax.jit(imagine, static_argnums=4)

ACTIONS = jnp.array([[0, 1, 2], [2, 2, 1], [1, 0, 0]], jnp.int32)  # K B
RUNNING = Stats(jnp.full(C, 0.3), jnp.full(C, 0.7))


def hand_step(model: Transition, state: jax.Array, action: jax.Array) -> jax.Array:
    """One step while learning, out of library parts."""

    def conv(x: jax.Array, weight: jax.Array, bias: jax.Array) -> jax.Array:
        out = jax.lax.conv_general_dilated(
            x, weight, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return jnp.maximum(out + jnp.broadcast_to(bias, out.shape), 0)

    planes = jnp.stack(
        [jnp.broadcast_to((action == a)[:, None, None], state.shape[:3]) for a in range(A)], axis=-1
    )
    x = conv(
        jnp.concatenate([state, planes.astype(jnp.float32)], axis=-1), model.conv1.weight, model.conv1.bias
    )
    mean, var = (f(x, axis=(0, 1, 2), keepdims=True) for f in (jnp.mean, jnp.var))
    scale, bias = (jnp.broadcast_to(v, x.shape) for v in (model.norm.scale, model.norm.bias))
    x = (x - mean) / jnp.sqrt(var + 1e-5) * scale + bias
    x = conv(x, model.conv2.weight, model.conv2.bias)
    low, high = (f(x, axis=(1, 2, 3), keepdims=True) for f in (jnp.min, jnp.max))
    return (x - low) / (high - low + 1e-5)


def hand_roll(model: Transition, state: jax.Array) -> jax.Array:
    states = [state]
    for action in ACTIONS:
        states.append(hand_step(model, states[-1], action))
    return jnp.stack(states)


def rolled(model: Transition, state: jax.Array) -> jax.Array:
    return imagine(model, state, ACTIONS, RUNNING, True)[0]


def test_parameters_of_the_reference():
    model = eqx.filter_eval_shape(Transition.make, jax.random.key(0), 64, 18)
    assert model.conv1.weight.size + model.conv1.bias.size == (64 + 18) * 64 * 9 + 64
    assert model.conv2.weight.size + model.conv2.bias.size == 64 * 64 * 9 + 64
    assert model.norm.scale.shape == model.norm.bias.shape == (64,)
    assert sum(x.size for x in jax.tree.leaves(model)) == 47_296 + 128 + 36_928


def test_fresh_statistics(model: Transition):
    assert_array_equal(model.stats().mean, np.zeros(C))
    assert_array_equal(model.stats().var, np.ones(C))


def test_one_step_out_of_library_parts(model: Transition, start: jax.Array):
    state, _ = step(model, start, ACTIONS[0], RUNNING, True)
    assert state.shape == start.shape
    assert_allclose(state, jax.jit(hand_step)(model, start, ACTIONS[0]), atol=1e-5)
    assert np.asarray(state).min() == 0
    assert_allclose(np.asarray(state).max(axis=(1, 2, 3)), np.ones(B), atol=1e-4)


def test_the_action_matters(model: Transition, start: jax.Array):
    def after(*actions: int) -> np.ndarray:
        return np.asarray(step(model, start, jnp.array(actions, jnp.int32), RUNNING, False)[0])

    one, two, mixed = after(0, 0, 0), after(1, 1, 1), after(0, 1, 0)
    assert np.abs(one - two).max() > 0.05
    # Running statistics: a sample's next state depends on its own action alone.
    assert_allclose(mixed[0], one[0], atol=1e-6)
    assert_allclose(mixed[1], two[1], atol=1e-6)


def test_looking_keeps_the_statistics_and_learning_moves_them(model: Transition, start: jax.Array):
    _, looked = step(model, start, ACTIONS[0], RUNNING, False)
    _, learned = step(model, start, ACTIONS[0], RUNNING, True)
    assert_array_equal(looked.mean, RUNNING.mean)
    assert_array_equal(looked.var, RUNNING.var)
    assert np.abs(learned.mean - RUNNING.mean).max() > 1e-3


@pytest.mark.parametrize("learning", [True, False])
def test_imagination_is_stepping_by_hand(model: Transition, start: jax.Array, learning: bool):
    states, stats = roll(model, start, ACTIONS, RUNNING, learning)
    assert states.shape == (K + 1, *start.shape)
    assert_array_equal(states[0], start)
    now, running = start, RUNNING
    for k in range(K):
        now, running = step(model, now, ACTIONS[k], running, learning)
        assert_allclose(states[k + 1], now, atol=1e-5)
    assert_allclose(stats.mean, running.mean, rtol=1e-5)
    assert_allclose(stats.var, running.var, rtol=1e-5)


def test_gradients_run_through_all_steps_at_full_size(model: Transition, start: jax.Array):
    pull = jnp.asarray(np.random.default_rng(1).normal(size=(K + 1, *start.shape)), jnp.float32)

    def gradients(roll):
        def back(model: Transition, state: jax.Array):
            states, vjp = jax.vjp(roll, model, state)
            # The pull of each step's state alone, back to the model and to the start.
            only = [
                jnp.where((jnp.arange(K + 1) == k).reshape(-1, 1, 1, 1, 1), pull, 0.0) for k in range(K + 1)
            ]
            return states, jax.vmap(vjp)(jnp.stack(only))

        return jax.jit(back)(model, start)

    states, (to_model, to_start) = gradients(rolled)
    expected_states, (expected_model, expected_start) = gradients(hand_roll)
    assert_allclose(states, expected_states, atol=1e-5)
    assert_allclose(to_start[0], pull[0], rtol=1e-6)  # the start itself
    for k in range(K + 1):
        size = float(np.abs(expected_start[k]).max())
        assert size > 1e-3
        assert_allclose(to_start[k], expected_start[k], atol=1e-4 * max(size, 1.0), rtol=1e-3)
    for found, expected in zip(jax.tree.leaves(to_model), jax.tree.leaves(expected_model), strict=True):
        assert_allclose(found, expected, atol=1e-3 * float(np.abs(expected).max()) + 1e-6)


def test_no_gradient_reaches_the_running_statistics(model: Transition, start: jax.Array):
    def output(stats: Stats) -> jax.Array:
        return jnp.sum(imagine(model, start, ACTIONS, stats, True)[0] ** 2)

    for gradient in jax.jit(jax.grad(output))(RUNNING):
        assert_array_equal(gradient, np.zeros(C))


def test_no_actions_leave_the_start(model: Transition, start: jax.Array):
    states, stats = roll(model, start, jnp.zeros((0, B), jnp.int32), RUNNING, True)
    assert_array_equal(states, start[None])
    assert_array_equal(stats.mean, RUNNING.mean)
