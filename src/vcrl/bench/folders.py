"""Run folders found beneath any folder, and read with suspicion: they may be half written, damaged or hostile."""

import math
import os
from pathlib import Path
from typing import Any

from vcrl.core.errors import UserError
from vcrl.runs.files import open_plain
from vcrl.runs.reading import CONFIG, STATUS, Run, check_names, check_record, read_run
from vcrl.runs.strict import BAD, LARGEST, parse_object

__all__ = ["BAD", "LARGEST", "check_names", "read_checked", "read_json", "run_folders"]

DEPTH = 6  # folders below the one given; a run lies at suite/method/task/run


def read_checked(path: Path) -> Run:
    """A run whose record names itself sanely; names end up in titles, tables and pages."""
    if not os.path.exists(path / CONFIG):
        read_run(path)  # says what is wrong, and what may have been meant
    record, _ = read_json(path / CONFIG)
    status, _ = read_json(path / STATUS, needed=False)
    check_record(path, record)
    return Run(path, record, status)


def read_json(path: Path, needed: bool = True) -> tuple[dict[str, Any], float]:
    """A JSON object, and when it was written; one that need not be there is empty."""
    try:
        with open_plain(path) as file:
            data, changed = file.read(LARGEST + 1), os.fstat(file.fileno()).st_mtime
    except FileNotFoundError:
        if needed:
            raise UserError(f"{path} has gone") from None
        return {}, math.nan
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror})") from error
    try:
        if len(data) > LARGEST:
            raise ValueError(f"larger than {LARGEST} bytes")
        return parse_object(data), changed
    except ValueError as error:
        raise UserError(f"{path} is damaged (no JSON object)") from error


def run_folders(path: Path) -> list[Path]:
    """The folder itself if it is a run, else the runs beneath it, in order; what is neither is refused."""
    found: list[str] = []
    _walk(str(path), DEPTH, found)
    if not found and path.is_dir() and not (path / CONFIG).exists():
        raise UserError(f"no runs in {path}: `vcrl train` makes them in the folder runs, or where --out says")
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
