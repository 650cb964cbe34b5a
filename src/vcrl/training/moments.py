"""Q-errors of several moments of a training, measured together."""

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from vcrl.training.diagnostics import error_of, horizon, lanes_for, trajectories
from vcrl.training.engine import Engine
from vcrl.training.evaluate import Field, field
from vcrl.training.plan import Plan

MOST = 10  # moments that wait
RECORDED = (
    700e6  # bytes of frames that their games may record, at most: fifty games of Atari, 1,917 steps each
)


def together(plan: Plan, gpu: bool | None = None) -> int:
    """How many moments wait for each other.

    Games of one moment keep neither a GPU nor many emulators busy: on an H200 a step of ten games takes 2.5 ms or so,
    most of it spent asking and waiting. Where a CPU chooses, or simulators render, nothing is gained by waiting.
    """
    gpu = jax.default_backend() == "gpu" if gpu is None else gpu
    if not gpu or plan.task.suite != "atari":
        return 1
    longest = plan.schedule.q_error_positions + horizon(plan.config.gamma)
    game = min(longest, plan.protocol.horizon or longest) * math.prod(plan.task.spec.frame)
    return max(1, min(MOST, int(RECORDED / game) // (len(plan.seeds) * lanes_for(plan))))


class Moments:
    """The nets of moments that wait, on the device, and the games that are played with them.

    A moment's games are those that it would have alone, and as many lanes are shown to the device however many moments
    wait: what is measured does not depend on when.
    """

    def __init__(self, plan: Plan, engine: Engine, act: Callable[..., Any]):
        self.plan, self.engine, self.act = plan, engine, act
        self.most, self.count = together(plan), 0
        self.nets: Any = None  # of all seeds, moment after moment
        self.ground: Field | None = None  # kept from one measurement to the next
        self.opened = ExitStack()

    def close(self) -> None:
        self.opened.close()
        self.nets = self.ground = None  # memory of the device, which need not wait for a collector

    @property
    def full(self) -> bool:
        return self.count == self.most

    def add(self, state: Any) -> None:
        lifted = self.engine.lifted
        if self.nets is None:
            self.nets = lifted.room(state, self.most)
        self.nets = lifted.put(self.nets, state, np.int32(self.count * len(self.plan.seeds)))
        self.count += 1

    def measure(self) -> list[dict[str, np.ndarray]]:
        """The Q-errors of every moment that waits, which is then forgotten; they still wait if this is cut off."""
        if not self.count:
            return []
        plan, lifted, steps = self.plan, self.engine.lifted, self.engine.agent.steps
        if self.ground is None:
            # By the rules of training: values are learned of episodes that end with a life.
            everyone = replace(plan, seeds=plan.seeds * self.most)
            ground = field(everyone, self.act, lanes_for(plan), training=True)
            self.ground = self.opened.enter_context(ground)
        seeds, found = len(plan.seeds), list[dict[str, np.ndarray]]()
        played = trajectories(self.ground, self.nets, steps, self.count * seeds)
        for at in range(0, len(played), seeds):
            state = lifted.take(self.nets, np.int32(at), seeds)
            found.append(error_of(plan, lifted, state, played[at : at + seeds], steps))
        self.count = 0
        return found

    def news(self) -> list[str]:
        return self.ground.news() if self.ground is not None else []
