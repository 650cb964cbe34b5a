"""Score receipts: where each game of an evaluation began and what was done in it, enough to play it again.

A file is one line of JSON, then one stream of zlib: seed, episode and length of every game, then all their actions.
"""

import hashlib
import json
import math
import re
import zlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vcrl.runs.files import is_temp, read_limited, write_atomic
from vcrl.runs.strict import parse_object

FORMAT = "vcrl receipt 1"
FOLDER = "receipts"
LARGEST = 2**28  # bytes of a file
LARGEST_OPEN = 2**30  # bytes of what is in it
LONGEST_HEAD = 4096  # bytes of the line in front
DTYPES = ("uint8", "uint16", "int32", "float32")
DENSEST = 1032  # bytes that one byte of zlib can become at most
KINDS = {
    "format": str, "agent_steps": int, "task": str, "protocol_hash": str, "salt": int,
    "games": int, "steps": int, "dtype": str, "shape": list, "bytes": int, "sha256": str,
}  # fmt: skip


class Game(NamedTuple):
    """One game by its address; the salt is the receipt's."""

    seed: int
    episode: int
    actions: np.ndarray  # T, or T A


class Receipt(NamedTuple):
    """The games of one evaluation, in the order of their rows in eval.csv."""

    agent_steps: int
    task: str
    protocol_hash: str
    salt: int
    games: list[Game]


class BadReceipt(Exception):
    """Why a receipt proves nothing."""


def path_of(folder: Path, agent_steps: int) -> Path:
    return folder / FOLDER / f"{agent_steps:09d}.receipt"


def steps_in(folder: Path) -> list[int]:
    """The evaluations of a run that have a receipt, by agent steps."""
    stems = (path.stem for path in (folder / FOLDER).glob("*.receipt"))
    return sorted(int(s) for s in stems if re.fullmatch("[0-9]{9,18}", s) and f"{int(s):09d}" == s)


def write(folder: Path, receipt: Receipt) -> Path:
    """Into a run folder, whole or not at all; the same games give the same bytes."""
    path = path_of(folder, receipt.agent_steps)
    path.parent.mkdir(exist_ok=True)
    write_atomic(path, render(receipt))
    return path


def keep(folder: Path, steps: Collection[int]) -> None:
    """Drop the receipts of evaluations that a resumed run has yet to do again."""
    for path in (folder / FOLDER).glob("*"):
        if is_temp(path) or (path.suffix == ".receipt" and path.stem not in {f"{n:09d}" for n in steps}):
            path.unlink()


def read(folder: Path, agent_steps: int) -> Receipt:
    try:
        found = parse(read_limited(path_of(folder, agent_steps), LARGEST))
    except FileNotFoundError:
        raise BadReceipt("is missing") from None
    except OSError as error:
        raise BadReceipt(f"cannot be read: {error.strerror}") from error
    if found.agent_steps != agent_steps:
        raise BadReceipt("belongs to another evaluation")
    return found


def render(receipt: Receipt) -> bytes:
    games = receipt.games
    first = games[0].actions
    if first.dtype.name not in DTYPES or any(
        g.actions.dtype != first.dtype or g.actions.shape[1:] != first.shape[1:] or not len(g.actions)
        for g in games
    ):
        raise ValueError(f"actions must be of one kind among {', '.join(DTYPES)}, and no game without any")
    table = np.array([(g.seed, g.episode, len(g.actions)) for g in games], "<i8")
    actions = np.concatenate([g.actions for g in games])
    packed = zlib.compress(table.tobytes() + actions.astype(actions.dtype.newbyteorder("<")).tobytes())
    head = {
        "format": FORMAT,
        **{name: getattr(receipt, name) for name in ("agent_steps", "task", "protocol_hash", "salt")},
        "games": len(games),
        "steps": len(actions),
        "dtype": first.dtype.name,
        "shape": list(first.shape[1:]),
    }
    return _line(head, packed) + packed


def parse(data: bytes) -> Receipt:
    """What `render` wrote, and nothing else: every size is checked before anything is unpacked."""
    line, _, packed = data.partition(b"\n")
    head = _head(line, packed)
    kind = np.dtype(head["dtype"]).newbyteorder("<")
    wide = math.prod(head["shape"]) * kind.itemsize
    size = 24 * head["games"] + wide * head["steps"]
    if size > min(DENSEST * len(packed), LARGEST_OPEN):
        raise BadReceipt("promises more than its bytes can hold")
    opened = zlib.decompressobj()
    try:
        raw = opened.decompress(packed, size + 1)
    except zlib.error as error:
        raise BadReceipt("cannot be unpacked") from error
    if len(raw) != size or not opened.eof or opened.unused_data:
        raise BadReceipt("is not as long as it says")
    table = np.frombuffer(raw, "<i8", 3 * head["games"]).reshape(-1, 3)
    lengths = table[:, 2]
    if (table[:, :2] < 0).any() or (lengths < 1).any() or (lengths > head["steps"]).any():
        raise BadReceipt("has games that cannot be")
    if int(lengths.sum()) != head["steps"] or len(np.unique(table[:, :2], axis=0)) < len(table):
        raise BadReceipt("has games that cannot be")
    actions = np.frombuffer(raw, kind, offset=24 * len(table)).reshape(head["steps"], *head["shape"])
    parts = np.split(actions.astype(kind.newbyteorder("=")), np.cumsum(lengths)[:-1])
    games = [Game(int(s), int(e), part) for (s, e, _), part in zip(table, parts, strict=True)]
    return Receipt(head["agent_steps"], head["task"], head["protocol_hash"], head["salt"], games)


def _line(head: dict[str, Any], packed: bytes) -> bytes:
    """The only valid bytes of a head: its content, and a checksum of both parts."""
    text = json.dumps(head)
    seal = hashlib.sha256(text.encode() + packed).hexdigest()
    return json.dumps({**head, "bytes": len(packed), "sha256": seal}).encode() + b"\n"


def _head(line: bytes, packed: bytes) -> dict[str, Any]:
    try:
        head = parse_object(line if len(line) <= LONGEST_HEAD else b"")
    except ValueError as error:
        raise BadReceipt("has no readable head") from error
    if head.get("format") != FORMAT:
        raise BadReceipt(f"is not of the form '{FORMAT}'")
    if {name: type(value) for name, value in head.items()} != KINDS or head["dtype"] not in DTYPES:
        raise BadReceipt("has a malformed head")
    if any(not 0 <= head[name] < 2**60 for name in ("agent_steps", "salt")) or len(head["shape"]) > 1:
        raise BadReceipt("has a malformed head")
    if any(type(n) is not int or not 1 <= n < 2**20 for n in head["shape"]):
        raise BadReceipt("has a malformed head")
    if not 1 <= head["games"] <= head["steps"] < 2**40:
        raise BadReceipt("has a malformed head")
    if head["bytes"] != len(packed):
        raise BadReceipt(f"has {len(packed)} bytes of games instead of {head['bytes']}")
    if _line({k: v for k, v in head.items() if k not in ("bytes", "sha256")}, packed) != line + b"\n":
        raise BadReceipt("was changed: its checksum differs")
    return head


def sequence(games: Sequence[Game]) -> list[tuple[int, int, int]]:
    """Seed, episode and length of games, as rows of eval.csv have them."""
    return [(game.seed, game.episode, len(game.actions)) for game in games]
