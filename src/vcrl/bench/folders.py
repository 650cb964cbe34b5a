"""Run folders found beneath any folder, and read with suspicion: they may be half written, damaged or hostile."""

import json
import math
import os
from pathlib import Path
from typing import Any

from vcrl.core.errors import UserError
from vcrl.runs.reading import CONFIG, STATUS, Run, read_run

DEPTH = 6  # folders below the one given; a run lies at suite/method/task/run
LARGEST = 16 * 2**20  # bytes of a JSON file that anybody could mean
# What data of the wrong shape can raise in code that expects the right one.
BAD = (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, MemoryError)
NAMES = ("suite", "method", "task")


def read_checked(path: Path) -> Run:
    """A run whose record names itself sanely; names end up in titles, tables and pages."""
    if not (path / CONFIG).exists():
        read_run(path)  # says what is wrong, and what may have been meant
    record, _ = read_json(path / CONFIG)
    status, _ = read_json(path / STATUS, needed=False)
    check_names(path, record)
    seeds = record.get("seeds")
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int for seed in seeds):
        raise UserError(f"{path / CONFIG} is damaged (seeds are {repr(seeds)[:60]})")
    if not isinstance(record.get("protocol"), dict) or not isinstance(record.get("protocol_hash"), str):
        raise UserError(f"{path / CONFIG} is damaged (no protocol)")
    return Run(path, record, status)


def check_names(path: Path, record: dict[str, Any]) -> None:
    for name in NAMES:
        value = record.get(name)
        if not isinstance(value, str) or not 0 < len(value) <= 200 or not value.isprintable():
            raise UserError(f"{path / CONFIG} is damaged ({name} is {repr(value)[:60]})")


def read_json(path: Path, needed: bool = True) -> tuple[dict[str, Any], float]:
    """A JSON object, and when it was written; one that need not be there is empty."""
    try:
        with open(path, "rb") as file:
            data, changed = file.read(LARGEST + 1), os.fstat(file.fileno()).st_mtime
    except FileNotFoundError:
        if needed:
            raise UserError(f"{path} has gone") from None
        return {}, math.nan
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror})") from error
    try:
        value = json.loads(data) if len(data) <= LARGEST else None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise UserError(f"{path} is damaged (no JSON object)")
    return value, changed


def run_folders(path: Path) -> list[Path]:
    """The folder itself if it is a run, else the runs beneath it, in order; what is neither is refused."""
    found: list[str] = []
    _walk(str(path), DEPTH, found)
    if not found:
        read_run(path)  # says what is wrong, and what may have been meant
    return [Path(name) for name in sorted(found)]


def _walk(folder: str, depth: int, found: list[str]) -> None:
    below = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name == CONFIG:
                    found.append(folder)
                    return
                if depth and not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                    below.append(entry.path)
    except OSError:
        return
    for path in below:
        _walk(path, depth - 1, found)
