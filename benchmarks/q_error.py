"""What a Q-error costs: one moment at a time, and several moments together, in one run.

    python benchmarks/q_error.py                                     ten seeds of vcr on Pong, one moment and five
    python benchmarks/q_error.py --seeds 1 --moments 1 10 --positions 200

Untrained agents: each moment plays the same games, by the training's own `Moments`. The first measurement of each kind
compiles and is not counted; then the games (in steps of the whole batch) and what follows them are timed apart.
"""

import time
from dataclasses import dataclass
from unittest.mock import patch

import jax
import numpy as np
import tyro

from vcrl.envs.processes import cores
from vcrl.training import moments
from vcrl.training.engine import engine_of
from vcrl.training.plan import Schedule, make_plan


@dataclass
class Options:
    seeds: int = 10
    moments: tuple[int, ...] = (1, 5)
    positions: int = 1000
    task: str = "pong"
    method: str = "vcr"


def main(options: Options) -> None:
    schedule = Schedule(q_error_positions=options.positions)
    plan = make_plan(options.method, options.task, range(options.seeds), schedule=schedule)
    engine = engine_of(plan)
    state = engine.lifted.init(np.array(plan.seeds, np.int32))
    told = f"{options.method} {options.task}, {options.seeds} seeds, {options.positions} positions"
    print(f"{told}; {jax.devices()[0].device_kind}, {cores()} cores")
    for count in options.moments:
        spent, ticks = [0.0], [0]

        def play(*arguments, ticks=ticks):
            ticks[0] += 1
            return engine.lifted.play(*arguments)

        def trajectories(*arguments, spent=spent, really=moments.trajectories):
            began = time.perf_counter()
            found = really(*arguments)
            spent[0] += time.perf_counter() - began
            return found

        with patch.object(moments, "together", lambda plan, count=count: count):
            several = moments.Moments(plan, engine, play)
        try:
            for _ in range(2):
                spent[0], ticks[0] = 0.0, 0
                for _ in range(count):
                    several.add(state)
                began = time.perf_counter()
                with patch.object(moments, "trajectories", trajectories):
                    several.measure()
                seconds = time.perf_counter() - began
        finally:
            several.close()
        print(
            f"{count:3d} together: {seconds / count:.2f} s a moment; {ticks[0]} ticks of {count * options.seeds} games "
            f"at {1e3 * spent[0] / ticks[0]:.2f} ms; behind them {(seconds - spent[0]) / count:.2f} s a moment",
            flush=True,
        )


if __name__ == "__main__":
    main(tyro.cli(Options))
