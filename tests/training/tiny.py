"""A training small enough to run in a moment, and how to compare two of them."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from vcrl.runs import checkpoint
from vcrl.training.plan import Schedule
from vcrl.training.run import Run, train

CHANGES = {
    "batch": 4,
    "hidden": 8,
    "value.atoms": 11,
    "n_step": 2,
    "learn_start": 30,
    "terms.vcr.steps": 2,
    "terms.spr.steps": 2,
    "terms.vcr.ramp": 20,
}
SCHEDULE = Schedule(log=10, evaluate=30, gradients=40, q_error=40, q_error_positions=50)


def tiny(
    out: Path, method: str = "vcr", task: str = "catch", seeds: Any = (3, 5), steps: int = 80, **more: Any
) -> Run:
    plain = method.partition("+")[0]
    changes = {
        p: v for p, v in CHANGES.items() if not p.startswith("terms.") or p.split(".")[1] in plain + "spr"
    }
    if plain == "rainbow":
        changes = {p: v for p, v in changes.items() if not p.startswith("terms.")}
    elif plain == "spr":
        changes = {p: v for p, v in changes.items() if not p.startswith("terms.vcr")}
    log = more.pop("log", None) or Console(file=io.StringIO())
    more = {"schedule": SCHEDULE, **more}
    return train(method, task, seeds, steps, changes | more.pop("changes", {}), out=out, log=log, **more)


def assert_same_files(a: Run, b: Run) -> None:
    """Every file that does not tell the time is the same, byte for byte, and so is the last checkpoint."""
    for name in ("metrics.jsonl", "episodes.csv", "eval.csv"):
        assert (a.path / name).read_bytes() == (b.path / name).read_bytes(), name
    one, two = ({p.name: p.read_bytes() for p in (r.path / "receipts").iterdir()} for r in (a, b))
    assert one == two and len(one) == len({row.agent_steps for row in a.folder.evaluations()})
    one, two = (checkpoint.load(r.path / "checkpoint", print) for r in (a, b))
    assert one is not None and two is not None
    assert one.agent_steps == two.agent_steps and one.extra == two.extra
    assert one.arrays.keys() == two.arrays.keys()
    for name, value in one.arrays.items():
        np.testing.assert_array_equal(value, two.arrays[name], err_msg=name)
