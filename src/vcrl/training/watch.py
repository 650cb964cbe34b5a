"""Everything that looks at a training from outside: logs, evaluation, checkpoints, the console."""

import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np

from vcrl.envs.lanes import Finished
from vcrl.runs import checkpoint
from vcrl.runs.folder import RunFolder
from vcrl.training import evaluate
from vcrl.training.console import Console
from vcrl.training.diagnostics import lanes_for, q_error
from vcrl.training.engine import Engine, Snapshot, Training
from vcrl.training.plan import Plan

CHECKPOINT_SECONDS = 60.0
RECENT = 20  # training episodes behind the score shown while running


class Watch:
    """Nothing here changes what is learned."""

    def __init__(self, plan: Plan, engine: Engine, folder: RunFolder, console: Console):
        self.plan, self.engine, self.folder, self.console = plan, engine, folder, console
        self.earlier = float(folder.read_status().get("seconds", 0.0))
        self.saved = self.began = time.monotonic()
        self.ground: evaluate.Field | None = None  # where Q-errors are measured, kept from one to the next
        self.opened = ExitStack()
        self.writer = ThreadPoolExecutor(1, "checkpoint")
        self.saving: Future[None] = Future()  # the newest checkpoint, perhaps still on its way
        self.saving.set_result(None)
        self.events: list[dict[str, Any]] = list(folder.read_status().get("events", []))
        self.recent = {seed: deque[float](maxlen=RECENT) for seed in plan.seeds}

    def close(self) -> None:
        self.opened.close()
        self.writer.shutdown()

    def begin(self, training: Training) -> None:
        self.status("running", training)

    def after(self, training: Training, metrics: dict[str, Any] | None, finished: list[Finished]) -> None:
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
            row |= metrics
        if metrics is not None and due(now, plan.schedule.gradients):
            row |= self.engine.lifted.probe(
                training.state, training.replay, np.int32(now), training.clock, training.seeds
            )
        if metrics is not None and due(now, plan.schedule.q_error):
            row |= self.q_error(training)
        if row:
            row = {name: np.asarray(value).tolist() for name, value in row.items()}
            self.folder.metrics(self.counters(training) | row)
            self.folder.flush()  # others may be looking
        if metrics is not None and due(now, plan.schedule.log):
            self.show(training, row)
        if due(now, plan.schedule.evaluate) and now < plan.protocol.budget:
            self.evaluate(training)
        if time.monotonic() - self.saved > CHECKPOINT_SECONDS and self.saving.done():
            self.save(training)
            self.status("running", training)

    def stop(self, training: Training) -> None:
        self.save(training)
        self.saving.result()
        self.status("stopped", training)

    def finish(self, training: Training) -> None:
        """The last checkpoint, then the protocol's evaluation: cut off here, it is simply done again."""
        self.save(training, rows=False)  # nothing more will be sampled
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

    def q_error(self, training: Training) -> dict[str, np.ndarray]:
        lifted, steps = self.engine.lifted, self.engine.agent.sample.steps
        if self.ground is None:
            # By the rules of training: values are learned of episodes that end with a life.
            ground = evaluate.field(self.plan, lifted.play, lanes_for(self.plan), training=True)
            self.ground = self.opened.enter_context(ground)
        found = q_error(self.ground, lifted.values_along, training.trusted(), steps)
        for text in self.ground.news():
            self.note(training, text)
        return found

    def evaluate(self, training: Training) -> dict[str, float]:
        """Score every seed by the protocol; the games go to the log, their means come back."""
        episodes, state = self.plan.protocol.eval_episodes, training.trusted()
        found = evaluate.scores(
            self.plan,
            self.engine.lifted.play,
            state,
            episodes,
            self.console.evaluating,
            partial(self.note, training),
        )
        for game in (game for games in found for game in games):
            self.folder.evaluation(game.seed, training.tick, game.episode, game.score, game.length)
        return {str(games[0].seed): float(np.mean([game.score for game in games])) for games in found}

    def note(self, training: Training, text: str) -> None:
        """Something happened that did not change the result but that a reader of it should know."""
        self.events.append({"agent_steps": training.tick, "event": text})
        self.console.line(text)

    def save(self, training: Training, rows: bool = True) -> None:
        """Begin a checkpoint. The disk is written to while training goes on; `saving.result()` waits for it."""
        self.saving.result()
        self.guard(training)
        logs, taken = self.folder.positions(), training.snapshot(rows)
        self.saving = self.writer.submit(self.write, taken, logs, rows)
        self.saved = time.monotonic()

    def write(self, taken: Snapshot, logs: dict[str, int], rows: bool) -> None:
        extra = {"logs": logs, "counters": {"tick": taken.tick, "updates": taken.updates}}
        checkpoint.save(
            self.folder.checkpoint,
            taken.tick,
            taken.arrays(),
            extra,
            taken.rows() if rows else None,
            oldest=taken.tick - self.plan.capacity,
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
                "seconds": seconds,
            }
        )
        self.folder.speed({**counters, "seconds": seconds})

    def counters(self, training: Training) -> dict[str, Any]:
        """Steps in every unit; no column is called just 'step'."""
        return {
            "agent_steps": training.tick,
            "env_steps": training.tick,
            "frames": training.tick * self.plan.protocol.action_repeat,
            "updates": training.updates,
        }

    def show(self, training: Training, row: dict[str, Any]) -> None:
        losses = {name.removeprefix("loss/"): row[name] for name in row if name.startswith("loss/")}
        scores = [float(np.mean(self.recent[s])) if self.recent[s] else None for s in self.plan.seeds]
        marked = zip(self.plan.seeds, training.failed, strict=True)
        notes = {seed: f"not finite since {at:,}" for seed, at in marked if at >= 0}
        self.console.update(training.tick, training.updates, scores, losses, notes)


def due(now: int, every: int) -> bool:
    return every > 0 and now % every == 0
