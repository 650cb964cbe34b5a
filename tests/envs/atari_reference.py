"""The Atari 100K protocol, written out step by step and slowly, without any of the project's code.

It shares nothing with `vcrl.envs` but the numbers of the protocol: every game starts from a fresh emulator, screens are
shrunk by arithmetic on integers instead of a library, and everything is kept in plain Python.
"""

import ale_py
import numpy as np


def boot(rom: str, system_seed: int | None) -> ale_py.ALEInterface:
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    if system_seed is not None:
        ale.setInt("system_random_seed", system_seed)
    ale.loadROM(ale_py.roms.get_rom_path(rom))
    return ale


def taps(source: int, wanted: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each output the left neighbour and the weights of both, in 2048ths."""
    place = (np.arange(wanted, dtype=np.float32) + np.float32(0.5)) * np.float32(
        source / wanted
    ) - np.float32(0.5)
    left = np.floor(place).astype(np.int32)
    right = np.rint((place - left) * 2048).astype(np.int64)
    return left, 2048 - right, right


def shrink(screen: np.ndarray) -> np.ndarray:
    """Bilinear 210 x 160 to 84 x 84 in the fixed-point arithmetic that image libraries use for bytes."""
    column, wl, wr = taps(160, 84)
    row, wt, wb = taps(210, 84)
    wide = screen.astype(np.int64)
    across = wide[:, column] * wl + wide[:, np.minimum(column + 1, 159)] * wr
    top, bottom = across[row] >> 4, across[np.minimum(row + 1, 209)] >> 4
    down = ((wt[:, None] * top) >> 16) + ((wb[:, None] * bottom) >> 16)
    return ((down + 2) >> 2).astype(np.uint8)


class Game:
    """One game from power-up to its end, by the letter."""

    def __init__(self, rom: str, system_seed: int | None, noops: int, training: bool, horizon: int = 27_000):
        self.ale, self.training, self.horizon = boot(rom, system_seed), training, horizon
        self.actions = list(self.ale.getMinimalActionSet())
        noop = ale_py.Action.NOOP
        self.ale.reset_game()
        self.ale.act(noop)
        self.lives = self.ale.lives()
        for _ in range(noops):
            self.ale.act(noop)
        self.counted = 0
        self.stack = [np.zeros((84, 84), np.uint8)] * 3 + [shrink(self.ale.getScreenGrayscale())]

    def step(self, action: int) -> tuple[float, bool, bool]:
        """Raw reward, whether the learner's episode ends, whether the game does."""
        act, score = self.actions[action], 0
        for _ in range(3):
            score += self.ale.act(act)
        before = self.ale.getScreenGrayscale().copy()
        score += self.ale.act(act)
        now = self.ale.lives()
        lost = now < self.lives and now > 0
        if lost:
            self.ale.act(ale_py.Action.NOOP)
            self.lives = self.ale.lives()
        past = self.stack
        if lost and self.training:
            before, past = np.zeros_like(before), [np.zeros((84, 84), np.uint8)] * 4
        newest = np.maximum(before, self.ale.getScreenGrayscale())
        self.stack = [*past[1:], shrink(newest)]
        over = self.ale.game_over() or self.counted >= self.horizon
        self.counted += 1
        return float(score), over or (lost and self.training), over
