"""Where the time of one update goes on a GPU: kernels of `learn`, each led back to the code that asked for it.

    python benchmarks/breakdown.py                                 vcr, ten seeds
    python benchmarks/breakdown.py --method spr --seeds 1 --top 20
    python benchmarks/breakdown.py --shape control --seeds 1      the continuous agent, as on walker-walk

Kernels are timed by the profiler, one by one: gaps between them are what is left of the measured time, and are near
none at ten seeds. A fused kernel counts where its last operation comes from. XLA's command buffers are off while this
runs, because their kernels cannot be told apart.
"""

import collections
import gzip
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_enable_command_buffer="

import jax
import tyro
from eager import timed
from midway import arguments, learn, midway
from pieces import Program


@dataclass
class Options:
    method: str = "vcr"
    shape: str = "atari"  # or "control"
    seeds: int = 10
    capacity: int = 100_000
    ticks: int = 5  # agent steps that are profiled
    top: int = 0  # also print so many of the longest kernels


def kernels(folder: str) -> list[tuple[str, str, float]]:
    """Name, operation and microseconds of everything that ran on the GPU."""
    (path,) = Path(folder).rglob("perfetto_trace.json.gz")
    events: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    ran = (e for e in events if e.get("ph") == "X" and "GPU" in processes.get(e["pid"], ""))
    return [(e["name"], e.get("args", {}).get("hlo_op", ""), e["dur"]) for e in ran]


def main(options: Options) -> None:
    if jax.default_backend() != "gpu":
        sys.exit(
            "no GPU here, and on a CPU there are no kernels to tell apart: benchmarks/update.py times whole updates"
        )
    _, engine, training = midway(options.method, options.shape, options.seeds, options.capacity)
    updates = engine.agent.updates_per_step

    def once() -> None:
        learn(engine, training)

    def wait() -> None:
        jax.block_until_ready(training.state)

    milliseconds = timed(once, 30, wait, 3) / updates
    program = Program(engine.lifted.learn.lower(*arguments(training)).compile().as_text())
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, create_perfetto_trace=True):
            for _ in range(options.ticks):
                once()
            wait()
        found = kernels(folder)
    show(options, found, program, milliseconds, options.ticks * updates)


def show(
    options: Options, found: list[tuple[str, str, float]], program: Program, milliseconds: float, updates: int
) -> None:
    spent, launches = collections.defaultdict[str, float](float), collections.Counter[str]()
    longest = collections.defaultdict[tuple[str, str], float](float)
    for name, operation, microseconds in found:
        piece = program.piece(operation)
        spent[piece] += microseconds / updates
        launches[piece] += 1
        longest[name, operation] += microseconds / updates
    total = sum(spent.values())
    print(
        f"{jax.devices()[0].device_kind}, JAX {jax.__version__}: one update of {options.method}, {options.seeds} seeds"
    )
    print(f"{'piece':44s} {'us':>7s} {'share':>7s} {'kernels':>8s}")
    for piece, microseconds in ranked(spent):
        print(f"{piece:44s} {microseconds:7.0f} {microseconds / total:7.1%} {launches[piece] / updates:8.1f}")
    print(f"{'all kernels':44s} {total:7.0f} {1:7.1%} {sum(launches.values()) / updates:8.1f}")
    print(f"measured without the profiler: {1e3 * milliseconds:.0f} us")
    for (name, operation), microseconds in ranked(longest)[: options.top]:
        stack = " < ".join(f"{f.file}:{f.line}" for f in program.stack(operation)[:3])
        print(f"{microseconds:7.1f} us  {name[:50]:50s}  {stack}")


def ranked(spent: dict[Any, float]) -> list[tuple[Any, float]]:
    return sorted(spent.items(), key=lambda item: -item[1])


if __name__ == "__main__":
    main(tyro.cli(Options))
