"""A user's own environment: any registered Gymnasium environment that shows small uint8 images."""

import importlib
from difflib import get_close_matches
from typing import Any

import numpy as np

from vcrl.core.errors import UserError
from vcrl.core.spec import Discrete, EnvSpec
from vcrl.envs.base import Arrays, Step

SMALLEST, LARGEST = 16, 128  # pixels on a side that the encoders are made for


class GymEnv:
    """One Gymnasium environment per lane, stepped in turn in this process."""

    def __init__(self, lanes: int, module: str | None, name: str):
        library = _library()
        _register(library, module, name)
        self.lanes, self.name = lanes, name
        env = _make(library, name)
        self._start, self._shape = _first_action(library, env, name), env.observation_space.shape
        limit = getattr(env.spec, "max_episode_steps", None)
        self.spec = EnvSpec(_frame_shape(library, env, name), Discrete(int(env.action_space.n)), limit)
        self._envs = [env, *(_make(library, name) for _ in range(lanes - 1))]
        self._steps = np.zeros(lanes, np.int64)  # since the reset, to say where an environment failed

    def reset(self, which: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        """Start a new game in the lanes where `which`; Gymnasium takes 31 bits of the seed."""
        frames = np.zeros((self.lanes, *self.spec.frame), np.uint8)
        for lane in np.flatnonzero(which).tolist():
            self._steps[lane] = 0
            frame, _ = self._call(lane, 2, self._envs[lane].reset, seed=int(seeds[lane]) % 2**31)
            frames[lane] = self._picture(lane, frame)
        return frames

    def step(self, actions: np.ndarray, active: np.ndarray) -> Step:
        """Act in the lanes where `active`."""
        frames = np.zeros((self.lanes, *self.spec.frame), np.uint8)
        reward = np.zeros(self.lanes, np.float32)
        terminated, truncated = np.zeros(self.lanes, bool), np.zeros(self.lanes, bool)
        for lane in np.flatnonzero(active).tolist():
            self._steps[lane] += 1
            came = self._call(lane, 5, self._envs[lane].step, int(actions[lane]) + self._start)
            frame, reward[lane], terminated[lane], truncated[lane], _ = came
            if not np.isfinite(reward[lane]):
                raise UserError(
                    f"{self.name} gave the reward {came[1]} in lane {lane} at step {self._steps[lane]} of its game: "
                    "rewards must be finite numbers"
                )
            frames[lane] = self._picture(lane, frame)
        last = terminated | truncated
        return Step(frames, reward, terminated, last, last.copy())

    def save(self) -> Arrays | None:
        """None: what is inside a foreign environment is not known, so open games are played again."""
        return None

    def load(self, arrays: Arrays) -> None:
        raise ValueError("a Gymnasium environment has no saved state; replay its actions instead")

    def close(self) -> None:
        """Free windows, files and processes the environments hold."""
        for env in self._envs:
            env.close()

    def _call(self, lane: int, parts: int, method: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            came = method(*args, **kwargs)
        except Exception as error:
            raise UserError(
                f"{self.name} failed in lane {lane} at step {self._steps[lane]} of its game: {_told(error)}; "
                "fix the environment and run again"
            ) from error
        if not isinstance(came, tuple) or len(came) != parts:
            raise UserError(
                f"{self.name} must return {parts} values here, as Gymnasium 1.0 has it: "
                "frame, info from reset; frame, reward, terminated, truncated, info from step"
            )
        return came

    def _picture(self, lane: int, frame: Any) -> np.ndarray:
        # Assigning would quietly round floats and broadcast a wrong shape.
        frame = np.asarray(frame)
        if frame.dtype != np.uint8 or frame.shape != self._shape:
            raise UserError(
                f"{self.name} gave {frame.dtype} {frame.shape} in lane {lane} at step {self._steps[lane]} of "
                "its game, not the uint8 image its observation_space promises: fix the environment"
            )
        return frame.reshape(self.spec.frame)


def parse(task: str) -> tuple[str | None, str]:
    """`gym:module:Name-v0` or `gym:Name-v0` as the module to import, if any, and the registered name."""
    _, _, rest = task.partition(":")
    module, _, name = rest.rpartition(":")
    if not name:
        raise UserError(f"task '{task}' names no environment: write gym:Name-v0 or gym:module:Name-v0")
    return module or None, name


def _library() -> Any:
    try:
        import gymnasium
    except ImportError as error:
        raise UserError("Gymnasium is not installed: pip install 'vcrl[gym]'") from error
    return gymnasium


def _register(library: Any, module: str | None, name: str) -> None:
    """Import the module that registers the name, and check that it did."""
    if module is not None:
        try:
            importlib.import_module(module)
        except Exception as error:  # a user's module may fail in any way while it is imported
            raise UserError(
                f"cannot import '{module}', which should register {name}: {_told(error)}; install it or add "
                "its folder to PYTHONPATH"
            ) from error
    if name not in library.registry:
        near = get_close_matches(name, list(library.registry), n=3, cutoff=0.5)
        told = f"did you mean {' or '.join(near)}?" if near else "no registered name is near."
        raise UserError(
            f"unknown Gymnasium environment '{name}': {told} "
            "Write gym:module:Name-v0 with the module whose import registers it."
        )


def _make(library: Any, name: str) -> Any:
    try:
        # The checks below are ours; the library's checker would repeat its own at every step.
        return library.make(name, disable_env_checker=True)
    except Exception as error:  # the constructor is a user's code
        raise UserError(
            f"cannot build {name}: {_told(error)}; gymnasium.make('{name}') has to work"
        ) from error


def _first_action(library: Any, env: Any, name: str) -> int:
    space = env.action_space
    if not isinstance(space, library.spaces.Discrete):
        raise UserError(
            f"actions of {name} are {_space(space)}, only Discrete is supported: "
            "wrap it in gymnasium.wrappers.TransformAction with a Discrete space"
        )
    return int(space.start)


def _frame_shape(library: Any, env: Any, name: str) -> tuple[int, int, int]:
    space = env.observation_space
    image = isinstance(space, library.spaces.Box) and space.dtype == np.uint8
    if not image or not (len(space.shape) == 2 or (len(space.shape) == 3 and space.shape[2] in (1, 3))):
        raise UserError(
            f"observations of {name} are {_space(space)}, not uint8 images (H, W), (H, W, 1) or (H, W, 3): "
            "wrap it in gymnasium.wrappers.AddRenderObservation, or TransformObservation if it has an image"
        )
    height, width = (int(n) for n in space.shape[:2])
    if max(height, width) > LARGEST or min(height, width) < SMALLEST:
        raise UserError(
            f"images of {name} are {height} x {width}, sides must be {SMALLEST} to {LARGEST} pixels: "
            "wrap it in gymnasium.wrappers.ResizeObservation(env, (84, 84))"
        )
    return height, width, int(space.shape[2]) if len(space.shape) == 3 else 1


def _space(space: Any) -> str:
    """A space in a few words: printing a Box prints its bounds, over several lines."""
    return f"{type(space).__name__} of {space.dtype} {space.shape}"


def _told(error: Exception) -> str:
    """An exception on one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
