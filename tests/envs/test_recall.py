"""Games that remember where they have been are those that are played in full."""

import struct
import zlib

import numpy as np
import pytest
from conformance import CHECKS

from vcrl.envs import recall
from vcrl.envs.atari import ACTIONS, AtariEnv
from vcrl.envs.emulator import Emulator, Rules
from vcrl.envs.protocols import PROTOCOLS
from vcrl.envs.recall import Map, Recaller, name_of
from vcrl.envs.registry import TASKS
from vcrl.envs.workers import Workers
from vcrl.training.evaluate import field
from vcrl.training.plan import make_plan

SEEDS = np.array([1, 1, 2, 2, 1, 3, 3, 1], np.uint64)  # as a hundred games begin in thirty ways
RULES = Rules(lives=False, horizon=250)
FEW = (
    "breakout",
    "freeway",
    "qbert",
    "road-runner",
    "seaquest",
)  # of a bonus life, lost lives, an odd restore


def both(game, rules=RULES):
    return AtariEnv(len(SEEDS), game, rules), AtariEnv(len(SEEDS), game, rules, recall=True)


def map_of(env) -> Map:
    return env._emulators[0].map


def compare(plain, recalling, steps: int) -> int:
    """Agents that choose by the picture and seldom at random, in both at once; how many games ended."""
    rng, count, ended = np.random.default_rng(0), len(SEEDS), 0
    every, begun = np.ones(count, bool), SEEDS.copy()
    frame = plain.reset(every, begun)
    np.testing.assert_array_equal(frame, recalling.reset(every, begun))
    for _ in range(steps):
        action = np.array([zlib.crc32(picture.tobytes()) for picture in frame]) % plain.spec.actions.n
        random = rng.random(count) < 0.02
        action[random] = rng.integers(plain.spec.actions.n, size=random.sum())
        active = rng.random(count) < 0.95  # so that games meet at different times, too
        came = plain.step(action, active)
        for one, two in zip(came, recalling.step(action, active), strict=True):
            np.testing.assert_array_equal(one[active], two[active])
        over = came.over & active
        frame = np.where(active[:, None, None, None], came.frame, frame)
        if over.any():
            ended += int(over.sum())
            begun[over] += np.uint64(1)
            frame[over] = plain.reset(over, begun)[over]
            np.testing.assert_array_equal(frame[over], recalling.reset(over, begun)[over])
    return ended


@pytest.mark.parametrize(
    "game", [pytest.param(game, marks=[pytest.mark.slow] * (game not in FEW)) for game in ACTIONS]
)
def test_what_is_recalled_is_what_would_have_been_played(game):
    plain, recalling = both(game)
    ended, map = compare(plain, recalling, 400), map_of(recalling)
    assert map.steps > 2800 and map.known > 0.02 * map.steps and map.pays
    assert ended >= len(SEEDS)  # all of them at the horizon, if no sooner


def test_the_oldest_states_are_forgotten(monkeypatch):
    monkeypatch.setattr(recall, "EACH", 3)
    plain, recalling = both("breakout")
    compare(plain, recalling, 150)
    map = map_of(recalling)
    assert len(map.nodes) == map.most == 3 * len(SEEDS)
    assert 0 < map.known < map.steps


def test_a_state_that_is_forgotten_holds_no_others():
    map, out, nodes = Map("pong", RULES, 1), np.zeros((84, 84), np.uint8), []
    game = Recaller(map)
    game.reset(np.uint64(1), out)
    for _ in range(recall.EACH + 5):
        nodes.append(game.at)
        game.step(0, out)
    assert [bool(node.leads) for node in nodes] == [False] * 6 + [True] * (recall.EACH - 1)


def test_it_is_given_up_where_it_does_not_pay(monkeypatch):
    monkeypatch.setattr(recall, "TRIAL", 200)
    monkeypatch.setattr(recall, "LEAST", 1.0)
    plain, recalling = both("breakout")
    compare(plain, recalling, 120)
    map = map_of(recalling)
    assert not map.pays and not map.nodes and map.steps < 400
    assert all(game.own is not None for game in recalling._emulators)


@pytest.mark.parametrize("pays", [True, False])
def test_games_that_leave_go_on_where_they_were(monkeypatch, pays):
    """Whether they recall or have an emulator of their own by then; those that stay move up."""
    monkeypatch.setattr(recall, "TRIAL", 100)
    monkeypatch.setattr(recall, "LEAST", 0.0 if pays else 1.1)
    plain, here = both("qbert")
    there, every, rng = AtariEnv(2, "qbert", RULES, recall=True), np.ones(8, bool), np.random.default_rng(0)
    there.reset(np.ones(2, bool), SEEDS[:2])
    for env in (plain, here):
        env.reset(every, SEEDS)
    for _ in range(30):
        actions = rng.integers(6, size=8)
        plain.step(actions, every), here.step(actions, every)
    assert map_of(here).pays is pays
    moved = np.isin(np.arange(8), (1, 6))
    there.join(here.leave(moved))
    assert (here.lanes, there.lanes) == (6, 4)
    for _ in range(30):
        actions = rng.integers(6, size=8)
        wanted = plain.step(actions, every)
        stayed = here.step(actions[~moved], np.ones(6, bool))
        went = there.step(np.concatenate([[0, 0], actions[moved]]), np.arange(4) > 1)
        for one, two, three in zip(wanted, stayed, went, strict=True):
            np.testing.assert_array_equal(one[~moved], two)
            np.testing.assert_array_equal(one[moved], three[2:])


def test_few_emulators_play_many_games(monkeypatch):
    """Where one has gone on, another comes."""
    built = []
    monkeypatch.setattr(recall, "Emulator", lambda *how: built.append(Emulator(*how)) or built[-1])
    for share, most in ((4, 2), (100, 1)):
        monkeypatch.setattr(recall, "SHARE", share)
        built.clear()
        compare(*both("qbert"), 100)
        assert len(built) == most


def test_a_game_that_is_known_ends_at_its_horizon_and_the_next_may_be_longer():
    out, ends = np.zeros((84, 84), np.uint8), []
    map = Map("pong", RULES, 3)
    for horizon in (30, 20, 30):
        game = Recaller(map)
        game.horizon = horizon
        game.reset(np.uint64(1), out)
        ends.append([game.step(3, out).over for _ in range(horizon)])
    assert ends == [[False] * 30, [False] * 19 + [True], [False] * 30]
    assert map.known == 20 + 29  # nothing was kept of the step at the first horizon
    _, recalling = both("pong", Rules(lives=False, horizon=20))
    every = np.ones(len(SEEDS), bool)
    recalling.reset(every, np.full(len(SEEDS), 1, np.uint64))
    over = [recalling.step(every * 3, every).over.tolist() for _ in range(20)]
    assert over == [[False] * len(SEEDS)] * 19 + [[True] * len(SEEDS)]


def test_states_are_told_apart_by_all_but_the_count_of_frames():
    """That it stands where this says is what a new ALE might change."""
    emulator, out = Emulator("pong", RULES), np.zeros((84, 84), np.uint8)
    emulator.reset(np.uint64(1), out)
    for _ in range(9):
        emulator.step(2, out)
    ale = emulator.ale
    state = ale.cloneState(include_rng=False).serialize()
    assert struct.unpack("<ii", state[8:16]) == (ale.getFrameNumber(), ale.getEpisodeFrameNumber())
    name, later = name_of(state, 0), bytearray(state)
    later[8:16] = struct.pack("<ii", 12345, 678)
    assert name_of(bytes(later), 0) == name != name_of(state, 1)
    for at in (0, 4, 16, 20, 24, 500, len(state) - 1):
        other = bytearray(state)
        other[at] ^= 1
        assert name_of(bytes(other), 0) != name


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance(check):
    check(lambda lanes: AtariEnv(lanes, "assault", Rules(lives=True, horizon=60), recall=True))


def test_only_evaluations_without_sticky_actions_recall(monkeypatch):
    monkeypatch.setattr("vcrl.envs.workers.cores", lambda: 2)

    def kinds(protocol: str) -> list[type]:
        """Of lanes to be trained in, to be evaluated in, and to be audited in."""
        plan, found = make_plan("rainbow", "pong", [0], protocol=protocol), []
        for training in (True, False):
            with field(plan, lambda *_: None, 2, training) as ground:
                found.append(type(ground.env._emulators[0]))
        return [*found, type(TASKS["pong"].make(2, PROTOCOLS[protocol], False)._emulators[0])]

    assert kinds("atari100k") == [Emulator, Recaller, Emulator]
    assert kinds("atari100k-sticky") == [Emulator] * 3


def test_with_more_cores_neighbours_share_a_process(monkeypatch):
    monkeypatch.setattr("vcrl.envs.workers.cores", lambda: 4)
    env = TASKS["pong"].recall(8, PROTOCOLS["atari100k"])
    try:
        assert isinstance(env, Workers)
        assert [hand.tolist() for hand in env._hands] == [[0, 1, 2], [3, 4, 5], [6, 7]]
        plain, every = AtariEnv(8, "pong", Rules(lives=False)), np.ones(8, bool)
        np.testing.assert_array_equal(plain.reset(every, SEEDS), env.reset(every, SEEDS))
        for at in range(20):
            active = np.arange(8) != at % 8
            for one, two in zip(
                plain.step(SEEDS % 6, active), env.step((SEEDS % 6).astype(np.int32), active), strict=True
            ):
                np.testing.assert_array_equal(one[active], two[active])
    finally:
        env.close()


def test_as_games_end_those_that_go_on_are_dealt_again(monkeypatch):
    """And go on where they were, also when the process that has them now dies."""
    monkeypatch.setattr("vcrl.envs.workers.cores", lambda: 4)
    plain, env = AtariEnv(12, "breakout", RULES), TASKS["breakout"].recall(12, PROTOCOLS["atari100k"])
    seeds, rng = np.arange(12, dtype=np.uint64) // 2, np.random.default_rng(0)

    def same(active, steps):
        for _ in range(steps):
            actions = rng.integers(4, size=12).astype(np.int32)
            for one, two in zip(plain.step(actions, active), env.step(actions, active), strict=True):
                np.testing.assert_array_equal(one[active], two[active])

    try:
        every = np.ones(12, bool)
        np.testing.assert_array_equal(plain.reset(every, seeds), env.reset(every, seeds))
        same(every, 10)
        assert [hand.tolist() for hand in env._hands] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
        left = np.isin(np.arange(12), (0, 1, 2, 3, 5))  # four of the first process, one of the second
        same(left, 10)
        dealt = [[lane for lane in hand if left[lane]] for hand in env._hands]
        assert dealt == [[0, 1], [2, 3], [5]]
        assert sorted(np.concatenate(env._hands).tolist()) == list(range(12))
        env._processes[1].kill()
        same(left, 5)
        assert len(env.news) == 1 and "lanes" in env.news[0]
        left[[1, 2, 3, 5]] = False  # one game goes on
        same(left, 5)
        every = np.ones(12, bool)
        np.testing.assert_array_equal(plain.reset(every, seeds + 7), env.reset(every, seeds + 7))
        same(every, 5)
    finally:
        env.close()
