"""What can be done to a file by accident or on purpose, as strategies of Hypothesis."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from vcrl.runs.checkpoint import _render

Spoil = Callable[[Path], None]
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**400, -(10**30), 0.5, 1e308, -1e308, 5e-324,
    "", "x", "done", "../../outside/secret.json", "/etc/passwd", "\0", "\ud800", "é" * 300, "[red]x[/]", "1" * 5000,
    [], [[]], [None], [0] * 50, {}, {"kind": "Scalar"}, {"a": {"b": {}}}, ["x", 1, None],
]  # fmt: skip
TEXTS = [
    b"", b"\0", b"null", b"[]", b"{}", b"\xff\xfe", b"NaN", b"1e999", b'{"a": 1e999}', b'{"a": NaN}', b"9" * 5000,
    b"[" * 100_000, b'{"a":' * 100_000, b"[" * 60 + b"]" * 60, b'{"a": ' + b"9" * 5000 + b"}", b"\n" * 1000,
    b",,,,\n" * 100, b"a,b\n1,2,3,4\n", b'"' * 999, b"\xef\xbb\xbf{}",
    b"seed,agent_steps,episode,score,length\n1,1,1,inf,1\n",
    b"[a]\n" * 500, b"a." * 5000 + b"b = 1", b"x = " + b"[" * 5000,
]  # fmt: skip
NUMBERS = st.integers(0, 9999)  # of a file, a line or a part, counted round and round
HUGE = 2**31 + 2**20  # bytes of a file of nothing


def _cut(data: bytes, at: int, more: bytes) -> bytes:
    return data[:at]


def _flip(data: bytes, at: int, more: bytes) -> bytes:
    changed = bytearray(data)
    if changed:
        changed[at % len(changed)] ^= 1 << (len(more) % 8)
    return bytes(changed)


def _insert(data: bytes, at: int, more: bytes) -> bytes:
    return data[:at] + more + data[at:]


def _replace(data: bytes, at: int, more: bytes) -> bytes:
    return data[:at] + more + data[at + len(more) :]


def _repeat(data: bytes, at: int, more: bytes) -> bytes:
    return data + data[at:]


EDITS = st.lists(
    st.tuples(
        st.sampled_from([_cut, _flip, _insert, _replace, _repeat]), st.floats(0, 1), st.binary(max_size=12)
    ),
    min_size=1,
    max_size=4,
)


def _edited(edits: list[Any]) -> Spoil:
    def spoil(path: Path) -> None:
        data = path.read_bytes()
        for edit, where, more in edits:
            data = edit(data, int(where * len(data)), more)
        path.write_bytes(data)

    return spoil


def _written(data: bytes) -> Spoil:
    return lambda path: write(path, data)


def write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container of a JSON value with every key of it."""
    keys: list[Any] = (
        list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    )
    return [(value, key) for key in keys] + [place for key in keys for place in places(value[key])]


def altered(value: Any, where: int, how: str, new: Any) -> Any:
    """A JSON value with one part of it changed, removed, or added to: half the time at the top, where names are."""
    every = places(value)
    if not every:
        return new
    container, key = every[where // 2 % (len(value) if where % 2 else len(every))]
    if how == "change":
        container[key] = new
    elif how == "remove":
        del container[key]
    elif isinstance(container, dict):
        container[str(new)[:50]] = new
    else:
        container.append(new)
    return value


def _json(where: int, how: str, new: Any, line: int) -> Spoil:
    """In a file of JSON, in one line of a log, in the head of a file of arrays; the rest stays true."""

    def spoil(path: Path) -> None:
        data = path.read_bytes()
        if path.suffix == ".safetensors":
            size = int.from_bytes(data[:8], "little")
            text = _text(altered(json.loads(data[8 : 8 + size]), where, how, new))
            path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])
        elif path.suffix == ".json":
            path.write_bytes(_text(altered(json.loads(data), where, how, new)))
        else:
            lines = data.split(b"\n")
            at = line % len(lines) if path.suffix != ".receipt" else 0
            try:
                lines[at] = _text(altered(json.loads(lines[at]), where, how, new))
            except ValueError:
                cells = lines[at].split(b",")
                cells[where % len(cells)] = _text(new)[:50]
                lines[at] = b",".join(cells)
            path.write_bytes(b"\n".join(lines))

    return spoil


def _text(value: Any) -> bytes:
    return json.dumps(value).encode()


def _instead(kind: str) -> Spoil:
    """Something else in a file's place."""

    def spoil(path: Path) -> None:
        outside = next(p for p in path.parents if p.name == "inside").parent / "outside"
        path.unlink()
        if kind == "folder":
            path.mkdir()
        elif kind == "pipe":
            os.mkfifo(path)
        elif kind == "huge":
            with open(path, "wb") as file:
                file.truncate(HUGE)
        elif kind != "nothing":
            target = {"secret": outside / "secret.json", "device": "/dev/zero", "nowhere": outside / "none"}[
                kind
            ]
            path.symlink_to(target)

    return spoil


SPOILS: st.SearchStrategy[Spoil] = st.one_of(
    EDITS.map(_edited),
    st.binary(max_size=200).map(_written),
    st.sampled_from(TEXTS).map(_written),
    st.builds(
        _json,
        NUMBERS,
        st.sampled_from(["change", "remove", "add"]),
        st.sampled_from(VALUES),
        NUMBERS,
    ),
    st.sampled_from(["folder", "pipe", "huge", "nothing", "secret", "device", "nowhere"]).map(_instead),
)


def seal(folder: Path) -> None:
    """Repair all checksums of a checkpoint folder, as somebody would who means harm; what is beyond repair stays."""
    for path in folder.glob("*.json"):
        if not path.is_file() or path.is_symlink() or path.stat().st_size > 10**6:
            continue
        try:
            body = json.loads(path.read_bytes())
            body.pop("checksum", None)
            parts = [(folder / f"{path.stem}.safetensors", body)]
            parts += [
                (folder / "rows" / f"{e['start']:09d}-{e['stop']:09d}.safetensors", e) for e in body["rows"]
            ]
            for file, entry in parts:
                if file.is_file() and file.stat().st_size < 10**6:
                    data = file.read_bytes()
                    entry.update(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
            path.write_bytes(_render(body))
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue
