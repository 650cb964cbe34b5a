"""Memory that several processes share: pictures, rewards and flags of all lanes."""

import mmap
import os
import tempfile
from typing import Any

import numpy as np

from vcrl.core.spec import EnvSpec
from vcrl.envs.actions import action_type
from vcrl.envs.base import Step


class Board:
    """The shared arrays, one row a lane."""

    def __init__(self, file: int, spec: EnvSpec, lanes: int, create: bool = False):
        fields = _fields(spec)
        sizes = [int(np.prod([lanes, *shape])) * np.dtype(kind).itemsize for kind, shape in fields.values()]
        starts = np.cumsum([0, *(-(-size // 64) * 64 for size in sizes)])
        if create:
            os.ftruncate(file, int(starts[-1]))
        memory = mmap.mmap(file, int(starts[-1]))
        for (name, (kind, shape)), start in zip(fields.items(), starts, strict=False):
            count = lanes * int(np.prod(shape))
            array = np.frombuffer(memory, kind, count, int(start)).reshape(lanes, *shape)
            setattr(self, name, array)

    going: np.ndarray  # which lanes are to be stepped or reset
    resetting: np.ndarray
    seed: np.ndarray
    action: np.ndarray
    frame: np.ndarray
    reward: np.ndarray
    terminal: np.ndarray
    last: np.ndarray
    over: np.ndarray

    @property
    def came(self) -> Step:
        """What came back from the last step of every lane."""
        return Step(self.frame, self.reward, self.terminal, self.last, self.over)


def _fields(spec: EnvSpec) -> dict[str, tuple[Any, tuple[int, ...]]]:
    shape, kind = action_type(spec.actions)
    flags: dict[str, tuple[Any, tuple[int, ...]]] = {
        name: (np.bool_, ()) for name in ("going", "resetting", "terminal", "last", "over")
    }
    return {
        **flags,
        "seed": (np.uint64, ()),
        "action": (kind, shape),
        "frame": (np.uint8, spec.frame),
        "reward": (np.float32, ()),
    }


def memory() -> int:
    """A file that exists in memory only, where the system has such."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("vcrl lanes")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
