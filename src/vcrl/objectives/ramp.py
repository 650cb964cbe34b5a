"""The Gaussian ramp-up of an auxiliary loss."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def gaussian_ramp(step: Int[Array, ""] | int, length: int) -> Float[Array, ""]:
    """exp(-5 (1 - (step+1)/length)^2) up to `length`, then 1; a length of 0 means no ramp.

    It starts at exp(-5) = 0.0067, not at 0.
    """
    if length == 0:
        return jnp.ones(())
    left = jnp.clip(1 - (jnp.asarray(step, jnp.float32) + 1) / length, 0, 1)
    return jnp.exp(-5 * jnp.square(left))
