"""`vcrl campaign`: plan, forecast, do what is missing, show it, say how it ended."""

import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from vcrl.campaign import cluster, slurm
from vcrl.campaign.ask import Ask
from vcrl.campaign.child import TRAIN, orphaned
from vcrl.campaign.local import Local
from vcrl.campaign.machine import elsewhere, free_disk, list_gpus, machine
from vcrl.campaign.plan import Campaign, holder, make_campaign, scouted
from vcrl.campaign.progress import log_of
from vcrl.campaign.view import View, plan_table, size, summary
from vcrl.campaign.work import Engine
from vcrl.core.errors import UserError, unknown
from vcrl.runs.files import write_atomic, writing
from vcrl.runs.rates import Clock

ENGINES = ("local", "ray", "slurm")
POLL_SECONDS = 0.2
PATIENCE = 10.0  # seconds for runs that somebody else writes
SAVING = 300.0  # the same for those of a campaign that was killed: they may have to compile before they save
SLURM_CORES = 16
PLAIN_WIDTH = 160  # of a table in a file


def campaign(
    ask: Ask,
    group: int | None = None,
    gpus: str | None = None,
    gpu_memory: float | None = None,
    retries: int = 2,
    engine: str = "local",
    dry_run: bool = False,
    printed: bool = False,
    log: Console | None = None,
    program: Sequence[str] = TRAIN,
) -> int:
    """Do what is missing of what was asked. Returns the exit code: 0, 1 if runs failed, 130 if stopped."""
    check(retries, gpu_memory, engine, printed)
    log = log or Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    ray = cluster.connect() if engine == "ray" else None
    if engine == "slurm":
        where = elsewhere(0 if (gpus or "").lower() == "none" else 1, SLURM_CORES, gpu_memory)
    else:
        where = cluster.cluster_machine(ray, gpus, gpu_memory) if ray else machine(gpus, gpu_memory)
    if engine == "local" and gpus is None and not where.gpus and list_gpus():
        log.print("JAX cannot use the GPU here (pip install 'jax[cuda13]'): the CPU trains", soft_wrap=True)
    clock = Clock(ask.out, "gpu" if where.gpus else "cpu")
    plan = make_campaign(ask, scouted(ask), where, group, clock)
    if engine == "slurm":
        if not plan.todo:
            raise UserError(f"nothing is left to do: all {len(plan.jobs)} runs are done")
        print(slurm.script(plan), end="")
        return 0
    log.print(plan_table(plan))
    if (most := plan.disk[1]) > (free := free_disk(ask.out)):
        log.print(f"warning: {size(most)} of disk may be needed and {size(free)} are free", soft_wrap=True)
    if dry_run or not plan.todo:
        return 0
    with held(plan, log):
        record(plan)
        works: Engine = cluster.Cluster(plan, retries, ray, program) if ray else Local(plan, retries, program)
        stopped = follow(works, log)
    return told(works, plan, stopped, log)


def check(retries: int, gpu_memory: float | None, engine: str, printed: bool) -> None:
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    if retries < 0:
        raise UserError(f"--retries {retries}: 0 is never again")
    if gpu_memory is not None and not 0 < gpu_memory < 1e6:
        raise UserError(f"--gpu-memory {gpu_memory}: in GB, such as 80")
    if printed != (engine == "slurm"):
        raise UserError(
            "--engine slurm and --print go together: vcrl campaign ... --engine slurm --print | sbatch"
        )


@contextmanager
def held(plan: Campaign, log: Console) -> Iterator[None]:
    """This campaign is ours, and nobody writes its runs."""
    folder = plan.ask.folder
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / "lock", "a+")  # noqa: SIM115 (closed below)
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"this campaign is running already ({folder}): wait for it or stop it") from None
        begun, waited_for = time.monotonic(), set[str]()
        while busy := [(job, pid) for job in plan.todo if (pid := holder(job.path))]:
            for job, pid in busy:
                saving = orphaned(pid)
                if saving and pid not in waited_for:
                    log.print(f"waiting for {job.name} (pid {pid}) to save: its campaign was killed")
                    waited_for.add(pid)
                if time.monotonic() - begun > (SAVING if saving else PATIENCE) and holder(job.path) == pid:
                    raise UserError(
                        f"another process (pid {pid}) is writing {job.name}: wait for it, leave it out with --methods "
                        f"or --tasks, or choose another --out ({job.path})"
                    )
            time.sleep(POLL_SECONDS)
        yield


def record(plan: Campaign) -> None:
    """campaign.json: what was asked, and the runs it came to."""
    ask = plan.ask

    def entry(job: Any) -> dict[str, Any]:
        what = job.what
        return {
            "method": what.method,
            "task": what.task,
            "seeds": list(job.seeds),
            "folder": os.path.relpath(job.path, ask.out),
            "log": log_of(ask, job).name,
            "protocol_hash": what.protocol_hash,
            "done": job.done,
            "forecast_seconds": round(job.seconds),
        }

    body = {
        "asked": {
            "suite": ask.suite,
            "methods": ask.methods,
            "tasks": ask.tasks,
            "seeds": ask.seeds,
            "options": dict(ask.given),
            "changes": ask.changes,
        },
        "group": plan.group,
        "runs": [entry(job) for job in plan.jobs],
    }
    with writing(ask.folder):
        write_atomic(ask.folder / "campaign.json", json.dumps(body, indent=2).encode() + b"\n")


def follow(works: Engine, log: Console) -> bool:
    """Until all is done, or until Ctrl-C or SIGTERM; then until what runs has saved. Whether it was stopped."""
    with interrupts() as count, View(works.works, log) as view:
        asked = 0
        try:
            while works.poll():
                view.show()
                if count and not asked:
                    view.line("stopping: what runs saves its state; again to end at once")
                    works.stop()
                elif len(count) > 1 and asked < 2:
                    works.kill()
                asked = min(len(count), 2)
                time.sleep(POLL_SECONDS)
        except BaseException:
            works.kill()  # an error of ours leaves no process behind
            raise
    return bool(count)


@contextmanager
def interrupts() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM, in the order they came."""
    came: list[int] = []
    before = {
        number: signal.signal(number, lambda n, frame: came.append(n))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield came
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def told(works: Engine, plan: Campaign, stopped: bool, log: Console) -> int:
    failed = [work for work in works.works if work.state == "failed"]
    unfinished = any(work.state != "done" for work in works.works)
    if not (log.is_terminal and not failed):
        log.print(summary(works.works))
    for work in failed:
        where: Path = log_of(plan.ask, work.job)
        log.print(f"{work.job.name} failed: {work.reason}; see {where}", soft_wrap=True, markup=False)
    if stopped and unfinished:
        log.print("stopped and saved: the same command continues")
        return 130
    return 1 if unfinished else 0
