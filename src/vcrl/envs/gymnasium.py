"""A user's own environment: lanes of any Gymnasium environment, which may crash."""

from typing import Any

import numpy as np

from vcrl.core.errors import UserError
from vcrl.core.spec import EnvSpec
from vcrl.envs import gym_calls
from vcrl.envs.base import Arrays, Step
from vcrl.envs.deadline import Hang, deadline, patience
from vcrl.envs.gym_adapt import Fault, Fit, actions, check_size, pictures
from vcrl.envs.gym_find import Source

REBUILDS = 3  # of one lane, in a row
TOLD = 20  # faults, after which only every doubling is
PROVEN = 1000  # steps of one game after which earlier faults are forgotten


class GymEnv:
    """One environment per lane, stepped in turn in this process.

    An environment that raises, hangs or breaks its promises loses its game and is built again. The lane is marked in
    `lost`, what happened is in `news`. After three in a row it is given up: in evaluation at once; in training `fault`
    says so, and one more step is possible, so that whoever trains can finish a tick and save everything.
    """

    def __init__(self, lanes: int, source: Source, fit: Fit = Fit(), training: bool = True):  # noqa: B008, it is frozen
        self.lanes, self.name, self._source, self._training = lanes, source.name, source, training
        env = source.build(fit.render)
        self.see = pictures(source.name, env, env.observation_space, fit)
        check_size(source.name, self.see.frame, fit)
        space, self._own = actions(source.name, env.action_space)
        limits = [n for n in (time_limit(env), fit.limit) if n is not None]
        self.spec = EnvSpec(self.see.frame, space, min(limits, default=None))
        self._envs = [env, *(source.build(fit.render) for _ in range(lanes - 1))]
        self.news, self.fault, self._left, self._faults = list[str](), "", 1, 0
        self.lost = np.zeros(
            lanes, bool
        )  # of the last step: lanes whose game broke off, without a frame or a reward
        self._dead = np.zeros(lanes, bool)  # until the next reset
        self._over = np.zeros(lanes, bool)
        self._steps = np.zeros(lanes, np.int64)  # since the reset
        self._failures = np.zeros(lanes, np.int64)  # games lost in a row
        self._frame = np.zeros((lanes, *self.spec.frame), np.uint8)  # the last good one of each lane

    def reset(self, which: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        """Start a new game in the lanes where `which`."""
        for lane in np.flatnonzero(which).tolist():
            self._steps[lane], self._over[lane], self._dead[lane] = 0, False, True
            self._frame[lane] = 0
            while self._dead[lane] and not self.fault:
                try:
                    self._frame[lane] = gym_calls.reset(self._envs[lane], self.see, int(seeds[lane]))
                    self._dead[lane] = False
                except Fault as error:
                    self._failed(lane, error)
        return self._frame.copy()

    def step(self, actions: np.ndarray, active: np.ndarray) -> Step:
        """Act in the lanes where `active`."""
        if self.fault:
            self._left -= 1
            if self._left < 0:
                raise UserError(self.fault)
        reward = np.zeros(self.lanes, np.float32)
        terminal, last = np.zeros(self.lanes, bool), np.zeros(self.lanes, bool)
        for lane in np.flatnonzero(active & ~self._dead).tolist():
            self._steps[lane] += 1
            try:
                reward[lane], terminal[lane], last[lane] = self._act(lane, actions[lane])
            except Fault as error:
                self._failed(lane, error)
        self.lost = active & self._dead
        last |= self.lost
        self._over |= last
        self._failures[active & ~self.lost & (last | (self._steps >= PROVEN))] = 0
        return Step(self._frame.copy(), reward, terminal, last, last.copy())

    def save(self) -> Arrays | None:
        """None: what is inside a foreign environment is not known, so open games are played again."""
        return None

    def load(self, arrays: Arrays) -> None:
        raise ValueError("a Gymnasium environment has no saved state; replay its actions instead")

    def close(self) -> None:
        """Free windows, files and processes the environments hold."""
        for env in self._envs:
            gym_calls.close(env)

    def _act(self, lane: int, action: Any) -> tuple[float, bool, bool]:
        if self._over[lane]:  # only when a game is played again from its actions
            raise Fault("with the same seed and actions its game ended earlier, so it cannot be resumed")
        came = gym_calls.step(self._envs[lane], self.see, self._own(action))
        self._frame[lane] = came.frame
        limit = self.see.fit.limit
        cut = came.truncated or (limit is not None and self._steps[lane] >= limit)
        return came.reward, came.terminated, bool(came.terminated or cut)

    def _failed(self, lane: int, error: Fault) -> None:
        """Give the game up and build the environment again, or give up altogether."""
        self._dead[lane] = True
        self._failures[lane] += 1
        at = f"at step {self._steps[lane]} of its game" if self._steps[lane] else "in reset"
        if self._failures[lane] > REBUILDS:
            self._give_up(
                f"{self.name} failed {self._failures[lane]} times in a row in lane {lane}, the last time {at}: "
                f"{error}; what was learned is saved: mend the environment and run the same command again"
            )
            return
        self._faults += 1
        dropped = "the game is dropped and " if self._training else "the game counts as far as it went and "
        many = "" if self._faults <= TOLD else f"; {self._faults} faults so far, of which few are told"
        # A run may have thousands, and its status keeps all that is told.
        if self._faults <= TOLD or self._faults.bit_count() == 1:
            self.news.append(
                f"{self.name} failed in lane {lane} {at}: {error}; {dropped if self._steps[lane] else ''}the "
                f"environment is built again ({self._failures[lane]} of {REBUILDS} in a row){many}"
            )
        gym_calls.close(self._envs[lane])
        try:
            with deadline(patience()):
                self._envs[lane] = self._source.build(self.see.fit.render)
        except (UserError, Hang) as again:
            self._give_up(f"{self.name} failed and cannot be built again: {again}")

    def _give_up(self, why: str) -> None:
        self.fault = why
        if not self._training:
            raise UserError(why)


def time_limit(env: Any) -> int | None:
    """Steps after which the environment itself cuts a game."""
    limit = getattr(getattr(env, "spec", None), "max_episode_steps", None)
    while limit is None and env is not getattr(env, "env", env):
        limit, env = getattr(env, "_max_episode_steps", None), env.env  # a TimeLimit of an unregistered one
    return None if limit is None else int(limit)
