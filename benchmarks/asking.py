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
    ticks: int = 300  # three times
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


def measure(options: Options, plan: Plan, engine: Engine, training: Training, way: Way) -> None:
    functions, each = calls(engine, way)
    asked = list[float]()

    def learn(updates: int, row: Any, moment: Any) -> list[Any]:
        given = jax.device_put(row)
        for i in range(updates // each):
            began = time.perf_counter()
            training.state, training.replay, _ = functions[i % len(functions)](
                training.state, training.replay, given, training.now if i else moment, training.seeds
            )
            training.updates += each
            asked.append(time.perf_counter() - began)
        return []

    def steps(count: int) -> float:
        """Milliseconds an agent step, games included."""
        asked.clear()
        began = time.perf_counter()
        for _ in range(count):
            tick(plan, engine, training)
        jax.block_until_ready(training.state)
        return (time.perf_counter() - began) / count * 1e3

    training.learn = learn
    steps(30)  # compiled, and settled
    best = min(steps(options.ticks) for _ in range(3))
    count, updates = engine.agent.updates_per_step // each, engine.agent.updates_per_step
    each_call = " ".join(f"{1e3 * median(asked[i::count]):.2f}" for i in range(count))
    training.store()
    row, began = no_row(plan.task.spec, options.seeds), time.perf_counter()
    for _ in range(options.ticks):
        learn(updates, row, training.now)
    jax.block_until_ready(training.state)
    alone = (time.perf_counter() - began) / options.ticks * 1e3
    asked.clear()
    for _ in range(50):
        learn(updates, row, training.now)
        jax.block_until_ready(training.state)
    print(
        f"{way:10s}  {best:.2f} ms an agent step; calls asked for in {each_call} ms; learning on its own {alone:.2f}; "
        f"asked for with the device at rest {1e3 * median(asked[::count]):.2f}",
        flush=True,
    )
    del training.learn  # the one of its class again


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
        for way in options.ways:
            measure(options, plan, engine, training, way)
        finite = all(np.isfinite(x).all() for x in jax.tree.leaves(training.state.online))
        print(
            "weights stayed finite" if finite else "weights are not finite any more: these times mean nothing"
        )
    finally:
        training.close()


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
