"""Where scores are read from: run folders, kept results, the paper, banks of single runs that others published."""

import json
import math
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from vcrl.bench import paper, results
from vcrl.bench.folders import BAD, LARGEST, read_checked, run_folders
from vcrl.bench.results import Row
from vcrl.bench.scores import Found, Means, Origin, Score
from vcrl.bench.spread import spread
from vcrl.core.errors import UserError
from vcrl.runs.files import read_limited
from vcrl.runs.logs import Episode

MANY = 50  # run folders, from which reading them is shared


def read_runs(paths: Iterable[Path]) -> Found:
    """Run folders, or folders of such; a run that is damaged or not finished is named and left out."""
    found = Found([], [], {}, {}, [], {})
    taken: dict[tuple[Any, ...], str] = {}
    folders = list(dict.fromkeys(folder for root in paths for folder in run_folders(root)))
    for path, one in zip(folders, spread(_read_run, folders, least=MANY), strict=True):
        if isinstance(one, str):
            found.left_out.append(one)
            continue
        used = 0
        for row in one.rows:
            key = (row.suite, row.task, row.method, row.config_hash, row.protocol_hash, row.seed)
            what = f"{path}: {row.task}, {row.method}, seed {row.seed}"
            if not math.isfinite(row.score):
                found.left_out.append(f"{what} has a score that is not finite")
            elif key in taken:
                found.left_out.append(f"{what} is there twice, in {taken[key]} too; the first counts")
            else:
                taken[key] = str(path)
                found.rows.append(row)
                used += 1
        if used:
            found.protocols.update(one.protocols)
            found.configs.update(one.configs)
            found.origins.extend(one.origins)
            found.evaluated.update(one.evaluated)
    return _by_code(found)


def _by_code(found: Found) -> Found:
    """A loss of one's own that was changed between runs makes methods of different names."""
    code = {key: config["terms"]["own"]["code"] for key, config in found.configs.items() if _own_loss(config)}
    codes: dict[str, set[str]] = {}
    for row in found.rows:
        if row.config_hash in code:
            codes.setdefault(row.method, set()).add(code[row.config_hash])

    def named(one: Any) -> Any:
        several = len(codes.get(one.method, ())) > 1 and one.config_hash in code
        return one._replace(method=f"{one.method} ({code[one.config_hash]})") if several else one

    return found._replace(rows=[*map(named, found.rows)], origins=[*map(named, found.origins)])


def _own_loss(config: Any) -> bool:
    try:
        return isinstance(config["terms"]["own"]["code"], str)
    except (KeyError, TypeError):
        return False


def _read_run(path: Path) -> Found | str:
    """What one run folder holds, or why it is left out."""
    try:
        run = read_checked(path)
        final = results.final(run)
        rows = final.scores
        scores = [_own(row, "run", str(path), len(rows)) for row in rows]
        origin = _origin(rows[0], "run", str(path))
        origin = origin._replace(gpu=bool((run.record.get("facts") or {}).get("accelerator")))
    except UserError as error:
        return str(error)
    except BAD as error:
        return f"{path} is damaged ({type(error).__name__}: {_short(error)})"
    protocols = {scores[0].protocol_hash: run.record["protocol"]}
    configs = {scores[0].config_hash: run.record["config"]}
    return Found(scores, [], protocols, configs, [origin], {str(path): _means(final.evaluations)})


def read_results(folder: Path) -> Found:
    """The tables of results/, by `bench/results.py`."""
    found = Found([], [], {}, {}, [], {})
    names = results.suites(folder)
    if not names:
        raise UserError(
            f"no results in {folder}: put some there with python -m vcrl.bench.results add RUN..."
        )
    for name in names:
        path = folder / f"{name}.csv"
        try:
            rows = results.load(folder, name).scores
        except UserError as error:
            found.left_out.append(str(error))
            continue
        except BAD as error:
            found.left_out.append(f"{path} is damaged ({type(error).__name__}: {_short(error)})")
            continue
        runs: dict[Origin, None] = {}
        for number, row in enumerate(rows, start=2):
            try:
                first, several, last = row["seeds"].partition(":")
                count = int(last) - int(first) if several else 1 + row["seeds"].count(",")
                score = _own(row, "results", str(path), count)
                origin = _origin(row, "results", str(path))
            except (*BAD, UserError) as error:
                found.left_out.append(f"{path}, line {number} is damaged ({_short(error)})")
                continue
            if not math.isfinite(score.score):
                found.left_out.append(f"{path}, line {number}: a score that is not finite")
                continue
            found.rows.append(score)
            runs[origin] = None
        found.origins.extend(runs)
    return found


def read_paper() -> Found:
    """The paper's means, one row a method and task; how many runs are behind each is in `runs`."""
    rows = []
    for method, games in paper.scores().items():
        for task, score in games.items():
            value, runs = paper.normalise(task, score), paper.RUNS[method]
            told = ("paper", "table of games", "atari100k", "", "", runs, 100_000, math.nan)
            rows.append(Score("atari", task, method, None, score, value, *told))
    for protocol, methods in paper.dmc().items():
        for method, tasks in methods.items():
            for task, (score, _) in tasks.items():
                told = ("paper", "table of DMControl", protocol, "", "", paper.DMC_RUNS, 0, math.nan)
                rows.append(Score("dmc", task, method, None, score, score / paper.DMC_BEST, *told))
    return Found(rows, [], {}, {}, [], {})


def read_bank(path: Path) -> Found:
    """Single runs of others: a JSON file a method, in folders atari100k* and dmc*, or one such folder or file.

    Atari files map a game to the scores of its runs, DMControl files a number of frames to such maps.
    """
    files = [path] if path.is_file() else sorted([*path.glob("*.json"), *path.glob("*/*.json")])
    if not files:
        raise UserError(
            f"no bank of runs at {path}: expected folders such as atari100k with a JSON file a method"
        )
    found = Found([], [], {}, {}, [], {})
    for file in files:
        try:
            held = json.loads(read_limited(file, LARGEST))
            found.rows.extend(_banked(file, held, found.left_out))
        except OSError as error:
            found.left_out.append(f"{file} cannot be read ({error.strerror})")
        except BAD as error:
            found.left_out.append(f"{file} is damaged ({_short(error)})")
    if not found.rows:
        raise UserError(f"nothing in the bank at {path} could be read: {found.left_out[0]}")
    return found


def _means(rows: Sequence[Episode]) -> Means:
    games: dict[tuple[int, int], list[float]] = {}
    for row in rows:
        games.setdefault((row.agent_steps, row.seed), []).append(row.score)
    return {key: float(np.mean(mine)) for key, mine in games.items()}


def _own(row: Row, source: str, where: str, seeds: int) -> Score:
    return Score(
        suite=row["suite"],
        task=row["task"],
        method=row["method"],
        seed=int(row["seed"]),
        score=float(row["score"] or "nan"),
        normalised=float(row["normalised"] or "nan"),
        source=source,
        where=where,
        protocol=row["protocol"],
        protocol_hash=row["protocol_hash"],
        config_hash=row["config_hash"],
        runs=1,
        agent_steps=int(row["agent_steps"]),
        seconds=float(row["wall_clock_s"] or "nan") / max(seeds, 1),
    )


def _origin(row: Row, source: str, where: str) -> Origin:
    return Origin(
        suite=row["suite"],
        task=row["task"],
        method=row["method"],
        source=source,
        where=where,
        seeds=str(row["seeds"]),
        protocol_hash=row["protocol_hash"],
        config_hash=row["config_hash"],
        commit=str(row["commit"]),
        command=str(row["command"]),
        hardware=str(row["hardware"]),
        gpu=any(word in row["hardware"] for word in ("GPU", "NVIDIA", "Tesla", "TPU", "Radeon")),
        # One and the same NaN, or a run would not be equal to itself.
        seconds=float(row["wall_clock_s"]) if row["wall_clock_s"] else math.nan,
        finished=str(row["finished"]),
    )


def _banked(file: Path, held: Any, left_out: list[str]) -> list[Score]:
    """The rows of one file of a bank."""
    if not isinstance(held, dict) or not held:
        raise ValueError("no JSON object")
    bank = f"bank:{file.parent.name}"
    rows: list[Score] = []
    if isinstance(next(iter(held.values())), dict):
        for frames, tasks in held.items():
            told = (bank, str(file), f"dmc{int(frames) // 1000}k", "", "", 1, 0, math.nan)
            for task, scores in tasks.items():
                for seed, score in _finite(f"{file}, {frames}, {task}", scores, left_out):
                    rows.append(Score("dmc", task, file.stem, seed, score, score / paper.DMC_BEST, *told))
        return rows
    sticky = "-sticky" if "sticky" in file.stem else ""
    told = (bank, str(file), f"atari100k{sticky}", "", "", 1, 100_000, math.nan)
    for game, scores in held.items():
        task = _games().get(_letters(game))
        if task is None:
            left_out.append(f"{file}: no game '{game[:40]}' among the 26 of Atari 100k")
            continue
        for seed, score in _finite(f"{file}, {game}", scores, left_out):
            rows.append(Score("atari", task, file.stem, seed, score, paper.normalise(task, score), *told))
    return rows


def _finite(where: str, scores: Any, left_out: list[str]) -> list[tuple[int, float]]:
    if not isinstance(scores, list):
        left_out.append(f"{where}: no list of scores")
        return []
    good = [
        (seed, float(score))
        for seed, score in enumerate(scores)
        if type(score) in (int, float) and math.isfinite(score)
    ]
    if len(good) < len(scores):
        left_out.append(f"{where}: {len(scores) - len(good)} of {len(scores)} scores are not finite numbers")
    return good


@cache
def _games() -> dict[str, str]:
    return {_letters(task): task for task in paper.scores()["SPR"]}


def _letters(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__
