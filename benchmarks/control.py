"""Milliseconds an update of the continuous agent, for some numbers of seeds: together (vmap) or one by one (map).

`python benchmarks/control.py --seeds 1 5 10` on a GPU; `--modes map vmap` compares; `--small` shows on a CPU that it
runs.
"""

import argparse
import json
import time
from typing import Any

import jax
import numpy as np

from vcrl.agents import sac
from vcrl.core.types import now
from vcrl.training.forecast import flop
from vcrl.training.lift import lift, no_row
from vcrl.training.plan import Plan, make_plan

SMALL = {"batch": 8, "auxiliary.batch": 4, "hidden": 32, "transition": 32, "projection": 16}
ROWS = 1000  # of replay that are filled with noise, so that windows can be drawn


def measure(plan: Plan, mode: str, repeats: int) -> dict[str, Any]:
    sac.alone = lambda config: mode == "map"
    agent = sac.make_sac(plan.config, plan.task.spec, plan.protocol)
    lifted, seeds = lift(agent, plan.task.spec, plan.capacity), np.array(plan.seeds, np.int32)
    state, replay, row = lifted.init(seeds), lifted.empty(seeds), no_row(plan.task.spec, len(seeds))
    work, compiled, start = flop(plan, lifted), 0.0, time.perf_counter()
    # Twice to compile and settle: actor and slow copies move at every second update.
    for i in range(repeats + 2):
        if i == 2:
            jax.block_until_ready(state)
            compiled, start = time.perf_counter() - start, time.perf_counter()
        state, replay, _ = lifted.learn(state, replay, row, now(2000, i, ROWS), seeds)
    jax.block_until_ready(state)
    update = 1e3 * (time.perf_counter() - start) / repeats
    stats = jax.devices()[0].memory_stats() or {}
    return {
        "method": plan.method, "seeds": len(seeds), "mode": mode, "ms": update,
        "ms a seed": update / len(seeds), "TFLOP": work / 1e12, "compile s": compiled,
        "peak GB": stats.get("peak_bytes_in_use", 0) / 1e9,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="+", default=["sac", "spr", "vcr"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 5, 10])
    parser.add_argument("--modes", nargs="+", choices=("map", "vmap"), default=["vmap"])
    parser.add_argument("--task", default="cartpole-swingup")
    parser.add_argument("--repeats", type=int, default=50, help="updates; an even number")
    parser.add_argument("--small", action="store_true", help="a tiny agent, to see that it runs")
    parser.add_argument("--json", help="also write the rows to this file")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for method in options.methods:
        for count in options.seeds:
            for mode in options.modes:
                plan = make_plan(method, options.task, range(count), 2 * ROWS, SMALL if options.small else {})
                rows.append(measure(plan, mode, options.repeats))
                cells = (f"{v:.2f}" if isinstance(v, float) else str(v) for v in rows[-1].values())
                print(
                    "  ".join(f"{name} {cell}" for name, cell in zip(rows[-1], cells, strict=True)),
                    flush=True,
                )
                jax.clear_caches()
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"device": jax.devices()[0].device_kind, "rows": rows}, file, indent=2)


if __name__ == "__main__":
    main()
