"""Layers that scale what they are given: by the batch, by each state's own range, by each vector's own length."""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class Stats(NamedTuple):
    """Running statistics of one batch norm. They are not parameters: no gradient, no Adam, no averaging."""

    mean: Float[Array, " C"]
    var: Float[Array, " C"]


class BatchNorm(eqx.Module):
    """Batch statistics while learning, running ones while looking; both come back so that nothing is hidden."""

    scale: Float[Array, " C"]
    bias: Float[Array, " C"]

    @staticmethod
    def make(channels: int) -> "BatchNorm":
        return BatchNorm(jnp.ones(channels), jnp.zeros(channels))

    @staticmethod
    def stats(channels: int) -> Stats:
        return Stats(jnp.zeros(channels), jnp.ones(channels))

    def __call__(
        self,
        x: Float[Array, "*n C"],
        stats: Stats,
        learning: bool,
        momentum: float = 0.1,
        epsilon: float = 1e-5,
    ) -> tuple[Float[Array, "*n C"], Stats]:
        if not learning:
            return _scaled(x, *stats, self.scale, self.bias, epsilon), stats
        out, found = by_batch(epsilon, x, self.scale, self.bias)  # type: ignore
        count = x.size // x.shape[-1]
        unbiased = found._replace(var=found.var * (count / max(count - 1, 1)))
        new = jax.tree.map(lambda old, now: (1 - momentum) * old + momentum * now, stats, unbiased)
        return out, jax.lax.stop_gradient(new)


def _scaled(
    x: Float[Array, "*n C"], mean: Array, var: Array, scale: Array, bias: Array, epsilon: float
) -> Float[Array, "*n C"]:
    mean, inverse, scale, bias = (
        jnp.broadcast_to(v, x.shape) for v in (mean, jax.lax.rsqrt(var + epsilon), scale, bias)
    )
    return (x - mean) * inverse * scale + bias


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def by_batch(
    epsilon: float, x: Float[Array, "*n C"], scale: Float[Array, " C"], bias: Float[Array, " C"]
) -> tuple[Array, Stats]:
    """Scaled by mean and variance of the batch, which come back, too, and have no gradient.

    Both are of one look at the batch, in float32 at least. They are sums of what differs from its first row: that is of
    the batch itself, so that its square is at most so many variances as there are rows, and the variance is off by so
    many roundings at the worst, 1e-4 of it on Atari; by one or two where the first row is like the others.
    """
    return _forward(epsilon, x, scale, bias)[0]


def _forward(epsilon: float, x: Array, scale: Array, bias: Array) -> tuple[Any, tuple[Array, ...]]:
    wide = x.astype(jnp.float32) if x.dtype.itemsize < 4 else x
    first = jnp.sum(wide.reshape(-1, x.shape[-1])[:1], axis=0)  # of no rows, 0
    apart, count = wide - jnp.broadcast_to(first, x.shape), max(x.size // x.shape[-1], 1)
    shift, square = (total / count for total in totals(apart, jnp.square(apart)))
    mean, var = first + shift, jnp.maximum(square - jnp.square(shift), 0.0)
    out = _scaled(wide, mean, var, scale, bias, epsilon).astype(x.dtype)
    return (out, Stats(mean, var)), (x, mean, var, scale)


def _backward(epsilon: float, kept: tuple[Array, ...], gradient: tuple[Array, Any]) -> tuple[Array, ...]:
    """One look at the batch here, too: for the two sums that scale and bias want anyway."""
    x, mean, var, scale = kept
    pull, count = gradient[0].astype(mean.dtype), max(x.size // x.shape[-1], 1)
    inverse, one = jax.lax.rsqrt(var + epsilon), jnp.ones_like(mean)
    unit = _scaled(x.astype(mean.dtype), mean, var, one, 0 * one, epsilon)
    by_bias, by_scale = totals(pull, pull * unit)
    size, offset, slope = (
        jnp.broadcast_to(v, x.shape) for v in (scale * inverse, by_bias / count, by_scale / count)
    )
    by_x = size * (pull - offset - unit * slope)
    return by_x.astype(x.dtype), by_scale.astype(scale.dtype), by_bias.astype(scale.dtype)


by_batch.defvjp(_forward, _backward)


def totals(*arrays: Float[Array, "*n C"]) -> tuple[Float[Array, " C"], ...]:
    """The sum of each over all places. On a GPU image by image, then the images: one sum over all keeps few busy."""
    axes = tuple(range(arrays[0].ndim - 1))
    if jax.default_backend() != "gpu" or len(axes) < 2:
        return tuple(jnp.sum(x, axes) for x in arrays)
    each = jax.lax.optimization_barrier(tuple(jnp.sum(x, axes[1:]) for x in arrays))
    return tuple(jnp.sum(x, 0) for x in each)


def spread(v: Float[Array, " C"], shape: tuple[int, ...]) -> Float[Array, "B *n C"]:
    """The same at every place of every image."""
    return _spread(shape, v) if jax.default_backend() == "gpu" else jnp.broadcast_to(v, shape)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _spread(shape: tuple[int, ...], v: Array) -> Array:
    return jnp.broadcast_to(v, shape)


_spread.defvjp(lambda shape, v: (_spread(shape, v), None), lambda shape, _, gradient: totals(gradient))


def renormalise(state: Float[Array, "B H W C"], epsilon: float = 1e-5) -> Float[Array, "B H W C"]:
    """Min-max scaling of each sample's whole state to [0, 1]; epsilon keeps a constant state finite."""
    axes = (-3, -2, -1)
    low, high = jnp.min(state, axes, keepdims=True), jnp.max(state, axes, keepdims=True)
    return (state - low) / (high - low + epsilon)


def layer_norm(x: Float[Array, "*n D"], epsilon: float = 1e-5) -> Float[Array, "*n D"]:
    """Mean 0 and variance 1 of each vector, without learned scale and bias."""
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(jnp.square(centred), axis=-1, keepdims=True) + epsilon)


class LayerNorm(eqx.Module):
    """Each vector to mean 0 and variance 1, then a learned scale and bias."""

    scale: Float[Array, " D"]
    bias: Float[Array, " D"]

    @staticmethod
    def make(width: int) -> "LayerNorm":
        return LayerNorm(jnp.ones(width), jnp.zeros(width))

    def __call__(self, x: Float[Array, "*n D"]) -> Float[Array, "*n D"]:
        scale, bias = (jnp.broadcast_to(v, x.shape) for v in (self.scale, self.bias))
        return layer_norm(x) * scale + bias
