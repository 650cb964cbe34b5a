"""Convolutions in half precision, for the batches of one seed that fill a GPU: forward by kernels, back by the library.

What a TF32 product would round to ten bits as it reads it is stored with those ten bits, at half the traffic and twice
the speed.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vcrl.nets import kernels, tiles
from vcrl.nets.convolutions import by_library, widened
from vcrl.nets.layers import Conv
from vcrl.nets.norms import totals
from vcrl.nets.products import END, cut_off, scale_of

WIDE = 8  # channels that tensor cores take at once


def convolve(conv: Conv, x: Float[Array, "B H W I"]) -> Float[Array, "B h w O"]:
    """ReLU of a convolution. Factors and result are as precise as `x` is, sums are float32.

    Images come in the form that both directions want them in: nine channels and a stride are folded to 36 without one,
    and those filled up to 40, or to 48 for a kernel.
    """
    x, weight, stride = conv.dense(x, grow=True)
    weight, x = widened(weight, x, tiles.LEAST if _by_kernel(x) else WIDE)
    return _convolve(stride, weight, conv.bias, x)


def _by_kernel(x: Array) -> bool:
    """A kernel adds the bias and cuts off what is negative before it writes; the library's sums are read once more."""
    return x.dtype == jnp.float16 and tiles.available()


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _convolve(stride: int, weight: Array, bias: Array, x: Array) -> Array:
    if _by_kernel(x) and kernels.fit(weight):
        return kernels.convolve(stride, weight, x, bias=bias)
    out = by_library(stride, weight, x).astype(jnp.float32) + bias[None, None, None]
    return jnp.minimum(jax.nn.relu(out), END).astype(x.dtype)


def _forward(stride: int, weight: Array, bias: Array, x: Array) -> tuple[Any, Any]:
    out = _convolve(stride, weight, bias, x)
    return out, (weight, x, out)


def _backward(stride: int, kept: tuple[Array, Array, Array], gradient: Array) -> tuple[Array, Array, Array]:
    """By the result alone, which is kept for the next layer anyway: where it is 0, nothing flows."""
    weight, x, out = kept
    if _by_kernel(x) and kernels.fit_open(out.shape[-1]):
        gradient, by_bias = kernels.open_only(out, gradient)
    else:
        gradient = jnp.where(out > 0, gradient, jnp.zeros_like(gradient))
        (by_bias,) = totals(gradient.astype(jnp.float32))
    _, pull = jax.vjp(partial(by_library, stride), weight, x)
    weight, before = pull(gradient)
    return weight, by_bias, before


_convolve.defvjp(_forward, _backward)


def in_halves(function: Callable[[Any, Array], Array], nets: Any, obs: Array) -> Array:
    """A function of nets and images with the images as halves; its gradient with respect to the nets is scaled.

    The range of a half is smaller than that of float32, so the gradient comes in multiplied by a power of two and goes
    out divided by it: its largest number at 2^-6, far from where a sum over a batch ends (2^16) and from where bits get
    lost (2^-14).
    """

    @jax.custom_vjp
    def halved(nets: Any, obs: Array) -> Array:
        return function(nets, obs.astype(jnp.float16))

    def forward(nets: Any, obs: Array) -> tuple[Array, Any]:
        return jax.vjp(function, nets, obs.astype(jnp.float16))

    def backward(pull: Any, gradient: Array) -> Any:
        scale = scale_of(gradient, 2.0**-6)
        return jax.tree.map(lambda x: cut_off(x.astype(jnp.float32)) * scale, pull(gradient / scale))

    halved.defvjp(forward, backward)
    return halved(nets, obs)
