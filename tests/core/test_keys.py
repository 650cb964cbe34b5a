"""Keys are a function of seed, stream and counter, and no two of them meet."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vcrl.core.keys import Stream, key

bits = jax.jit(jax.vmap(lambda seed, stream, counter: jax.random.key_data(_key(seed, stream, counter))))


def _key(seed: jax.Array, stream: jax.Array, counter: jax.Array) -> jax.Array:
    """`key` of a stream that is an array: the streams side by side, one chosen."""
    data = jnp.stack([jax.random.key_data(key(seed, s, counter)) for s in Stream])
    return jax.random.wrap_key_data(data[stream])


def test_streams_fit_beside_each_other():
    values = [int(s) for s in Stream]
    assert len(set(values)) == len(values)
    assert min(values) >= 0
    assert max(values) < 16


def test_no_two_keys_of_a_grid_are_equal():
    counters = np.array([*range(200), *range(10**5, 10**5 + 50), 2**20, 2**26, 2**27, 2**28 - 1])
    grid = np.stack(np.meshgrid(np.arange(20), np.arange(len(Stream)), counters, indexing="ij")).reshape(
        3, -1
    )
    found = np.asarray(bits(*jnp.asarray(grid, jnp.int32)))
    assert len(found) == 20 * len(Stream) * len(counters)
    assert len(np.unique(found, axis=0)) == len(found)


@pytest.mark.parametrize("counter", [0, 5, 2**27 - 1, 2**27, 2**28 - 1])
def test_a_number_and_an_array_are_the_same_key(counter: int):
    plain = jax.random.key_data(key(3, Stream.SAMPLE, counter))
    array = jax.random.key_data(key(jnp.int32(3), Stream.SAMPLE, jnp.int32(counter)))
    assert np.array_equal(plain, array)


def test_the_same_again_is_the_same_key():
    one, two = (jax.random.key_data(key(1, Stream.ACT, 2)) for _ in range(2))
    assert np.array_equal(one, two)
