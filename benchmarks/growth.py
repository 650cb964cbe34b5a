"""How the cost of an update grows with seeds, batch, imagined steps K and rows of the replay, one of them at a time.

    python benchmarks/growth.py                                                   vcr on Atari-shaped data
    python benchmarks/growth.py --shape toy --at 2 --seeds 1 2 4 --capacity 1000 10000    small enough for a CPU

Everything else is as the method has it. `times` compares with the first line of its block; `slope` is 1 where the cost
grows as fast as what is varied, 0 where it does not grow at all.
"""

import gc
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import tyro
from eager import timed
from midway import learn, midway

from vcrl.agents.terms import present, steps_of
from vcrl.methods.library import resolve


@dataclass
class Options:
    method: str = "vcr"
    shape: str = "atari"
    at: int = 10  # seeds, where something else varies
    rows: int = 10_000  # of the replay, likewise
    seeds: tuple[int, ...] = (1, 5, 10, 20, 40)
    batch: tuple[int, ...] = (16, 32, 64, 128)
    steps: tuple[int, ...] = (1, 3, 5, 9)
    capacity: tuple[int, ...] = (1_000, 10_000, 100_000)
    updates: int = 60


def variants(options: Options) -> Iterator[tuple[str, int, int, int, dict[str, Any]]]:
    """What varies and to what; seeds, rows and changes of the config that make it so."""
    imagining = [name for name, term in present(resolve(options.method).terms).items() if steps_of(term)]
    for count in sorted(options.seeds):
        yield "seeds", count, count, options.rows, {}
    for batch in sorted(options.batch):
        yield "batch", batch, options.at, options.rows, {"batch": batch}
    for steps in sorted(options.steps if imagining else ()):
        yield "K", steps, options.at, options.rows, {f"terms.{name}.steps": steps for name in imagining}
    for rows in sorted(options.capacity):
        yield "rows", rows, options.at, rows, {}


def measure(options: Options, count: int, rows: int, changes: dict[str, Any]) -> float:
    """Milliseconds of one update of all seeds."""
    _, engine, training = midway(options.method, options.shape, count, rows, changes)
    each = engine.agent.updates_per_step
    wait, steps = lambda: jax.block_until_ready(training.state), max(options.updates // each, 5)
    return timed(lambda: learn(engine, training), steps, wait, 2) / each


def main(options: Options) -> None:
    print(f"{jax.devices()[0].device_kind}, JAX {jax.__version__}: one update of {options.method}")
    print(f"{options.at} seeds and {options.rows:,} rows where they do not vary")
    print(f"{'what':5s} {'size':>8s} {'ms':>9s} {'times':>7s} {'slope':>6s}")
    first: dict[str, tuple[int, float]] = {}
    for what, size, count, rows, changes in variants(options):
        each = measure(options, count, rows, changes)
        gc.collect()  # a replay is let go of before the next is filled
        base, begun = first.setdefault(what, (size, each))
        slope = "" if size == base else f"{math.log(each / begun) / math.log(size / base):6.2f}"
        print(f"{what:5s} {size:8,d} {each:9.3f} {each / begun:7.2f} {slope}", flush=True)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
