"""Atari games that recall where others have been, so that what is known need not be emulated.

Without sticky actions an emulator is a function: from one state one action leads to one state, one picture and one
reward. Agents that hardly explore play much the same games again and again: a hundred of them begin in thirty ways,
meet again after every point, and some go round in circles for minutes. So the games of a process share a map. A state
that any of them has been in is recognised by its bytes, and where the way on is known, nothing is played. The scores
are those of games that are played in full.
"""

import hashlib
from typing import NamedTuple

import numpy as np

from vcrl.envs.emulator import Came, Emulator, Rules, start_of

EACH = 50  # states that are remembered for every game, 15 KB each
SHARE = 8  # games to an emulator: most of their steps are known
LEAST = 0.1  # share of steps that must be known, for each other one takes longer
TRIAL = 20_000  # steps after which that is asked


class Node:
    """A state that a game was in, and where actions led from it."""

    __slots__ = ("leads", "lives", "state", "visitor")

    def __init__(self, state: bytes, lives: int):
        self.state, self.lives = state, lives
        self.leads = dict[int, Lead]()
        self.visitor: Emulator | None = None  # the last one that came by


class Lead(NamedTuple):
    came: Came
    frame: np.ndarray  # 84 x 84
    to: Node


class Map:
    """What the games of one process have seen, and the emulators that explore for them.

    The oldest states are forgotten first, and the emulator that has stood still longest is sent where one is needed.
    """

    def __init__(self, rom: str, rules: Rules, games: int):
        self.rom, self.rules = rom, rules
        self.most, self.crew = EACH * games, max(1, games // SHARE)
        self.nodes = dict[bytes, Node]()
        self.standing = dict[Emulator, Node]()
        self.known = self.steps = 0
        self.pays = True

    def node(self, state: bytes, lives: int) -> Node:
        name = name_of(state, lives)
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = Node(state, lives)
            if len(self.nodes) > self.most:
                # A game may still come by, but no way on is kept, or all that lies behind it would be.
                self.nodes.pop(next(iter(self.nodes))).leads.clear()
        return node

    def arrived(self, emulator: Emulator) -> Node:
        """Where an emulator stands."""
        node = self.node(emulator.ale.cloneState(include_rng=False).serialize(), emulator.lives)
        self.standing.pop(emulator, None)
        self.standing[emulator], node.visitor = node, emulator
        return node

    def emulator(self, node: Node, steps: int) -> Emulator:
        """One that stands at this node, in a game of so many agent steps."""
        here = node.visitor
        if here is None or self.standing.get(here) is not node:
            full = len(self.standing) >= self.crew
            here = next(iter(self.standing)) if full else Emulator(self.rom, self.rules)
            here.go(node.state)
        here.lives, here.steps = node.lives, steps
        return here

    def count(self, known: bool) -> None:
        self.steps += 1
        self.known += known
        if self.steps == TRIAL and self.known < LEAST * TRIAL:
            self.pays = False
            self.nodes.clear()
            self.standing.clear()


class Game(NamedTuple):
    """Where a game is, which is all there is to it."""

    state: bytes
    lives: int
    steps: int
    seed: np.uint64


class Recaller:
    """One game at a time, as an `Emulator` plays it."""

    @staticmethod
    def of(map: Map, game: Game) -> "Recaller":
        """A game that began in another process."""
        made = Recaller(map)
        made.at, made.steps, made.seed = map.node(game.state, game.lives), game.steps, game.seed
        return made

    def __init__(self, map: Map):
        self.map, self.horizon = map, map.rules.horizon
        self.own: Emulator | None = None  # which plays all of it, once remembering does not pay
        self.at: Node | None = None
        self.steps, self.seed = 0, np.uint64(0)  # agent steps of the game, and what it began with

    def reset(self, seed: np.uint64, out: np.ndarray) -> None:
        if self.own is not None:
            self.own.reset(seed, out)
            return
        start = start_of(self.map.rom, seed)
        self.at, self.steps, self.seed = self.map.node(start.state, start.lives), 0, seed
        out[...] = start.frame

    def step(self, action: int, out: np.ndarray) -> Came:
        if self.own is not None or self.at is None:
            return self._played().step(action, out)
        lead = self.at.leads.get(action)
        self.map.count(lead is not None)
        if lead is None:
            return self._explore(self.at, action, out)
        self.at, self.steps = lead.to, self.steps + 1
        out[...] = lead.frame
        return lead.came if self.steps < self.horizon else Came(lead.came.reward, True, True)

    def _explore(self, before: Node, action: int, out: np.ndarray) -> Came:
        if not self.map.pays:
            return self._played().step(action, out)
        emulator = self.map.emulator(before, self.steps)
        came = emulator.step(action, out)
        self.at, self.steps = self.map.arrived(emulator), emulator.steps
        # Games end at the horizon wherever they are: that is no property of the state.
        if self.steps < self.horizon:
            before.leads[action] = Lead(came, out.copy(), self.at)
        return came

    def game(self) -> Game:
        if self.own is not None:
            state = self.own.ale.cloneState(include_rng=False).serialize()
            return Game(state, self.own.lives, self.own.steps, self.own.seed)
        assert self.at is not None, "no game has begun"
        return Game(self.at.state, self.at.lives, self.steps, self.seed)

    def _played(self) -> Emulator:
        """An emulator for this game alone, which stands where it is."""
        if self.own is None:
            self.own = Emulator(self.map.rom, self.map.rules)
            if self.at is not None:
                self.own.go(self.at.state)
                self.own.lives, self.own.steps, self.own.seed = self.at.lives, self.steps, self.seed
        return self.own

    def save(self) -> tuple[bytes, np.ndarray]:
        return self._played().save()

    def load(self, state: bytes, own: np.ndarray) -> None:
        self._played().load(state, own)


def name_of(state: bytes, lives: int) -> bytes:
    """The same for states that differ in nothing but how many frames were played before.

    ALE writes both paddles, two counts of frames, mode and difficulty, four bytes each, and then the machine. `lives`
    is the emulator's own count, which the machine's may have left behind.
    """
    return hashlib.blake2b(state[:8] + state[16:] + bytes([lives]), digest_size=16).digest()
