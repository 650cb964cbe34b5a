"""Atari games: their names, and lanes of emulators in this process."""

import re
from collections.abc import Sequence
from functools import partial

import numpy as np

from vcrl.core.errors import UserError
from vcrl.core.protocol import Protocol
from vcrl.core.spec import Discrete, EnvSpec
from vcrl.envs.base import Arrays, Step, VecEnv
from vcrl.envs.emulator import HORIZON, SIZE, Emulator, Rules, boot, minimal_actions, roms, version
from vcrl.envs.recall import recalling
from vcrl.envs.workers import spread

FRAME = (SIZE, SIZE, 1)

# The minimal action set of each of the 26 games of Atari 100K, so that naming a task needs no emulator.
ACTIONS = {
    "alien": 18, "amidar": 10, "assault": 7, "asterix": 9, "bank-heist": 18, "battle-zone": 18, "boxing": 18,
    "breakout": 4, "chopper-command": 18, "crazy-climber": 9, "demon-attack": 6, "freeway": 3, "frostbite": 18,
    "gopher": 8, "hero": 18, "jamesbond": 18, "kangaroo": 18, "krull": 18, "kung-fu-master": 14, "ms-pacman": 9,
    "pong": 6, "private-eye": 18, "qbert": 6, "road-runner": 18, "seaquest": 18, "up-n-down": 6,
}  # fmt: skip


class AtariEnv:
    """A lane is one emulator. Lanes share nothing but the table of start states."""

    def __init__(self, lanes: int, game: str, rules: Rules):
        self.spec, self.lanes = _spec(game), lanes
        self._emulators = [Emulator(game.replace("-", "_"), rules) for _ in range(lanes)]
        # One lane after the other writes into these; what is handed out is a copy.
        self._frame = np.zeros((lanes, *FRAME), np.uint8)
        self._reward = np.zeros(lanes, np.float32)
        self._terminal, self._over = np.zeros(lanes, bool), np.zeros(lanes, bool)

    def reset(self, which: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        for lane in np.flatnonzero(which):
            self._emulators[lane].reset(seeds[lane], self._frame[lane, ..., 0])
        return self._frame.copy()

    def step(self, actions: np.ndarray, active: np.ndarray) -> Step:
        for lane in np.flatnonzero(active):
            came = self._emulators[lane].step(int(actions[lane]), self._frame[lane, ..., 0])
            self._reward[lane], self._terminal[lane], self._over[lane] = came
        terminal = self._terminal.copy()
        return Step(self._frame.copy(), self._reward.copy(), terminal, terminal.copy(), self._over.copy())

    def save(self) -> Arrays:
        states, own = zip(*(emulator.save() for emulator in self._emulators), strict=True)
        # Padded with zeros to one length: a state's size varies by a few bytes.
        size = np.array([len(state) for state in states], np.int64)
        padded = np.zeros((self.lanes, int(size.max())), np.uint8)
        for row, state in zip(padded, states, strict=True):
            row[: len(state)] = np.frombuffer(state, np.uint8)
        return {"state": padded, "size": size, "own": np.stack(own), "version": _text(self.lanes)}

    def load(self, arrays: Arrays) -> None:
        saved = bytes(arrays["version"][0]).rstrip(b"\0").decode()
        if saved != version():
            raise UserError(
                f"the emulators were saved by ale-py {saved} and this is {version()}: states differ between versions; "
                f"pip install ale-py=={saved} to continue, or delete the run's folder to start again"
            )
        for emulator, state, size, own in zip(
            self._emulators, arrays["state"], arrays["size"], arrays["own"], strict=True
        ):
            emulator.load(state[:size].tobytes(), own)

    def close(self) -> None:
        """Emulators hold nothing but memory."""
        self._emulators = []


def spec_of(actions: int) -> EnvSpec:
    return EnvSpec(FRAME, Discrete(actions), HORIZON)


def make(lanes: int, game: str, protocol: Protocol, training: bool) -> VecEnv:
    """Lanes over the cores of this machine. A lost life ends the learner's episodes, and no evaluation's."""
    return spread(partial(AtariEnv, game=game, rules=_rules(protocol, training)), _spec(game), lanes)


def make_recalling(teams: Sequence[int], game: str, protocol: Protocol) -> Sequence[VecEnv] | None:
    """The same for the teams of an evaluation, with less work: lanes recall where any of them has been. None where the
    protocol leaves that to chance."""
    if protocol.sticky:
        return None
    return recalling(game.replace("-", "_"), _rules(protocol, False), _spec(game), teams)


def _rules(protocol: Protocol, training: bool) -> Rules:
    return Rules(lives=training, horizon=protocol.horizon or HORIZON, sticky=protocol.sticky)


def _spec(game: str) -> EnvSpec:
    return spec_of(actions_of(game))


def plain(name: str) -> str | None:
    """The plain name of a game of which there is a ROM, or that belongs to Atari 100K: kung-fu-master.

    Any usual spelling will do: KungFuMaster, kung_fu_master, ALE/KungFuMaster-v5, KungFuMasterNoFrameskip-v4.
    """
    bare = re.sub(r"(NoFrameskip|Deterministic)?-v\d+$", "", name.removeprefix("ALE/"))
    known = {_letters(game): game.replace("_", "-") for game in (*ACTIONS, *roms())}
    return known.get(_letters(bare))


def actions_of(game: str) -> int:
    """Size of the minimal action set."""
    return ACTIONS[game] if game in ACTIONS else len(minimal_actions(boot(game.replace("-", "_"), 0)))


def _letters(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


def _text(lanes: int) -> np.ndarray:
    """The emulator's version in every lane's row, since a worker's lanes are saved and loaded by rows."""
    row = np.frombuffer(version().encode().ljust(32, b"\0"), np.uint8)
    return np.tile(row, (lanes, 1))
