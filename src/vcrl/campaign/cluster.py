"""The same plan on a Ray cluster: each run is a task that starts the same process on whichever machine has room.

Runs lie in --out, which all machines must see. A run whose worker dies is tried again and continues from its
checkpoint.
"""

import logging
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vcrl.campaign.child import TRAIN, Child, start, verdict
from vcrl.campaign.machine import Machine, elsewhere
from vcrl.campaign.plan import Campaign, holder
from vcrl.campaign.progress import log_of
from vcrl.campaign.work import Queue, Work
from vcrl.core.errors import UserError
from vcrl.methods.own import with_loss

SAVING = 120.0  # seconds that the process of a dead worker has to save, before its run is tried again


def connect() -> Any:
    """Ray, started here or joined where RAY_ADDRESS says."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray would hide the GPUs of tasks that ask for none by a variable that JAX then complains about.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise UserError("--engine ray needs Ray: pip install 'vcrl[cluster]'") from None
    if not ray.is_initialized():
        try:
            ray.init(log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError) as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise UserError(f"cannot reach a Ray cluster ({first}): check RAY_ADDRESS") from error
    return ray


def cluster_machine(ray: Any, gpus: str | None, gpu_memory: float | None) -> Machine:
    """One slot for each GPU of the cluster, or for each machine of it where there is none or none is wanted."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    cards = 0 if (gpus or "").lower() == "none" else int(sum(node.get("GPU", 0) for node in nodes))
    cores = [int(node.get("CPU", 1)) for node in nodes] or [1]
    share = max(1, sum(cores) // cards) if cards else max(1, min(cores))
    return elsewhere(cards, share, gpu_memory)


class Cluster:
    def __init__(self, campaign: Campaign, retries: int, ray: Any, program: Sequence[str] = TRAIN):
        self.campaign, self.ray, self.program = campaign, ray, program
        self.queue = Queue(list(campaign.jobs), retries)
        self.works = self.queue.works
        self.running: dict[Any, Work] = {}
        machine = campaign.machine
        # Tried again by our own queue, which counts and shows it; Ray would do so silently.
        self.remote = ray.remote(num_cpus=machine.cores, num_gpus=1 if machine.gpus else 0, max_retries=0)(
            train
        )

    def poll(self) -> bool:
        refs = list(self.running)
        done = self.ray.wait(refs, num_returns=len(refs), timeout=0)[0] if refs else []
        for ref in done:
            work = self.running.pop(ref)
            try:
                how, reason = self.ray.get(ref)
            except self.ray.exceptions.TaskCancelledError:
                how, reason = "stopped", ""
            except self.ray.exceptions.RayError as error:
                lines = str(error).strip().splitlines()
                how, reason = "crashed", f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]
            self.queue.ended(work, how, reason)
        # All at once: where they go, and when, is Ray's to decide.
        while work := self.queue.take("handed to Ray"):
            job, ask = work.job, self.campaign.ask
            words = ask.words(job.what.method, job.what.task, job.seeds, job.what.digest)
            environment = {} if self.campaign.machine.gpus else {"JAX_PLATFORMS": "cpu"}
            # A loss of the user's is found there as it is here.
            folder = os.getcwd() if with_loss(job.what.method)[1] is not None else ""
            ref = self.remote.remote(
                words, str(job.path), str(log_of(ask, job)), environment, tuple(self.program), folder
            )
            self.running[ref] = work
        return bool(self.running or self.queue.waiting)

    def stop(self) -> None:
        self.queue.halt()
        for ref in self.running:
            self.ray.cancel(ref, force=False)

    def kill(self) -> None:
        self.queue.halt()
        for ref in self.running:
            self.ray.cancel(ref, force=True)


def train(
    words: list[str],
    path: str,
    log: str,
    environment: dict[str, str],
    program: tuple[str, ...],
    folder: str = "",
) -> tuple[str, str]:
    """What a worker does: one training, from its start or its checkpoint to its end."""
    if folder:
        mine = os.environ.get("PYTHONPATH")
        environment = {**environment, "PYTHONPATH": os.pathsep.join([folder, *([mine] if mine else [])])}
    until = time.monotonic() + SAVING
    while holder(Path(path)) and time.monotonic() < until:
        time.sleep(0.2)
    child: Child = start(words, Path(log), environment, program=program)
    try:
        while child.process.poll() is None:
            time.sleep(0.2)
    except KeyboardInterrupt:  # how Ray cancels; it would not get through to a `wait`
        child.process.send_signal(signal.SIGINT)
    code = child.process.wait()
    return verdict(Path(path), child, code)
