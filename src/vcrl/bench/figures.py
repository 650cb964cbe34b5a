"""One function per figure: plain data in, a matplotlib `Figure` out."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from vcrl.bench.looks import (
    INK,
    QUIET,
    STYLE,
    Look,
    count_seeds,
    draw_band,
    fit_notes,
    key,
    label_edges,
    legend,
    looks,
    panels,
    save,
    seeds_text,
    steps_axis,
)
from vcrl.bench.stats import band, tasks_of
from vcrl.core.errors import UserError, unknown

__all__ = ["Curve", "Known", "interval_bars", "learning_curves", "q_error_curves", "save", "seed_scores"]

NOTES = ["lines: IQM over seeds", "bands: 95% bootstrap interval"]
SEED: dict[str, Any] = {"markersize": 4, "markeredgecolor": "white", "markeredgewidth": 0.4}
MEAN: dict[str, Any] = {"markersize": 6.5, "markeredgecolor": "white", "markeredgewidth": 0.6}
DOT: dict[str, Any] = {"markersize": 2.6, "markeredgecolor": "white", "markeredgewidth": 0.3}
FEW, LINES = 20, 40  # more single seeds than these, in a row or in a panel of curves, are a smear
KINDS: dict[str, Any] = {"imagined": "-", "real": (0, (4, 1.6))}


class Curve(NamedTuple):
    """One method on one task: `values` [runs, points] measured after `steps` [points] agent steps."""

    steps: np.ndarray
    values: np.ndarray


class Known(NamedTuple):
    """What others published of one method on one task: the mean, and perhaps where runs and means of runs lie."""

    mean: float
    runs: tuple[float, float] | None = None
    means: tuple[float, float] | None = None


@matplotlib.rc_context(STYLE)
def learning_curves(
    curves: Mapping[str, Mapping[str, Curve]],
    *,
    references: Mapping[str, Mapping[str, float]] | None = None,
    label: str = "score",
) -> Figure:
    """Score against agent steps, a panel per task; `references` are level lines such as a random agent's."""
    figure, axes = panels(list(curves), size=(3.0, 2.2), extra=0.6)
    styles = looks(m for task in curves.values() for m in task)
    left_out = dict.fromkeys(styles, 0)
    for axis, (task, methods) in zip(axes, curves.items(), strict=True):
        steps_axis(axis)
        counts = []
        for place, (method, look) in enumerate(styles.items()):
            if method not in methods:
                continue
            curve = _finite(methods[method], f"{task}, {method}")
            counts.append(len(curve.values))
            left_out[method] += len(methods[method].values) - len(curve.values)
            if sum(len(c.values) for c in methods.values()) <= LINES:
                style = {"color": look.color, "alpha": 0.22, "linewidth": 0.6, "label": "_seed"}
                axis.plot(curve.steps, curve.values.T, **style)
            _draw(axis, curve, look, look.line, method, place)
        _levels(axis, (references or {}).get(task, {}))
        count_seeds(axis, counts)
    label_edges(axes, "agent steps", label)
    keys = [key(m, s, s.line) for m, s in styles.items()]
    faint = any(line.get_label() == "_seed" for axis in axes for line in axis.lines)
    legend(figure, keys, [*NOTES, *(["faint lines: single seeds"] if faint else [])], left_out)
    return figure


@matplotlib.rc_context(STYLE)
def q_error_curves(
    curves: Mapping[str, Mapping[str, Mapping[str, Curve]]], *, label: str = "Q error"
) -> Figure:
    """Q error on imagined states (solid) and on real ones (dashed) against agent steps, a panel per task."""
    figure, axes = panels(list(curves), size=(3.0, 2.2), extra=0.6)
    styles = looks(m for task in curves.values() for m in task)
    left_out = dict.fromkeys(styles, 0)
    for axis, (task, methods) in zip(axes, curves.items(), strict=True):
        steps_axis(axis)
        counts = []
        for place, (method, look) in enumerate(styles.items()):
            kinds = {k: _finite(c, f"{task}, {method}, {k}") for k, c in methods.get(method, {}).items()}
            for kind, curve in kinds.items():
                if kind not in KINDS:
                    raise unknown("Q error", kind, KINDS, f"({task}, {method})")
                _draw(axis, curve, look, KINDS[kind], f"{method} {kind}", place)
            counts += [len(curve.values) for curve in kinds.values()]
            missing = [len(methods[method][k].values) - len(c.values) for k, c in kinds.items()]
            left_out[method] += max(missing, default=0)
        if axis.dataLim.y0 >= 0:
            axis.set_ylim(bottom=0.0)  # the size of an error counts, not only its change
        count_seeds(axis, counts)
    label_edges(axes, "agent steps", label)
    keys = [key(m, s, "none") for m, s in styles.items()]
    used = {k for task in curves.values() for kinds in task.values() for k in kinds}
    keys += [Line2D([], [], color=INK, linestyle=KINDS[k], label=k) for k in KINDS if k in used]
    legend(figure, keys, NOTES, left_out)
    return figure


@matplotlib.rc_context(STYLE)
def interval_bars(scores: Mapping[str, Mapping[str, np.ndarray]], *, label: str = "score") -> Figure:
    """IQM with its 95% interval for every method, a panel per task; markers are the runs, where few."""
    styles = looks(m for task in scores.values() for m in task)
    width, height = 2.6, 0.30 * len(styles) + 0.75
    figure, axes = panels(list(scores), size=(width, height), extra=0.3)
    room = width - 0.2 - 0.062 * max(map(len, styles), default=0)  # inches beside the names, about
    counts = {task: [len(runs) for runs in methods.values()] for task, methods in scores.items()}
    crowded = any(0.09 * len(task) + 0.06 * len(seeds_text(counts[task])) > room for task in scores)
    for axis, (task, methods) in zip(axes, scores.items(), strict=True):
        for row, (method, look) in enumerate(styles.items()):
            if method not in methods:
                continue
            runs = np.asarray(methods[method], dtype=float)
            (runs,) = tasks_of([runs], [f"{task}, {method}"])
            point, low, high = (float(end[0]) for end in band(runs[:, None]))
            axis.barh(row, high - low, left=low, height=0.56, color=look.color, alpha=0.35, linewidth=0)
            axis.plot([point, point], [row - 0.28, row + 0.28], color=look.color, linewidth=2.2, label=method)
            if len(runs) <= FEW:
                axis.plot(runs, np.full(len(runs), row), look.marker, color=look.color, label="_seed", **DOT)
        axis.set_yticks(range(len(styles)), list(styles))
        axis.set_ylim(len(styles) - 0.45, -0.55)  # first method on top
        axis.tick_params(axis="y", length=0)
        axis.spines["left"].set_visible(False)
        axis.grid(axis="x", color="#e6e6e6", linewidth=0.6)
        axis.use_sticky_edges = False  # bars need a margin too
        axis.margins(x=0.05)
        axis.xaxis.set_major_locator(MaxNLocator(nbins=4 if room > 1.6 else 2, steps=[1, 2, 2.5, 5, 10]))
        if not crowded:
            count_seeds(axis, counts[task])
    label_edges(axes, label, "")
    notes = ["ticks: IQM over seeds", "bars: 95% bootstrap interval"]
    if crowded:
        notes.insert(0, seeds_text([count for at in counts.values() for count in at]))
    if any(line.get_label() == "_seed" for axis in axes for line in axis.lines):
        notes.append("markers: single seeds")
    title = fit_notes(notes, figure.get_size_inches()[0])
    figure.legend(handles=[], title=title, title_fontproperties={"size": 7}, loc="outside lower center")
    return figure


@matplotlib.rc_context(STYLE)
def seed_scores(
    scores: Mapping[str, Mapping[str, np.ndarray]],
    known: Mapping[str, Mapping[str, Known]],
    *,
    label: str = "score",
) -> Figure:
    """Every seed as a marker against what was published of its method; a panel per task, a row per method it has."""
    styles = looks(m for task in scores.values() for m in task)
    rows = max(map(len, scores.values()), default=0)
    figure, axes = panels(list(scores), size=(2.7, 0.36 * rows + 0.62), extra=0.75)
    for axis, (task, methods) in zip(axes, scores.items(), strict=True):
        shown = [method for method in styles if method in methods]
        for row, method in enumerate(shown):
            look = styles[method]
            told = known.get(task, {}).get(method)
            if told is not None:
                for ends, height, shade in ((told.runs, 0.66, "#e3e3e3"), (told.means, 0.36, "#a9a9a9")):
                    if ends is not None:
                        axis.barh(row, ends[1] - ends[0], left=ends[0], height=height, color=shade)
                axis.plot([told.mean] * 2, [row - 0.36, row + 0.36], color=INK, linewidth=1.2, label="_known")
            runs = np.asarray(methods[method], dtype=float)
            # Seeds above the middle of their row and the mean below it, so that neither covers the other.
            axis.plot(
                runs, np.full(len(runs), row - 0.16), look.marker, color=look.color, label="_seed", **SEED
            )
            axis.plot([runs.mean()], [row + 0.2], marker="^", color=look.color, label=method, **MEAN)
        axis.set_yticks(range(len(shown)), shown)
        axis.set_ylim(rows - 0.5, -0.5)  # rows are of one height in all panels
        axis.tick_params(axis="y", length=0)
        axis.spines["left"].set_visible(False)
        axis.use_sticky_edges = False  # bars need a margin too
        axis.margins(x=0.04)
        axis.xaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10]))
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        count_seeds(axis, (len(runs) for runs in methods.values()))
    label_edges(axes, label, "")
    keys = [
        Line2D([], [], color=QUIET, linestyle="none", marker="o", label="a seed", **SEED),
        Line2D([], [], color=QUIET, linestyle="none", marker="^", label="mean of our seeds", **MEAN),
        Line2D([], [], color=INK, linewidth=1.2, label="mean published"),
        Patch(color="#e3e3e3", label="90% of published runs"),
        Patch(color="#a9a9a9", label="95% of means of as many"),
    ]
    legend(figure, keys, [], {})
    return figure


def _finite(curve: Curve, where: str) -> Curve:
    """Without the seeds that turned non-finite; the legend tells how many those are."""
    steps, values = np.asarray(curve.steps, dtype=float), np.asarray(curve.values, dtype=float)
    if values.ndim != 2 or steps.shape != values.shape[1:] or values.size == 0:
        raise UserError(f"{where}: values of shape {values.shape} do not fit steps of shape {steps.shape}")
    return Curve(steps, values[np.isfinite(values).all(axis=1)])


def _draw(axis: Axes, curve: Curve, look: Look, line: Any, name: str, place: int) -> None:
    if len(curve.values):
        draw_band(axis, curve.steps, band(curve.values), look, line, name, place)


def _levels(axis: Axes, levels: Mapping[str, float]) -> None:
    """Level lines, named at their right end."""
    for name, value in levels.items():
        axis.axhline(value, color=INK, linewidth=0.9, linestyle=(0, (1, 2.5)), label=f"_{name}")
        label = axis.annotate(
            name,
            (1.0, value),
            xycoords=("axes fraction", "data"),
            xytext=(0, 1.5),
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize=6.5,
            color=INK,
        )
        label.set_path_effects([withStroke(linewidth=2, foreground="white")])
    low, high = axis.get_ylim()
    named = max(levels.values(), default=low) + 0.08 * (high - low)
    axis.set_ylim(low, max(high, named))  # keeps the highest name out of the title
