"""First layers as kernels that read the bytes of images where they lie: no shifted or cropped image is ever made."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Float, Int, UInt8

from vcrl.nets.products import half
from vcrl.nets.tiles import LEAST, MOST, Tiles, Window, power, relu, run, store, triton

SHIFTED, CROPPED = Tiles(64, 2), Tiles(128, 4, 2)


def convolve_shifted(
    stride: int,
    weight: Float[Array, "k k 4 O"],
    bias: Float[Array, " O"],
    obs: UInt8[Array, "B H W 4"],
    top: Int[Array, " B"],
    left: Int[Array, " B"],
    brightness: Float[Array, " B"],
    tiles: Tiles = SHIFTED,
) -> Float[Array, "B h w O"]:
    """The first layer of images that are shifted, edges repeated, and have a brightness: the ReLU of it, as halves.

    The images themselves are never made: four bytes are read as one word from where they lie.
    """
    window, outputs = Window.over(obs, len(weight), stride), weight.shape[-1]
    size, words = len(weight), lax.bitcast_convert_type(obs, jnp.uint32).reshape(-1)
    # Pieces of LEAST taps, each of its four channels in turn.
    ordered = weight.reshape(-1, LEAST, 4, outputs).transpose(0, 2, 1, 3).reshape(-1, outputs)
    pieces = size * size // LEAST

    def kernel(
        words_ref: Any,
        weight_ref: Any,
        bias_ref: Any,
        top_ref: Any,
        left_ref: Any,
        light_ref: Any,
        out_ref: Any,
    ) -> None:
        place = pl.program_id(0) * tiles.places + jnp.arange(tiles.places)
        image, row, column = window.corner(jnp.minimum(place, window.count - 1))
        row, column = row + triton.load(top_ref.at[image]), column + triton.load(left_ref.at[image])
        start = image * (window.height * window.width)
        mine = pl.ds(0, outputs)

        def add(i: Array, total: Array) -> Array:
            tap = i * LEAST + jnp.arange(LEAST)
            y = jnp.clip(row[:, None] + lax.div(tap, size)[None], 0, window.height - 1)
            x = jnp.clip(column[:, None] + lax.rem(tap, size)[None], 0, window.width - 1)
            word = triton.load(words_ref.at[start[:, None] + y * window.width + x])
            for channel in range(4):
                byte = _as_halves((word >> (8 * channel)) & 0xFF)
                rows = pl.ds((i * 4 + channel) * LEAST, LEAST)
                total += triton.dot(byte, triton.load(weight_ref.at[rows, mine]))
            return total

        total = lax.fori_loop(0, pieces, add, jnp.zeros((tiles.places, outputs), jnp.float32))
        light = triton.load(light_ref.at[image])[:, None]
        store(out_ref, place, mine, relu(total * light + triton.load(bias_ref.at[mine])[None]))

    out = jax.ShapeDtypeStruct((window.count, outputs), jnp.float16)
    factors = (words, half(ordered), bias, top, left, brightness)
    found = run(kernel, out, (pl.cdiv(window.count, tiles.places),), tiles, *factors)
    return found.reshape(window.batch, *window.places, outputs)


def convolve_cropped(
    stride: int,
    weight: Float[Array, "k k I O"],
    bias: Float[Array, " O"],
    obs: UInt8[Array, "B H W I"],
    top: Int[Array, " B"],
    left: Int[Array, " B"],
    brightness: Float[Array, " B"],
    crop: int,
    tiles: Tiles = CROPPED,
) -> Float[Array, "B h w O"]:
    """The first layer of squares of images, and the ReLU of it, as halves. The squares themselves are never made.

    What lies under one row of the convolution's kernel is read byte by byte, and as many bytes of what comes behind it
    as make a power of two, which count for nothing.
    """
    (images, height, width, channels), size, outputs = obs.shape, len(weight), weight.shape[-1]
    window, row = Window(images, crop, crop, channels, size, stride, 0), size * channels
    wide = max(pl.next_power_of_2(row), LEAST)
    rows = jnp.pad(weight.reshape(size, row, outputs), ((0, 0), (0, wide - row), (0, 0)))

    def kernel(
        obs_ref: Any,
        weight_ref: Any,
        bias_ref: Any,
        top_ref: Any,
        left_ref: Any,
        light_ref: Any,
        out_ref: Any,
    ) -> None:
        place = pl.program_id(0) * tiles.places + jnp.arange(tiles.places)
        image, y, x = window.corner(jnp.minimum(place, window.count - 1))
        y, x = y + triton.load(top_ref.at[image]), x + triton.load(left_ref.at[image])
        start = ((image * height + y) * width + x) * channels
        mine, total = pl.ds(0, outputs), jnp.zeros((tiles.places, outputs), jnp.float32)
        for i in range(size):
            at = (start + i * width * channels)[:, None] + jnp.arange(wide)[None]
            byte = _as_halves(triton.load(obs_ref.at[jnp.minimum(at, obs.size - 1)]))
            total += triton.dot(byte, triton.load(weight_ref.at[pl.ds(i * wide, wide), mine]))
        light = triton.load(light_ref.at[image])[:, None]
        store(out_ref, place, mine, relu(total * light + triton.load(bias_ref.at[mine])[None]))

    out = jax.ShapeDtypeStruct((window.count, outputs), jnp.float16)
    factors = (obs.reshape(-1), half(rows).reshape(-1, outputs), bias, top, left, brightness)
    found = run(kernel, out, (pl.cdiv(window.count, tiles.places),), tiles, *factors)
    return found.reshape(images, *window.places, outputs)


def fit_shifted(weight: Float[Array, "k k I O"]) -> bool:
    """Whether `convolve_shifted` can be asked: four channels, whole pieces of taps, few outputs."""
    size, _, inputs, outputs = weight.shape
    return inputs == 4 and size * size % LEAST == 0 and outputs in (16, 32, 64)


def fit_cropped(weight: Float[Array, "k k I O"]) -> bool:
    """Whether `convolve_cropped` can be asked: outputs that are a power of two."""
    outputs = weight.shape[-1]
    return LEAST <= outputs == power(outputs, MOST)


def _as_halves(byte: Array) -> Array:
    """Exactly: a byte is a half's last bits at 1,024."""
    bits = byte.astype(jnp.uint16) | jnp.uint16(0x6400)
    return lax.bitcast_convert_type(bits, jnp.float16) - jnp.float16(1024)
