"""Figures show the numbers they were given, and the same file for the same numbers."""

import matplotlib
import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from PIL import Image

from vcrl.bench import figures, looks, stats
from vcrl.bench.figures import Curve
from vcrl.core.errors import UserError

STEPS = np.array([0, 1000, 2000, 3000])
METHODS = ("rainbow", "spr", "vcr")


def curve(seed, runs=5):
    return Curve(STEPS, np.random.default_rng(seed).normal(size=(runs, len(STEPS))).cumsum(axis=1))


def positive(seed):
    return Curve(STEPS, np.abs(curve(seed).values))


@pytest.fixture
def curves():
    return {
        task: {m: curve(10 * i + j) for j, m in enumerate(METHODS)}
        for i, task in enumerate(["catch", "avoid"])
    }


@pytest.fixture
def q_curves():
    return {"catch": {m: {"imagined": positive(i), "real": positive(9 + i)} for i, m in enumerate(METHODS)}}


def line(axis, label):
    (found,) = [line for line in axis.lines if line.get_label() == label]
    return found


def texts(figure):
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()], legend.get_title().get_text()


def test_learning_curves_have_a_titled_panel_per_task(curves):
    figure = figures.learning_curves(curves)
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["catch", "avoid"]
    assert [axis.get_title(loc="right") for axis in figure.axes] == ["5 seeds", "5 seeds"]
    assert [axis.get_xlabel() for axis in figure.axes] == ["agent steps", "agent steps"]
    assert [axis.get_ylabel() for axis in figure.axes] == ["score", ""]
    names, note = texts(figure)
    assert names == list(METHODS)
    assert "IQM over seeds" in note and "95% bootstrap interval" in note


def test_learning_curves_draw_the_iqm_of_the_seeds(curves):
    axis = figures.learning_curves(curves).axes[0]
    drawn = line(axis, "vcr")
    middle = np.sort(curves["catch"]["vcr"].values, axis=0)[1:4]  # of five seeds the quarter cut is one
    np.testing.assert_allclose(drawn.get_ydata(), middle.mean(axis=0))
    np.testing.assert_array_equal(drawn.get_xdata(), STEPS)
    seeds = [line.get_ydata() for line in axis.lines if line.get_label() == "_seed"]
    assert len(seeds) == 15
    assert any(np.array_equal(s, curves["catch"]["vcr"].values[0]) for s in seeds)


def test_the_band_is_the_bootstrap_interval(curves):
    axis = figures.learning_curves(curves).axes[1]
    (filled,) = [c for c in axis.collections if c.get_label() == "_spr band"]
    assert isinstance(filled, PolyCollection)
    corners = filled.get_paths()[0].vertices
    expected = stats.band(curves["avoid"]["spr"].values)
    for i, step in enumerate(STEPS):
        heights = corners[corners[:, 0] == step][:, 1]
        assert (heights.min(), heights.max()) == pytest.approx((expected.low[i], expected.high[i]))


def test_many_seeds_are_a_band_without_single_lines():
    figure = figures.learning_curves({"catch": {"vcr": curve(0, runs=21), "spr": curve(1, runs=20)}})
    assert [found.get_label() for found in figure.axes[0].lines] == ["spr", "vcr"]
    assert "single seeds" not in texts(figure)[1]
    bars = figures.interval_bars({"catch": {"vcr": np.arange(21.0)}})
    assert [found.get_label() for found in bars.axes[0].lines] == ["vcr"]


def test_references_are_level_lines_with_a_name(curves):
    figure = figures.learning_curves(curves, references={"catch": {"random": -0.6, "optimal": 9.0}})
    axis = figure.axes[0]
    assert set(line(axis, "_optimal").get_ydata()) == {9.0}
    assert {text.get_text() for text in axis.texts} == {"random", "optimal"}
    assert axis.get_ylim()[1] > 9.0
    assert not figure.axes[1].texts


def test_methods_differ_in_colour_line_and_marker_and_keep_them(curves):
    axis = figures.learning_curves(curves).axes[0]
    drawn = [line(axis, m) for m in METHODS]
    assert len({x.get_color() for x in drawn}) == len({x.get_marker() for x in drawn}) == 3
    assert len({look.line for look in looks.looks(METHODS).values()}) == 3
    alone = figures.learning_curves({"catch": {"vcr": curve(0)}}).axes[0]
    assert line(alone, "vcr").get_color() == line(axis, "vcr").get_color()
    assert list(looks.looks(["mine", "vcr", "rainbow"])) == ["rainbow", "vcr", "mine"]
    many = looks.looks([*METHODS, *map(str, range(11))])
    assert len(set(many.values())) == 14
    assert len({look.marker for look in many.values()}) == 14


def test_seeds_that_turned_non_finite_are_left_out_and_told(curves):
    curves["catch"]["vcr"].values[3, 2:] = np.nan
    figure = figures.learning_curves(curves)
    kept = np.delete(curves["catch"]["vcr"].values, 3, axis=0)
    np.testing.assert_allclose(
        line(figure.axes[0], "vcr").get_ydata(), np.sort(kept, axis=0)[1:3].mean(axis=0)
    )
    assert "non-finite runs left out: 1 of vcr" in texts(figure)[1]
    assert figure.axes[0].get_title(loc="right") == "4 to 5 seeds"


def test_a_method_without_any_finite_seed_leaves_a_figure(curves, tmp_path):
    curves["catch"]["vcr"].values[:] = np.nan
    figure = figures.learning_curves(curves)
    assert "5 of vcr" in texts(figure)[1]
    figures.save(figure, tmp_path / "curves")


def test_curves_that_do_not_fit_their_steps_are_refused_by_name():
    with pytest.raises(UserError, match="catch, vcr"):
        figures.learning_curves({"catch": {"vcr": Curve(STEPS, np.zeros((5, 3)))}})
    with pytest.raises(UserError, match="no task"):
        figures.learning_curves({})


def test_q_errors_are_solid_when_imagined_and_dashed_when_real(q_curves):
    figure = figures.q_error_curves(q_curves)
    (axis,) = figure.axes
    for kind, style in (("imagined", "-"), ("real", "--")):
        drawn = line(axis, f"vcr {kind}")
        middle = np.sort(q_curves["catch"]["vcr"][kind].values, axis=0)[1:4].mean(axis=0)
        np.testing.assert_allclose(drawn.get_ydata(), middle)
        assert drawn.get_linestyle() == style
    assert texts(figure)[0] == [*METHODS, "imagined", "real"]
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("agent steps", "Q error")
    assert axis.get_ylim()[0] == 0


def test_q_errors_of_many_tasks_are_a_grid():
    tasks = [f"t{i}" for i in range(11)]  # the paper has four and seven
    q_curves = {t: {m: {"imagined": positive(i)} for m in METHODS} for i, t in enumerate(tasks)}
    figure = figures.q_error_curves(q_curves)
    assert [axis.get_title(loc="left") for axis in figure.axes] == tasks
    cells = {(s.rowspan.start, s.colspan.start) for s in (a.get_subplotspec() for a in figure.axes)}
    assert len(cells) == 11 and {column for _, column in cells} == {0, 1, 2, 3}
    middle = np.sort(q_curves["t7"]["spr"]["imagined"].values, axis=0)[1:4].mean(axis=0)
    np.testing.assert_allclose(line(figure.axes[7], "spr imagined").get_ydata(), middle)
    assert texts(figure)[0] == [*METHODS, "imagined"]


def test_an_unknown_kind_of_q_error_is_refused():
    with pytest.raises(UserError, match="did you mean imagined"):
        figures.q_error_curves({"catch": {"vcr": {"imagine": positive(0)}}})


def test_interval_bars_show_iqm_and_interval():
    scores = {"catch": {m: np.random.default_rng(i).normal(size=8) for i, m in enumerate(METHODS)}}
    figure = figures.interval_bars(scores, label="normalised score")
    (axis,) = figure.axes
    for bar, method in zip(axis.patches, METHODS, strict=True):
        expected = stats.Interval(*(end[0] for end in stats.band(scores["catch"][method][:, None])))
        assert expected.point == pytest.approx(stats.iqm([scores["catch"][method]]))
        assert (bar.get_x(), bar.get_x() + bar.get_width()) == pytest.approx((expected.low, expected.high))
        assert line(axis, method).get_xdata()[0] == pytest.approx(expected.point)
    assert [tick.get_text() for tick in axis.get_yticklabels()] == list(METHODS)
    assert axis.get_xlabel() == "normalised score"
    assert axis.get_title(loc="right") == "8 seeds"
    with pytest.raises(UserError, match="catch, vcr"):
        figures.interval_bars({"catch": {"vcr": np.array([1.0, np.nan])}})


def test_where_names_are_long_seeds_are_counted_below_and_no_title_is_covered():
    long = {
        f"chopper-command-{i}": {"playvirtual (bank)": np.arange(15.0), "spr": np.arange(100.0)}
        for i in range(3)
    }
    for scores in (long, {"pong": {"spr": np.arange(5.0)}, "alien": {"spr": np.arange(5.0)}}):
        figure = figures.interval_bars(scores)
        figure.draw_without_rendering()
        for axis in figure.axes:
            left, right = axis._left_title, axis._right_title
            if right.get_text():
                assert not left.get_window_extent().overlaps(right.get_window_extent())
        told = figure.legends[0].get_title().get_text()
        assert ("15 to 100 seeds" in told) == (scores is long) == (not figure.axes[0].get_title("right"))


def test_seeds_stand_against_what_was_published():
    scores = {
        "pong": {"spr": np.array([1.0, 2.0, 6.0]), "vcr": np.array([4.0])},
        "boxing": {"vcr": np.ones(2)},
    }
    known = {"pong": {"spr": figures.Known(2.5, (-1.0, 9.0), (1.5, 4.0)), "vcr": figures.Known(5.0)}}
    figure = figures.seed_scores(scores, known)
    pong, boxing = figure.axes
    assert [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in pong.patches] == [(-1, 9), (1.5, 4)]
    assert [line.get_xdata()[0] for line in pong.lines if line.get_label() == "_known"] == [2.5, 5.0]
    seeds = [list(line.get_xdata()) for line in pong.lines if line.get_label() == "_seed"]
    assert seeds == [[1, 2, 6], [4]]
    assert line(pong, "spr").get_xdata()[0] == 3
    assert pong.get_xlim()[0] < -1 and pong.get_xlim()[1] > 9
    assert [tick.get_text() for tick in pong.get_yticklabels()] == ["spr", "vcr"]
    assert [tick.get_text() for tick in boxing.get_yticklabels()] == ["vcr"]
    assert pong.get_ylim() == boxing.get_ylim()
    assert not boxing.patches and boxing.get_title(loc="right") == "2 seeds"
    assert texts(figure)[0][-1] == "95% of means of as many"


@pytest.mark.parametrize("tasks", [1, 4, 5, 11])
def test_every_column_has_a_labelled_axis(tasks):
    figure = figures.learning_curves({f"t{i}": {"vcr": curve(i, runs=2)} for i in range(tasks)})
    assert len(figure.axes) == tasks
    columns = {axis.get_subplotspec().colspan.start for axis in figure.axes}
    assert {a.get_subplotspec().colspan.start for a in figure.axes if a.get_xlabel()} == columns


@pytest.mark.parametrize(
    ("steps", "largest", "text"),
    [
        (0, 1e5, "0"),
        (2500, 3e3, "2,500"),
        (5000, 2e4, "5k"),
        (1e5, 1.1e5, "100k"),
        (5e5, 2e6, "0.5M"),
        (0.5, 1, "0.5"),
    ],
)
def test_tick_labels_are_short_and_of_one_unit(steps, largest, text):
    assert looks.short(steps, largest) == text


def test_saving_writes_a_picture_that_is_not_blank(curves, tmp_path):
    png, svg = figures.save(figures.learning_curves(curves), tmp_path / "new" / "curves.v1")
    assert (png.name, svg.name) == ("curves.v1.png", "curves.v1.svg")
    pixels = np.asarray(Image.open(png).convert("L"), dtype=float)
    assert pixels.var() > 100
    assert pixels[0].min() == 255  # nothing is cut off at the edges
    assert pixels[-1].min() == 255
    assert sorted(p.name for p in png.parent.iterdir()) == ["curves.v1.png", "curves.v1.svg"]
    assert [p.name for p in figures.save(figures.learning_curves(curves), tmp_path / "c", ["png"])] == [
        "c.png"
    ]


def test_the_same_data_gives_the_same_bytes(curves, tmp_path):
    kinds = ["png", "svg", "pdf"]
    first = figures.save(figures.learning_curves(curves), tmp_path / "a", kinds)
    with matplotlib.rc_context({"lines.linewidth": 9, "axes.facecolor": "red", "svg.hashsalt": "other"}):
        second = figures.save(figures.learning_curves(curves), tmp_path / "b", kinds)
    assert first[2].read_bytes().startswith(b"%PDF-") and len(first) == 3
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_saving_again_gives_the_same_and_an_unknown_kind_nothing(curves, tmp_path):
    figure = figures.learning_curves(curves)
    (one,) = figures.save(figure, tmp_path / "a", ["svg"])
    (other,) = figures.save(figure, tmp_path / "b", ["svg"])
    assert one.read_bytes() == other.read_bytes()
    with pytest.raises(UserError, match="did you mean png"):
        figures.save(figure, tmp_path / "new" / "c", ["svg", "pngg"])
    assert not (tmp_path / "new").exists()


def test_an_unwritable_place_is_told_in_a_line(curves, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        figures.save(figures.interval_bars({"catch": {"vcr": np.arange(3.0)}}), tmp_path / "file" / "curves")
