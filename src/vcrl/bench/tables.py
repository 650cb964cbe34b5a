"""Results as text: a Markdown table that is also aligned for the eye, and the same for a terminal."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from rich import box
from rich.markup import escape
from rich.table import Table

from vcrl.bench.stats import Interval


class Summary(NamedTuple):
    """One method on one task; Q errors are on imagined and on real states, `diverged` counts seeds."""

    task: str
    method: str
    seeds: int
    iqm: Interval
    q_error: Interval | None
    q_error_real: Interval | None
    diverged: int


class Column(NamedTuple):
    """A heading and its cells."""

    heading: str
    cells: list[str]
    numeric: bool


class Cell(NamedTuple):
    """One entry of a table; the best of its kind are set in bold."""

    text: str
    best: bool = False


class Sheet(NamedTuple):
    """A table for a paper: entries in rows, `rules` the rows before which a line stands; words yet unescaped."""

    caption: str
    headings: list[str]
    numeric: list[bool]  # columns that are aligned to the right
    rows: list[list[Cell]]
    rules: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


def sheet_markdown(sheet: Sheet) -> str:
    """A table for a paper as Markdown: its caption, its rows, its notes."""
    told = [[f"**{plain(c.text)}**" if c.best else plain(c.text) for c in row] for row in sheet.rows]
    columns = [
        Column(plain(heading), [row[i] for row in told], sheet.numeric[i])
        for i, heading in enumerate(sheet.headings)
    ]
    notes = [f"{plain(note)}." for note in sheet.notes]
    return "\n\n".join([f"**{plain(sheet.caption)}.**", markdown(columns), *notes])


def plain(text: str) -> str:
    """Text that Markdown leaves as it is, on one line."""
    return re.sub(r"([\\`*|<>])", r"\\\1", " ".join(text.split()))


def summary_table(rows: Sequence[Summary]) -> str:
    """The rows as Markdown."""
    return markdown(_columns(rows))


def markdown(columns: Sequence[Column]) -> str:
    """Columns as Markdown, padded to line up."""
    least = 2  # "-:" is the shortest rule of a column that is aligned
    widths = [max(least, *map(len, (column.heading, *column.cells))) for column in columns]
    rules = ["-" * (w - 1) + ":" if c.numeric else "-" * w for c, w in zip(columns, widths, strict=True)]
    lines = [[c.heading for c in columns], rules, *zip(*(c.cells for c in columns), strict=True)]
    padded = [
        [t.rjust(w) if c.numeric else t.ljust(w) for t, w, c in zip(line, widths, columns, strict=True)]
        for line in lines
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in padded)


def rich_table(rows: Sequence[Summary]) -> Table:
    """The rows for a terminal, a line between tasks."""
    columns = _columns(rows)
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False, collapse_padding=True, header_style="bold")
    for column in columns:
        whole = not any("[" in cell for cell in column.cells)  # a narrow terminal breaks intervals, not names
        table.add_column(column.heading, justify="right" if column.numeric else "left", no_wrap=whole)
    for i, cells in enumerate(zip(*(c.cells for c in columns), strict=True)):
        last = i + 1 == len(rows) or rows[i + 1].task != rows[i].task
        table.add_row(*map(escape, cells), style="red" if rows[i].diverged else None, end_section=last)
    return table


def interval_text(value: Interval | None, seeds: int = 2) -> str:
    """`0.93 [0.85, 0.99]`; one seed has no interval, and claims none."""
    if value is None:
        return "-"
    if seeds < 2:
        return number_text(value.point)
    point, low, high = number_texts(value)
    return f"{point} [{low}, {high}]"


def number_text(value: float) -> str:
    """A number with about three digits."""
    return _number(value, _decimals(value))


def number_texts(values: Sequence[float]) -> list[str]:
    """Numbers that belong together, with as many decimals as suit the largest."""
    decimals = _decimals(max(values, key=abs))
    return [_number(value, decimals) for value in values]


def _columns(rows: Sequence[Summary]) -> list[Column]:
    """Only columns that say something, so that the usual ones fit a narrow terminal."""
    columns = [
        Column("task", [r.task for r in rows], False),
        Column("method", [r.method for r in rows], False),
        Column("seeds", [str(r.seeds) for r in rows], True),
        Column("score (IQM, 95%)", [interval_text(r.iqm, r.seeds) for r in rows], True),
    ]
    if any(r.q_error for r in rows):
        columns.append(Column("Q error imagined", [interval_text(r.q_error, r.seeds) for r in rows], True))
    if any(r.q_error_real for r in rows):
        columns.append(Column("Q error real", [interval_text(r.q_error_real, r.seeds) for r in rows], True))
    if any(r.diverged for r in rows):
        columns.append(Column("diverged", [str(r.diverged) for r in rows], True))
    return columns


def _decimals(value: float) -> int:
    """About three digits of a number of ordinary size, and no fewer than two of a small one."""
    for least, decimals in ((100, 0), (10, 1), (0.1, 2), (0.01, 3)):
        if abs(value) >= least:
            return decimals
    return 4 if value else 2


def _number(value: float, decimals: int) -> str:
    return f"{value:z,.{decimals}f}"  # z: no minus before a zero
