"""Cycle consistency (PlayVirtual): forward along any actions and back again leads to the start."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from vcrl.objectives.distance import unit_distance


def cycle_consistency(
    returned: Float[Array, "M B D"], start: Float[Array, "M B D"], mask: Float[Array, " B"]
) -> Float[Array, " B"]:
    """mask mean_m (2 - 2 cos(returned_m, start_m)) over M virtual trajectories, one number a sample.

    The start must come without gradient.
    """
    return mask * jnp.mean(unit_distance(returned, start), axis=0)
