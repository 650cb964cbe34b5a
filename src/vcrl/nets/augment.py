"""Random shift and intensity: uint8 stacks in, floats in [0, 1] (times the intensity) out."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt8


def to_float(obs: UInt8[Array, "*n H W C"]) -> Float[Array, "*n H W C"]:
    return obs.astype(jnp.float32) / 255


def augment(
    key: Array, obs: UInt8[Array, "*n H W C"], *, shift: int, intensity: float
) -> Float[Array, "*n H W C"]:
    """Shift each stack by up to `shift` pixels, edges repeated, and scale its brightness; one draw a stack.

    The same as padding with the edge and cropping at random, done by index so that bytes move once and become floats
    last. The brightness is 1 + intensity * N(0, 1) clipped at two deviations, and is not clipped to [0, 1] again.
    """
    *leading, height, width, channels = obs.shape
    flat = obs.reshape(-1, height, width, channels)
    move, bright = jax.random.split(key)
    if shift:
        offset = jax.random.randint(move, (2, len(flat), 1), -shift, shift + 1)
        rows = jnp.clip(jnp.arange(height) + offset[0], 0, height - 1)
        columns = jnp.clip(jnp.arange(width) + offset[1], 0, width - 1)
        flat = jax.vmap(lambda image, r, c: image[r][:, c])(flat, rows, columns)
    out = to_float(flat)
    if intensity:
        noise = jnp.clip(jax.random.normal(bright, (len(flat), 1, 1, 1)), -2, 2)
        out = out * (1 + intensity * noise)
    # Without the barrier XLA computes the whole augmentation anew for every patch the first convolution cuts.
    return jax.lax.optimization_barrier(out.reshape(*leading, height, width, channels))
