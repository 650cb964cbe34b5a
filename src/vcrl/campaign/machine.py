"""What there is to run on: GPUs and their memory, RAM, cores, disk."""

import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from vcrl.core.errors import UserError
from vcrl.runs.facts import free_memory

UNKNOWN_GPU = 16e9  # bytes, of a card that cannot be asked


class Gpu(NamedTuple):
    index: str
    name: str
    memory: float  # bytes


class Machine(NamedTuple):
    """`gpus` is empty where the CPU trains."""

    gpus: tuple[Gpu, ...]
    memory: float | None  # free RAM in bytes; None where nobody knows
    cores: int

    @property
    def slots(self) -> tuple[str, ...]:
        """How many runs go on at once: one a GPU, or one on the CPU."""
        return tuple(gpu.index for gpu in self.gpus) or ("cpu",)

    @property
    def room(self) -> float | None:
        """Bytes a run may take. JAX takes three quarters of a GPU unless told otherwise; a tenth stays free."""
        if not self.gpus:
            return None if self.memory is None else 0.9 * self.memory
        share = float(os.environ.get("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.75"))
        return 0.9 * share * min(gpu.memory for gpu in self.gpus)

    def environment(self, slot: str) -> dict[str, str]:
        """What tells a training where to run."""
        return (
            {"JAX_PLATFORMS": "cpu"}
            if slot == "cpu"
            else {"CUDA_VISIBLE_DEVICES": slot, "JAX_PLATFORMS": "cuda,cpu"}
        )

    def share(self, slot: str) -> tuple[int, ...]:
        """The cores of one of several runs. Left to themselves they would all take all."""
        if not hasattr(os, "sched_getaffinity"):
            return ()
        mine, n = sorted(os.sched_getaffinity(0)), len(self.slots)
        at = self.slots.index(slot)
        return tuple(mine[at * len(mine) // n : max((at + 1) * len(mine) // n, at * len(mine) // n + 1)])

    def __str__(self) -> str:
        if not self.gpus:
            return f"{self.cores} CPU cores"
        names = sorted({gpu.name for gpu in self.gpus})
        return f"{len(self.gpus)} x {' / '.join(names)}, {self.cores} CPU cores"


def machine(gpus: str | None = None, gpu_memory: float | None = None) -> Machine:
    """This computer. `gpus` is a list of indices, or "none" for the CPU; by default all that JAX can use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    there = list_gpus()
    if gpus is None:
        usable = find_spec("jax_plugins") is not None and os.environ.get("JAX_PLATFORMS", "") != "cpu"
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        chosen = (
            [gpu for gpu in there if visible is None or gpu.index in visible.split(",")] if usable else []
        )
    elif gpus.lower() == "none":
        chosen = []
    else:
        known = {gpu.index: gpu for gpu in there}
        names = list(dict.fromkeys(word.strip() for word in gpus.split(",") if word.strip()))
        if lost := [name for name in names if name not in known] or ([gpus] if not names else []):
            has = ", ".join(known) or "none"
            raise UserError(
                f"--gpus {gpus}: no GPU {lost[0]} here, there are: {has} (--gpus none is the CPU)"
            )
        chosen = [known[name] for name in names]
    if gpu_memory is not None:
        chosen = [gpu._replace(memory=gpu_memory * 1e9) for gpu in chosen]
    return Machine(tuple(chosen), free_memory(), cores)


def elsewhere(gpus: int, cores: int, gpu_memory: float | None) -> Machine:
    """A cluster, of which no more is known than this."""
    one = (gpu_memory or UNKNOWN_GPU / 1e9) * 1e9
    return Machine(tuple(Gpu(str(i), "GPU", one) for i in range(gpus)), None, cores)


def list_gpus() -> list[Gpu]:
    command = ["nvidia-smi", "--query-gpu=index,name,memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return []
    found: list[Gpu] = []
    for line in done.stdout.splitlines() if done.returncode == 0 else []:
        index, name, memory = (part.strip() for part in [*line.split(","), "", ""][:3])
        found += [Gpu(index, name, float(memory) * 2**20 if memory.isdigit() else UNKNOWN_GPU)]
    return found


def free_disk(folder: Path) -> int:
    """Where a folder is, or will be made."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free
