"""How far runs are, read off their folders by whoever looks; a file that cannot be read is no news."""

import json
import math
import os
import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from vcrl.campaign.ask import Ask
from vcrl.campaign.plan import Job
from vcrl.core.errors import UserError
from vcrl.runs.files import open_plain
from vcrl.runs.reading import LOGS, read_run, read_status

RECENT = 20  # training episodes of each seed behind a score, as in the console of a single run
TAIL = 1 << 16


class Look(NamedTuple):
    state: str  # as the run itself says: running, stopped, done, failed, or "" before it has a folder
    agent_steps: int
    score: float | None  # mean over seeds; raw
    final: bool  # whether the score is that of the protocol


def look(job: Job) -> Look:
    try:
        status = read_status(job.path)
        state, steps = str(status.get("state", "")), int(status.get("agent_steps", 0))
    except (UserError, TypeError, ValueError):
        state, steps = "", 0
    if state == "done":
        return Look(state, steps, final_score(job), True)
    return Look(state, max(steps, _newest(job.path)), _recent(job.path), False)


def final_score(job: Job) -> float | None:
    try:
        rows = [r for r in read_run(job.path).evaluations() if r.agent_steps == job.what.budget]
    except UserError:
        return None
    return _mean_of_means([(row.seed, row.score) for row in rows])


def _newest(path: Path) -> int:
    for line in reversed(_tail(path / LOGS["metrics"])):
        try:
            return int(json.loads(line)["agent_steps"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return 0


def _recent(path: Path) -> float | None:
    rows: list[tuple[int, float]] = []
    for line in _tail(path / LOGS["episodes"]):
        parts = line.split(",")
        try:
            rows.append((int(parts[0]), float(parts[3])))
        except (ValueError, IndexError):
            continue
    by_seed: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for row in rows:
        by_seed[row[0]].append(row)
    return _mean_of_means([row for mine in by_seed.values() for row in mine[-RECENT:]])


def _mean_of_means(rows: list[tuple[int, float]]) -> float | None:
    by_seed: dict[int, list[float]] = defaultdict(list)
    for seed, score in rows:
        if math.isfinite(score):
            by_seed[seed].append(score)
    means = [sum(mine) / len(mine) for mine in by_seed.values()]
    return sum(means) / len(means) if means else None


def _tail(path: Path) -> list[str]:
    """The last whole lines of a file."""
    try:
        with open_plain(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL))
            lines = file.read().decode("ascii", "replace").split("\n")
    except OSError:
        return []
    return lines[1 if size > TAIL else 0 : -1]


def log_of(ask: Ask, job: Job) -> Path:
    """What the process of a run prints. Not in the run's folder, which takes no files but its own."""
    return ask.folder / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', job.name)}.log"
