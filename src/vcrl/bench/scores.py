"""All scores in one tidy table, each row with its source; `bench/sources.py` reads them.

Published and own numbers are never merged: `matrix` names a method of another source with that source. Scores of
different protocols are not aggregated unless told so.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vcrl.bench import paper
from vcrl.bench.folders import read_checked
from vcrl.core.errors import UserError, unknown

Means = dict[tuple[int, int], float]  # of the scores of an evaluation, by agent steps and seed


class Score(NamedTuple):
    """One number: a seed's score, or a published mean."""

    suite: str
    task: str
    method: str
    seed: int | None  # None for a published mean
    score: float
    normalised: float  # random play is 0, a human or the best possible 1; nan where no such scores are known
    source: str  # run, results, paper, bank:NAME
    where: str  # folder, file or table
    protocol: str
    protocol_hash: str  # empty where others measured
    config_hash: str
    runs: int  # behind the number
    agent_steps: int
    seconds: float  # of the machine, the run's wall clock shared among its seeds; nan where unknown

    @property
    def name(self) -> str:
        """The method, with its source unless it is a run folder."""
        return self.method if self.source == "run" else f"{self.method} ({self.source.partition(':')[0]})"


class Origin(NamedTuple):
    """How the numbers of one run were made."""

    suite: str
    task: str
    method: str
    source: str
    where: str
    seeds: str
    protocol_hash: str
    config_hash: str
    commit: str
    command: str
    hardware: str
    gpu: bool  # or another accelerator: hours are then its own
    seconds: float  # wall clock of the whole run
    finished: str


class Found(NamedTuple):
    """What was read, and what was not: one line each."""

    rows: list[Score]
    left_out: list[str]
    protocols: dict[str, dict[str, Any]]  # by hash, of runs whose folder is there
    configs: dict[str, dict[str, Any]]  # likewise
    origins: list[Origin]
    evaluated: dict[str, Means]  # by run folder: curves need not read all games again


def join(*found: Found) -> Found:
    return Found(
        [row for one in found for row in one.rows],
        [line for one in found for line in one.left_out],
        {key: value for one in found for key, value in one.protocols.items()},
        {key: value for one in found for key, value in one.configs.items()},
        [origin for one in found for origin in one.origins],
        {key: value for one in found for key, value in one.evaluated.items()},
    )


def tasks_in(rows: Iterable[Score]) -> list[str]:
    """Tasks of some rows: the paper's games in its order, then others by name."""
    return sorted({row.task for row in rows}, key=_task_order())


def choose(rows: Sequence[Score], methods: Sequence[str]) -> list[Score]:
    """Rows of some methods; `spr` means every source of it, `SPR (paper)` that one."""
    names = {one for row in rows for one in _names(row)}
    for method in methods:
        if method not in names:
            raise unknown("method", method, names)
    return [row for row in rows if _names(row) & set(methods)]


def _names(row: Score) -> set[str]:
    """What a row may be called: a method with a loss whose code differs between runs also without that code."""
    plain = {row.method.partition(" (")[0]} if "+" in row.method else set[str]()
    return {row.method, row.name, *plain}


def matrix(rows: Sequence[Score], tasks: Sequence[str], *, mixed: bool = False) -> dict[str, np.ndarray]:
    """Normalised scores of every method, [runs, tasks], nan where a run is missing.

    Row i is the i-th seed, whichever that is: runs of different tasks have nothing to do with each other. A method of
    another source than run folders has a name with the source; one with two configs on a task has names with both.
    """
    if not mixed:
        refuse_mixed(rows)
    cells: dict[str, dict[str, list[Score]]] = {}
    for name, row in zip(labels(rows), rows, strict=True):
        if row.task in tasks:
            cells.setdefault(name, {}).setdefault(row.task, []).append(row)
    found = {}
    for name, at in cells.items():
        values = np.full((max(map(len, at.values())), len(tasks)), np.nan)
        for column, task in enumerate(tasks):
            mine = sorted(at.get(task, []), key=lambda row: -1 if row.seed is None else row.seed)
            values[: len(mine), column] = [row.normalised for row in mine]
        found[name] = values
    return found


def labels(rows: Sequence[Score]) -> list[str]:
    """A name for every row under which it may be averaged with the others of that name."""
    sources: dict[str, set[str]] = {}
    configs: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        sources.setdefault(row.name, set()).add(row.source)
        configs.setdefault((row.name, row.task), set()).add(row.config_hash)
    split = {name for (name, _), hashes in configs.items() if len(hashes) > 1}
    told = []
    for row in rows:
        name = row.name if len(sources[row.name]) == 1 else f"{row.method} ({row.source})"
        told.append(f"{name} [{row.config_hash}]" if row.name in split else name)
    return told


def shared(scores: Mapping[str, np.ndarray], tasks: Sequence[str]) -> list[str]:
    """The tasks in which every method has a run: aggregates over others would compare different things."""
    held = [np.isfinite(values).any(axis=0) for values in scores.values()]
    return [task for task, good in zip(tasks, np.all(held, axis=0), strict=True) if good] if held else []


def refuse_mixed(rows: Sequence[Score], protocols: Mapping[str, Mapping[str, Any]] | None = None) -> None:
    """Scores of one protocol may be averaged or compared; others may not."""
    if told := mixture(rows, protocols):
        raise UserError(
            f"scores of different protocols, {told}: choose those of one, or allow it with --mixed"
        )


def mixture(rows: Sequence[Score], protocols: Mapping[str, Mapping[str, Any]] | None = None) -> str:
    """In which fields the protocols of some rows differ, in words; empty where they are one.

    What others measured has no hash: there only the name can differ.
    """
    known = dict(protocols or {})
    first: dict[tuple[str, str], Score] = {}
    for row in rows:
        first.setdefault((row.protocol, row.protocol_hash), row)
    hashed = {key: row for key, row in first.items() if key[1]}
    names = {name for name, _ in first}
    if len(hashed) < 2 and len(names) < 2:
        return ""
    shown = list(hashed if len(hashed) > 1 else first)
    kinds = [known.get(key[1]) or _protocol(first[key]) for key in shown]
    fields = [f for f in dict.fromkeys(f for kind in kinds for f in kind) if f != "kind"]
    # A field that an older version did not write is one it did not differ in, as far as anybody can tell.
    values = {f: list(dict.fromkeys(_plain(kind[f]) for kind in kinds if f in kind)) for f in fields}
    differing = [f"{f} {' and '.join(v)}" for f, v in values.items() if len(v) > 1]
    told = " and ".join(f"{name} [{key}]" if key else name for name, key in shown)
    return f"{told} ({'; '.join(differing) or 'in fields that are not recorded here'})"


def _protocol(row: Score) -> dict[str, Any]:
    """What is known of a row's protocol: all of it where its folder is there."""
    if row.source == "run":
        try:
            return read_checked(Path(row.where)).record["protocol"]
        except (UserError, OSError):
            pass
    return {"name": row.protocol, **({"budget": row.agent_steps} if row.agent_steps else {})}


def _task_order() -> Any:
    known = [*paper.scores()["SPR"], *paper.dmc()["dmc100k"]["SPR"]]
    return lambda task: (known.index(task) if task in known else len(known), task)


def _plain(value: Any) -> str:
    return f"{value:,}" if type(value) is int else str(value)[:80]
