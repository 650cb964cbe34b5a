"""Run folders as people look at them: `vcrl ls`, one line a run, and `vcrl show`, everything about one."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from vcrl.bench.folders import BAD, check_names, read_checked, read_json, run_folders
from vcrl.core.config import digest
from vcrl.core.errors import UserError
from vcrl.runs.logs import read_episodes
from vcrl.runs.reading import CONFIG, LOGS, STATUS, Run
from vcrl.runs.strict import printable

LOOKED_INTO = 200  # runs whose evaluation is read for a score that status.json does not tell
SILENT = 1800.0  # seconds after which a run that says it is running may be dead
STATES = ("failed", "running", "stopped", "not started", "done")


class Line(NamedTuple):
    """A run in a list; what its folder does not tell is None."""

    suite: str
    method: str
    task: str
    seeds: str
    state: str
    agent_steps: int | None
    budget: int | None
    score: float | None  # mean over seeds
    when: str  # finished, or last heard of
    seconds: float | None
    path: str


class Listing(NamedTuple):
    lines: list[Line]
    left_out: list[str]


def list_runs(folder: Path) -> Listing:
    """Every run beneath a folder, by config.json and status.json alone; damaged ones are named.

    A score that status.json does not have is read from the evaluation, of the first 200 runs.
    """
    lines: list[Line] = []
    left_out: list[str] = []
    now, looks = datetime.now(UTC).timestamp(), LOOKED_INTO
    for path in run_folders(folder):
        try:
            record, _ = read_json(path / CONFIG)
            status, changed = read_json(path / STATUS, needed=False)
            line = _line(path, record, status, changed, now)
            if line.state == "done" and line.score is None and looks:
                looks -= 1
                line = line._replace(score=_mean(list(final_scores(path, line.budget).values())))
            lines.append(line)
        except UserError as error:
            left_out.append(str(error))
        except BAD as error:
            left_out.append(f"{path} is damaged ({type(error).__name__}: {str(error)[:80]})")
    return Listing(lines, left_out)


def listing_text(lines: Sequence[Line]) -> str:
    """The lines as a table, and how many there are of each state. Plain text: thousands of lines are usual."""
    heads = ("suite", "method", "task", "seeds", "state", "agent steps", "score", "when", "folder")
    rows = [
        (
            line.suite,
            line.method,
            line.task,
            line.seeds,
            line.state,
            _steps(line),
            "-" if line.score is None else _number(line.score),
            line.when,
            line.path,
        )
        for line in lines
    ]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    right = {heads.index("agent steps"), heads.index("score")}
    text = [
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (heads, *rows)
    ]
    counts = {state: 0 for state in STATES}
    for line in lines:
        word = "running" if line.state.startswith("silent") else line.state
        counts[word] = counts.get(word, 0) + 1
    told = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    text += ["", f"{len(lines)} run{'s' * (len(lines) != 1)}: {told}"]
    return "\n".join(map(printable, text))


def final_scores(path: Path, budget: int | None) -> dict[int, float]:
    """The mean of each seed's games after its last step, by seed."""
    games: dict[int, list[float]] = {}
    if budget is not None and (path / LOGS["eval"]).exists():
        for game in read_episodes(path / LOGS["eval"]):
            if game.agent_steps == budget:
                games.setdefault(game.seed, []).append(game.score)
    return {seed: sum(mine) / len(mine) for seed, mine in sorted(games.items())}


def describe(path: Path) -> dict[str, Any]:
    """Everything about one run, as JSON data."""
    try:
        return _describe(read_checked(path), path)
    except BAD as error:
        raise UserError(f"{path} is damaged ({type(error).__name__}: {str(error)[:80]})") from error


def _describe(run: Run, path: Path) -> dict[str, Any]:
    line = _line(path, run.record, run.status, _changed(path), datetime.now(UTC).timestamp())
    notes: list[str] = []
    scores, last = {}, {}
    try:
        scores = final_scores(path, line.budget)
    except UserError as error:
        notes.append(str(error))
    try:
        last = {} if not (rows := run.metrics()) else rows[-1]
    except UserError as error:
        notes.append(str(error))
    return {
        "run": {**line._asdict(), "score": _mean(list(scores.values()))},
        "scores": {str(seed): score for seed, score in scores.items()},
        "normalised": {
            str(seed): value
            for seed, score in scores.items()
            if math.isfinite(value := _normalised(line.task, score))
        },
        "status": run.status,
        "protocol": {"hash": run.record["protocol_hash"], **_without_kind(run.record["protocol"])},
        "config": {"hash": digest(run.record.get("config")), **flat(run.record.get("config"))},
        "schedule": flat(run.record.get("schedule")),
        "facts": flat(run.record.get("facts")),
        "last metrics": _finite(last),
        "files": {entry.name: entry.stat().st_size for entry in sorted(path.iterdir()) if entry.is_file()},
        "checkpoint": sum(f.stat().st_size for f in (path / "checkpoint").glob("*") if f.is_file()),
        "notes": notes,
    }


def description_text(told: dict[str, Any]) -> str:
    """The same for people."""
    run, status = told["run"], told["status"]
    lines = [
        f"{run['method']} on {run['task']} ({run['suite']}), seeds {run['seeds']}",
        str(run["path"]),
        "",
        *_pairs(
            {
                "state": run["state"] + (f": {status['reason']}" if status.get("reason") else ""),
                "agent steps": _steps(Line(**run)),
                "when": run["when"],
                "wall clock": "-" if run["seconds"] is None else clock(run["seconds"]),
                "not finite since": _value(status.get("not_finite_since") or "never"),
                "events": len(status.get("events") or []),
            }
        ),
    ]
    if told["scores"]:
        lines += ["", "final evaluation, mean raw score of each seed"]
        lines += _columns(
            ["seed", "score", *(["normalised"] if told["normalised"] else [])],
            [
                [
                    seed,
                    _number(score),
                    *([f"{told['normalised'][seed]:.3f}"] if told["normalised"] else []),
                ]
                for seed, score in told["scores"].items()
            ]
            + [["mean", _number(run["score"])]],
        )
    for part in ("protocol", "config", "schedule", "facts"):
        named = told[part].get("hash")
        lines += ["", f"{part} [{named}]" if named else part]
        lines += _pairs({k: v for k, v in told[part].items() if k != "hash"})
    if told["last metrics"]:
        lines += ["", "last metrics", *_pairs(told["last metrics"])]
    lines += ["", "files", *_pairs({name: size_text(size) for name, size in told["files"].items()})]
    lines += _pairs({"checkpoint/": size_text(told["checkpoint"])})
    lines += [f"warning: {note}" for note in told["notes"]]
    return "\n".join(map(printable, lines))


def flat(value: Any, where: str = "") -> dict[str, Any]:
    """The leaves of JSON data by dotted path; the name of a part's class is one of them, `kind`, unless it is whole."""
    if not isinstance(value, dict):
        return {where: value} if where else {}
    found: dict[str, Any] = {}
    for key, part in value.items():
        if key == "kind" and not where:
            continue
        path = f"{where}.{key}" if where else str(key)
        found |= {where: part} if key == "kind" else flat(part, path)
    return found


def clock(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * 3600 else f"{seconds / 3600:.1f} h"


def size_text(size: float) -> str:
    for unit in ("B", "KB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def _line(path: Path, record: dict[str, Any], status: dict[str, Any], changed: float, now: float) -> Line:
    check_names(path, record)
    state = str(status.get("state") or "not started")
    if state == "running" and now - changed > SILENT:
        state = f"silent {clock(now - changed)}"
    when = str(status.get("finished") or "")[:10]
    if not when and math.isfinite(changed):
        when = datetime.fromtimestamp(changed, UTC).strftime("%Y-%m-%d %H:%M")
    steps, budget = (
        status.get("agent_steps"),
        record.get("budget", (record.get("protocol") or {}).get("budget")),
    )
    scores, seconds = status.get("scores"), status.get("seconds")
    return Line(
        suite=record["suite"],
        method=record["method"],
        task=record["task"],
        seeds=_seeds(record["seeds"]),
        state=state if state.isprintable() and len(state) < 40 else "damaged",
        agent_steps=steps if type(steps) is int else None,
        budget=budget if type(budget) is int else None,
        score=_mean(list(scores.values())) if isinstance(scores, dict) else None,
        when=when or "-",
        seconds=float(seconds) if isinstance(seconds, int | float) else None,
        path=str(path),
    )


def _changed(path: Path) -> float:
    return (path / STATUS).stat().st_mtime if (path / STATUS).exists() else math.nan


def _seeds(seeds: Any) -> str:
    """As the command line takes them, as long as that is short."""
    numbers = [int(seed) for seed in seeds]
    first, last = numbers[0], numbers[-1]
    if len(numbers) > 1 and numbers == list(range(first, last + 1)):
        return f"{first}:{last + 1}"
    return ",".join(map(str, numbers)) if len(numbers) <= 6 else f"{first}..{last} ({len(numbers)})"


def _normalised(task: str, score: float) -> float:
    from vcrl.bench.results import normalised  # not at the top: a list of thousands must not wait for it

    return normalised(task, score)


def _mean(values: Sequence[Any]) -> float | None:
    numbers = [float(v) for v in values if type(v) in (int, float) and math.isfinite(v)]
    return sum(numbers) / len(numbers) if numbers and len(numbers) == len(values) else None


def _steps(line: Line) -> str:
    if line.agent_steps is None:
        return "-" if line.budget is None else f"0/{line.budget:,}"
    return (
        f"{line.agent_steps:,}"
        if line.agent_steps == line.budget
        else f"{line.agent_steps:,}/{line.budget:,}"
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _finite(value: Any) -> Any:
    """JSON has no nan."""
    if isinstance(value, dict):
        return {key: _finite(v) for key, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _without_kind(value: dict[str, Any]) -> dict[str, Any]:
    return {key: v for key, v in value.items() if key != "kind"}


def _pairs(pairs: dict[str, Any]) -> list[str]:
    width = max(map(len, pairs), default=0)
    return [f"  {name.ljust(width)}  {_value(value)}" for name, value in pairs.items()]


def _columns(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    filled = [[*row, *[""] * (len(heads) - len(row))] for row in (heads, *rows)]
    widths = [max(map(len, column)) for column in zip(*filled, strict=True)]
    return [
        ("  " + "  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True))).rstrip() for row in filled
    ]


def _value(value: Any) -> str:
    if isinstance(value, list):
        shown = ", ".join(map(_value, value[:12]))
        return f"{shown}, ... ({len(value)})" if len(value) > 12 else shown
    if isinstance(value, dict):
        return ", ".join(f"{key}: {_value(v)}" for key, v in value.items())
    if isinstance(value, float):
        return f"{value:.6g}"
    text = (
        "none"
        if value is None
        else f"{value:,}"
        if type(value) is int and abs(value) >= 10_000
        else str(value)
    )
    return text[:400]
