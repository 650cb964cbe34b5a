"""A training on real Atari frames, as short and as small as it can be."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from vcrl.core.config import paths
from vcrl.methods.discrete import FAMILY
from vcrl.training.plan import Plan, Schedule, make_plan
from vcrl.training.run import Run, train_plan

SMALL = {
    "batch": 2,
    "hidden": 16,
    "value.atoms": 11,
    "n_step": 2,
    "updates_per_step": 1,
    "terms.vcr.ramp": 20,
    "terms.cycle.copies": 1,
    "terms.contrast.hidden": 16,
    "terms.contrast.size": 8,
}
SCHEDULE = Schedule(log=4, evaluate=20, gradients=0, q_error=30, q_error_positions=30)


def atari_plan(
    method: str = "vcr",
    game: str = "breakout",
    seeds: Any = (3, 5),
    steps: int = 40,
    learn_start: int = 24,
    schedule: Schedule = SCHEDULE,
    protocol: str | None = None,
) -> Plan:
    """By the protocol, but for two evaluation games that are cut after 40 steps."""
    config = FAMILY.resolve(method, "atari", game)
    changes = {p: v for p, v in SMALL.items() if p in paths(config) and FAMILY.applies(config, p)}
    ahead = {p: v for p, v in paths(config).items() if p.startswith("terms.") and p.endswith(".steps")}
    changes |= {path: {5: 2, 9: 3}[steps] for path, steps in ahead.items()}
    plan = make_plan(method, game, seeds, steps, changes | {"learn_start": learn_start}, schedule, protocol)
    return replace(plan, protocol=replace(plan.protocol, eval_episodes=2, horizon=40))


def atari(out: Path, halt: Any = lambda agent_steps: False, **more: Any) -> Run:
    return train_plan(atari_plan(**more), out, Console(file=io.StringIO()), halt)
