"""Going on from a checkpoint, once it is known to be one of this training."""

from typing import Any

import numpy as np

from vcrl.core.errors import UserError
from vcrl.runs import checkpoint
from vcrl.runs.checkpoint import Checkpoint
from vcrl.runs.folder import RunFolder
from vcrl.runs.strict import BAD
from vcrl.training.console import Console
from vcrl.training.engine import Training

OWED = {"row": dict, "q_error": bool, "evaluate": bool}
# Along which axis a saved part of the lanes may be longer or shorter than another.
FREE = {"lanes/actions": 0}  # as many as open games have steps; of a simulator's state it is axis 1


def resume(training: Training, folder: RunFolder, console: Console) -> tuple[dict[str, Any], list[str]]:
    """Go back to the newest whole checkpoint, logs included; without one, to the beginning.

    Returns what that checkpoint left to be looked at, and what was found amiss.
    """
    found = checkpoint.load(folder.checkpoint, console.line)
    if found is None:
        folder.truncate()
        return {}, []
    try:
        check(training, found)
        training.restore(found)
    except BAD as error:
        raise UserError(
            f"checkpoint {found.agent_steps:09d} is not of this run ({type(error).__name__}: {error}): "
            f"delete the folder {folder.checkpoint} to start again"
        ) from error
    logs: dict[str, int] = found.extra["logs"]
    folder.truncate(logs)
    changed = [
        f"{name} is not as it was written: what is in it now is kept"
        for name in folder.changed(logs, found.extra.get("sha256", {}))
    ]
    console.line(f"continuing at {training.tick:,} agent steps")
    return found.extra.get("owed", {}), changed


def check(training: Training, found: Checkpoint) -> None:
    """Refuse what this training would never have saved, before anything is made of it; nets are checked apart."""
    extra, arrays = found.extra, found.arrays
    counters = extra["counters"]
    if counters.keys() != training.counters.keys() or any(type(n) is not int for n in counters.values()):
        raise ValueError("other counters")
    if counters["tick"] != found.agent_steps or min(counters.values()) < 0:
        raise ValueError("counters of another step")
    if any(type(n) is not int for n in extra["logs"].values()) or type(extra.get("sha256", {})) is not dict:
        raise ValueError("positions in logs that cannot be")
    if extra.get("owed") and {name: type(value) for name, value in extra["owed"].items()} != OWED:
        raise ValueError("something else left to be looked at")
    for name, mine in {**training.lanes.save(), "failed": training.failed}.items():
        _check_like(name, mine, arrays[f"host/{name}"])
    length, actions = arrays["host/lanes/length"], arrays["host/lanes/actions"]
    if (length < 0).any() or (length > len(actions)).any() or length.sum() != len(actions):
        raise ValueError("games of impossible length")
    if (arrays["host/lanes/episode"] < 0).any():
        raise ValueError("games of impossible number")


def _check_like(name: str, mine: np.ndarray, theirs: np.ndarray) -> None:
    free = FREE.get(name, 1 if name.startswith("env/") else None)
    one, two = ([n for axis, n in enumerate(a.shape) if axis != free] for a in (mine, theirs))
    if one != two or mine.ndim != theirs.ndim or mine.dtype != theirs.dtype:
        raise ValueError(f"{name} is {theirs.dtype}{list(theirs.shape)}")
