"""Our convolution is the library's: forward and backward, alone and vmapped over seeds."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from vcrl.nets.layers import Conv

SEEDS = 2
# (height, width), inputs, outputs, size, stride, padding
SHAPES = {
    "nature 1": ((84, 84), 4, 32, 8, 4, 0),
    "nature 2": ((20, 20), 32, 64, 4, 2, 0),
    "nature 3": ((9, 9), 64, 64, 3, 1, 0),
    "stride does not divide the kernel": ((7, 7), 16, 16, 3, 2, 0),
    "transition": ((7, 7), 10, 8, 3, 1, 1),
    "pixels left over": ((18, 15), 3, 5, 4, 4, 0),
    "padded, stride divides": ((11, 13), 2, 3, 4, 2, 1),
    "padded, stride does not divide": ((11, 9), 3, 4, 5, 3, 2),
    "stride larger than the kernel": ((10, 10), 2, 3, 2, 3, 0),
}


def library(conv: Conv, x: jax.Array) -> jax.Array:
    p = conv.padding
    out = jax.lax.conv_general_dilated(
        x, conv.weight, (conv.stride,) * 2, ((p, p), (p, p)), dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return out + jnp.broadcast_to(conv.bias, out.shape)


def ours(conv: Conv, x: jax.Array) -> jax.Array:
    return conv(x)


def assert_close(found: Any, expected: Any) -> None:
    """To rounding: relative to the largest entry, since sums of a few hundred products cancel."""

    def one(a: Any, b: Any) -> None:
        assert a.shape == b.shape
        assert_allclose(a, b, rtol=0, atol=1e-5 * float(np.abs(b).max()))

    jax.tree.map(one, found, expected)


def both_ways(function: Any, conv: Conv, x: jax.Array, pull: jax.Array) -> Any:
    out, back = jax.vjp(function, conv, x)
    return out, back(pull)


@pytest.mark.parametrize("name", SHAPES)
def test_conv_is_the_librarys(name: str):
    (height, width), inputs, outputs, size, stride, padding = SHAPES[name]
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    def draw() -> tuple[Conv, jax.Array, jax.Array]:
        conv = Conv(normal(size, size, inputs, outputs), normal(outputs), stride, padding)
        after = [(n + 2 * padding - size) // stride + 1 for n in (height, width)]
        return conv, normal(2, height, width, inputs), normal(2, *after, outputs)

    seeds = [draw() for _ in range(SEEDS)]
    alone = jax.jit(both_ways, static_argnums=0)
    expected = [alone(library, *seed) for seed in seeds]
    assert_close(alone(ours, *seeds[0]), expected[0])
    together = jax.jit(jax.vmap(partial(both_ways, ours)))(*jax.tree.map(lambda *x: np.stack(x), *seeds))
    assert_close(together, jax.tree.map(lambda *x: np.stack(x), *expected))


@pytest.mark.parametrize(("inputs", "size"), [(4, 8), (32, 4), (64, 3)])
def test_initial_weights_fill_their_range(inputs: int, size: int):
    conv = jax.jit(lambda key: Conv.make(key, inputs, 32, size))(jax.random.key(1))
    assert conv.weight.shape == (size, size, inputs, 32)
    bound = (size * size * inputs) ** -0.5  # one over the root of the fan-in, weights and bias alike
    for part in (conv.weight, conv.bias):
        assert 0.8 * bound < np.abs(part).max() <= bound
    assert_allclose(np.std(conv.weight), bound / 3**0.5, rtol=0.02)
    assert_allclose(np.mean(conv.weight), 0.0, atol=0.03 * bound)


@pytest.mark.parametrize(
    ("side", "size", "stride", "after"),
    [(84, 8, 4, 21), (21, 4, 2, 11), (11, 3, 1, 11), (7, 3, 2, 4), (6, 5, 5, 2)],
)
def test_padding_to_the_same_size_is_the_librarys(side: int, size: int, stride: int, after: int):
    """The layers of Dopamine's network, and two whose zeros do not come in pairs."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(2, side, side + 1, 3)), jnp.float32)
    conv = Conv.make(jax.random.key(0), 3, 5, size, stride, "same")
    expected = jax.lax.conv_general_dilated(
        x, conv.weight, (stride,) * 2, "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    found = jax.jit(Conv.__call__)(conv, x)
    assert found.shape[1] == after
    assert_allclose(found, expected + jnp.broadcast_to(conv.bias, expected.shape), atol=1e-5)


def test_xavier_weights_fill_their_range_and_biases_are_zero():
    conv = jax.jit(lambda key: Conv.make(key, 32, 64, 4, init="xavier"))(jax.random.key(1))
    bound = (6 / (16 * 32 + 16 * 64)) ** 0.5  # fan-in and fan-out, each over the 4x4 places of the kernel
    assert conv.weight.shape == (4, 4, 32, 64)
    assert 0.99 * bound < np.abs(conv.weight).max() <= bound
    assert_allclose(np.std(conv.weight), bound / 3**0.5, rtol=0.02)
    assert not np.any(conv.bias)
