"""What must hold whatever a loader is given: an answer or one line, in bounded time and memory, and no other file."""

import os
import signal
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ground import SECRET

from vcrl.core.errors import UserError

SECONDS = 20  # after which it hangs
BYTES = 256 * 2**20  # more than this no small folder needs

_opened: list[str] | None = None


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _opened is not None and isinstance(arguments[0], str | bytes | os.PathLike):
        path = os.fsdecode(arguments[0])
        if arguments[2] & os.O_NOFOLLOW:  # the system will not follow a link
            _opened.append(os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)))
        else:
            _opened.append(os.path.realpath(path))


sys.addaudithook(_hook)  # of every file that Python opens; it cannot be removed, only be told to be quiet


@contextmanager
def limited() -> Iterator[None]:
    def ring(number: int, frame: Any) -> None:
        raise AssertionError(f"no answer in {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS)
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < BYTES, f"{tracemalloc.get_traced_memory()[1]:,} bytes"
    finally:
        tracemalloc.stop()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def survives(load: Callable[[Path], Any], root: Path, writes: bool = False) -> str:
    """How it ended: loaded, or refused."""
    global _opened
    outside = root.parent / "outside"
    before = None if writes else _listing(root)
    _opened = []
    try:
        with limited():
            load(root)
        how = "loaded"
    except UserError as error:
        text = str(error)
        assert text and "\n" not in text and len(text) < 3000, text
        assert "swordfish" not in text, text
        how = "refused"
    finally:
        opened, _opened = _opened, None
    away = os.path.realpath(outside)
    assert not [path for path in opened if path.startswith(away) or path == "/dev/zero"], opened
    assert [p.name for p in outside.iterdir()] == ["secret.json"]
    assert (outside / "secret.json").read_text() == SECRET
    assert before is None or before == _listing(root)
    return how


def _listing(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            state = path.lstat()
            found[str(path)] = (state.st_mode, state.st_size, state.st_mtime_ns)
    return found
