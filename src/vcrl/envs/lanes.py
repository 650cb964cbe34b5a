"""Episodes for every environment: resets by address, stacks, pads, raw scores, actions of open games."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vcrl.core.errors import UserError
from vcrl.envs.actions import ActionLog, action_type
from vcrl.envs.base import Arrays, Step, VecEnv, lost_of

# What is saved under its own name; the actions and the simulator are saved apart.
_SAVED = ("obs", "first", "pad", "episode", "score", "agent_steps")


class LaneRow(NamedTuple):
    """`core.types.Row` for all lanes, on the host, where nothing of JAX is imported."""

    frame: np.ndarray  # uint8 L H W C, the newest frame before acting
    action: np.ndarray  # int32 L or float32 L A
    reward: np.ndarray  # float32 L, raw
    terminal: np.ndarray  # bool L
    first: np.ndarray  # bool L, the frame starts an episode
    pad: np.ndarray  # bool L, the frame ends a truncated episode and nothing was done on it


class Finished(NamedTuple):
    """One whole game: all lives, raw rewards, agent steps."""

    lane: int
    seed: int
    episode: int
    score: float
    length: int


class Tick(NamedTuple):
    row: LaneRow
    finished: list[Finished]


def game_seed(salt: int, seed: int, episode: int) -> np.uint64:
    """The seed of one game, from its address alone."""
    return np.random.SeedSequence([salt, seed, episode]).generate_state(1, np.uint64)[0]


def moved_up(obs: np.ndarray, newest: np.ndarray) -> np.ndarray:
    """Stacks without their oldest frames and with their newest ones.

    All bytes move up as one run, and what enters a pixel from its neighbour is overwritten: ten times as fast as moving
    pixel by pixel.
    """
    channels, out = newest.shape[-1], np.empty(obs.shape, obs.dtype)
    out.reshape(-1)[:-channels] = obs.reshape(-1)[channels:]
    out[..., -channels:] = newest
    return out


def news_of(env: VecEnv) -> list[str]:
    """What an environment has to say since it was last asked, such as a process it had to start again."""
    said: list[str] = getattr(env, "news", [])
    fresh = said.copy()
    said.clear()
    return fresh


class Lanes:
    """One lane per entry of `seeds`, each playing its games `episode`, `episode + 1`, ... forever.

    Arrays given out are never written to again, so they can be handed to a device without a copy.
    """

    def __init__(
        self,
        env: VecEnv,
        seeds: Sequence[int],
        stack: int,
        salt: int = 0,
        episodes: Sequence[int] | None = None,
        fill: str = "zeros",
    ):
        if len(seeds) != env.lanes or (episodes is not None and len(episodes) != env.lanes):
            raise ValueError(
                f"{env.lanes} lanes, {len(seeds)} seeds, episodes {episodes}: one of each per lane"
            )
        self.env, self.seeds, self.salt, self.fill = env, [int(s) for s in seeds], int(salt), fill
        lanes = env.lanes
        height, width, self._channels = env.spec.frame
        self._action_shape, self._action_dtype = action_type(env.spec.actions)
        self.episode = np.array([0] * lanes if episodes is None else episodes, np.int64)
        self.score = np.zeros(lanes, np.float64)  # raw rewards of the open game
        self.agent_steps = np.zeros(lanes, np.int64)
        self.first = np.ones(lanes, bool)
        self.pad = np.zeros(lanes, bool)
        self._log = ActionLog(lanes, env.spec.actions)
        self.obs = np.zeros((lanes, height, width, self._channels * stack), np.uint8)
        self.obs[..., -self._channels :] = env.reset(self.first, self._game_seeds(self.first))
        self._fill()

    def step(self, actions: np.ndarray) -> Tick:
        """Act on `obs` in all lanes but those at a pad, which write their final frame and then start anew."""
        played, ending, starting = ~self.pad, self.pad, self.first
        actions = self._checked(actions)
        came = self.env.step(actions, played)
        # A game that broke off ends as if cut at its last frame: on that nothing was done, so this row is its pad.
        lost = lost_of(self.env) & played
        played, ending = played & ~lost, ending | lost
        actions[lost] = 0
        frame = np.ascontiguousarray(self.obs[..., -self._channels :])
        reward = np.where(played, came.reward, 0).astype(np.float32)
        terminal, over = came.terminal & played, came.over & played
        self._count(actions, reward, played)
        finished = [self.game(int(lane)) for lane in np.flatnonzero(over)]
        self._next(came, terminal, over, played)
        return Tick(LaneRow(frame, actions, reward, terminal, starting, ending), finished)

    def turn(self) -> LaneRow:
        """Where all lanes are at their pads: write the final frames, and start anew."""
        assert self.pad.all(), "a lane is still playing"
        return self.step(np.zeros((self.env.lanes, *self._action_shape), self._action_dtype)).row

    def close(self) -> None:
        self.env.close()

    @property
    def length(self) -> np.ndarray:
        """Agent steps of each open game."""
        return self._log.length

    def actions(self, lane: int) -> np.ndarray:
        """The actions of a lane's open game so far."""
        return self._log.of(lane)

    def news(self) -> list[str]:
        return news_of(self.env)

    def save(self) -> Arrays:
        """Everything, as a flat dict of arrays."""
        out = {f"lanes/{name}": getattr(self, name).copy() for name in _SAVED}
        out["lanes/games"] = self._games()
        out |= {"lanes/actions": self._log.save(), "lanes/length": self.length.copy()}
        return out | {f"env/{name}": value for name, value in (self.env.save() or {}).items()}

    def load(self, arrays: Arrays) -> None:
        """Continue from what `save` gave; a simulator that was not saved plays its open games again."""
        if not np.array_equal(arrays["lanes/games"], self._games()):
            raise UserError(
                f"the saved environment has salt and seeds {arrays['lanes/games'].tolist()}, "
                f"this one {self._games().tolist()}: resume with the seeds of the run"
            )
        for name in _SAVED:
            setattr(self, name, np.array(arrays[f"lanes/{name}"]))
        self._log.load(arrays["lanes/actions"], arrays["lanes/length"])
        simulator = {name.removeprefix("env/"): a for name, a in arrays.items() if name.startswith("env/")}
        if simulator:
            self.env.load(simulator)
        else:
            self._replay()

    def _checked(self, actions: np.ndarray) -> np.ndarray:
        actions = np.array(actions, self._action_dtype)
        if actions.shape != (self.env.lanes, *self._action_shape):
            raise ValueError(
                f"actions of shape {actions.shape} for {self.env.lanes} lanes of {self.env.spec.actions}"
            )
        actions[self.pad] = 0
        return actions

    def _count(self, actions: np.ndarray, reward: np.ndarray, played: np.ndarray) -> None:
        self._log.append(actions, played)
        self.score = self.score + reward
        self.agent_steps = self.agent_steps + played

    def game(self, lane: int) -> Finished:
        """A lane's game as it stands."""
        score, length = float(self.score[lane]), int(self.length[lane])
        return Finished(lane, self.seeds[lane], int(self.episode[lane]), score, length)

    def _next(self, came: Step, terminal: np.ndarray, over: np.ndarray, played: np.ndarray) -> None:
        # A game that terminated, or whose pad was written, is followed by the next; a lost life is no end.
        begins = (terminal & over) | ~played
        newest = came.frame
        if begins.any():
            self.episode = self.episode + begins
            self.score = np.where(begins, 0, self.score)
            self._log.clear(begins)
            opening = self.env.reset(begins, self._game_seeds(begins))
            newest = np.where(begins[:, None, None, None], opening, newest)
        self.first = begins | terminal
        self.pad = came.last & ~came.terminal & played
        self.obs = moved_up(self.obs, newest)
        self._fill()

    def _fill(self) -> None:
        """What stands before an episode's first frame."""
        stack = self.obs.shape[-1] // self._channels
        newest = self.obs[self.first, ..., -self._channels :]
        past = np.tile(newest, stack - 1) if self.fill == "first" else 0
        self.obs[self.first, ..., : -self._channels] = past

    def _game_seeds(self, which: np.ndarray) -> np.ndarray:
        seeds = np.zeros(self.env.lanes, np.uint64)
        for lane in np.flatnonzero(which):
            seeds[lane] = game_seed(self.salt, self.seeds[lane], int(self.episode[lane]))
        return seeds

    def _games(self) -> np.ndarray:
        return np.array([self.salt, *self.seeds], np.uint64)

    def _replay(self) -> None:
        # A lane at its pad is reset before it is stepped again, so its game need not be played.
        open_game = ~self.pad
        self.env.reset(open_game, self._game_seeds(open_game))
        for at in range(int(self.length[open_game].max(initial=0))):
            actions, took = self._log.at(at)
            self.env.step(actions, open_game & took)
