"""Emulators that explore for games which share a map (`recall.py`), in processes where there are cores for them.

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
from vcrl.envs.processes import PATIENCE, Child, close

STATE = (
    3 * 4096
)  # bytes that a state may have: ALE's have 7,700 to 8,300, and pages not written to take no memory

STATES: Fields = {
    "state": (np.uint8, (STATE,)),
    "size": (np.int32, ()),  # of the state
    "name": (np.uint8, (16,)),
    "lives": (np.int32, ()),  # the emulator's own count
    "frame": (np.uint8, (SIZE, SIZE, 1)),
    "over": (np.bool_, ()),  # the game is
    "reward": (np.float32, ()),  # of the step that led there first
}
JOBS: Fields = {
    "count": (np.int64, ()),  # in the first row: how many there are
    "at": (np.int64, ()),  # from this state; or the bits of a seed
    "action": (np.int64, ()),
    "to": (np.int64, ()),  # where it leads is this state
    "who": (np.int64, ()),  # does it
}
BEGIN = -1  # in place of an action: where the game of a seed begins


class Explorer:
    """What plays: a few emulators, each of which stays where it came to, in case the game goes on from there."""

    def __init__(self, rom: str, rows: int, jobs: int, most: int, me: int, states: int, file: int):
        self._make, self._most, self._me = partial(Emulator, rom, Rules(lives=False)), most, me
        self._board, self._jobs, self._rows = Board(states, STATES, rows), Board(file, JOBS, jobs), rows
        self._standing = dict[int, Emulator]()  # by the number of the state, who has stood longest first

    def go(self) -> None:
        board, jobs = self._board, self._jobs
        mine = np.flatnonzero(jobs.who[: jobs.count[0]] == self._me)
        for at, action, to in zip(
            jobs.at[mine], jobs.action[mine].tolist(), jobs.to[mine].tolist(), strict=True
        ):
            row = to % self._rows
            if action == BEGIN:
                emulator, board.reward[row], board.over[row] = self._free(), 0.0, False
                emulator.reset(at.view(np.uint64), board.frame[row, ..., 0])
            else:
                emulator = self._standing.pop(int(at), None) or self._sent(int(at) % self._rows)
                emulator.steps = 0  # the horizon is not our concern
                board.reward[row], _, board.over[row] = emulator.step(action, board.frame[row, ..., 0])
            state, lives = emulator.ale.cloneState(include_rng=False).serialize(), emulator.lives
            board.state[row, : len(state)] = np.frombuffer(state, np.uint8)
            board.size[row], board.lives[row] = len(state), lives
            board.name[row] = np.frombuffer(name_of(state, lives, board.frame[row].tobytes()), np.uint8)
            self._standing[to] = emulator

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


class Crew:
    """Explorers in processes of their own, who share what is to be done evenly; or a single one in this process.

    The states lie in a file with so many rows, which is the caller's. `jobs` are the most at once, and `most` the
    emulators of each explorer.
    """

    def __init__(self, rom: str, states: int, rows: int, jobs: int, most: int, count: int):
        self._rom, self.news, self.played, self._files = rom, list[str](), 0, (os.dup(states), memory())
        self._jobs = Board(self._files[1], JOBS, jobs, create=True)
        self._who = np.zeros(rows, np.int64)  # whose emulator may stand in the state of each row
        self._build = partial(Explorer, rom, rows, jobs, most)
        self._here, self._children = None if count else self._build(0, *self._files), list[Child]()
        try:
            for i in range(count):
                self._children.append(self._child(i))
            if not all([child.done() for child in self._children]):  # all are built side by side; now wait
                raise UserError("a process of emulators ended before it began: its own message is above")
        except BaseException:
            self.close()
            raise

    def begin(self, seeds: np.ndarray, new: np.ndarray) -> None:
        """The states in which the games of these seeds begin."""
        who = np.arange(len(new)) % max(1, len(self._children))
        self._do(seeds.view(np.int64), np.full(len(new), BEGIN), new, who)

    def explore(self, at: np.ndarray, action: np.ndarray, new: np.ndarray) -> None:
        """The states to which these actions lead from those."""
        self.played += len(new)
        who = evenly(self._who[at % len(self._who)], max(1, len(self._children)))
        self._do(at, action, new, who)

    def close(self) -> None:
        close(self._children)
        self._children = []
        for file in self._files:
            os.close(file)
        self._files = ()

    def _do(self, at: np.ndarray, action: np.ndarray, to: np.ndarray, who: np.ndarray) -> None:
        """All at once, and wait."""
        jobs, children, count = self._jobs, self._children, len(to)
        jobs.count[0], jobs.at[:count], jobs.action[:count] = count, at, action
        jobs.to[:count], jobs.who[:count] = to, who
        self._who[to % len(self._who)] = who
        if self._here:
            self._here.go()
            return
        busy = np.unique(who).tolist()
        lost = [i for i in busy if not children[i].go()]
        lost += [i for i in busy if i not in lost and not children[i].done(PATIENCE)]
        for i in lost:
            self.news.append(f"a process of emulators {children[i].end()}: another one does its work")
            children[i] = self._child(i)
            if not (children[i].done() and children[i].go() and children[i].done(PATIENCE)):
                raise UserError(
                    f"an emulator of {self._rom} {children[i].end()}, and did so twice at the same step: what was "
                    "saved is kept; run the same command again, and report this if it returns"
                )

    def _child(self, i: int) -> Child:
        return Child(self._files, partial(self._build, i))


def evenly(wish: np.ndarray, count: int) -> np.ndarray:
    """Who of `count` does what: whoever is wished for, unless others have less to do."""
    share = -(-len(wish) // count)
    order = np.argsort(wish, kind="stable")
    ordered = wish[order]
    turn = np.arange(len(wish)) - np.searchsorted(
        ordered, ordered
    )  # which of those who wish for the same one
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
