"""The queue that every engine works off: what waits, runs, is tried again or given up."""

from collections import deque
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from vcrl.campaign.plan import Job

ENDED = ("done", "failed", "stopped")


@dataclass
class Work:
    """A job on its way."""

    job: Job
    state: str = "waiting"  # running, done, failed, stopped
    attempts: int = 0
    reason: str = ""  # why the last attempt ended, if it did not end well
    news: list[str] = field(default_factory=list)  # for those who print lines


@runtime_checkable
class Engine(Protocol):
    works: list[Work]

    def poll(self) -> bool:
        """Start and collect what can be; whether anything is left to do."""
        ...

    def stop(self) -> None:
        """Start no more; what runs saves and ends."""
        ...

    def kill(self) -> None:
        """End at once."""
        ...


class Queue:
    """Waiting jobs in order. One that crashed goes to the end, so that it keeps nobody waiting."""

    def __init__(self, jobs: list[Job], retries: int):
        self.works = [Work(job, "done" if job.done else "waiting") for job in jobs]
        self.waiting = deque(work for work in self.works if work.state == "waiting")
        self.retries = retries
        self.stopping = False

    def take(self, how: str) -> Work | None:
        """The next one, which `how` says what is done with."""
        if self.stopping or not self.waiting:
            return None
        work = self.waiting.popleft()
        work.state = "running"
        work.attempts += 1
        work.news.append(how if work.attempts == 1 else f"tried again, {how}")
        return work

    def ended(self, work: Work, how: str, reason: str) -> None:
        work.reason = reason
        if how in ("done", "stopped"):
            work.state = how
            work.news.append(how)
        elif self.stopping:
            work.state = "stopped"
            work.news.append(f"stopped ({reason})")
        elif how == "crashed" and work.attempts <= self.retries:
            work.state = "waiting"
            self.waiting.append(work)
            work.news.append(f"crashed ({reason}): will be tried again, {work.attempts} of {self.retries}")
        else:
            work.state = "failed"
            work.news.append(f"failed ({reason})")

    def halt(self) -> None:
        self.stopping = True
        for work in self.waiting:
            work.state = "stopped"
        self.waiting.clear()
