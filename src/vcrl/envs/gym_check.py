"""What an environment is like, found by random play: facts only; what follows from them is in `gym_advice.py`."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from vcrl.core.spec import Box, Discrete
from vcrl.envs import gym_calls
from vcrl.envs.gym_adapt import Fault, Fit, actions, layout, pictures, space_words
from vcrl.envs.gym_find import Source
from vcrl.envs.gym_measure import foretold, new_size, unseen_in_gray
from vcrl.envs.gymnasium import REBUILDS, time_limit
from vcrl.envs.pixels import gray, resize

SMALL = (32, 32)  # pixels at which pictures are compared with each other
KEPT = 24  # whole pictures kept for colours
AGAIN = 30  # steps of the first game that are played a second time


class Game(NamedTuple):
    rewards: list[float]
    terminated: bool
    truncated: bool


@dataclass
class Facts:
    """Everything `inspect` found."""

    name: str
    fit: Fit  # what has to be done in any case: render it, or take one entry of a Dict
    observation: str  # the space, in words
    shape: tuple[int, ...]  # of one picture
    layout: str
    frame: tuple[int, int, int]
    dtype: str
    actions: Discrete | Box
    action_words: str
    limit: int | None
    size: tuple[int, int] | None  # to which pictures have to be resized, if so
    games: list[Game] = field(default_factory=list)  # the last one may be open
    faults: list[str] = field(default_factory=list)
    brightest: int = 0
    moved: float = 0.0  # share of steps after which the picture was another one
    motion_lost: float = 0.0  # of those, the share in which the resized picture stayed the same
    unseen_in_gray: float = 0.0  # share of changing pixels that hardly change in gray
    past: tuple[float, float] | None = (
        None  # how well the next picture is foretold by one picture, and by two
    )
    repeats: bool = True  # the same seed and actions gave the same game
    alike: bool = True  # games with different seeds began with the same picture
    step_seconds: float = 0.0
    reset_seconds: float = 0.0

    @property
    def steps(self) -> int:
        return sum(len(game.rewards) for game in self.games)

    @property
    def rewards(self) -> np.ndarray:
        return np.array([r for game in self.games for r in game.rewards])


def inspect(source: Source, steps: int = 500, seed: int = 0) -> Facts:
    """Play `steps` random steps, and some of them again."""
    player = _Player(source, *_first(source), seed)
    try:
        return player.run(steps)
    finally:
        gym_calls.close(player.env)


def _first(source: Source) -> tuple[Any, Fit]:
    """One environment, and what has to be done to get pictures from it."""
    env = source.build(False)
    space, fit = env.observation_space, Fit()
    parts = space.spaces if isinstance(getattr(space, "spaces", None), dict) else {}
    shown = [key for key, part in parts.items() if layout(getattr(part, "shape", None) or ())]
    if shown:
        return env, Fit(key=shown[0])
    shape = getattr(space, "shape", None) or ()
    if len(shape) < 2 or (len(shape) == 2 and min(shape) < 8):  # a state, perhaps as a small matrix
        gym_calls.close(env)
        fit, env = Fit(render=True), source.build(True)
    return env, fit


class _Player:
    def __init__(self, source: Source, env: Any, fit: Fit, seed: int):
        self.source, self.env, self.seed = source, env, seed
        self.see = pictures(source.name, env, env.observation_space, fit)
        space, self.own = actions(source.name, env.action_space)
        self.rng = np.random.default_rng(seed)
        self.facts = Facts(
            source.name,
            fit,
            space_words(env.observation_space),
            self.see.shape,
            str(self.see.layout),
            self.see.frame,
            str(self.see.dtype),
            space,
            _words(env.action_space),
            time_limit(env),
            new_size(self.see.frame),
        )
        self.small: list[np.ndarray] = []  # what was seen before each step
        self.taken: list[np.ndarray] = []
        self.number: list[int] = []  # of the game
        self.whole: list[np.ndarray] = []
        self.openings: list[np.ndarray] = []
        self.first: list[tuple[Any, gym_calls.Came]] = []  # of the first game, to be played again
        self.moves = self.losses = 0
        self.clock = {"reset": [0.0, 0], "step": [0.0, 0]}

    def run(self, steps: int) -> Facts:
        facts, every = self.facts, max(1, steps // KEPT)
        while facts.steps < steps and len(facts.faults) <= REBUILDS:
            before = facts.steps
            try:
                self.play(steps, every)
            except Fault as error:
                self.failed(str(error), facts.steps - before)
        facts.repeats = not self.first or self.plays_again()
        taken = max(1, facts.steps)
        facts.moved, facts.motion_lost = self.moves / taken, self.losses / max(1, self.moves)
        facts.alike = all(np.array_equal(self.openings[0], other) for other in self.openings[1:])
        facts.unseen_in_gray = unseen_in_gray(self.whole)
        if facts.moved > 0:
            facts.past = foretold(np.array(self.small), np.array(self.taken), np.array(self.number))
        facts.reset_seconds, facts.step_seconds = (t / max(1, n) for t, n in self.clock.values())
        return facts

    def play(self, steps: int, every: int) -> None:
        """One game, or what is left to play of it."""
        facts, number = self.facts, len(self.openings)
        seen = self.timed("reset", lambda: gym_calls.reset(self.env, self.see, self.seed + number))
        self.openings.append(seen)
        game = Game([], False, False)
        facts.games.append(game)
        while facts.steps < steps:
            action = self.draw()
            self.small.append(gray(resize(seen, SMALL))[..., 0])
            self.taken.append(np.atleast_1d(action).astype(np.float64))
            self.number.append(number)
            facts.brightest = max(facts.brightest, int(seen.max()))
            if facts.steps % every == 0:
                self.whole.append(seen)
            own = self.own(action)
            came = self.timed("step", lambda own=own: gym_calls.step(self.env, self.see, own))
            game.rewards.append(came.reward)
            if number == 0 and len(self.first) < AGAIN:
                self.first.append((own, came))
            self.compare(seen, came.frame)
            seen = came.frame
            if came.terminated or came.truncated:
                facts.games[-1] = game._replace(terminated=came.terminated, truncated=came.truncated)
                return

    def compare(self, before: np.ndarray, after: np.ndarray) -> None:
        if np.array_equal(before, after):
            return
        self.moves += 1
        size = self.facts.size
        if size is not None and np.array_equal(resize(before, size), resize(after, size)):
            self.losses += 1

    def plays_again(self) -> bool:
        """Whether the first game goes the same way a second time."""
        try:
            frame = gym_calls.reset(self.env, self.see, self.seed)
            if not np.array_equal(frame, self.openings[0]):
                return False
            for action, came in self.first:
                now = gym_calls.step(self.env, self.see, action)
                if not np.array_equal(now.frame, came.frame) or now[1:] != came[1:]:
                    return False
        except Fault as error:
            self.facts.faults.append(f"when a game was played again: {error}")
        return True

    def draw(self) -> Any:
        space = self.facts.actions
        if isinstance(space, Discrete):
            return int(self.rng.integers(space.n))
        return self.rng.uniform(-1, 1, space.size).astype(np.float32)

    def timed(self, what: str, call: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        came = call()
        self.clock[what][0] += time.perf_counter() - start
        self.clock[what][1] += 1
        return came

    def failed(self, error: str, at: int) -> None:
        self.facts.faults.append(
            f"{'at step ' + str(at + 1) + ' of a game' if at else 'at the start of a game'}: {error}"
        )
        gym_calls.close(self.env)
        self.env = self.source.build(self.facts.fit.render)


def _words(space: Any) -> str:
    if type(space).__name__ == "Discrete":
        return f"Discrete({space.n})" + (f" from {space.start}" if space.start else "")
    low, high = (np.unique(bound).tolist() for bound in (space.low, space.high))
    bounds = f"{low[0]:g} to {high[0]:g}" if len(low) == len(high) == 1 else "bounds of their own"
    return f"Box of {int(np.prod(space.shape))}, {bounds}"
