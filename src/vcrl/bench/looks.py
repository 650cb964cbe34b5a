"""How every figure looks: colours, panels, ticks, and writing it to disk."""

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from vcrl.core.errors import UserError
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
    "svg.fonttype": "path",  # looks the same where the font is not installed
    "svg.hashsalt": "vcrl",  # otherwise identifiers are random, and the same data gives different files
}


# No date and no version in the files.
PLAIN: dict[str, dict[str, Any]] = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}


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
USUAL = ("rainbow", "spr", "vcr")  # keep their looks whichever of them a figure shows


def looks(methods: Iterable[str]) -> dict[str, Look]:
    """A look per method, the usual methods first and then the others as they come."""
    found = list(dict.fromkeys(methods))
    others = [m for m in found if m not in USUAL]
    order = [m for m in USUAL if m in found] + others
    place = {m: USUAL.index(m) if m in USUAL else len(USUAL) + others.index(m) for m in order}
    return {m: LOOKS[place[m] % len(LOOKS)] for m in order}


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
    counts = list(counts)
    low, high = min(counts, default=0), max(counts, default=0)
    text = f"{low} to {high} seeds" if low != high else f"{low} seed{'s' * (low != 1)}"
    axis.set_title(text, loc="right", fontsize=7, color=QUIET)


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


def save(figure: Figure, path: str | Path, kinds: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write `path`.png and `path`.svg, each whole or not at all; the same figure gives the same bytes."""
    stem, written = Path(path), []
    for kind in kinds:
        image, out = io.BytesIO(), stem.with_name(f"{stem.name}.{kind}")
        with matplotlib.rc_context(STYLE):
            figure.savefig(image, format=kind, dpi=200, metadata=PLAIN[kind])
        with writing(out):
            out.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(out, image.getvalue())
        written.append(out)
    return written
