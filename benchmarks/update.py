"""What one update costs: methods x seeds at once, on Atari-shaped data (or the built-in games').

    python benchmarks/update.py                              all three methods, 1 to 40 seeds
    python benchmarks/update.py --seeds 1 10 --methods vcr --agent-step --json speed.json
    python benchmarks/update.py --seeds 1 2 --updates 10 --capacity 2000      small enough for a CPU

Timed is what training runs: `learn`, that is the updates of one agent step, each with its own draw from a full replay.
The replay holds random frames: the arithmetic does not depend on what is in them. Where PyTorch is present, the same
update in eager PyTorch (`eager.py`) is measured in the same run, one seed as published code has it, and `x eager` says
how many times less a seed-update takes here. `--agent-step` times whole steps of the training loop too, with an
environment that answers at once: act, learn, copies to and from the host, insert.

Where the device tells its peak memory, `<` marks one that an earlier row may have set.
"""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import tyro
from eager import METHODS, timed
from midway import learn, midway

import vcrl
from vcrl.training.loop import tick

RUN = 196_000  # updates of an Atari-100K run
# Milliseconds that a seed-update of VCR on Atari frames takes an H200 at least: 40 us to move its bytes once, 27 us for
# its arithmetic in bfloat16; the slower of the two.
FLOOR = 0.040
EAGER = "torch eager"


@dataclass
class Options:
    seeds: tuple[int, ...] = (1, 5, 10, 20, 40)
    methods: tuple[str, ...] = ("rainbow", "spr", "vcr")
    shape: str = "atari"
    updates: int = 200
    capacity: int = 100_000
    agent_step: bool = False
    json: Path | None = None
    torch_python: str = sys.executable  # an interpreter that has PyTorch, where this one has not


@dataclass
class Line:
    """One line of the table. Milliseconds are those of all its seeds together."""

    method: str
    by: str
    seeds: int
    update_ms: float
    seed_update_ms: float
    run_minutes: float  # RUN updates
    runs_a_day: float
    peak_gb: float | None = None
    peak_is_own: bool = False  # not the mark of an earlier line
    floor_share: float | None = None
    times_eager: float | None = None
    compile_s: float | None = None
    step_ms: float | None = None  # of the training loop
    loop_minutes: float | None = None  # as many of those as have RUN updates


def number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


COLUMNS: dict[str, Callable[[Line], str]] = {
    "method     ": lambda x: f"{x.method:11s}",
    "by         ": lambda x: f"{x.by:11s}",
    "seeds": lambda x: str(x.seeds),
    "ms/update": lambda x: number(x.update_ms, 2),
    "ms/seed": lambda x: number(x.seed_update_ms, 3),
    "min/run": lambda x: number(x.run_minutes, 1),
    "runs/day": lambda x: number(x.runs_a_day, 1),
    "peak GB": lambda x: ("<" if x.peak_gb and not x.peak_is_own else "") + number(x.peak_gb, 2),
    "floor": lambda x: "-" if x.floor_share is None else f"{x.floor_share:.1%}",
    "x eager": lambda x: number(x.times_eager, 1),
    "compile s": lambda x: number(x.compile_s, 1),
    "ms/step": lambda x: number(x.step_ms, 2),
    "min/loop": lambda x: number(x.loop_minutes, 1),
}


def main(options: Options) -> None:
    lines: list[Line] = []
    versions: dict[str, str | None] = {"python": platform.python_version(), "torch": None}
    versions |= {name: version(name) for name in ("jax", "jaxlib", "numpy", "equinox", "optax")}
    device = jax.devices()[0].device_kind
    print(f"{device}, JAX {jax.__version__}, {options.shape} frames, replay of {options.capacity:,} rows")
    print(
        f"a run is {RUN:,} updates; the floor is {FLOOR * 1e3:.0f} us a seed-update, known for VCR on an H200 only"
    )
    show(COLUMNS)
    for method in options.methods:
        eager, torch_version = eager_milliseconds(options, method)
        versions["torch"] = versions["torch"] or torch_version
        if eager is not None:
            lines.append(Line(method, EAGER, 1, times_eager=1.0, **rates(eager, 1)))
            show(cell(lines[-1]) for cell in COLUMNS.values())
        # From few seeds to many, so that each line sets a new mark of memory.
        for count in sorted(options.seeds):
            line = measure(options, method, count)
            lines.append(replace(line, times_eager=None if eager is None else eager / line.seed_update_ms))
            show(cell(lines[-1]) for cell in COLUMNS.values())
            # After every line: a lease or a patience may end before the table does.
            save(options, versions, lines)


def show(cells: Iterable[str]) -> None:
    widths = (max(len(name), 7) for name in COLUMNS)
    print("  ".join(f"{cell:>{width}s}" for cell, width in zip(cells, widths, strict=True)), flush=True)


def save(options: Options, versions: dict[str, str | None], lines: list[Line]) -> None:
    if options.json is None:
        return
    found = {
        "device": jax.devices()[0].device_kind,
        "cpu": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        "versions": versions,
        "xla_flags": os.environ.get("XLA_FLAGS", ""),
        "settings": asdict(options) | {"json": str(options.json)},
        "run_updates": RUN,
        "floor_ms": FLOOR,
        "lines": [asdict(line) for line in lines],
    }
    options.json.write_text(json.dumps(found, indent=1) + "\n")


def rates(update_ms: float, seeds: int) -> dict[str, float]:
    minutes = update_ms * RUN / 60e3
    return {
        "update_ms": update_ms,
        "seed_update_ms": update_ms / seeds,
        "run_minutes": minutes,
        "runs_a_day": seeds * 24 * 60 / minutes,
    }


def measure(options: Options, method: str, count: int) -> Line:
    device = jax.devices()[0]
    before = peak_of(device)
    plan, engine, training = midway(method, options.shape, count, options.capacity)
    steps = engine.agent.updates_per_step
    metrics: Any = None

    def once() -> None:
        nonlocal metrics
        metrics = learn(engine, training)

    began = time.perf_counter()
    once()
    jax.block_until_ready(metrics)
    compiled = time.perf_counter() - began
    few = min(5, options.updates // steps)
    each = timed(once, options.updates // steps, lambda: jax.block_until_ready(metrics), few) / steps

    step_ms = None
    if options.agent_step:
        # A tick waits for the learning of the tick before; the last one is waited for here.
        step_ms = timed(
            lambda: tick(plan, engine, training),
            options.updates // steps,
            lambda: jax.block_until_ready((training.state, training.replay)),
            few,
        )
    peak = peak_of(device)
    known = "H200" in device.device_kind and method == "vcr" and options.shape == "atari"
    return Line(
        method, "vcrl", count, **rates(each, count),
        peak_gb=None if peak is None else peak / 1e9,
        peak_is_own=before is not None and peak is not None and peak > before,
        floor_share=FLOOR / (each / count) if known else None,
        compile_s=compiled,
        step_ms=step_ms,
        loop_minutes=None if step_ms is None else step_ms * RUN / steps / 60e3,
    )  # fmt: skip


def eager_milliseconds(options: Options, method: str) -> tuple[float | None, str | None]:
    """Of PyTorch, and its version; None where it is not, or the method is not written in it.

    In a process of its own: the two frameworks bring CUDA libraries that may not agree, and PyTorch may be installed
    elsewhere.
    """
    if method not in METHODS:
        return None, None
    here = Path(__file__).parent
    path = os.pathsep.join([str(Path(vcrl.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]).strip(
        os.pathsep
    )
    command = [
        options.torch_python, str(here / "eager.py"), "--json", "--methods", method, "--shape", options.shape,
        "--updates", str(options.updates), "--capacity", str(options.capacity),
        "--device", "cpu" if jax.default_backend() == "cpu" else "cuda",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path})
    if done.returncode != 0:
        print(f"eager PyTorch failed: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr, flush=True)
        return None, None
    found = json.loads(done.stdout)
    return (None, None) if found is None else (found["milliseconds"][method], found["torch"])


def peak_of(device: Any) -> int | None:
    return (device.memory_stats() or {}).get("peak_bytes_in_use")


if __name__ == "__main__":
    main(tyro.cli(Options))
