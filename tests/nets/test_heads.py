"""The Q head: dueling, noise, SPR's projection, and the size of the gradient it sends back."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from vcrl.nets.heads import ContrastHead, QHead, RewardHead, prediction_head
from vcrl.nets.layers import Linear, NoisyLinear

SIDE, C, HIDDEN, A, E = 2, 3, 6, 4, 5
INPUTS = SIDE * SIDE * C


# Compiled whole: faster here than operation by operation.
new = jax.jit(QHead.make, static_argnums=(1, 2, 3, 4, 5))
call = jax.jit(QHead.__call__)
draw = jax.jit(QHead.draw)


def make(sigma: float | None = 0.5, size: int = E) -> QHead:
    return new(jax.random.key(0), INPUTS, HIDDEN, A, size, sigma)


def layers(head: QHead) -> list[Linear | NoisyLinear]:
    return [*head.advantage, *head.value]


@pytest.fixture(scope="module")
def states() -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).random((7, SIDE, SIDE, C)), jnp.float32)


def by_hand(head: QHead, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The two streams in NumPy: advantages n A E and values n E."""
    flat = np.asarray(states).reshape(len(states), -1)

    def stream(one: Linear, two: Linear) -> np.ndarray:
        hidden = np.maximum(flat @ np.asarray(one.weight) + np.asarray(one.bias), 0)
        return hidden @ np.asarray(two.weight) + np.asarray(two.bias)

    return stream(*head.advantage).reshape(len(flat), A, -1), stream(*head.value)


@pytest.mark.parametrize("size", [E, 1])
def test_dueling(states: jax.Array, size: int):
    head = make(size=size).mean()
    advantage, value = by_hand(head, np.asarray(states))
    logits = call(head, states)
    assert logits.shape == (7, A, size)
    assert_allclose(logits, value[:, None] + advantage - advantage.mean(axis=1, keepdims=True), atol=1e-5)
    # The advantages of a state cancel: the mean over actions is the value stream alone.
    assert_allclose(np.mean(logits, axis=1), value, atol=1e-5)


def test_leading_axes_are_free(states: jax.Array):
    head = make().mean()
    together = np.asarray(call(head, states))
    assert_allclose(call(head, states[3]), together[3], atol=1e-6)
    folded = jnp.asarray(np.reshape(states[:6], (2, 3, SIDE, SIDE, C)))
    assert_allclose(call(head, folded), together[:6].reshape(2, 3, A, E), atol=1e-6)
    assert jax.eval_shape(head.project, folded).shape == (2, 3, 2 * HIDDEN)


def test_parameters_of_the_reference():
    noisy = eqx.filter_eval_shape(QHead.make, jax.random.key(0), 3136, 256, 18, 51, 0.5)
    first = 3136 * 256 + 256
    assert first == 803_072
    for stream, outputs in ((noisy.advantage, 18 * 51), (noisy.value, 51)):
        sizes = [sum(x.size for x in jax.tree.leaves(layer)) for layer in stream]
        assert sizes == [2 * first, 2 * (256 * outputs + outputs)]  # each weight has a mean and a sigma
    total = sum(x.size for x in jax.tree.leaves(noisy))
    assert total == 2 * (2 * 803_072 + 235_926 + 13_107) == 3_710_354
    plain = eqx.filter_eval_shape(QHead.make, jax.random.key(0), 3136, 256, 18, 51, None)
    assert sum(x.size for x in jax.tree.leaves(plain)) == total // 2


def test_prediction_head_of_the_reference():
    head = eqx.filter_eval_shape(prediction_head, jax.random.key(0), 256)
    assert head.weight.shape == (512, 512)
    assert head.weight.size + head.bias.size == 512 * 512 + 512


def test_layers_start_from_different_draws():
    head = make()
    assert not np.allclose(head.advantage[0].weight, head.value[0].weight)


def test_sigma_reaches_every_layer():
    for layer in layers(make(0.5)):
        inputs, outputs = layer.weight.shape
        assert isinstance(layer, NoisyLinear)
        assert_allclose(layer.weight_sigma, np.full((inputs, outputs), 0.5 * inputs**-0.5), rtol=1e-6)
        assert_allclose(layer.bias_sigma, np.full(outputs, 0.5 * outputs**-0.5), rtol=1e-6)


def test_a_noisy_head_must_be_drawn_before_it_is_called(states: jax.Array):
    with pytest.raises(TypeError, match="not callable"):
        make()(states)


def test_draws_differ_by_key_and_only_by_key(states: jax.Array):
    head = make()
    one, again, other = (np.asarray(call(draw(head, jax.random.key(k)), states)) for k in (1, 1, 2))
    assert_array_equal(one, again)
    assert np.all(one != other)
    assert np.abs(one - np.asarray(call(head.mean(), states))).max() > 1e-2


def test_every_layer_gets_factorised_noise_of_its_own():
    head = make()
    drawn = draw(head, jax.random.key(3))
    seen = []
    for noisy, found in zip(layers(head), layers(drawn), strict=True):
        assert isinstance(noisy, NoisyLinear)
        weight = (np.asarray(found.weight) - np.asarray(noisy.weight)) / np.asarray(noisy.weight_sigma)
        out = (np.asarray(found.bias) - np.asarray(noisy.bias)) / np.asarray(noisy.bias_sigma)
        # An output has one noise, the bias shows it; what it is multiplied with is the same for all outputs.
        into = weight[:, 0] / out[0]
        assert_allclose(weight, np.outer(into, out), rtol=1e-3, atol=1e-4)
        seen += [*into, *out]
    numbers = np.array(seen)
    # No two numbers are equal, so no layer reads the noise of another. E f(x)^2 = E|x| = sqrt(2/pi) = 0.798.
    assert len(np.unique(np.round(numbers, 4))) > 0.95 * len(numbers)
    assert 0.25 < np.mean(numbers > 0) < 0.75
    assert_allclose(np.mean(numbers**2), 0.798, rtol=0.3)


def test_without_sigma_a_draw_is_the_mean(states: jax.Array):
    head = make(0.0)
    assert_array_equal(call(draw(head, jax.random.key(1)), states), call(head.mean(), states))


def test_a_head_without_noise_is_its_own_draw_and_mean(states: jax.Array):
    head = make(None)
    assert all(isinstance(layer, Linear) for layer in layers(head))
    plain = call(head, states)
    assert_array_equal(call(draw(head, jax.random.key(1)), states), plain)
    assert_array_equal(call(head.mean(), states), plain)


def test_projection_is_the_first_layers_without_relu(states: jax.Array):
    head = make().mean()
    flat = np.asarray(states).reshape(7, -1)
    streams = [flat @ np.asarray(x[0].weight) + np.asarray(x[0].bias) for x in (head.advantage, head.value)]
    found = jax.jit(QHead.project)(head, states)
    assert found.shape == (7, 2 * HIDDEN)
    assert_allclose(found, np.concatenate(streams, axis=-1), atol=1e-6)
    assert np.any(np.asarray(found) < 0)


def unscaled(head: QHead, states: jax.Array) -> jax.Array:
    flat = states.reshape(len(states), -1)

    def linear(layer: Linear, x: jax.Array) -> jax.Array:
        return x @ layer.weight + jnp.broadcast_to(layer.bias, (len(x), layer.bias.size))

    advantage, value = (
        linear(two, jnp.maximum(linear(one, flat), 0)) for one, two in (head.advantage, head.value)
    )
    advantage = advantage.reshape(len(states), A, -1)
    return value[:, None] + advantage - jnp.mean(advantage, axis=1, keepdims=True)


def test_gradient_into_the_state_is_scaled_and_into_the_weights_not(states: jax.Array):
    head = draw(make(), jax.random.key(0))
    pull = jnp.asarray(np.random.default_rng(2).normal(size=(7, A, E)), jnp.float32)

    def loss(function, head: QHead, states: jax.Array) -> jax.Array:
        return jnp.sum(pull * function(head, states))

    back = jax.jit(jax.grad(loss, argnums=(1, 2)), static_argnums=0)
    to_head, to_state = back(QHead.__call__, head, states)
    full_head, full_state = back(unscaled, head, states)
    assert np.abs(full_state).max() > 0.01
    assert_allclose(to_state, full_state / 2**0.5, rtol=1e-4, atol=1e-6)
    for found, expected in zip(jax.tree.leaves(to_head), jax.tree.leaves(full_head), strict=True):
        assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_gradient_of_the_projection_is_not_scaled(states: jax.Array):
    head = make().mean()
    pull = jnp.asarray(np.random.default_rng(3).normal(size=(7, 2 * HIDDEN)), jnp.float32)
    found = jax.jit(jax.grad(lambda s: jnp.sum(pull * head.project(s))))(states)
    weight = np.concatenate([head.advantage[0].weight, head.value[0].weight], axis=1)
    assert_allclose(found.reshape(7, -1), np.asarray(pull) @ weight.T, atol=1e-5)


def test_gradient_of_a_draw_reaches_means_and_sigmas(states: jax.Array):
    head = make()
    gradient = jax.jit(jax.grad(lambda h: jnp.sum(h.draw(jax.random.key(4))(states) ** 2)))(head)
    for layer in layers(gradient):
        for part in jax.tree.leaves(layer):
            assert np.abs(part).max() > 0


# Other shapes of the head


def other(shape: str, sigma: float | None = 0.5, gradient: float = 1.0) -> QHead:
    return jax.jit(QHead.make, static_argnums=(1, 2, 3, 4, 5, 6, 7))(
        jax.random.key(0), INPUTS, HIDDEN, A, E, sigma, shape, gradient
    )


@pytest.mark.parametrize("shape", ["shared", "plain"])
def test_one_hidden_layer_for_all_by_hand(states: jax.Array, shape: str):
    head = other(shape).mean()
    assert head.hidden is not None
    assert head.hidden.weight.shape == (INPUTS, HIDDEN)
    flat = np.asarray(states).reshape(7, -1)
    hidden = np.maximum(flat @ np.asarray(head.hidden.weight) + np.asarray(head.hidden.bias), 0)
    outputs = [hidden @ np.asarray(x.weight) + np.asarray(x.bias) for x in (*head.advantage, *head.value)]
    expected = outputs[0].reshape(7, A, E)
    if shape == "shared":
        expected = outputs[1][:, None] + expected - expected.mean(axis=1, keepdims=True)
    assert_allclose(call(head, states), expected, atol=1e-5)
    assert len(head.value) == (shape == "shared")


def test_parameters_of_dopamines_heads():
    def count(*arguments: Any) -> int:
        head = eqx.filter_eval_shape(QHead.make, jax.random.key(0), 7744, 512, 18, *arguments)
        return sum(x.size for x in jax.tree.leaves(head))

    first = 7744 * 512 + 512
    assert count(51, 0.1, "shared") == 2 * (first + 513 * 18 * 51 + 513 * 51)
    assert count(51, None, "plain") == first + 513 * 18 * 51
    assert count(1, None, "shared") == first + 513 * 18 + 513


def test_every_layer_of_a_shared_head_gets_noise_of_its_own(states: jax.Array):
    head = other("shared")
    drawn = draw(head, jax.random.key(3))
    assert drawn.hidden is not None and head.hidden is not None
    noise = [np.asarray(found.bias) - np.asarray(mean.bias) for found, mean in (
        (drawn.hidden, head.hidden), (drawn.advantage[0], head.advantage[0]), (drawn.value[0], head.value[0]),
    )]  # fmt: skip
    numbers = np.concatenate(noise)
    assert len(np.unique(numbers)) == len(numbers)
    assert np.abs(np.asarray(call(drawn, states)) - np.asarray(call(head.mean(), states))).max() > 1e-2


@pytest.mark.parametrize("gradient", [1.0, 0.5])
def test_the_gradient_into_a_state_can_be_scaled_or_not(states: jax.Array, gradient: float):
    def pulled(head: QHead) -> jax.Array:
        return jax.jit(jax.grad(lambda s: jnp.sum(head.mean()(s) ** 2)))(states)

    assert_allclose(
        pulled(other("streams", gradient=gradient)), gradient * 2**0.5 * pulled(make()), rtol=1e-4
    )


def test_only_streams_can_project(states: jax.Array):
    with pytest.raises(AssertionError, match="streams"):
        other("shared").mean().project(states)


def test_layers_without_noise_can_start_as_xavier():
    head = jax.jit(QHead.make, static_argnums=(1, 2, 3, 4, 5, 6, 7, 8))(
        jax.random.key(0), 200, 100, A, E, None, "shared", 1.0, "xavier"
    )
    assert head.hidden is not None
    bound = (6 / 300) ** 0.5
    assert 0.98 * bound < np.abs(head.hidden.weight).max() <= bound
    assert not np.any(head.hidden.bias)


# What CURL and the reward loss read off a state


def test_contrast_head_by_hand(states: jax.Array):
    head = jax.jit(ContrastHead.make, static_argnums=(1, 2, 3))(jax.random.key(0), INPUTS, 6, 4)

    def normalised(x: np.ndarray) -> np.ndarray:
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)

    flat = np.asarray(states).reshape(7, -1)
    hidden = np.maximum(normalised(flat @ np.asarray(head.hidden.weight)), 0)
    found = jax.jit(ContrastHead.__call__)(head, states)
    assert_allclose(found, normalised(hidden @ np.asarray(head.out.weight)), atol=1e-4)
    assert_allclose(np.mean(found, axis=-1), 0, atol=1e-5)
    for weight in (head.hidden.weight, head.out.weight, head.bilinear):
        assert 0 <= np.min(weight) < 0.2 and 0.8 < np.max(weight) < 1
    assert not np.any(head.hidden.bias) and not np.any(head.out.bias)


def test_reward_head_by_hand(states: jax.Array):
    head = jax.jit(RewardHead.make, static_argnums=(1, 2))(jax.random.key(2), (SIDE, SIDE, C), 5)
    plane = np.maximum(
        np.asarray(states) @ np.asarray(head.plane.weight)[0, 0] + np.asarray(head.plane.bias), 0
    )
    plane = (plane - plane.mean()) / np.sqrt(plane.var() + 1e-5)
    hidden = np.maximum(
        plane.reshape(7, -1) @ np.asarray(head.hidden.weight) + np.asarray(head.hidden.bias), 0
    )
    expected = hidden @ np.asarray(head.out.weight) + np.asarray(head.out.bias)
    found = jax.jit(RewardHead.__call__)(head, states)
    assert found.shape == (7, 3)
    assert_allclose(found, expected, atol=1e-4)
    assert np.std(found, axis=0).min() > 1e-4, "the states are told apart"
