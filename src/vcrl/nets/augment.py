"""Random shift, crop and intensity: uint8 stacks in, floats in [0, 1] (times the intensity) out."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt8


def to_float(obs: UInt8[Array, "*n H W C"]) -> Float[Array, "*n H W C"]:
    return obs.astype(jnp.float32) / 255


def centre(obs: UInt8[Array, "*n H W C"], crop: int | None) -> Float[Array, "*n h w C"]:
    """What is looked at without augmentation: all of it, or its middle where crops are learned from."""
    if crop is None:
        return to_float(obs)
    top, left = ((n - crop) // 2 for n in obs.shape[-3:-1])
    return to_float(obs[..., top : top + crop, left : left + crop, :])


def augment(
    key: Array, obs: UInt8[Array, "*n H W C"], *, shift: int, intensity: float, crop: int | None = None
) -> Float[Array, "*n h w C"]:
    """Shift each stack by up to `shift` pixels, edges repeated, and scale its brightness; one draw a stack.

    The same as padding with the edge and cropping at random, done by index so that bytes move once and become floats
    last. With `crop`, a random square of so many pixels a side is cut out instead. The brightness is
    1 + intensity * N(0, 1) clipped at two deviations, and is not clipped to [0, 1] again.
    """
    *leading, height, width, channels = obs.shape
    flat = obs.reshape(-1, height, width, channels)
    # One call of the generator for everything: each call costs a compiled loop of its own.
    chance = jax.random.uniform(key, (3, len(flat), 1, 1), minval=1e-7, maxval=1.0)
    if shift or crop is not None:
        # How many places there are, the first of them, and how many pixels are shown; of rows and of columns.
        sides = [
            (n - crop + 1, 0, crop) if crop is not None else (2 * shift + 1, -shift, n)
            for n in (height, width)
        ]

        def lines(chance: Array, length: int, places: int, least: int, shown: int) -> Array:
            offset = jnp.floor(chance * places).astype(jnp.int32) + least
            return jnp.clip(jnp.arange(shown)[None] + offset, 0, length - 1)

        rows = lines(chance[0, :, :, 0], height, *sides[0])
        columns = lines(chance[1, :, :, 0], width, *sides[1])
        # One gather over pixels, not one over rows and one over columns: XLA fuses it into the patches of the first
        # convolution. On two CPU cores a whole update took 26 ms instead of 40.
        pixel = (rows[:, :, None] * width + columns[:, None, :]).reshape(len(flat), -1)
        flat = _pixels(flat.reshape(len(flat), -1, channels), pixel)
        height, width = sides[0][2], sides[1][2]
    brightness = jnp.full((len(flat), 1, 1), 1 / 255)
    if intensity:
        normal = jax.scipy.special.ndtri(chance[2])
        brightness = brightness * (1 + intensity * jnp.clip(normal, -2, 2))
    out = flat.reshape(len(flat), -1, channels).astype(jnp.float32) * brightness
    return out.reshape(*leading, height, width, channels)


def _pixels(obs: UInt8[Array, "B P C"], at: Int[Array, "B p"]) -> UInt8[Array, "B p C"]:
    """The pixels of each stack in another order; four bytes move as one word, so that one index serves them all."""
    if obs.shape[-1] != 4:
        return jnp.take_along_axis(obs, at[..., None], axis=1, mode="clip")
    words = jax.lax.bitcast_convert_type(obs, jnp.uint32)
    return jax.lax.bitcast_convert_type(jnp.take_along_axis(words, at, axis=1, mode="clip"), jnp.uint8)


def crop_and_pad(key: Array, obs: UInt8[Array, "B H W C"], pixels: int) -> Float[Array, "B H W C"]:
    """CURL's view of a stack: crop `pixels` away, pad the edge by as many on each side, crop to the old size.

    Unlike a shift it loses the same border wherever it lands: what is cropped away is never seen again.
    """
    batch, height, width, channels = obs.shape
    offset = jax.random.randint(key, (2, 2, batch, 1), 0, pixels + 1)  # crop, place; rows, columns

    def lines(length: int, crop: Array, place: Array) -> Array:
        return crop + jnp.clip(jnp.arange(length)[None] + place - pixels, 0, length - pixels - 1)

    rows, columns = (lines(n, offset[0, i], offset[1, i]) for i, n in enumerate((height, width)))
    pixel = (rows[:, :, None] * width + columns[:, None, :]).reshape(batch, -1)
    return to_float(_pixels(obs.reshape(batch, -1, channels), pixel).reshape(obs.shape))
