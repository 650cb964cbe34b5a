"""Append-only logs: one line per row, the same bytes for the same numbers, readable while being written."""

import hashlib
import io
import itertools
import json
import math
import operator
import os
from pathlib import Path
from typing import Any, NamedTuple, SupportsFloat, SupportsIndex

import numpy as np

from vcrl.core.errors import UserError
from vcrl.runs.files import open_plain, read_limited, writing
from vcrl.runs.strict import parse_object

LARGEST = 2**30  # bytes of a log

Int = SupportsIndex  # NumPy's integers included, numbers with a fraction not
Float = SupportsFloat


class Episode(NamedTuple):
    seed: int
    agent_steps: int
    episode: int
    score: float
    length: int


_IN_NUMBERS = b"0123456789+-.einfa"  # not finite ones included
HEADER = ",".join(Episode._fields).encode() + b"\n"


def episode_line(seed: Int, agent_steps: Int, episode: Int, score: Float, length: Int) -> bytes:
    """One row of a table of episodes; the score in the shortest digits that read back as the same number."""
    numbers = [operator.index(seed), operator.index(agent_steps), operator.index(episode), float(score)]
    return ",".join(map(repr, [*numbers, operator.index(length)])).encode() + b"\n"


def json_line(row: dict[str, Any]) -> bytes:
    return json.dumps(plain(row), separators=(",", ":"), allow_nan=False).encode() + b"\n"


def plain(value: Any) -> Any:
    """JSON data from numbers and arrays. JSON has no NaN and no infinity: both become null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value


class Log:
    """One file that grows by whole lines."""

    def __init__(self, path: Path, header: bytes = b""):
        self.path = path
        self._header = header
        with writing(path):
            self._file = open(path, "ab", buffering=1 << 16)  # noqa: SIM115 (`close` does)
        try:
            self._mend()
        except UserError:
            self._file.close()
            raise

    def _mend(self) -> None:
        """A process that was killed may have left half a line, onto which the next row must not be glued."""
        with writing(self.path), open_plain(self.path) as file:
            size = os.fstat(file.fileno()).st_size
            whole = _end_of_lines(file, size)
            file.seek(0)
            if whole and file.read(len(self._header)) != self._header:
                raise UserError(f"{self.path}, line 1: expected {self._header.decode().strip()}")
            if whole < size:
                self._file.truncate(whole)
            if not whole:
                self._file.write(self._header)
                self._file.flush()

    def append(self, line: bytes) -> None:
        with writing(self.path):
            self._file.write(line)

    def flush(self) -> None:
        with writing(self.path):
            self._file.flush()

    def position(self) -> int:
        """Bytes so far, all of them on disk: a checkpoint must not count rows that a power cut could take."""
        self.flush()
        with writing(self.path):
            os.fsync(self._file.fileno())
            return os.fstat(self._file.fileno()).st_size

    def check(self, position: int | None) -> None:
        """Refuse a position at which no row of this file ends."""
        size = self.position()
        if position is None or position == len(self._header) <= size:
            return
        if size < position:
            raise self._lost(f"has {size} bytes where the checkpoint counted {position}")
        with open(self.path, "rb") as file:
            file.seek(max(position - 1, 0))
            if position < len(self._header) or file.read(1) != b"\n":
                raise self._lost(f"has no row that ends at byte {position}, which the checkpoint counted")

    def digest(self, position: int) -> str:
        """Of the bytes up to a position."""
        with writing(self.path):
            return prefix_digest(self.path, position)

    def truncate(self, position: int | None) -> None:
        """Cut back to a position taken earlier, or to the header."""
        self.flush()
        with writing(self.path):
            self._file.truncate(len(self._header) if position is None else position)
        self.position()

    def _lost(self, what: str) -> UserError:
        return UserError(
            f"{self.path} {what}: delete the folder {self.path.parent / 'checkpoint'} to start again"
        )

    def close(self) -> None:
        with writing(self.path):
            self._file.close()


def prefix_digest(path: Path, position: int) -> str:
    """A checksum of a file's bytes up to a position."""
    seen = hashlib.sha256()
    with open_plain(path) as file:
        while position > 0 and (part := file.read(min(position, 1 << 20))):
            seen.update(part)
            position -= len(part)
    return seen.hexdigest()


def steps_told(path: Path) -> set[int]:
    """The agent steps that rows of a table of episodes name; lines that are damaged name none."""
    found = [line.split(b",")[1:2] for line in _whole_lines(path)]
    return {int(steps[0]) for steps in found if steps and steps[0].isdigit() and len(steps[0]) < 19}


def _end_of_lines(file: io.BufferedReader, size: int) -> int:
    """Where the last whole line ends, looked for from the end: a log may be larger than memory."""
    while size > 0:
        start = max(0, size - (1 << 20))
        file.seek(start)
        at = file.read(size - start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        size = start
    return 0


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a JSONL log; null reads as nan."""
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(_whole_lines(path), start=1):
        try:
            row = parse_object(line)
        except ValueError:
            raise UserError(f"{path}, line {number}: expected a JSON object, found {_shown(line)}") from None
        held = b"null" in line or b"\0" in line  # in UTF-16 the letters stand apart
        rows.append(_with_nan(row) if held else row)
    return rows


def read_episodes(path: Path) -> list[Episode]:
    """Rows of a table of episodes."""
    lines = _whole_lines(path)
    if lines and lines[0] + b"\n" != HEADER:
        raise UserError(f"{path}, line 1: expected {HEADER.decode().strip()}, found {_shown(lines[0])}")
    try:
        return _table(lines[1:])
    except ValueError:
        return [_episode(path, number, line) for number, line in enumerate(lines[1:], start=2)]


def by_steps(rows: list[Episode]) -> dict[int, list[Episode]]:
    """The rows of each evaluation."""
    found: dict[int, list[Episode]] = {}
    for row in rows:
        found.setdefault(row.agent_steps, []).append(row)
    return found


def mean_scores(rows: list[Episode], agent_steps: int) -> dict[int, float]:
    """The mean score of each seed's games at some agent steps, to the last bit as a training computes it."""
    games: dict[int, list[float]] = {}
    for row in rows:
        if row.agent_steps == agent_steps:
            games.setdefault(row.seed, []).append(row.score)
    return {seed: float(np.mean(mine)) for seed, mine in games.items()}


class Unlike(NamedTuple):
    """Where games are first not those that were asked for; a game that is not there is None."""

    at: int
    wanted: tuple[int, int] | None  # seed and episode
    found: tuple[int, int] | None


def unlike(rows: list[Episode], seeds: list[int], episodes: int) -> Unlike | None:
    """None where the rows are the first `episodes` games of every seed, in order.

    One after the other: a stranger's protocol may ask for more games than memory holds.
    """
    found = ((row.seed, row.episode) for row in rows)
    wanted = ((seed, episode) for seed in seeds for episode in range(episodes))
    for at, (one, two) in enumerate(itertools.zip_longest(wanted, found)):
        if one != two:
            return Unlike(at, one, two)
    return None


def _table(lines: list[bytes]) -> list[Episode]:
    """All rows, a column at a time, which is much faster; a ValueError where any is not as `_episode` wants it."""
    text = b"\n".join(lines)
    # Counted first: a file of nothing but empty lines is not worth the memory of the other look.
    if (
        text.count(b",") != 4 * len(lines)
        or text.translate(None, _IN_NUMBERS) != (b",,,,\n" * len(lines))[:-1]
    ):
        raise ValueError("not five numbers a line")
    cells = text.decode().replace("\n", ",").split(",") if lines else []
    seeds, agent_steps, episodes, lengths = (_counts(cells[column::5]) for column in (0, 1, 2, 4))
    scores = list(map(float, cells[3::5]))
    if list(map(repr, scores)) != cells[3::5]:
        raise ValueError("digits that nobody here writes")
    return list(map(Episode._make, zip(seeds, agent_steps, episodes, scores, lengths, strict=True)))


def _counts(cells: list[str]) -> list[int]:
    """Few of them differ, and each is read and checked once."""
    known = {cell: int(cell) for cell in set(cells)}
    if any(repr(count) != cell for cell, count in known.items()):
        raise ValueError("digits that nobody here writes")
    return [known[cell] for cell in cells]


def _episode(path: Path, number: int, line: bytes) -> Episode:
    try:
        seed, agent_steps, episode, score, length = line.decode("ascii").split(",")
        row = Episode(int(seed), int(agent_steps), int(episode), float(score), int(length))
        if episode_line(*row) == line + b"\n":  # Python reads " 1_0" as ten; nobody here writes it
            return row
    except ValueError:
        pass
    raise UserError(f"{path}, line {number}: expected {','.join(Episode._fields)}, found {_shown(line)}")


def _whole_lines(path: Path) -> list[bytes]:
    """Lines that ended; half a line at the end is a row still being written."""
    try:
        return read_limited(path, LARGEST).split(b"\n")[:-1]
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}): run the training command again") from error


def _shown(line: bytes) -> str:
    return repr(line[:60].decode("utf-8", "replace"))


def _with_nan(value: Any) -> Any:
    if value is None:
        return math.nan
    if isinstance(value, dict):
        return {key: _with_nan(v) for key, v in value.items()}
    return [_with_nan(v) for v in value] if isinstance(value, list) else value
