"""One Atari game by the protocol of the Atari 100K papers, on ALE's single-emulator interface.

The interface holds Python's lock, so lanes run in processes (`workers.py`). ALE's own vector environment cannot follow
this protocol: it resizes by area, plays no frame after a lost life and cannot be saved.
"""

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vcrl.core.errors import UserError
from vcrl.envs import chance

SKIP = 4  # frames an action is held
SIZE = 84
NOOPS = 30  # at most, and at least 1, frames of doing nothing at the start of a game
SCREEN = (210, 160)
HORIZON = 27_001  # agent steps: the reference stops at 108,000 frames but looks before it counts

# Power-up memory shows in play in these games. The reference resets a running emulator, so that a game depends on all
# games before it; a handful of power-ups stand in for that history, and a game is decided by its seed alone.
POWER_UPS = 16
REMEMBER = (
    "assault", "boxing", "chopper_command", "demon_attack", "freeway", "frostbite", "hero", "private_eye", "seaquest",
)  # fmt: skip


class Rules(NamedTuple):
    """What may differ between two ways of playing one game."""

    lives: bool  # a lost life ends the learner's episode; scores are of whole games either way
    horizon: int = HORIZON  # agent steps after which a game is over
    sticky: float = 0.0  # chance, at every frame, that the emulator repeats the action before


class Start(NamedTuple):
    state: bytes
    lives: int
    frame: np.ndarray  # SIZE x SIZE


class Came(NamedTuple):
    reward: float  # raw, of the frames of this agent step
    terminal: bool
    over: bool


class Emulator:
    """One lane. A game is decided by its seed and the actions."""

    def __init__(self, rom: str, rules: Rules):
        self.rom, self.rules = rom, rules
        self.ale = boot(rom, 0)
        self.actions = minimal_actions(self.ale)
        self._screens = np.zeros((2, *SCREEN), np.uint8)
        self.lives = self.steps = self.held = 0
        self.seed = np.uint64(0)
        self._fresh = True  # no frame has been played

    def reset(self, seed: np.uint64, out: np.ndarray) -> None:
        """A new game: one of the power-ups and 1 to 30 frames of doing nothing, drawn by the seed."""
        start = start_of(self.rom, seed)
        self.go(start.state)
        self.lives, self.steps, self.held, self.seed = start.lives, 0, 0, seed
        out[...] = start.frame

    def step(self, action: int, out: np.ndarray) -> Came:
        """Hold an action for four frames; the newest picture goes to `out`."""
        act, one, two = self._act(self.actions[action]), *self._screens
        reward = sum(act() for _ in range(SKIP - 1))
        self.ale.getScreenGrayscale(one)
        reward += act()
        lives = self.ale.lives()
        lost = 0 < lives < self.lives
        if lost:
            # One frame of doing nothing leads on from the loss; what it pays is dropped. The count of lives moves
            # only here and at a reset, so the loss that follows a bonus life goes unnoticed, as in the reference.
            self._act(0, frame=SKIP)()
            self.lives = self.ale.lives()
        self.ale.getScreenGrayscale(two)
        ended = lost and self.rules.lives
        shrink(two if ended else np.maximum(one, two, out=one), out)
        self.steps += 1
        over = self.ale.game_over() or self.steps >= self.rules.horizon
        return Came(float(reward), bool(ended or over), bool(over))

    def save(self) -> tuple[bytes, np.ndarray]:
        """ALE's state, and our own counters. Not the picture: whoever stacks frames has it."""
        own = np.array([self.lives, self.steps, self.held, int(self.seed)], np.uint64)
        return self.ale.cloneState(include_rng=True).serialize(), own

    def load(self, state: bytes, own: np.ndarray) -> None:
        self.go(state)
        self.lives, self.steps, self.held = (int(x) for x in own[:3])
        self.seed = np.uint64(own[3])

    def go(self, state: bytes) -> None:
        """To a state of ALE's; our own counters stay as they are."""
        if self._fresh:
            # One that has not run a frame since its own reset carries a flag that no state holds; Q*bert shows it.
            self.ale.act(0)
            self._fresh = False
        self.ale.restoreState(ale_library().ALEState(state))

    def _act(self, action: int, frame: int = 0) -> Any:
        """Play one frame; under sticky actions the one before may be held instead, decided by seed and time."""
        if not self.rules.sticky:
            return lambda: self.ale.act(action)
        seed, time = (
            np.full(SKIP + 1, self.seed, np.uint64),
            np.full(SKIP + 1, self.steps + 1),
        )  # time 0 drew the start
        held = iter(chance.unit(seed, time, np.arange(SKIP + 1))[frame:] < self.rules.sticky)

        def sticky() -> int:
            self.held = self.held if next(held) else action
            return self.ale.act(self.held)

        return sticky


def start_of(rom: str, seed: np.uint64) -> Start:
    """Where the game of this seed begins."""
    many = np.array([POWER_UPS if rom in REMEMBER else 1, NOOPS])
    variant, noops = chance.below(many, np.full(2, seed, np.uint64), np.zeros(2), np.arange(2))
    return starts(rom, int(variant))[noops]


@cache
def starts(rom: str, variant: int) -> list[Start]:
    """States after 1, 2, ... 30 frames of doing nothing. Loading a ROM takes 0.1 s, restoring a state a thousandth."""
    ale = boot(rom, variant)
    ale.reset_game()
    ale.act(0)  # lives read wrong in some games before the first frame
    lives, screen, found = ale.lives(), np.zeros(SCREEN, np.uint8), []
    for _ in range(NOOPS):
        ale.act(0)
        assert ale.lives() == lives and not ale.game_over(), f"{rom} loses a life by doing nothing"
        ale.getScreenGrayscale(screen)
        frame = np.zeros((SIZE, SIZE), np.uint8)
        shrink(screen, frame)
        found.append(Start(ale.cloneState(include_rng=True).serialize(), lives, frame))
    return found


def boot(rom: str, variant: int) -> Any:
    """A fresh emulator; `variant` decides what its memory holds at power-up."""
    library = ale_library()
    library.ALEInterface.setLoggerMode(library.LoggerMode.Error)
    ale = library.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)  # ours are keyed by the game's seed
    ale.setInt("random_seed", 1)  # by default the time; nothing reads it, but a saved state holds it
    if variant:
        ale.setInt("system_random_seed", 4753849 + variant)  # variant 0 is ALE's own
    ale.loadROM(rom_path(rom))
    return ale


def minimal_actions(ale: Any) -> list[int]:
    return [action.value for action in ale.getMinimalActionSet()]


def shrink(screen: np.ndarray, out: np.ndarray) -> None:
    """Bilinear to 84 x 84 straight into `out`."""
    import cv2

    cv2.resize(screen, (SIZE, SIZE), dst=out, interpolation=cv2.INTER_LINEAR)


def ale_library() -> Any:
    try:
        import ale_py
        import cv2
    except ImportError as error:
        raise UserError(
            f"Atari needs {error.name}, which is not installed: pip install 'vcrl[atari]'"
        ) from error
    cv2.setNumThreads(0)  # one picture is too small to share out
    return ale_py


def version() -> str:
    return ale_library().__version__


def roms() -> list[str]:
    """Names of the games whose ROM is there, such as kung_fu_master; none where ALE is not installed."""
    found = importlib.util.find_spec("ale_py")
    if found is None or found.origin is None:
        return []
    return sorted(path.stem for path in (Path(found.origin).parent / "roms").glob("*.bin"))


def rom_path(rom: str) -> str:
    path = Path(ale_library().__file__).parent / "roms" / f"{rom}.bin"
    if not path.exists():
        raise UserError(
            f"there is no ROM of {rom} in {path.parent.name}: pip install --force-reinstall ale-py"
        )
    return str(path)
