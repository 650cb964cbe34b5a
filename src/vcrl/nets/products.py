"""Matrix products for the small batches of many seeds at once.

On a GPU the factors are halves: what a TF32 product would round to ten bits as it reads it is stored with those ten
bits, at half the traffic. Sums and results are float32, but for the gradient on its way back to the inputs, which is as
large as they are.
"""

import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

END = float(jnp.finfo(jnp.float16).max)  # 65,504
HALVED = (jnp.float32, jnp.float16)


def linear(weight: Float[Array, "I O"], x: Float[Array, "*n I"]) -> Float[Array, "*n O"]:
    """A product with vectors."""
    if not _halved(weight, x):
        return (x.astype(weight.dtype) if x.dtype == jnp.float16 else x) @ weight
    out: Array = by_halves(weight, x.reshape(math.prod(x.shape[:-1]), x.shape[-1]))
    return out.reshape(*x.shape[:-1], weight.shape[-1])


def _halved(weight: Array, x: Array) -> bool:
    """Where somebody asks for more than float32, or for less, nothing is rounded behind their back."""
    return jax.default_backend() == "gpu" and weight.dtype == jnp.float32 and x.dtype in HALVED


def of_halves(product: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """A product of x and weight, by a function of both as halves, and its gradient, of halves likewise.

    Where x comes as halves, so does its gradient: small numbers get lost, so who asks for it scales what comes in.
    """

    @jax.custom_vjp
    def by_halves(weight: Float[Array, "I O"], x: Float[Array, "B I"]) -> Float[Array, "B O"]:
        return forward(weight, x)[0]

    def forward(weight: Array, x: Array) -> tuple[Array, tuple[Array, Array, Array]]:
        like = jnp.zeros(0, x.dtype)  # tells the way back what x came as
        weight, x = half(weight), half(x)
        return product(x, weight), (weight, x, like)

    by_halves.defvjp(forward, _backward)
    return by_halves


def _backward(kept: tuple[Array, Array, Array], gradient: Array) -> tuple[Array, Array]:
    weight, x, like = kept
    scale = scale_of(gradient, 16.0)  # and a sum over as many outputs as there are stays in range
    gradient = (gradient / scale).astype(jnp.float16)
    by_weight = jnp.einsum("bi,bo->io", x, gradient, preferred_element_type=jnp.float32)
    by_x = cut_off(jnp.einsum("bo,io->bi", gradient, weight).astype(jnp.float32))
    return by_weight * scale, (by_x * scale).astype(like.dtype)


by_halves = of_halves(partial(jnp.matmul, preferred_element_type=jnp.float32))


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


def half(x: Array) -> Array:
    """Rounded to ten bits, and cut off."""
    return x if x.dtype == jnp.float16 else cut_off(x).astype(jnp.float16)
