"""Games of an evaluation that share a map of where any of them has been, so that what is known need not be played.

Without sticky actions an emulator is a function: from one state one action leads to one state, one picture and one
reward. Agents that hardly explore play much the same games again and again: a hundred of them begin in thirty ways,
meet again after every point, and some go round in circles for minutes. A state that any game has been in is
recognised by its bytes, and where the way on is known, nothing is played. The scores are those of games that are
played in full. What is not known is played by whoever explores (`explore.py`).
"""

import os
from collections.abc import Sequence
from threading import Lock

import numpy as np

from vcrl.core.spec import Discrete, EnvSpec
from vcrl.envs.base import Arrays, Step
from vcrl.envs.board import Board, memory
from vcrl.envs.emulator import Rules
from vcrl.envs.explore import STATES, Crew
from vcrl.envs.processes import helpers

EACH = 50  # states that are remembered for every game, 15 KB each
SHARE = 8  # games to an emulator: most of their steps are known


class Map:
    """Where actions led. States are numbered as they are found; number n lies in row n modulo all rows.

    The oldest are forgotten first, unless a game stands there or the state is yet to be found.
    """

    def __init__(self, rows: int, actions: int, games: int):
        self.rows, self.next = rows, 0
        self.at = np.full(games, -1)  # the state that each game is in
        self.number = np.full(rows, -1)  # of the state in each row
        self.leads = np.full((rows, actions), -1)  # the number of where each action leads
        self.reward = np.zeros((rows, actions), np.float32)
        self._promised = np.zeros(rows, bool)  # to states that are yet to be found
        self._name = [b""] * rows
        self._named = dict[bytes, int]()

    def row(self, at: np.ndarray) -> np.ndarray:
        return at % self.rows

    def way(self, at: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where these actions lead from these states, or -1, and what they pay."""
        row = self.row(at)
        to = self.leads[row, action]
        return np.where(self.number[self.row(to)] == to, to, -1), self.reward[row, action]

    def room(self, count: int) -> np.ndarray:
        """Numbers of new states. What lay in their rows is forgotten."""
        taken = self._promised.copy()
        taken[self.row(self.at[self.at >= 0])] = True
        ahead = np.arange(self.next, self.next + min(count + 2 * len(self.at), self.rows))
        new = ahead[~taken[self.row(ahead)]][:count]
        self.next = int(new[-1]) + 1
        row = self.row(new)
        for old in row[self.number[row] >= 0]:
            del self._named[self._name[old]]
        self.number[row], self.leads[row], self._promised[row] = -1, -1, True
        return new

    def found(self, new: np.ndarray, names: np.ndarray) -> np.ndarray:
        """The numbers of these states: those that they were found under, or that they had before."""
        at, self._promised[self.row(new)] = new.copy(), False
        for i, (number, name) in enumerate(zip(new.tolist(), names, strict=True)):
            known = self._named.setdefault(name.tobytes(), number)
            if known == number:
                row = number % self.rows
                self.number[row], self._name[row] = number, name.tobytes()
            at[i] = known
        return at

    def learn(self, at: np.ndarray, action: np.ndarray, to: np.ndarray, reward: np.ndarray) -> None:
        self.leads[self.row(at), action] = to
        self.reward[self.row(at), action] = reward


class RecallingEnv:
    """A `VecEnv` of games of Atari, by the rules of evaluation; `recalling` makes them.

    Several have the map in common, in threads of their own, and take turns at it. What lies in a row needs no turn:
    where one's own game stands, and what is promised to one, is nobody else's.
    """

    def __init__(
        self, spec: EnvSpec, horizon: int, map: Map, lanes: slice, board: Board, crew: Crew, lock: Lock
    ):
        self.spec, self.map, self._board, self.crew, self._lock = spec, map, board, crew, lock
        self._at, self._horizon = map.at[lanes], horizon
        self.lanes, self.known, self.steps = len(self._at), 0, 0
        self._steps = np.zeros(self.lanes, np.int64)

    @property
    def news(self) -> list[str]:
        return self.crew.news

    def reset(self, which: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        lanes = np.flatnonzero(which)
        if len(lanes):
            with self._lock:
                self._at[lanes] = -1
                new = self.map.room(len(lanes))
            self.crew.begin(seeds[lanes], new)
            with self._lock:
                self._at[lanes] = self.map.found(new, self._board.name[self.map.row(new)])
            self._steps[lanes] = 0
        return self._frames(lanes)

    def step(self, actions: np.ndarray, active: np.ndarray) -> Step:
        lanes = np.flatnonzero(active)
        at, action = self._at[lanes], actions[lanes].astype(np.int64)
        with self._lock:
            to, paid = self.map.way(at, action)
            known = to >= 0
            # First of all those who know their way stand where it leads, or that might be forgotten.
            self._at[lanes[known]] = to[known]
        if not known.all():
            to[~known], paid[~known] = self._explore(lanes[~known], action[~known])
        self.steps, self.known = self.steps + len(lanes), self.known + int(known.sum())
        self._steps[lanes] += 1
        reward, over = np.zeros(self.lanes, np.float32), np.zeros(self.lanes, bool)
        # Games end at the horizon wherever they are: that is no property of the state.
        over[lanes] = self._board.over[self.map.row(to)] | (self._steps[lanes] >= self._horizon)
        reward[lanes] = paid
        return Step(self._frames(lanes), reward, over, over.copy(), over.copy())

    def _explore(self, lanes: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Play what is not known, once where several games do the same, and stand there."""
        actions = self.map.leads.shape[1]
        pairs, which = np.unique(self._at[lanes] * actions + action, return_inverse=True)
        at, action = np.divmod(pairs, actions)
        with self._lock:
            new = self.map.room(len(at))
        self.crew.explore(at, action, new)
        row = self.map.row(new)
        paid = self._board.reward[row]
        with self._lock:
            to = self.map.found(new, self._board.name[row])
            self.map.learn(at, action, to, paid)
            self._at[lanes] = to[which]
        return to[which], paid[which]

    def _frames(self, lanes: np.ndarray) -> np.ndarray:
        """What these lanes see, and maybe others: late in an evaluation a few games of a thousand go on."""
        if 2 * len(lanes) > self.lanes:
            return self._board.frame[self.map.row(self._at)]
        frame = np.zeros((self.lanes, *self.spec.frame), np.uint8)  # which writes nothing yet
        frame[lanes] = self._board.frame[self.map.row(self._at[lanes])]
        return frame

    def save(self) -> None:
        """Nobody stops in the middle of an evaluation."""

    def load(self, arrays: Arrays) -> None:
        raise ValueError("games that recall have no saved state; play their actions again instead")

    def close(self) -> None:
        self.crew.close()


def recalling(rom: str, rules: Rules, spec: EnvSpec, teams: Sequence[int]) -> list[RecallingEnv]:
    """Lanes for each of these teams, all of which share one map. Every team has processes of its own that explore."""
    assert isinstance(spec.actions, Discrete) and not rules.sticky and not rules.lives
    games, file, made, lock = sum(teams), memory(), list[RecallingEnv](), Lock()
    try:
        map = Map(max(EACH * games, 2 * games + 1), spec.actions.n, games)
        board = Board(file, STATES, map.rows, create=True)
        for lanes in teams:
            count = helpers(lanes)
            crew = Crew(rom, file, map.rows, lanes, -(-lanes // (SHARE * max(1, count))), count)
            first = sum(env.lanes for env in made)
            made.append(
                RecallingEnv(spec, rules.horizon, map, slice(first, first + lanes), board, crew, lock)
            )
    except BaseException:
        for env in made:
            env.close()
        raise
    finally:
        os.close(file)  # every crew has it, too
    return made
