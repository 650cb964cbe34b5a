"""Linear and noisy layers against numbers worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from vcrl.nets.layers import (
    MLP,
    Conv,
    Linear,
    NoisyLinear,
    orthonormal,
    scale_gradient,
)


def test_linear_by_hand():
    layer = Linear(jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([0.5, -0.5]))
    # (1*1 + 2*3 + 0.5, 1*2 + 2*4 - 0.5)
    assert_allclose(layer(jnp.array([1.0, 2.0])), [7.5, 9.5])
    assert_allclose(layer(jnp.array([[[1.0, 2.0]], [[0.0, 0.0]]])), [[[7.5, 9.5]], [[0.5, -0.5]]])


@pytest.mark.parametrize("sigma", [None, 0.5, 0.1])
def test_initial_weights_and_sigmas(sigma: float | None):
    key, inputs, outputs = jax.random.key(0), 400, 100
    layer = (
        Linear.make(key, inputs, outputs) if sigma is None else NoisyLinear.make(key, inputs, outputs, sigma)
    )
    for part in (layer.weight, layer.bias):
        assert 0.9 * 0.05 < np.abs(part).max() <= 0.05  # 1 / sqrt(400)
    assert_allclose(np.std(layer.weight), 0.05 / 3**0.5, rtol=0.01)  # of a uniform
    assert_allclose(np.mean(layer.weight), 0.0, atol=0.0005)
    if isinstance(layer, NoisyLinear):
        assert sigma is not None
        assert_allclose(layer.weight_sigma, np.full((inputs, outputs), sigma * 0.05), rtol=1e-6)
        assert_allclose(
            layer.bias_sigma, np.full(outputs, sigma * 0.1), rtol=1e-6
        )  # by outputs: 1 / sqrt(100)


def noisy() -> NoisyLinear:
    return NoisyLinear(
        weight=jnp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
        bias=jnp.array([0.1, 0.2, 0.3]),
        weight_sigma=jnp.array([[1.0, 1.0, 1.0], [1.0, 1.0, 10.0]]),
        bias_sigma=jnp.array([1.0, 2.0, 1.0]),
    )


def test_noise_by_hand():
    drawn = noisy().draw(jnp.array([4.0, -1.0, 9.0, -0.25, 0.0]))
    # f(x) = sign(x) sqrt|x|: inputs 2, -1; outputs 3, -0.5, 0. A weight gets their product times its sigma:
    # 1 + 2*3, 2 + 2*(-0.5), 3 + 0; 4 - 3, 5 + 0.5, 6 + 10*0
    assert_allclose(drawn.weight, [[7.0, 1.0, 3.0], [1.0, 5.5, 6.0]], rtol=1e-6)
    # 0.1 + 3, 0.2 + 2*(-0.5), 0.3 + 0
    assert_allclose(drawn.bias, [3.1, -0.8, 0.3], rtol=1e-6)


def test_noise_moves_nothing_on_average_and_has_the_right_size():
    draws = jnp.asarray(np.random.default_rng(0).normal(size=(20_000, 5)), jnp.float32)
    drawn = jax.jit(jax.vmap(noisy().draw))(draws)
    assert_allclose(np.mean(drawn.weight, axis=0), noisy().weight, atol=0.2)
    # E f(x)^2 = E|x| = sqrt(2/pi), so a weight deviates by sigma * sqrt(2/pi), a bias by sigma * (2/pi)^(1/4)
    assert_allclose(np.std(drawn.weight, axis=0), noisy().weight_sigma * 0.797885, rtol=0.05)
    assert_allclose(np.std(drawn.bias, axis=0), noisy().bias_sigma * 0.893244, rtol=0.02)


def test_mean_has_no_noise():
    mean = noisy().mean()
    assert isinstance(mean, Linear)
    assert_array_equal(mean.weight, noisy().weight)
    assert_array_equal(mean.bias, noisy().bias)


def test_zero_noise_draws_the_mean():
    drawn = noisy().draw(jnp.zeros(5))
    assert_array_equal(drawn.weight, noisy().weight)
    assert_array_equal(drawn.bias, noisy().bias)


def test_a_noisy_layer_cannot_be_called():
    assert not callable(noisy())


def test_layers_in_a_row_have_relu_between_them_and_not_behind():
    net = MLP(
        (Linear(jnp.array([[1.0, -1.0]]), jnp.zeros(2)), Linear(jnp.array([[-2.0], [5.0]]), jnp.array([1.0])))
    )
    # 3 -> (3, -3) -> (3, 0) -> -6 + 1; -2 -> (-2, 2) -> (0, 2) -> 10 + 1
    assert_allclose(net(jnp.array([[3.0], [-2.0]])), [[-5.0], [11.0]])
    made = jax.eval_shape(lambda k: MLP.make(k, (4, 7, 7, 2)), jax.random.key(0))
    assert [layer.weight.shape for layer in made.layers] == [(4, 7), (7, 7), (7, 2)]


@pytest.mark.usefixtures("quick_compiles")
@pytest.mark.parametrize(("rows", "columns"), [(200, 50), (7, 30), (1, 5)])
def test_orthogonal_weights(rows: int, columns: int):
    layer = jax.jit(Linear.make, static_argnums=(1, 2, 3))(jax.random.key(0), rows, columns, "orthogonal")
    weight = np.asarray(layer.weight, np.float64)
    assert weight.shape == (rows, columns)
    tall = weight if rows >= columns else weight.T
    assert_allclose(tall.T @ tall, np.eye(min(rows, columns)), atol=2e-6)
    assert_array_equal(layer.bias, np.zeros(columns))


def test_orthogonal_weights_have_no_favourite_direction():
    """In two dimensions: angles of the first column are uniform, and turns are as frequent as reflections."""
    drawn = np.asarray(
        jax.jit(jax.vmap(lambda k: orthonormal(k, 2, 2)))(jax.random.split(jax.random.key(0), 2000))
    )
    angle = np.sort(np.arctan2(drawn[:, 1, 0], drawn[:, 0, 0]))
    assert np.abs(angle - np.linspace(-np.pi, np.pi, 2000)).max() < 2 * np.pi * 2.2 / 2000**0.5
    assert 0.45 < np.mean(np.linalg.det(drawn) > 0) < 0.55


made = jax.jit(Conv.make, static_argnums=(1, 2, 3, 4, 5, 6))


@pytest.mark.usefixtures("quick_compiles")
@pytest.mark.parametrize(("size", "inputs", "outputs"), [(3, 9, 64), (4, 7, 3)])
def test_a_convolution_can_begin_as_an_orthogonal_centre(size: int, inputs: int, outputs: int):
    conv = made(jax.random.key(0), inputs, outputs, size, 1, 0, "delta")
    weight, at = np.asarray(conv.weight, np.float64), (size - 1) // 2
    assert weight.shape == (size, size, inputs, outputs)
    centre = weight[at, at]
    tall = centre if inputs >= outputs else centre.T
    assert_allclose(tall.T @ tall, 2 * np.eye(min(inputs, outputs)), atol=1e-5)  # a gain of sqrt 2
    assert np.count_nonzero(weight) == np.count_nonzero(centre)
    assert_array_equal(conv.bias, np.zeros(outputs))


@pytest.mark.usefixtures("quick_compiles")
def test_a_convolution_can_begin_orthogonal_as_a_whole():
    conv = made(jax.random.key(0), 4, 6, 3, 2, 0, "orthogonal")
    flat = np.asarray(conv.weight, np.float64).reshape(36, 6)
    assert_allclose(flat.T @ flat, 2 * np.eye(6), atol=1e-5)
    assert_array_equal(conv.bias, np.zeros(6))
    assert conv.stride == 2 and np.all(np.asarray(conv.weight) != 0)


@pytest.mark.parametrize("factor", [0.0, 0.5, 2**-0.5, 1.0, 3.0])
def test_scale_gradient_changes_the_gradient_only(factor: float):
    x = jnp.array([-1.5, 0.0, 7.0])
    value, slope = jax.jit(jax.value_and_grad(lambda x: jnp.sum(scale_gradient(x, factor) ** 2)))(x)
    assert_allclose(value, 51.25, rtol=1e-6)
    assert_allclose(slope, factor * 2 * x, rtol=1e-6)
    assert_allclose(scale_gradient(x, factor), x, rtol=1e-6)
