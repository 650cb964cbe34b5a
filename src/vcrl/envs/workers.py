"""Lanes of any environment, shared out to processes.

Pictures, rewards and flags lie in memory that all processes share. A process that dies is started again and its open
games are played again from their actions, so that a crash of a simulator costs seconds and changes nothing.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from vcrl.core.errors import UserError
from vcrl.core.spec import EnvSpec
from vcrl.envs.actions import ActionLog, action_type
from vcrl.envs.base import Arrays, Step, VecEnv
from vcrl.envs.board import Board, Fields, memory
from vcrl.envs.processes import PATIENCE, Child, close, helpers


def spread(make: Callable[[int], VecEnv], spec: EnvSpec, lanes: int) -> VecEnv:
    """Lanes over as many processes as pay.

    With a third core a single lane has a process of its own, too: a simulator holds Python's lock, for which the thread
    that asks a GPU for learning would have to wait. Where there is no GPU that costs 0.1 to 0.2 ms a step.
    """
    count = helpers(lanes)
    return Workers(make, spec, lanes, count) if count else make(lanes)


class Workers:
    """A `VecEnv` whose lanes are dealt out to `count` processes like cards; `make` builds one hand.

    Neighbours go to different processes: games that last long often lie side by side, being those of one seed.
    """

    def __init__(self, make: Callable[[int], VecEnv], spec: EnvSpec, lanes: int, count: int):
        self.spec, self.lanes, self.news = spec, lanes, list[str]()
        self._make, self._file = make, memory()
        self._board = Board(self._file, fields_of(spec), lanes, create=True)
        self._hands = [np.arange(lanes)[i::count] for i in range(count)]
        # What every open game came from: a saved simulator or a seed, and the actions since.
        self._saved: Arrays | None = None
        self._from_seed = np.ones(lanes, bool)
        self._seeds = np.zeros(lanes, np.uint64)
        self._log = ActionLog(lanes, spec.actions)
        self._children = list[Child]()
        try:
            for i in range(count):
                self._children.append(self._start(i))
            for i in range(count):
                self._must(i, self._children[i].done())  # all are built side by side; now wait
        except BaseException:
            self.close()
            raise

    def reset(self, which: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        self._log.clear(which)
        self._from_seed |= which
        self._seeds[which] = seeds[which]
        self._board.seed[:] = self._seeds
        self._go(which, True)
        return self._board.frame.copy()

    def step(self, actions: np.ndarray, active: np.ndarray) -> Step:
        board = self._board
        board.action[active] = actions[active]
        self._go(active, False)
        self._log.append(actions, active)
        came = (board.frame, board.reward, board.terminal, board.last, board.over)
        return Step(*(taken(part, active) for part in came))

    def save(self) -> Arrays | None:
        for i, child in enumerate(self._children):
            if not child.alive():
                self._revive(i)
        parts = [self._ask(i, "save") for i in range(len(self._hands))]
        if any(part is None for part in parts):
            return None
        lanes = np.argsort(np.concatenate(self._hands))
        return {name: _rows([part[name] for part in parts])[lanes] for name in parts[0]}

    def load(self, arrays: Arrays) -> None:
        self._saved = arrays
        self._from_seed[:] = False
        self._log.clear(np.ones(self.lanes, bool))
        for i, lanes in enumerate(self._hands):
            self._ask(i, "load", {name: array[lanes] for name, array in arrays.items()})

    def close(self) -> None:
        close(self._children)
        self._children = []
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _go(self, which: np.ndarray, resetting: bool) -> None:
        """Let the processes of these lanes reset or step them, all at once, and wait."""
        board, children = self._board, self._children
        board.going[:], board.resetting[:] = which, resetting
        busy = [i for i, lanes in enumerate(self._hands) if which[lanes].any()]
        lost = [i for i in busy if not children[i].go()]
        lost += [i for i in busy if i not in lost and not children[i].done(PATIENCE)]
        for i in lost:
            self._revive(i)
            board.going[:], board.resetting[:] = which, resetting
            if not children[i].go() or not children[i].done(PATIENCE):
                raise UserError(
                    f"the simulator of {self._named(i)} died or hung twice at the same step "
                    f"(seeds of their games: {self._seeds[self._hands[i]].tolist()}): what was saved is kept; "
                    "run the same command again, and report this if it returns"
                )

    def _revive(self, i: int) -> None:
        """Start a process again and play its open games again up to now."""
        lanes, child = self._hands[i], self._children[i]
        self.news.append(
            f"the simulator process of {self._named(i)} {child.end()}: "
            "started again, its open games are played again from their actions"
        )
        child = self._children[i] = self._start(i)
        self._must(i, child.done())
        if self._saved is not None:
            self._ask(i, "load", {name: array[lanes] for name, array in self._saved.items()})
        board, due = self._board, self._board.action.copy()
        board.going[:], board.resetting[:] = self._from_seed, True
        self._must(i, child.go() and child.done(PATIENCE))
        board.resetting[:] = False
        for at in range(int(self._log.length[lanes].max(initial=0))):
            board.action[:], board.going[:] = self._log.at(at)
            self._must(i, child.go() and child.done(PATIENCE))
        board.action[:] = due

    def _start(self, i: int) -> Child:
        return Child([self._file], partial(Hand, self._make, self.spec, self.lanes, self._hands[i]))

    def _ask(self, i: int, method: str, *arguments: Any) -> Any:
        child = self._children[i]
        self._must(i, child.ask(method, *arguments) and child.done())
        return child.answer()

    def _must(self, i: int, done: bool) -> None:
        """A process that must not die here."""
        if not done:
            raise UserError(
                f"the simulator process of {self._named(i)} ended (exit code {self._children[i].gone()}): "
                "its own message is above"
            )

    def _named(self, i: int) -> str:
        lanes = self._hands[i]
        more = f" and {len(lanes) - 3} more" if len(lanes) > 3 else ""
        return f"lane{'s' * (len(lanes) > 1)} {', '.join(map(str, lanes[:3]))}{more}"


class Hand:
    """What serves in a process: some of the lanes, which are `mine`."""

    def __init__(self, make: Callable[[int], VecEnv], spec: EnvSpec, lanes: int, mine: np.ndarray, file: int):
        self._board, self._mine = Board(file, fields_of(spec), lanes), mine
        self._env = make(len(mine))
        self.save, self.load, self.close = self._env.save, self._env.load, self._env.close

    def go(self) -> None:
        board, mine = self._board, self._mine
        going = board.going[mine]
        if board.resetting[mine[0]]:
            board.frame[mine] = self._env.reset(going, board.seed[mine])
            return
        came = self._env.step(board.action[mine], going)
        for name, value in came._asdict().items():
            getattr(board, name)[mine[going]] = value[going]


def fields_of(spec: EnvSpec) -> Fields:
    """What a lane's row has."""
    shape, kind = action_type(spec.actions)
    return {
        "going": (np.bool_, ()),  # to be stepped or reset
        "resetting": (np.bool_, ()),
        "seed": (np.uint64, ()),
        "action": (kind, shape),
        # What came back from the last step.
        "frame": (np.uint8, spec.frame),
        "reward": (np.float32, ()),
        "terminal": (np.bool_, ()),
        "last": (np.bool_, ()),
        "over": (np.bool_, ()),
    }


def taken(shared: np.ndarray, active: np.ndarray) -> np.ndarray:
    """A copy that nobody will write to. Late in an evaluation a few games of a thousand go on: of them alone."""
    if 2 * active.sum() > len(active):
        return shared.copy()
    copy = np.zeros(shared.shape, shared.dtype)  # not zeros_like, which writes all of it
    copy[active] = shared[active]
    return copy


def _rows(parts: list[np.ndarray]) -> np.ndarray:
    """Hands of lanes under each other; rows of different width are filled up with zeros."""
    if parts[0].ndim == 2:
        width = max(part.shape[1] for part in parts)
        parts = [np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in parts]
    return np.concatenate(parts)
