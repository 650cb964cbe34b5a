"""Where the time of one agent step goes on the host, beside what learning takes on its own.

    python benchmarks/step.py                               vcr on pong, one and five seeds
    python benchmarks/step.py --seeds 10 --task breakout --ticks 500

A training from nothing, its first steps thrown away; then so many ticks of the loop as it is, each call timed. Whoever
waits, waits for the accelerator: a step that takes longer than acting and learning on their own is held up by the host.
Logging, checkpoints and Q-errors are not in it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import tyro
from eager import timed
from midway import learn

from vcrl.training.engine import Engine, Training, engine_of
from vcrl.training.loop import tick
from vcrl.training.plan import make_plan


@dataclass
class Options:
    method: str = "vcr"
    task: str = "pong"
    seeds: tuple[int, ...] = (1, 5)
    ticks: int = 300
    capacity: int = 10_000  # of the replay, for which an update does not care


class Spent(dict[str, float]):
    """Seconds by name."""

    def timing(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            start = time.perf_counter()
            result = function(*arguments)
            self[name] = self.get(name, 0.0) + time.perf_counter() - start
            return result

        return call


def measure(options: Options, count: int) -> None:
    plan = make_plan(options.method, options.task, range(count), None, {"replay.capacity": options.capacity})
    engine = engine_of(plan)
    training, spent = Training(plan, engine), Spent()
    try:
        while training.tick < engine.agent.learn_start + 20:  # compiled, and settled
            tick(plan, engine, training)
        jax.block_until_ready(training.state)
        watched, whole = watch(engine, training, spent), time.perf_counter()
        for _ in range(options.ticks):
            tick(plan, watched, training)
        jax.block_until_ready(training.state)
        whole = time.perf_counter() - whole
        del training.learn  # the one of its class again
        alone = learning(engine, training, options.ticks)
    finally:
        training.close()
    # By a thread of its own learning is asked for beside all the rest.
    beside = spent.pop("ask for learning") if training.thread is not None else None
    spent["wait for actions, and the rest"] = whole - sum(spent.values())
    each = 1e3 / options.ticks
    print(f"{options.method} on {options.task}, {count} seeds: {each * whole:.2f} ms an agent step")
    for name, seconds in sorted(spent.items(), key=lambda item: -item[1]):
        print(f"  {each * seconds:7.2f} ms  {name}")
    if beside is not None:
        print(f"  {each * beside:7.2f} ms  ask for learning, beside all that")
    print(
        f"  {alone:7.2f} ms  learning on its own, {100 * alone / each / whole:.0f}% of the step", flush=True
    )


def watch(engine: Engine, training: Training, spent: Spent) -> Engine:
    """The same engine and training with every call of the loop timed."""
    lifted = engine.lifted
    training.lanes.step = spent.timing("games", training.lanes.step)
    training.learn = spent.timing("ask for learning", training.learn)
    return engine._replace(lifted=lifted._replace(act=spent.timing("ask for actions", lifted.act)))


def learning(engine: Engine, training: Training, times: int) -> float:
    """Milliseconds that the updates of one agent step take when nothing else is asked for."""

    training.store()
    return timed(lambda: learn(engine, training), times, lambda: jax.block_until_ready(training.state))


if __name__ == "__main__":
    chosen = tyro.cli(Options, description=__doc__)
    device = jax.devices()[0]
    print(f"{device.device_kind}, JAX {jax.__version__}")
    for count in chosen.seeds:
        measure(chosen, count)
