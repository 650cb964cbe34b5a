"""The loop: act, learn, step, insert. What looks at it from outside is in `watch.py`."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from vcrl.agents.base import Agent
from vcrl.agents.rainbow import make_rainbow
from vcrl.core.types import Clock, Row
from vcrl.envs.lanes import Finished, Lanes
from vcrl.runs import checkpoint
from vcrl.runs.folder import RunFolder
from vcrl.training.console import Console
from vcrl.training.evaluate import learner_reward
from vcrl.training.lift import Lifted, lift
from vcrl.training.memory import check_memory
from vcrl.training.pack import pack, unpack
from vcrl.training.plan import Plan


class Engine(NamedTuple):
    """A plan made executable. Kept between runs of the same shape, so that nothing is compiled twice."""

    agent: Agent
    lifted: Lifted


class Training:
    """The moving parts of one run: what a checkpoint must hold, and nothing else."""

    def __init__(self, plan: Plan, engine: Engine):
        self.seeds = np.array(plan.seeds, np.int32)
        self.lanes = Lanes(plan.task.make(len(plan.seeds)), plan.seeds, plan.config.observation.stack)
        self.lifted = engine.lifted
        self.state, self.replay = self.lifted.init(self.seeds), self.lifted.empty(self.seeds)
        self.good = self.lifted.init(self.seeds)  # the newest state of each seed that was finite
        self.failed = np.full(
            len(plan.seeds), -1, np.int64
        )  # agent steps at which a seed was found not finite
        self.tick = 0
        self.updates = 0

    @property
    def clock(self) -> Clock:
        return Clock.at(self.tick, self.updates)

    def arrays(self) -> dict[str, np.ndarray]:
        return {
            **pack(self.state, "state"),
            **pack(self.good, "good"),
            **pack(self.replay, "replay"),
            **{f"host/{name}": value for name, value in self.lanes.save().items()},
            "host/failed": self.failed,
        }

    def restore(self, arrays: dict[str, np.ndarray], counters: dict[str, int]) -> None:
        self.state = unpack(self.state, arrays, "state")
        self.good = unpack(self.good, arrays, "good")
        self.replay = unpack(self.replay, arrays, "replay")
        host = {
            name.removeprefix("host/"): value for name, value in arrays.items() if name.startswith("host/")
        }
        self.failed = host.pop("failed")
        self.lanes.load(host)
        self.tick, self.updates = counters["tick"], counters["updates"]

    def trusted(self) -> Any:
        """The state to judge a seed by: its own while finite, else the last that was."""
        return self.lifted.either(self.failed < 0, self.state, self.good)


_engines: dict[Any, Engine] = {}


def engine_of(plan: Plan) -> Engine:
    """The compiled functions of a plan. Tasks that look the same from outside share them."""
    key = (plan.config, plan.task.spec, plan.protocol, plan.capacity)
    if key not in _engines:
        agent = make_rainbow(plan.config, plan.task.spec, plan.protocol)
        _engines[key] = Engine(agent, lift(agent, plan.task.spec, plan.capacity))
    return _engines[key]


def train(
    plan: Plan, folder: RunFolder, console: Console, halt: Callable[[int], bool] = lambda agent_steps: False
) -> str:
    """Train to the end of the budget, or until Ctrl-C, SIGTERM or `halt(agent_steps)`. Returns how it ended.

    What the folder already holds is continued, exactly; a finished run is left as it is.
    """
    from vcrl.training.watch import Watch

    if folder.read_status().get("state") == "done":
        return "done"
    engine = engine_of(plan)
    check_memory(plan, engine.lifted)
    training = Training(plan, engine)
    resume(training, folder, console)
    watch = Watch(plan, engine, folder, console)
    watch.begin(training)
    with interrupts() as interrupted:
        while training.tick < plan.protocol.budget:
            metrics, finished = tick(plan, engine, training)
            watch.after(training, metrics, finished)
            if interrupted.is_set() or halt(training.tick):
                watch.stop(training)
                return "stopped"
    watch.finish(training)
    return "done"


def tick(plan: Plan, engine: Engine, training: Training) -> tuple[dict[str, Any] | None, list[Finished]]:
    """One agent step of every seed. The accelerator learns while the CPU simulates.

    The row of this step enters the replay after learning: the newest rows cannot be sampled anyway.
    """
    lifted, lanes, clock = engine.lifted, training.lanes, training.clock
    now = np.int32(training.tick)
    draw = np.full((len(plan.seeds), 1, 2), (0, now), np.int32)
    action = lifted.act(training.state, lanes.obs[:, None], clock, training.seeds, draw)
    action = np.asarray(action)[:, 0]  # waits for the learning of the tick before
    metrics = None
    if now >= engine.agent.learn_start:
        training.state, training.replay, metrics = lifted.learn(
            training.state, training.replay, now, clock, training.seeds
        )
        training.updates += engine.agent.updates_per_step
    row, finished = lanes.step(action)
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
    training.restore(found.arrays, found.extra["counters"])
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
