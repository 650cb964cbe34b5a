"""Gymnasium environments, good and bad; importable because of where drills put this folder."""

import math
import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class Walk(gymnasium.Env):
    """A light walks along a strip; it is over at the right end."""

    observation_space = Box(0, 255, (16, 16, 3), np.uint8)
    action_space = Discrete(3)
    steps = at = 0

    def _look(self) -> np.ndarray:
        frame = self.np_random.integers(0, 100, (16, 16, 3)).astype(np.uint8)
        frame[:, self.at] = 255
        return frame

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.at, self.steps = int(self.np_random.integers(0, 8)), 0
        return self._look(), {}

    def step(self, action: int) -> Any:
        self.steps += 1
        self.at = int(np.clip(self.at + action - 1, 0, 15))
        frame, reward, over = self._look(), self.at / 15, self.at == 15
        return self.fail(frame, reward, over) if due() else (frame, reward, over, False, {})

    def fail(self, frame: np.ndarray, reward: float, over: bool) -> Any:
        return frame, reward, over, False, {}


def due() -> bool:
    """Whether something is to go wrong: as often as the file `FAULTS` names has lines, at its hundredth step first."""
    left = os.environ.get("FAULTS")
    if left is None:
        return False
    lines = Path(left).read_text().splitlines()
    if not lines:
        return False
    Path(left).write_text("\n".join([*([str(int(lines[0]) - 1)] if int(lines[0]) > 0 else []), *lines[1:]]))
    return int(lines[0]) == 0


class Raises(Walk):
    def fail(self, frame: np.ndarray, reward: float, over: bool) -> Any:
        raise ZeroDivisionError("the wheel came off")


class Hangs(Walk):
    def fail(self, frame: np.ndarray, reward: float, over: bool) -> Any:
        time.sleep(1000)


class Misshapen(Walk):
    def fail(self, frame: np.ndarray, reward: float, over: bool) -> Any:
        return frame[:7], reward, over, False, {}


class NoReward(Walk):
    def fail(self, frame: np.ndarray, reward: float, over: bool) -> Any:
        return frame, math.nan, over, False, {}


class Endless(Walk):
    """Never over, whatever is done."""

    def step(self, action: int) -> Any:
        frame, reward, _, truncated, info = super().step(action)
        return frame, reward, False, truncated, info


for kind in (Walk, Raises, Hangs, Misshapen, NoReward):
    gymnasium.register(f"{kind.__name__}-v0", entry_point=kind, max_episode_steps=40)
gymnasium.register("Endless-v0", entry_point=Endless)
