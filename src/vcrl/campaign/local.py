"""Runs as processes of this computer: one a GPU, or one on the CPU."""

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress

from vcrl.campaign.child import TRAIN, Child, start, verdict
from vcrl.campaign.plan import Campaign, holder
from vcrl.campaign.progress import log_of
from vcrl.campaign.work import Queue, Work


class Local:
    def __init__(self, campaign: Campaign, retries: int, program: Sequence[str] = TRAIN):
        self.campaign, self.program = campaign, program
        self.queue = Queue(list(campaign.jobs), retries)
        self.works = self.queue.works
        self.running: dict[str, tuple[Work, Child]] = {}

    def poll(self) -> bool:
        for slot, (work, child) in list(self.running.items()):
            code = child.process.poll()
            # Where only the process above the training was killed, the training is still to save and let go.
            if code is not None and not (code < 0 and holder(work.job.path)):
                del self.running[slot]
                self.queue.ended(work, *verdict(work.job.path, child, code))
        machine = self.campaign.machine
        for slot in machine.slots:
            if slot not in self.running and (work := self.queue.take(f"started on {slot_name(slot)}")):
                job, ask = work.job, self.campaign.ask
                words = ask.words(job.what.method, job.what.task, job.seeds, job.what.digest)
                child = start(
                    words, log_of(ask, job), machine.environment(slot), machine.share(slot), self.program
                )
                self.running[slot] = work, child
        return bool(self.running or self.queue.waiting)

    def stop(self) -> None:
        self.queue.halt()
        self._each(lambda child: child.process.send_signal(signal.SIGINT))

    def kill(self) -> None:
        self.queue.halt()
        self._each(end)

    def _each(self, do: Callable[[Child], None]) -> None:
        for _, child in self.running.values():
            do(child)


def end(child: Child) -> None:
    """With the processes of its emulators, and with a training that outlived the process above it."""
    with suppress(ProcessLookupError):
        os.killpg(child.process.pid, signal.SIGKILL)
    child.process.wait()


def slot_name(slot: str) -> str:
    return "the CPU" if slot == "cpu" else f"GPU {slot}"
