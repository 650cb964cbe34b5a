"""Self-predictive representations (SPR): imagined states should look like the real ones."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from vcrl.objectives.distance import unit_distance


def self_prediction(
    predicted: Float[Array, "K B D"], target: Float[Array, "K B D"], mask: Float[Array, "K B"]
) -> Float[Array, " B"]:
    """sum_k mask_k (2 - 2 cos(predicted_k, target_k)), one number a sample.

    A sum over k, as the equation has it; the reference code's 5 x mean is the same at K = 5.
    """
    return jnp.sum(mask * unit_distance(predicted, target), axis=0)
