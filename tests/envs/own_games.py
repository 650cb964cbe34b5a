"""Environments as users write them, good and bad, for the tests of the Gymnasium adapter."""

import time

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class Walk(gymnasium.Env):
    """A light walks along a noisy strip; it is over at the right end, or when the time limit cuts it.

    `fault` is what goes wrong at step `at` of the games with the numbers `games` (all of them if None).
    """

    def __init__(
        self,
        shape=(16, 20, 3),
        dtype=np.uint8,
        actions=None,
        really=None,
        fault=None,
        at=3,
        games=None,
        high=255,
    ):
        self.observation_space = Box(0, high, shape, dtype)
        self.action_space = Discrete(3, start=5) if actions is None else actions
        self.really, self.fault, self.when, self.games = really or (shape, dtype), fault, at, games
        self.high, self.game = high, -1

    def _look(self):
        shape, dtype = self.really
        frame = self.np_random.integers(0, 100, shape).astype(np.float64)
        first = len(shape) == 3 and shape[0] in (1, 3)
        frame[(..., self.at) if len(shape) == 2 or first else (slice(None), self.at)] = 255
        return (frame * (self.high / 255)).astype(dtype)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.game += 1
        if self.fault == "reset":
            raise RuntimeError("no way to begin")
        self.at, self.steps = int(self.np_random.integers(0, 12)), 0
        return self._look(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.steps += 1
        bad = self.steps == self.when and (self.games is None or self.game in self.games)
        if bad and self.fault == "raise":
            raise ZeroDivisionError("the wheel came off\nand rolled away")
        if bad and self.fault == "hang":
            time.sleep(60)
        self.at = int(np.clip(self.at + action - 6, 0, 15))
        came = self._look(), self.at / 4, self.at == 15, False, {}
        wrong = {
            "nan": (came[0], float("nan"), *came[2:]),
            "inf": (came[0], np.float64("-inf"), *came[2:]),
            "words": (came[0], "much", *came[2:]),
            "array": (came[0], np.zeros(2), *came[2:]),
            "shape": (came[0][:-1], *came[1:]),
            "dtype": (came[0].astype(np.float32), *came[1:]),
            "old": (*came[:3], {}),
            "flag": (*came[:2], np.zeros(3, bool), False, {}),
        }
        return wrong.get(self.fault, came) if bad else came


class Slide(gymnasium.Env):
    """Box actions: a light goes where it is pushed, and never ends by itself."""

    observation_space = Box(0, 255, (24, 24, 3), np.uint8)
    action_space = Box(np.array([-2, 0], np.float32), np.array([2, 10], np.float32))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(4, 20, 2)
        return self._look(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        push = np.array([action[0], (action[1] - 5) / 5])
        self.place = np.clip(self.place + push, 0, 21)
        return self._look(), -float(np.abs(self.place - 12).sum()) / 24, False, False, {}

    def _look(self):
        frame = np.zeros((24, 24, 3), np.uint8)
        row, column = self.place.astype(int)
        frame[row : row + 3, column : column + 3] = (200, 120, 255)
        return frame


def register(name, limit=None, kind=Walk, **kwargs):
    gymnasium.registry.pop(f"vcrltest/{name}-v0", None)  # registering twice warns
    gymnasium.register(f"vcrltest/{name}-v0", entry_point=kind, max_episode_steps=limit, kwargs=kwargs)
    return f"vcrltest/{name}-v0"
