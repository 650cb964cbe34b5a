"""Convolutions as kernels of their own (Pallas, by way of Triton), for a GPU and many seeds: no patches in memory.

Each program of a kernel makes the results of a few places of the images. What lies under one row of the convolution's
kernel is contiguous in memory, whatever the stride, and is read in pieces whose length is a power of two. Factors are
halves, with the ten bits that a TF32 product would read of a float32; sums are float32. On a CPU the same programs run
one after the other, slowly, for tests.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Float, Int, UInt8

from vcrl.nets.products import END, half

try:
    from jax.experimental.pallas import triton
except ImportError:  # JAX 0.11 says that a later one will do without
    triton: Any = None

LEAST = 16  # numbers in a row that tensor cores take
FEW = 4_000  # places, below which smaller tiles keep more processors busy
MOST = 64  # numbers in a row, and outputs, of one tile
LITTLE = 1e-30  # what is smaller counts as so large
FAR = 2.0**12  # where the largest gradient of an image lies among halves; sums are float32


class Tiles(NamedTuple):
    """How a kernel divides its work; found by trial on an H200, see docs/performance-log.md."""

    places: int = 64  # of a program
    warps: int = 4
    stages: int = 3  # of loads that are under way


MANY, SUMMING, SHIFTED, CROPPED = Tiles(128), Tiles(32), Tiles(64, 2), Tiles(128, 4, 2)


class Window(NamedTuple):
    """Where a convolution without padding looks. With a border, as if so many zeros were around the images."""

    batch: int
    height: int
    width: int
    channels: int
    size: int
    stride: int
    border: int

    @staticmethod
    def over(images: Array, size: int, stride: int, border: int = 0) -> "Window":
        batch, height, width, channels = images.shape
        return Window(batch, height, width, channels, size, stride, border)

    @property
    def places(self) -> tuple[int, int]:
        def along(length: int) -> int:
            return (length + 2 * self.border - self.size) // self.stride + 1

        return along(self.height), along(self.width)

    @property
    def count(self) -> int:
        return self.batch * math.prod(self.places)

    @property
    def pieces(self) -> tuple[int, int]:
        """Length and number of those that one row under the kernel, or with a border one pixel of it, is read in."""
        row = self.channels * (1 if self.border else self.size)
        length = _power(row, MOST)
        return length, self.size * self.size * self.channels // length

    def corner(self, place: Array) -> tuple[Array, Array, Array]:
        """Image, row and column at which the window of each place begins."""
        rows, columns = self.places
        image, rest = lax.div(place, rows * columns), lax.rem(place, rows * columns)
        row, column = lax.div(rest, columns), lax.rem(rest, columns)
        return image, row * self.stride - self.border, column * self.stride - self.border


def available() -> bool:
    return jax.default_backend() == "gpu" and obstacle() is None


def obstacle() -> str | None:
    """Why a GPU has to do without kernels, where it has to.

    Triton, where JAX has it, makes them for NVIDIA's GPUs from Ampere on (capability 8.0), and for AMD's.
    """
    if jax.default_backend() != "gpu":
        return None
    if triton is None:
        return f"JAX {jax.__version__} has no Triton, which JAX 0.11 has"
    major = str(getattr(jax.devices()[0], "compute_capability", "")).partition(".")[0]
    if major.isdigit() and int(major) < 8:
        return f"they need a GPU of Ampere or later, and this is {jax.devices()[0].device_kind}"
    return None


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
    wide, (length, pieces) = _power(outputs, MOST), window.pieces

    def kernel(x_ref: Any, weight_ref: Any, *refs: Any) -> None:
        place = pl.program_id(0) * tiles.places + jnp.arange(tiles.places)
        mine = pl.ds(pl.program_id(1) * wide, wide)
        image, row, column = window.corner(jnp.minimum(place, window.count - 1))
        start = ((image * window.height + row) * window.width + column) * window.channels
        size = None if largest is None else _scale(triton.load(refs[0].at[image]))[:, None]

        def add(i: Array, total: Array) -> Array:
            at, inside = _piece(window, row, column, i)
            part = triton.load(x_ref.at[start[:, None] + at[None]], **_where(inside, length, x.dtype))
            part = part if size is None else (part / size).astype(jnp.float16)
            return total + triton.dot(part, triton.load(weight_ref.at[pl.ds(i * length, length), mine]))

        total = lax.fori_loop(0, pieces, add, jnp.zeros((tiles.places, wide), jnp.float32))
        total = total if size is None else total * size
        if bias is not None:
            total = _relu(total + triton.load(refs[-2].at[mine])[None])
        _store(refs[-1], place, mine, total)

    out = jax.ShapeDtypeStruct((window.count, outputs), jnp.float32 if bias is None else jnp.float16)
    grid = (pl.cdiv(window.count, tiles.places), outputs // wide)
    more = (array for array in (largest, bias) if array is not None)
    factors = (x.reshape(-1), half(weight).reshape(-1, outputs), *more)
    return _run(kernel, out, grid, tiles, *factors).reshape(window.batch, *window.places, outputs)


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
    wide, (length, pieces) = _power(outputs, MOST), window.pieces
    parts = pl.cdiv(window.count, steps * tiles.places)

    def kernel(x_ref: Any, gradient_ref: Any, largest_ref: Any, out_ref: Any) -> None:
        i, part = pl.program_id(0), pl.program_id(2)
        columns = pl.program_id(1) * wide + jnp.arange(wide)

        def add(step: Array, total: Array) -> Array:
            place = (part * steps + step) * tiles.places + jnp.arange(tiles.places)
            image, row, column = window.corner(jnp.minimum(place, window.count - 1))
            start = ((image * window.height + row) * window.width + column) * window.channels
            at, _ = _piece(window, row, column, i)
            seen = triton.load(x_ref.at[start[:, None] + at[None]])
            inside = _where(place < window.count, wide, gradient.dtype)
            pull = triton.load(gradient_ref.at[place[:, None] * outputs + columns[None]], **inside)
            # Of the few images these places are of. One that is no number may get lost, its gradient does not.
            most = _scale(jnp.max(triton.load(largest_ref.at[image])))
            return total + triton.dot(seen, (pull / most).astype(jnp.float16), trans_a=True) * most

        total = lax.fori_loop(0, steps, add, jnp.zeros((length, wide), jnp.float32))
        triton.store(out_ref.at[part, pl.ds(i * length, length), pl.ds(pl.program_id(1) * wide, wide)], total)

    out = jax.ShapeDtypeStruct((parts, size * size * window.channels, outputs), jnp.float32)
    grid = (pieces, outputs // wide, parts)
    found = _run(kernel, out, grid, tiles, x.reshape(-1), gradient.reshape(-1), largest)
    return jnp.sum(found, axis=0).reshape(size, size, window.channels, outputs)


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
        _store(out_ref, place, mine, _relu(total * light + triton.load(bias_ref.at[mine])[None]))

    out = jax.ShapeDtypeStruct((window.count, outputs), jnp.float16)
    factors = (words, half(ordered), bias, top, left, brightness)
    found = _run(kernel, out, (pl.cdiv(window.count, tiles.places),), tiles, *factors)
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
        _store(out_ref, place, mine, _relu(total * light + triton.load(bias_ref.at[mine])[None]))

    out = jax.ShapeDtypeStruct((window.count, outputs), jnp.float16)
    factors = (obs.reshape(-1), half(rows).reshape(-1, outputs), bias, top, left, brightness)
    found = _run(kernel, out, (pl.cdiv(window.count, tiles.places),), tiles, *factors)
    return found.reshape(images, *window.places, outputs)


def open_only(
    out: Float[Array, "*n O"], gradient: Float[Array, "*n O"], tiles: Tiles = CROPPED, steps: int = 8
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
            inside = _where(place < count, outputs, gradient.dtype)
            at = place[:, None] * outputs + jnp.arange(outputs)[None]
            pull = triton.load(gradient_ref.at[at], **inside)
            pull = jnp.where(triton.load(out_ref.at[at], **inside) > 0, pull, jnp.zeros_like(pull))
            triton.store(open_ref.at[at], pull, mask=inside["mask"])
            return total + jnp.sum(pull.astype(jnp.float32), axis=0)

        total = lax.fori_loop(0, steps, add, jnp.zeros(outputs, jnp.float32))
        triton.store(sum_ref.at[part, pl.ds(0, outputs)], total)

    through = jax.ShapeDtypeStruct((out.size,), gradient.dtype)
    sums = jax.ShapeDtypeStruct((parts, outputs), jnp.float32)
    through, sums = _run(kernel, (through, sums), (parts,), tiles, out.reshape(-1), gradient.reshape(-1))
    return through.reshape(out.shape), jnp.sum(sums, axis=0)


def fit(weight: Float[Array, "k k I O"]) -> bool:
    """Whether rows under the kernel, and outputs, come in pieces that tensor cores take."""
    size, _, inputs, outputs = weight.shape
    return size * inputs % LEAST == outputs % LEAST == 0


def fit_shifted(weight: Float[Array, "k k I O"]) -> bool:
    """Whether `convolve_shifted` can be asked: four channels, whole pieces of taps, few outputs."""
    size, _, inputs, outputs = weight.shape
    return inputs == 4 and size * size % LEAST == 0 and outputs in (16, 32, 64)


def fit_cropped(weight: Float[Array, "k k I O"], crop: int | None) -> bool:
    """Whether `convolve_cropped` can be asked: squares, and outputs that are a power of two."""
    return crop is not None and fit_open(weight.shape[-1])


def fit_open(outputs: int) -> bool:
    """Whether `open_only` can be asked."""
    return LEAST <= outputs == _power(outputs, MOST)


def _piece(window: Window, row: Array, column: Array, i: Array) -> tuple[Array, Array | None]:
    """Where the i-th piece under the kernel lies, seen from its first pixel, and whether that is inside the image."""
    length, _ = window.pieces
    if not window.border:
        each = window.size * window.channels // length
        at = lax.div(i, each) * (window.width * window.channels) + lax.rem(i, each) * length
        return at + jnp.arange(length), None
    each = window.channels // length
    tap = lax.div(i, each)
    down, across = lax.div(tap, window.size), lax.rem(tap, window.size)
    at = (down * window.width + across) * window.channels + lax.rem(i, each) * length
    y, x = row + down, column + across
    return at + jnp.arange(length), (y >= 0) & (y < window.height) & (x >= 0) & (x < window.width)


def _where(inside: Array | None, width: int, kind: Any) -> dict[str, Any]:
    """What a load of so many rows is told, some of which count as zero."""
    if inside is None:
        return {}
    return {"mask": jnp.broadcast_to(inside[:, None], (len(inside), width)), "other": jnp.zeros((), kind)}


def _store(out_ref: Any, place: Array, mine: Any, total: Array) -> None:
    mask = jnp.broadcast_to((place < out_ref.shape[0])[:, None], total.shape)
    columns = mine.start + jnp.arange(mine.size)
    triton.store(out_ref.at[place[:, None], columns[None]], total.astype(out_ref.dtype), mask=mask)


def _as_halves(byte: Array) -> Array:
    """Exactly: a byte is a half's last bits at 1,024."""
    bits = byte.astype(jnp.uint16) | jnp.uint16(0x6400)
    return lax.bitcast_convert_type(bits, jnp.float16) - jnp.float16(1024)


def _scale(largest: Array) -> Array:
    """The power of two by which an image is divided for its largest number to lie between FAR / 2 and FAR.

    By bits: all but a sign and an exponent are carried into the exponent or cut off. What is not finite stays so.
    """
    bits = lax.bitcast_convert_type(jnp.where(largest < LITTLE, LITTLE, largest), jnp.int32)
    power = lax.bitcast_convert_type((bits + 0x7FFFFF) & 0x7F800000, jnp.float32)
    return jnp.where(largest > 0, power, 1.0) / FAR


def _relu(x: Array) -> Array:
    """Up to what a half can hold. By comparisons: Triton's minimum and maximum would make a number of what is none."""
    return jnp.where(x < 0, 0.0, jnp.where(x > END, END, x))


def _power(n: int, most: int) -> int:
    """The largest power of two that divides n, up to `most`."""
    return min(n & -n, most)


def interpreted() -> bool:
    """Whether a kernel's programs run one after the other, as any function does."""
    return jax.devices()[0].platform != "gpu"


def _run(kernel: Callable[..., None], out: Any, grid: tuple[int, ...], tiles: Tiles, *arrays: Array) -> Any:
    if 0 in grid:  # no images
        return jax.tree.map(lambda one: jnp.zeros(one.shape, one.dtype), out)
    call = pl.pallas_call(
        kernel,
        out,
        grid=grid,
        interpret=interpreted(),
        compiler_params=triton.CompilerParams(num_warps=tiles.warps, num_stages=tiles.stages),
    )
    return call(*arrays)
