"""From what was asked to runs: what is finished, what continues, what begins, and what it will cost."""

import fcntl
import heapq
import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from vcrl.campaign.ask import Ask
from vcrl.campaign.machine import Machine
from vcrl.core.errors import UserError
from vcrl.runs.files import open_plain
from vcrl.runs.folder import LOCK, run_path, seeds_name
from vcrl.runs.rates import Clock
from vcrl.runs.reading import read_run

CAREFUL = 1.25  # what an update works on is known roughly: packing leaves this much room
MEASURED = 1.05  # the same where earlier runs have said what they held
LOG_BYTES = 600  # of one seed in one row of metrics, episodes included


class Scouted(NamedTuple):
    """What the scout says of one method on one task; bytes are those of one seed."""

    method: str
    task: str
    room: str
    digest: str
    budget: int
    protocol_hash: str
    replay: int
    weights: int
    working: int  # while it updates
    kept: int  # of its nets, when it is finished
    log: int

    @property
    def need(self) -> int:
        return self.replay + self.weights + self.working


@dataclass(frozen=True)
class Job:
    """One run: some seeds of a method on a task, in one process."""

    what: Scouted
    seeds: tuple[int, ...]
    path: Path
    done: bool = False
    agent_steps: int = 0  # behind it already
    seconds: float = 0.0  # ahead of it, by forecast
    source: str = ""
    memory: float = 0.0  # bytes it will hold, as earlier runs did or by forecast

    @property
    def name(self) -> str:
        return f"{self.what.method} {self.what.task} {seeds_name(self.seeds)}"


@dataclass(frozen=True)
class Campaign:
    ask: Ask
    jobs: tuple[Job, ...]
    group: int
    machine: Machine

    @property
    def todo(self) -> list[Job]:
        return [job for job in self.jobs if not job.done]

    @property
    def seconds(self) -> float:
        """From start to end, with every slot busy while there is something to do."""
        return makespan([job.seconds for job in self.todo], len(self.machine.slots))

    @property
    def busy(self) -> float:
        """Summed over slots: what an account is charged."""
        return sum(job.seconds for job in self.todo)

    @property
    def disk(self) -> tuple[int, int]:
        """Bytes at the end, and at most on the way: a run that goes on has its replay on disk too."""
        end = sum(_kept(job) for job in self.todo)
        open_ = sorted((len(j.seeds) * (j.what.replay + 2 * j.what.weights) for j in self.todo), reverse=True)
        return end, end + sum(open_[: len(self.machine.slots)])


def _kept(job: Job) -> int:
    rows = job.what.budget // job.what.log
    return len(job.seeds) * (job.what.kept + rows * LOG_BYTES)


def scouted(ask: Ask) -> list[Scouted]:
    """Ask the scout about every method on every task; it takes a few seconds, for it has to import JAX."""
    asked = {
        "pairs": [(method, task) for task in ask.tasks for method in ask.methods],
        "seeds": list(ask.seeds),
        "options": dict(ask.given),
        "changes": ask.changes,
    }
    command = [sys.executable, "-m", "vcrl.campaign.scout"]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, env=_cpu())
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise UserError(f"cannot plan, for `python -m vcrl.campaign.scout` fails: {last}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if "error" in answer:
        raise UserError(answer["error"])
    return [Scouted(**entry) for entry in answer["found"]]


def _cpu() -> dict[str, str]:
    return {**os.environ, "JAX_PLATFORMS": "cpu"}


def make_campaign(
    ask: Ask, found: Sequence[Scouted], machine: Machine, group: int | None, clock: Clock
) -> Campaign:
    """Every asked seed is in exactly one run: a finished one, an unfinished one that goes on, or a new one."""
    if group is not None and group < 1:
        raise UserError(f"--group {group}: at least one seed trains in a run")
    standing = {what: existing(ask, what) for what in found}
    left = {what: _left(ask.seeds, jobs) for what, jobs in standing.items()}
    chosen = group or best_group(found, left, machine, clock)
    jobs: list[Job] = []
    for what in found:
        new = [_new(ask, what, seeds) for seeds in _split(left[what], chosen)]
        jobs += sorted([*standing[what], *new], key=lambda job: job.seeds)
    for job in jobs:
        if not job.done:
            _check_room(job, machine, clock)
    return Campaign(ask, tuple(_timed(job, clock) for job in jobs), chosen, machine)


def _new(ask: Ask, what: Scouted, seeds: tuple[int, ...]) -> Job:
    return Job(what, seeds, run_path(ask.out, what.room, what.method, what.task, seeds, what.digest))


def _timed(job: Job, clock: Clock) -> Job:
    what = job.what
    job = replace(job, memory=len(job.seeds) * _held(what, clock))
    if job.done:
        return job
    left = clock.forecast(what.room, what.method, what.task, len(job.seeds), what.budget, job.agent_steps)
    return replace(job, seconds=left.seconds, source=left.source)


def existing(ask: Ask, what: Scouted) -> list[Job]:
    """Runs of the same digest that cover asked seeds, each seed once; finished ones first, then the furthest.

    An unfinished run goes on as the group it is, but not if that meant training seeds that nobody asked for.
    """
    somewhere = run_path(ask.out, what.room, what.method, what.task, (0,), what.digest)
    found: list[Job] = []
    for path in sorted(somewhere.parent.glob(f"*-{what.digest}")):
        try:
            run = read_run(path)
            seeds = tuple(int(s) for s in run.record["seeds"])
            same = run.record["method"] == what.method and run.record["task"] == what.task
            state, steps = run.status.get("state"), int(run.status.get("agent_steps", 0))
        except (UserError, KeyError, TypeError, ValueError):
            continue  # nothing to continue there; the training itself will say what is wrong with it
        if same and seeds:
            found.append(Job(what, seeds, path, state == "done", steps))
    covered, kept = set[int](), list[Job]()
    for job in sorted(found, key=lambda job: (not job.done, -job.agent_steps, -len(job.seeds))):
        mine = set(job.seeds)
        if (job.done and mine & (set(ask.seeds) - covered)) or (
            not job.done and mine <= set(ask.seeds) and not mine & covered
        ):
            covered |= mine
            kept.append(job)
    return kept


def _left(seeds: Sequence[int], jobs: Sequence[Job]) -> list[int]:
    covered = {seed for job in jobs for seed in job.seeds}
    return [seed for seed in seeds if seed not in covered]


def _split(seeds: Sequence[int], group: int) -> list[tuple[int, ...]]:
    """As many groups as are needed, of nearly the same size."""
    count = math.ceil(len(seeds) / group)
    cuts = [round(i * len(seeds) / count) for i in range(count + 1)] if count else [0]
    return [tuple(seeds[a:b]) for a, b in pairwise(cuts)]


def best_group(
    found: Sequence[Scouted], left: dict[Scouted, list[int]], machine: Machine, clock: Clock
) -> int:
    """Seeds a run: as many as fit, but fewer where slots would otherwise stand idle and the end come later."""
    most = max((len(seeds) for seeds in left.values()), default=1) or 1
    need = max(room_for(what, clock) for what in found)
    fits = most if machine.room is None else min(most, max(1, int(machine.room / need)))

    def end(group: int) -> float:
        times = [
            clock.forecast(what.room, what.method, what.task, len(seeds), what.budget).seconds
            for what in found
            for seeds in _split(left[what], group)
        ]
        return makespan(times, len(machine.slots))

    sizes = {math.ceil(most / count) for count in range(math.ceil(most / fits), most + 1)}
    return min(sorted(sizes, reverse=True), key=end)


def room_for(what: Scouted, clock: Clock) -> float:
    """Bytes that packing sets aside for a seed: as runs of the method held here, else as forecast."""
    factor = clock.memory(what.room, what.method)
    return what.need * (CAREFUL if factor is None else MEASURED * factor)


def _held(what: Scouted, clock: Clock) -> float:
    """Bytes a seed is expected to hold."""
    return what.need * (clock.memory(what.room, what.method) or 1.0)


def makespan(times: Sequence[float], slots: int) -> float:
    """When the last run ends if each slot takes the next run once it is free."""
    free = [0.0] * slots
    for time in times:
        heapq.heapreplace(free, free[0] + time)
    return max(free)


def _check_room(job: Job, machine: Machine, clock: Clock) -> None:
    one, room = _held(job.what, clock), machine.room
    need = len(job.seeds) * one
    if room is not None and need > room:
        fits = int(room / one)
        less = f"--group {fits} fits" if fits else "use a smaller --replay.capacity"
        if job.path.exists():
            less = f"it was begun with more memory; delete {job.path} to begin again in smaller groups"
        raise UserError(
            f"{len(job.seeds)} seeds of {job.what.method} on {job.what.task} need {need / 1e9:.1f} GB and "
            f"{room / 1e9:.1f} GB may be taken: {less}"
        )


def holder(path: Path) -> str | None:
    """The process that writes a run at the moment, None if there is none."""
    try:
        with open_plain(path / LOCK) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read(20).decode("ascii", "replace").strip() or "unknown"
    except OSError:
        pass
    return None
