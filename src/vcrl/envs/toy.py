"""Four small pixel games that need nothing but NumPy, with known random and optimal scores.

A game is decided by its uint64 seed and the actions alone. Its state is a handful of numbers per lane; all
randomness is a hash of the seed and the time, so that lanes share nothing and saving is copying.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, final

import numpy as np

from vcrl.core.spec import Box, Discrete, EnvSpec
from vcrl.envs import chance, toy_draw
from vcrl.envs.base import Arrays, Step
from vcrl.envs.toy_draw import CELLS, PIXELS

FALL = CELLS - 1  # steps from the top row to the bottom row
HEIGHTS = CELLS - 1  # the balloon's rows; the one below shows the time left
REACH_STEPS = 20
REACH_SPEED = 0.15
REACH_SIGHT = 0.5  # distance from which the reward of `reach` is zero

# The discrete games look alike from outside, so that one compiled program serves all of them.
_DISCRETE = EnvSpec((PIXELS, PIXELS, 1), Discrete(3), horizon=FALL)
_CONTINUOUS = EnvSpec((PIXELS, PIXELS, 1), Box(2), horizon=REACH_STEPS, fixed=True)


class ToyGame(ABC):
    """What the games share: a dict of arrays over lanes, written only where a lane takes part."""

    spec: EnvSpec
    terminates: ClassVar[bool] = True  # or is it cut off at the horizon?
    random_score: ClassVar[float]  # mean score of uniformly random actions
    optimal_score: ClassVar[float]

    def __init__(self, lanes: int):
        self.lanes = lanes
        seed = np.zeros(lanes, np.uint64)
        self.state: Arrays = {"seed": seed, "time": np.zeros(lanes, np.int32), **self._start(seed)}

    @abstractmethod
    def _start(self, seed: np.ndarray) -> Arrays:
        """Where things are when a game begins."""

    @abstractmethod
    def _move(self, actions: np.ndarray) -> Arrays:
        """Where things are after an action."""

    @abstractmethod
    def _reward(self, last: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _draw(self) -> np.ndarray: ...

    def reset(self, which: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        """Start a new game in the lanes where `which`."""
        seeds = np.asarray(seeds, np.uint64)
        self._write(which, {"seed": seeds, "time": np.zeros(self.lanes, np.int32), **self._start(seeds)})
        return self._draw()

    def step(self, actions: np.ndarray, active: np.ndarray) -> Step:
        """Act in the lanes where `active`."""
        self._write(active, {"time": self.state["time"] + 1, **self._move(np.asarray(actions))})
        last = self.state["time"] >= self.spec.horizon
        reward = self._reward(last).astype(np.float32)
        return Step(self._draw(), reward, last & self.terminates, last, last.copy())

    def save(self) -> Arrays | None:
        """The whole state, a few numbers per lane."""
        return {name: value.copy() for name, value in self.state.items()}

    def load(self, arrays: Arrays) -> None:
        """Continue from what `save` gave."""
        for name, value in self.state.items():
            np.copyto(value, arrays[name])

    def close(self) -> None:
        """Nothing is held, so nothing is given back."""
        return

    def _write(self, where: np.ndarray, values: Arrays) -> None:
        for name, value in values.items():
            kept = self.state[name]
            np.copyto(kept, value, where=where.reshape(-1, *[1] * (kept.ndim - 1)))


def _start(seed: np.ndarray, n: int, channel: int) -> np.ndarray:
    return chance.below(n, seed, np.zeros_like(seed), channel)


class _Falling(ToyGame):
    """The rules of catch: left, stay or right until the ball is down; +1 if the paddle is there, else -1."""

    spec = _DISCRETE
    # The paddle's random walk is symmetric (at a wall it stays put), so it remains uniform over the 8 columns
    # and meets the ball with probability 1/8. Any column can be reached in 7 moves.
    random_score = 1 / CELLS - (1 - 1 / CELLS)
    optimal_score = 1.0

    def _start(self, seed: np.ndarray) -> Arrays:
        return {"ball": _start(seed, CELLS, 0), "paddle": _start(seed, CELLS, 1)}

    def _move(self, actions: np.ndarray) -> Arrays:
        return {"paddle": np.clip(self.state["paddle"] + actions - 1, 0, CELLS - 1)}

    def _reward(self, last: np.ndarray) -> np.ndarray:
        return last * np.where(self.state["paddle"] == self.state["ball"], 1, -1)

    def _ball_row(self) -> np.ndarray:
        return np.minimum(self.state["time"], FALL)


@final
class Catch(_Falling):
    """A ball falls one cell a step; be under it."""

    def _draw(self) -> np.ndarray:
        board = toy_draw.cells(self.lanes)
        toy_draw.put(board, CELLS - 1, self.state["paddle"], 160)
        toy_draw.put(board, self._ball_row(), self.state["ball"], 255)
        return toy_draw.enlarge(board)


@final
class Snow(_Falling):
    """Catch in falling snow: every frame a fresh texture, and two sprites that do not matter."""

    def _draw(self) -> np.ndarray:
        board = toy_draw.cells(self.lanes)
        toy_draw.put(board, CELLS - 1, self.state["paddle"], 200)
        toy_draw.put(board, self._ball_row(), self.state["ball"], 255)
        # Ball and paddle are brighter than anything behind them, so the larger value is always right.
        return np.maximum(
            toy_draw.enlarge(board), toy_draw.background(self.state["seed"], self.state["time"])
        )


@final
class Balloon(ToyGame):
    """Sink, hold or rise to the marked height, while at every step a gust blows the balloon to any column.

    The next picture cannot be predicted, but its value can: that depends on height, mark and time only.
    """

    spec = _DISCRETE
    # The height's walk is symmetric, as the paddle's is; any of the 7 heights can be reached in 7 moves.
    random_score = 1 / HEIGHTS - (1 - 1 / HEIGHTS)
    optimal_score = 1.0

    def _start(self, seed: np.ndarray) -> Arrays:
        return {"height": _start(seed, HEIGHTS, 0), "goal": _start(seed, HEIGHTS, 1)}

    def _move(self, actions: np.ndarray) -> Arrays:
        return {"height": np.clip(self.state["height"] + actions - 1, 0, HEIGHTS - 1)}

    def _reward(self, last: np.ndarray) -> np.ndarray:
        return last * np.where(self.state["height"] == self.state["goal"], 1, -1)

    def gust(self) -> np.ndarray:
        """The column the balloon is in now; never the outermost, which is the wall with the mark."""
        return chance.below(CELLS - 1, self.state["seed"], self.state["time"], 2)

    def _draw(self) -> np.ndarray:
        board = toy_draw.cells(self.lanes)
        board[:, -1, :-1] = 90 * (np.arange(CELLS - 1) < FALL - self.state["time"][:, None])
        toy_draw.put(board, HEIGHTS - 1 - self.state["goal"], CELLS - 1, 160)
        toy_draw.put(board, HEIGHTS - 1 - self.state["height"], self.gust(), 255)
        return toy_draw.enlarge(board)


@final
class Reach(ToyGame):
    """Push a point toward a goal in the unit square; the nearer, the more reward at every step."""

    spec = _CONTINUOUS
    terminates = False
    # Random: the two axes are independent, so the mean reward follows from the distribution of distances on
    # one, carried from step to step on a grid of 1/1000. Four million simulated games give 0.1753 +- 0.0001.
    random_score = 0.17531
    # Optimal: full speed along each axis until it is there leaves the least distance at every step; the mean
    # reward is an integral over the two starting distances, on a grid of 1/4000. `tests/envs` repeats both.
    optimal_score = 0.93444

    def _start(self, seed: np.ndarray) -> Arrays:
        time = np.zeros_like(seed)
        place = [
            np.stack([chance.unit(seed, time, c), chance.unit(seed, time, c + 1)], axis=1) for c in (0, 2)
        ]
        return {"point": place[0], "goal": place[1]}

    def _move(self, actions: np.ndarray) -> Arrays:
        push = np.clip(actions.astype(np.float64), -1, 1)
        return {"point": np.clip(self.state["point"] + REACH_SPEED * push, 0, 1)}

    def _reward(self, last: np.ndarray) -> np.ndarray:
        across = self.state["goal"] - self.state["point"]
        distance = np.sqrt(across[:, 0] ** 2 + across[:, 1] ** 2)
        return np.maximum(0, 1 - distance / REACH_SIGHT) / REACH_STEPS

    def _draw(self) -> np.ndarray:
        # The goal is the wider one: its rim stays visible when the point covers it.
        return np.maximum(
            toy_draw.dot(self.state["goal"], 2.5, 120), toy_draw.dot(self.state["point"], 1.5, 255)
        )
