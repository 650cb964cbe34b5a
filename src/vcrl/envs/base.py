"""The two methods an environment adapter must have, and the two that let it resume exactly."""

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from vcrl.core.spec import EnvSpec

Arrays = dict[str, np.ndarray]


class Step(NamedTuple):
    """What came back from one step of every lane. Rows of lanes that were not active mean nothing."""

    frame: np.ndarray  # uint8 L H W C, the newest frame only
    reward: np.ndarray  # float32 L, raw; clipping belongs to the learner
    terminal: np.ndarray  # bool L, nothing follows: do not bootstrap (a lost life too, if so agreed)
    last: np.ndarray  # bool L, the episode the learner sees ends here
    over: np.ndarray  # bool L, the game itself ended: the score counts


@runtime_checkable
class VecEnv(Protocol):
    """All lanes at once, on the host. No auto-reset, no stacking, no statistics: `lanes.py` does those."""

    spec: EnvSpec
    lanes: int

    def reset(self, which: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        """Start a new game, decided by its uint64 seed alone, in the lanes where `which`; their first frames."""
        ...

    def step(self, actions: np.ndarray, active: np.ndarray) -> Step:
        """Act in the lanes where `active`; the others stay as they are."""
        ...

    def save(self) -> Arrays | None:
        """The simulator's exact state, or None if open episodes have to be played again from their actions."""
        ...

    def load(self, arrays: Arrays) -> None: ...

    def close(self) -> None:
        """Give back windows, files and processes."""
        ...


# What an adapter may have besides: `news`, texts for whoever watches; `lost` and `fault`, if its simulator can break.


def lost_of(env: VecEnv) -> np.ndarray:
    """Lanes whose game broke off in the last step: it gave neither a frame nor a reward, so it was not taken."""
    return getattr(env, "lost", np.zeros(env.lanes, bool))


def fault_of(env: VecEnv) -> str:
    """Why the environment cannot go on, if so; whoever trains saves what there is and stops."""
    return getattr(env, "fault", "")
