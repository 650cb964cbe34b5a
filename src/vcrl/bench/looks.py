"""How every figure looks: colours, panels, ticks, and writing it to disk."""

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from vcrl.bench.stats import Band
from vcrl.core.errors import UserError, unknown
from vcrl.runs.files import write_atomic, writing

INK, QUIET = "#222222", "#6b6b6b"

# The library's defaults come first, so that a reader's own matplotlibrc cannot change a figure.
STYLE: dict[Any, Any] = {
    **{key: value for key, value in matplotlib.rcParamsDefault.items() if not key.startswith("backend")},
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": QUIET,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": False,
    "axes.titlesize": 9,
    "axes.titlepad": 6,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "savefig.bbox": None,
    "pdf.fonttype": 42,  # whole fonts, as publishers ask for
    "svg.fonttype": "path",  # looks the same where the font is not installed
    "svg.hashsalt": "vcrl",  # otherwise identifiers are random, and the same data gives different files
}


# No date and no version in the files.
PLAIN: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


class Look(NamedTuple):
    """What tells one method from another, three times over: hue, line and marker."""

    color: str
    line: Any
    marker: str


# Okabe-Ito, ordered so that the first ones also differ in lightness when printed in grey.
LOOKS = (
    Look("#56B4E9", (0, (1, 1.2)), "^"),
    Look("#0072B2", (0, (5, 1.6)), "s"),
    Look("#D55E00", "-", "o"),
    Look("#000000", (0, (5, 1.5, 1, 1.5)), "D"),
    Look("#009E73", (0, (3, 1, 1, 1, 1, 1)), "v"),
    Look("#CC79A7", (0, (8, 2)), "P"),
    Look("#E69F00", (0, (2, 2)), "X"),
)
MORE = ("<", ">", "*", "h", "p", "d", "8")  # markers of those beyond, which repeat hues with other lines
USUAL = ("rainbow", "spr", "vcr")  # keep their looks whichever of them a figure shows


def looks(methods: Iterable[str]) -> dict[str, Look]:
    """A look per method, the usual methods first and then the others as they come."""
    found = list(dict.fromkeys(methods))
    others = [m for m in found if m not in USUAL]
    order = [m for m in USUAL if m in found] + others
    place = {m: USUAL.index(m) if m in USUAL else len(USUAL) + others.index(m) for m in order}
    return {m: _look(place[m]) for m in order}


def _look(place: int) -> Look:
    turn, at = divmod(place, len(LOOKS))
    if turn == 0:
        return LOOKS[at]
    return Look(LOOKS[at].color, LOOKS[(at + 3 * turn) % len(LOOKS)].line, MORE[at])


def panels(
    tasks: Sequence[str], *, size: tuple[float, float], extra: float = 0.5
) -> tuple[Figure, list[Axes]]:
    """A figure with one titled panel per task; `extra` inches of height are left for the legend."""
    if not tasks:
        raise UserError("nothing to draw: no task was given")
    count = len(tasks)
    columns = {4: 2}.get(count, min(count, 3 if count <= 9 else 4 if count <= 16 else 5))
    rows = -(-count // columns)
    figure = Figure(figsize=(max(columns * size[0], 4.8), rows * size[1] + extra), layout="constrained")
    FigureCanvasAgg(figure)
    axes = [figure.add_subplot(rows, columns, i + 1) for i in range(count)]
    for axis, task in zip(axes, tasks, strict=True):
        axis.set_title(task, loc="left", fontweight="bold")
        axis.tick_params(length=2.5, width=0.7)
    return figure, axes


def label_edges(axes: Sequence[Axes], x: str, y: str) -> None:
    """Axis labels once per row and per column, on the outermost panel that exists."""
    cells: dict[tuple[int, int], Axes] = {}
    for axis in axes:
        if (spec := axis.get_subplotspec()) is not None:
            cells[spec.rowspan.start, spec.colspan.start] = axis
    for (row, column), axis in cells.items():
        if column == 0 and y:
            axis.set_ylabel(y)
        if (row + 1, column) not in cells and x:
            axis.set_xlabel(x)


def steps_axis(axis: Axes) -> None:
    """Few ticks, large numbers written short."""
    axis.xaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10]))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value, axis.get_xlim()[1])))
    axis.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    axis.grid(axis="y", color="#e6e6e6", linewidth=0.6)


def short(steps: float, largest: float) -> str:
    """A number of steps as a tick label, in the unit that suits the largest on its axis."""
    for size, unit, letter in ((1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if largest >= size and steps:
            return f"{steps / unit:g}{letter}"
    return f"{steps:,g}"


def count_seeds(axis: Axes, counts: Iterable[int]) -> None:
    """How many seeds stand behind a panel, in its upper right corner."""
    axis.set_title(seeds_text(list(counts)), loc="right", fontsize=7, color=QUIET)


def seeds_text(counts: Sequence[int]) -> str:
    low, high = min(counts, default=0), max(counts, default=0)
    return f"{low} to {high} seeds" if low != high else f"{low} seed{'s' * (low != 1)}"


def fit_notes(notes: Sequence[str], room: float) -> str:
    """Notes on as few lines as `room` inches allow at the size of a legend title."""
    lines = [""]
    for note in notes:
        joined = f"{lines[-1]};  {note}" if lines[-1] else note
        if len(joined) * 0.062 < room:
            lines[-1] = joined
        else:
            lines.append(note)
    return "\n".join(lines)


def draw_band(axis: Axes, x: np.ndarray, middle: Band, look: Look, line: Any, name: str, place: int) -> None:
    """A line with its band; `place` staggers the markers, so that those of close lines do not cover."""
    fill = {"color": look.color, "alpha": 0.18, "linewidth": 0, "label": f"_{name} band"}
    axis.fill_between(x, middle.low, middle.high, **fill)
    every = max(1, len(x) // 5)
    axis.plot(
        x,
        middle.point,
        color=look.color,
        linestyle=line,
        linewidth=1.7,
        marker=look.marker,
        markevery=(min(place * every // 3, len(x) - 1), every),
        markersize=4,
        markeredgecolor="white",
        markeredgewidth=0.5,
        label=name,
    )


def key(method: str, look: Look, line: Any) -> Line2D:
    """What stands for a method in a legend."""
    style = {"color": look.color, "marker": look.marker, "markersize": 4.5, "linewidth": 1.7}
    return Line2D([], [], linestyle=line, label=method, **style)


def legend(figure: Figure, keys: Sequence[Artist], notes: list[str], left_out: Mapping[str, int]) -> None:
    """One legend below all panels: the notes above the keys, both broken to the width of the figure."""
    room = figure.get_size_inches()[0]
    missing = ", ".join(f"{count} of {method}" for method, count in left_out.items() if count)
    notes = [*notes, f"non-finite runs left out: {missing}"] if missing else notes
    entries = [0.6 + 0.065 * len(str(one.get_label())) for one in keys]  # about their widths in inches
    drawn = figure.legend(
        handles=keys,
        title=fit_notes(notes, room) or None,
        title_fontproperties={"size": 7},
        loc="outside lower center",
        ncols=len(keys) if sum(entries) < room else max(1, int(room / max(entries))),
        handlelength=2.6,
        columnspacing=1.8,
    )
    drawn.get_title().set_multialignment("center")


def save(figure: Figure, path: str | Path, kinds: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write `path`.png and `path`.svg, or .pdf, each whole or not at all; the same figure gives the same bytes."""
    stem, written = Path(path), []
    for kind in kinds:
        if kind not in PLAIN:
            raise unknown("kind of figure", kind, PLAIN)
    for kind in kinds:
        image, out = io.BytesIO(), stem.with_name(f"{stem.name}.{kind}")
        with matplotlib.rc_context(STYLE):
            figure.savefig(image, format=kind, dpi=200, metadata=PLAIN[kind])
        figure.set_layout_engine("none")  # laid out once: again would take as long, and move things a little
        with writing(out):
            out.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(out, image.getvalue())
        written.append(out)
    return written
