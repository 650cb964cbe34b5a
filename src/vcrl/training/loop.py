"""The loop: act, learn, step. What looks at it from outside is in `watch.py`."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from vcrl.core.errors import UserError
from vcrl.core.types import Metrics, Row
from vcrl.envs.base import fault_of
from vcrl.envs.lanes import Finished, LaneRow
from vcrl.runs import checkpoint
from vcrl.runs.folder import RunFolder
from vcrl.training.console import Console
from vcrl.training.engine import Engine, Training, engine_of
from vcrl.training.evaluate import learner_reward
from vcrl.training.lift import no_row, packed
from vcrl.training.plan import Plan
from vcrl.training.resume import resume
from vcrl.training.watch import Interrupted, Watch


def train(
    plan: Plan, folder: RunFolder, console: Console, halt: Callable[[int], bool] = lambda agent_steps: False
) -> str:
    """Train to the end of the budget, or until Ctrl-C, SIGTERM or `halt(agent_steps)`. Returns how it ended.

    What the folder already holds is continued, exactly; a finished run is left as it is.
    """
    # Not on the word of status.json alone: what settles is deleted.
    if (
        folder.read_status().get("state") == "done"
        and plan.budget in checkpoint.generations(folder.checkpoint)[-1:]
    ):
        checkpoint.settle(folder.checkpoint, plan.budget)  # in case it was cut off just before that
        return "done"
    engine = engine_of(plan)
    training = Training(plan, engine)
    watch: Watch | None = None
    try:
        found = resume(training, folder, console)
        watch = Watch(plan, engine, folder, console)
        watch.begin(training, *found)
        with interrupts() as interrupted:
            watch.interrupted = interrupted.is_set
            try:
                go_on(plan, engine, training, watch, lambda: interrupted.is_set() or halt(training.tick))
            except Interrupted:
                watch.stop(training)
                return "stopped"
    finally:
        training.close()
        if watch is not None:
            watch.close()
    return "done"


def go_on(plan: Plan, engine: Engine, training: Training, watch: Watch, told: Callable[[], bool]) -> None:
    """To the end of the budget; an `Interrupted` where it is told to stop."""
    watch.look(training)  # what was cut off last time
    while training.tick < plan.budget:
        metrics, finished = tick(plan, engine, training)
        watch.after(training, metrics, finished)
        if fault := fault_of(training.lanes.env):
            watch.stop(training)
            raise UserError(fault)
        if told():
            raise Interrupted
    watch.finish(training)


def tick(plan: Plan, engine: Engine, training: Training) -> tuple[list[Metrics] | None, list[Finished]]:
    """One agent step of every seed, and what its updates tell. The accelerator learns while the CPU simulates.

    Acting and learning are both asked for before anything is waited for, so that the accelerator goes from one to the
    other at once. The row of this step enters the replay when the next one learns: the newest rows cannot be sampled
    anyway. Where all lanes have come to a time limit together, their last frames are rows too, at no cost of a step.
    """
    lifted, lanes = engine.lifted, training.lanes
    if plan.task.spec.fixed and lanes.pad.all():
        bring(plan, training, lanes.turn())
    chosen, now = lifted.act(training.arrays, lanes.obs, training.now, training.seeds)
    metrics = learned = None
    if training.tick >= engine.agent.learn_start:
        row, training.newest = training.newest or no_row(plan.task.spec, len(plan.seeds)), None
        learned = training.aside(partial(training.learn, engine.agent.updates_per_step, row, now))
    try:
        came, finished = lanes.step(np.asarray(chosen))
    finally:  # whatever happens to a game, state and replay have been given away
        if learned is not None:
            metrics = learned()
    bring(plan, training, came)
    training.tick += 1
    return metrics, finished


def bring(plan: Plan, training: Training, row: LaneRow) -> None:
    """A row of every seed for its replay, which gets it when something is learned."""
    training.store()
    training.newest = packed(Row(*row)._replace(reward=learner_reward(plan, row.reward)))
    training.rows += 1


@contextmanager
def interrupts() -> Iterator[threading.Event]:
    """Ctrl-C and SIGTERM as an event, so that a tick is finished and saved.

    A second Ctrl-C ends at once; a second SIGTERM does not, because some schedulers send it twice.
    """
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return

    def handle(number: int, frame: Any) -> None:
        event.set()
        signal.signal(signal.SIGINT, before[signal.SIGINT])

    before = {n: signal.signal(n, handle) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for n, old in before.items():
            signal.signal(n, old)
