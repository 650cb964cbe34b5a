"""How fast Atari lanes are: agent steps a second of random play, with resets, here and in worker processes.

    python benchmarks/emulator.py                                1, 10 and 100 lanes of three games
    python benchmarks/emulator.py --lanes 1 40 --games pong --processes 15 --json lanes.json

Timed is what a training asks of its lanes: `Lanes.step` by the rules of training, stacks and the next games' starts
included, actions drawn beforehand. `x one` is the ratio to one lane in this process, measured in the same run. Building
covers the emulators, the processes, and the first game of every lane with the tables of start states it needs.
"""

import json
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import tyro

from vcrl.envs.atari import AtariEnv, actions_of, spec_of
from vcrl.envs.base import VecEnv
from vcrl.envs.emulator import Rules, starts
from vcrl.envs.lanes import Lanes
from vcrl.envs.processes import cores
from vcrl.envs.workers import Workers


@dataclass
class Options:
    games: tuple[str, ...] = ("ms-pacman", "breakout", "assault")
    lanes: tuple[int, ...] = (1, 10, 100)
    processes: int = max(cores() - 1, 1)  # at most; as many as training uses
    seconds: float = 3.0  # of each line
    json: Path | None = None


@dataclass
class Line:
    game: str
    lanes: int
    processes: int  # 0: this one
    build_s: float
    steps_per_s: float  # agent steps of all lanes together
    games: int  # that ended while time was taken
    times_one: float = 1.0


def main(options: Options) -> None:
    lines: list[Line] = []
    cpu = platform.processor() or platform.machine()
    print(f"{cpu}, {cores()} cores, ale-py {version('ale-py')}")
    print(f"{'game':14s} {'lanes':>6s}  {'where':12s} {'build s':>8s} {'steps/s':>8s} {'x one':>6s}")
    for game in options.games:
        for lanes, count in cells(options):
            lines.append(line := measure(game, lanes, count, options.seconds))
            line.times_one = line.steps_per_s / next(x.steps_per_s for x in lines if x.game == game)
            where = f"{count} process{'es' if count > 1 else ''}" if count else "here"
            numbers = f"{line.build_s:8.2f} {line.steps_per_s:8,.0f} {line.times_one:6.2f}"
            print(f"{game:14s} {lanes:6d}  {where:12s} {numbers}", flush=True)
    if options.json is not None:
        told = {"cpu": cpu, "cores": cores(), "ale-py": version("ale-py"), "seconds": options.seconds}
        told["lines"] = [asdict(line) for line in lines]
        options.json.write_text(json.dumps(told, indent=1) + "\n")


def cells(options: Options) -> Iterator[tuple[int, int]]:
    """Lanes and processes; one lane here comes first, since the others are compared with it."""
    for lanes in sorted({1, *options.lanes}):
        yield from ((lanes, 0), (lanes, min(lanes, options.processes)))


def measure(game: str, count: int, processes: int, seconds: float) -> Line:
    starts.cache_clear()  # tables that an earlier line made in this process
    began = time.perf_counter()
    lanes = Lanes(builder(game, processes)(count), range(count), stack=4)
    built = time.perf_counter() - began
    actions = np.random.default_rng(0).integers(lanes.env.spec.actions.n, size=(997, count), dtype=np.int32)
    ticks = ended = 0
    try:
        began = time.perf_counter()
        while (spent := time.perf_counter() - began) < seconds:
            ended += len(lanes.step(actions[ticks % len(actions)]).finished)
            ticks += 1
    finally:
        lanes.close()
    return Line(game, count, processes, built, ticks * count / spent, ended)


def builder(game: str, processes: int) -> Callable[[int], VecEnv]:
    here = partial(AtariEnv, game=game, rules=Rules(lives=True))
    return partial(Workers, here, spec_of(actions_of(game)), count=processes) if processes else here


if __name__ == "__main__":
    main(tyro.cli(Options))
