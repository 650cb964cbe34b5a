"""Contrastive learning (CURL): two views of one image are more alike than views of different images."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def info_nce(
    anchor: Float[Array, "B D"], key: Float[Array, "B D"], bilinear: Float[Array, "D D"], scale: float = 1.0
) -> Float[Array, " B"]:
    """-log softmax_j(scale anchor_i^T W key_j) at j = i, in nats: sample i has to find its own key among all B.

    The keys must come without gradient.
    """
    likeness = scale * (anchor @ bilinear @ key.T)
    return -jnp.diagonal(jax.nn.log_softmax(likeness, axis=-1))
