"""The published numbers are transcribed as they were printed, and agree with each other."""

import numpy as np
import pytest

from vcrl.bench import paper, stats
from vcrl.bench.paper import Range
from vcrl.core.errors import UserError
from vcrl.envs.atari_scores import SCORES
from vcrl.methods.discrete import FAMILY


def normalised(method):
    return [np.array([paper.normalise(task, score)]) for task, score in paper.scores()[method].items()]


def test_every_table_has_the_26_games():
    assert len(SCORES) == 26
    for method, games in paper.scores().items():
        assert games.keys() == SCORES.keys(), method
    assert paper.published().keys() == {"SPR", "DER", "CURL"}
    for method in paper.published():
        assert paper.published()[method].keys() == SCORES.keys()


def test_our_methods_are_matched_with_columns_that_exist():
    assert paper.NAMES.keys() <= FAMILY.methods.keys()
    assert set(paper.NAMES.values()) <= paper.RUNS.keys() == paper.scores().keys()


@pytest.mark.parametrize(
    ("task", "method", "score"),
    [
        ("pong", "VCR", 0.9),
        ("pong", "VCR K=9", -3.0),
        ("kung-fu-master", "SPR", 14783.2),
        ("up-n-down", "VCR", 14674.1),
        ("ms-pacman", "SimPLe", 1480.0),
        ("private-eye", "DrQ", 3.5),
        ("bank-heist", "PlayVirtual", 245.9),
        ("qbert", "OTR", 552.5),
        ("alien", "CURL", 711.0),
    ],
)
def test_single_cells(task, method, score):
    assert paper.scores()[method][task] == score


def test_scores_of_random_play_and_of_humans():
    assert SCORES["pong"] == (-20.7, 14.6)
    assert SCORES["private-eye"] == (24.9, 69571.3)
    assert paper.normalise("boxing", 12.1) == 1
    assert paper.normalise("boxing", 0.1) == 0
    with pytest.raises(UserError, match="did you mean pong"):
        paper.normalise("pongo", 0)


# Percent, as papers quote them: SPR's and PlayVirtual's own, and those of the VCR table.
@pytest.mark.parametrize(
    ("method", "mean", "median"),
    [("VCR", 68.6, 45.7), ("SPR", 61.6, 39.6), ("PlayVirtual", 63.7, 47.2), ("DER", 35.0, 18.9)],
)
def test_means_and_medians_over_games_come_out_as_published(method, mean, median):
    assert 100 * stats.mean(normalised(method)) == pytest.approx(mean, abs=0.051)
    assert 100 * stats.median(normalised(method)) == pytest.approx(median, abs=0.051)


def test_aggregates_are_possible():
    assert paper.aggregates()["VCR"] == {"iqm": 0.397, "optimality_gap": 0.544}
    assert paper.aggregates()["SPR"]["iqm"] == 0.337
    for method in paper.scores():
        # Over runs the gap is at least that of the means, for a run above a human's score earns nothing.
        assert paper.aggregates()[method]["optimality_gap"] >= stats.optimality_gap(normalised(method)) - 1e-3


@pytest.mark.parametrize("method", ["SPR", "DER", "CURL"])
def test_published_runs_have_the_means_of_the_papers_table(method):
    for task, found in paper.published()[method].items():
        spread = abs(found.mean - SCORES[task][0]) + 1
        # The table has one digit behind the point.
        assert found.mean == pytest.approx(paper.scores()[method][task], abs=0.01 * spread + 0.05), task
        assert found.runs == 100 and found.sd > 0
        assert found.p5 <= found.p25 <= found.median <= found.p75 <= found.p95


def test_bands_hold_the_mean_and_narrow_with_more_seeds():
    for method in paper.published():
        for task, found in paper.published()[method].items():
            bands = [
                paper.band(method, task, seeds) for seeds in (5, 10, 20)
            ]  # rare high scores widen means of few
            widths = [band.high - band.low for band in bands]
            assert widths == sorted(widths, reverse=True)
            assert bands[-1].low < found.mean < bands[-1].high
            # Of a mean of n the spread is sd / sqrt(n); skewed scores are a little off.
            assert widths[-1] == pytest.approx(2 * 1.96 * found.sd / np.sqrt(20), rel=0.12), task


def test_band_of_ten_by_hand():
    assert paper.band("SPR", "pong", 10) == (-11.396, 1.643)
    assert paper.band("SPR", "pong", 50) == paper.band("SPR", "pong", 20)
    with pytest.raises(UserError, match="at least one"):
        paper.band("SPR", "pong", 0)
    with pytest.raises(UserError, match="SPR, pong"):
        paper.band("SPR", "pongg", 5)


@pytest.mark.parametrize(("value", "word"), [(0.9, "below"), (1, "inside"), (2, "inside"), (2.1, "above")])
def test_verdicts(value, word):
    assert Range(1, 2).verdict(value) == word


@pytest.mark.parametrize(
    ("protocol", "method", "task", "mean", "std"),
    [
        ("dmc100k", "VCR", "walker-walk", 650, 143),
        ("dmc100k", "SPR", "walker-walk", 397, 220),
        ("dmc100k", "Dreamer", "finger-spin", 341, 70),
        ("dmc100k", "PlayVirtual", "ball_in_cup-catch", 939, 20),
        ("dmc500k", "Dreamer", "finger-spin", 796, 183),
        ("dmc500k", "SLAC", "finger-spin", 673, 92),
    ],
)
def test_single_cells_of_dmcontrol(protocol, method, task, mean, std):
    assert paper.dmc()[protocol][method][task] == (mean, std)


def test_every_method_has_six_dmcontrol_tasks_but_slac():
    for protocol, methods in paper.dmc().items():
        assert len(methods) == 8, protocol
        assert {m: len(tasks) for m, tasks in methods.items() if len(tasks) != 6} == {"SLAC": 4}


def test_medians_of_dmcontrol_come_out_as_printed():
    """At 500K the paper prints the median over tasks, which its means must give."""
    for method, row in paper.dmc_aggregates()["dmc500k"].items():
        means = [spread.mean for spread in paper.dmc()["dmc500k"][method].values()]
        assert row.median == np.median(means), method
    assert paper.dmc_aggregates()["dmc100k"]["VCR"][1:3] == (745, 283)
    assert paper.dmc_aggregates()["dmc100k"]["Dreamer"].iqm is None


def test_ablations():
    found = {
        what: [(row.method, row.iqm, row.optimality_gap) for row in rows]
        for what, rows in paper.ablations()["atari100k"].items()
    }
    assert found == {
        "weight": [("SPR", 0.337, 0.577), ("VCR", 0.397, 0.544), ("VCR, weight 1.0", 0.288, 0.613)],
        "distance": [("VCR, d_MSE", 0.309, 0.6), ("VCR, d_MSE-A", 0.34, 0.579)],
        "reward": [("SPR with reward loss", 0.354, 0.568)],
        "size": [("SPR-L", 0.272, 0.615), ("SPR-XL", 0.176, 0.701)],
        "steps": [("VCR K=9", 0.397, 0.543)],
    }
    weights = paper.ablations()["dmc100k"]["weight"]
    assert [(row.method, row.iqm) for row in weights] == [
        ("SPR", 700),
        ("VCR, weight 0.2", 707),
        ("VCR, weight 1.0", 740),
    ]


def test_small_ablations_steps_and_hours():
    small = paper.small_ablations()
    assert small["prediction head"]["SPR without prediction head"]["crazy-climber"] == 0.81
    assert small["noisy net"]["VCR noise off in VCR loss"]["demon-attack"] == 0.26
    assert all(game in SCORES for table in small.values() for games in table.values() for game in games)
    assert paper.imagined_steps()["K=9"]["alien"] == 913.7 and paper.imagined_steps()["K=5"]["alien"] == 822.4
    hours = {(p, t.method, t.steps): t.hours for p, times in paper.training_times().items() for t in times}
    assert hours["atari100k", "VCR", 5] == 6.4 and hours["dmc100k", "SPR", 3] == 2.6 and len(hours) == 7


@pytest.mark.parametrize("name", sorted(path.name for path in paper.DATA.glob("*.csv")))
def test_every_table_of_numbers_names_its_source(name):
    assert f"`{name}`" in (paper.DATA / "README.md").read_text()
