"""How fast DeepMind Control is drawn: agent steps a second in 1 to N processes, and how much of it is the picture.

    python benchmarks/rendering.py                                      the six tasks, up to as many processes as pay
    python benchmarks/rendering.py --tasks cheetah-run --processes 1 15 --lanes 10 --json rendering.json

A line steps lanes with random actions, resets included, as a training does. `physics/s` is the same in one process
without pictures, and `picture` the share of a step that the picture takes in the first line. `MUJOCO_GL` chooses the
renderer; unset, the first that works.
"""

import json
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import tyro

from vcrl.envs import rendering
from vcrl.envs.base import VecEnv
from vcrl.envs.dmc import ACTIONS, REPEATS, DmcEnv, Game, repeat_of, spec_of
from vcrl.envs.lanes import Lanes
from vcrl.envs.processes import cores
from vcrl.envs.workers import Workers


@dataclass
class Options:
    tasks: tuple[str, ...] = tuple(REPEATS)
    processes: tuple[int, ...] = ()  # none: 1, 2, 4 ... up to one less than there are cores
    lanes: int | None = None  # none: one a process
    size: int = 100
    seconds: float = 3.0  # of each line
    json: Path | None = None


@dataclass
class Line:
    task: str
    repeat: int
    processes: int
    lanes: int
    build_s: float
    frames_per_s: float  # agent steps of all lanes together, each with its picture
    physics_per_s: float  # agent steps of one process without pictures
    times_one: float = 1.0  # ratio to the task's first line

    @property
    def picture(self) -> float:
        """The share of a step that its picture takes, in one process."""
        return 1 - self.frames_per_s / self.physics_per_s


def main(options: Options) -> None:
    chosen, cpu = rendering.choose(), platform.processor() or platform.machine()
    told = {"cpu": cpu, "cores": cores(), "mujoco": version("mujoco"), "dm_control": version("dm_control")}
    print(f"{cpu}, {cores()} cores, mujoco {told['mujoco']}; {chosen.note}")
    print(
        f"{'task':18s} {'repeat':>6s} {'processes':>9s} {'lanes':>5s} {'build s':>7s} {'frames/s':>8s} "
        f"{'x one':>6s} {'physics/s':>9s} {'picture':>7s}"
    )
    lines: list[Line] = []
    for task in options.tasks:
        alone = physics(task, options.seconds)
        first: Line | None = None
        for count in options.processes or doubling(max(cores() - 1, 1)):
            line = measure(task, count, options.lanes or count, options.size, options.seconds, alone)
            first = first or line
            line.times_one = line.frames_per_s / first.frames_per_s
            share = f"{line.picture:7.0%}" if line.processes == 1 else ""
            print(
                f"{task:18s} {line.repeat:6d} {count:9d} {line.lanes:5d} {line.build_s:7.2f} "
                f"{line.frames_per_s:8,.0f} {line.times_one:6.2f} {alone:9,.0f} {share}",
                flush=True,
            )
            lines.append(line)
    if options.json is not None:
        told |= {
            "rendering": chosen._asdict(),
            "size": options.size,
            "lines": [asdict(line) for line in lines],
        }
        options.json.write_text(json.dumps(told, indent=1) + "\n")


def doubling(most: int) -> list[int]:
    return sorted({most, *(2**k for k in range(most.bit_length()))})


def physics(task: str, seconds: float) -> float:
    """Agent steps a second of one simulator that nobody looks at, resets included."""
    game, rng, steps = Game(task, repeat_of(task)), np.random.default_rng(0), 0
    actions = rng.uniform(-1, 1, (997, ACTIONS[task])).astype(np.float32)
    game.reset(np.uint64(0))
    began = time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        if game.step(actions[steps % 997]).over:
            game.reset(np.uint64(steps))
        steps += 1
    return steps / spent


def measure(task: str, processes: int, count: int, size: int, seconds: float, alone: float) -> Line:
    began = time.perf_counter()
    lanes = Lanes(builder(task, processes, size)(count), range(count), stack=3)
    built, ticks = time.perf_counter() - began, 0
    actions = np.random.default_rng(0).uniform(-1, 1, (997, count, ACTIONS[task])).astype(np.float32)
    try:
        for row in actions[:3]:
            lanes.step(row)  # the first pictures compile the renderer's own programs
        began = time.perf_counter()
        while (spent := time.perf_counter() - began) < seconds:
            lanes.step(actions[ticks % 997])
            ticks += 1
    finally:
        lanes.close()
    return Line(task, repeat_of(task), processes, count, built, ticks * count / spent, alone)


def builder(task: str, processes: int, size: int) -> Callable[[int], VecEnv]:
    """Worker processes even for one, so that lines compare."""
    here = partial(DmcEnv, task=task, size=size, repeat=repeat_of(task))
    return partial(Workers, here, spec_of(task, size, repeat_of(task)), count=processes)


if __name__ == "__main__":
    main(tyro.cli(Options))
