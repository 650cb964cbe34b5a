"""One gradient step of an agent that has several: which parts it moves, how fast, and how they are clipped."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array

from vcrl.core.types import Metrics

T = TypeVar("T", bound=eqx.Module)
Parts = dict[str, Any]
SMALL = 50_000  # numbers


@dataclass(frozen=True)
class Descent:
    """Adam on some top-level fields of the nets, each at its own rate."""

    rates: dict[str, float]
    epsilon: float
    momentum: float = 0.9
    clip: tuple[
        tuple[float, tuple[str, ...]], ...
    ] = ()  # norm, and the fields it holds for together; in order

    @property
    def adam(self) -> Any:
        return optax.scale_by_adam(b1=self.momentum, eps=self.epsilon)

    def init(self, nets: eqx.Module) -> optax.OptState:
        return self.adam.init(parts_of(nets, self.rates))


def parts_of(nets: eqx.Module, names: Any) -> Parts:
    """Those of the named fields that a method has."""
    return {name: getattr(nets, name) for name in names if getattr(nets, name) is not None}


def merged(nets: T, parts: Parts) -> T:
    """The nets with some fields replaced."""
    return eqx.tree_at(lambda tree: [getattr(tree, name) for name in parts], nets, list(parts.values()))


def descend(
    step: Descent, loss: Callable[[T], tuple[Array, Metrics]], nets: T, opt: optax.OptState
) -> tuple[T, optax.OptState, Metrics]:
    """The nets after one step down this loss, as far as the step moves them."""
    mine = parts_of(nets, step.rates)
    gradient, metrics = jax.grad(lambda parts: loss(merged(nets, parts)), has_aux=True)(mine)
    direction, opt = step.adam.update(clipped(step, gradient), opt)
    moved = {
        name: jax.tree.map(lambda w, d, rate=step.rates[name]: w - rate * d, mine[name], direction[name])
        for name in mine
    }
    return merged(nets, moved), opt, metrics


def norm(tree: Any) -> Array:
    """Of all arrays together. Small ones are laid end to end: every sum of its own costs a GPU two launches."""
    arrays = jax.tree.leaves(tree)
    small = [x.ravel() for x in arrays if x.size < SMALL]
    large = [x for x in arrays if x.size >= SMALL]
    return optax.tree.norm([jnp.concatenate(small), *large] if small else large)


def clipped(step: Descent, gradient: Parts) -> Parts:
    for limit, names in step.clip:
        group = {name: gradient[name] for name in names if name in gradient}
        scale = jnp.minimum(1.0, limit / jnp.maximum(norm(group), 1e-9))
        gradient = gradient | jax.tree.map(lambda g, scale=scale: g * scale, group)
    return gradient
