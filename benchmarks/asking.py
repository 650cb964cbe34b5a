"""What it costs the host to ask a GPU for learning, and by which way it would cost least: all in one run.

    python benchmarks/asking.py                             vcr on pong, one seed
    python benchmarks/asking.py --seeds 10 --ways as-it-is one-program
    python benchmarks/asking.py --method rainbow --task catch --ticks 20       on a CPU, to see that it runs

A GPU's kernels are launched as one graph a call, and the host looks through it at every launch for arrays that have
moved. The ways: `as-it-is`, a call and a program for every update of an agent step; `one-program`, which is called for
all of them; `given-back`, the same with metrics in the arrays of the call before, so that nothing new is needed but
what a call works on; `a-step`, one call for all updates of a step. Each does the same updates. What also tells, by
the environment: XLA_FLAGS=--xla_gpu_temp_buffer_use_separate_color=true, or =SKIP_TEMP for
--xla_gpu_command_buffer_update_mode, by either of which what a call works on stays in its place, and
TF_CPP_MIN_LOG_LEVEL=0 TF_CPP_VMODULE=command_buffer_thunk=3, which tells of every launch how many arrays had moved and
how long it took.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from vcrl.training.engine import Engine, Training, engine_of
from vcrl.training.lift import _options, no_row
from vcrl.training.loop import tick
from vcrl.training.plan import Plan, make_plan

Way = Literal["as-it-is", "one-program", "given-back", "a-step"]
Call = Callable[..., tuple[Any, Any, Any]]  # as `Lifted.learn`


@dataclass
class Options:
    method: str = "vcr"
    task: str = "pong"
    seeds: int = 1
    ways: tuple[Way, ...] = ("as-it-is", "one-program", "given-back", "a-step")
    ticks: int = 300  # a turn
    turns: int = 3  # of which the best counts
    capacity: int = 10_000  # of the replay, for which an update does not care


def calls(engine: Engine, way: Way) -> tuple[list[Call], int]:
    """What is called in turn, and how many updates a call makes."""
    learn: Any = engine.lifted.learn
    once, each = learn.__wrapped__, engine.agent.updates_per_step
    more = {"donate_argnums": (0, 1), "compiler_options": _options(engine.agent)}

    def step(state: Any, replay: Any, row: Any, now: Any, seeds: Any) -> Any:
        told = list[Any]()
        for i in range(each):
            then = jnp.asarray(now).at[1].add(i).at[3].multiply(i == 0)  # the row is stored by the first
            state, replay, metrics = once(state, replay, row, then, seeds)
            told.append(metrics)
        return state, replay, told

    last = list[Any]()

    def given(state: Any, replay: Any, old: Any, *rest: Any) -> Any:
        return once(state, replay, *rest)

    kept = jax.jit(given, keep_unused=True, **more | {"donate_argnums": (0, 1, 2)})

    def given_back(state: Any, replay: Any, *rest: Any) -> Any:
        if not last:
            shapes = jax.eval_shape(once, state, replay, *rest)[2]
            last.append(jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes))
        state, replay, metrics = kept(state, replay, last.pop(), *rest)
        last.append(metrics)
        return state, replay, metrics

    return {
        "as-it-is": ([*engine.lifted.turns], 1),
        "one-program": ([learn], 1),
        "given-back": ([given_back], 1),
        "a-step": ([jax.jit(step, **more)], each),
    }[way]


class Trial:
    """A training that asks by one of the ways, and what that took."""

    def __init__(self, options: Options, plan: Plan, engine: Engine, training: Training, way: Way):
        self.options, self.plan, self.engine, self.training, self.way = options, plan, engine, training, way
        self.functions, self.each = calls(engine, way)
        self.updates = engine.agent.updates_per_step
        self.row = no_row(plan.task.spec, options.seeds)
        self.asked = list[float]()
        self.best = {"step": float("inf"), "alone": float("inf")}  # milliseconds
        self.calls = ""

    def learn(self, updates: int, row: Any, moment: Any) -> list[Any]:
        """As `Training.learn`, but that nothing is told."""
        training, given = self.training, jax.device_put(row)
        for i in range(updates // self.each):
            began = time.perf_counter()
            training.state, training.replay, _ = self.functions[i % len(self.functions)](
                training.state, training.replay, given, training.now if i else moment, training.seeds
            )
            training.updates += self.each
            self.asked.append(time.perf_counter() - began)
        return []

    def alone(self) -> None:
        self.learn(self.updates, self.row, self.training.now)

    def timed(self, once: Callable[[], Any]) -> float:
        self.asked.clear()
        began = time.perf_counter()
        for _ in range(self.options.ticks):
            once()
        jax.block_until_ready(self.training.state)
        return (time.perf_counter() - began) / self.options.ticks * 1e3

    def turn(self) -> None:
        self.training.learn = self.learn
        try:
            for _ in range(30):  # compiled, and settled
                tick(self.plan, self.engine, self.training)
            step = self.timed(lambda: tick(self.plan, self.engine, self.training))
            if step < self.best["step"]:
                count = self.updates // self.each
                self.calls = " ".join(f"{1e3 * median(self.asked[i::count]):.2f}" for i in range(count))
                self.best["step"] = step
            self.training.store()
            self.best["alone"] = min(self.best["alone"], self.timed(self.alone))
        finally:
            del self.training.learn  # the one of its class again

    def told(self) -> str:
        step, alone = self.best["step"], self.best["alone"]
        return (
            f"{self.way:12s} {step:.2f} ms an agent step; calls asked for in {self.calls}; alone {alone:.2f}"
        )


def main(options: Options) -> None:
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
