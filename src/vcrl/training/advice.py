"""What a user should know about the numbers of a training while it runs."""

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from vcrl.methods.configs import Categorical
from vcrl.training.plan import Plan

ROWS = 5  # logged rows over which a share is averaged: one batch says little
MUCH = 0.05


class Advice:
    """Rows of metrics in, lines for the user out; each is said once in a run, stopped and resumed or not."""

    def __init__(self, plan: Plan, events: Sequence[Any]):
        value = getattr(plan.config, "value", None)
        self.value = value if isinstance(value, Categorical) else None
        self.reward = plan.config.observation.reward
        self.shares = deque[float](maxlen=ROWS)
        self.told = any("C51" in str(event) for event in events)

    def after(self, row: dict[str, Any]) -> list[str]:
        shares = [x for x in row.get("value/clipped", []) if x is not None]
        if self.value is None or self.told or not shares:
            return []
        self.shares.append(float(np.mean(shares)))
        if len(self.shares) < ROWS or np.mean(self.shares) <= MUCH:
            return []
        self.told = True
        other = ", or give the learner signs with --observation.reward sign" if self.reward == "raw" else ""
        return [
            f"{np.mean(self.shares):.0%} of the values learned from lie beyond {self.value.low:g} to "
            f"{self.value.high:g}, the range of C51, and are cut off: widen it with --value.low and "
            f"--value.high{other}"
        ]
