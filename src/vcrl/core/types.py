"""Shared array records and the meaning of the shape letters.

B batch, T time in a segment, K imagined steps, A actions, N atoms, M sampled actions, E what one value consists of
(atoms, or the critics), D state width, L lanes on the host, S seeds (only in `training.lift`). After `replay.sample`
time is the leading axis.
"""

from typing import Any, NamedTuple

import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int, UInt8

Metrics = dict[str, Array]


class Clock(NamedTuple):
    """Counters that every seed shares. Never batched: a `cond` on a batched counter would run both branches."""

    agent_steps: Int[Array, ""]
    updates: Int[Array, ""]

    @staticmethod
    def at(agent_steps: int, updates: int) -> "Clock":
        """From counts on the host, always int32: another type would compile everything again."""
        counts: Any = (np.int32(agent_steps), np.int32(updates))
        return Clock(*counts)


def now(agent_steps: int, updates: int, rows: int, brought: bool = False) -> np.ndarray:
    """A moment of a training as one array: of each array that travels to a GPU the host has some work.

    What a clock says, how many rows there are, and whether the newest of them comes with the call or is in the replay
    already; int32, since another type would compile everything again.
    """
    return np.array([agent_steps, updates, rows, brought], np.int32)


class Row(NamedTuple):
    """One agent step as the replay keeps it: the frame seen, the action taken on it, and what came back."""

    frame: Any  # UInt8[H, W, C], the newest frame only
    action: Any
    reward: Any
    terminal: Any  # nothing follows: do not bootstrap
    first: Any  # this frame starts an episode
    pad: Any  # holds only the final frame of a truncated episode; its action and reward mean nothing


class Segment(NamedTuple):
    """A batch of windows out of the replay, ready for one update. Index 0 of the leading axis is the start t."""

    obs: UInt8[Array, "K+1 B H W C"]  # stacks of t..t+K; past the end of an episode the last one is repeated
    action: Array  # K+1 B ..., taken on each of them
    reward: Float[Array, "K+1 B"]
    terminal: Bool[Array, "K+1 B"]
    alive: Float[Array, "K+1 B"]  # 1 while t+k is in the episode of t and an action was taken there
    returns: Float[Array, "K' B"]  # n-step return from t+k, cut at the end of the episode
    discount: Float[Array, "K' B"]  # gamma^m of the bootstrap, 0 if the episode terminated on the way
    boot_obs: UInt8[Array, "K' B H W C"]  # the stack m steps after t+k
    weight: Float[Array, " B"]  # importance weight
    slot: Int[Array, " B"]  # slot of t in the replay
