"""What checkpoints cost a training: the time it stands still for them, and the time their writer takes beside it.

A training with a replay that is already full of rows runs for a while; one checkpoint a minute is due. The share is an
upper bound: it counts the writer's seconds as if training stood still while it writes, which it does not.
"""

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import rich.console
import tyro

from vcrl.envs.actions import action_type
from vcrl.runs.folder import RunFolder
from vcrl.training import loop
from vcrl.training.console import Console
from vcrl.training.engine import Training, engine_of
from vcrl.training.plan import make_plan
from vcrl.training.watch import CHECKPOINT_SECONDS, Watch


@dataclass
class Arguments:
    """Measure."""

    method: Annotated[str, tyro.conf.Positional] = "vcr"
    task: Annotated[str, tyro.conf.Positional] = "catch"
    seeds: int = 5
    minutes: float = 3.0
    """of training, one checkpoint each"""
    rows: int = 20_000
    """of the replay at the start"""
    steps: int = 1_000_000
    """the budget, which is not reached"""


class Timed(Watch):
    """A watch with a stopwatch: `stood` is what training waits for, `wrote` what the writer takes."""

    stood = wrote = 0.0
    count = size = 0

    def save(self, training: Training, rows: bool = True) -> None:
        jax.block_until_ready(
            (training.state, training.replay)
        )  # learning that is under way is no cost of ours
        began = time.perf_counter()
        super().save(training, rows)
        self.stood += time.perf_counter() - began

    def write(self, *arguments: Any) -> None:
        began = time.perf_counter()
        super().write(*arguments)
        self.wrote += time.perf_counter() - began
        self.count += 1
        self.size = sum(path.stat().st_size for path in self.folder.checkpoint.rglob("*") if path.is_file())


def main(arguments: Arguments) -> None:
    plan = make_plan(arguments.method, arguments.task, range(arguments.seeds), arguments.steps)
    engine, quiet = engine_of(plan), rich.console.Console(quiet=True)
    with (
        tempfile.TemporaryDirectory() as out,
        RunFolder.open(Path(out) / "run", plan.identity) as folder,
        Console("", plan.seeds, plan.budget, quiet) as console,
    ):
        training = Training(plan, engine)
        watch = Timed(plan, engine, folder, console)
        learn_start = engine.agent.learn_start
        while training.tick < learn_start + 10:  # with everything compiled
            loop.tick(plan, engine, training)
        shape, kind = action_type(plan.task.spec.actions)
        for _ in range(max(0, arguments.rows - training.rows)):
            row, _ = training.lanes.step(np.zeros((arguments.seeds, *shape), kind))
            loop.bring(plan, training, row)
        for _ in range(2):  # the first one compiles
            watch.stood, training.rows_kept = 0.0, 0
            watch.save(training)
            watch.saving.result()
        print(
            f"{arguments.method} on {arguments.task}, {arguments.seeds} seeds, {training.rows:,} rows; "
            f"a checkpoint of all of them has "
            f"{watch.size / 1e6:.0f} MB: training waits {1000 * watch.stood:.0f} ms, "
            f"the writer takes {1000 * watch.wrote / 2:.0f} ms"
        )
        watch.stood = watch.wrote = watch.count = 0
        began, first = time.perf_counter(), training.tick
        while time.perf_counter() - began < 60 * arguments.minutes:
            watch.after(training, *loop.tick(plan, engine, training))
        watch.saving.result()
        seconds = time.perf_counter() - began
        training.close()
        watch.close()
    ticks, each = (training.tick - first) / seconds, max(watch.count, 1)
    print(f"{seconds:.0f} s, {ticks:.0f} agent steps a second, a checkpoint every {CHECKPOINT_SECONDS:.0f} s")
    print(f"each of {watch.count}: training waits {1000 * watch.stood / each:.0f} ms for it, ", end="")
    print(f"the writer takes {1000 * watch.wrote / each:.0f} ms beside it")
    both = watch.stood + watch.wrote
    print(f"training waits {watch.stood / seconds:.2%} of its time; with the writer's, {both / seconds:.2%}")


if __name__ == "__main__":
    main(tyro.cli(Arguments))
