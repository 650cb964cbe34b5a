"""What a GPU would be given, on a computer that has none: a call of learn or act, compiled for an H200, taken apart.

    pip install "jax[cuda13]"                  the compiler for it, which needs no GPU
    python benchmarks/absent.py                vcr on Atari-shaped data, ten seeds
    python benchmarks/absent.py --program act --seeds 1 --top 20

Nothing runs, so nothing is timed. What can be told is how many kernels there are and which code asked for them, how
many of them are launched as one graph, what they work on, and how long the memory would take to bring what each reads
and writes (`us`). That is an estimate: what stays in the cache comes sooner, and an array that a kernel reads a part of
is counted whole. Products are not tuned here as they would be there. Where seeds learn one after the other, as with
`sac-ae`, ask for one seed: what is in the loop over them is not counted.

Kernels that do not wait for each other run side by side, so with one seed, whose kernels are as short as kernels get,
what counts is how many have to wait for each other: `chain` says how many kernels of a piece lie on the longest way
through the program, if each takes the time of its memory and WAIT besides.
"""

import os
import re
import sys
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import tyro
from jax.experimental import topologies
from jax.sharding import AbstractDevice, AbstractMesh, SingleDeviceSharding, use_abstract_mesh
from pieces import Program

from vcrl.core.types import now
from vcrl.nets import tiles
from vcrl.training import engine
from vcrl.training.lift import no_row
from vcrl.training.plan import make_plan

# Nothing of this is read before the first thing is compiled.
FOLDER = tempfile.TemporaryDirectory()
os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_autotune_level=0 --xla_dump_to={FOLDER.name} --xla_dump_hlo_as_text"
)
jax.config.update("jax_platforms", "cpu")  # for what is computed on the way

NAME, BANDWIDTH = "NVIDIA H200", 4.3e12  # bytes a second, as a copy there was measured
WAIT = 2e-6  # seconds from the end of one kernel to the first result of one that waits for it; a guess
# What the compiler asks about a GPU. Without a driver's version it would put no product into a graph.
TARGET = f"""
gpu_device_info {{
  name: "{NAME}" cuda_compute_capability {{ major: 9 feature_extension: ACCELERATED_FEATURES }}
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  shared_memory_per_block: 49152 shared_memory_per_core: 233472 shared_memory_per_block_optin: 232448
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  memory_bandwidth: 4800000000000 l2_cache_size: 62914560 clock_rate_ghz: 1.98 device_memory_size: 150000000000
  runtime_version: "13.0.0" driver_version: "13.0.0"
}}
platform_name: "CUDA" dnn_version_info {{ major: 9 minor: 10 }} runtime_version {{ major: 13 }}
device_description_str: "{NAME}"
"""
REPLAY = 500e6  # nothing else has so many bytes
NO_KERNEL = ("parameter", "get-tuple-element", "bitcast", "constant", "tuple")
# Of a number, in bytes. Of s8 there is only what products may use to work on.
SIZES = {"pred": 1, "u8": 1, "s8": 0, "f16": 2, "u16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8, "u64": 8}


@dataclass
class Options:
    method: str = "vcr"
    task: str = "pong"
    seeds: int = 10
    program: str = "learn"  # or "act"
    top: int = 0  # also print so many of the kernels that move most
    show_chain: bool = False  # also print the longest chain, kernel by kernel


def compiled(options: Options) -> tuple[Any, str]:
    """The program, and what a call of it is."""
    try:
        topology = topologies.get_topology_desc(platform="cuda", target_config=TARGET, topology="1x1x1")
    except NotImplementedError:
        sys.exit('no compiler for NVIDIA GPUs here: pip install "jax[cuda13]"')
    jax.default_backend = lambda: "gpu"  # whoever asks is to do what is done there
    tiles.interpreted = lambda: False
    engine.keep_compiled = lambda: None
    plan = make_plan(options.method, options.task, range(options.seeds))
    lifted, seeds = engine.engine_of(plan).lifted, np.arange(options.seeds, dtype=np.int32)
    state = jax.tree.leaves(jax.eval_shape(lifted.init, seeds))
    replay = jax.eval_shape(lifted.empty, seeds)
    spec, stack = plan.task.spec, plan.config.observation.stack
    obs = np.zeros((options.seeds, *spec.frame[:2], spec.frame[2] * stack), np.uint8)
    given = {
        "learn": (state, replay, no_row(spec, options.seeds), now(0, 0, 0), seeds),
        "act": (state, obs, now(0, 0, 0), seeds),
    }[options.program]
    there = SingleDeviceSharding(topology.devices[0])
    given = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=there), given)
    with use_abstract_mesh(AbstractMesh((1,), ("seed",), abstract_device=AbstractDevice(NAME, None, "gpu"))):
        traced = getattr(lifted, options.program).trace(*given)
        program = traced.lower(lowering_platforms=("cuda",)).compile()
    return program, f"{len(traced.out_info[2])} updates" if options.program == "learn" else "one step"


class Operation(NamedTuple):
    shape: str
    kind: str
    reads: list[str]  # names of other operations


def operations(text: str) -> dict[str, Operation]:
    """Those of a program by name, in an order in which they could run."""
    pattern = r"^\s+(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\(([^)]*)\)"
    # Every fifth operand has its number before it, as a comment.
    text, found = re.sub(r"/\*.*?\*/", "", text[text.index("\nENTRY") :]), dict[str, Operation]()
    for name, shape, kind, given in re.findall(pattern, text, re.MULTILINE):
        read = (x.strip().lstrip("%") for x in given.split(","))
        found[name] = Operation(shape, kind, [x for x in read if x in found])
    return found


def moved(every: dict[str, Operation]) -> dict[str, int]:
    """Bytes that every kernel reads and writes; of a replay, as much as comes out of it or goes in."""
    found = dict[str, int]()
    for name, (shape, kind, reads) in every.items():
        if kind not in NO_KERNEL:
            written, read = _bytes(shape), [_bytes(every[x].shape) for x in reads]
            sizes = [min(x, written) if x > REPLAY else x for x in read]
            found[name] = sum(x for x in (written, *sizes) if x <= REPLAY)
    return found


def chain(every: dict[str, Operation], traffic: dict[str, int]) -> list[str]:
    """The kernels that have to wait for each other the longest, the first one first."""
    until, before = dict[str, float](), dict[str, str | None]()
    for name, (_, _, reads) in every.items():
        before[name] = max(reads, key=until.__getitem__, default=None)
        takes = WAIT + traffic[name] / BANDWIDTH if name in traffic else 0.0
        until[name] = takes + max((until[x] for x in reads), default=0.0)
    at, found = max(until, key=until.__getitem__, default=None), list[str]()
    while at is not None:
        found.append(at)
        at = before[at]
    return [x for x in reversed(found) if x in traffic]


def _bytes(shape: str) -> int:
    arrays = re.findall(r"(\w+)\[([\d,]*)\]", shape)
    return sum(SIZES[kind] * prod(int(n) for n in sides.split(",") if n) for kind, sides in arrays)


def main(options: Options) -> None:
    program, call = compiled(options)
    text, memory = program.as_text(), program.memory_analysis()
    (path,) = Path(FOLDER.name).glob(f"*jit_{options.program}*.thunk_sequence_after_thunk_passes.txt")
    lines = (line.split() for line in path.read_text().splitlines() if not line.startswith(" "))
    launched = Counter(words[1] for words in lines if len(words) > 1)
    pieces, every, each = Program(text), operations(text), defaultdict[str, list[int]](list)
    traffic = moved(every)
    for name, size in traffic.items():
        each[pieces.piece(name)].append(size)
    longest = chain(every, traffic)
    waiting = Counter(pieces.piece(name) for name in longest)
    print(
        f"{NAME}, JAX {jax.__version__}: {options.program} of {options.method}, {options.seeds} seeds, {call} a call"
    )
    print(f"{'piece':44s} {'kernels':>8s} {'chain':>6s} {'MB':>8s} {'us':>7s}")

    def row(piece: str, kernels: int, waiting: int, size: int) -> None:
        print(f"{piece:44s} {kernels:8d} {waiting:6d} {size / 1e6:8.0f} {1e6 * size / BANDWIDTH:7.0f}")

    for piece, sizes in sorted(each.items(), key=lambda item: -sum(item[1])):
        row(piece, len(sizes), waiting[piece], sum(sizes))
    row("all", len(traffic), len(longest), sum(traffic.values()))
    print("launched one by one:", ", ".join(f"{n} {kind.removeprefix('k')}" for kind, n in launched.items()))
    print(f"works on {memory.temp_size_in_bytes / 1e9:.2f} GB")
    shown = sorted(traffic, key=lambda name: -traffic[name])[: options.top]
    for name in shown + (longest if options.show_chain else []):
        stack = " < ".join(f"{f.file}:{f.line}" for f in pieces.stack(name)[:3])
        print(f"{traffic[name] / 1e6:8.1f} MB {1e6 * traffic[name] / BANDWIDTH:6.1f} us  {name:36s}  {stack}")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
