"""How many seeds a claim needs."""

from statistics import NormalDist

import numpy as np
import pytest

from vcrl.bench import power
from vcrl.bench.power import Power, advice, seeds_needed
from vcrl.bench.stats import Interval
from vcrl.core.errors import UserError


def normal(mean, sd=1.0, runs=40, tasks=4, seed=0):
    """Runs whose mean and spread are exactly these, on every task."""
    draws = np.random.default_rng(seed).normal(size=(runs, tasks))
    draws = (draws - draws.mean(axis=0)) / draws.std(axis=0, ddof=1)
    return mean + sd * draws


def test_the_spread_of_a_mean_falls_with_the_root_of_its_seeds():
    found = power.spread(normal(2.0), 9, "mean", draws=20_000)
    assert found.mean == pytest.approx(2.0, abs=0.01)
    assert found.sd == pytest.approx(1 / np.sqrt(9 * 4), rel=0.03)  # nine seeds of four tasks
    assert found.high - found.low == pytest.approx(2 * 1.96 * found.sd, rel=0.05)


def test_few_runs_do_not_make_the_spread_look_small():
    assert power.spread(normal(0.0, runs=2), 9, "mean", draws=20_000).sd == pytest.approx(1 / 6, rel=0.03)


def test_the_chances_are_those_of_a_normal_test():
    # A mean of n seeds and 4 tasks has variance 1 / 4n; two of them differ by 0.5 with deviation sqrt(1 / 2n).
    # Power 80% needs 0.5 = (1.96 + 0.84) sqrt(1 / 2n): n = 15.7.
    found = seeds_needed(normal(0.5), normal(0.0, seed=1), "mean")
    assert found.needed in (15, 20)
    assert found.difference.point == pytest.approx(0.5)
    assert found.runs == 40 and found.chances[40] > 0.97
    for number, chance in found.chances.items():
        # The bootstrap of n seeds has (n - 1) / n of the variance that there is.
        reach = 1.96 * np.sqrt((number - 1) / number)
        exact = NormalDist().cdf(0.5 * np.sqrt(2 * number) - reach)
        assert chance == pytest.approx(exact, abs=0.1)  # 200 trials


def test_a_difference_of_nothing_needs_more_than_anybody_has():
    found = seeds_needed(normal(0.0), normal(0.0, seed=1), "mean", most=20, trials=40)
    assert found.needed is None
    assert "even 40 seeds a task" in advice(found, "vcr", "spr")


def test_a_large_difference_needs_few_in_either_direction():
    for high, low in ((3.0, 0.0), (0.0, 3.0)):
        assert seeds_needed(normal(high), normal(low, seed=1), trials=40).needed == 3


def test_missing_runs_count_as_missing_and_one_run_is_not_enough():
    first = normal(1.0, runs=5)
    first[3:, 0] = np.nan
    assert seeds_needed(first, normal(0.0, runs=5), trials=20, most=5).runs == 3
    first[1:, 0] = np.nan
    with pytest.raises(UserError, match="at least two"):
        seeds_needed(first, normal(0.0, runs=5))
    with pytest.raises(UserError, match="4 and 3 tasks"):
        seeds_needed(normal(0.0), normal(0.0, tasks=3))
    with pytest.raises(UserError, match="unknown statistic"):
        seeds_needed(normal(0.0), normal(0.0), "gap")


def test_the_seed_alone_decides():
    first, second = normal(0.5, runs=6), normal(0.0, runs=6, seed=1)
    assert seeds_needed(first, second, trials=30, most=10) == seeds_needed(first, second, trials=30, most=10)


@pytest.mark.parametrize(
    ("chances", "needed", "words"),
    [
        ({5: 0.43, 15: 0.84}, 15, "about 15 seeds a task would show it in 80% of repeats, 5 in 43%."),
        ({5: 0.97, 4: 0.9, 3: 0.7}, 4, "in 97% of cases, and about 4 seeds would do for 80%."),
        ({5: 0.85, 4: 0.7}, 5, "a repeat with as many would show a difference in 85% of cases."),
        ({5: 0.1, 100: 0.5}, None, "even 100 seeds a task would show it in only 50% of repeats."),
    ],
)
def test_advice_is_one_sentence(chances, needed, words):
    found = advice(Power("iqm", 5, Interval(0.06, -0.01, 0.13), chances, 0.8, needed), "vcr", "spr")
    start = "vcr - spr is +0.060 in IQM [-0.010, +0.130] with 5 seeds a task; if that is the truth, "
    assert found.startswith(start)
    assert found.endswith(words)
