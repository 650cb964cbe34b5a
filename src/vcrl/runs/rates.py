"""How long a run will take: as finished runs of its method took here, else as was measured elsewhere."""

import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from vcrl.core.errors import UserError
from vcrl.core.spans import span
from vcrl.methods import library
from vcrl.methods.configs import Config
from vcrl.runs.folder import safe
from vcrl.runs.reading import read_run


class Rate(NamedTuple):
    start: float  # seconds: importing and compiling
    step: float  # seconds an agent step, whatever the number of seeds
    update: tuple[float, float]  # seconds an update: of any number of seeds, and of each seed more
    evaluation: float  # seconds a seed, at the end
    source: str


# By suite, device, and the heaviest part of a method: the value terms, a transition model, neither, and of the last
# those with the encoder of DER as first released. On a GPU a line through updates at 1 and 10 seeds on one H200: those
# of `vcr` in docs/performance.md, of `spr` with ten seeds a training there, the others in proportion as in an earlier
# version. What an agent step costs besides, compiling and evaluating: trainings there. On CPUs two cores were measured.
# Updates of DMControl have 1.0, 1.3 and 1.6 TFLOP as the compiler counts them: `vcr` takes an H200 5.4 ms a seed
# (`benchmarks/control.py`) and two CPU cores 9 s, the others are put in proportion; `spr`, of which a step of ten seeds
# took that H200 52.8 ms, is a little faster than that.
H200 = "one H200"
CORES = "two CPU cores"
COUNTED = "arithmetic alone"
CORES_SPEED = 260e9  # operations a second of those two cores in a matrix product: `speed()` there
SMALL = 1e9  # bytes of a GPU of which much is what any run takes, however few its seeds
KNOWN: dict[tuple[str, str, str], Rate] = {
    ("atari", "gpu", "plain"): Rate(60, 0.4e-3, (0.40e-3, 0.016e-3), 15, H200),
    ("atari", "gpu", "small"): Rate(60, 0.4e-3, (0.40e-3, 0.016e-3), 15, H200),
    ("atari", "gpu", "model"): Rate(60, 0.4e-3, (0.53e-3, 0.117e-3), 15, H200),
    ("atari", "gpu", "values"): Rate(60, 0.4e-3, (0.66e-3, 0.148e-3), 15, H200),
    ("atari", "cpu", "small"): Rate(30, 2e-3, (0.0, 0.008), 60, CORES),
    ("atari", "cpu", "plain"): Rate(30, 2e-3, (0.0, 0.03), 60, CORES),
    ("atari", "cpu", "model"): Rate(60, 2e-3, (0.0, 0.06), 60, CORES),
    ("atari", "cpu", "values"): Rate(60, 2e-3, (0.0, 0.09), 60, CORES),
    ("dmc", "gpu", "plain"): Rate(60, 5e-3, (0.0, 0.0035), 10, COUNTED),
    ("dmc", "gpu", "model"): Rate(90, 5e-3, (0.0, 0.0048), 10, H200),
    ("dmc", "gpu", "values"): Rate(90, 5e-3, (0.0, 0.0054), 10, H200),
    ("dmc", "cpu", "plain"): Rate(60, 5e-3, (0.0, 5.6), 60, COUNTED),
    ("dmc", "cpu", "model"): Rate(60, 5e-3, (0.0, 7.3), 60, COUNTED),
    ("dmc", "cpu", "values"): Rate(60, 5e-3, (0.0, 9.0), 60, CORES),
    ("toy", "cpu", "plain"): Rate(20, 1e-3, (1e-3, 0.7e-3), 0.5, CORES),
    ("toy", "cpu", "model"): Rate(20, 1e-3, (1e-3, 3e-3), 0.5, CORES),
    ("toy", "cpu", "values"): Rate(20, 1e-3, (1e-3, 4e-3), 0.5, CORES),
}
SUITES = {suite for suite, _, _ in KNOWN}
GUESS = Rate(60, 2e-3, (2e-3, 1e-3), 10, "a guess")


class Forecast(NamedTuple):
    seconds: float
    source: str

    def __str__(self) -> str:
        return f"about {span(self.seconds)}, by {self.source}"


def known(room: str, device: str, method: str, task: str) -> Rate:
    return KNOWN.get((room, device, weight(resolved(method, room, task))), GUESS)


@cache
def resolved(method: str, room: str, task: str) -> Config:
    return library.resolve(method, room, task)


def weight(config: Config) -> str:
    """The part of a method that takes most of its time."""
    terms = config.terms
    if terms.vcr or terms.cycle:
        return "values"
    more = getattr(terms, "reward", None) is not None or getattr(config, "rl_stride", None) is not None
    if terms.spr or terms.own or more:
        return "model"
    return "small" if config.encoder == "data-efficient" else "plain"


def table_seconds(
    room: str, device: str, method: str, task: str, seeds: int, steps: int, behind: int = 0
) -> float:
    """From `behind` agent steps to the end of so many, and the games that follow."""
    rate, config = known(room, device, method, task), resolved(method, room, task)
    base, more = rate.update
    learning = max(0, steps - max(behind, config.learn_start))
    updates = config.updates_per_step * learning * (base + seeds * more)
    return rate.start + (steps - behind) * rate.step + updates + seeds * rate.evaluation


class Clock:
    """Forecasts for one folder of runs and one kind of device.

    Of a CPU that no run was measured on yet, in proportion to how fast it multiplies matrices.
    """

    def __init__(self, out: Path, device: str):
        self.out, self.device = out, device
        self._factors: dict[tuple[str, str], tuple[int, float]] = {}
        self._sizes: dict[tuple[str, str], float | None] = {}

    def forecast(
        self, room: str, method: str, task: str, seeds: int, steps: int, behind: int = 0
    ) -> Forecast:
        """Of a run of so many agent steps, or of what is left of it."""
        runs, factor = self._measured(room, method)
        seconds = factor * table_seconds(room, self.device, method, task, seeds, steps, min(behind, steps))
        if runs:
            return Forecast(seconds, f"{runs} finished {'run' if runs == 1 else 'runs'} here")
        source = known(room, self.device, method, task).source
        if self.device == "cpu":
            return Forecast(seconds * CORES_SPEED / speed(), f"{source} and the speed of this CPU")
        return Forecast(seconds, source)

    def memory(self, room: str, method: str) -> float | None:
        """By which factor runs of a method held more on this device than was forecast; None if none has said."""
        if (room, method) not in self._sizes:
            self._sizes[room, method] = max(
                sizes(self.out / safe(room) / safe(method), self.device), default=None
            )
        return self._sizes[room, method]

    def _measured(self, room: str, method: str) -> tuple[int, float]:
        """How many finished runs of a method there are, and how their time compares with the table's."""
        if (room, method) not in self._factors:
            found = list(ratios(self.out / safe(room) / safe(method), room, self.device, method))
            self._factors[room, method] = (len(found), median(found) if found else 1.0)
        return self._factors[room, method]


@cache
def speed(size: int = 1024, times: int = 20) -> float:
    """Operations a second of a matrix product here: the best of some, so that it is the CPU's and not the moment's."""
    square, best = np.ones((size, size), np.float32), float("inf")
    product = np.empty_like(square)
    for _ in range(times):
        start = time.perf_counter()
        np.matmul(square, square, out=product)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def sizes(folder: Path, device: str) -> Iterable[float]:
    """For each run that got as far as to update: the most it held by what was forecast.

    One that held little says nothing of seeds: four of catch held 0.4 GB on an H200, where the forecast is 0.02.
    """
    for config in sorted(folder.glob("*/*/config.json")):
        try:
            run = read_run(config.parent)
            there = "gpu" if run.record["facts"]["accelerator"] else "cpu"
            peak, forecast = run.status.get("peak_bytes"), run.status.get("forecast_bytes")
            if there == device and peak and forecast and run.status.get("updates") and float(peak) > SMALL:
                yield float(peak) / float(forecast)
        except (UserError, KeyError, TypeError, ValueError):
            continue  # as below


def ratios(folder: Path, room: str, device: str, method: str) -> Iterable[float]:
    """For each run of a method that began and ended on this kind of device: its seconds by the table's."""
    for config in sorted(folder.glob("*/*/config.json")):
        try:
            run = read_run(config.parent)
            there = "gpu" if run.record["facts"]["accelerator"] else "cpu"
            seconds, steps = float(run.status["seconds"]), int(run.status["agent_steps"])
            alone = len(run.status.get("hardware") or [there]) == 1
            if run.status["state"] == "done" and there == device and alone and seconds > 0:
                yield seconds / table_seconds(
                    room, device, method, run.record["task"], len(run.record["seeds"]), steps
                )
        except (UserError, KeyError, TypeError, ValueError):
            continue  # half written or not ours: it says nothing about speed
