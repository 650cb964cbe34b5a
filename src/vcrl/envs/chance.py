"""Randomness without a generator: a number is a hash of (seed, time, channel), so nothing is saved."""

import numpy as np

_STRIDE = np.uint64(0x9E3779B97F4A7C15)  # the odd increment of splitmix64


def bits(seed: np.ndarray, time: np.ndarray, channel: int | np.ndarray) -> np.ndarray:
    """Random uint64s, one for each (seed, time, channel), which broadcast; channels are below 2^16 - 1."""
    # Hashing the seed first keeps the streams of seeds 0, 1, 2, ... from being shifted copies of each other.
    counter = (time.astype(np.uint64) << np.uint64(16)) + np.asarray(channel, np.uint64) + np.uint64(1)
    return _mix(_mix(seed + _STRIDE) + counter * _STRIDE)


def below(n: int | np.ndarray, seed: np.ndarray, time: np.ndarray, channel: int | np.ndarray) -> np.ndarray:
    """Uniform int32s in 0..n-1, biased by less than n / 2^32."""
    high = bits(seed, time, channel) >> np.uint64(32)
    return (high * np.asarray(n, np.uint64) >> np.uint64(32)).astype(np.int32)


def unit(seed: np.ndarray, time: np.ndarray, channel: int | np.ndarray) -> np.ndarray:
    """Uniform float64s in [0, 1)."""
    return (bits(seed, time, channel) >> np.uint64(11)) * 2.0**-53


def _mix(x: np.ndarray) -> np.ndarray:
    # The finaliser of splitmix64: every input bit reaches every output bit.
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
