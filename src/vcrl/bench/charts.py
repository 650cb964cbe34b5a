"""Figures of what many runs on many tasks come to: aggregates, profiles, comparisons. One function each."""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from vcrl.bench.aggregates import LESS_IS_BETTER, Aggregates, Matrices, present, profiles, runs_per_task
from vcrl.bench.looks import (
    INK,
    QUIET,
    STYLE,
    count_seeds,
    draw_band,
    key,
    label_edges,
    legend,
    looks,
    panels,
)
from vcrl.bench.stats import Band, Interval
from vcrl.core.errors import UserError, unknown

WORDS = {"iqm": "IQM", "optimality_gap": "optimality gap", "median": "median", "mean": "mean"}
SCALINGS = {"linear": "linear scale", "non-linear": "non-linear scale"}
BARS = "bars: 95% bootstrap interval"
GRID = "#e6e6e6"


@matplotlib.rc_context(STYLE)
def aggregate_bars(
    found: Aggregates, names: Sequence[str] = ("iqm", "optimality_gap"), *, label: str = "normalised score"
) -> Figure:
    """Aggregates over all tasks with their intervals, a panel per statistic, a row per method.

    A number without an interval, as published ones are, is a hollow diamond.
    """
    styles = looks(found)
    figure, axes = _rows(found, names)
    for axis, name in zip(axes, names, strict=True):
        for row, (method, look) in enumerate(styles.items()):
            if name in found[method]:
                _interval(axis, row, found[method][name], look.color, method)
        _tidy(axis, list(styles), label)
    notes = ["ticks: point estimates", BARS]
    if any(not np.isfinite(one[n].low) for one in found.values() for n in names if n in one):
        notes.append("hollow: published, interval not known")
    legend(figure, [], notes, {})
    return figure


@matplotlib.rc_context(STYLE)
def performance_profiles(
    scores: Matrices,
    taus: np.ndarray | None = None,
    *,
    scalings: Sequence[str] = ("linear", "non-linear"),
    tasks: Sequence[str] | None = None,
    label: str = "normalised score",
    draws: int = 2000,
) -> Figure:
    """Share of runs above each score, with 95% bands, a panel per scaling of that score.

    The linear one leaves out the highest scores, which are few and far. The non-linear one gives each range of scores
    room in proportion to the runs in it, averaged over methods; without `taus`, it shows all scores.
    """
    for name in scalings:
        if name not in SCALINGS:
            raise unknown("scaling", name, SCALINGS)
    if not scores:
        raise UserError("nothing to draw: no method was given")
    pooled = np.concatenate([run for m, x in scores.items() for run in present(x, m, tasks)])
    low, high = min(0.0, float(np.quantile(pooled, 0.025))), float(np.quantile(pooled, 0.975))
    if taus is None:
        taus = np.unique([*np.linspace(low, high, 101), *np.quantile(pooled, np.linspace(0, 1, 101))])
    else:
        low, high = float(np.min(taus)), float(np.max(taus))
    found = profiles(scores, taus, tasks=tasks, draws=draws)
    figure, axes = panels([SCALINGS[name] for name in scalings], size=(3.3, 2.7), extra=0.6)
    styles = looks(scores)
    for axis, scaling in zip(axes, scalings, strict=True):
        x = taus if scaling == "linear" else room_by_runs(found)
        for place, (method, look) in enumerate(styles.items()):
            draw_band(axis, x, found[method], look, look.line, method, place)
        if scaling == "linear":
            axis.set_xlim(low, high)
            axis.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
        else:
            ticks = _spread_ticks(taus, x)
            axis.set_xticks([at for _, at in ticks], [f"{value:g}" for value, _ in ticks])
            axis.set_xlim(x[0], x[-1])
        axis.set_ylim(0, 1.01)
        axis.grid(color=GRID, linewidth=0.6)
    count_seeds(axes[-1], (n for x in scores.values() for n in runs_per_task(x)))
    label_edges(axes, rf"{label} $\tau$", r"share of runs above $\tau$")
    keys = [key(m, s, s.line) for m, s in styles.items()]
    notes = ["bands: 95% bootstrap interval"]
    if "non-linear" in scalings:
        notes.append("non-linear: room for scores by the runs that have them")
    legend(figure, keys, notes, {})
    return figure


@matplotlib.rc_context(STYLE)
def improvement_bars(found: Mapping[tuple[str, str], Interval]) -> Figure:
    """Probability that a run of the first method beats one of the second, a row per pair, with intervals."""
    if not found:
        raise UserError("nothing to draw: a probability of improvement needs two methods")
    figure, (axis,) = panels(["probability of improvement"], size=(4.8, 0.3 * len(found) + 0.8), extra=0.3)
    styles = looks(method for pair in found for method in pair)
    for row, ((first, second), value) in enumerate(found.items()):
        _interval(axis, row, value, styles[first].color, f"{first} > {second}")
    axis.axvline(0.5, color=INK, linewidth=0.9, linestyle=(0, (4, 2)), label="_even")
    _tidy(axis, [f"{first} > {second}" for first, second in found], "probability, averaged over tasks")
    axis.set_xlim(0, 1)
    legend(figure, [], ["ticks: point estimates", BARS, "dashed: no difference"], {})
    return figure


@matplotlib.rc_context(STYLE)
def ablation_bars(
    found: Aggregates,
    baseline: str,
    names: Sequence[str] = ("iqm", "optimality_gap"),
    *,
    label: str = "normalised score",
) -> Figure:
    """Variants as bars from zero, with whiskers and their numbers; the dashed line is the baseline's level."""
    if baseline not in found:
        raise unknown("baseline", baseline, found)
    figure, axes = _rows(found, names)
    for axis, name in zip(axes, names, strict=True):
        for row, (variant, one) in enumerate(found.items()):
            if name not in one:
                continue
            point, low, high = one[name]
            plain = {"facecolor": "#9ec9e2", "edgecolor": INK, "linewidth": 0.7}
            style = {**plain, "facecolor": "white", "hatch": "////"} if variant == baseline else plain
            axis.barh(row, point, height=0.62, label=variant, **style)
            if np.isfinite(low):
                axis.plot([low, high], [row, row], color=INK, linewidth=1.3, marker="|", label="_interval")
            beyond = max(point, high if np.isfinite(high) else point, 0.0)
            offset = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": 7}
            number = axis.annotate(_number(point), (beyond, row), **offset)
            number.set_path_effects([withStroke(linewidth=2, foreground="white")])
        if name in found[baseline]:
            level = found[baseline][name].point
            axis.axvline(level, color=INK, linewidth=0.9, linestyle=(0, (4, 2)), label="_baseline")
        _tidy(axis, list(found), label)
        axis.margins(x=0.14)  # for the numbers
        if axis.dataLim.x0 >= 0:
            axis.set_xlim(left=0)
    whiskers = any(np.isfinite(one[n].low) for one in found.values() for n in names if n in one)
    notes = ["whiskers: 95% bootstrap interval"] if whiskers else []
    legend(figure, [Patch(facecolor="white", edgecolor=INK, hatch="////", label=baseline)], notes, {})
    return figure


def room_by_runs(found: Mapping[str, Band]) -> np.ndarray:
    """Where each tau stands if a range of scores gets room in proportion to the runs in it."""
    return 1.0 - np.mean([one.point for one in found.values()], axis=0)


def _spread_ticks(taus: np.ndarray, x: np.ndarray) -> list[tuple[float, float]]:
    """Round scores and where they stand, as many as fit; zero and one come first."""
    span = max(float(np.abs(taus).max()), 1e-9)
    powers = [10.0**e for e in range(int(np.floor(np.log10(span))) - 2, 7)]
    sizes = [base * power for power in powers for base in (1, 2, 5)]
    between = [base * power for power in powers for base in (3, 4, 6, 7, 8, 9)]  # where those leave room
    wanted = [
        0.0,
        1.0,
        *(sign * x for group in (sizes, between) for x in reversed(group) for sign in (1, -1)),
    ]
    kept: list[tuple[float, float]] = []
    for value in wanted:
        if taus[0] <= value <= taus[-1]:
            at = float(np.interp(value, taus, x))
            if all(abs(at - other) >= 0.075 for _, other in kept):
                kept.append((value, at))
    return sorted(kept)


def _rows(found: Aggregates, names: Sequence[str]) -> tuple[Figure, list[Axes]]:
    """A panel per statistic, high enough for a row per method."""
    known = {name for one in found.values() for name in one}
    for name in names:
        if name not in known:
            raise unknown("statistic", name, known)
    titles = [f"{WORDS.get(n, n)} ({'less' if n in LESS_IS_BETTER else 'more'} is better)" for n in names]
    return panels(titles, size=(3.2, 0.28 * len(found) + 0.75), extra=0.3)


def _interval(axis: Axes, row: int, value: Interval, color: str, name: str) -> None:
    point, low, high = value
    if not np.isfinite(low):
        axis.plot([point], [row], marker="D", markersize=5, color=color, markerfacecolor="white", label=name)
        return
    axis.barh(row, high - low, left=low, height=0.56, color=color, alpha=0.35, linewidth=0)
    axis.plot([point, point], [row - 0.28, row + 0.28], color=color, linewidth=2.2, label=name)


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 10 else f"{value:,.0f}"


def _tidy(axis: Axes, names: Sequence[str], label: str) -> None:
    spec = axis.get_subplotspec()
    first = spec is None or spec.colspan.start == 0
    axis.set_yticks(range(len(names)), names if first else [""] * len(names))
    axis.set_ylim(len(names) - 0.45, -0.55)  # the first on top
    axis.use_sticky_edges = False  # bars need a margin too
    axis.margins(x=0.05)
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    axis.grid(axis="x", color=GRID, linewidth=0.6)
    axis.xaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    axis.set_xlabel(label, color=QUIET)
