"""Checks every adapter passes; each of CHECKS takes what builds one, given the lanes."""

from collections.abc import Callable
from typing import Any

import numpy as np

from vcrl.core.spec import Discrete
from vcrl.envs.base import Step, VecEnv

Make = Callable[[int], VecEnv]
SEEDS = np.array([11, 2**63 + 5, 3, 11, 77], np.uint64)  # two alike
LIMIT = 80  # steps after which a game is left open


def some_actions(env: VecEnv, steps: int, lanes: int, seed: int = 0) -> np.ndarray:
    """Random actions, steps x lanes, of the kind the environment takes."""
    rng, space = np.random.default_rng(seed), env.spec.actions
    if isinstance(space, Discrete):
        return rng.integers(space.n, size=(steps, lanes), dtype=np.int32)
    return rng.uniform(-1, 1, (steps, lanes, space.size)).astype(np.float32)


def advance(env: VecEnv, games: list[list[Any]], actions: np.ndarray, pause: float = 0.0) -> None:
    """Append to `games`: every lane plays its actions until its game is over, pausing at random."""
    rng, at = np.random.default_rng(1), np.zeros(env.lanes, int)
    over = np.zeros(env.lanes, bool)
    while (~over & (at < len(actions))).any():
        active = ~over & (at < len(actions)) & (rng.random(env.lanes) >= pause)
        came = env.step(actions[np.minimum(at, len(actions) - 1), np.arange(env.lanes)], active)
        for lane in np.flatnonzero(active):
            games[lane].append([x[lane].copy() for x in came])
        at += active
        over |= active & came.over


def play(env: VecEnv, seeds: np.ndarray, actions: np.ndarray, pause: float = 0.0) -> list[list[Any]]:
    """Whole games, one per lane: the first frame, then what every step gave."""
    frames = env.reset(np.ones(env.lanes, bool), seeds)
    games: list[list[Any]] = [[[frame.copy()]] for frame in frames]
    advance(env, games, actions, pause)
    return games


def same(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all(
        np.array_equal(x, y) for p, q in zip(a, b, strict=True) for x, y in zip(p, q, strict=True)
    )


def check_dtypes_and_shapes(make: Make) -> None:
    env = make(5)
    frames = env.reset(np.ones(5, bool), SEEDS)
    came = env.step(some_actions(env, 1, 5)[0], np.ones(5, bool))
    assert env.lanes == 5 and isinstance(came, Step)
    for frame in (frames, came.frame):
        assert frame.shape == (5, *env.spec.frame) and frame.dtype == np.uint8
    assert came.reward.shape == (5,) and came.reward.dtype == np.float32
    for flag in came[2:]:
        assert flag.shape == (5,) and flag.dtype == bool


def check_seeding(make: Make) -> None:
    actions = np.repeat(some_actions(make(1), LIMIT, 1), 5, axis=1)
    games = play(make(5), SEEDS, actions)
    assert same(games[0], games[3]), "the same seed and actions give the same game"
    assert not same(games[0], games[1]) and not same(games[0], games[2]) and not same(games[1], games[2])
    env = make(5)
    play(env, SEEDS[::-1], some_actions(env, 3, 5, seed=4))
    for again, game in zip(play(env, SEEDS, actions), games, strict=True):
        assert same(again, game), "a reset forgets what was before"


def check_lanes_are_independent(make: Make) -> None:
    actions = some_actions(make(1), LIMIT, 5)
    together = play(make(5), SEEDS, actions)
    paused = play(make(5), SEEDS, actions, pause=0.4)
    for lane in range(5):
        alone = play(make(1), SEEDS[[lane]], actions[:, [lane]])[0]
        assert same(alone, together[lane]), "the other lanes do not matter"
        assert same(alone, paused[lane]), "inactive lanes stay as they are"


def check_reset_touches_only_its_lanes(make: Make) -> None:
    actions = some_actions(make(1), LIMIT, 5)
    env, which = make(5), np.array([True, False, True, False, False])
    games = play(env, SEEDS, actions[:2])
    fresh = env.reset(which, SEEDS + np.uint64(1))
    for lane in np.flatnonzero(which):
        games[lane] = [[fresh[lane].copy()]]
    late = actions.copy()
    late[:-2, ~which] = actions[2:, ~which]
    advance(env, games, late[:-2])
    whole = play(make(5), np.where(which, SEEDS + np.uint64(1), SEEDS), actions)
    for lane in range(5):
        expected = whole[lane][: len(games[lane])]
        assert len(games[lane]) > 3 and same(games[lane], expected)


def check_ends(make: Make) -> None:
    ends = 0
    for seed in range(4):
        env = make(5)
        for game in play(env, SEEDS, some_actions(env, LIMIT, 5, seed)):
            for _, _, terminal, last, over in game[1:]:
                assert last or not (terminal or over), "what is terminal or over is also the last"
            assert not any(step[-1] for step in game[1:-1]), "a game is over once"
            assert env.spec.horizon is None or len(game) <= env.spec.horizon + 1
            ends += bool(game[-1][-1])
    assert ends > 0, "some games are played to their end"


def check_resuming(make: Make) -> None:
    actions = some_actions(make(1), LIMIT, 5)
    for cut in (1, 3, 5):
        env, other = make(5), make(5)
        before = play(env, SEEDS, actions[:cut])
        saved = env.save()
        copies = None if saved is None else {name: value.copy() for name, value in saved.items()}
        rest: list[list[Any]] = [[] for _ in SEEDS]
        advance(env, rest, actions[cut:])
        if saved is None or copies is None:
            assert all(same(a, b) for a, b in zip(before, play(other, SEEDS, actions[:cut]), strict=True))
        else:
            assert all(np.array_equal(saved[name], copies[name]) for name in copies), "a save is a copy"
            play(other, SEEDS + np.uint64(9), some_actions(other, 2, 5, seed=8))
            other.load(copies)
        resumed: list[list[Any]] = [[] for _ in SEEDS]
        advance(other, resumed, actions[cut:])
        assert sum(map(len, rest)) > 0
        assert all(same(a, b) for a, b in zip(rest, resumed, strict=True))


CHECKS = (
    check_dtypes_and_shapes,
    check_seeding,
    check_lanes_are_independent,
    check_reset_touches_only_its_lanes,
    check_ends,
    check_resuming,
)
