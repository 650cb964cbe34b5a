"""Matrix products for the small batches of many seeds at once, and convolutions as products of patches.

On a GPU the factors are halves: what a TF32 product would round to ten bits as it reads it is stored with those ten
bits, at half the traffic. Sums and results are float32, but for the gradient on its way back into patches, which is as
large as they are.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

END = float(jnp.finfo(jnp.float16).max)  # 65,504
WIDE = 8  # channels that tensor cores take at once


def linear(weight: Float[Array, "I O"], x: Float[Array, "*n I"]) -> Float[Array, "*n O"]:
    """A product with vectors."""
    if not _halved(weight, x):
        return x @ weight
    out: Array = by_halves(1, weight[None, None], x.reshape(math.prod(x.shape[:-1]), 1, 1, x.shape[-1]))
    return out.reshape(*x.shape[:-1], weight.shape[-1])


def convolution(
    stride: int, weight: Float[Array, "k k I O"], x: Float[Array, "B H W I"]
) -> Float[Array, "B h w O"]:
    """Without padding and bias."""
    if not _halved(weight, x):
        return patches(stride, len(weight), x) @ weight.reshape(-1, weight.shape[-1])
    return by_halves(stride, *widened(weight, x))


def _halved(weight: Array, x: Array) -> bool:
    """Where somebody asks for more than float32, or for less, nothing is rounded behind their back."""
    return jax.default_backend() == "gpu" and weight.dtype == x.dtype == jnp.float32


def patches(stride: int, size: int, x: Float[Array, "B H W I"]) -> Float[Array, "B h w kkI"]:
    """What lies under the kernel at each of its places, as one vector."""
    height, width = ((n - size) // stride + 1 for n in x.shape[1:3])
    slices = [
        x[:, i : i + (height - 1) * stride + 1 : stride, j : j + (width - 1) * stride + 1 : stride]
        for i in range(size)
        for j in range(size)
    ]
    return jnp.concatenate(slices, axis=-1)


def widened(weight: Float[Array, "k k I O"], x: Float[Array, "B H W I"]) -> tuple[Array, Array]:
    """Both with channels of zeros, as many as make them a multiple of WIDE."""
    none, missing = (0, 0), (0, -x.shape[-1] % WIDE)
    return jnp.pad(weight, (none, none, missing, none)), jnp.pad(x, (none, none, none, missing))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def by_halves(
    stride: int, weight: Float[Array, "k k I O"], x: Float[Array, "B H W I"]
) -> Float[Array, "B h w O"]:
    """The product of patches and weight, both as halves, and its gradient likewise."""
    return _forward(stride, weight, x)[0]


def _forward(stride: int, weight: Array, x: Array) -> tuple[Array, tuple[Array, Array]]:
    weight, x = _half(weight), _half(x)
    flat = weight.reshape(-1, weight.shape[-1])
    out = jnp.matmul(patches(stride, len(weight), x), flat, preferred_element_type=jnp.float32)
    return out, (weight, x)


def _backward(stride: int, kept: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    weight, x = kept
    scale = scale_of(gradient, 16.0)  # and a sum over as many channels as there are stays in range
    flat, gradient = weight.reshape(-1, weight.shape[-1]), (gradient / scale).astype(jnp.float16)
    cut = partial(patches, stride, len(weight))
    by_weight = jnp.einsum("bhwi,bhwo->io", cut(x), gradient, preferred_element_type=jnp.float32)
    by_patch = cut_off(jnp.matmul(gradient, flat.T).astype(jnp.float32))
    (by_x,) = jax.linear_transpose(cut, jax.ShapeDtypeStruct(x.shape, jnp.float32))(by_patch)
    return by_weight.reshape(weight.shape) * scale, by_x * scale


by_halves.defvjp(_forward, _backward)


def scale_of(gradient: Array, most: float) -> Float[Array, ""]:
    """A power of two by which a gradient is to be divided for its largest number to lie between `most` / 2 and `most`.

    The range of a half is smaller than that of float32. An infinity makes the scale infinite and all numbers NaN, so
    that whoever watches over the weights will see it.
    """
    largest = jnp.max(jnp.abs(gradient), initial=0.0)
    return jnp.exp2(jnp.ceil(jnp.log2(jnp.where(largest > 0, jnp.maximum(largest, 1e-30), 1.0)))) / most


def cut_off(x: Array) -> Array:
    """To what a half can hold."""
    return jnp.clip(x, -END, END)


def _half(x: Array) -> Array:
    return cut_off(x).astype(jnp.float16)
