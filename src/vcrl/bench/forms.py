"""The forms of the paper's tables, filled with anybody's numbers: one function each, to a `Sheet`.

`tables.sheet_markdown` and `latex.latex` write a sheet. Where numbers are compared, the best as printed are bold.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from vcrl.bench.aggregates import LESS_IS_BETTER, STATISTICS, Aggregates
from vcrl.bench.stats import Interval
from vcrl.bench.tables import Cell, Sheet
from vcrl.core.errors import UserError, unknown

WORDS = {"iqm": "IQM", "optimality_gap": "Optimality gap", "median": "Median", "mean": "Mean"}
GAP = Cell("-")


class Measured(NamedTuple):
    """A mean over runs, with their standard deviation and number where these are known."""

    mean: float
    sd: float | None = None
    runs: int | None = None


class Cost(NamedTuple):
    """What one training takes; `steps` is K, the number of imagined steps."""

    suite: str
    method: str
    steps: int | None
    hours: float
    hardware: str
    source: str = ""


Scores = Mapping[
    str, Mapping[str, float | tuple]
]  # by method and task: a mean, or a `Measured`, or its first parts
Foot = Mapping[str, Mapping[str, float]]  # rows below a table of tasks: by name and method


def measured(rows: Sequence[Any], names: Sequence[str]) -> dict[str, dict[str, Measured]]:
    """Raw scores of tidy rows by method and task; `names` has the method of each row, as `scores.labels` gives it."""
    runs: dict[str, dict[str, list[Any]]] = {}
    for name, row in zip(names, rows, strict=True):
        runs.setdefault(name, {}).setdefault(row.task, []).append(row)
    return {name: {task: _measured(found) for task, found in at.items()} for name, at in runs.items()}


def aggregate_table(
    found: Aggregates,
    names: Sequence[str] = STATISTICS,
    *,
    runs: Mapping[str, str] | None = None,
    percent: bool = False,
    caption: str = "Aggregates over all tasks",
) -> Sheet:
    """Aggregates with their intervals, a row per method; `runs` says how many stand behind each."""
    _known(found, names)
    columns = [_intervals(found, name, percent) for name in names]
    told = [[Cell(runs.get(method, "-"))] for method in found] if runs is not None else [[] for _ in found]
    rows = [
        [Cell(m), *t, *cells] for m, t, cells in zip(found, told, zip(*columns, strict=True), strict=True)
    ]
    return Sheet(
        caption,
        ["Method", *(["Runs"] if runs is not None else []), *(_heading(n, percent) for n in names)],
        [False, *([True] if runs is not None else []), *(True for _ in names)],
        rows,
        notes=_notes(found, names),
    )


def ablation_table(
    found: Aggregates,
    baseline: str,
    names: Sequence[str] = ("iqm", "optimality_gap"),
    *,
    percent: bool = False,
    caption: str = "Ablations",
) -> Sheet:
    """Variants, each statistic followed by its difference to the baseline's."""
    if baseline not in found:
        raise unknown("baseline", baseline, found)
    _known(found, names)
    columns: list[list[Cell]] = [[Cell(variant) for variant in found]]
    for name in names:
        base = found[baseline].get(name)
        columns.append(_intervals(found, name, percent))
        columns.append(
            [
                GAP
                if base is None or name not in one or variant == baseline
                else Cell(_signed(one[name].point - base.point, percent, like=base.point))
                for variant, one in found.items()
            ]
        )
    headings = ["Variant", *(h for n in names for h in (_heading(n, percent), f"to {baseline}"))]
    rows = [list(row) for row in zip(*columns, strict=True)]
    return Sheet(caption, headings, [False] + [True] * (len(headings) - 1), rows, notes=_notes(found, names))


def task_table(
    scores: Scores,
    tasks: Sequence[str] | None = None,
    *,
    references: Scores | None = None,
    foot: Foot | None = None,
    titles: Mapping[str, str] | None = None,
    decimals: int = 1,
    caption: str = "Scores by game",
) -> Sheet:
    """Raw scores, a row per task and a column per method, more is better; `references` such as a human stand first.

    Below stand how often each method is best, and the rows of `foot`, such as aggregates.
    """
    references = references or {}
    tasks = _tasks(scores) if tasks is None else tasks
    rows = _task_rows(scores, tasks, decimals, references, titles or {})
    blanks = [Cell("") for _ in references]
    bests = [sum(row[1 + len(references) + i].best for row in rows) for i in range(len(scores))]
    foots = [_foot_row(name, values, scores, blanks) for name, values in (foot or {}).items()]
    below = [[Cell("Best on"), *blanks, *(Cell(str(n)) for n in bests)], *foots] if len(scores) > 1 else foots
    width = 1 + len(references) + len(scores)
    return Sheet(
        caption,
        ["Task", *references, *scores],
        [False] + [True] * (width - 1),
        rows + below,
        (len(rows),),
        _spread_note(scores),
    )


def steps_table(
    scores: Scores,
    tasks: Sequence[str] | None = None,
    *,
    foot: Foot | None = None,
    titles: Mapping[str, str] | None = None,
    caption: str = "Numbers of imagined steps",
) -> Sheet:
    """Two settings such as K = 5 and K = 9 game by game, with the change from the first to the second."""
    if len(scores) != 2:
        raise UserError(f"a change is between two settings; here are {len(scores)}: {', '.join(scores)}")
    tasks = _tasks(scores) if tasks is None else tasks
    sheet = task_table(scores, tasks, foot=foot, titles=titles, caption=caption)
    first, second = ({t: _of(one, t) for t in tasks} for one in scores.values())
    changes = [_change(first[t], second[t]) for t in tasks]
    changes += [GAP] * (len(sheet.rows) - len(tasks))
    return sheet._replace(
        headings=[*sheet.headings, "Change"],
        numeric=[*sheet.numeric, True],
        rows=[[*row, change] for row, change in zip(sheet.rows, changes, strict=True)],
    )


def dmc_table(
    blocks: Mapping[str, Scores],
    *,
    foots: Mapping[str, Foot] | None = None,
    titles: Mapping[str, str] | None = None,
    caption: str = "DMControl scores",
) -> Sheet:
    """Raw scores of 0 to 1000, mean and standard deviation: a block per budget, such as 100k and 500k steps."""
    methods = list(dict.fromkeys(m for scores in blocks.values() for m in scores))
    rows: list[list[Cell]] = []
    starts: list[int] = []
    for name, scores in blocks.items():
        all_of = {m: scores.get(m, {}) for m in methods}
        starts.append(len(rows))
        new = _task_rows(all_of, _tasks(scores), 0, {}, titles or {})
        new += [_foot_row(n, v, all_of, []) for n, v in (foots or {}).get(name, {}).items()]
        rows += [[Cell(name if i == 0 else ""), *row] for i, row in enumerate(new)]
    headings = ["Budget", "Task", *methods]
    notes = dict.fromkeys(note for scores in blocks.values() for note in _spread_note(scores))
    return Sheet(caption, headings, [False, False] + [True] * len(methods), rows, tuple(starts), tuple(notes))


def time_table(costs: Sequence[Cost], *, caption: str = "Hours of one training") -> Sheet:
    """What trainings take; bold is the shortest of a suite on one kind of hardware."""
    shortest: dict[tuple[str, str], list[str]] = {}
    for cost in costs:
        shortest.setdefault((cost.suite, cost.hardware), []).append(_hours(cost.hours))
    best = {k: min(v, key=_value) for k, v in shortest.items() if len(set(v)) > 1}
    rows, rules = [], []
    for index, cost in enumerate(costs):
        if index and cost.suite != costs[index - 1].suite:
            rules.append(index)
        hours = Cell(_hours(cost.hours), _hours(cost.hours) == best.get((cost.suite, cost.hardware)))
        steps = "-" if cost.steps is None else str(cost.steps)
        texts = (cost.suite, cost.method, steps, cost.hardware, cost.source)
        before = [Cell(text) for text in texts]
        rows.append([*before[:3], hours, *before[3:]])
    headings = ["Suite", "Method", "K", "Hours", "Hardware", "Source"]
    sheet = Sheet(caption, headings, [False, False, True, True, False, False], rows, tuple(rules))
    return sheet if any(cost.source for cost in costs) else _without_last(sheet)


def _measured(rows: Sequence[Any]) -> Measured:
    """Of single runs, their mean and spread; a published mean stands alone, with the number of runs behind it."""
    values = np.array([row.score for row in rows], dtype=float)
    if len(rows) == 1 and rows[0].seed is None:
        return Measured(float(values[0]), getattr(rows[0], "sd", None), rows[0].runs or None)
    return Measured(float(values.mean()), float(values.std(ddof=1)) if len(rows) > 1 else None, len(rows))


def _tasks(scores: Scores) -> list[str]:
    return list(dict.fromkeys(task for one in scores.values() for task in one))


def _of(one: Mapping[str, float | tuple], task: str) -> Measured | None:
    value = one.get(task)
    if value is None or isinstance(value, Measured):
        return value
    return Measured(*value) if isinstance(value, tuple) else Measured(float(value))


def _task_rows(
    scores: Scores, tasks: Sequence[str], decimals: int, references: Scores, titles: Mapping[str, str]
) -> list[list[Cell]]:
    rows = []
    for task in tasks:
        known = [_of(one, task) for one in references.values()]
        texts = [_text(_of(one, task), decimals) for one in scores.values()]
        front = [
            Cell(titles.get(task, task)),
            *(Cell(" ".join(filter(None, _text(v, decimals)))) for v in known),
        ]
        rows.append([*front, *_bold(texts, max)])
    return rows


def _foot_row(
    name: str, values: Mapping[str, float], methods: Iterable[str], blanks: list[Cell]
) -> list[Cell]:
    less = name.lower().startswith("optimality gap")
    texts = [(_short(values[m]), "") if m in values else ("-", "") for m in methods]
    return [Cell(name), *blanks, *_bold(texts, min if less else max)]


def _text(value: Measured | None, decimals: int) -> tuple[str, str]:
    """The mean as printed, and what follows it."""
    if value is None or not np.isfinite(value.mean):
        return "-", ""
    after = "" if value.sd is None else f"\N{PLUS-MINUS SIGN} {value.sd:,.{decimals}f}"
    return f"{value.mean:z,.{decimals}f}", after


def _bold(texts: Sequence[tuple[str, str]], best: Callable[..., float]) -> list[Cell]:
    """Cells of one row or column, those with the best printed number bold; one number alone is not the best of any."""
    values = [_value(first) for first, _ in texts if first != "-"]
    top = best(values) if len(values) > 1 else None
    return [
        Cell(" ".join(filter(None, parts)), parts[0] != "-" and _value(parts[0]) == top) for parts in texts
    ]


def _intervals(found: Aggregates, name: str, percent: bool) -> list[Cell]:
    texts = [_interval(one.get(name), percent) for one in found.values()]
    return _bold(texts, min if name in LESS_IS_BETTER else max)


def _interval(value: Interval | None, percent: bool) -> tuple[str, str]:
    if value is None or not np.isfinite(value.point):
        return "-", ""
    point, low, high = (_short(x, percent) for x in value)
    return point, f"[{low}, {high}]" if np.isfinite(value.low) and value.low < value.high else ""


def _short(value: float, percent: bool = False, like: float | None = None) -> str:
    """Fractions with three decimals, or as percent with one; scores of hundreds, or `like` such, without any."""
    if percent:
        return f"{100 * value:z.1f}"
    size = abs(value if like is None else like)
    return f"{value:z.3f}" if size < 10 else f"{value:z,.1f}" if size < 100 else f"{value:z,.0f}"


def _signed(value: float, percent: bool, like: float) -> str:
    text = _short(value, percent, like)
    return text if text.startswith("-") else f"+{text}"


def _change(first: Measured | None, second: Measured | None) -> Cell:
    """In percent of the first, where both are positive; otherwise no share can be taken."""
    if first is None or second is None or min(first.mean, second.mean) <= 0:
        return GAP
    return Cell(f"{100 * (second.mean / first.mean - 1):+.0f}%")


def _value(text: str) -> float:
    return float(text.replace(",", ""))


def _hours(hours: float) -> str:
    return f"{hours:.1f}" if hours >= 0.95 else f"{hours:.2g}"


def _heading(name: str, percent: bool) -> str:
    return WORDS.get(name, name) + (" (%)" if percent else "")


def _notes(found: Aggregates, names: Sequence[str]) -> tuple[str, ...]:
    ends = [np.isfinite(one[n].low) for one in found.values() for n in names if n in one]
    if not any(ends):
        return ()
    return ("Brackets: 95% stratified-bootstrap intervals" + ("" if all(ends) else ", where runs are known"),)


def _spread_note(scores: Scores) -> tuple[str, ...]:
    values = [_of(one, task) for one in scores.values() for task in one]
    return (
        ("Mean \N{PLUS-MINUS SIGN} standard deviation over runs",)
        if any(v and v.sd is not None for v in values)
        else ()
    )


def _known(found: Aggregates, names: Sequence[str]) -> None:
    if not found:
        raise UserError("no scores: a table needs at least one method")
    known = {name for one in found.values() for name in one}
    for name in names:
        if name not in known:
            raise unknown("statistic", name, known)


def _without_last(sheet: Sheet) -> Sheet:
    return sheet._replace(
        headings=sheet.headings[:-1], numeric=sheet.numeric[:-1], rows=[row[:-1] for row in sheet.rows]
    )
