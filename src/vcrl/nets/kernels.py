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
from vcrl.nets.tiles import LEAST, MOST, Tiles, Window, piece, power, relu, run, shut, store, triton, where

FEW = 4_000  # places, below which smaller tiles keep more processors busy
MANY, SUMMING, WEIGHING = Tiles(128), Tiles(32), Tiles(32, 4, 4)
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
    largest = jnp.max(jnp.abs(gradient), (1, 2, 3))
    turned, spread = way_back(stride, weight, x.shape, gradient)
    by_x = convolve(1, turned, spread, border=len(weight) - 1, largest=largest)
    return by_weight(stride, len(weight), x, gradient, largest), by_x


convolution.defvjp(_forward, _backward)


def way_back(
    stride: int, weight: Float[Array, "k k I O"], images: tuple[int, ...], gradient: Float[Array, "B h w O"]
) -> tuple[Float[Array, "k k O I"], Float[Array, "B H W O"]]:
    """The way back to the images is a convolution, too, with a border: its weight, and what it looks at.

    Between strides, and where windows never began, the gradient is zero.
    """
    size, none = len(weight), (0, 0, 0)
    sides = zip(images[1:3], gradient.shape[1:3], strict=True)
    left = [(0, n - (m - 1) * stride - size, stride - 1) for n, m in sides]
    spread = lax.pad(gradient, jnp.zeros((), gradient.dtype), [none, *left, none])
    return weight[::-1, ::-1].transpose(0, 1, 3, 2), spread


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

    def kernel(x_ref: Any, weight_ref: Any, *refs: Any) -> None:
        place, mine, total = _sums(window, tiles, x_ref, weight_ref, None if largest is None else refs[0])
        if bias is not None:
            total = relu(total + triton.load(refs[-2].at[mine])[None])
        store(refs[-1], place, mine, total)

    out = jax.ShapeDtypeStruct((window.count, outputs), jnp.float32 if bias is None else jnp.float16)
    more = (array for array in (largest, bias) if array is not None)
    found = run(kernel, out, _grid(window, outputs, tiles), tiles, *_factors(weight, x), *more)
    return found.reshape(window.batch, *window.places, outputs)


def convolve_back(
    weight: Float[Array, "k k O I"],
    gradient: Float[Array, "B h w O"],
    seen: Float[Array, "B H W I"],
    tiles: Tiles = MANY,
) -> tuple[Float[Array, "B H W I"], Float[Array, " I"]]:
    """What `way_back` asks for, of a gradient in halves, and on through the ReLU that made what was `seen`, as halves.

    With what that adds up to over all places, as float32: the gradient of the bias before the ReLU.
    """
    window, outputs = Window.over(gradient, len(weight), 1, len(weight) - 1), weight.shape[-1]
    grid = _grid(window, outputs, tiles)

    def kernel(x_ref: Any, weight_ref: Any, seen_ref: Any, out_ref: Any, sum_ref: Any) -> None:
        place, mine, total = _sums(window, tiles, x_ref, weight_ref)
        at = place[:, None] * outputs + (mine.start + jnp.arange(mine.size))[None]
        inside = where(place < window.count, mine.size, seen.dtype)  # beyond the last place nothing was seen
        total = shut(total, triton.load(seen_ref.at[at], **inside))
        store(out_ref, place, mine, total)
        triton.store(sum_ref.at[pl.program_id(0), mine], jnp.sum(total, axis=0))

    through = jax.ShapeDtypeStruct((window.count, outputs), jnp.float16)
    sums = jax.ShapeDtypeStruct((grid[0], outputs), jnp.float32)
    factors = (*_factors(weight, gradient), seen.reshape(-1))
    through, sums = run(kernel, (through, sums), grid, tiles, *factors)
    return through.reshape(seen.shape), jnp.sum(sums, axis=0)


def _grid(window: Window, outputs: int, tiles: Tiles) -> tuple[int, int]:
    return pl.cdiv(window.count, tiles.places), outputs // power(outputs, MOST)


def _factors(weight: Array, x: Array) -> tuple[Array, Array]:
    return x.reshape(-1), half(weight).reshape(-1, weight.shape[-1])


def _sums(
    window: Window, tiles: Tiles, x_ref: Any, weight_ref: Any, largest_ref: Any = None
) -> tuple[Array, Any, Array]:
    """The places and outputs that a program of a convolution is about, and its sums for them."""
    wide, (length, pieces) = power(weight_ref.shape[-1], MOST), window.pieces
    place = pl.program_id(0) * tiles.places + jnp.arange(tiles.places)
    mine = pl.ds(pl.program_id(1) * wide, wide)
    image, row, column = window.corner(jnp.minimum(place, window.count - 1))
    start = ((image * window.height + row) * window.width + column) * window.channels
    size = None if largest_ref is None else _scale(triton.load(largest_ref.at[image]))[:, None]

    def add(i: Array, total: Array) -> Array:
        at, inside = piece(window, row, column, i)
        part = triton.load(x_ref.at[start[:, None] + at[None]], **where(inside, length, x_ref.dtype))
        part = part if size is None else (part / size).astype(jnp.float16)
        return total + triton.dot(part, triton.load(weight_ref.at[pl.ds(i * length, length), mine]))

    total = lax.fori_loop(0, pieces, add, jnp.zeros((tiles.places, wide), jnp.float32))
    return place, mine, total if size is None else total * size


def by_weight(
    stride: int,
    size: int,
    x: Float[Array, "B H W I"],
    gradient: Float[Array, "B h w O"],
    largest: Float[Array, " B"] | None = None,
    tiles: Tiles | None = None,
    steps: int | None = None,
) -> Float[Array, "k k I O"]:
    """The gradient of a convolution's weight. Each program sums over some of the places, and all are added up.

    Without the largest size of a number in each image the gradient comes as halves, of many images: a program then
    makes all pieces of a row of the weight together, for which it reads the gradient once.
    """
    window, outputs = Window.over(x, size, stride), gradient.shape[-1]
    wide, (length, pieces) = power(outputs, MOST), window.pieces
    together = pieces // size if largest is None else 1
    tiles = tiles or (WEIGHING if largest is None else SUMMING)
    steps = steps or (128 if largest is None else 8)
    parts = pl.cdiv(window.count, steps * tiles.places)
    turned = length < wide  # tensor cores want the longer side first

    def kernel(x_ref: Any, gradient_ref: Any, *refs: Any) -> None:
        first, part = pl.program_id(0) * together, pl.program_id(2)
        columns = pl.program_id(1) * wide + jnp.arange(wide)

        def add(step: Array, totals: tuple[Array, ...]) -> tuple[Array, ...]:
            place = (part * steps + step) * tiles.places + jnp.arange(tiles.places)
            image, row, column = window.corner(jnp.minimum(place, window.count - 1))
            start = ((image * window.height + row) * window.width + column) * window.channels
            inside = where(place < window.count, wide, gradient.dtype)
            pull = triton.load(gradient_ref.at[place[:, None] * outputs + columns[None]], **inside)
            # Of the few images these places are of. One that is no number may get lost, its gradient does not.
            most = 1.0 if largest is None else _scale(jnp.max(triton.load(refs[0].at[image])))
            pull = pull if largest is None else (pull / most).astype(jnp.float16)
            found = list[Array]()
            for i, total in enumerate(totals):
                at, _ = piece(window, row, column, first + i)
                seen = triton.load(x_ref.at[start[:, None] + at[None]])
                product = triton.dot(*((pull, seen) if turned else (seen, pull)), trans_a=True)
                found.append(total + (product if largest is None else product * most))
            return tuple(found)

        nothing = jnp.zeros((wide, length) if turned else (length, wide), jnp.float32)
        for i, total in enumerate(lax.fori_loop(0, steps, add, (nothing,) * together)):
            rows = (first + i) * length + jnp.arange(length)
            at = (rows[None], columns[:, None]) if turned else (rows[:, None], columns[None])
            triton.store(refs[-1].at[part, *at], total)

    out = jax.ShapeDtypeStruct((parts, size * size * window.channels, outputs), jnp.float32)
    grid = (pieces // together, outputs // wide, parts)
    more = () if largest is None else (largest,)
    found = run(kernel, out, grid, tiles, x.reshape(-1), gradient.reshape(-1), *more)
    return jnp.sum(found, axis=0).reshape(size, size, window.channels, outputs)


def fit(weight: Float[Array, "k k I O"]) -> bool:
    """Whether rows under the kernel, and outputs, come in pieces that tensor cores take."""
    size, _, inputs, outputs = weight.shape
    return size * inputs % LEAST == outputs % LEAST == 0


def _scale(largest: Array) -> Array:
    """The power of two by which an image is divided for its largest number to lie between FAR / 2 and FAR.

    By bits: all but a sign and an exponent are carried into the exponent or cut off. Beyond 2^127 it is infinite; where
    the largest is no number any scale will do, for what is none stays so.
    """
    bits = lax.bitcast_convert_type(jnp.where(largest < LITTLE, LITTLE, largest), jnp.int32)
    above = lax.bitcast_convert_type((bits + 0x7FFFFF) & 0x7F800000, jnp.float32)
    return jnp.where(largest > 0, above, 1.0) / FAR
