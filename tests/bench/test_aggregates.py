"""Aggregates of many methods, against hand-worked numbers, plain loops and rliable."""

import itertools
import random
import statistics

import numpy as np
import pytest

from vcrl.bench import aggregates, stats
from vcrl.bench.aggregates import improvement, present, profiles
from vcrl.core.errors import UserError

NAN = np.nan
FIRST = np.array([[0.0, 1.0], [0.4, 3.0], [0.8, 2.0]])
SECOND = np.array([[0.4, 0.0], [0.5, 2.5]])
RAGGED = np.array([[0.1, 1.0], [NAN, 2.0], [0.3, 3.0], [NAN, 4.0]])


def invented(seed, runs, tasks=6):
    rng = np.random.default_rng(seed)
    return rng.gamma(2.0, 0.5, size=(runs, tasks)) * rng.gamma(1.0, 1.0, size=tasks)


def test_missing_runs_are_left_out_and_tasks_weigh_the_same():
    found = aggregates.aggregates({"vcr": RAGGED})["vcr"]
    assert found["mean"].point == pytest.approx((0.2 + 2.5) / 2)
    assert found["median"].point == pytest.approx((0.2 + 2.5) / 2)
    assert found["optimality_gap"].point == pytest.approx((0.8 + 0.0) / 2)
    assert found["iqm"].point == pytest.approx((0.3 + 1 + 2 + 3) / 4)  # pooled: 0.1 | 0.3 1 2 3 | 4
    assert aggregates.runs_per_task(RAGGED) == (2, 4)


@pytest.mark.parametrize("name", aggregates.STATISTICS)
def test_aggregates_are_the_intervals_of_each_statistic(name):
    scores = {"spr": invented(0, 10), "vcr": invented(1, 7)}
    found = aggregates.aggregates(scores, seed=5, draws=300)
    for method, matrix in scores.items():
        assert found[method][name] == stats.interval(matrix, getattr(stats, name), seed=5, draws=300)


def test_the_threshold_of_the_optimality_gap_is_free():
    (found,) = aggregates.aggregates({"sac": np.array([[400.0, 1000.0]])}, threshold=1000).values()
    assert found["optimality_gap"].point == 300


def test_a_task_without_a_run_is_refused_by_name():
    empty = np.array([[1.0, NAN], [2.0, NAN]])
    with pytest.raises(UserError, match="spr has no run of pong"):
        aggregates.aggregates({"spr": empty}, tasks=["alien", "pong"])
    with pytest.raises(UserError, match="spr has no run of task number 1"):
        profiles({"spr": empty}, np.zeros(1))


@pytest.mark.parametrize("bad", [np.zeros(3), np.zeros((2, 0)), np.array([[1.0, np.inf]])])
def test_what_is_no_matrix_of_scores_is_refused(bad):
    with pytest.raises(UserError):
        present(bad, "vcr")


def test_names_that_are_not_known_are_refused():
    with pytest.raises(UserError, match="did you mean median"):
        aggregates.aggregates({"vcr": FIRST}, ["medain"])
    with pytest.raises(UserError, match="did you mean spr"):
        aggregates.improvements({"spr": FIRST, "vcr": FIRST}, [("vcr", "spt")])
    with pytest.raises(UserError, match="3 tasks"):
        aggregates.aggregates({"vcr": FIRST}, tasks=["a", "b", "c"])


def test_a_profile_is_the_share_of_runs_above():
    found = profiles({"vcr": FIRST}, np.array([-1.0, 0.0, 0.4, 1.5, 3.0]))["vcr"]
    # Above 0: two of three and three of three. Above 0.4: one and three. Above 1.5: none and two.
    np.testing.assert_allclose(found.point, [1, 5 / 6, 4 / 6, 2 / 6, 0])
    assert (found.low <= found.point).all() and (found.point <= found.high).all()
    # The tasks of two and of four runs weigh the same.
    np.testing.assert_allclose(profiles({"m": RAGGED}, np.array([0.2, 2.5]))["m"].point, [0.75, 0.25])


def test_probability_of_improvement_by_hand():
    # First task: 0 loses twice; 0.4 ties and loses; 0.8 wins twice: 2.5 of 6. Second: 1 of 2, 2 of 2, 1 of 2.
    found = improvement(FIRST, SECOND)
    assert found.point == pytest.approx((2.5 / 6 + 4 / 6) / 2)
    assert found.low <= found.point <= found.high
    assert improvement(SECOND, FIRST).point == pytest.approx(1 - found.point)
    assert improvement(FIRST, FIRST).point == pytest.approx(0.5)
    assert improvement(FIRST + 10, SECOND) == (1, 1, 1)


def test_improvements_are_of_the_last_over_the_others_unless_told():
    scores = {"der": SECOND, "spr": FIRST, "vcr": FIRST + 0.1}
    found = aggregates.improvements(scores)
    assert list(found) == [("vcr", "der"), ("vcr", "spr")]
    assert found["vcr", "spr"] == improvement(FIRST + 0.1, FIRST)
    assert list(aggregates.improvements(scores, [("spr", "der")])) == [("spr", "der")]


def test_improvement_is_as_sure_as_a_bootstrap_written_as_a_loop():
    first, second, dice, drawn = invented(3, 6, 3), invented(4, 5, 3), random.Random(2), []
    for _ in range(4000):
        shares = []
        for a, b in zip(first.T, second.T, strict=True):
            pairs = list(itertools.product(dice.choices(list(a), k=6), dice.choices(list(b), k=5)))
            shares.append(statistics.fmean((x > y) + (x == y) / 2 for x, y in pairs))
        drawn.append(statistics.fmean(shares))
    drawn.sort()
    low, high = drawn[100], drawn[3900]
    found = improvement(first, second, draws=8000)
    assert [found.low, found.high] == pytest.approx([low, high], abs=0.06 * (high - low))


def test_a_difference_is_independent_redraws_of_both():
    first, second = invented(5, 12), invented(6, 8)
    found = aggregates.difference(first, second, "mean", draws=20_000)
    assert found.point == pytest.approx(stats.mean(first) - stats.mean(second))
    # Of a mean the bootstrap's variance is known: that of the runs, over their number, over tasks squared.
    variance = sum((x.var(axis=0) / len(x)).sum() / x.shape[1] ** 2 for x in (first, second))
    assert found.high - found.low == pytest.approx(2 * 1.96 * np.sqrt(variance), rel=0.05)
    assert aggregates.difference(first, first).point == 0


def test_differences_of_many_pairs_are_those_of_each():
    scores = {"a": invented(5, 12), "b": invented(6, 8), "c": invented(7, 12)}
    pairs = [("a", "b"), ("c", "b"), ("a", "c")]
    found = aggregates.differences(scores, pairs, "iqm", draws=20_000)
    for a, b in pairs:
        alone = aggregates.difference(scores[a], scores[b], "iqm", draws=20_000, seed=1)
        width = alone.high - alone.low
        assert found[a, b] == pytest.approx(alone, abs=0.05 * width) and found[a, b].point == alone.point


def test_the_seed_alone_decides():
    scores = {"vcr": invented(7, 5)}
    taus = np.linspace(0, 2, 5)
    assert aggregates.aggregates(scores, seed=1) == aggregates.aggregates(scores, seed=1)
    assert aggregates.aggregates(scores, seed=1) != aggregates.aggregates(scores, seed=2)
    one, same, other = (profiles(scores, taus, seed=seed, draws=100)["vcr"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.low, same.low)
    assert (one.low != other.low).any()


class TestAgainstRliable:
    """Point estimates are equal; intervals differ by the chance in theirs and in ours."""

    SCORES = {"spr": invented(10, 20), "vcr": invented(11, 12)}  # noqa: RUF012
    REPS = 4000

    @pytest.fixture(autouse=True)
    def same_draws(self):
        before = np.random.get_state()
        np.random.seed(0)  # its stratified bootstrap draws from the global generator
        yield
        np.random.set_state(before)

    @pytest.fixture
    def rliable(self):
        library = pytest.importorskip("rliable.library")
        return library, pytest.importorskip("rliable.metrics")

    @pytest.mark.parametrize(
        ("ours", "theirs"),
        [
            ("iqm", "aggregate_iqm"),
            ("mean", "aggregate_mean"),
            ("median", "aggregate_median"),
            ("optimality_gap", "aggregate_optimality_gap"),
        ],
    )
    def test_aggregates(self, rliable, ours, theirs):
        library, metrics = rliable
        statistic = getattr(metrics, theirs)
        points, ends = library.get_interval_estimates(
            self.SCORES, lambda x: np.array([statistic(x)]), reps=self.REPS
        )
        found = aggregates.aggregates(self.SCORES, draws=self.REPS)
        for method in self.SCORES:
            mine, (low, high) = found[method][ours], ends[method][:, 0]
            assert mine.point == pytest.approx(points[method][0], rel=1e-12)
            assert [mine.low, mine.high] == pytest.approx([low, high], abs=0.08 * (high - low))

    def test_profiles(self, rliable):
        library, _ = rliable
        taus = np.linspace(0, 4, 9)
        points, ends = library.create_performance_profile(self.SCORES, taus, reps=self.REPS)
        found = profiles(self.SCORES, taus, draws=self.REPS)
        for method in self.SCORES:
            runs = self.SCORES[method].size
            np.testing.assert_allclose(found[method].point, points[method], atol=1e-7)
            np.testing.assert_allclose(found[method].low, ends[method][0], atol=1.01 / runs)  # they are steps
            np.testing.assert_allclose(found[method].high, ends[method][1], atol=1.01 / runs)

    def test_probability_of_improvement(self, rliable):
        library, metrics = rliable
        pair = {"vcr,spr": (self.SCORES["vcr"], self.SCORES["spr"])}
        points, ends = library.get_interval_estimates(
            pair, lambda x, y: np.array([metrics.probability_of_improvement(x, y)]), reps=1000
        )
        found = improvement(*pair["vcr,spr"], draws=8000)
        low, high = ends["vcr,spr"][:, 0]
        assert found.point == pytest.approx(points["vcr,spr"][0], rel=1e-7)
        assert [found.low, found.high] == pytest.approx([low, high], abs=0.1 * (high - low))
