"""The Q head: dueling, noise, SPR's projection, and the size of the gradient it sends back."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from vcrl.nets.heads import QHead, prediction_head
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
