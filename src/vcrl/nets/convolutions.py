"""Convolutions for the small batches of many seeds at once: kernels on a GPU, else a matrix product of patches."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vcrl.nets import kernels, tiles
from vcrl.nets.products import linear

WIDE = 32  # outputs, from which on products first are faster than the library


def convolution(
    stride: int, weight: Float[Array, "k k I O"], x: Float[Array, "B H W I"]
) -> Float[Array, "B h w O"]:
    """Without padding and bias."""
    size, outputs = len(weight), weight.shape[-1]
    # Where somebody asks for more than float32, or for less, nothing is rounded behind their back.
    exact = weight.dtype != jnp.float32 or x.dtype != jnp.float32
    if size == 1 or outputs % tiles.LEAST or exact or not tiles.available():
        return linear(weight.reshape(-1, outputs), patches(stride, size, x))
    weight, x = widened(weight, x, tiles.LEAST)
    return kernels.convolution(stride, weight, x)


def without_gradient(
    stride: int, weight: Float[Array, "k k I O"], x: Float[Array, "B H W I"]
) -> Float[Array, "B h w O"]:
    """The same for one seed on a CPU, on the way forward only.

    Of many channels the products come first, of every place with all of the kernel, and are then added up where they
    belong. Where a layer has more inputs than outputs, that is less to store than patches are.
    """
    size, outputs = len(weight), weight.shape[-1]
    if stride > 1 or outputs < WIDE:
        return by_library(stride, weight, x)
    height, width = (n - size + 1 for n in x.shape[1:3])
    products = x @ weight.transpose(2, 0, 1, 3).reshape(x.shape[-1], -1)
    products = products.reshape(*x.shape[:3], size, size, outputs)
    taps = [products[:, i : i + height, j : j + width, i, j] for i in range(size) for j in range(size)]
    return functools.reduce(jnp.add, taps)


def by_library(
    stride: int, weight: Float[Array, "k k I O"], x: Float[Array, "B H W I"]
) -> Float[Array, "B h w O"]:
    """The same by XLA's own convolution, as precise as `x` is."""
    forms = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        x, weight.astype(x.dtype), (stride, stride), "VALID", dimension_numbers=forms
    )


def patches(stride: int, size: int, x: Float[Array, "B H W I"]) -> Float[Array, "B h w kkI"]:
    """What lies under the kernel at each of its places, as one vector."""
    height, width = ((n - size) // stride + 1 for n in x.shape[1:3])
    slices = [
        x[:, i : i + (height - 1) * stride + 1 : stride, j : j + (width - 1) * stride + 1 : stride]
        for i in range(size)
        for j in range(size)
    ]
    return jnp.concatenate(slices, axis=-1)


def widened(
    weight: Float[Array, "k k I O"], x: Float[Array, "B H W I"], wide: int
) -> tuple[Float[Array, "k k i O"], Float[Array, "B H W i"]]:
    """Both with channels of zeros, as many as make them a multiple of so many."""
    none, missing = (0, 0), (0, -x.shape[-1] % wide)
    return jnp.pad(weight, (none, none, missing, none)), jnp.pad(x, (none, none, none, missing))
