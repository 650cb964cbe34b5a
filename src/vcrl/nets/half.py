"""Convolutions in half precision, for batches of hundreds of images: both ways by kernels, where there are some.

What a TF32 product would round to ten bits as it reads it is stored with those ten bits, at half the traffic and twice
the speed.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vcrl.nets import kernels, tiles
from vcrl.nets.convolutions import by_library, widened
from vcrl.nets.layers import Conv
from vcrl.nets.norms import totals
from vcrl.nets.products import END, cut_off, half, scale_of

WIDE = 8  # channels that tensor cores take at once


def layers(convs: Sequence[Conv], x: Float[Array, "B H W I"]) -> Float[Array, "B h w O"]:
    """ReLU of one convolution after the other. Factors and results are as precise as `x` is, sums are float32.

    Images come in the form that both directions want them in: nine channels and a stride are folded to 36 without one,
    and those filled up to 40, or to 48 for a kernel.
    """
    while convs:
        first, *rest = convs
        x, weight, stride = first.dense(x, grow=True)
        weight, x = widened(weight, x, tiles.LEAST if _by_kernel(x) else WIDE)
        # What comes behind it reads its result as it is, up to one for which that has to be padded or folded.
        plain = next((i for i, conv in enumerate(rest) if conv.padding or conv.stride > 1), len(rest))
        weights = (weight, *(conv.weight for conv in rest[:plain]))
        biases = tuple(conv.bias for conv in convs[: plain + 1])
        x = _chain((stride,) + (1,) * plain, weights, biases, x)
        convs = rest[plain:]
    return x


def _by_kernel(x: Array) -> bool:
    """A kernel adds the bias and cuts off what is negative before it writes; the library's sums are read once more."""
    return x.dtype == jnp.float16 and tiles.available()


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _chain(
    strides: tuple[int, ...], weights: tuple[Array, ...], biases: tuple[Array, ...], x: Array
) -> Array:
    return _forward(strides, weights, biases, x)[0]


def _forward(
    strides: tuple[int, ...], weights: tuple[Array, ...], biases: tuple[Array, ...], x: Array
) -> tuple[Array, Any]:
    seen = [x]
    for stride, weight, bias in zip(strides, weights, biases, strict=True):
        x = seen[-1]
        if _by_kernel(x) and kernels.fit(weight):
            seen.append(kernels.convolve(stride, weight, x, bias=bias))
        else:
            out = by_library(stride, weight, x).astype(jnp.float32) + bias[None, None, None]
            seen.append(jnp.minimum(jax.nn.relu(out), END).astype(x.dtype))
    return seen[-1], (weights, seen)


def _backward(strides: tuple[int, ...], kept: Any, gradient: Array) -> tuple[Any, Any, Array]:
    """By the results, which are kept for the next layer anyway: where one is 0, nothing flows."""
    weights, seen = kept
    gradient, total = _open(seen[-1], gradient)
    by_weight, by_bias = list[Array](), list[Array]()
    for i, (stride, weight, x) in reversed([*enumerate(zip(strides, weights, seen, strict=False))]):
        by_bias.append(total)
        if _by_kernel(x) and kernels.fit(weight) and kernels.fit(weight.transpose(0, 1, 3, 2)):
            by_weight.append(kernels.by_weight(stride, len(weight), x, gradient))
            turned, spread = kernels.way_back(stride, weight, x.shape, gradient)
            if i:
                gradient, total = kernels.convolve_back(turned, spread, x)
            else:
                gradient = half(kernels.convolve(1, turned, spread, border=len(weight) - 1))
        else:
            _, pull = jax.vjp(partial(by_library, stride), weight, x)
            slope, gradient = pull(gradient)
            by_weight.append(cut_off(slope) if x.dtype == jnp.float16 else slope)  # which was a half itself
            if i:
                gradient, total = _open(x, gradient)
    return tuple(reversed(by_weight)), tuple(reversed(by_bias)), gradient


def _open(out: Float[Array, "*n O"], gradient: Float[Array, "*n O"]) -> tuple[Array, Array]:
    """A gradient on its way back through a ReLU whose results are known, and what it adds up to as float32."""
    gradient = jnp.where(out > 0, gradient, jnp.zeros_like(gradient))
    return gradient, totals(gradient.astype(jnp.float32))[0]


_chain.defvjp(_forward, _backward)


def in_halves(function: Callable[[Any, Array], Array], nets: Any, obs: Array, most: float = 2.0**-6) -> Array:
    """A function of nets and images with the images as halves; its gradient with respect to the nets is scaled.

    The range of a half is smaller than that of float32, so the gradient comes in multiplied by a power of two and goes
    out divided by it: its largest number at `most`. That of a picture is to be far from where its sums end (2^16) and
    from where bits get lost (2^-14).
    """

    @jax.custom_vjp
    def halved(nets: Any, obs: Array) -> Array:
        return function(nets, obs.astype(jnp.float16))

    def forward(nets: Any, obs: Array) -> tuple[Array, Any]:
        return jax.vjp(function, nets, obs.astype(jnp.float16))

    def backward(pull: Any, gradient: Array) -> Any:
        scale = scale_of(gradient, most)
        return jax.tree.map(lambda x: x.astype(jnp.float32) * scale, pull(gradient / scale))

    halved.defvjp(forward, backward)
    return halved(nets, obs)
