"""The loop: act, learn, step, insert. What looks at it from outside is in `watch.py`."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from vcrl.core.types import Row
from vcrl.envs.lanes import Finished
from vcrl.runs import checkpoint
from vcrl.runs.folder import RunFolder
from vcrl.training.console import Console
from vcrl.training.engine import Engine, Training, engine_of
from vcrl.training.evaluate import learner_reward
from vcrl.training.plan import Plan
from vcrl.training.watch import Watch


def train(
    plan: Plan, folder: RunFolder, console: Console, halt: Callable[[int], bool] = lambda agent_steps: False
) -> str:
    """Train to the end of the budget, or until Ctrl-C, SIGTERM or `halt(agent_steps)`. Returns how it ended.

    What the folder already holds is continued, exactly; a finished run is left as it is.
    """
    if folder.read_status().get("state") == "done" and any(folder.checkpoint.glob("*.json")):
        checkpoint.settle(folder.checkpoint, plan.protocol.budget)  # in case it was cut off just before that
        return "done"
    engine = engine_of(plan)
    training = Training(plan, engine)
    resume(training, folder, console)
    watch = Watch(plan, engine, folder, console)
    watch.begin(training)
    try:
        with interrupts() as interrupted:
            while training.tick < plan.protocol.budget:
                metrics, finished = tick(plan, engine, training)
                watch.after(training, metrics, finished)
                if interrupted.is_set() or halt(training.tick):
                    watch.stop(training)
                    return "stopped"
        watch.finish(training)
    finally:
        training.lanes.close()
        watch.close()
    return "done"


def tick(plan: Plan, engine: Engine, training: Training) -> tuple[dict[str, Any] | None, list[Finished]]:
    """One agent step of every seed. The accelerator learns while the CPU simulates.

    Acting and learning are both asked for before anything is waited for, so that the accelerator goes from one to the
    other at once. The row of this step enters the replay after learning: the newest rows cannot be sampled anyway.
    """
    lifted, lanes, clock = engine.lifted, training.lanes, training.clock
    now = np.int32(training.tick)
    draw = np.full((len(plan.seeds), 1, 2), (0, now), np.int32)
    chosen = lifted.act(training.state, lanes.obs[:, None], clock, training.seeds, draw)
    metrics = None
    if now >= engine.agent.learn_start:
        training.state, training.replay, metrics = lifted.learn(
            training.state, training.replay, now, clock, training.seeds
        )
        training.updates += engine.agent.updates_per_step
    row, finished = lanes.step(np.asarray(chosen)[:, 0])
    row = Row(*row)._replace(reward=learner_reward(plan, row.reward))
    training.replay = lifted.insert(training.replay, row, now)
    training.tick += 1
    return metrics, finished


def resume(training: Training, folder: RunFolder, console: Console) -> None:
    """Go back to the newest whole checkpoint, logs included; without one, to the beginning."""
    found = checkpoint.load(folder.checkpoint, console.line)
    if found is None:
        folder.truncate()
        return
    training.restore(found)
    folder.truncate(found.extra["logs"])
    console.line(f"continuing at {training.tick:,} agent steps")


@contextmanager
def interrupts() -> Iterator[threading.Event]:
    """Ctrl-C and SIGTERM as an event, so that a tick is finished and saved; a second one ends at once."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return

    def handle(number: int, frame: Any) -> None:
        event.set()
        for n, old in before.items():
            signal.signal(n, old)

    before = {n: signal.signal(n, handle) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for n, old in before.items():
            signal.signal(n, old)
