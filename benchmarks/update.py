"""What one update costs: methods x seeds at once, on Atari-shaped data (or the built-in games').

    python benchmarks/update.py --seeds 1 5 10 --methods spr vcr

Prints milliseconds per update of all seeds together and per seed, the time to compile, and peak memory where the
device tells it. The replay holds random frames: the arithmetic does not depend on what is in them.
"""

import time
from dataclasses import dataclass

import jax
import numpy as np
import tyro

from vcrl.agents.rainbow import make_rainbow
from vcrl.core.config import change
from vcrl.core.protocol import Protocol
from vcrl.core.spec import Discrete, EnvSpec
from vcrl.core.types import Clock, Row
from vcrl.methods.library import resolve
from vcrl.training.lift import Lifted, lift

SHAPES = {
    "atari": (EnvSpec((84, 84, 1), Discrete(18)), None),
    "toy": (EnvSpec((16, 16, 1), Discrete(3)), "toy"),
}
ROWS = 300


@dataclass
class Options:
    seeds: tuple[int, ...] = (1, 5, 10)
    methods: tuple[str, ...] = ("rainbow", "spr", "vcr")
    shape: str = "atari"
    updates: int = 200
    capacity: int = 100_000


def main(options: Options) -> None:
    device = jax.devices()[0]
    print(
        f"{device.device_kind}, JAX {jax.__version__}, {options.shape} frames, replay of {options.capacity:,} rows"
    )
    print(
        f"{'method':10s} {'seeds':>5s} {'ms/update':>10s} {'ms/seed':>8s} {'compile s':>10s} {'peak GB':>8s}"
    )
    spec, suite = SHAPES[options.shape]
    protocol = Protocol("benchmark", 100_000, 4, None, 1, 0.0)
    for method in options.methods:
        config = change(resolve(method, suite), "updates_per_step", 1)
        lifted = lift(make_rainbow(config, spec, protocol), spec, options.capacity)
        for count in options.seeds:
            compiled, each = measure(lifted, spec, count, options.updates)
            stats = device.memory_stats() or {}
            peak = f"{stats['peak_bytes_in_use'] / 1e9:8.2f}" if stats else "       -"
            print(
                f"{method:10s} {count:5d} {each:10.2f} {each / count:8.3f} {compiled:10.1f} {peak}",
                flush=True,
            )


def measure(lifted: Lifted, spec: EnvSpec, count: int, updates: int) -> tuple[float, float]:
    """Seconds to compile, milliseconds an update."""
    seeds, rng = np.arange(count, dtype=np.int32), np.random.default_rng(0)
    state, replay = lifted.init(seeds), lifted.empty(seeds)
    for at in range(ROWS):
        row = Row(
            frame=rng.integers(0, 256, (count, *spec.frame), dtype=np.uint8),
            action=rng.integers(0, 3, count).astype(np.int32),
            reward=rng.integers(-1, 2, count).astype(np.float32),
            terminal=np.full(count, at % 50 == 49),
            first=np.full(count, at % 50 == 0),
            pad=np.zeros(count, bool),
        )
        replay = lifted.insert(replay, row, np.int32(at))

    def run(times: int, done: int) -> float:
        nonlocal state, replay
        began = time.perf_counter()
        for i in range(times):
            state, replay, metrics = lifted.learn(
                state, replay, np.int32(ROWS), Clock.at(ROWS, done + i), seeds
            )
        jax.block_until_ready(metrics)
        return time.perf_counter() - began

    compiled = run(1, 0)
    run(5, 1)
    return compiled, run(updates, 6) / updates * 1e3


if __name__ == "__main__":
    main(tyro.cli(Options))
