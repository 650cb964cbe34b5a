"""What it costs the host to ask a GPU for learning: as it is, and by one call for each update, in one run.

    python benchmarks/asking.py                             vcr on pong, one seed
    python benchmarks/asking.py --seeds 10 --switch 0.0001
    python benchmarks/asking.py --method rainbow --task catch --ticks 20       on a CPU, to see that it runs

A GPU's kernels are launched as one graph a call, and the host looks through it at every launch for arrays that have
moved. `as-it-is` has two updates in a call, where an agent step has as many; `an-update` has one. Each does the same
updates. What also tells, by the environment: XLA_FLAGS=--xla_gpu_command_buffer_update_mode=SKIP_TEMP, by which what a
call works on stays in its place, and TF_CPP_MIN_LOG_LEVEL=0 TF_CPP_VMODULE=command_buffer_thunk=3, which tells of
every launch how many arrays had moved and how long it took.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import jax
import numpy as np
import tyro
from midway import learn

from vcrl.training.engine import Engine, Training, engine_of
from vcrl.training.lift import lift
from vcrl.training.loop import tick
from vcrl.training.plan import Plan, make_plan

Way = Literal["as-it-is", "an-update"]


@dataclass
class Options:
    method: str = "vcr"
    task: str = "pong"
    seeds: int = 1
    ways: tuple[Way, ...] = ("as-it-is", "an-update")
    ticks: int = 300  # a turn
    turns: int = 3  # of which the best counts
    capacity: int = 10_000  # of the replay, for which an update does not care
    switch: float = 0.005  # seconds after which Python's threads take turns; 0.005 is its default


def engine_by(way: Way, plan: Plan, engine: Engine) -> Engine:
    if way == "as-it-is":
        return engine
    one = engine.agent._replace(updates_per_step=1)
    return engine._replace(
        lifted=engine.lifted._replace(learn=lift(one, plan.task.spec, plan.capacity).learn)
    )


class Trial:
    """A training that asks by one of the ways, and what that took."""

    def __init__(self, options: Options, plan: Plan, engine: Engine, training: Training, way: Way):
        self.options, self.plan, self.training, self.way = options, plan, training, way
        self.engine = engine_by(way, plan, engine)
        self.asked = list[float]()
        self.best = {"step": float("inf"), "alone": float("inf")}  # milliseconds
        self.calls = ""

    def learn(self, *arguments: Any) -> Any:
        """As `Lifted.learn`, timed."""
        began = time.perf_counter()
        found = self.engine.lifted.learn(*arguments)
        self.asked.append(time.perf_counter() - began)
        return found

    def alone(self) -> None:
        learn(self.engine, self.training)

    def timed(self, once: Callable[[], Any]) -> float:
        self.asked.clear()
        began = time.perf_counter()
        for _ in range(self.options.ticks):
            once()
        jax.block_until_ready(self.training.state)
        return (time.perf_counter() - began) / self.options.ticks * 1e3

    def turn(self) -> None:
        self.training.lifted = self.engine.lifted._replace(learn=self.learn)
        for _ in range(30):  # compiled, and settled
            tick(self.plan, self.engine, self.training)
        step = self.timed(lambda: tick(self.plan, self.engine, self.training))
        if step < self.best["step"]:
            count = len(self.asked) // self.options.ticks
            self.calls = " ".join(f"{1e3 * median(self.asked[i::count]):.2f}" for i in range(count))
            self.best["step"] = step
        self.training.store()
        self.best["alone"] = min(self.best["alone"], self.timed(self.alone))

    def told(self) -> str:
        step, alone = self.best["step"], self.best["alone"]
        return (
            f"{self.way:12s} {step:.2f} ms an agent step; calls asked for in {self.calls}; alone {alone:.2f}"
        )


def main(options: Options) -> None:
    sys.setswitchinterval(options.switch)
    changes = {"replay.capacity": options.capacity}
    plan = make_plan(options.method, options.task, range(options.seeds), None, changes)
    engine = engine_of(plan)
    told = f"{options.method} on {options.task}, {options.seeds} seeds"
    print(f"{jax.devices()[0].device_kind}, JAX {jax.__version__}: {told}")
    training = Training(plan, engine)
    try:
        while training.tick < engine.agent.learn_start + 20:
            tick(plan, engine, training)
        trials = [Trial(options, plan, engine, training, way) for way in options.ways]
        for _ in range(options.turns):  # where things lie in memory depends on what came before
            for trial in trials:
                trial.turn()
        print("\n".join(trial.told() for trial in trials))
        finite = all(np.isfinite(x).all() for x in jax.tree.leaves(training.state.online))
        print(
            "weights stayed finite" if finite else "weights are not finite any more: these times mean nothing"
        )
    finally:
        training.close()


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
