"""Convolutions as kernels of their own, for a GPU and many seeds: no patches in memory.

Factors are halves, with the ten bits that a TF32 product would read of a float32; sums are float32. What kernels share
is in `tiles.py`, first layers that read bytes are in `first_layers.py`.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from vcrl.nets.products import half
from vcrl.nets.tiles import LEAST, MOST, Tiles, Window, piece, power, relu, run, store, triton, where

FEW = 4_000  # places, below which smaller tiles keep more processors busy
MANY, SUMMING, OPEN = Tiles(128), Tiles(32), Tiles(128)
LITTLE = 1e-30  # what is smaller counts as so large
FAR = 2.0**12  # where the largest gradient of an image lies among halves; sums are float32


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def convolution(
    stride: int, weight: Float[Array, "k k I O"], x: Float[Array, "B H W I"]
) -> Float[Array, "B h w O"]:
    """Without padding and bias, with a gradient for both. Channels are multiples of LEAST on both sides."""
    return _forward(stride, weight, x)[0]


def _forward(stride: int, weight: Array, x: Array) -> tuple[Array, tuple[Array, Array]]:
    weight, x = half(weight), half(x)
    return convolve(stride, weight, x), (weight, x)


def _backward(stride: int, kept: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    weight, x = kept
    size, none = len(weight), (0, 0, 0)
    largest = jnp.max(jnp.abs(gradient), (1, 2, 3))
    # The way back is a convolution, too: between strides, and where windows never began, the gradient is zero.
    sides = zip(x.shape[1:3], gradient.shape[1:3], strict=True)
    left = [(0, n - (m - 1) * stride - size, stride - 1) for n, m in sides]
    spread = lax.pad(gradient, jnp.zeros((), gradient.dtype), [none, *left, none])
    turned = weight[::-1, ::-1].transpose(0, 1, 3, 2)
    by_x = convolve(1, turned, spread, border=size - 1, largest=largest)
    return by_weight(stride, size, x, gradient, largest), by_x


convolution.defvjp(_forward, _backward)


def convolve(
    stride: int,
    weight: Float[Array, "k k I O"],
    x: Float[Array, "B H W I"],
    *,
    bias: Float[Array, " O"] | None = None,
    border: int = 0,
    largest: Float[Array, " B"] | None = None,
    tiles: Tiles | None = None,
) -> Float[Array, "B h w O"]:
    """The sums, of halves, as float32. With a bias: their ReLU, as halves.

    With the largest size of a number in each image x is float32, of which each image is divided by a scale to become
    halves, and its sums are multiplied by it.
    """
    window, outputs = Window.over(x, len(weight), stride, border), weight.shape[-1]
    tiles = tiles or (Tiles() if window.count < FEW else MANY)
    wide, (length, pieces) = power(outputs, MOST), window.pieces

    def kernel(x_ref: Any, weight_ref: Any, *refs: Any) -> None:
        place = pl.program_id(0) * tiles.places + jnp.arange(tiles.places)
        mine = pl.ds(pl.program_id(1) * wide, wide)
        image, row, column = window.corner(jnp.minimum(place, window.count - 1))
        start = ((image * window.height + row) * window.width + column) * window.channels
        size = None if largest is None else _scale(triton.load(refs[0].at[image]))[:, None]

        def add(i: Array, total: Array) -> Array:
            at, inside = piece(window, row, column, i)
            part = triton.load(x_ref.at[start[:, None] + at[None]], **where(inside, length, x.dtype))
            part = part if size is None else (part / size).astype(jnp.float16)
            return total + triton.dot(part, triton.load(weight_ref.at[pl.ds(i * length, length), mine]))

        total = lax.fori_loop(0, pieces, add, jnp.zeros((tiles.places, wide), jnp.float32))
        total = total if size is None else total * size
        if bias is not None:
            total = relu(total + triton.load(refs[-2].at[mine])[None])
        store(refs[-1], place, mine, total)

    out = jax.ShapeDtypeStruct((window.count, outputs), jnp.float32 if bias is None else jnp.float16)
    grid = (pl.cdiv(window.count, tiles.places), outputs // wide)
    more = (array for array in (largest, bias) if array is not None)
    factors = (x.reshape(-1), half(weight).reshape(-1, outputs), *more)
    return run(kernel, out, grid, tiles, *factors).reshape(window.batch, *window.places, outputs)


def by_weight(
    stride: int,
    size: int,
    x: Float[Array, "B H W I"],
    gradient: Float[Array, "B h w O"],
    largest: Float[Array, " B"],
    tiles: Tiles = SUMMING,
    steps: int = 8,
) -> Float[Array, "k k I O"]:
    """The gradient of a convolution's weight. Each program sums over some of the places, and all are added up."""
    window, outputs = Window.over(x, size, stride), gradient.shape[-1]
    wide, (length, pieces) = power(outputs, MOST), window.pieces
    parts = pl.cdiv(window.count, steps * tiles.places)

    def kernel(x_ref: Any, gradient_ref: Any, largest_ref: Any, out_ref: Any) -> None:
        i, part = pl.program_id(0), pl.program_id(2)
        columns = pl.program_id(1) * wide + jnp.arange(wide)

        def add(step: Array, total: Array) -> Array:
            place = (part * steps + step) * tiles.places + jnp.arange(tiles.places)
            image, row, column = window.corner(jnp.minimum(place, window.count - 1))
            start = ((image * window.height + row) * window.width + column) * window.channels
            at, _ = piece(window, row, column, i)
            seen = triton.load(x_ref.at[start[:, None] + at[None]])
            inside = where(place < window.count, wide, gradient.dtype)
            pull = triton.load(gradient_ref.at[place[:, None] * outputs + columns[None]], **inside)
            # Of the few images these places are of. One that is no number may get lost, its gradient does not.
            most = _scale(jnp.max(triton.load(largest_ref.at[image])))
            return total + triton.dot(seen, (pull / most).astype(jnp.float16), trans_a=True) * most

        total = lax.fori_loop(0, steps, add, jnp.zeros((length, wide), jnp.float32))
        triton.store(out_ref.at[part, pl.ds(i * length, length), pl.ds(pl.program_id(1) * wide, wide)], total)

    out = jax.ShapeDtypeStruct((parts, size * size * window.channels, outputs), jnp.float32)
    grid = (pieces, outputs // wide, parts)
    found = run(kernel, out, grid, tiles, x.reshape(-1), gradient.reshape(-1), largest)
    return jnp.sum(found, axis=0).reshape(size, size, window.channels, outputs)


def open_only(
    out: Float[Array, "*n O"], gradient: Float[Array, "*n O"], tiles: Tiles = OPEN, steps: int = 8
) -> tuple[Float[Array, "*n O"], Float[Array, " O"]]:
    """A gradient on its way back through a ReLU whose results are known, and its sum over all places as float32.

    Both by reading it once. Each program sums over some of the places, and all are added up.
    """
    outputs, count = out.shape[-1], out.size // out.shape[-1]
    parts = pl.cdiv(count, steps * tiles.places)

    def kernel(out_ref: Any, gradient_ref: Any, open_ref: Any, sum_ref: Any) -> None:
        part = pl.program_id(0)

        def add(step: Array, total: Array) -> Array:
            place = (part * steps + step) * tiles.places + jnp.arange(tiles.places)
            inside = where(place < count, outputs, gradient.dtype)
            at = place[:, None] * outputs + jnp.arange(outputs)[None]
            pull = triton.load(gradient_ref.at[at], **inside)
            pull = jnp.where(triton.load(out_ref.at[at], **inside) > 0, pull, jnp.zeros_like(pull))
            triton.store(open_ref.at[at], pull, mask=inside["mask"])
            return total + jnp.sum(pull.astype(jnp.float32), axis=0)

        total = lax.fori_loop(0, steps, add, jnp.zeros(outputs, jnp.float32))
        triton.store(sum_ref.at[part, pl.ds(0, outputs)], total)

    through = jax.ShapeDtypeStruct((out.size,), gradient.dtype)
    sums = jax.ShapeDtypeStruct((parts, outputs), jnp.float32)
    through, sums = run(kernel, (through, sums), (parts,), tiles, out.reshape(-1), gradient.reshape(-1))
    return through.reshape(out.shape), jnp.sum(sums, axis=0)


def fit(weight: Float[Array, "k k I O"]) -> bool:
    """Whether rows under the kernel, and outputs, come in pieces that tensor cores take."""
    size, _, inputs, outputs = weight.shape
    return size * inputs % LEAST == outputs % LEAST == 0


def fit_open(outputs: int) -> bool:
    """Whether `open_only` can be asked."""
    return LEAST <= outputs == power(outputs, MOST)


def _scale(largest: Array) -> Array:
    """The power of two by which an image is divided for its largest number to lie between FAR / 2 and FAR.

    By bits: all but a sign and an exponent are carried into the exponent or cut off. Beyond 2^127 it is infinite; where
    the largest is no number any scale will do, for what is none stays so.
    """
    bits = lax.bitcast_convert_type(jnp.where(largest < LITTLE, LITTLE, largest), jnp.int32)
    above = lax.bitcast_convert_type((bits + 0x7FFFFF) & 0x7F800000, jnp.float32)
    return jnp.where(largest > 0, above, 1.0) / FAR
