"""A product whose sums are long and whose results are few, as a kernel: what a trunk makes of what convolutions saw.

A library gives one program all of a sum, and has few programs then. Here each adds up a part of it.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jaxtyping import Array, Float

from vcrl.nets import products, tiles
from vcrl.nets.tiles import LEAST, MOST, Tiles, run, triton

LONG = 10_000  # inputs, from which on a sum is long
ROWS, PARTS = Tiles(64, 4, 4), 35  # by trial, as in tiles.py; parts of a sum


def product(weight: Float[Array, "I O"], x: Float[Array, "B I"]) -> Float[Array, "B O"]:
    """`products.by_halves`, by a kernel where there is one and it fits."""
    inputs, outputs = weight.shape
    halved = weight.dtype == jnp.float32 and x.dtype in products.HALVED
    fits = halved and inputs >= LONG and inputs % MOST == 0 and outputs <= MOST
    return by_kernel(weight, x) if tiles.available() and fits else products.linear(weight, x)


def summed(x: Float[Array, "B I"], weight: Float[Array, "I O"]) -> Float[Array, "B O"]:
    """x @ weight of halves, as float32."""
    (batch, inputs), outputs = x.shape, weight.shape[-1]
    wide, pieces = max(LEAST, pl.next_power_of_2(outputs)), inputs // MOST
    steps = pl.cdiv(pieces, PARTS)
    parts = pl.cdiv(pieces, steps)

    def kernel(x_ref: Any, weight_ref: Any, out_ref: Any) -> None:
        row, first = pl.program_id(0) * ROWS.places + jnp.arange(ROWS.places), pl.program_id(1) * steps
        start = jnp.minimum(row, batch - 1) * inputs

        def add(i: Array, total: Array) -> Array:
            at = (first + i) * MOST
            part = triton.load(x_ref.at[start[:, None] + (at + jnp.arange(MOST))[None]])
            return total + triton.dot(part, triton.load(weight_ref.at[pl.ds(at, MOST), pl.ds(0, wide)]))

        last = jnp.minimum(steps, pieces - first)
        total = lax.fori_loop(0, last, add, jnp.zeros((ROWS.places, wide), jnp.float32))
        there = jnp.broadcast_to((row < batch)[:, None], total.shape)
        triton.store(out_ref.at[pl.program_id(1), row[:, None], jnp.arange(wide)[None]], total, mask=there)

    weight = jnp.pad(weight, ((0, 0), (0, wide - outputs)))
    out = jax.ShapeDtypeStruct((parts, batch, wide), jnp.float32)
    found = run(kernel, out, (pl.cdiv(batch, ROWS.places), parts), ROWS, x.reshape(-1), weight)
    return jnp.sum(found, axis=0)[:, :outputs]


by_kernel = products.of_halves(summed)
