"""All runs at a glance: a table that redraws itself in a terminal, plain lines elsewhere."""

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from vcrl.campaign.ask import seeds_text
from vcrl.campaign.plan import Campaign, holder
from vcrl.campaign.progress import Look, look
from vcrl.campaign.work import ENDED, Work
from vcrl.core.spans import duration, span

PLAIN_SECONDS = 30.0  # between lines on a run where there is no terminal
LOOK_SECONDS = 1.0
COLOURS = {"failed": "red", "running": "bold", "done": "green", "stopped": "yellow", "waiting": "dim"}
# Who may not all fit in the terminal: those one looks for come first.
ORDER = ("running", "failed", "waiting", "stopped", "done")


class View:
    """`show` may be called as often as one likes; it reads the folders once a second."""

    def __init__(self, works: Sequence[Work], log: Console, clock: Callable[[], float] = time.monotonic):
        self.works, self.log, self.clock = works, log, clock
        self.speeds = {id(work): Speed() for work in works}
        self.ended: dict[int, Look] = {}  # of what will not change any more
        self.looked = -LOOK_SECONDS
        self.told = clock()
        self.live = Live(console=log, auto_refresh=False) if is_live(log) else None

    def __enter__(self) -> "View":
        if self.live is not None:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.looked = -LOOK_SECONDS
        self.show()
        if self.live is not None:
            self.live.stop()

    def line(self, text: str) -> None:
        self.log.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self) -> None:
        for work in self.works:
            for text in work.news:
                self.line(f"{work.job.name}   {text}")
            work.news.clear()
        now = self.clock()
        if now - self.looked < LOOK_SECONDS:
            return
        self.looked = now
        for work in self.works:
            if work.state == "running":
                self.speeds[id(work)].add(now, self.look(work).agent_steps)
        if self.live is not None:
            self.live.update(self.table(room=self.log.height - 4), refresh=True)
        elif now - self.told >= PLAIN_SECONDS:
            self.told = now
            for work in self.works:
                if work.state == "running":
                    self.line("  ".join(filter(None, self.row(work))))

    def row(self, work: Work) -> tuple[str, str, str, str, str, str]:
        """Run, state, steps, steps a second, time left, score."""
        job, seen = work.job, self.look(work)
        speed = self.speeds[id(work)].rate() if work.state == "running" else None
        left = duration((job.what.budget - seen.agent_steps) / speed) if speed else ""
        state = work.state
        if state == "running" and seen.state != "running":
            state = "starting"
        elif state == "running" and seen.agent_steps >= job.what.budget:
            state = "evaluating"
        return (
            job.name,
            state,
            f"{seen.agent_steps:,}/{job.what.budget:,}",
            f"{speed:,.0f} steps/s" if speed else "",
            f"left {left}" if left else "",
            score_text(seen),
        )

    def look(self, work: Work) -> Look:
        if work.state not in ENDED:
            return look(work.job)
        if id(work) not in self.ended:
            self.ended[id(work)] = look(work.job)
        return self.ended[id(work)]

    def table(self, room: int = 10**6) -> Group:
        shown = sorted(self.works, key=lambda work: ORDER.index(work.state))[: max(room, 3)]
        keep = {id(work) for work in shown}
        table = Table("run", "state", "steps", "speed", "left", "score", "", box=None, pad_edge=False)
        for work in self.works:
            if id(work) in keep:
                table.add_row(
                    *self.row(work), Text(work.reason, overflow="ellipsis"), style=COLOURS[work.state]
                )
        hidden = len(self.works) - len(shown)
        more = f"   ({hidden} not shown)" if hidden else ""
        return Group(table, Text(summary(self.works) + more))


class Speed:
    """Agent steps a second over the last minute of looking."""

    def __init__(self) -> None:
        self.seen: deque[tuple[float, int]] = deque(maxlen=60)

    def add(self, now: float, agent_steps: int) -> None:
        if self.seen and agent_steps < self.seen[-1][1]:
            self.seen.clear()  # it crashed and went back to a checkpoint
        if len(self.seen) == 1 and agent_steps == self.seen[0][1]:
            self.seen.clear()  # it has not begun to move: importing and compiling do not count
        self.seen.append((now, agent_steps))

    def rate(self) -> float | None:
        if len(self.seen) < 2:
            return None
        (then, before), (now, after) = self.seen[0], self.seen[-1]
        return (after - before) / (now - then) if now > then and after > before else None


def plan_table(campaign: Campaign) -> Group:
    """What would be done, by whom it was forecast, and what it costs."""
    table = Table("run", "seeds", "state", "steps", "memory", "time", "forecast by", box=None, pad_edge=False)
    for job in campaign.jobs:
        pid = None if job.done else holder(job.path)
        state = (
            "done"
            if job.done
            else f"locked (pid {pid})"
            if pid
            else "continues"
            if job.path.exists()
            else "new"
        )
        table.add_row(
            f"{job.what.method} {job.what.task}",
            seeds_text(job.seeds),
            state,
            f"{job.agent_steps:,}/{job.what.budget:,}",
            f"{job.memory / 1e9:.2f} GB",
            "" if job.done else span(job.seconds),
            job.source,
            style=COLOURS["done"] if job.done else None,
        )
    return Group(table, Text(forecast_text(campaign)))


def forecast_text(campaign: Campaign) -> str:
    todo, (end, most) = campaign.todo, campaign.disk
    ready, most_seeds = len(campaign.jobs) - len(todo), max((len(job.seeds) for job in todo), default=0)
    counts = f"{len(campaign.jobs)} run{'s' * (len(campaign.jobs) != 1)}, {ready} done, {len(todo)} to do"
    if not todo:
        return counts
    slots = len(campaign.machine.slots)
    busy = f", {span(campaign.busy)} of GPUs in all" if slots > 1 else ""
    return (
        f"{counts}, up to {most_seeds} seed{'s' * (most_seeds != 1)} a run, on {campaign.machine}\n"
        f"forecast: {span(campaign.seconds)}{busy}; disk {size(end)}, at most {size(most)} while it runs"
    )


def summary(works: Sequence[Work]) -> str:
    counts = Counter(work.state for work in works)
    return ", ".join(f"{counts[state]} {state}" for state in ORDER if counts[state])


def score_text(seen: Look) -> str:
    if seen.score is None:
        return ""
    return f"{seen.score:,.2f}{' final' if seen.final else ' so far'}"


def size(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def is_live(log: Console) -> bool:
    """Whether a table may redraw itself here, rather than fill a log file with copies."""
    ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    return log.is_terminal and not log.is_dumb_terminal and not ci
