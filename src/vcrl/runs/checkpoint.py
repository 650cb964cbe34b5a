"""Flat named arrays <-> a safetensors file and a JSON manifest; atomic, checksummed, two generations kept.

What only grows, the rows of a replay, is written once: each save adds a file of the new rows, and a manifest names all
the files that belong to it.
"""

import errno
import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from vcrl.core.errors import UserError
from vcrl.runs.files import discard, is_temp, open_plain, read_limited, sync_folder, temp_of, write_durable
from vcrl.runs.strict import parse_object

FORMAT = "vcrl checkpoint 2"
KEPT = 2
LARGEST_MANIFEST = 64 * 2**20  # bytes

# What safetensors calls each dtype. Its NumPy side does not know bfloat16, which therefore travels as bits.
CODES = {
    "bool": "BOOL", "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64",
    "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64",
    "bfloat16": "U16", "float16": "F16", "float32": "F32", "float64": "F64",
}  # fmt: skip


class Rows(NamedTuple):
    """Rows `start` to `stop` - 1 of arrays that grow, counted from the start of the run along axis 1."""

    start: int
    stop: int
    arrays: dict[str, np.ndarray]


class Checkpoint(NamedTuple):
    agent_steps: int
    arrays: dict[str, np.ndarray]
    extra: dict[str, Any]
    rows: Iterator[Rows]  # one file at a time: together they may be larger than memory
    stop: int  # rows are complete up to here


class Damaged(Exception):
    """Why one generation cannot be used."""


def save(
    folder: Path,
    agent_steps: int,
    arrays: dict[str, np.ndarray],
    extra: dict[str, Any],
    rows: Rows | None = None,
    oldest: int = 0,
) -> Path:
    """Write one generation and drop the outdated ones; `extra` is JSON data and comes back as it went in.

    `rows` are those since the generation before, or at least all from `oldest` on; files that hold only older ones
    are no longer part of this generation.
    """
    if json.loads(json.dumps(extra, allow_nan=False)) != extra:
        raise TypeError("extra must be JSON data: string keys, lists, finite numbers")
    if rows is not None and any(a.shape[1:2] != (rows.stop - rows.start,) for a in rows.arrays.values()):
        raise ValueError(f"arrays must hold rows {rows.start} to {rows.stop} along axis 1")
    header, data, manifest = _header(arrays), *_paths(folder, agent_steps)
    grown = _header(rows.arrays) if rows is not None else b""
    chunk = _chunk(folder, rows.start, rows.stop) if rows is not None else None
    before: list[dict[str, Any]] = []
    if rows is not None and rows.start > oldest:  # else all before them is outdated
        before = [e for e in _before(folder, agent_steps, rows.start) if e["stop"] > oldest]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if rows is not None and chunk is not None and rows.stop > rows.start:
            chunk.parent.mkdir(exist_ok=True)
            entry = _entry(*_write_arrays(temp_of(chunk), grown, rows.arrays), rows.arrays)
            os.replace(temp_of(chunk), chunk)
            sync_folder(chunk.parent)
            before.append({"start": rows.start, "stop": rows.stop, **entry})
        entry = _entry(*_write_arrays(temp_of(data), header, arrays), arrays)
        text = _render(
            {"format": FORMAT, "agent_steps": agent_steps, **entry, "rows": before, "extra": extra}
        )
        write_durable(temp_of(manifest), text)
        # Saving a step anew: other arrays must never stand under the old manifest, not even for a moment.
        if manifest.exists() and manifest.read_bytes() != text:
            manifest.unlink()
        for path in (data, manifest):
            os.replace(temp_of(path), path)
            sync_folder(folder)
    except OSError as error:
        every = [*arrays.values(), *(rows.arrays.values() if rows is not None else ())]
        needed = len(header) + len(grown) + sum(a.nbytes for a in every)
        raise _refusal(folder, agent_steps, needed, error) from error
    finally:
        for path in (data, manifest, *((chunk,) if chunk is not None else ())):
            discard(temp_of(path))
    _prune(folder, agent_steps, KEPT, None if rows is None else rows.start)
    return data


def settle(folder: Path, agent_steps: int) -> None:
    """Keep one generation alone: nothing will be continued any more."""
    _prune(folder, agent_steps, 1)


def load(folder: Path, warn: Callable[[str], None], rows: bool = True) -> Checkpoint | None:
    """The newest generation that is whole; None where nothing was saved, an error where all is damaged.

    Without `rows` their files are neither checked nor read.
    """
    damaged: list[tuple[str, str]] = []
    for agent_steps in sorted(_generations(folder), reverse=True):
        try:
            found = _read(folder, agent_steps, rows)
        except Damaged as reason:
            damaged.append((f"{agent_steps:09d}", str(reason)))
            continue
        for name, reason in damaged:
            warn(f"checkpoint {name} is damaged ({reason}): continuing from {agent_steps:09d}")
        return found
    if damaged:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in damaged)
        raise UserError(
            f"every checkpoint is damaged ({reasons}): "
            f"delete the folder {folder} to start again; nothing else is lost"
        )
    return None


def generations(folder: Path) -> list[int]:
    """Steps that have a manifest, oldest first."""
    return sorted(_generations(folder))


def check(folder: Path, agent_steps: int) -> tuple[dict[str, Any], set[Path]]:
    """A generation's manifest and files, once these are known to be what it describes; else `Damaged`.

    No array is loaded.
    """
    with _damages():
        body, parts = _checked(folder, agent_steps, rows=True)
        _check_arrays(_paths(folder, agent_steps)[0], body["arrays"])
    return body, {*_paths(folder, agent_steps), *parts}


def _paths(folder: Path, agent_steps: int) -> tuple[Path, Path]:
    return folder / f"{agent_steps:09d}.safetensors", folder / f"{agent_steps:09d}.json"


def _chunk(folder: Path, start: int, stop: int) -> Path:
    return folder / "rows" / f"{start:09d}-{stop:09d}.safetensors"


def _rows_of(folder: Path, agent_steps: int) -> list[dict[str, Any]] | None:
    """The files of rows that a generation names; None if its manifest is damaged."""
    try:
        return _parse(read_limited(_paths(folder, agent_steps)[1], LARGEST_MANIFEST))["rows"]
    except (Damaged, OSError):
        return None


def _before(folder: Path, agent_steps: int, start: int) -> list[dict[str, Any]]:
    """The files of rows up to `start`, as the newest generation that ends there names them."""
    for older in sorted((n for n in _generations(folder) if n <= agent_steps), reverse=True):
        found = _rows_of(folder, older)
        if found is not None and (found[-1]["stop"] if found else 0) == start:
            return found
    if start:
        raise ValueError(
            f"no generation holds the rows up to {start}: each save goes on where the last one ended"
        )
    return []


def _generations(folder: Path) -> list[int]:
    """Steps that have a manifest. It is written last, so a generation without one was never finished."""
    stems = (path.stem for path in folder.glob("*.json"))
    return [int(s) for s in stems if re.fullmatch("[0-9]{9,18}", s) and f"{int(s):09d}" == s]


def _prune(folder: Path, saved: int, count: int, start: int | None = None) -> None:
    """Keep the generation just saved and as many before it as make `count`.

    Anything newer, or with rows beyond the `start` of the new ones, is a future that this run did not continue from,
    because `load` found it damaged.
    """
    ends = {n: _rows_of(folder, n) for n in _generations(folder) if n <= saved}
    past = [
        n for n, e in ends.items() if e is not None and (start is None or not e or e[-1]["stop"] <= start)
    ]
    kept = sorted({saved, *past})[-count:]
    names = {path.name for n in kept for path in _paths(folder, n)}
    used = {_chunk(folder, e["start"], e["stop"]) for n in kept for e in ends.get(n) or []}
    for path in sorted(folder.iterdir()):  # in order of names: a manifest goes before the arrays it describes
        ours = re.fullmatch(r"[0-9]{9,18}\.(safetensors|json)", path.name) or is_temp(path)
        if ours and path.name not in names:
            path.unlink()
    for path in sorted((folder / "rows").glob("*")):
        if path not in used:
            path.unlink()


def _refusal(folder: Path, agent_steps: int, needed: int, error: OSError) -> UserError:
    older = _generations(folder)
    kept = f"the last checkpoint ({max(older):09d}) is kept" if older else "there is no earlier checkpoint"
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return UserError(f"cannot write checkpoint {agent_steps:09d} to {folder} ({error.strerror}); {kept}")
    return UserError(
        f"the disk is full: checkpoint {agent_steps:09d} needs {needed / 1e6:.1f} MB in {folder}; {kept}: "
        "free some space and run the same command again"
    )


def _header(arrays: dict[str, np.ndarray]) -> bytes:
    """The head of a safetensors file: its length, then where each array lies, padded to align the data."""
    entries: dict[str, Any] = {}
    at = 0
    for name in _order(arrays):
        array = arrays[name]
        if array.dtype.name not in CODES or name == "__metadata__":
            raise TypeError(f"cannot store array '{name}' of dtype {array.dtype}")
        span = [at, at + array.nbytes]
        entries[name] = {"dtype": CODES[array.dtype.name], "shape": list(array.shape), "data_offsets": span}
        at = span[1]
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _order(arrays: dict[str, np.ndarray]) -> list[str]:
    """Wide dtypes first: then every array starts at a multiple of its own width."""
    return sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))


def _write_arrays(path: Path, header: bytes, arrays: dict[str, np.ndarray]) -> tuple[int, str]:
    """Bytes written and their checksum, taken on the way so that a fault of the disk cannot enter it.

    The library's own writer hides a full disk in a text and would need a second pass for the checksum.
    """
    seen = hashlib.sha256()
    with open(path, "wb") as file:
        for part in (header, *(arrays[name] for name in _order(arrays))):
            raw = part if isinstance(part, bytes) else _raw(part)
            seen.update(raw)
            file.write(raw)
        file.flush()
        os.fsync(file.fileno())
        return file.tell(), seen.hexdigest()


def _raw(array: np.ndarray) -> memoryview:
    """An array's bytes in row order, little-endian; a copy only where it does not lie so in memory."""
    dense = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return dense.reshape(-1).view(np.uint8).data


def _render(body: dict[str, Any]) -> bytes:
    """A manifest's only valid bytes: its content followed by the content's own checksum."""
    text = json.dumps(body, allow_nan=False)
    sealed = {**body, "checksum": hashlib.sha256(text.encode()).hexdigest()}
    return json.dumps(sealed, indent=1, allow_nan=False).encode() + b"\n"


def _entry(size: int, sha256: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    shapes = {n: {"shape": list(a.shape), "dtype": a.dtype.name} for n, a in arrays.items()}
    return {"bytes": size, "sha256": sha256, "arrays": shapes}


def _read(folder: Path, agent_steps: int, rows: bool) -> Checkpoint:
    with _damages():
        body, parts = _checked(folder, agent_steps, rows)
        arrays = _read_arrays(_paths(folder, agent_steps)[0], body["arrays"])
        found = (Rows(e["start"], e["stop"], _read_arrays(path, e["arrays"])) for path, e in parts.items())
        return Checkpoint(
            agent_steps, arrays, body["extra"], found, max([e["stop"] for e in body["rows"]], default=0)
        )


def _checked(folder: Path, agent_steps: int, rows: bool) -> tuple[dict[str, Any], dict[Path, dict[str, Any]]]:
    """A manifest whose files are the ones that were written, and its files of rows."""
    data, manifest = _paths(folder, agent_steps)
    body = _parse(read_limited(manifest, LARGEST_MANIFEST))
    if body["agent_steps"] != agent_steps:
        raise Damaged("manifest belongs to another step")
    _verify(data, body)
    parts = {_chunk(folder, e["start"], e["stop"]): e for e in body["rows"]} if rows else {}
    for path, entry in parts.items():
        _verify(path, entry)
        _check_arrays(path, entry["arrays"])
    return body, parts


@contextmanager
def _damages() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise Damaged("arrays are missing") from error
    except SafetensorError as error:
        raise Damaged("arrays are unreadable") from error
    except OSError as error:
        raise Damaged(f"cannot be read: {error.strerror}") from error


def _verify(path: Path, entry: dict[str, Any]) -> None:
    """The file is the one that was written."""
    size = path.stat().st_size
    if size != entry["bytes"]:
        raise Damaged(f"{size} bytes instead of {entry['bytes']}")
    with open_plain(path) as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != entry["sha256"]:
            raise Damaged("checksum differs")


def _check_arrays(path: Path, entries: dict[str, Any]) -> None:
    """The file's header agrees with the manifest on names, shapes and dtypes."""
    with safe_open(path, framework="np") as file:
        parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
        found = {name: (part.get_shape(), part.get_dtype()) for name, part in parts.items()}
    if found != {name: (e["shape"], CODES[e["dtype"]]) for name, e in entries.items()}:
        raise Damaged("arrays differ from the manifest")


def _read_arrays(path: Path, entries: dict[str, Any]) -> dict[str, np.ndarray]:
    """Arrays in the manifest's order, once the file is known to agree with it."""
    _check_arrays(path, entries)
    with safe_open(path, framework="np") as file:
        arrays = {name: file.get_tensor(name) for name in entries}
    return {
        name: array.view(ml_dtypes.bfloat16) if entries[name]["dtype"] == "bfloat16" else array
        for name, array in arrays.items()
    }


def _parse(text: bytes) -> dict[str, Any]:
    """A manifest's content, checked for form; one changed byte is damage, even if the text still parses."""
    try:
        sealed = parse_object(text)
        body = {k: v for k, v in sealed.items() if k != "checksum"}
        if _render(body) != text:
            raise Damaged("manifest checksum differs")
    except (ValueError, RecursionError) as error:  # not JSON, not text, a number or a nesting beyond measure
        raise Damaged("manifest is unreadable") from error
    if not _well_formed(body):
        raise Damaged("manifest is malformed")
    return body


def _well_formed(body: dict[str, Any]) -> bool:
    file = {"bytes": int, "sha256": str, "arrays": dict}
    kinds = {"format": str, "agent_steps": int, **file, "rows": list, "extra": dict}
    if {k: type(v) for k, v in body.items()} != kinds or body["format"] != FORMAT:
        return False
    kinds = {"start": int, "stop": int, **file}
    for entry in body["rows"]:
        if not isinstance(entry, dict) or {k: type(v) for k, v in entry.items()} != kinds:
            return False
        if not (0 <= entry["start"] < entry["stop"] and _arrays_well_formed(entry["arrays"])):
            return False
        if any(a["shape"][1:2] != [entry["stop"] - entry["start"]] for a in entry["arrays"].values()):
            return False
    if any(one["stop"] != two["start"] for one, two in itertools.pairwise(body["rows"])):
        return False
    return _arrays_well_formed(body["arrays"])


def _arrays_well_formed(entries: dict[str, Any]) -> bool:
    return all(
        isinstance(e, dict)
        and e.keys() == {"shape", "dtype"}
        and isinstance(e["dtype"], str)
        and e["dtype"] in CODES
        and isinstance(e["shape"], list)
        and all(type(n) is int and n >= 0 for n in e["shape"])
        for e in entries.values()
    )
