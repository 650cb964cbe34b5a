"""A training in its middle, for timing: no game behind it, and nothing of it means anything."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from eager import SHAPES

from vcrl import replay as rp
from vcrl.core.config import change
from vcrl.core.protocol import Protocol
from vcrl.core.spec import Box, EnvSpec
from vcrl.envs.base import Step
from vcrl.envs.registry import Task
from vcrl.methods.library import resolve
from vcrl.training.engine import Engine, Training, engine_of
from vcrl.training.lift import no_row
from vcrl.training.plan import Plan, Schedule

# Those of the discrete agent, and walker-walk's.
CONTROL = {"control": (EnvSpec((100, 100, 3), Box(6), repeat=4), "dmc")}


def midway(
    method: str, shape: str, count: int, capacity: int, changes: Mapping[str, Any] | None = None
) -> tuple[Plan, Engine, Training]:
    """Everything as `train` has it, with a full replay."""
    spec, suite = (SHAPES | CONTROL)[shape]
    config = resolve(method, suite, actions=spec.actions)
    for path, value in {"replay.capacity": capacity, **(changes or {})}.items():
        config = change(config, path, value)
    task = Task("instant", suite or "atari", "answers at once", spec, lambda lanes, *_: Instant(spec, lanes))
    protocol = Protocol("benchmark", 100_000, 4, None, 1, 0.0)
    plan = Plan(method, task, tuple(range(count)), config, protocol, Schedule())
    engine = engine_of(plan)
    training = Training(plan, engine)
    # The empty one is let go of first: two do not fit on the device.
    empty = jax.eval_shape(lambda: training.replay)
    training.replay = None
    training.replay = filled(empty, spec)
    training.tick = training.rows = max(capacity, config.learn_start)
    return plan, engine, training


def learn(engine: Engine, training: Training) -> Any:
    """The updates of one agent step, to which no row is brought; what the last of them tells."""
    row = no_row(training.lanes.env.spec, len(training.seeds))
    return training.learn(engine.agent.updates_per_step, row, training.now)[-1]


def arguments(training: Training) -> tuple[Any, ...]:
    """Those of `Lifted.learn`."""
    spec = training.lanes.env.spec
    return training.arrays, training.replay, no_row(spec, len(training.seeds)), training.now, training.seeds


def filled(empty: rp.Replay, spec: EnvSpec, different: int = 300) -> rp.Replay:
    """A full replay of every seed, in episodes of 50 steps; a few frames, repeated all over its memory."""
    count, capacity = empty.reward.shape
    rng, number = np.random.default_rng(0), jnp.arange(capacity)
    frames = rng.integers(0, 256, (count, different, *spec.frame), dtype=np.uint8)

    if isinstance(spec.actions, Box):
        actions = jnp.sin(jnp.arange(count * capacity * spec.actions.size)).reshape(empty.action.shape)
    else:
        actions = jnp.broadcast_to(number % spec.actions.n, (count, capacity)).astype(jnp.int32)

    @jax.jit
    def fill(frames: Any) -> rp.Replay:
        every = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), empty)
        return every._replace(
            frame=jnp.take(frames, number % different, axis=1, mode="clip"),
            action=actions,
            reward=jnp.broadcast_to(number % 3 - 1.0, (count, capacity)),
            terminal=jnp.broadcast_to(number % 50 == 49, (count, capacity)),
            first=jnp.broadcast_to(number % 50 == 0, (count, capacity)),
            priority=jnp.ones((count, capacity)),
        )

    return fill(frames)


class Instant:
    """An environment that has its answers ready; its only episode never ends."""

    def __init__(self, spec: EnvSpec, lanes: int, different: int = 16):
        self.spec, self.lanes, self.at = spec, lanes, 0
        rng, no = np.random.default_rng(1), np.zeros(lanes, bool)
        frames = rng.integers(0, 256, (different, lanes, *spec.frame), dtype=np.uint8)
        self.steps = [Step(frame, np.ones(lanes, np.float32), no, no, no) for frame in frames]

    def reset(self, which: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        return self.steps[0].frame

    def step(self, actions: np.ndarray, active: np.ndarray) -> Step:
        self.at += 1
        return self.steps[self.at % len(self.steps)]

    def save(self) -> None:
        return None

    def load(self, arrays: dict[str, np.ndarray]) -> None: ...

    def close(self) -> None: ...
