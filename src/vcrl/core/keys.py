"""Named random streams. Nothing random is ever stored: a key is a function of (seed, stream, counter)."""

from enum import IntEnum

import jax
from jaxtyping import Array, Int


class Stream(IntEnum):
    INIT = 0
    ACT = 1
    NOISE = 2
    SAMPLE = 3
    AUGMENT = 4
    TERM = 5
    EVAL = 6
    PROBE = 7  # batches that are only looked at, so that logging does not move training


def key(seed: Int[Array, ""] | int, stream: Stream, counter: Int[Array, ""] | int) -> Array:
    """One hash: counters may run to 2^28, a thousand times the updates of an Atari-100K run."""
    return jax.random.fold_in(jax.random.key(seed), counter * 16 + int(stream))
