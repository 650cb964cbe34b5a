"""Games that misbehave in the process they run in; importable there because of where the tests put it."""

import os
import time
from pathlib import Path

import numpy as np

from vcrl.core.errors import UserError
from vcrl.envs.base import Step
from vcrl.envs.toy import Balloon


class Broken(Balloon):
    def reset(self, which: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        raise UserError("this game cannot be reset")


class Hanging(Balloon):
    """Stands still at its third step as often as a file beside it has lines left."""

    def reset(self, which: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        self.count = 0
        return super().reset(which, seeds)

    def step(self, actions: np.ndarray, active: np.ndarray) -> Step:
        self.count += 1
        left = Path(os.environ["HANGS"])
        if self.count == 3 and (lines := left.read_text().splitlines()):
            left.write_text("\n".join(lines[1:]))
            time.sleep(1000)
        return super().step(actions, active)


class Counting(Balloon):
    """Prints, pays one a step, and takes its process down at the third."""

    def reset(self, which: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        self.count = 0
        return super().reset(which, seeds)

    def step(self, actions: np.ndarray, active: np.ndarray) -> Step:
        print("counting aloud", flush=True)
        self.count += 1
        if self.count == 3:
            os._exit(11)
        return super().step(actions, active)._replace(reward=np.ones(self.lanes, np.float32))
