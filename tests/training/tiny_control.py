"""Trainings of continuous methods on `reach`, small enough to run in a moment."""

from typing import Any

import jax
import numpy as np

from vcrl.core.config import paths
from vcrl.methods.continuous import FAMILY
from vcrl.training.engine import Training, engine_of
from vcrl.training.loop import tick
from vcrl.training.plan import Plan, Schedule, make_plan

CHANGES = {
    "batch": 4,
    "auxiliary.batch": 3,
    "width": 6,
    "hidden": 8,
    "transition": 8,
    "projection": 8,
    "learn_start": 30,
    "updates_per_step": 1,
    "adam.epsilon": 1e-3,  # or Adam makes a whole step of a gradient that is nothing but rounding
    "continuous.samples": 3,
    "terms.spr.steps": 2,
    "terms.vcr.steps": 2,
    "terms.vcr.ramp": 40,
    "terms.cycle.steps": 2,
    "terms.cycle.ramp": 40,
    "terms.cycle.copies": 2,
}
SCHEDULE = Schedule(log=10, evaluate=30, gradients=0, q_error=40, q_error_positions=50)


def changes(method: str) -> dict[str, Any]:
    """Those that concern the method."""
    known = paths(FAMILY.resolve(method, "toy"))
    return {path: value for path, value in CHANGES.items() if path in known}


def plan(method: str, seeds: tuple[int, ...], steps: int = 80) -> Plan:
    return make_plan(method, "reach", seeds, steps, changes(method), SCHEDULE)


def ticks(plan: Plan, count: int) -> tuple[Training, Any, list[Any]]:
    """The first ticks of a training; its nets at the start, and what every update told."""
    engine = engine_of(plan)
    training, told = Training(plan, engine), []
    start = jax.device_get(training.state)
    for _ in range(count):
        metrics, _ = tick(plan, engine, training)
        told += jax.device_get(metrics or [])
    return training, start, told


def leaves(tree: Any) -> dict[str, np.ndarray]:
    flat, _ = jax.tree_util.tree_flatten_with_path(jax.device_get(tree))
    return {jax.tree_util.keystr(path): np.asarray(x) for path, x in flat}
