"""The processes that `vcrl doctor` asks: each tries one thing and tells, in lines of JSON, how far it came.

python -m vcrl.probes jax
"""

import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

WRITTEN = 32 * 2**20  # bytes, to see how fast the disk is


def tell(**facts: Any) -> None:
    """A line from one of the processes; what comes after it may hang."""
    print(json.dumps(facts), flush=True)


def try_jax() -> None:
    import jax

    tell(version=jax.__version__)
    devices = jax.devices()
    tell(device=devices[0].device_kind, platform=devices[0].platform, count=len(devices))
    tell(sum=float(jax.jit(lambda x: (x * 2).sum())(jax.numpy.ones(8))))
    from vcrl.nets.tiles import obstacle

    tell(obstacle=obstacle())


def try_ale() -> None:
    if find_spec("ale_py") is None or find_spec("cv2") is None:
        return tell(installed=False)
    import numpy as np

    from vcrl.envs import atari
    from vcrl.envs.emulator import HORIZON, Rules, version

    env, on = atari.AtariEnv(1, "pong", Rules(lives=False, horizon=HORIZON, sticky=0.0)), np.ones(1, bool)
    first = env.reset(on, np.zeros(1, np.uint64))
    for _ in range(20):
        frame = env.step(np.zeros(1, np.int32), on).frame
    if not frame.any() or (frame == first).all():
        raise RuntimeError("the picture does not move")
    tell(version=version(), frame=list(frame.shape[1:3]))


def try_disk(folder: str) -> None:
    """Write where the folder is, or will be made, and take it away again."""
    place = Path(folder)
    while not place.exists():
        place = place.parent
    data, began = os.urandom(2**20), time.perf_counter()
    with tempfile.TemporaryFile(dir=place) as file:
        for _ in range(WRITTEN // len(data)):
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
    tell(rate=WRITTEN / (time.perf_counter() - began), free=shutil.disk_usage(place).free)


def try_cache() -> None:
    folder = cache_folder(os.environ)
    files = [p for p in folder.iterdir() if p.is_file()] if folder.is_dir() else []
    place = folder
    while not place.exists():
        place = place.parent
    with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=place):
        tell(writable=True)
    tell(path=str(folder), files=len(files), bytes=sum(p.stat().st_size for p in files))


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Where compiled programs are kept; `training/engine.py::keep_compiled` decides so, and imports JAX to do it."""
    chosen = environ.get("JAX_COMPILATION_CACHE_DIR")
    home = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(chosen) if chosen else home / "vcrl" / "compiled"


QUESTIONS: dict[str, Callable[..., None]] = {
    "jax": try_jax,
    "ale": try_ale,
    "disk": try_disk,
    "cache": try_cache,
}

if __name__ == "__main__":
    QUESTIONS[sys.argv[1]](*sys.argv[2:])
