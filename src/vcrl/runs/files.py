"""Files that are whole or absent, whatever moment the machine stops."""

import errno
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from vcrl.core.errors import UserError

FULL = (errno.ENOSPC, errno.EDQUOT)


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


def open_plain(path: Path) -> io.BufferedReader:
    """Open for reading what is a file and nothing else: a pipe would be waited for, a link may lead anywhere."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ELOOP:
            error.strerror = "a link, which is not followed"
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a plain file", str(path))
    return open(handle, "rb")


def read_limited(path: Path, most: int) -> bytes:
    """A file's bytes; its size is looked at before it is read."""
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"larger than {most:,} bytes", str(path))
        return file.read(size)  # as many bytes are taken from memory at once as are asked for


def odd_in(folder: Path, depth: int = 3) -> list[Path]:
    """What is neither file nor folder, in a folder and in those below it: links, which are not followed, and pipes."""
    found: list[Path] = []
    # Somebody may be writing here, and a folder may go meanwhile.
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            if entry.is_dir(follow_symlinks=False):
                found += odd_in(Path(entry.path), depth - 1) if depth else []
            elif not entry.is_file(follow_symlinks=False):
                found.append(Path(entry.path))
    return found


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the system's refusal to write into a line for the user."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise UserError(
                f"the disk is full: {path} cannot be written; free some space and run the same command again"
            ) from error
        raise UserError(
            f"cannot write to {path}: choose another place with --out ({error.strerror})"
        ) from error
