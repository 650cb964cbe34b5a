"""Looking at run folders from outside: needs no lock and changes nothing."""

import os
from difflib import get_close_matches
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from vcrl.core.errors import UserError
from vcrl.runs.files import read_limited
from vcrl.runs.logs import Episode, read_episodes, read_rows
from vcrl.runs.strict import LARGEST, parse_object

CONFIG = "config.json"
STATUS = "status.json"
LOGS = {"metrics": "metrics.jsonl", "episodes": "episodes.csv", "eval": "eval.csv", "speed": "speed.jsonl"}
DEPTH = 4  # suite, method, task, run


class Run(NamedTuple):
    """A run as it was when read; the logs are read when asked for."""

    path: Path
    record: dict[str, Any]
    status: dict[str, Any]

    def metrics(self) -> list[dict[str, Any]]:
        return read_rows(self.path / LOGS["metrics"])

    def episodes(self) -> list[Episode]:
        return read_episodes(self.path / LOGS["episodes"])

    def evaluations(self) -> list[Episode]:
        return read_episodes(self.path / LOGS["eval"])

    def speed(self) -> list[dict[str, Any]]:
        return read_rows(self.path / LOGS["speed"])


def read_run(path: Path) -> Run:
    if not os.path.exists(path / CONFIG):
        raise _no_run(path)
    return Run(path, read_object(path / CONFIG), read_status(path))


def read_status(path: Path) -> dict[str, Any]:
    return read_object(path / STATUS) if os.path.exists(path / STATUS) else {}


def state_of(path: Path) -> str | None:
    """What status.json says of a run; None where it says nothing that can be read."""
    try:
        return read_status(path).get("state")
    except UserError:
        return None


def read_object(path: Path) -> dict[str, Any]:
    """A JSON file that must hold an object."""
    try:
        return parse_object(read_limited(path, LARGEST))
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror})") from error
    except ValueError as error:
        raise UserError(
            f"{path} is damaged (no JSON object): restore it, choose another --out or delete the folder"
        ) from error


def check_record(path: Path, record: dict[str, Any]) -> None:
    """Refuse a record that does not say sanely what the run is."""
    check_names(path, record)
    seeds = record.get("seeds")
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int for seed in seeds):
        raise UserError(f"{path / CONFIG} is damaged (seeds are {repr(seeds)[:60]})")
    if not isinstance(record.get("protocol"), dict) or not isinstance(record.get("protocol_hash"), str):
        raise UserError(f"{path / CONFIG} is damaged (no protocol)")


def check_names(path: Path, record: dict[str, Any]) -> None:
    """Names end up in titles, tables and pages."""
    for name in ("suite", "method", "task"):
        value = record.get(name)
        if not isinstance(value, str) or not 0 < len(value) <= 200 or not value.isprintable():
            raise UserError(f"{path / CONFIG} is damaged ({name} is {repr(value)[:60]})")


def find_runs(folder: Path) -> list[Path]:
    """Run folders beneath a folder; the search is bounded, for it may be pointed anywhere."""
    patterns = ("/".join(["*"] * depth) + f"/{CONFIG}" for depth in range(1, DEPTH + 1))
    return sorted(p.parent for p in islice(chain.from_iterable(folder.glob(p) for p in patterns), 1000))


def _no_run(path: Path) -> UserError:
    what, base = f"no run folder at {path}", path.parent
    if os.path.exists(path):
        what, base = f"{path} is not a run folder (it has no {CONFIG})", path
    names = [str(found.relative_to(base)) for found in find_runs(base)]
    near = get_close_matches(path.name, names, n=3, cutoff=0.3) or (names[:3] if os.path.exists(path) else [])
    return UserError(f"{what}: did you mean {' or '.join(str(base / n) for n in near)}?" if near else what)
