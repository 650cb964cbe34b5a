"""Random shift, crop and intensity: uint8 stacks in, floats in [0, 1] (times the intensity) out."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import equinox as eqx
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


class Drawn(eqx.Module):
    """Stacks that are still to be shifted or cropped, and lit, with what was drawn for each."""

    obs: UInt8[Array, "B H W C"]
    top: Int[Array, " B"] | None  # the first row that is shown; None: all are, in their place
    left: Int[Array, " B"] | None  # likewise the first column
    light: Float[Array, " B"]  # what a byte is multiplied by
    crop: int | None = eqx.field(static=True, default=None)  # pixels a side that are shown; none: all


def as_it_is(obs: UInt8[Array, "B H W C"]) -> Drawn:
    """Stacks of which nothing is drawn."""
    return Drawn(obs, None, None, jnp.full(len(obs), 1 / 255))


def augment(
    key: Array, obs: UInt8[Array, "*n H W C"], *, shift: int, intensity: float, crop: int | None = None
) -> Float[Array, "*n h w C"]:
    """Shift each stack by up to `shift` pixels, edges repeated, and scale its brightness; one draw a stack.

    With `crop`, a random square of so many pixels a side is cut out instead. The brightness is
    1 + intensity * N(0, 1) clipped at two deviations, and is not clipped to [0, 1] again.
    """
    (drawn,) = drawn_for(key, [obs], shift=shift, intensity=intensity, crop=crop)
    images = picture(drawn)
    return images.reshape(*obs.shape[:-3], *images.shape[1:])


def drawn_for(
    key: Array,
    stacks: Sequence[UInt8[Array, "... H W C"]],
    *,
    shift: int,
    intensity: float,
    crop: int | None = None,
) -> list[Drawn]:
    """What `augment` draws for all of them, as if they were one array."""
    flat = [obs.reshape(-1, *obs.shape[-3:]) for obs in stacks]
    if crop is not None and jax.default_backend() == "gpu":
        # Cut out of what lies in memory: else each byte of a square would be looked for in the replay anew.
        flat = jax.lax.optimization_barrier(flat)
    ends = list(accumulate(map(len, flat)))
    # One call of the generator for everything: each call costs a compiled loop of its own.
    chance = jax.random.uniform(key, (3, ends[-1], 1, 1), minval=1e-7, maxval=1.0)
    top = left = None
    if shift or crop is not None:

        def first(chance: Array, length: int) -> Array:
            places, least = (length - crop + 1, 0) if crop is not None else (2 * shift + 1, -shift)
            return jnp.floor(chance * places).astype(jnp.int32) + least

        top, left = (first(chance[i, :, 0, 0], n) for i, n in enumerate(flat[0].shape[1:3]))
    light = jnp.full(ends[-1], 1 / 255)
    if intensity:
        light = light * (1 + intensity * jnp.clip(jax.scipy.special.ndtri(chance[2, :, 0, 0]), -2, 2))

    def part(x: Array | None, end: int, count: int) -> Array | None:
        return None if x is None else x[end - count : end]

    return [
        Drawn(obs, part(top, end, len(obs)), part(left, end, len(obs)), light[end - len(obs) : end], crop)
        for obs, end in zip(flat, ends, strict=True)
    ]


def shown(images: Float[Array, "B h w C"] | Drawn) -> Float[Array, "B h w C"]:
    """Images, whichever way they come."""
    return picture(images) if isinstance(images, Drawn) else images


def picture(drawn: Drawn) -> Float[Array, "B h w C"]:
    """The images that come of it.

    The same as padding with the edge and cropping, done by index so that bytes move once and become floats last.
    """
    if drawn.crop is not None and jax.default_backend() == "gpu":
        return _lit(_squares(drawn.obs, drawn.top, drawn.left, drawn.crop), drawn.light)
    count, *sides, channels = drawn.obs.shape
    flat = drawn.obs.reshape(count, sides[0] * sides[1], channels)
    if drawn.top is not None and drawn.left is not None:

        def lines(first: Array, length: int) -> Array:
            return jnp.clip(jnp.arange(drawn.crop or length)[None] + first[:, None], 0, length - 1)

        rows, columns = lines(drawn.top, sides[0]), lines(drawn.left, sides[1])
        # One gather over pixels, not one over rows and one over columns: XLA fuses it into the patches of the first
        # convolution. On two CPU cores a whole update took 26 ms instead of 40.
        pixel = rows[:, :, None] * sides[1] + columns[:, None, :]
        sides = pixel.shape[1:]
        flat = _pixels(flat, pixel.reshape(count, sides[0] * sides[1]))
    return _lit(flat.reshape(count, *sides, channels), drawn.light)


def _lit(obs: UInt8[Array, "B H W C"], light: Float[Array, " B"]) -> Float[Array, "B H W C"]:
    return obs.astype(jnp.float32) * light[:, None, None, None]


def _squares(obs: UInt8[Array, "B H W C"], top: Any, left: Any, crop: int) -> UInt8[Array, "B h w C"]:
    """Squares of images in memory of their own: what the first layer's gradient needs of them is kept as bytes."""

    def cut(obs: Array, top: Array, left: Array) -> Array:
        return jax.lax.dynamic_slice(obs, (top, left, 0), (crop, crop, obs.shape[-1]))

    return jax.lax.optimization_barrier(jax.vmap(cut)(obs, top, left))


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
