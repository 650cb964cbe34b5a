"""Rows go out of a replay and into another one, wherever the ring stands."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vcrl import replay as rp
from vcrl.core.spec import Box, Discrete, EnvSpec
from vcrl.core.types import Row

CAPACITY = 13
DISCRETE, CONTINUOUS = EnvSpec((2, 3, 2), Discrete(5)), EnvSpec((2, 3, 2), Box(2))

pytestmark = pytest.mark.usefixtures("quick_compiles")

insert = jax.jit(rp.insert)
fill = jax.jit(rp.fill)
rows = jax.jit(rp.rows, static_argnums=2)


def a_row(spec, number):
    rng = np.random.default_rng(number)
    continuous = isinstance(spec.actions, Box)
    return Row(
        frame=rng.integers(1, 256, spec.frame, np.uint8),
        action=rng.normal(size=2).astype(np.float32) if continuous else np.int32(rng.integers(5)),
        reward=np.float32(rng.normal()),
        terminal=np.bool_(rng.random() < 0.5),
        first=np.bool_(rng.random() < 0.5),
        pad=np.bool_(rng.random() < 0.5),
    )


def written(spec, count, top=False):
    """A replay after so many rows, with priorities that name their slots."""
    replay = rp.init(spec, CAPACITY, top)
    for number in range(count):
        replay = insert(replay, a_row(spec, number), jnp.asarray(number))
    replay = replay._replace(priority=jnp.arange(CAPACITY) / 4 + 1)
    return replay._replace(top=jnp.asarray(7.5)) if top else replay


def assert_same(one, two):
    for name, a, b in zip(one._fields, one, two, strict=True):
        assert (a is None) == (b is None), name
        if a is not None:
            np.testing.assert_array_equal(a, b, err_msg=name)


def junk(row):
    """The same shapes, full of what must never be stored."""
    return Row(*(np.ones_like(np.asarray(x)) for x in row))


@pytest.mark.parametrize("spec", [DISCRETE, CONTINUOUS], ids=["discrete", "continuous"])
@pytest.mark.parametrize("start", [0, 5, 12, 13, 20, 26, 31])
def test_rows_are_those_that_were_inserted(spec, start):
    count = 6
    replay = written(spec, start + count)
    found = rows(replay, jnp.asarray(start), count)
    for at in range(count):
        for name, value, wanted in zip(Row._fields, found, a_row(spec, start + at), strict=True):
            np.testing.assert_array_equal(value[at], wanted, err_msg=f"{name} of row {start + at}")


@pytest.mark.parametrize("block", [1, 4, 5, CAPACITY, 40])
@pytest.mark.parametrize("count", [1, 9, 13, 14, 29, 40])
@pytest.mark.parametrize("spec", [DISCRETE, CONTINUOUS], ids=["discrete", "continuous"])
def test_a_replay_is_put_together_from_its_rows(spec, count, block):
    """In blocks of one size, the last of them partly used, from the oldest row on; also into a used replay."""
    whole = written(spec, count)
    oldest = max(0, count - CAPACITY)
    again = rp.init(spec, CAPACITY)._replace(priority=whole.priority)
    for start in range(oldest, count, block):
        part = rows(whole, jnp.asarray(start), block)
        again = fill(again, part, jnp.asarray(start), jnp.asarray(min(block, count - start)))
    assert_same(again, whole)


@pytest.mark.parametrize("used", [0, 1, 3, 4])
def test_what_lies_beyond_the_count_is_dropped(used):
    """A block that is filled up to the common size must not touch the rows that stand there."""
    whole = written(DISCRETE, 20)
    part = rows(whole, jnp.asarray(11), 4)
    mixed = Row(*(np.concatenate([a[:used], b[used:]]) for a, b in zip(part, junk(part), strict=True)))
    assert_same(fill(whole, mixed, jnp.asarray(11), jnp.asarray(used)), whole)


def test_newer_rows_take_the_place_of_older_ones():
    """Files of rows may begin with some that the ring has overwritten since: the later file wins."""
    count = 30
    # As they were when they were saved: each file holds what was new then.
    again, saves = rp.init(DISCRETE, CAPACITY), [0, 11, 19, 24, count]
    for start, stop in itertools.pairwise(saves):
        then = written(DISCRETE, stop)
        part = rows(then, jnp.asarray(start), 20)
        again = fill(again, part, jnp.asarray(start), jnp.asarray(stop - start))
    whole = written(DISCRETE, count)
    assert_same(again._replace(priority=whole.priority), whole)


def test_priorities_are_left_alone():
    whole = written(DISCRETE, 20, top=True)
    part = rows(whole, jnp.asarray(8), 5)
    after = fill(whole, junk(part), jnp.asarray(8), jnp.asarray(5))
    np.testing.assert_array_equal(after.priority, whole.priority)
    assert float(after.top) == 7.5
    changed = {int(s) for s in np.flatnonzero((np.asarray(after.frame) != whole.frame).any(axis=(1, 2, 3)))}
    assert changed == {n % CAPACITY for n in range(8, 13)}


def test_many_seeds_at_once():
    """As a training does it: one leading axis more, the same place for all."""
    one, two = written(DISCRETE, 17), written(DISCRETE, 21)
    both = jax.tree.map(lambda *x: jnp.stack(x), one, two)
    found = jax.vmap(partial(rp.rows, count=6), in_axes=(0, None))(both, jnp.asarray(9))
    for i, single in enumerate((one, two)):
        alone = rows(single, jnp.asarray(9), 6)
        for a, b in zip(found, alone, strict=True):
            np.testing.assert_array_equal(a[i], b)
    back = jax.vmap(rp.fill, in_axes=(0, 0, None, None))(both, found, jnp.asarray(9), jnp.asarray(6))
    assert_same(back, both)
