"""Everything that looks at a training from outside: logs, evaluation, checkpoints, the console."""

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from vcrl.core.types import Metrics
from vcrl.envs.lanes import Finished
from vcrl.runs import checkpoint
from vcrl.runs.folder import RunFolder
from vcrl.runs.logs import plain
from vcrl.runs.receipts import Game
from vcrl.training import evaluate
from vcrl.training.advice import Advice
from vcrl.training.console import Console
from vcrl.training.engine import Engine, Snapshot, Training
from vcrl.training.memory import need_in_bytes, peak_in_bytes
from vcrl.training.moments import Moments
from vcrl.training.plan import Plan

CHECKPOINT_SECONDS = 60.0
COMPILE_SECONDS = 5.0  # since the last checkpoint, after which there is one more before learning is compiled
RECENT = 20  # training episodes behind the score shown while running


class Interrupted(Exception):
    """Told to stop while looking at a training."""


class Waiting(NamedTuple):
    """A row of metrics that is not in the log yet."""

    counters: dict[str, Any]
    row: dict[str, Any]
    asked: bool  # for its Q-error


class Watch:
    """Nothing here changes what is learned."""

    def __init__(self, plan: Plan, engine: Engine, folder: RunFolder, console: Console):
        self.plan, self.engine, self.folder, self.console = plan, engine, folder, console
        status = folder.read_status()
        self.earlier = float(status["seconds"]) if isinstance(status.get("seconds"), int | float) else 0.0
        self.saved = self.began = time.monotonic()
        self.moments = Moments(plan, engine, self.play)
        self.forecast = sum(need_in_bytes(plan, engine))
        self.writer = ThreadPoolExecutor(1, "checkpoint")
        self.saving: Future[None] = Future()  # the newest checkpoint, perhaps still on its way
        self.saving.set_result(None)
        self.events: list[dict[str, Any]] = status["events"] if isinstance(status.get("events"), list) else []
        self.recent = {seed: deque[float](maxlen=RECENT) for seed in plan.seeds}
        self.advice = Advice(plan, self.events)
        self.interrupted: Callable[[], bool] = lambda: False
        # What is due at this tick and not in the logs yet: a row so far, and what else to look at. It is JSON, since
        # a checkpoint holds it where looking was cut off.
        self.owed: dict[str, Any] = {}
        # Rows that wait for a Q-error, their own or one before them, so that the log is in order. Those of earlier
        # ticks are owed in no checkpoint: there is none while they wait.
        self.waiting: list[Waiting] = []
        self.patient = self.warned = False
        self.finishing = False

    def close(self) -> None:
        self.moments.close()
        self.writer.shutdown()

    def begin(self, training: Training, owed: dict[str, Any], amiss: list[str]) -> None:
        """From where a run was continued, with what was cut off there and what was found changed."""
        self.owed = owed
        for text in amiss:
            self.note(training, text)
        self.status("running", training)

    def after(self, training: Training, metrics: list[Metrics] | None, finished: list[Finished]) -> None:
        """What is due at this moment."""
        plan, now = self.plan, training.tick
        for game in finished:
            self.folder.episode(game.seed, now, game.episode, game.score, game.length)
            self.recent[game.seed].append(game.score)
        for text in training.lanes.news():
            self.note(training, text)
        row: dict[str, Any] = {}
        if metrics is not None and due(now, plan.schedule.log):
            self.guard(training)
            row |= mean_of(metrics)
        if metrics is not None and due(now, plan.schedule.gradients):
            row |= self.engine.lifted.probe(training.state, training.replay, training.now, training.seeds)
        self.owed = {
            "row": listed(row),
            "q_error": metrics is not None and due(now, plan.schedule.q_error),
            "evaluate": due(now, plan.schedule.evaluate) and now < plan.budget,
        }
        self.look(training)
        # Compiling cannot be interrupted, so nothing should be lost by who does not wait for its end.
        patience = COMPILE_SECONDS if now == self.engine.agent.learn_start else CHECKPOINT_SECONDS
        if self.moments.most > 1 and due(now, plan.schedule.q_error) and not self.waiting:
            patience /= 2  # between two groups of moments, of which a checkpoint would cut one short
        if time.monotonic() - self.saved > patience and self.saving.done():
            self.settle(training)
            self.save(training)
            self.status("running", training)

    def look(self, training: Training) -> None:
        """Pay what is owed. An `Interrupted` on the way leaves owed what is not in the logs yet."""
        self.tell(training)
        if self.owed.get("evaluate"):
            self.evaluate(training)
            self.owed["evaluate"] = False

    def tell(self, training: Training) -> None:
        """The row of this tick into the log, or among those that wait until several Q-errors are measured together."""
        row, asked = self.owed.get("row", {}), self.owed.get("q_error", False)
        if not row and not asked:
            return
        if asked:
            self.moments.add(training.trusted())
        self.waiting.append(Waiting(self.counters(training), row, asked))
        if self.moments.full or not self.moments.count:
            self.settle(training)
        if row and due(training.tick, self.plan.schedule.log):
            self.show(training, row)
            for text in self.advice.after(row):
                self.note(training, text)

    def settle(self, training: Training) -> None:
        """Measure the Q-errors that wait, and write the rows that wait for them.

        Not to be cut short where rows of earlier ticks wait: what is gone cannot be measured another day.
        """
        if not self.waiting:
            return
        self.patient = self.behind(training)
        found = iter(self.moments.measure())
        self.patient = False
        for counters, row, asked in self.waiting:
            self.folder.metrics(counters | row | (listed(next(found)) if asked else {}))
        self.waiting.clear()
        self.owed |= {"row": {}, "q_error": False}
        self.folder.flush()  # others may be looking
        for text in self.moments.news():
            self.note(training, text)

    def behind(self, training: Training) -> bool:
        return any(row.counters["agent_steps"] < training.tick for row in self.waiting)

    def play(self, *arguments: Any) -> Any:
        """The agents' choices in games that are only looked at, until told to stop: such a game may be long."""
        if self.interrupted():
            if not self.patient:
                raise Interrupted
            if not self.warned:
                self.console.line(
                    f"{self.moments.count} Q-errors that wait are measured before it stops; a second Ctrl-C does not "
                    "wait, and the same command then continues from the last checkpoint"
                )
                self.warned = True
        return self.engine.lifted.play(*arguments)

    def stop(self, training: Training) -> None:
        if self.behind(training):
            self.settle(training)
        if not self.finishing:  # else the last checkpoint is on its way already
            self.save(training)
        self.saving.result()
        self.status("stopped", training)

    def finish(self, training: Training) -> None:
        """The last checkpoint, then the protocol's evaluation: cut off here, it is simply done again."""
        self.settle(training)
        self.save(training, last=True)
        self.finishing = True
        scores = self.evaluate(training)
        self.saving.result()
        self.folder.positions()  # on disk before the word done is
        self.folder.status({"scores": scores, "finished": datetime.now(UTC).date().isoformat()})
        self.status("done", training)
        checkpoint.settle(self.folder.checkpoint, training.tick)

    def guard(self, training: Training) -> None:
        """Mark seeds that are no longer finite; remember the newest state of the others."""
        finite, training.good = self.engine.lifted.guard(training.state, training.good)
        for i in np.flatnonzero(~np.asarray(finite) & (training.failed < 0)):
            training.failed[i] = training.tick
            self.console.line(
                f"seed {self.plan.seeds[i]} is no longer finite at {training.tick:,} agent steps: "
                "its last finite state is kept and will be scored; the others go on"
            )

    def evaluate(self, training: Training) -> dict[str, float]:
        """Score every seed by the protocol; the games go to the log, their means come back."""
        episodes, state = self.plan.protocol.eval_episodes, self.engine.lifted.bare(training.trusted())
        found = evaluate.games(
            self.plan,
            self.play,
            state,
            episodes,
            self.console.evaluating,
            partial(self.note, training),
        )
        # The receipt first: no row of the log is ever without one.
        played = [game for games in found for game in games]
        taken = [Game(g.finished.seed, g.finished.episode, g.actions) for g in played]
        self.folder.receipt(training.tick, evaluate.EVAL_SALT, taken)
        for game in (g.finished for g in played):
            self.folder.evaluation(game.seed, training.tick, game.episode, game.score, game.length)
        return {
            str(s): float(np.mean([g.finished.score for g in games]))
            for s, games in zip(self.plan.seeds, found, strict=True)
        }

    def note(self, training: Training, text: str) -> None:
        """Something happened that did not change the result but that a reader of it should know."""
        self.events.append({"agent_steps": training.tick, "event": text})
        self.console.line(text)

    def save(self, training: Training, last: bool = False) -> None:
        """Begin a checkpoint. The disk is written to while training goes on; `saving.result()` waits for it."""
        self.saving.result()
        self.guard(training)
        logs, taken = self.folder.positions(), training.ending() if last else training.snapshot()
        extra = {
            "logs": logs,
            "counters": taken.counters,
            **({"owed": self.owed} if any(self.owed.values()) else {}),
        }
        self.saving = self.writer.submit(self.write, taken, extra, last)
        self.saved = time.monotonic()

    def write(self, taken: Snapshot, extra: dict[str, Any], last: bool) -> None:
        extra["sha256"] = self.folder.digests(extra["logs"])
        checkpoint.save(
            self.folder.checkpoint,
            taken.counters["tick"],
            taken.arrays(),
            extra,
            None if last else taken.rows(),
            oldest=taken.span[1] - self.plan.capacity,
        )

    def status(self, word: str, training: Training) -> None:
        failed = {str(s): int(at) for s, at in zip(self.plan.seeds, training.failed, strict=True) if at >= 0}
        seconds = round(self.earlier + time.monotonic() - self.began, 2)
        counters = self.counters(training)
        # A truncated episode takes one tick for its last frame, so a lane's own steps can be fewer.
        lanes = training.lanes.agent_steps.tolist()
        self.folder.status(
            {
                "state": word,
                "reason": None,
                **counters,
                "lane_agent_steps": lanes,
                "not_finite_since": failed,
                "events": self.events,
                "peak_bytes": peak_in_bytes(),
                "forecast_bytes": self.forecast,
                "seconds": seconds,
            }
        )
        self.folder.speed({**counters, "seconds": seconds})

    def counters(self, training: Training) -> dict[str, Any]:
        """Steps in every unit; no column is called just 'step'."""
        env_steps = training.tick * self.plan.task.spec.repeat
        return {
            "agent_steps": training.tick,
            "env_steps": env_steps,
            "frames": env_steps * self.plan.protocol.action_repeat,
            "updates": training.updates,
        }

    def show(self, training: Training, row: dict[str, Any]) -> None:
        losses = {
            n.removeprefix("loss/"): np.array(row[n], float).tolist() for n in row if n.startswith("loss/")
        }
        scores = [float(np.mean(self.recent[s])) if self.recent[s] else None for s in self.plan.seeds]
        marked = zip(self.plan.seeds, training.failed, strict=True)
        notes = {seed: f"not finite since {at:,}" for seed, at in marked if at >= 0}
        self.console.update(training.tick, training.updates, scores, losses, notes)


def due(now: int, every: int) -> bool:
    return every > 0 and now % every == 0


def mean_of(metrics: list[Metrics]) -> dict[str, np.ndarray]:
    """Over the updates of one agent step."""
    told = jax.device_get(metrics)
    with np.errstate(all="ignore"):  # a seed may have diverged, which is found out elsewhere
        return {name: np.mean([each[name] for each in told], axis=0) for name in told[0]}


def listed(row: dict[str, Any]) -> dict[str, Any]:
    """Arrays as JSON has them."""
    return plain({name: np.asarray(value) for name, value in row.items()})
