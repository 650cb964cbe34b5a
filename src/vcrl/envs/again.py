"""Games played again from their addresses and actions: no agent, no network, the environment alone."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from vcrl.core.spec import Box, Discrete
from vcrl.envs.actions import action_type
from vcrl.envs.base import VecEnv

EVAL_SALT = 1  # evaluation games are never training games


class Again(NamedTuple):
    """How a game went when its actions were repeated."""

    score: float
    length: int  # actions that were taken before the game ended, or all there were
    ended: bool  # the game was over, or cut at the horizon, and not merely out of actions


def possible(space: Discrete | Box, actions: np.ndarray) -> bool:
    """Whether these are actions that somebody could choose in such an environment."""
    shape, kind = action_type(space)
    if actions.shape[1:] != shape or (actions.dtype == np.float32) != (kind is np.float32):
        return False
    if isinstance(space, Discrete):
        return bool(((actions >= 0) & (actions < space.n)).all())
    return not (np.abs(actions) > 1 + 1e-6).any()


def play_again(
    env: VecEnv,
    seeds: Sequence[np.uint64],
    actions: Sequence[np.ndarray],
    horizon: int | None,
    progress: Callable[[int], None] = lambda steps: None,
) -> list[Again]:
    """Every game from its seed by its own actions; a lane that is done takes the next game."""
    shape, kind = action_type(env.spec.actions)
    found: list[Again | None] = [None] * len(seeds)
    waiting = sorted(range(len(seeds)), key=lambda i: len(actions[i]))  # the longest first, from the end
    game = [-1] * env.lanes  # what each lane plays
    score, length = np.zeros(env.lanes), np.zeros(env.lanes, np.int64)
    while True:
        free = [lane for lane in range(env.lanes) if game[lane] < 0][: len(waiting)]
        if free:
            which, fresh = np.zeros(env.lanes, bool), np.zeros(env.lanes, np.uint64)
            for lane in free:
                game[lane], which[lane] = waiting.pop(), True
                fresh[lane] = seeds[game[lane]]
            score[free], length[free] = 0, 0
            env.reset(which, fresh)
        active = np.array(game) >= 0
        if not active.any():
            return [again for again in found if again is not None]
        taken = np.zeros((env.lanes, *shape), kind)
        for lane in np.flatnonzero(active):
            taken[lane] = actions[game[lane]][length[lane]]
        came = env.step(taken, active)
        score += np.where(active, came.reward, 0)
        length += active
        progress(int(active.sum()))
        for lane in np.flatnonzero(active):
            ended = bool(came.over[lane] or length[lane] == horizon)
            if ended or length[lane] == len(actions[game[lane]]):
                found[game[lane]] = Again(float(score[lane]), int(length[lane]), ended)
                game[lane] = -1
