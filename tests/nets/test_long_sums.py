"""A product with long sums as a kernel, against the plain product; here both run on the CPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from vcrl.nets import long_sums, tiles
from vcrl.nets.long_sums import PARTS, ROWS, product, summed
from vcrl.nets.products import by_halves
from vcrl.nets.tiles import MOST

LENGTH = 71 * MOST  # pieces that are shared out unevenly: three to a part, and two to the last


def some(batch: int, inputs: int, outputs: int):
    weight, x, pull = jax.random.split(jax.random.key(0), 3)
    return (
        jax.random.normal(weight, (inputs, outputs)) / inputs**0.5,
        jax.random.normal(x, (batch, inputs)),
        jax.random.normal(pull, (batch, outputs)),
    )


def whole(batch: int, inputs: int, outputs: int, seed: int = 0):
    """Halves from -3 to 3: their sums are exact, in whichever order they are made."""
    one, two = jax.random.split(jax.random.key(seed))
    x, weight = (
        jax.random.randint(k, shape, -3, 4).astype(jnp.float16)
        for k, shape in ((one, (batch, inputs)), (two, (inputs, outputs)))
    )
    return x, weight


def both_ways(function, weight, x, pull):
    def run(weight, x, pull):
        out, back = jax.vjp(function, weight, x)
        return out, *back(pull)

    return jax.jit(run)(weight, x, pull)


# Rows that are no multiple of a program's, fewer and more; outputs that are no power of two, one and as many as fit.
@pytest.mark.parametrize(
    ("batch", "inputs", "outputs"),
    [(1, MOST, 16), (ROWS.places, PARTS * MOST, 50), (70, LENGTH, 50), (3, LENGTH, 1), (130, LENGTH, MOST)],
)
def test_whole_numbers_add_up_exactly(batch, inputs, outputs):
    x, weight = whole(batch, inputs, outputs)
    found = jax.jit(summed)(x, weight)
    assert found.dtype == jnp.float32 and found.shape == (batch, outputs)
    assert_array_equal(found, np.asarray(x, np.float32) @ np.asarray(weight, np.float32))


def test_pieces_are_shared_out_unevenly():
    """Or the test above would not try a last part that is shorter."""
    pieces = LENGTH // MOST
    each = -(-pieces // PARTS)
    assert each > 1 and pieces % each


@pytest.mark.parametrize("axes", [(0, 0), pytest.param((None, 0), marks=pytest.mark.slow), (0, None)])
def test_all_seeds_at_once(axes):
    """Each as it is alone, with rows or weights of its own and shared ones."""
    seeds = [whole(70, LENGTH, 5, seed) for seed in range(3)]
    stacked = [jnp.stack(part) for part in zip(*seeds, strict=True)]
    given = [a if axis == 0 else a[0] for a, axis in zip(stacked, axes, strict=True)]
    found = jax.jit(jax.vmap(summed, in_axes=axes))(*given)
    for i in range(3):
        assert_array_equal(
            found[i], summed(*(a[i] if axis == 0 else a[0] for a, axis in zip(stacked, axes, strict=True)))
        )


def test_what_is_no_number_is_none_in_its_row_alone():
    x, weight = whole(70, LENGTH, 5)
    found = summed(x.at[68, LENGTH - 1].set(jnp.nan), weight)
    assert_array_equal(np.isnan(found), np.broadcast_to(np.arange(70)[:, None] == 68, found.shape))


def test_no_rows_at_all():
    assert summed(jnp.zeros((0, LENGTH), jnp.float16), jnp.ones((LENGTH, 5), jnp.float16)).shape == (0, 5)


@pytest.mark.parametrize(
    ("inputs", "outputs", "there", "expected"),
    [
        (157 * MOST, 50, True, True),
        (157 * MOST, 50, False, False),
        (156 * MOST, 50, True, False),  # too short
        (157 * MOST + 16, 50, True, False),  # a piece is left over
        (157 * MOST, MOST + 1, True, False),  # more outputs than one program takes
    ],
)
def test_only_long_sums_are_a_kernel_and_only_where_there_are_kernels(
    monkeypatch, inputs, outputs, there, expected
):
    assert 156 * MOST < long_sums.LONG <= 157 * MOST
    monkeypatch.setattr(tiles, "available", lambda: there)
    shapes = (
        jax.ShapeDtypeStruct((inputs, outputs), jnp.float32),
        jax.ShapeDtypeStruct((3, inputs), "float16"),
    )
    program = jax.make_jaxpr(lambda *x: product(*x))(*shapes)  # by another name each time: it would be kept
    assert ("pallas_call" in str(program)) is expected
    (out,) = program.out_avals
    assert out.shape == (3, outputs) and out.dtype == jnp.float32


@pytest.mark.parametrize("slope", [1e-9, 1e6])
@pytest.mark.parametrize("kind", [jnp.float16, pytest.param(jnp.float32, marks=pytest.mark.slow)])
def test_value_and_gradients_are_those_of_the_product_of_halves(monkeypatch, kind, slope):
    """The value but for the order of a sum, of float32; the way back is the same."""
    monkeypatch.setattr(tiles, "available", lambda: True)
    monkeypatch.setattr(long_sums, "LONG", LENGTH)
    weight, x, pull = some(70, LENGTH, 50)
    x, pull = x.astype(kind), slope * pull
    assert "pallas_call" in str(jax.make_jaxpr(lambda *x: product(*x))(weight, x))
    found, wanted = (both_ways(f, weight, x, pull) for f in (product, by_halves))
    assert [a.dtype for a in found] == [b.dtype for b in wanted] == [jnp.float32, jnp.float32, kind]
    assert_allclose(found[0], wanted[0], atol=1e-6 * float(jnp.abs(wanted[0]).max()))
    for a, b in zip(found[1:], wanted[1:], strict=True):
        assert_array_equal(a, b)
