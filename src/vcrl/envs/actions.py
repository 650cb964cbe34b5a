"""The actions of open games, from which a game can be played again."""

import numpy as np

from vcrl.core.errors import UserError
from vcrl.core.spec import Box, Discrete


class ActionLog:
    """Grown by doubling, so that its size follows the longest game there was."""

    def __init__(self, lanes: int, space: Discrete | Box):
        shape, kind = action_type(space)
        self._log = np.zeros((lanes, 64, *shape), kind)
        self.length = np.zeros(lanes, np.int64)

    def append(self, actions: np.ndarray, which: np.ndarray) -> None:
        if self.length.max() >= self._log.shape[1]:
            self._log = np.concatenate([self._log, np.zeros_like(self._log)], axis=1)
        self._log[which, self.length[which]] = actions[which]
        self.length = self.length + which

    def clear(self, which: np.ndarray) -> None:
        self.length = np.where(which, 0, self.length)

    def of(self, lane: int) -> np.ndarray:
        """The actions of one lane."""
        return self._log[lane, : self.length[lane]]

    def at(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """The actions all lanes took as their number `step`, and which of them got that far."""
        return self._log[:, step], step < self.length

    def save(self) -> np.ndarray:
        """All lanes, one after the other."""
        return np.concatenate([self.of(lane) for lane in range(len(self.length))])

    def load(self, actions: np.ndarray, length: np.ndarray) -> None:
        # Looked at first: what a stranger's file calls a length decides how much memory is taken.
        if length.shape != self.length.shape or (length < 0).any() or (length > len(actions)).any():
            raise UserError("the saved environment has games longer than their actions: it is damaged")
        size = max(64, int(length.max()))
        self._log = np.zeros((len(length), size, *self._log.shape[2:]), self._log.dtype)
        self.length = np.array(length)
        ends = np.cumsum(length)
        for lane, (end, n) in enumerate(zip(ends, length, strict=True)):
            self._log[lane, :n] = actions[end - n : end]


def stored_type(space: Discrete | Box) -> type[np.generic]:
    """The narrowest dtype that holds every action exactly."""
    if isinstance(space, Discrete):
        return np.uint8 if space.n <= 2**8 else np.uint16 if space.n <= 2**16 else np.int32
    return np.float32


def action_type(space: Discrete | Box) -> tuple[tuple[int, ...], type[np.generic]]:
    """Shape and dtype of one action."""
    return ((), np.int32) if isinstance(space, Discrete) else ((space.size,), np.float32)
