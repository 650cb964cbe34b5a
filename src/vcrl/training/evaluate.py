"""Whole games without exploration, all seeds and many games of each at once."""

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from vcrl.envs.actions import stored_type
from vcrl.envs.again import EVAL_SALT
from vcrl.envs.base import VecEnv
from vcrl.envs.lanes import Finished, game_seed, news_of
from vcrl.training.lift import told
from vcrl.training.plan import Plan

T = TypeVar("T")

NARROWEST = 16  # a batch of fewer games of each seed would gain nothing
WORTH = 1e6  # bytes of pictures that are shown, from which on it pays to compile for fewer seeds


class Trajectory(NamedTuple):
    """One evaluation game as the learner would have seen it."""

    frame: np.ndarray  # T H W C, single frames: stacks are built for those that are looked at
    first: np.ndarray  # T, the frame starts an episode of the learner
    action: np.ndarray  # T
    reward: np.ndarray  # T, as the learner is given it
    terminal: np.ndarray  # T
    ending: np.ndarray  # H W C, the frame behind the last action


class Played(NamedTuple):
    finished: Finished
    trajectory: Trajectory | None
    actions: np.ndarray  # T, or T A: all that is needed to play it again


class Field(NamedTuple):
    """Lanes to play on: the same number for every seed, used again and again."""

    plan: Plan
    env: VecEnv
    act: Callable[..., Any]  # the lifted `play`

    def news(self) -> list[str]:
        return news_of(self.env)


@contextmanager
def fields(plan: Plan, act: Callable[..., Any], teams: Sequence[int]) -> Iterator[list[Field]]:
    """For each team so many lanes a seed, by the rules of evaluation."""
    task, every, envs = plan.task, [len(plan.seeds) * lanes for lanes in teams], list[VecEnv]()
    with ExitStack() as stack:
        together = task.recall(every, plan.protocol) if task.recall else None
        for env in together or (task.make(lanes, plan.protocol, False) for lanes in every):
            stack.callback(env.close)
            envs.append(env)
        yield [Field(plan, env, act) for env in envs]


@contextmanager
def field(plan: Plan, act: Callable[..., Any], lanes: int, training: bool = False) -> Iterator[Field]:
    """`lanes` lanes a seed, by the rules of evaluation, or of training where episodes must be the learner's."""
    if not training:
        with fields(plan, act, [lanes]) as (ground,):
            yield ground
        return
    env = plan.task.make(len(plan.seeds) * lanes, plan.protocol, True)
    try:
        yield Field(plan, env, act)
    finally:
        env.close()


def scores(
    plan: Plan,
    act: Callable[..., Any],
    state: Any,
    episodes: int,
    progress: Callable[[int, int], None] = lambda done, all: None,
    note: Callable[[str], None] = lambda text: None,
) -> list[list[Finished]]:
    """How the first `episodes` evaluation games of every seed ended."""
    found = games(plan, act, state, episodes, progress, note)
    return [[game.finished for game in mine] for mine in found]


def games(
    plan: Plan,
    act: Callable[..., Any],
    state: Any,
    episodes: int,
    progress: Callable[[int, int], None] = lambda done, all: None,
    note: Callable[[str], None] = lambda text: None,
) -> list[list[Played]]:
    """The first `episodes` evaluation games of every seed, as many at once as a seed's protocol has.

    In teams that take turns: the device chooses for one while the games of the other go on.
    """
    lanes, count = min(episodes, plan.protocol.eval_episodes), len(plan.seeds)
    teams, rounds, lock = min(teams_of(plan), lanes), -(-episodes // lanes), threading.Lock()
    over = np.zeros((teams, rounds), int)

    hands = [range(which, lanes, teams) for which in range(teams)]

    def team(which: int, choose: Callable[..., Any]) -> list[Played]:
        ground, found = grounds[which]._replace(act=choose), list[Played]()
        # The last round may be short of games: its lanes play some more, which nobody counts.
        for round in range(rounds):

            def told(done: int, _: int, round: int = round) -> None:
                with lock:
                    over[which, round] = done
                    progress(int(over.sum()), rounds * lanes * count)

            played = play(ground, state, [round * lanes + i for i in hands[which]], progress=told)
            found += itertools.chain(*played)
            with lock:
                for text in ground.news():
                    note(text)
        return found

    with fields(plan, act, [len(hand) for hand in hands]) as grounds:
        found = sorted(
            itertools.chain(*side_by_side(team, teams, act)), key=lambda game: game.finished.episode
        )
    return [[game for game in found if game.finished.seed == seed][:episodes] for seed in plan.seeds]


def teams_of(plan: Plan) -> int:
    """Two where a GPU chooses and emulators play, for minutes; a CPU cannot do both at once.

    Never two with an environment of a user's own, which is promised one thread, the main one, and a deadline that works
    in no other.
    """
    return 2 if jax.default_backend() == "gpu" and plan.task.suite == "atari" else 1


def side_by_side(
    team: Callable[[int, Callable[..., Any]], T], teams: int, act: Callable[..., Any]
) -> list[T]:
    """What every team comes to, each in a thread. When one fails, or nobody waits any more, the others stop."""
    if teams == 1:
        return [team(0, act)]
    stop = threading.Event()

    def choose(*arguments: Any) -> Any:
        if stop.is_set():
            raise CancelledError
        return act(*arguments)

    with ThreadPoolExecutor(teams, "team") as pool:
        begun = [pool.submit(team, which, choose) for which in range(teams)]
        try:
            wait(begun, return_when=FIRST_EXCEPTION)
        finally:
            stop.set()
    # Who was only told to stop comes last, so that the cause is what is raised.
    return [
        one.result() for one in sorted(begun, key=lambda one: isinstance(one.exception(), CancelledError))
    ]


def play(
    ground: Field,
    state: Any,
    episodes: Sequence[int],
    record: bool = False,
    progress: Callable[[int, int], None] = lambda done, all: None,
    most: np.ndarray | None = None,
    who: np.ndarray | None = None,
) -> list[list[Played]]:
    """These games of every seed, side by side, each lane standing still once its game is over.

    None of a seed's has more than its `most` agent steps, where that is said. Where `who` says which seeds play, the
    others have no games.
    """
    plan, env = ground.plan, ground.env
    count, forever = len(plan.seeds), np.iinfo(np.int64).max
    limit = np.minimum(plan.protocol.horizon or forever, forever if most is None else most)
    limit = np.repeat(np.broadcast_to(limit, count), len(episodes))
    episode = np.tile(np.asarray(episodes), count)
    each = np.repeat(plan.seeds, len(episodes))
    seeds = [game_seed(EVAL_SALT, int(s), int(e)) for s, e in zip(each, episode, strict=True)]
    active = np.ones(env.lanes, bool) if who is None else np.repeat(who, len(episodes))
    frame, playing = env.reset(active, np.array(seeds, np.uint64)), np.flatnonzero(active)
    score, length = np.zeros(env.lanes), np.zeros(env.lanes, np.int64)
    first, ticks, ending = np.ones(env.lanes, bool), list[tuple[np.ndarray, ...]](), frame
    taken, narrow = list[np.ndarray](), stored_type(env.spec.actions)
    batch = Batch(ground, state, frame)
    while active.any():
        action = batch.act(frame, first, episode)
        taken.append(action.astype(narrow))
        came = env.step(action, active)
        length += active
        score += np.where(active, came.reward, 0)
        if record:
            ending = np.where(active[:, None, None, None], came.frame, ending)
            tick = (frame, first, action, learner_reward(plan, came.reward), came.terminal)
            ticks.append(tick if who is None else tuple(part[playing] for part in tick))
        frame, first, before = came.frame, came.terminal & active, int(active.sum())
        active = active & ~came.over & (length < limit)
        if active.sum() < before:
            progress(env.lanes - int(active.sum()), env.lanes)
            if active.any():
                batch.narrow(active)
    actions = np.stack(taken)

    found: list[list[Played]] = [[] for _ in plan.seeds]
    for at, lane in enumerate(playing):
        steps = int(length[lane])
        found[lane // len(episodes)].append(
            Played(
                Finished(int(lane), int(each[lane]), int(episode[lane]), float(score[lane]), steps),
                _trajectory(ticks[:steps], at, ending[lane]) if record else None,
                actions[:steps, lane],
            )
        )
    return found


class Batch:
    """What the agents see: stacks that stay on the device, of fewer and fewer seeds and lanes as games end."""

    def __init__(self, ground: Field, state: Any, frame: np.ndarray):
        plan = ground.plan
        self.choose, self.state, self.seeds = ground.act, state, jnp.array(plan.seeds, jnp.int32)
        shape, stack = frame.shape[1:], plan.config.observation.stack
        self.lane = np.arange(len(frame)).reshape(len(plan.seeds), -1)  # which lane each place shows
        self.obs = jnp.zeros((*self.lane.shape, *shape[:-1], shape[-1] * stack), jnp.uint8)
        self.lanes, self.tick, self.worth = len(frame), 0, frame.nbytes > WORTH

    def act(self, frame: np.ndarray, first: np.ndarray, episode: np.ndarray) -> np.ndarray:
        """The action of every lane after its newest frame; of lanes no longer shown, 0."""
        known = told(episode[self.lane], self.tick, first[self.lane])
        # Where every lane is shown they stand in order, and nothing needs to be copied.
        whole = self.lane.size == len(frame)
        shown = frame.reshape(*self.lane.shape, *frame.shape[1:]) if whole else frame[self.lane]
        self.obs, chosen = self.choose(self.state, self.obs, shown, known, self.seeds)
        self.tick += 1
        chosen = np.asarray(chosen)
        action = np.zeros((self.lanes, *chosen.shape[2:]), chosen.dtype)
        action[self.lane] = chosen
        return action

    def narrow(self, active: np.ndarray) -> None:
        """Halve the games of each seed once half would do for the one with most games left, and the seeds once half of
        them have any left. A shape is compiled once, and few are met that way, whatever ends first."""
        left, (seeds, width) = active[self.lane].sum(axis=1), self.lane.shape
        while left.max() <= half(width) >= NARROWEST:
            width = half(width)
        while self.worth and seeds > 1 and (left > 0).sum() <= half(seeds):
            seeds = half(seeds)
        if seeds < len(self.lane):
            # Those with most games left come first, then all in their order.
            shown = np.sort(np.argsort(-left, kind="stable")[:seeds])
            self.lane = self.lane[shown]
            self.state, self.seeds, self.obs = _of((self.state, self.seeds, self.obs), shown)
        if width < self.lane.shape[1]:
            place = np.argsort(~active[self.lane], axis=1, kind="stable")[:, :width]  # the active ones first
            self.lane = np.take_along_axis(self.lane, place, axis=1)
            self.obs = _keep(self.obs, place)


def half(count: int) -> int:
    return -(-count // 2)


@jax.jit
def _of(tree: Any, shown: Any) -> Any:
    return jax.tree.map(lambda x: x[shown], tree)


@jax.jit
def _keep(obs: jax.Array, place: Any) -> jax.Array:
    return jnp.take_along_axis(obs, place[..., None, None, None], axis=1)


def learner_reward(plan: Plan, reward: np.ndarray) -> np.ndarray:
    observation = plan.config.observation
    return observation.scale * (np.sign(reward) if observation.reward == "sign" else reward)


def _trajectory(ticks: list[tuple[np.ndarray, ...]], at: int, ending: np.ndarray) -> Trajectory:
    parts = (np.stack([part[at] for part in parts]) for parts in zip(*ticks, strict=True))
    return Trajectory(*parts, ending=ending)
