"""Matrix products for the small batches of many seeds at once, and convolutions as products of patches.

On a GPU the factors are halves: what a TF32 product would round to ten bits as it reads it is stored with those ten
bits, at half the traffic. Sums, results and whatever else a layer does stay float32.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

END = float(jnp.finfo(jnp.float16).max)  # 65,504
WIDE = 8  # channels that tensor cores take at once
# Gradients are multiplied by this before they become halves, so that no bits get lost between 2.4e-7 and 256, beyond
# which they are cut off. Losses are means over a batch of what is bounded, a cross entropy or a Huber loss: at first
# weights of VCR on Atari the largest number of a layer's gradient is 0.002 to 0.25, its median 5e-5 to 5e-3.
SCALE = 2.0**8


def linear(weight: Float[Array, "I O"], x: Float[Array, "*n I"]) -> Float[Array, "*n O"]:
    """A product with vectors; for losses that are bounded, see SCALE."""
    if jax.default_backend() != "gpu":
        return x @ weight
    out: Array = by_halves(1, weight[None, None], x.reshape(-1, 1, 1, x.shape[-1]))
    return out.reshape(*x.shape[:-1], -1)


def convolution(
    stride: int, weight: Float[Array, "k k I O"], x: Float[Array, "B H W I"]
) -> Float[Array, "B h w O"]:
    """Without padding and bias."""
    if jax.default_backend() != "gpu":
        return patches(stride, len(weight), x) @ weight.reshape(-1, weight.shape[-1])
    return by_halves(stride, *widened(weight, x))


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
    flat, gradient = weight.reshape(-1, weight.shape[-1]), _half(SCALE * gradient)
    cut = partial(patches, stride, len(weight))
    by_weight = jnp.einsum("bhwi,bhwo->io", cut(x), gradient, preferred_element_type=jnp.float32)
    by_patch = _whole(jnp.matmul(gradient, flat.T))  # stored as halves, added up as float32
    (by_x,) = jax.linear_transpose(cut, jax.ShapeDtypeStruct(x.shape, jnp.float32))(by_patch)
    return by_weight.reshape(weight.shape) / SCALE, by_x / SCALE


by_halves.defvjp(_forward, _backward)


def _half(x: Array) -> Array:
    return jnp.clip(x, -END, END).astype(jnp.float16)


def _whole(x: Array) -> Array:
    return jnp.clip(x.astype(jnp.float32), -END, END)
