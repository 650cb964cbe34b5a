"""Whole episodes without exploration, all seeds and many episodes of each in one batch."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from vcrl.core.types import Clock
from vcrl.envs.lanes import Finished, Lanes
from vcrl.training.plan import Plan

EVAL_SALT = 1  # evaluation games are never training games


class Trajectory(NamedTuple):
    """One evaluation episode as the learner would have seen it."""

    frame: np.ndarray  # T H W C, single frames: stacks are built for those that are looked at
    first: np.ndarray  # T, the frame starts an episode of the learner
    action: np.ndarray  # T
    reward: np.ndarray  # T, as the learner is given it
    terminal: np.ndarray  # T


class Played(NamedTuple):
    finished: Finished
    trajectory: Trajectory | None


def play(
    plan: Plan, act: Callable[..., Any], state: Any, wave: int, record: bool = False
) -> list[list[Played]]:
    """As many episodes of every seed as run side by side, the `wave`th of them; `act` is the lifted `play`."""
    count, lanes = len(plan.seeds), plan.eval_lanes
    episodes = np.tile(np.arange(wave * lanes, (wave + 1) * lanes), count)
    stack = plan.config.observation.stack
    each = [seed for seed in plan.seeds for _ in range(lanes)]
    field = Lanes(plan.task.make(count * lanes), each, stack, EVAL_SALT, episodes.tolist())
    done: dict[int, Finished] = {}
    ticks: list[tuple[np.ndarray, ...]] = []
    seeds, clock = np.array(plan.seeds), Clock.at(0, 0)
    limit = plan.protocol.horizon
    try:
        while len(done) < count * lanes:
            draw = np.stack([episodes, np.full_like(episodes, len(ticks))], axis=-1).astype(np.int32)
            obs = field.obs.reshape(count, lanes, *field.obs.shape[1:])
            action = np.asarray(act(state, obs, clock, seeds, draw.reshape(count, lanes, 2)))
            row, finished = field.step(action.reshape(count * lanes))
            ticks.append((row.frame, row.first, row.action, row.reward, row.terminal) if record else ())
            done |= {f.lane: f for f in finished if f.lane not in done}
            if limit is not None and len(ticks) >= limit:
                done |= {lane: field.game(lane) for lane in range(count * lanes) if lane not in done}
    finally:
        field.close()
    paths = [_trajectory(plan, ticks, done[lane]) if record else None for lane in range(count * lanes)]
    flat = [Played(done[lane], paths[lane]) for lane in range(count * lanes)]
    return [flat[i * lanes : (i + 1) * lanes] for i in range(count)]


def scores(plan: Plan, act: Callable[..., Any], state: Any, episodes: int) -> list[list[Finished]]:
    """The first `episodes` evaluation games of every seed."""
    waves = [play(plan, act, state, wave) for wave in range(-(-episodes // plan.eval_lanes))]
    return [[p.finished for wave in waves for p in wave[i]][:episodes] for i in range(len(plan.seeds))]


def learner_reward(plan: Plan, reward: np.ndarray) -> np.ndarray:
    return np.sign(reward) if plan.config.observation.reward == "sign" else reward


def _trajectory(plan: Plan, ticks: list[tuple[np.ndarray, ...]], game: Finished) -> Trajectory:
    parts = (np.stack([tick[i][game.lane] for tick in ticks[: game.length]]) for i in range(5))
    found = Trajectory(*parts)
    return found._replace(reward=learner_reward(plan, found.reward))
