"""The tables of the page of results, as Markdown."""

from collections.abc import Sequence

import numpy as np

from vcrl.bench import paper
from vcrl.bench.figures import Curve
from vcrl.bench.kept import IMAGINED, REAL, Cell, Suite, difference, verdict, word
from vcrl.bench.stats import Interval, interval, iqm, mean, mean_of_more, median, optimality_gap
from vcrl.bench.tables import Column, interval_text, markdown, number_text, number_texts


def runs_table(cells: Sequence[Cell]) -> str:
    known = [cell.published for cell in cells]
    ranges = [paper.band(cell.name, cell.task, len(cell.rows)) for cell in cells]
    return markdown(
        [
            *_ours(cells),
            Column("paper", [_score(cell.told) for cell in cells], True),
            Column("published runs", [number_text(found.mean) if found else "-" for found in known], True),
            Column("range", [_range(*ends) for ends in ranges], True),
            Column("verdict", [verdict(cell) or "-" for cell in cells], False),
        ]
    )


def paper_table(cells: Sequence[Cell]) -> str:
    ranges = [mean_of_more(cell.scores, cell.behind) for cell in cells]
    return markdown(
        [
            *_ours(cells),
            Column("paper", [_score(cell.told) for cell in cells], True),
            Column("range", [_range(r.low, r.high) if np.isfinite(r.low) else "-" for r in ranges], True),
            Column("verdict", [verdict(cell) or "-" for cell in cells], False),
        ]
    )


def both_table(pairs: Sequence[tuple[Cell, Cell]]) -> str:
    found = [difference(spr.normalised, vcr.normalised, mean) for spr, vcr in pairs]
    published = [
        "-"
        if spr.told is None or vcr.told is None
        else _signed(paper.normalise(vcr.task, vcr.told) - paper.normalise(spr.task, spr.told))
        for spr, vcr in pairs
    ]
    return markdown(
        [
            Column("task", [vcr.task for _, vcr in pairs], False),
            Column("SPR", [_score(float(spr.normalised.mean()), 2) for spr, _ in pairs], True),
            Column("VCR", [_score(float(vcr.normalised.mean()), 2) for _, vcr in pairs], True),
            Column("VCR - SPR", [_difference_text(value) for value in found], True),
            Column("the paper's", published, True),
            Column("VCR is", [word(value) for value in found], False),
        ]
    )


def plain_table(cells: Sequence[Cell]) -> str:
    columns = _ours(cells)
    columns.insert(1, Column("method", [cell.method for cell in cells], False))
    return markdown(columns)


def _ours(cells: Sequence[Cell]) -> list[Column]:
    """The columns every table of scores begins with."""
    spread = [_spread(cell.scores) for cell in cells]
    marked = [bool([row for row in cell.rows if row["not_finite_since"]]) for cell in cells]
    ours = [told + r" \*" * mark for told, mark in zip(spread, marked, strict=True)]
    return [
        Column("task", [cell.task for cell in cells], False),
        Column("runs", [str(len(cell.rows)) for cell in cells], True),
        Column("ours", ours, True),
        Column("normalised", [_score(float(cell.normalised.mean()), 2) for cell in cells], True),
    ]


def aggregates(suite: Suite) -> list[str]:
    """Over the games that SPR and VCR both have here, for a mean over other games is another number."""
    methods = [m for m in ("spr", "vcr") if suite.of(m)]
    tasks = [t for t in paper.scores()["SPR"] if methods and all(t in suite.of(m) for m in methods)]
    if not tasks:
        return []
    rows = {m: [suite.of(m)[t].normalised for t in tasks] for m in methods}
    least = min(len(scores) for mine in rows.values() for scores in mine)
    statistics = {"IQM": iqm, "mean": mean, "median": median, "optimality gap": optimality_gap}
    cells = {
        name: [interval_text(interval(mine, statistic), least) for mine in rows.values()]
        for name, statistic in statistics.items()
    }
    for method in methods:
        told = [np.array([paper.normalise(t, paper.scores()[paper.NAMES[method]][t])]) for t in tasks]
        whole = paper.aggregates()[paper.NAMES[method]] if len(tasks) == len(paper.scores()["SPR"]) else {}
        cells["IQM"].append(_score(whole.get("iqm"), 3))
        cells["mean"].append(_score(float(mean(told)), 3))
        cells["median"].append(_score(float(median(told)), 3))
        cells["optimality gap"].append(_score(whole.get("optimality_gap"), 3))
    names = [*methods, *(f"{m}, paper" for m in methods)]
    table = markdown([Column("method", names, False), *(Column(n, c, True) for n, c in cells.items())])
    note = (
        f"Human-normalised, over {len(tasks)} {plural('game', len(tasks))} of 26, with 95% stratified-bootstrap "
        "intervals. The paper's rows are\nrecomputed from its means for the same games, so that like is compared with "
        "like; its IQM and optimality gap need single\nruns and are known for all 26 games only."
    )
    return [
        f"### All {len(tasks)} games together" if len(tasks) > 1 else "### Normalised",
        "",
        table,
        "",
        note,
        "",
    ]


def error_table(suite: Suite) -> str:
    rows = [(task, m, kinds) for task, methods in suite.curves.items() for m, kinds in methods.items()]
    any_of = [next(iter(kinds.values())) for _, _, kinds in rows]
    return markdown(
        [
            Column("task", [task for task, _, _ in rows], False),
            Column("method", [method for _, method, _ in rows], False),
            Column("runs", [str(len(curve.values)) for curve in any_of], True),
            Column("agent steps", [f"{int(curve.steps[-1]):,}" for curve in any_of], True),
            Column("imagined", [_last(kinds.get(IMAGINED)) for _, _, kinds in rows], True),
            Column("real", [_last(kinds.get(REAL)) for _, _, kinds in rows], True),
        ]
    )


def _last(curve: Curve | None) -> str:
    if curve is None:
        return "-"
    values = curve.values[:, -1]
    return interval_text(interval([values], iqm), len(values)) if np.isfinite(values).all() else "not finite"


def provenance(suite: Suite) -> str:
    names = ("commit", "config_hash", "seeds", "command", "hardware", "wall_clock_s", "finished")
    runs = list(
        dict.fromkeys(
            (c.task, c.method, *(row[name] for name in names)) for c in suite.cells for row in c.rows
        )
    )
    at = {name: [run[2 + i] or "-" for run in runs] for i, name in enumerate(names)}
    protocols = [f"`{row['protocol_hash']}`" for row in suite.cells[0].rows[:1]]
    return f"Protocol {suite.cells[0].rows[0]['protocol']}, hash {protocols[0]}.\n\n" + markdown(
        [
            Column("task", [run[0] for run in runs], False),
            Column("method", [run[1] for run in runs], False),
            Column("seeds", at["seeds"], False),
            Column("commit", [_commit(commit) for commit in at["commit"]], False),
            Column("config", at["config_hash"], False),
            Column("hardware", at["hardware"], False),
            Column("wall clock", [_clock(seconds) for seconds in at["wall_clock_s"]], True),
            Column("finished", at["finished"], False),
            Column("command", [f"`{c}`" if c != "-" else c for c in at["command"]], False),
        ]
    )


def _commit(text: str) -> str:
    commit, dirty, _ = text.partition("-dirty")
    return commit[:10] + (" (dirty)" if dirty else "")


def _clock(text: str) -> str:
    if text == "-":
        return text
    seconds = float(text)
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * 3600 else f"{seconds / 3600:.1f} h"


def _difference_text(value: Interval | None) -> str:
    return "-" if value is None else f"{_signed(value.point)} [{_signed(value.low)}, {_signed(value.high)}]"


def _signed(value: float) -> str:
    return f"{value:+z.2f}"  # z: no minus before a zero


def _spread(scores: np.ndarray) -> str:
    if len(scores) < 2:
        return number_text(float(scores.mean()))
    point, sd = number_texts([float(scores.mean()), float(scores.std(ddof=1))])
    return f"{point} ± {sd}"


def _range(low: float, high: float) -> str:
    return "[{}, {}]".format(*number_texts([low, high]))


def _score(value: float | None, decimals: int | None = None) -> str:
    if value is None or not np.isfinite(value):
        return "-"
    return number_text(value) if decimals is None else f"{value:z,.{decimals}f}"


def plural(word: str, count: int) -> str:
    return word if count == 1 else word + "s"
