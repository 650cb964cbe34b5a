import numpy as np

from vcrl.envs import chance


def test_mix_is_the_finaliser_of_splitmix64():
    # The first output of splitmix64 from state 0, as published with the algorithm.
    assert chance._mix(np.array([0x9E3779B97F4A7C15], np.uint64))[0] == 0xE220A8397B1DCDAF


def test_bits_are_balanced_and_neighbours_uncorrelated():
    n = 20_000
    seed, zero = np.arange(n, dtype=np.uint64), np.zeros(n, np.int32)
    near = [chance.unit(seed, zero + t, c) for t, c in ((0, 0), (0, 1), (1, 0), (1, 1))]
    near.append(chance.unit(seed + np.uint64(1), zero, 0))
    for x in near:
        assert abs(x.mean() - 0.5) < 4 * np.sqrt(1 / 12 / n)
    correlation = np.corrcoef(near) - np.eye(len(near))
    assert np.abs(correlation).max() < 4 / np.sqrt(n)
    words = chance.bits(seed, zero, 0).view(np.uint8)
    ones = np.unpackbits(words.reshape(n, 8), axis=1).mean(axis=0)
    assert np.abs(ones - 0.5).max() < 4.5 * 0.5 / np.sqrt(n)


def test_below_covers_its_range_evenly():
    seed = np.full(1, 5, np.uint64)
    drawn = chance.below(7, seed, np.arange(70_000, dtype=np.int32), 3)
    counts = np.bincount(drawn, minlength=7)
    assert len(counts) == 7 and np.abs(counts - 10_000).max() < 4 * np.sqrt(70_000 * 1 / 7 * 6 / 7)
    each = chance.below(np.array([2, 9]), seed, np.arange(1000, dtype=np.int32)[:, None], np.array([0, 1]))
    assert each.max(axis=0).tolist() == [1, 8] and each.min() == 0
