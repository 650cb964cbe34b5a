"""DeepMind Control from pixels: tasks by name, and lanes of simulators that share one camera."""

import importlib.util
import logging
import re
import warnings
from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from vcrl.core.errors import UserError
from vcrl.core.spec import Box, EnvSpec
from vcrl.envs import rendering
from vcrl.envs.actions import ActionLog
from vcrl.envs.base import Arrays, Step, VecEnv
from vcrl.envs.rendering import Camera
from vcrl.envs.workers import spread

STEPS = 1000  # env steps of an episode, in every task

# Env steps an action is held: those of PlaNet, which the benchmark's papers take; 4 elsewhere.
REPEATS = {
    "finger-spin": 2, "cartpole-swingup": 8, "reacher-easy": 4, "cheetah-run": 4, "walker-walk": 2,
    "ball_in_cup-catch": 4,
}  # fmt: skip

# Action sizes and tasks of each domain of the suite, so that naming a task needs no simulator. Without `lqr`, whose
# actions have no bounds and whose episodes have no limit.
DOMAINS = {
    "acrobot": (1, "swingup swingup_sparse"),
    "ball_in_cup": (2, "catch"),
    "cartpole": (1, "balance balance_sparse swingup swingup_sparse two_poles three_poles"),
    "cheetah": (6, "run"),
    "dog": (38, "stand walk trot run fetch"),
    "finger": (2, "spin turn_easy turn_hard"),
    "fish": (5, "upright swim"),
    "hopper": (4, "stand hop"),
    "humanoid": (21, "stand walk run run_pure_state"),
    "humanoid_CMU": (56, "stand walk run"),
    "manipulator": (5, "bring_ball bring_peg insert_ball insert_peg"),
    "pendulum": (1, "swingup"),
    "point_mass": (2, "easy hard"),
    "quadruped": (12, "walk run escape fetch"),
    "reacher": (2, "easy hard"),
    "stacker": (5, "stack_2 stack_4"),
    "swimmer": (5, "swimmer6"),
    "walker": (6, "stand walk run"),
}
ACTIONS = {f"{domain}-{task}": size for domain, (size, tasks) in DOMAINS.items() for task in tasks.split()}
ACTIONS["swimmer-swimmer15"] = 14


class Came(NamedTuple):
    reward: float  # raw, of the env steps of this agent step
    terminal: bool
    over: bool


class Game:
    """One simulator. A game is decided by its seed and the actions."""

    def __init__(self, task: str, repeat: int):
        self.env, self._diverged = _load(task)
        self.repeat = repeat
        bounds = self.env.action_spec()
        self._low, self._range = bounds.minimum, bounds.maximum - bounds.minimum

    def reset(self, seed: np.uint64) -> None:
        # Every task draws all that differs between games here, and overwrites what it changed in its model.
        self.env.task.random.seed([int(seed) & 0xFFFFFFFF, int(seed) >> 32])
        self.env.reset()

    def step(self, action: np.ndarray) -> Came:
        """Hold an action, in [-1, 1], for a few env steps or until the episode ends."""
        # A lane whose agent is no longer finite must not take the others down with it.
        action = np.nan_to_num(np.clip(action.astype(np.float64), -1, 1))
        control, reward = self._low + (action + 1) / 2 * self._range, 0.0
        for _ in range(self.repeat):
            try:
                came = self.env.step(control)
            except self._diverged:
                return Came(reward, False, True)  # cut, as if time were up; MuJoCo puts the model back
            reward += came.reward
            if came.last():
                # Where time is up the discount is 1, and where the task itself ends it is 0.
                return Came(reward, bool(came.discount == 0), True)
        return Came(reward, False, False)


class DmcEnv:
    """Lanes in this process. They share the camera and nothing else.

    What is saved is the seed and the actions of each open game. Played again without pictures they give the same state
    to the bit, whatever a task keeps outside its physics, at a few thousand steps a second.
    """

    def __init__(self, lanes: int, task: str, size: int, repeat: int):
        self.spec, self.lanes, self._size = spec_of(task, size, repeat), lanes, ACTIONS[task]
        self._games = [Game(task, repeat) for _ in range(lanes)]
        self._camera = Camera(self._games[0].env.physics.model.ptr, size)
        self._seeds, self._log = np.zeros(lanes, np.uint64), ActionLog(lanes, self.spec.actions)
        # One lane after the other writes into these; what is handed out is a copy.
        self._frame = np.zeros((lanes, *self.spec.frame), np.uint8)
        self._reward = np.zeros(lanes, np.float32)
        self._terminal, self._over = np.zeros(lanes, bool), np.zeros(lanes, bool)

    def reset(self, which: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        self._log.clear(which)
        self._seeds[which] = seeds[which]
        for lane in np.flatnonzero(which).tolist():
            self._games[lane].reset(seeds[lane])
            self._show(lane)
        return self._frame.copy()

    def step(self, actions: np.ndarray, active: np.ndarray) -> Step:
        self._log.append(actions, active)
        for lane in np.flatnonzero(active).tolist():
            came = self._games[lane].step(actions[lane])
            self._reward[lane], self._terminal[lane], self._over[lane] = came
            self._show(lane)
        over = self._over.copy()
        return Step(self._frame.copy(), self._reward.copy(), self._terminal.copy(), over, over.copy())

    def save(self) -> Arrays:
        # A row a lane, since a worker's lanes are saved and loaded by rows.
        length, size = self._log.length.copy(), self._size
        actions = np.zeros((self.lanes, int(length.max()) * size), np.float32)
        for lane, n in enumerate(length):
            actions[lane, : n * size] = self._log.of(lane).ravel()
        versions = np.tile(np.frombuffer(_versions().encode().ljust(64), np.uint8), (self.lanes, 1))
        return {"seed": self._seeds.copy(), "length": length, "actions": actions, "versions": versions}

    def load(self, arrays: Arrays) -> None:
        saved = bytes(arrays["versions"][0]).decode().strip()
        if saved != _versions():
            raise UserError(
                f"the games were saved with {saved} and this is {_versions()}: they may go on otherwise; pip install "
                f"{saved} to continue, or delete the run's folder to start again"
            )
        length, size = arrays["length"], self._size
        played = [row[: n * size].reshape(n, size) for row, n in zip(arrays["actions"], length, strict=True)]
        self._log.load(np.concatenate(played), length)
        self._seeds = np.array(arrays["seed"])
        for game, seed, actions in zip(self._games, self._seeds, played, strict=True):
            game.reset(seed)
            for action in actions:
                game.step(action)

    def close(self) -> None:
        self._camera.close()
        self._games = []

    def _show(self, lane: int) -> None:
        physics = self._games[lane].env.physics
        self._camera.take(physics.model.ptr, physics.data.ptr, self._frame[lane])


def spec_of(task: str, size: int, repeat: int) -> EnvSpec:
    return EnvSpec((size, size, 3), Box(ACTIONS[task]), -(-STEPS // repeat), repeat, fixed=task in REPEATS)


def make(lanes: int, task: str, size: int, repeat: int) -> VecEnv:
    """Lanes over the cores of this machine, by whatever renders here."""
    for package in ("dm_control", "mujoco"):
        if importlib.util.find_spec(package) is None:
            raise UserError(
                f"DeepMind Control needs {package}, which is not installed: pip install 'vcrl[dmc]'"
            )
    rendering.choose()
    build = partial(DmcEnv, task=task, size=size, repeat=repeat)
    return spread(build, spec_of(task, size, repeat), lanes)


def plain(name: str) -> str | None:
    """The plain name of a task of the suite, as ball_in_cup-catch, of any usual spelling.

    Such are BallInCupCatch, ball_in_cup_catch, dmc:ball-in-cup-catch and, as the papers have it, cup-catch.
    """
    bare = _letters(re.sub(r"^(dmc|dm_control)[:/]", "", name.lower()))
    known = {_letters(task): task for task in ACTIONS}
    return known.get("ballincupcatch" if bare == "cupcatch" else bare)


def repeat_of(task: str) -> int:
    """Env steps an action is held."""
    return REPEATS.get(task, 4)


def _load(task: str) -> tuple[Any, type[Exception]]:
    """One environment of the suite, and what it raises when its physics diverge."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what dm_control imports
        from dm_control import suite
        from dm_control.rl.control import PhysicsError
    # MuJoCo finds words of the suite's own models out of date, and says so again for every lane.
    log, (domain, _, name) = logging.getLogger("absl"), task.partition("-")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        env = suite.load(domain, name)
    finally:
        log.setLevel(before)
    # One task asks for a context of dm_control's at every reset, which would be one a lane and in the camera's way.
    physics = env.physics
    physics.__class__ = type("Physics", (type(physics),), {"contexts": None})
    return env, PhysicsError


def _letters(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


def _versions() -> str:
    return f"dm_control=={version('dm_control')} mujoco=={version('mujoco')}"
