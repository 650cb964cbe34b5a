"""What a training can be asked about itself: how wrong the values of imagined states are."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from vcrl.training.evaluate import Field, Trajectory, play
from vcrl.training.lift import Lifted
from vcrl.training.plan import Plan

FAR = 1e-4  # a discount at which what is still to come need not be played
FOR_EVER = 10**9  # agent steps


class Positions(NamedTuple):
    """The first P positions of one seed's evaluation trajectories, with what followed each of them."""

    obs: np.ndarray  # P H W C
    action: np.ndarray  # K+1 P ..., taken at t+k
    returns: np.ndarray  # K+1 P, G_{t+k}
    inside: np.ndarray  # K+1 P, whether t+k is still in the trajectory


def q_error(ground: Field, lifted: Lifted, state: Any, steps: int) -> Any:
    """E = 1/(T K) sum_t sum_k |Q(z^_{t+k}, a_{t+k}) - G_{t+k}| 1[t+k <= T] for every seed.

    The normaliser is T K, also where steps run past the end, as the paper has it. Beside it the error of the real
    state (k = 0), and the imagined one with the batch norm's batch statistics, which is how it was trained. Where time
    ran out, or the rest is too far away to count, what G lacks is the agent's own value of the state it came to.
    """
    plan = ground.plan
    limit, gamma, look = plan.schedule.q_error_positions, plan.config.gamma, plan.config.observation
    played = trajectories(ground, state, limit, max(steps, horizon(gamma)))
    rest = left_over(plan, lifted, state, played)
    found = [
        positions(mine, steps, limit, gamma, look.stack, look.fill, more)
        for mine, more in zip(played, rest, strict=True)
    ]
    obs, action, returns, inside = (np.stack([getattr(p, name) for p in found]) for name in Positions._fields)

    def error(values: Any) -> np.ndarray:
        """Of every seed and k, summed over positions."""
        k = values.shape[1]
        return (np.abs(np.asarray(values) - returns[:, :k]) * inside[:, :k]).sum(axis=-1)

    running, batch = lifted.values_along(state, obs, action)
    wrong = error(running)
    out = {"q_error/real": wrong[:, 0] / limit}
    if wrong.shape[1] > 1:
        out["q_error/imagined"] = wrong[:, 1:].sum(axis=1) / (limit * steps)
        if batch is not None:
            out["q_error/imagined_batch_norm"] = error(batch)[:, 1:].sum(axis=1) / (limit * steps)
    return out


def left_over(plan: Plan, lifted: Lifted, state: Any, played: list[list[Trajectory]]) -> list[list[float]]:
    """For every seed and game, what the agent thinks that the state behind its end is worth; 0 behind a terminal."""
    rest = [[0.0] * len(mine) for mine in played]
    cut = [[i for i, game in enumerate(mine) if not game.terminal[-1]] for mine in played]
    most = max(map(len, cut))
    if most == 0:
        return rest
    look = plan.config.observation
    shape = (*plan.task.spec.frame[:2], plan.task.spec.frame[2] * look.stack)
    # As many for every seed, and a number that seldom changes, since each is compiled anew.
    obs = np.zeros((len(played), 1 << (most - 1).bit_length(), *shape), np.uint8)
    for seed, (mine, which) in enumerate(zip(played, cut, strict=True)):
        for at, game in enumerate(which):
            frame = np.concatenate([mine[game].frame, mine[game].ending[None]])[-look.stack :]
            first = np.append(mine[game].first, False)[-look.stack :]
            obs[seed, at] = stacked(frame, first, look.stack, look.fill)[-1]
    worth = np.asarray(lifted.worth(state, obs))
    for seed, which in enumerate(cut):
        for at, game in enumerate(which):
            rest[seed][game] = float(worth[seed, at])
    return rest


def lanes_for(plan: Plan) -> int:
    """Lanes a seed that cover the positions in one round if games are as long as they can be; 1 where they are long."""
    return min(64, -(-plan.schedule.q_error_positions // (plan.task.spec.horizon or 500)))


def horizon(gamma: float) -> int:
    """Steps behind which a reward counts for less than `FAR` of itself, so that a return is known without them.

    A game of Pong may last for 27,000 steps, of which the first 1,000 are looked at: with the agent's own value in the
    place of what comes another 917 steps later, the mean moves by a hundred-thousandth of what that value is wrong by.
    """
    if gamma <= 0:
        return 0
    return math.ceil(math.log(FAR) / math.log(gamma)) if gamma < 1 else FOR_EVER


def trajectories(ground: Field, state: Any, limit: int, behind: int = FOR_EVER) -> list[list[Trajectory]]:
    """Evaluation episodes of every seed, in order, until each seed has at least `limit` positions.

    Whole ones, but for what lies more than `behind` steps behind the last position that is wanted.
    """
    kept: list[list[Trajectory]] = [[] for _ in ground.plan.seeds]
    lanes, start = ground.env.lanes // len(kept), 0
    while (missing := limit - min(sum(len(t.action) for t in mine) for mine in kept)) > 0:
        games = play(ground, state, range(start, start + lanes), record=True, most=missing + behind)
        for mine, played in zip(kept, games, strict=True):
            mine.extend(game.trajectory for game in played if game.trajectory is not None)
        start += lanes
    return kept


def positions(
    found: list[Trajectory],
    steps: int,
    limit: int,
    gamma: float,
    stack: int,
    fill: str = "zeros",
    rest: Sequence[float] | None = None,
) -> Positions:
    """Line up the trajectories of one seed; an episode of the learner ends at each terminal (a lost life too).

    `rest` is what is still to come behind the end of each.
    """
    lives = [_lives(trajectory) for trajectory in found]
    parts = [part for mine in lives for part in mine]
    behind = [
        more if life is mine[-1] else 0.0
        for mine, more in zip(lives, rest or [0.0] * len(lives), strict=True)
        for life in mine
    ]
    # Positions left in each life, this one included.
    length = np.concatenate([np.arange(len(p.action), 0, -1) for p in parts])
    returns = np.concatenate([discounted(p.reward, gamma, v) for p, v in zip(parts, behind, strict=True)])
    action = np.concatenate([p.action for p in parts])
    ahead = np.arange(steps + 1)[:, None]
    at = np.minimum(np.arange(limit) + ahead, len(action) - 1)
    frame, first = (np.concatenate([getattr(p, name) for p in parts])[:limit] for name in ("frame", "first"))
    obs = stacked(frame, first, stack, fill)
    return Positions(obs, action[at], returns[at], ahead < length[None, :limit])


def stacked(frame: np.ndarray, first: np.ndarray, stack: int, fill: str = "zeros") -> np.ndarray:
    """What the agent saw: each frame with those before it, oldest first; before an episode zeros, or its first."""
    at = np.arange(len(first))
    begin = np.maximum.accumulate(np.where(first, at, 0))
    shown: list[np.ndarray] = []
    for back in range(stack - 1, -1, -1):
        before = frame[np.maximum(at - back, begin)]
        shown.append(before if fill == "first" else before * (at - back >= begin)[:, None, None, None])
    return np.concatenate(shown, axis=-1)


def discounted(reward: np.ndarray, gamma: float, rest: float = 0.0) -> np.ndarray:
    """G_t = sum_i gamma^i r_{t+i} to the end, and what is still to come behind it."""
    out = np.append(np.zeros(len(reward)), rest)
    for t in range(len(reward) - 1, -1, -1):
        out[t] = reward[t] + gamma * out[t + 1]
    return out[:-1].astype(np.float32)


def _lives(trajectory: Trajectory) -> list[Trajectory]:
    ends = [*(np.flatnonzero(trajectory.terminal) + 1), len(trajectory.action)]
    starts = [0, *ends[:-1]]
    *along, ending = trajectory
    return [
        Trajectory(*(x[a:b] for x in along), ending=ending)
        for a, b in zip(starts, ends, strict=True)
        if b > a
    ]
