"""A plan made executable, and the moving parts of one run."""

import threading
from typing import Any, NamedTuple

import numpy as np

from vcrl.agents.base import Agent
from vcrl.agents.rainbow import make_rainbow
from vcrl.core.types import Clock
from vcrl.envs.lanes import Lanes
from vcrl.training.lift import Lifted, lift
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
        # Agent steps at which a seed was found not finite, or -1.
        self.failed = np.full(len(plan.seeds), -1, np.int64)
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
        return self.lifted.trusted(self.state, self.good)


_engines: dict[Any, Engine] = {}
_lock = threading.Lock()


def engine_of(plan: Plan) -> Engine:
    """The compiled functions of a plan. Tasks that look the same from outside share them."""
    key = (plan.config, plan.task.spec, plan.protocol, plan.capacity)
    with _lock:
        if key not in _engines:
            agent = make_rainbow(plan.config, plan.task.spec, plan.protocol)
            _engines[key] = Engine(agent, lift(agent, plan.task.spec, plan.capacity))
        return _engines[key]
