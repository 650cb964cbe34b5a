"""Figures of aggregates show the numbers they were given."""

import itertools

import numpy as np
import pytest

from vcrl.bench import aggregates, charts, figures, stats
from vcrl.bench.aggregates import published
from vcrl.bench.stats import Band, Interval
from vcrl.core.errors import UserError

RNG = np.random.default_rng(0)
SCORES = {m: RNG.gamma(2.0, 0.3 + 0.2 * i, size=(8, 5)) for i, m in enumerate(("rainbow", "spr", "vcr"))}
FOUND = {**aggregates.aggregates(SCORES), "VCR (paper)": {"iqm": published(0.397)}}


def line(axis, label):
    (found,) = [line for line in axis.lines if line.get_label() == label]
    return found


def notes(figure):
    return figure.legends[0].get_title().get_text()


def names(axis):
    return [tick.get_text() for tick in axis.get_yticklabels()]


def test_aggregate_bars_are_intervals_with_ticks():
    figure = charts.aggregate_bars(FOUND)
    for axis, name in zip(figure.axes, ("iqm", "optimality_gap"), strict=True):
        assert len(axis.patches) == 3
        for bar, method in zip(axis.patches, SCORES, strict=True):
            expected = FOUND[method][name]
            ends = bar.get_x(), bar.get_x() + bar.get_width()
            assert ends == pytest.approx((expected.low, expected.high))
            assert set(line(axis, method).get_xdata()) == {expected.point}
            low, high = axis.get_xlim()
            assert low < expected.low and expected.high < high
    iqm, gap = figure.axes
    assert iqm.get_title(loc="left") == "IQM (more is better)"
    assert gap.get_title(loc="left") == "optimality gap (less is better)"
    assert names(iqm) == ["rainbow", "spr", "vcr", "VCR (paper)"]
    assert names(gap) == [""] * 4  # once is enough


def test_a_published_number_is_hollow_and_said_to_be():
    figure = charts.aggregate_bars(FOUND)
    told = line(figure.axes[0], "VCR (paper)")
    assert list(told.get_xdata()) == [0.397] and told.get_markerfacecolor() == "white"
    assert "published, interval not known" in notes(figure)
    assert not [x for x in figure.axes[1].lines if x.get_label() == "VCR (paper)"]
    assert "published" not in notes(charts.aggregate_bars(aggregates.aggregates(SCORES)))


def test_profiles_are_the_shares_above_on_both_scales():
    taus = np.array([0.0, 0.2, 0.5, 1.0, 2.0, 5.0])
    figure = charts.performance_profiles(SCORES, taus)
    linear, other = figure.axes
    room = 1 - np.mean([[(x > tau).mean() for tau in taus] for x in SCORES.values()], axis=0)
    for method, scores in SCORES.items():
        share = [(scores > tau).mean() for tau in taus]
        np.testing.assert_allclose(line(linear, method).get_ydata(), share)
        np.testing.assert_allclose(line(other, method).get_ydata(), share)
        np.testing.assert_allclose(line(linear, method).get_xdata(), taus)
        np.testing.assert_allclose(line(other, method).get_xdata(), room)
    assert len(linear.collections) == 3  # bands
    for tick, at in zip(other.get_xticklabels(), other.get_xticks(), strict=True):
        assert at == pytest.approx(np.interp(float(tick.get_text()), taus, room))
    assert {"0", "1"} <= {tick.get_text() for tick in other.get_xticklabels()}
    assert (np.diff(other.get_xticks()) >= 0.075).all()


def test_profiles_by_default_reach_from_the_lowest_score_to_the_highest():
    figure = charts.performance_profiles(SCORES, scalings=["non-linear"], draws=50)
    (axis,) = figure.axes
    drawn = line(axis, "vcr").get_ydata()
    assert drawn[0] > 0.9 and drawn[-1] == 0
    assert (np.diff(drawn) <= 0).all()
    with pytest.raises(UserError, match="did you mean linear"):
        charts.performance_profiles(SCORES, scalings=["liner"])
    with pytest.raises(UserError, match="no method"):
        charts.performance_profiles({})


def test_runs_that_are_missing_show_in_the_number_of_seeds():
    scores = {"vcr": SCORES["vcr"].copy(), "spr": SCORES["spr"]}
    scores["vcr"][6:, 2] = np.nan
    assert charts.performance_profiles(scores, draws=50).axes[-1].get_title(loc="right") == "6 to 8 seeds"


def test_room_goes_by_the_runs_in_a_range():
    flat = {"a": Band(np.array([1.0, 0.5, 0.0]), *np.zeros((2, 3)))}
    steep = {"b": Band(np.array([1.0, 0.1, 0.0]), *np.zeros((2, 3)))}
    np.testing.assert_allclose(charts.room_by_runs({**flat, **steep}), [0, 0.7, 1])


def test_improvement_bars_stand_against_an_even_chance():
    found = {("vcr", "spr"): Interval(0.6, 0.55, 0.66), ("vcr", "rainbow"): Interval(0.8, 0.7, 0.9)}
    figure = charts.improvement_bars(found)
    (axis,) = figure.axes
    assert names(axis) == ["vcr > spr", "vcr > rainbow"]
    assert [(b.get_x(), b.get_x() + b.get_width()) for b in axis.patches] == [
        pytest.approx((0.55, 0.66)),
        pytest.approx((0.7, 0.9)),
    ]
    assert set(line(axis, "vcr > spr").get_xdata()) == {0.6}
    assert set(line(axis, "_even").get_xdata()) == {0.5}
    assert axis.get_xlim() == (0, 1)
    with pytest.raises(UserError, match="two methods"):
        charts.improvement_bars({})


def test_ablation_bars_start_at_zero_and_show_the_baseline():
    found = {
        "VCR": {"iqm": Interval(0.397, 0.36, 0.43), "optimality_gap": published(0.544)},
        "SPR": {"iqm": Interval(0.337, 0.33, 0.35), "optimality_gap": published(0.577)},
        "d_MSE": {"iqm": published(0.309)},
    }
    figure = charts.ablation_bars(found, "SPR")
    iqm, gap = figure.axes
    assert [bar.get_width() for bar in iqm.patches] == [0.397, 0.337, 0.309]
    assert {bar.get_x() for bar in iqm.patches} == {0}
    assert [bool(bar.get_hatch()) for bar in iqm.patches] == [False, True, False]
    assert [bar.get_width() for bar in gap.patches] == [0.544, 0.577]
    whiskers = [tuple(x.get_xdata()) for x in iqm.lines if x.get_label() == "_interval"]
    assert whiskers == [(0.36, 0.43), (0.33, 0.35)]
    assert set(line(iqm, "_baseline").get_xdata()) == {0.337}
    assert [text.get_text() for text in iqm.texts] == ["0.397", "0.337", "0.309"]
    assert iqm.get_xlim()[0] == 0 and iqm.get_xlim()[1] > 0.43
    with pytest.raises(UserError, match="did you mean SPR"):
        charts.ablation_bars(found, "SPRR")
    with pytest.raises(UserError, match="unknown statistic"):
        charts.ablation_bars(found, "SPR", ["mode"])


def luminance(color):
    red, green, blue = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue


def test_in_grey_the_usual_methods_differ_by_shade_and_all_by_line_or_marker():
    axis = charts.performance_profiles(SCORES, draws=50).axes[0]
    drawn = [line(axis, method) for method in SCORES]
    shades = sorted(luminance(x.get_color()) for x in drawn)
    assert min(np.diff(shades)) > 0.04
    assert len({x.get_marker() for x in drawn}) == 3
    assert len({str(x._dash_pattern) for x in drawn}) == 3


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_every_chart_is_written(kind, tmp_path):
    two = {m: SCORES[m] for m in ("spr", "vcr")}
    made = {
        "bars": charts.aggregate_bars(FOUND),
        "profiles": charts.performance_profiles(two, draws=50),
        "improvement": charts.improvement_bars(aggregates.improvements(two, draws=50)),
        "ablations": charts.ablation_bars(FOUND, "spr"),
    }
    starts = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF-"}
    for name, figure in made.items():
        (path,) = figures.save(figure, tmp_path / name, [kind])
        assert path.read_bytes().startswith(starts[kind]) and path.stat().st_size > 5000


def test_charts_and_statistics_tell_the_same():
    assert FOUND["vcr"]["iqm"] == stats.interval(SCORES["vcr"], stats.iqm)


def test_the_non_linear_axis_has_ticks_where_the_runs_are():
    """Scores of DMControl after long training: all between one half and one."""
    scores = {
        m: np.clip(np.random.default_rng(i).normal(0.85, 0.1, (10, 6)), 0, 0.99) for i, m in enumerate("ab")
    }
    axis = charts.performance_profiles(scores, draws=50).axes[1]
    ticks = [float(tick.get_text()) for tick in axis.get_xticklabels()]
    assert {0.8, 0.9} <= set(ticks) and ticks == sorted(ticks)
    assert all(b - a > 0.07 for a, b in itertools.pairwise(axis.get_xticks()))
