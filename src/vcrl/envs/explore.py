"""Emulators that explore for games which share a map (`recall.py`), in processes.

States and pictures lie in memory that all share, so that any process can go on from any state, and all have the same
to do at every step. One that dies is started again and does what it was asked to: no game needs to be played again.
"""

import hashlib
import os
from functools import partial

import numpy as np

from vcrl.core.errors import UserError
from vcrl.envs.board import Board, Fields, memory
from vcrl.envs.emulator import SIZE, Emulator, Rules
from vcrl.envs.processes import PATIENCE, Child

STATE = 3 * 4096  # bytes that a state may have: ALE's have 7,700

# Of every state in the map.
FIELDS: Fields = {
    "state": (np.uint8, (STATE,)),
    "size": (np.int32, ()),  # of the state
    "name": (np.uint8, (16,)),
    "lives": (np.int32, ()),  # the emulator's own count
    "frame": (np.uint8, (SIZE, SIZE, 1)),
    "over": (np.bool_, ()),  # the game is
    "reward": (np.float32, ()),  # of the step that led there first
}


class Explorer:
    """What plays: a few emulators, each of which stays where it came to, in case the game goes on from there."""

    def __init__(self, rom: str, rows: int, most: int, file: int):
        self._make, self._most, self._rows = partial(Emulator, rom, Rules(lives=False)), most, rows
        self._board = Board(file, FIELDS, rows)
        self._standing = dict[int, Emulator]()  # by the number of the state, who has stood longest first

    def begin(self, seeds: np.ndarray, new: np.ndarray) -> None:
        """The games of these seeds."""
        for seed, to in zip(seeds, new.tolist(), strict=True):
            emulator = self._free()
            emulator.reset(seed, self._board.frame[to % self._rows, ..., 0])
            self._arrived(emulator, to, 0.0, False)

    def explore(self, at: np.ndarray, action: np.ndarray, new: np.ndarray) -> None:
        """These actions from these states."""
        for origin, act, to in zip(at.tolist(), action.tolist(), new.tolist(), strict=True):
            emulator = self._standing.pop(origin, None) or self._sent(origin % self._rows)
            emulator.steps = 0  # the horizon is not our concern
            came = emulator.step(act, self._board.frame[to % self._rows, ..., 0])
            self._arrived(emulator, to, came.reward, came.over)

    def close(self) -> None:
        """Emulators hold nothing but memory."""
        self._standing.clear()

    def _free(self) -> Emulator:
        if len(self._standing) < self._most:
            return self._make()
        return self._standing.pop(next(iter(self._standing)))

    def _sent(self, row: int) -> Emulator:
        emulator, board = self._free(), self._board
        emulator.go(board.state[row, : board.size[row]].tobytes())
        emulator.lives = int(board.lives[row])
        return emulator

    def _arrived(self, emulator: Emulator, to: int, reward: float, over: bool) -> None:
        self._standing[to] = emulator
        state, row, board = (
            emulator.ale.cloneState(include_rng=False).serialize(),
            to % self._rows,
            self._board,
        )
        board.state[row, : len(state)] = np.frombuffer(state, np.uint8)
        board.size[row], board.lives[row] = len(state), emulator.lives
        name = name_of(state, emulator.lives, board.frame[row].tobytes())
        board.name[row] = np.frombuffer(name, np.uint8)
        board.reward[row], board.over[row] = reward, over


class Crew:
    """Explorers in processes of their own, who share what is to be done evenly; or a single one in this process."""

    def __init__(self, rom: str, rows: int, most: int, count: int):
        self.news, self._file = list[str](), memory()
        self.board = Board(self._file, FIELDS, rows, create=True)
        self._who = np.zeros(rows, np.int64)  # whose emulator may stand in the state of each row
        self._build = partial(Explorer, rom, rows, most)
        self._here = None if count else self._build(self._file)
        self._children = [Child(self._file, self._build) for _ in range(count)]
        if not all([child.done() for child in self._children]):  # all are built side by side; now wait
            raise UserError("a process of emulators ended before it began: its own message is above")

    def begin(self, seeds: np.ndarray, new: np.ndarray) -> None:
        """The states in which the games of these seeds begin."""
        self._do("begin", np.arange(len(new)) % max(1, len(self._children)), new, seeds)

    def explore(self, at: np.ndarray, action: np.ndarray, new: np.ndarray) -> None:
        """The states to which these actions lead from those."""
        who = evenly(self._who[at % len(self._who)], max(1, len(self._children)))
        self._do("explore", who, new, at, action)

    def close(self) -> None:
        for child in self._children:
            child.hang_up()  # all at once
        for child in self._children:
            child.gone()
        self._children = []
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _do(self, what: str, who: np.ndarray, new: np.ndarray, *given: np.ndarray) -> None:
        self._who[new % len(self._who)] = who
        if self._here:
            getattr(self._here, what)(*given, new)
            return
        children = self._children
        asked = {i: (what, *(part[who == i] for part in (*given, new))) for i in np.unique(who).tolist()}
        told = {i: children[i].ask(*question) for i, question in asked.items()}
        for i in [i for i in asked if not (told[i] and self._did(i))]:
            self.news.append(f"a process of emulators {children[i].end()}: another one does its work")
            children[i] = Child(self._file, self._build)
            if not (children[i].done() and children[i].ask(*asked[i]) and self._did(i)):
                raise UserError(
                    "an emulator died or hung twice at the same step: what was saved is kept; "
                    "run the same command again, and report this if it returns"
                )

    def _did(self, i: int) -> bool:
        return self._children[i].done(PATIENCE) and self._children[i].answer() is None


def evenly(wish: np.ndarray, count: int) -> np.ndarray:
    """Who of `count` does what: whoever is wished for, unless others have less to do."""
    share = -(-len(wish) // count)
    order = np.argsort(wish, kind="stable")
    sorted = wish[order]
    turn = np.arange(len(wish)) - np.searchsorted(sorted, sorted)  # which of those who wish for the same one
    who, late = wish.copy(), order[turn >= share]
    room = share - np.minimum(np.bincount(wish, minlength=count), share)
    who[late] = np.repeat(np.arange(count), room)[: len(late)]
    return who


def name_of(state: bytes, lives: int, frame: bytes) -> bytes:
    """The same for states that differ in nothing but how many frames were played before.

    ALE writes both paddles, two counts of frames, mode and difficulty, four bytes each, and then the machine. `lives`
    is the emulator's own count, which the machine's may have left behind. Half of what `frame` shows is the screen
    before the last, on which nothing that follows depends, but which is seen.
    """
    return hashlib.blake2b(state[:8] + state[16:] + bytes([lives]) + frame, digest_size=16).digest()
