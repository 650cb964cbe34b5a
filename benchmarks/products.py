"""What kernels and products of halves gain on a GPU over patches and products of float32: one update, in turns.

    python benchmarks/products.py                             vcr, ten seeds and one
    python benchmarks/products.py --method spr --seeds 5
    python benchmarks/products.py --seeds 1 --capacity 2000 --updates 5    on a CPU: slow, to see that it runs

Both programs are compiled from the same code and start from the same weights. Their last losses are printed too: those
of other samples, since rounding moves priorities, but of the same size. On a CPU, too, one of them has kernels and
halves here, which training never has there. What else differs between a GPU and a CPU, such as the order of sums over
places, is the same in both programs.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import tyro
from eager import timed
from midway import arguments, midway

from vcrl.nets import products, tiles
from vcrl.training import engine


@dataclass
class Options:
    method: str = "vcr"
    seeds: tuple[int, ...] = (10, 1)
    updates: int = 120  # a turn
    turns: int = 4
    capacity: int = 10_000  # of the replay


class Way:
    """A training whose `learn` has one kind of convolutions and products."""

    def __init__(self, options: Options, count: int, halved: bool):
        products._halved = lambda weight, x: halved
        tiles.available = lambda: halved
        engine._engines.clear()  # or the other way's program would be found there
        _, made, self.training = midway(options.method, "atari", count, options.capacity)
        self.lowered = made.lifted.learn.lower(*arguments(self.training))
        self.program: Any = None
        self.metrics: Any = None

    def compile(self) -> None:
        self.program = self.lowered.compile()

    def once(self) -> None:
        training = self.training
        training.state, training.replay, told = self.program(*arguments(training))
        training.updates += len(told)
        self.metrics = told[-1]

    def milliseconds(self, updates: int) -> float:
        """Of one update, of which a call may make several."""
        self.once()
        before = self.training.updates
        self.once()
        each = self.training.updates - before
        return timed(self.once, updates // each, lambda: jax.block_until_ready(self.metrics)) / each


def measure(options: Options, count: int) -> None:
    ways = {"float32": Way(options, count, False), "halves": Way(options, count, True)}
    with ThreadPoolExecutor() as pool:
        list(pool.map(Way.compile, ways.values()))
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.turns):
        for name, way in ways.items():
            found[name].append(way.milliseconds(options.updates))
    for name, way in ways.items():
        losses = {n: float(np.mean(x)) for n, x in way.metrics.items() if n.startswith("loss/")}
        print(
            f"{options.method}, {count} seeds, {name:8s} {min(found[name]):7.3f} ms an update, best of {options.turns}",
            "  ".join(f"{n} {x:.3f}" for n, x in losses.items()),
            flush=True,
        )
    print(f"halves take {min(found['halves']) / min(found['float32']):.2f} of that time", flush=True)


if __name__ == "__main__":
    chosen = tyro.cli(Options, description=__doc__)
    print(f"{jax.devices()[0].device_kind}, JAX {jax.__version__}")
    for seeds in chosen.seeds:
        measure(chosen, seeds)
