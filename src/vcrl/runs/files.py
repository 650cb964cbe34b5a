"""Files that are whole or absent, whatever moment the machine stops."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vcrl.core.errors import UserError


def temp_of(path: Path) -> Path:
    """Where a file is written before it takes its name: the same folder, so renaming stays on one disk."""
    return path.with_name(f".{path.name}.tmp")


def is_temp(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(".tmp")


def discard(temp: Path) -> None:
    """Clean up without hiding the error that made it necessary."""
    with suppress(OSError):
        temp.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """A rename survives a power cut only after its folder is on disk too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_durable(path: Path, data: bytes) -> None:
    """Write and wait for the disk."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_atomic(path: Path, data: bytes) -> None:
    """Replace a file in one step: a reader sees the old bytes or the new ones, never a mixture."""
    temp = temp_of(path)
    try:
        write_durable(temp, data)
        os.replace(temp, path)
    finally:
        discard(temp)
    sync_folder(path.parent)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the system's refusal to write into a line for the user."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write to {path}: choose another place with --out ({error.strerror})"
        ) from error
