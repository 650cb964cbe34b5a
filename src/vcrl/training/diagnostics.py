"""What a training can be asked about itself: how wrong the values of imagined states are."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vcrl.training.evaluate import Field, Trajectory, play
from vcrl.training.lift import Lifted
from vcrl.training.plan import Plan

FAR = 1e-4  # a discount at which what is still to come need not be played
FOR_EVER = 10**9  # agent steps


class Positions(NamedTuple):
    """The first P positions of one seed's evaluation trajectories, with what followed each of them."""

    frame: np.ndarray  # P H W C, the newest of what was seen there
    first: np.ndarray  # P, whether it starts an episode of the learner
    action: np.ndarray  # K+1 P ..., taken at t+k
    returns: np.ndarray  # K+1 P, G_{t+k}
    inside: np.ndarray  # K+1 P, whether t+k is still in the trajectory


def error_of(plan: Plan, lifted: Lifted, state: Any, played: list[list[Trajectory]], steps: int) -> Any:
    """E = 1/(T K) sum_t sum_k |Q(z^_{t+k}, a_{t+k}) - G_{t+k}| 1[t+k <= T] for every seed.

    The normaliser is T K, also where steps run past the end, as the paper has it. Beside it the error of the real
    state (k = 0), and the imagined one with the batch norm's batch statistics, which is how it was trained. Where time
    ran out, or the rest is too far away to count, what G lacks is the agent's own value of the state it came to.
    """
    limit, gamma, look = plan.schedule.q_error_positions, plan.config.gamma, plan.config.observation
    rest = left_over(plan, lifted, state, played)
    found = [positions(mine, steps, limit, gamma, more) for mine, more in zip(played, rest, strict=True)]
    frame, first, action, returns, inside = (
        np.stack([getattr(p, name) for p in found]) for name in Positions._fields
    )

    def error(values: Any) -> np.ndarray:
        """Of every seed and k, summed over positions."""
        k = values.shape[1]
        return (np.abs(np.asarray(values) - returns[:, :k]) * inside[:, :k]).sum(axis=-1)

    running, batch = lifted.values_along(state, stacked(frame, first, look.stack, look.fill), action)
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
    # As many for every seed, and a number that seldom changes, since each is compiled anew.
    shape = (len(played), 1 << (most - 1).bit_length(), look.stack)
    frame, first = np.zeros((*shape, *plan.task.spec.frame), np.uint8), np.zeros(shape, bool)
    for seed, (mine, which) in enumerate(zip(played, cut, strict=True)):
        for at, game in enumerate(which):
            shown = np.concatenate([mine[game].frame[-look.stack :], mine[game].ending[None]])[-look.stack :]
            begins = np.append(mine[game].first, False)[-look.stack :]
            frame[seed, at, -len(shown) :], first[seed, at, -len(shown) :] = shown, begins
    obs = stacked(frame, first, look.stack, look.fill)[:, :, -1]
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


def trajectories(ground: Field, state: Any, steps: int, count: int) -> list[list[Trajectory]]:
    """Evaluation episodes of the first `count` seeds, in order, until each has as many positions as are wanted.

    Whole ones, but for what lies so far behind the last position that is wanted that it does not count. How long a seed
    plays does not depend on the others.
    """
    plan = ground.plan
    limit, behind = plan.schedule.q_error_positions, max(steps, horizon(plan.config.gamma))
    kept: list[list[Trajectory]] = [[] for _ in plan.seeds[:count]]
    lanes, start = ground.env.lanes // len(plan.seeds), 0

    def missing() -> np.ndarray:
        got = np.array([sum(len(t.action) for t in mine) for mine in kept])
        return np.append(limit - got, np.zeros(len(plan.seeds) - len(kept), int))

    while (lacks := missing()).max() > 0:
        games = play(
            ground,
            state,
            range(start, start + lanes),
            record=True,
            most=lacks + behind,
            who=lacks > 0,
        )
        for mine, played in zip(kept, games, strict=False):
            mine.extend(game.trajectory for game in played if game.trajectory is not None)
        start += lanes
    return kept


def positions(
    found: list[Trajectory],
    steps: int,
    limit: int,
    gamma: float,
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
    return Positions(frame, first, action[at], returns[at], ahead < length[None, :limit])


@partial(jax.jit, static_argnums=(2, 3))
def stacked(frame: Any, first: Any, stack: int, fill: str = "zeros") -> jax.Array:
    """What the agent saw: each frame with those before it, oldest first; before an episode zeros, or its first.

    On the device, to which every frame then travels once. `frame` is any number of P H W C, `first` of P.
    """
    *many, count = first.shape
    at = jnp.arange(count)
    begin = jax.lax.cummax(jnp.where(first, at, 0), axis=len(many))[..., None]
    wanted = at[:, None] - jnp.arange(stack - 1, -1, -1)
    place = jnp.maximum(wanted, begin).reshape(*many, count * stack, 1, 1, 1)
    shown = jnp.take_along_axis(frame, place, axis=len(many)).reshape(*many, count, stack, *frame.shape[-3:])
    if fill == "zeros":
        shown = jnp.where((wanted >= begin)[..., None, None, None], shown, 0)
    return jnp.moveaxis(shown, -4, -2).reshape(*frame.shape[:-1], -1)


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
