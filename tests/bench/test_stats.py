"""Aggregate scores and their intervals."""

import random
import statistics

import numpy as np
import pytest

from vcrl.bench import stats
from vcrl.core.errors import UserError

# Three tasks as columns, four runs as rows.
MATRIX = np.array([[0.0, 1.0, 2.0], [0.2, 1.2, 0.5], [0.4, 0.8, 0.7], [1.0, 1.0, 0.8]])
ALL = (stats.mean, stats.median, stats.iqm, stats.optimality_gap)


def test_statistics_of_a_matrix_worked_by_hand():
    # Task means are 0.4, 1.0 and 1.0. Sorted, the middle six scores are 0.5 0.7 0.8 0.8 1 1.
    assert stats.mean(MATRIX) == pytest.approx(0.8)
    assert stats.median(MATRIX) == pytest.approx(1.0)
    assert stats.iqm(MATRIX) == pytest.approx(4.8 / 6)
    # Below 1 by 1, 0.8, 0.6 on the first task, 0.2 on the second, 0.5, 0.3, 0.2 on the third: 3.6 in all.
    assert stats.optimality_gap(MATRIX) == pytest.approx(3.6 / 12)
    assert stats.optimality_gap(MATRIX, threshold=0.5) == pytest.approx((0.5 + 0.3 + 0.1) / 12)


@pytest.mark.parametrize("statistic", ALL)
def test_a_matrix_and_its_columns_are_the_same_scores(statistic):
    assert statistic(MATRIX) == statistic(list(MATRIX.T))


def test_tasks_may_have_unequal_numbers_of_runs():
    tasks = [np.array([0.0, 1.0]), np.array([3.0]), np.array([2.0, 4.0, 6.0, 8.0, 10.0])]
    assert stats.mean(tasks) == pytest.approx((0.5 + 3 + 6) / 3)
    assert stats.median(tasks) == pytest.approx(3)
    assert stats.iqm(tasks) == pytest.approx((2 + 3 + 4 + 6) / 4)  # pooled: 0 1 | 2 3 4 6 | 8 10
    found = stats.interval(tasks, stats.mean)
    assert found.low <= found.point <= found.high


def slow_iqm(tasks):
    pooled = sorted(score for task in tasks for score in task)
    cut = len(pooled) // 4
    return statistics.fmean(pooled[cut : len(pooled) - cut])


SLOW = {
    stats.mean: lambda tasks: statistics.fmean(statistics.fmean(t) for t in tasks),
    stats.median: lambda tasks: statistics.median(statistics.fmean(t) for t in tasks),
    stats.iqm: slow_iqm,
    stats.optimality_gap: lambda tasks: (
        1 - statistics.fmean(statistics.fmean(min(s, 1) for s in t) for t in tasks)
    ),
}


@pytest.mark.parametrize("statistic", ALL)
def test_interval_equals_a_bootstrap_written_as_a_loop(statistic):
    rng = np.random.default_rng(1)
    tasks = [rng.gamma(2.0, 0.5, size=runs) for runs in (10, 7, 12, 10, 10)]
    slow, dice, drawn = SLOW[statistic], random.Random(5), []
    for _ in range(4000):
        drawn.append(slow([dice.choices(list(task), k=len(task)) for task in tasks]))
    drawn.sort()
    low, high = drawn[100], drawn[3900]
    found = stats.interval(tasks, statistic, draws=8000)
    assert found.point == pytest.approx(slow(tasks))
    # The ends are themselves random: with this many draws, by a few percent of the width.
    assert [found.low, found.high] == pytest.approx([low, high], abs=0.06 * (high - low))


@pytest.mark.parametrize("statistic", ALL)
def test_interval_contains_its_point_and_depends_on_the_seed_alone(statistic):
    scores = np.random.default_rng(2).normal(1.0, 0.3, size=(10, 6))
    found = stats.interval(scores, statistic)
    assert found.low < found.point < found.high
    assert stats.interval(scores, statistic, seed=0) == found
    assert stats.interval(scores, statistic, seed=1) != found


def test_interval_is_wider_with_fewer_runs_and_a_higher_level():
    scores = np.random.default_rng(3).normal(1.0, 0.3, size=(40, 5))

    def width(runs, level=0.95):
        found = stats.interval(scores[:runs], stats.iqm, level=level)
        return found.high - found.low

    assert width(3) > width(10) > width(40) > 0
    assert width(10, level=0.99) > width(10) > width(10, level=0.5)


def test_runs_are_redrawn_within_their_task_only():
    # Tasks far apart, runs of each equal: nothing varies unless scores cross from task to task.
    scores = np.repeat([[0.0, 10.0, 20.0]], 5, axis=0)
    assert stats.interval(scores, stats.mean) == (10.0, 10.0, 10.0)


def test_one_run_per_task_gives_no_width():
    assert stats.interval(np.array([[0.5, 1.5]]), stats.mean) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_not_finite_is_refused_by_name(bad):
    scores = MATRIX.copy()
    scores[2, 1] = bad
    with pytest.raises(UserError, match="'pong': 1 of 4 scores are not finite"):
        stats.interval(scores, stats.iqm, names=["catch", "pong", "boxing"])
    with pytest.raises(UserError, match="task number 1"):
        stats.mean(scores)


@pytest.mark.parametrize("bad", [[], np.zeros(3), np.zeros((0, 2)), [np.zeros(3), np.zeros(0)]])
def test_empty_or_misshapen_scores_are_refused(bad):
    with pytest.raises(UserError):
        stats.interval(bad, stats.mean)


def test_interval_refuses_scores_that_are_not_one_per_run():
    with pytest.raises(UserError, match="one number per run"):
        stats.interval([np.zeros((2, 3))], stats.mean)


def test_a_band_is_an_interval_at_every_point():
    # Where the runs keep their order, redrawn ranks are redrawn runs: the same draws, so the same numbers.
    values = np.sort(np.random.default_rng(6).normal(size=(7, 4)), axis=0)
    found = stats.band(values, draws=500, seed=3)
    for i in range(4):
        alone = stats.interval(values[:, i : i + 1], stats.iqm, draws=500, seed=3)
        assert (found.point[i], found.low[i], found.high[i]) == pytest.approx(alone)


def test_a_band_of_curves_that_cross_is_an_interval_too():
    values = np.random.default_rng(6).normal(size=(9, 3)).cumsum(axis=1)
    found = stats.band(values, draws=40_000)
    for i in range(3):
        alone = stats.interval(values[:, i : i + 1], stats.iqm, draws=40_000, seed=1)
        near = pytest.approx(alone, abs=0.02 * (alone.high - alone.low))
        assert (found.point[i], found.low[i], found.high[i]) == near


def test_redraws_count_the_runs_that_resample_picks():
    tasks = [np.array([1.0, 10.0, 100.0]), np.array([3.0, 5.0])]
    redrawn = stats.resample(tasks, 50, np.random.default_rng(4))
    for task, drawn, counts in zip(tasks, redrawn, stats.redraws((3, 2), 50, 4), strict=True):
        assert drawn.shape == counts.shape == (50, len(task))
        np.testing.assert_allclose(counts @ task, drawn.sum(axis=1))


def test_mean_of_more_by_hand():
    point, low, high = stats.mean_of_more(np.array([1.0, 2.0, 3.0]), 6)
    reach = 4.302653 * 1.0 * np.sqrt(1 / 3 + 1 / 6)  # Student's t with two degrees of freedom
    assert (point, low, high) == pytest.approx((2.0, 2.0 - reach, 2.0 + reach), rel=1e-6)
    assert stats.mean_of_more(np.array([1.0]), 6) == (1.0, -np.inf, np.inf)
