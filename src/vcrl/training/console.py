"""Progress of a long training: a live table of all seeds in a terminal, plain lines everywhere else."""

import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import rich.console
from rich import box
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from vcrl.core.spans import duration

WINDOW = 30.0  # seconds over which a speed is measured
SPACING = 0.25  # seconds between remembered moments, so that the window stays small


class State(NamedTuple):
    """What the last update said, as arrays over seeds; a seed without a score yet has NaN."""

    agent_steps: int
    scores: np.ndarray
    losses: dict[str, np.ndarray]


class Speed:
    """Steps and updates per second, over the recent past of this process only."""

    def __init__(self, clock: Callable[[], float]):
        self._clock = clock
        self._past: deque[tuple[float, int, int]] = deque()
        self._now: tuple[float, int, int] | None = None

    def record(self, agent_steps: int, updates: int) -> None:
        """Remember this moment. The first one is the origin: a resumed run starts far from zero."""
        now = self._now = (self._clock(), agent_steps, updates)
        if not self._past or now[0] - self._past[-1][0] >= SPACING:
            self._past.append(now)
        while len(self._past) > 2 and now[0] - self._past[1][0] >= WINDOW:
            self._past.popleft()

    def rates(self) -> tuple[float, float] | None:
        """Agent steps and updates per second, or None while nothing can be said."""
        now = self._now
        if now is None:
            return None
        then = self._past[0]
        seconds = now[0] - then[0]
        if seconds <= 0:
            return None
        return (now[1] - then[1]) / seconds, (now[2] - then[2]) / seconds


class Console:
    """Shows a training while it runs; `update` only takes notes, so it may be called at every log event."""

    def __init__(
        self,
        title: str,
        seeds: Sequence[int],
        total: int,
        log: rich.console.Console | None = None,
        *,
        every: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.title, self.seeds, self.total, self.every = title, list(seeds), total, every
        self.log = log or rich.console.Console()
        self._clock = clock
        self._speed = Speed(clock)
        self._state: State | None = None
        self._notes: dict[int, str] = {}
        self._doing = ""  # beside training, such as how far an evaluation is
        self._told = clock()
        self._printed: tuple[float, State] | None = None
        self._live: Live | None = None

    def __enter__(self) -> "Console":
        if is_live(self.log):
            self._live = Live(get_renderable=self._table, console=self.log, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def update(
        self,
        agent_steps: int,
        updates: int,
        scores: Sequence[float | None],
        losses: Mapping[str, Sequence[float]],
        note: Mapping[int, str],
    ) -> None:
        """Take in the newest numbers, one per seed; `note` says by seed what a reader must know."""
        self._speed.record(agent_steps, updates)
        count = len(self.seeds)
        named = {name: _numbers(values, count) for name, values in losses.items()}
        self._state = State(agent_steps, _numbers(scores, count), named)
        news = {seed: text for seed, text in note.items() if self._notes.get(seed) != text}
        self._notes = dict(note)
        if self._live is not None:
            return
        for seed, text in news.items():  # never held back: it may explain everything that follows
            self._print(f"{self.title}   seed {seed}: {text}")
        if self._printed is None or self._clock() - self._printed[0] >= self.every:
            self._print_state(self._state)

    def evaluating(self, done: int, games: int) -> None:
        """How many evaluation games are over; said now and then, for it can take minutes."""
        self._doing = f"evaluating: {done:,} of {games:,} games" if done < games else ""
        if self._live is None and done < games and self._clock() - self._told >= self.every:
            self._told = self._clock()
            self._print(f"{self.title}   {self._doing}")

    def line(self, text: str) -> None:
        """Print a line that stays, above the table."""
        self._print(text)

    def finish(self, text: str) -> None:
        """End with the last numbers and a closing line."""
        self._close()
        self._print(text)

    def _close(self) -> None:
        if self._live is not None:
            self._live.stop()  # leaves the last table standing
        elif self._state is not None and (self._printed is None or self._printed[1] is not self._state):
            self._print_state(self._state)

    def _print(self, text: str) -> None:
        self.log.print(text, markup=False, highlight=False, soft_wrap=True)

    def _print_state(self, state: State) -> None:
        self._printed = (self._clock(), state)
        self._print(self._line(state))

    def _line(self, state: State) -> str:
        """All seeds in one line: means over those that have a finite number."""
        width = len(f"{self.total:,}")
        parts = [f"{self.title}   {state.agent_steps:>{width},}/{self.total:,} agent steps"]
        scores = state.scores[np.isfinite(state.scores)]
        spread = f" (min {scores.min():z.2f} max {scores.max():z.2f})" if len(scores) > 1 else ""
        parts.append(f"score {scores.mean():z.2f}{spread}" if len(scores) else "score -")
        for name, values in state.losses.items():
            finite = values[np.isfinite(values)]
            parts.append(f"{name} {_loss(float(finite.mean()) if len(finite) else float('nan'))}")
        if rates := self._speed.rates():
            parts += [f"{rates[0]:,.0f} steps/s", f"left {self._left(state.agent_steps, rates[0])}"]
        return "  ".join(parts)

    def _left(self, agent_steps: int, rate: float) -> str:
        return duration(max(0, self.total - agent_steps) / rate) if rate > 0 else "-"

    def _table(self) -> Group:
        """The live view; rich's own thread calls it, a few times a second."""
        state, notes = self._state, self._notes
        if state is None:
            return Group(Text(f"{self.title}   starting ..."))
        table = Table(box=box.SIMPLE_HEAD, title=self.title, title_justify="left", title_style="bold")
        for heading in ("seed", "score", *state.losses):
            table.add_column(heading, justify="right")
        table.add_column("", overflow="ellipsis", no_wrap=True)
        shown = self._shown(notes)
        for i in shown:
            seed, score = self.seeds[i], state.scores[i]
            cells = [str(seed), f"{score:z.2f}" if np.isfinite(score) else "-"]
            cells += [_loss(float(values[i])) for values in state.losses.values()]
            table.add_row(*cells, Text(notes.get(seed, "")), style="red" if seed in notes else None)
        hidden = len(self.seeds) - len(shown)
        more = [Text(f"  and {hidden} more seeds", style="dim")] if hidden else []
        return Group(table, *more, self._footer(state))

    def _shown(self, notes: Mapping[int, str]) -> list[int]:
        """Which rows fit the terminal; those with a note come first, for they are why one looks."""
        room = max(1, self.log.height - 8)
        order = sorted(range(len(self.seeds)), key=lambda i: self.seeds[i] not in notes)
        return sorted(order[:room]) if len(order) > room else list(range(len(order)))

    def _footer(self, state: State) -> Table:
        text = f"{state.agent_steps:,}/{self.total:,} agent steps"
        if rates := self._speed.rates():
            left = self._left(state.agent_steps, rates[0])
            text += f"   {rates[0]:,.0f} steps/s   {rates[1]:,.0f} updates/s   left {left}"
        text = self._doing or text
        width = min(30, max(8, self.log.width - len(text) - 4))
        footer = Table.grid(padding=(0, 1))
        footer.add_row(
            "", ProgressBar(self.total, min(state.agent_steps, self.total), width=width), Text(text)
        )
        return footer


def is_live(log: rich.console.Console) -> bool:
    """Whether a table may redraw itself here, rather than fill a log file with copies."""
    ci = os.environ.get("CI", "").lower() not in ("", "0", "false")
    return log.is_terminal and not log.is_dumb_terminal and not log.no_color and not ci


def _numbers(values: Sequence[Any], count: int) -> np.ndarray:
    numbers = np.array(values, dtype=float)  # a copy, for the live thread reads it later; None becomes NaN
    if numbers.shape != (count,):
        raise ValueError(f"expected one number for each of {count} seeds, found shape {numbers.shape}")
    return numbers


def _loss(value: float) -> str:
    return f"{value:.0e}" if 0 < abs(value) < 0.005 else f"{value:z.2f}"  # both short: columns must not jump
