import numpy as np
import pytest
from conformance import CHECKS

from vcrl.core.spec import Box, Discrete
from vcrl.envs import toy
from vcrl.envs.base import Step
from vcrl.envs.toy import Balloon, Catch, Reach, Snow, ToyGame

GAMES = (Catch, Balloon, Snow, Reach)


def started(game: type[ToyGame], lanes: int, first_seed: int = 0) -> tuple[ToyGame, np.ndarray]:
    env = game(lanes)
    seeds = np.arange(first_seed, first_seed + lanes, dtype=np.uint64)
    return env, env.reset(np.ones(lanes, bool), seeds)


def act(env: ToyGame, actions: np.ndarray | int) -> Step:
    return env.step(np.broadcast_to(np.asarray(actions, np.int32), env.lanes), np.ones(env.lanes, bool))


def small(frame: np.ndarray) -> np.ndarray:
    """Pictures of cells back to one value per cell."""
    return frame[:, ::2, ::2, 0]


def scores(game: type[ToyGame], policy, lanes: int) -> np.ndarray:
    """One whole game per lane."""
    env, frame = started(game, lanes)
    total = np.zeros(lanes)
    for _ in range(env.spec.horizon):
        came = env.step(policy(env, frame), np.ones(lanes, bool))
        frame, total = came.frame, total + came.reward
    assert came.over.all()
    return total


def agrees(sample: np.ndarray, mean: float) -> bool:
    return abs(sample.mean() - mean) <= 4 * sample.std() / np.sqrt(len(sample)) + 1e-5


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("game", GAMES)
def test_conformance(game, check):
    check(game)


def test_specs_of_the_discrete_games_are_alike():
    assert Catch.spec == Snow.spec == Balloon.spec
    assert Catch.spec.frame == Reach.spec.frame == (16, 16, 1)
    assert Catch.spec.actions == Discrete(3) and Reach.spec.actions == Box(2)


# Rules


@pytest.mark.parametrize("game", [Catch, Snow])
def test_catch_by_hand(game):
    env, _ = started(game, 4)
    env.state["ball"][:] = [3, 3, 0, 7]
    env.state["paddle"][:] = [3, 3, 7, 0]
    for t in range(6):
        came = act(env, [1, 0, 0, 2])
        assert not came.last.any() and not came.over.any() and not came.reward.any(), t
    came = act(env, [1, 0, 0, 2])
    assert came.terminal.all() and came.last.all() and came.over.all()
    # Stayed under it; ran to the wall; the two longest ways there are.
    assert came.reward.tolist() == [1, -1, 1, 1]
    assert env.state["paddle"].tolist() == [3, 0, 0, 7]


def test_catch_picture():
    env, frame = started(Catch, 3)
    for row in range(7):
        board = np.zeros((3, 8, 8), np.uint8)
        board[np.arange(3), 7, env.state["paddle"]] = 160
        board[np.arange(3), row, env.state["ball"]] = 255
        assert np.array_equal(frame[..., 0], board.repeat(2, axis=1).repeat(2, axis=2))
        frame = act(env, 2).frame


def test_starts_are_uniform_and_independent():
    for game, fields, n in ((Catch, ("ball", "paddle"), 8), (Balloon, ("height", "goal"), 7)):
        env, _ = started(game, 30_000)
        joint = np.bincount(env.state[fields[0]] * n + env.state[fields[1]], minlength=n * n)
        p = 1 / n**2
        assert len(joint) == n * n
        assert np.abs(joint - 30_000 * p).max() < 4 * np.sqrt(30_000 * p * (1 - p))


def test_balloon_by_hand():
    env, _ = started(Balloon, 4)
    env.state["height"][:] = [0, 6, 2, 5]
    env.state["goal"][:] = [6, 0, 2, 2]
    for _ in range(6):
        came = act(env, [2, 0, 1, 1])
        assert not came.last.any() and not came.reward.any()
    came = act(env, [2, 0, 1, 1])
    assert came.terminal.all() and came.over.all()
    assert came.reward.tolist() == [1, 1, 1, -1]


def test_balloon_picture_shows_all_that_matters():
    env, frame = started(Balloon, 200)
    rng = np.random.default_rng(0)
    for time in range(7):
        board = small(frame)
        rows, columns = np.nonzero(board == 255)[1:]
        assert np.array_equal(6 - rows, env.state["height"]) and columns.max() < 7
        marks = np.nonzero(board[:, :, 7] == 160)[1]
        assert np.array_equal(6 - marks, env.state["goal"])
        assert ((board[:, 7] == 90).sum(axis=1) == 7 - time).all()
        frame = act(env, rng.integers(3, size=200)).frame


def test_balloon_gusts_are_uniform_and_touch_nothing():
    n = 40_000
    env, _ = started(Balloon, n)
    still, _ = started(Balloon, n)
    rng, p = np.random.default_rng(1), 1 / 7
    gusts = [env.gust()]
    for _ in range(7):
        came = act(env, rng.integers(3, size=n))
        act(still, 1)
        gusts.append(env.gust())
        assert np.array_equal(still.gust(), gusts[-1]), "actions do not matter"
        counts = np.bincount(gusts[-1], minlength=7)
        assert len(counts) == 7 and np.abs(counts - n * p).max() < 4 * np.sqrt(n * p * (1 - p))
        pairs = np.bincount(gusts[-2] * 7 + gusts[-1], minlength=49)
        assert np.abs(pairs - n * p**2).max() < 4 * np.sqrt(n * p**2), "nor does the gust before"
    for gust in gusts:
        for column in range(7):
            assert agrees(came.reward[gust == column], Balloon.random_score)


def test_snow_hides_nothing():
    env, frame = started(Snow, 500)
    rng = np.random.default_rng(2)
    for _ in range(7):
        assert ((frame == 255).sum(axis=(1, 2, 3)) == 4).all() and (
            (frame == 200).sum(axis=(1, 2, 3)) == 4
        ).all()
        assert frame[frame < 140].max() < 110, "texture, sprites, paddle and ball differ in brightness"
        frame = act(env, rng.integers(3, size=500)).frame


def test_snow_is_independent_of_the_ball():
    n = 5_000
    env, frame = started(Snow, n)
    other, _ = started(Snow, n)
    other.state["ball"][:] = 7 - env.state["ball"]
    other.state["paddle"][:] = 7 - env.state["paddle"]
    for _ in range(6):
        earlier, frame, moved = frame, act(env, 1).frame, act(other, 1).frame
        behind = (frame < 150) & (moved < 150)
        assert behind.mean() > 0.9 and np.array_equal(frame[behind], moved[behind])
        assert (frame != earlier)[behind].mean() > 0.9, "every frame has a fresh texture"
        brightness = frame[:, ::2].mean(axis=(1, 2, 3), where=(frame < 110)[:, ::2])
        assert abs(np.corrcoef(brightness, env.state["ball"])[0, 1]) < 4 / np.sqrt(n)


def test_snow_sprites_move():
    env, frame = started(Snow, 300)
    was = small(frame) == 140
    now = small(act(env, 1).frame) == 140
    assert (was.sum(axis=(1, 2)) <= 2).all() and was.any(axis=(1, 2)).mean() > 0.9
    assert now.any(axis=(1, 2)).mean() > 0.9 and (was & now).sum() < 0.1 * was.sum()


def test_reach_by_hand():
    env, _ = started(Reach, 3)
    env.state["point"][:] = [[0.5, 0.5], [0.1, 0.9], [0.0, 0.0]]
    env.state["goal"][:] = [[0.65, 0.5], [0.1, 0.9], [1.0, 1.0]]
    actions = np.array([[7.0, 0.0], [-1.0, 0.0], [0.0, 0.5]], np.float32)
    came = env.step(actions, np.ones(3, bool))
    assert np.allclose(env.state["point"], [[0.65, 0.5], [0.0, 0.9], [0.0, 0.075]])
    assert np.allclose(came.reward, [1 / 20, 0.8 / 20, 0])
    for _ in range(18):
        assert not env.step(actions, np.ones(3, bool)).last.any()
    came = env.step(actions, np.ones(3, bool))
    assert came.last.all() and came.over.all() and not came.terminal.any()


def test_reach_picture_shows_fractions_of_a_pixel():
    env, _ = started(Reach, 200)
    env.state["goal"][:] = 1 - env.state["point"]
    apart = np.abs(env.state["goal"] - env.state["point"]).max(axis=1) > 0.45
    frame = env._draw()[apart, ..., 0].astype(float)
    point, goal = env.state["point"][apart], env.state["goal"][apart]
    pixel = np.arange(16)
    near = np.abs(pixel - (2 + 11 * goal)[:, :, None]) <= 2.5
    around = near[:, 1, :, None] & near[:, 0, None, :]
    for where, place in ((around, goal), (~around, point)):
        weight = frame * where
        x = (weight.sum(axis=1) * pixel).sum(axis=1) / weight.sum(axis=(1, 2))
        y = (weight.sum(axis=2) * pixel).sum(axis=1) / weight.sum(axis=(1, 2))
        assert np.abs(np.stack([x, y], axis=1) - (2 + 11 * place)).max() < 0.1
    assert frame[around].max() == 120 and (frame.max(axis=(1, 2)) > 120).all()
    assert apart.sum() > 50


# Scores


def walk_score(n: int) -> tuple[float, float]:
    """Exact mean scores of 7 moves over n cells that have to end on a given cell: random and best."""
    step = np.zeros((3, n, n))
    for action in range(3):
        step[action, np.arange(n), np.clip(np.arange(n) + action - 1, 0, n - 1)] = 1
    value = np.stack([2 * np.eye(n) - 1] * 2)  # from a cell (row) for a goal (column), random and best
    for _ in range(7):
        value = np.stack([(step @ value[0]).mean(axis=0), (step @ value[1]).max(axis=0)])
    return value[0].mean(), value[1].mean()


@pytest.mark.parametrize(("game", "cells"), [(Catch, 8), (Snow, 8), (Balloon, 7)])
def test_scores_of_the_discrete_games_by_dynamic_programming(game, cells):
    assert walk_score(cells) == pytest.approx((game.random_score, game.optimal_score), abs=1e-12)


def test_random_score_of_reach_by_carrying_the_distribution_along():
    n = 400
    d, h = np.arange(n + 1) / n, round(toy.REACH_SPEED * n)
    even = np.r_[0.5, np.ones(n - 1), 0.5] / n
    push = np.r_[0.5, np.ones(2 * h - 1), 0.5] / (2 * h)
    reward = np.maximum(0, 1 - np.hypot(d[:, None], d) / toy.REACH_SIGHT) / toy.REACH_STEPS
    place, total = even, 0.0
    for _ in range(toy.REACH_STEPS):
        wide = np.convolve(place, push)
        place = wide[h : h + n + 1].copy()
        place[0] += wide[:h].sum()  # who would leave the square stays at its edge
        place[-1] += wide[h + n + 1 :].sum()
        across = np.convolve(place, even[::-1])
        far = across[n:].copy()
        far[1:] += across[:n][::-1]
        total += far @ reward @ far
    assert total == pytest.approx(Reach.random_score, abs=1e-5)


def test_optimal_score_of_reach_by_integration():
    n = 1000
    far = (np.arange(n) + 0.5) / n
    weight = 2 * (1 - far) / n  # density of the distance of two uniform numbers
    total = 0.0
    for t in range(1, toy.REACH_STEPS + 1):
        left = np.maximum(0, far - toy.REACH_SPEED * t)
        total += weight @ np.maximum(0, 1 - np.hypot(left[:, None], left) / toy.REACH_SIGHT) @ weight
    assert total / toy.REACH_STEPS == pytest.approx(Reach.optimal_score, abs=1e-5)


@pytest.mark.parametrize(
    ("game", "lanes"), [(Catch, 50_000), (Balloon, 50_000), (Snow, 20_000), (Reach, 15_000)]
)
def test_random_score_by_playing(game, lanes):
    rng = np.random.default_rng(3)

    def anything(env: ToyGame, _: np.ndarray) -> np.ndarray:
        if isinstance(env.spec.actions, Box):
            return rng.uniform(-1, 1, (env.lanes, 2)).astype(np.float32)
        return rng.integers(3, size=env.lanes, dtype=np.int32)

    assert agrees(scores(game, anything, lanes), game.random_score)


def follow_ball(_: ToyGame, frame: np.ndarray) -> np.ndarray:
    board = small(frame)
    ball = (board == 255).any(axis=1).argmax(axis=1)
    paddle = ((board[:, 7] == 160) | (board[:, 7] == 200)).argmax(axis=1)
    return 1 + np.sign(ball - paddle)


def follow_mark(_: ToyGame, frame: np.ndarray) -> np.ndarray:
    board = small(frame)
    balloon, mark = (board == 255).any(axis=2).argmax(axis=1), (board[:, :, 7] == 160).argmax(axis=1)
    return 1 + np.sign(balloon - mark)  # rows count downward, heights upward


def straight(env: ToyGame, _: np.ndarray) -> np.ndarray:
    return np.clip((env.state["goal"] - env.state["point"]) / toy.REACH_SPEED, -1, 1)


@pytest.mark.parametrize(
    ("game", "policy", "lanes"),
    [
        (Catch, follow_ball, 5000),
        (Snow, follow_ball, 2000),
        (Balloon, follow_mark, 5000),
        (Reach, straight, 10_000),
    ],
)
def test_optimal_score_by_playing(game, policy, lanes):
    played = scores(game, policy, lanes)
    assert agrees(played, game.optimal_score)
    if game is not Reach:
        assert (played == 1).all(), "every start can be won, from the pixels alone"
