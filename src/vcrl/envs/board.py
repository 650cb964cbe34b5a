"""Memory that several processes share: arrays with a row for every lane, or for whatever else they share."""

import mmap
import os
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np

Fields = Mapping[str, tuple[Any, tuple[int, ...]]]  # the kind of every array and the shape of its rows

PAGE = 4096  # arrays begin on pages of their own


class Board:
    """The shared arrays, by name."""

    def __init__(self, file: int, fields: Fields, rows: int, create: bool = False):
        sizes = [int(np.prod([rows, *shape])) * np.dtype(kind).itemsize for kind, shape in fields.values()]
        starts = np.cumsum([0, *(-(-size // PAGE) * PAGE for size in sizes)])
        if create:
            os.ftruncate(file, int(starts[-1]))
        memory = mmap.mmap(file, int(starts[-1]))
        for (name, (kind, shape)), start in zip(fields.items(), starts, strict=False):
            count = rows * int(np.prod(shape))
            array = np.frombuffer(memory, kind, count, int(start)).reshape(rows, *shape)
            setattr(self, name, array)

    def __getattr__(self, name: str) -> np.ndarray:
        # For the type checker, which cannot know their names.
        raise AttributeError(f"no array is called {name}")


def memory() -> int:
    """A file that exists in memory only, where the system has such."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("vcrl lanes")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
