"""What the kernels share (Pallas, by way of Triton): how one divides its work, what it reads and writes, how it is run.

Each program of a kernel makes the results of a few places of the images. What lies under one row of the convolution's
kernel is contiguous in memory, whatever the stride, and is read in pieces whose length is a power of two. On a CPU the
same programs run one after the other, slowly, for tests.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array

from vcrl.nets.products import END

try:
    from jax.experimental.pallas import triton
except ImportError:  # JAX 0.11 says that a later one will do without
    triton: Any = None

LEAST = 16  # numbers in a row that tensor cores take
MOST = 64  # numbers in a row, and outputs, of one tile


class Tiles(NamedTuple):
    """How a kernel divides its work; found by trial on an H200, see docs/performance-log.md."""

    places: int = 64  # of a program
    warps: int = 4
    stages: int = 3  # of loads that are under way


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
        length = power(row, MOST)
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


def piece(window: Window, row: Array, column: Array, i: Array) -> tuple[Array, Array | None]:
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


def where(inside: Array | None, width: int, kind: Any) -> dict[str, Any]:
    """What a load of so many rows is told, some of which count as zero."""
    if inside is None:
        return {}
    return {"mask": jnp.broadcast_to(inside[:, None], (len(inside), width)), "other": jnp.zeros((), kind)}


def store(out_ref: Any, place: Array, mine: Any, total: Array) -> None:
    mask = jnp.broadcast_to((place < out_ref.shape[0])[:, None], total.shape)
    columns = mine.start + jnp.arange(mine.size)
    triton.store(out_ref.at[place[:, None], columns[None]], total.astype(out_ref.dtype), mask=mask)


def relu(x: Array) -> Array:
    """Up to what a half can hold. By comparisons: Triton's minimum and maximum would make a number of what is none."""
    return jnp.where(x < 0, 0.0, jnp.where(x > END, END, x))


def shut(gradient: Array, seen: Array) -> Array:
    """A gradient where a ReLU let something through, of a size that a half can hold."""
    gradient = jnp.where(seen > 0, gradient, 0.0)
    return jnp.where(gradient < -END, -END, jnp.where(gradient > END, END, gradient))


def power(n: int, most: int) -> int:
    """The largest power of two that divides n, up to `most`."""
    return min(n & -n, most)


def interpreted() -> bool:
    """Whether a kernel's programs run one after the other, as any function does."""
    return jax.devices()[0].platform != "gpu"


def run(kernel: Callable[..., None], out: Any, grid: tuple[int, ...], tiles: Tiles, *arrays: Array) -> Any:
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
