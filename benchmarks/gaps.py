"""When the device has nothing to do in the loop of training, and what the host is doing then.

    python benchmarks/gaps.py                       vcr on pong, one seed
    python benchmarks/gaps.py --seeds 10 --ticks 40
    python benchmarks/gaps.py --method rainbow --task catch      on a CPU, to see that it runs

A training from nothing, its first steps thrown away; then some steps of the loop as it is under the profiler, which
makes them a little longer. A moment is idle when no kernel runs. It counts for the piece of the host's work that began
last before it, by the thread that runs the loop; the thread that asks for learning is told of beside it.
"""

import gzip
import json
import tempfile
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import tyro

from vcrl.training import loop
from vcrl.training.engine import Engine, Training, engine_of, threaded
from vcrl.training.plan import Plan, make_plan

MARK = "vcrl "  # before the names of the host's pieces
LEARNING = "ask for learning"


@dataclass
class Options:
    method: str = "vcr"
    task: str = "pong"
    seeds: int = 1
    ticks: int = 60
    capacity: int = 10_000  # of the replay, for which an update does not care


class Span(NamedTuple):
    name: str
    start: float  # microseconds
    stop: float


def marked(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        with jax.profiler.TraceAnnotation(MARK + name):
            return function(*arguments)

    return call


def watched(plan: Plan, engine: Engine, training: Training) -> Callable[[], Any]:
    """A step of the loop whose pieces the profiler will know by name."""
    training.lanes.step = marked("games", training.lanes.step)
    training.learn = marked(LEARNING, training.learn)
    engine = engine._replace(lifted=engine.lifted._replace(act=marked("ask for actions", engine.lifted.act)))
    return marked("the rest, and waiting for actions", lambda: loop.tick(plan, engine, training))


def traced(once: Callable[[], Any], ticks: int, wait: Callable[[], Any]) -> tuple[list[Span], list[Span]]:
    """What the device ran and what the host did in so many steps."""
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # it would take longer than what it looks at
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, create_perfetto_trace=True, profiler_options=options):
            for _ in range(ticks):
                once()
            wait()
        (path,) = Path(folder).rglob("perfetto_trace.json.gz")
        events: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    names = {
        kind: {_place(e, kind): e["args"]["name"] for e in events if e.get("name") == f"{kind}_name"}
        for kind in ("process", "thread")
    }
    device, host = list[Span](), list[Span]()
    for e in events:
        if e.get("ph") != "X":
            continue
        span = Span(e["name"].removeprefix(MARK), e["ts"], e["ts"] + e["dur"])
        if e["name"].startswith(MARK):
            host.append(span)
        elif _ran_there(names["process"][_place(e, "process")], names["thread"].get(_place(e, "thread"), "")):
            device.append(span)
    return device, host


def _place(event: dict[str, Any], kind: str) -> Any:
    return event["pid"] if kind == "process" else (event["pid"], event["tid"])


def _ran_there(process: str, thread: str) -> bool:
    """Kernels and copies on a GPU's streams; on a CPU what the threads run that work for XLA."""
    return "Stream" in thread if "GPU" in process else jax.default_backend() == "cpu" and "XLA" in thread


def together(spans: Iterable[Span]) -> list[tuple[float, float]]:
    """Stretches of time in which at least one of them runs."""
    found: list[tuple[float, float]] = []
    for span in sorted(spans, key=lambda span: span.start):
        if found and span.start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], span.stop)
        else:
            found.append((span.start, span.stop))
    return found


def idle(device: list[Span], host: list[Span]) -> dict[str, float]:
    """Microseconds without a kernel, by what the loop's thread was at; the shortest piece around a moment names it."""
    found, own = (
        defaultdict[str, float](float),
        [span for span in host if span.name != LEARNING or not threaded()],
    )
    edges = sorted({edge for span in own for edge in (span.start, span.stop)})
    busy = together(device)
    for (_, start), (stop, _) in pairwise(busy):
        cuts = [start, *edges[bisect_right(edges, start) : bisect_right(edges, stop)], stop]
        for a, b in pairwise(cuts):
            around = [span for span in own if span.start <= a and b <= span.stop]
            name = min(around, key=lambda span: span.stop - span.start).name if around else "between steps"
            found[name] += b - a
    return found


def main(options: Options) -> None:
    changes = {"replay.capacity": options.capacity}
    plan = make_plan(options.method, options.task, range(options.seeds), None, changes)
    engine = engine_of(plan)
    training = Training(plan, engine)

    def wait() -> None:
        jax.block_until_ready(training.arrays)

    try:
        once = watched(plan, engine, training)
        while training.tick < engine.agent.learn_start + 50:  # compiled, and settled
            once()
        wait()
        device, host = traced(once, options.ticks, wait)
    finally:
        training.close()
    if not device:
        raise SystemExit("the profiler saw nothing run: see that its library for this device is installed")
    whole = max(span.stop for span in (*device, *host)) - min(span.start for span in (*device, *host))
    busy = sum(stop - start for start, stop in together(device))
    each = 1e-3 / options.ticks
    print(f"{jax.devices()[0].device_kind}, JAX {jax.__version__}: {options.method} on {options.task}")
    print(
        f"{options.seeds} seeds, {each * whole:.2f} ms a step under the profiler; the device is at work for"
    )
    print(
        f"  {each * busy:7.2f} ms, {busy / whole:.0%}; {len(device) / options.ticks:.0f} kernels and copies"
    )
    print("it has nothing to do while the host is at")
    for name, spent in sorted(idle(device, host).items(), key=lambda item: -item[1]):
        print(f"  {each * spent:7.2f} ms  {name}")
    print("the host's pieces, median")
    for name in dict.fromkeys(span.name for span in host):
        took = [span.stop - span.start for span in host if span.name == name]
        aside = ", by a thread of its own" if name == LEARNING and threaded() else ""
        print(f"  {1e-3 * np.median(took):7.2f} ms  {name}{aside}")


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
