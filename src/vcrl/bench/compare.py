"""Two runs side by side: `vcrl compare A B`."""

from pathlib import Path
from typing import Any

import numpy as np

from vcrl.bench import aggregates, results
from vcrl.bench.folders import BAD, read_checked
from vcrl.bench.listing import flat
from vcrl.bench.results import Row
from vcrl.bench.stats import interval, iqm
from vcrl.bench.tables import interval_text, number_text
from vcrl.core.errors import UserError
from vcrl.runs.reading import Run
from vcrl.runs.strict import printable

FEW = 4  # seeds, below which an interval of a difference is not to be believed


def compare(first: Path, second: Path, mixed: bool = False) -> str:
    """How two finished runs differ in settings, protocol and scores.

    Scores of different tasks are never compared, those of different protocols only where `mixed` is told.
    """
    runs = [read_checked(first), read_checked(second)]
    names = [f"{run.record['method']} on {run.record['task']}" for run in runs]
    lines = [f"A  {names[0]}  {first}", f"B  {names[1]}  {second}"]
    for part in ("config", "protocol"):
        lines += ["", part, *_differences(*(flat(run.record.get(part)) for run in runs))]
    lines += ["", "scores", *_scores(runs, mixed)]
    return "\n".join(map(printable, lines))


def _differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    rows = [
        (path, _text(a.get(path, "-")), _text(b.get(path, "-")))
        for path in [*a, *(p for p in b if p not in a)]
        if a.get(path, "-") != b.get(path, "-")
    ]
    if not rows:
        return ["  the same"]
    rows = [("", "A", "B"), *rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def _scores(runs: list[Run], mixed: bool) -> list[str]:
    found: list[list[Row]] = []
    for run in runs:
        try:
            found.append(results.final(run).scores)
        except UserError as error:
            return [f"  not compared: {error}"]
        except BAD as error:
            return [f"  not compared: {run.path} is damaged ({type(error).__name__}: {str(error)[:80]})"]
    lines = []
    for letter, rows in zip("AB", found, strict=True):
        values = _column(rows, "score")
        told = (
            interval_text(interval([values], iqm), len(values)) if np.isfinite(values).all() else "not finite"
        )
        seeds = ", ".join(number_text(float(v)) for v in values[:12]) + (", ..." if len(values) > 12 else "")
        lines.append(f"  {letter}  IQM {told}, {len(values)} seed{'s' * (len(values) != 1)}: {seeds}")
    if (a := runs[0].record["task"]) != (b := runs[1].record["task"]):
        return [*lines, f"  not compared: {a} and {b} are different tasks"]
    if runs[0].record["protocol_hash"] != runs[1].record["protocol_hash"]:
        one, other = (flat(run.record["protocol"]) for run in runs)
        differing = [path for path in one | other if one.get(path) != other.get(path)]
        told = ", ".join(differing) or "a field an older version did not record"
        if not mixed:
            return [*lines, f"  not compared: the protocols differ in {told}; --mixed compares nevertheless"]
        lines.append(f"  MIXED PROTOCOLS, which differ in {told}: what follows may mean nothing")
    first, second = (_column(rows, "score")[:, None] for rows in found)
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        return [*lines, "  not compared: some scores are not finite"]
    least = min(len(first), len(second))
    if least < 2:
        return [
            *lines,
            "  one seed has no interval: B - A is " + number_text(float(second.mean() - first.mean())),
        ]
    gap = aggregates.difference(second, first, "iqm")
    better = aggregates.improvement(second, first)
    lines.append(f"  B - A  {interval_text(gap)} (IQM, 95% bootstrap interval)")
    lines.append(f"  a run of B beats a run of A with probability {interval_text(better)}")
    if least < FEW:
        lines.append(f"  {least} seeds are too few to judge: they lie apart by chance too often")
    elif gap.low > 0 or gap.high < 0:
        lines.append(f"  B is {'higher' if gap.low > 0 else 'lower'}")
    else:
        lines.append("  undecided: the interval holds 0")
    return lines


def _column(rows: list[Row], name: str) -> np.ndarray:
    return np.array([float(row[name] or "nan") for row in rows])


def _text(value: Any) -> str:
    return "none" if value is None else str(value)[:80]
