"""Distances between a predicted and a target value; the last axis is what one value consists of."""

from typing import Protocol, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Float


@runtime_checkable
class Distance(Protocol):
    def __call__(
        self, prediction: Float[Array, "*n E"], target: Float[Array, "*n E"], /
    ) -> Float[Array, "*n"]: ...


def cross_entropy(log_prob: Float[Array, "*n E"], target: Float[Array, "*n E"]) -> Float[Array, "*n"]:
    """-sum_j target_j log p_j, in nats: the distance of C51's value distributions."""
    return -jnp.sum(target * log_prob, axis=-1)


def squared_error(prediction: Float[Array, "*n E"], target: Float[Array, "*n E"]) -> Float[Array, "*n"]:
    """Sum over the critics (one in DQN, two in SAC) of (Q - y)^2, in squared units of return."""
    return jnp.sum(jnp.square(prediction - target), axis=-1)


def unit_distance(
    a: Float[Array, "*n D"], b: Float[Array, "*n D"], epsilon: float = 1e-3
) -> Float[Array, "*n"]:
    """Squared distance of two vectors scaled to unit length, 2 - 2 cos(a, b); norms are kept above `epsilon`."""

    def unit(x: Float[Array, "*n D"]) -> Float[Array, "*n D"]:
        # The floor is inside the root: the gradient of a norm at zero is not a number.
        return x / jnp.sqrt(jnp.maximum(jnp.sum(jnp.square(x), axis=-1, keepdims=True), epsilon**2))

    return jnp.sum(jnp.square(unit(a) - unit(b)), axis=-1)
