"""Games that remember where they have been are those that are played in full."""

import gc
import os
import signal
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from conformance import CHECKS

from vcrl.core.errors import UserError
from vcrl.envs import explore, recall
from vcrl.envs.atari import ACTIONS, AtariEnv, spec_of
from vcrl.envs.emulator import Emulator, Rules
from vcrl.envs.explore import Crew, Explorer, evenly, name_of
from vcrl.envs.protocols import PROTOCOLS
from vcrl.envs.recall import Map, RecallingEnv, recalling
from vcrl.envs.registry import TASKS
from vcrl.training import evaluate
from vcrl.training.evaluate import field
from vcrl.training.plan import make_plan

SEEDS = np.array([1, 1, 2, 2, 1, 3, 3, 1], np.uint64)  # as a hundred games begin in thirty ways
COUNT, RULES = len(SEEDS), Rules(lives=False, horizon=250)
FEW = ("breakout", "qbert", "road-runner")  # of lost lives, an odd restore, a bonus life


@pytest.fixture
def lanes_of(monkeypatch):
    """Lanes that recall; whatever a test starts is closed behind it."""
    made: list[RecallingEnv] = []

    def make(game, rules=RULES, lanes=COUNT, processes=0):
        monkeypatch.setattr(recall, "helpers", lambda lanes: processes)
        made.extend(recalling(game.replace("-", "_"), rules, spec_of(ACTIONS[game]), [lanes]))
        return made[-1]

    yield make
    for env in made:
        env.close()


def compare(game, recalling, steps: int, rules=RULES) -> int:
    """Agents that choose by the picture and seldom at random, in both at once; how many games ended."""
    plain, rng, count, ended = AtariEnv(len(SEEDS), game, rules), np.random.default_rng(0), len(SEEDS), 0
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
def test_what_is_recalled_is_what_would_have_been_played(game, lanes_of):
    env = lanes_of(game)
    ended = compare(game, env, 400)
    assert env.steps > 2800 and env.known > 0.02 * env.steps
    assert ended >= len(SEEDS)  # all of them at the horizon, if no sooner


def test_in_processes_it_is_the_same_also_when_one_dies(lanes_of, monkeypatch):
    env, explored, times = lanes_of("breakout", processes=2), Crew.explore, []

    def killing(crew, *arguments):
        times.append(len(times))
        if len(times) in (20, 21, 90):
            os.kill(crew._children[len(times) % 2].process.pid, signal.SIGKILL)
        explored(crew, *arguments)

    monkeypatch.setattr(Crew, "explore", killing)
    assert compare("breakout", env, 200) > 0
    assert len(env.news) == 3 and "died (exit code -9)" in env.news[0]
    alone = lanes_of("breakout")
    monkeypatch.setattr(Crew, "explore", explored)
    compare("breakout", alone, 200)
    assert (env.known, env.steps) == (alone.known, alone.steps)


class Dying(Explorer):
    """When it is to play, not where games begin."""

    def go(self):
        super().go() if self._jobs.action[0] == explore.BEGIN else os._exit(11)


def test_an_emulator_that_dies_twice_at_one_step_is_an_error(lanes_of, monkeypatch):
    monkeypatch.setattr(explore, "Explorer", Dying)
    env, every = lanes_of("pong", processes=2), np.ones(len(SEEDS), bool)
    env.reset(every, SEEDS)
    with pytest.raises(
        UserError,
        match=r"pong died \(exit code 11\), and did so twice at .*run the same command",
    ):
        env.step(np.zeros(len(SEEDS), np.int32), every)


def test_the_oldest_states_are_forgotten(lanes_of, monkeypatch):
    """Not those in which games are: with few rows there are hardly others."""
    for each in (2, 3):
        monkeypatch.setattr(recall, "EACH", each)
        env = lanes_of("breakout")
        compare("breakout", env, 150)
        there = env.map.number[env.map.number >= 0]
        assert len(there) <= env.map.rows == max(each * len(SEEDS), 2 * len(SEEDS) + 1)
        assert set(env._at) <= set(there) and len(env.map._named) == len(there)
        assert 0 < env.known < env.steps


def test_a_map_of_five_rows_by_hand():
    map, names = Map(5, actions=2, games=2), np.arange(96, dtype=np.uint8).reshape(6, 16)

    def ways(at):
        to, reward = (part.tolist() for part in map.way(np.array([at, at]), np.array([0, 1])))
        return [(a, r) if a >= 0 else None for a, r in zip(to, reward, strict=True)]

    start = map.found(map.room(2), names[:2])
    assert start.tolist() == [0, 1]
    map.learn(start, np.array([0, 1]), np.array([1, 0]), np.array([0.5, 2.0], np.float32))
    assert (ways(0), ways(1)) == ([(1, 0.5), None], [None, (0, 2.0)])
    map.at[:] = start
    new = map.room(2)
    assert new.tolist() == [2, 3]
    assert map.found(new, names[[1, 2]]).tolist() == [1, 3], "the first of these was state 1 already"
    assert map.number.tolist() == [0, 1, -1, 3, -1]
    # Row 0 is needed again, and number 5 comes to lie there; a game stands in state 1, whose row is passed over.
    map.at[:] = [1, -1]
    new = map.room(3)
    assert new.tolist() == [4, 5, 7]
    assert ways(1) == [None, None], "it led to state 0, which is forgotten"
    assert map.found(new, names[[0, 3, 4]]).tolist() == [4, 5, 7], "also by its name"
    assert ways(5) == [None, None], "what lies in a row has none of the ways of what lay there"


def test_room_that_is_promised_is_nobody_elses():
    map, names = Map(5, actions=2, games=2), np.arange(96, dtype=np.uint8).reshape(6, 16)
    map.at[:] = map.found(map.room(2), names[:2])
    theirs, mine = map.room(1), map.room(1)
    assert (theirs.tolist(), mine.tolist()) == ([2], [3])
    map.found(mine, names[3:4])
    assert map.room(2).tolist() == [4, 8], (
        "numbers 5 to 7 would lie where games stand, and where 2 is to come"
    )
    assert map.found(theirs, names[2:3]).tolist() == [2]


def test_a_state_reached_by_two_ways_keeps_what_each_pays(lanes_of, monkeypatch):
    """The game says 5 for the one, 7 for the other, and that they lead to the same state."""
    env, every = lanes_of("pong", lanes=2), np.ones(2, bool)
    env.reset(every, SEEDS[:2])

    def play(at, action, new):
        row = env.map.row(new)
        env._board.name[row], env._board.over[row] = np.full(16, 7, np.uint8), False
        env._board.reward[row] = 5 + 2 * np.arange(len(row))

    monkeypatch.setattr(env.crew, "explore", play)
    assert env.step(np.array([2, 3]), every).reward.tolist() == [5, 7]
    assert env._at[0] == env._at[1]
    monkeypatch.setattr(env.crew, "explore", None)
    env.reset(every, SEEDS[:2])
    assert env.step(np.array([3, 2]), every).reward.tolist() == [7, 5], "as it was remembered"


@pytest.mark.parametrize("processes", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_teams_share_a_map_each_in_a_thread(monkeypatch, processes):
    """Which of them finds a state is chance; what happens in a game is not. The map is small, so they are in each
    other's way."""
    monkeypatch.setattr(recall, "helpers", lambda lanes: processes)
    monkeypatch.setattr(recall, "EACH", 1)
    envs = recalling("breakout", RULES, spec_of(ACTIONS["breakout"]), [COUNT, COUNT])
    try:
        assert envs[0].map is envs[1].map and len(envs[0].map.at) == 2 * COUNT
        with ThreadPoolExecutor(2) as pool:
            ended = list(pool.map(lambda env: compare("breakout", env, 150), envs))
        assert min(ended) > 0 and all(0 < env.known < env.steps for env in envs)
    finally:
        for env in envs:
            env.close()


def test_what_one_does_while_another_waits_for_its_emulators(monkeypatch):
    """One makes room, the other steps and begins games, then the first finds its states: on the smallest map."""
    monkeypatch.setattr(recall, "helpers", lambda lanes: 0)
    monkeypatch.setattr(recall, "EACH", 1)
    one, two = recalling("breakout", RULES, spec_of(ACTIONS["breakout"]), [COUNT, COUNT])
    beside, rng, every = AtariEnv(COUNT, "breakout", RULES), np.random.default_rng(1), np.ones(COUNT, bool)
    crew, calls = one.crew.explore, []

    def explore(*what):
        calls.append(what)
        if len(calls) % 9 == 1:
            np.testing.assert_array_equal(
                beside.reset(every, SEEDS + len(calls)), two.reset(every, SEEDS + len(calls))
            )
        actions = rng.integers(4, size=COUNT)
        for wanted, found in zip(beside.step(actions, every), two.step(actions, every), strict=True):
            np.testing.assert_array_equal(wanted, found)
        crew(*what)

    monkeypatch.setattr(one.crew, "explore", explore)
    compare("breakout", one, 100)
    assert len(calls) > 80 and two.known > 0
    one.close(), two.close()


def test_an_emulator_that_never_rests_does_not_end_games(lanes_of, monkeypatch):
    """The horizon is that of a game; the emulator's own would come after so many steps of all games."""
    monkeypatch.setattr(explore, "Rules", lambda lives: Rules(lives, horizon=5))
    monkeypatch.setattr(recall, "SHARE", 100)
    env, every, rng = lanes_of("pong"), np.ones(COUNT, bool), np.random.default_rng(0)
    env.reset(every, SEEDS)
    assert not any(env.step(rng.integers(6, size=COUNT), every).over.any() for _ in range(20))


class Unborn(Explorer):
    """Cannot be built by the second process of the second team."""

    def __init__(self, *what):
        super().__init__(*what)
        if what[2] == 3 and what[4] == 1:
            raise UserError("no emulator today")


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_when_one_cannot_be_built_nothing_is_left(monkeypatch):
    monkeypatch.setattr(recall, "helpers", lambda lanes: 2)
    monkeypatch.setattr(explore, "Explorer", Unborn)
    before, started, start = open_files(), [], Crew._child
    monkeypatch.setattr(Crew, "_child", lambda crew, i: started.append(start(crew, i)) or started[-1])
    with pytest.raises(UserError, match="no emulator today"):
        recalling("pong", RULES, spec_of(6), [2, 3])
    assert len(started) == 4 and not any(child.alive() for child in started)
    assert open_files() == before


def test_what_one_team_has_found_is_known_to_the_others(monkeypatch):
    monkeypatch.setattr(recall, "helpers", lambda lanes: 0)
    one, two = recalling("pong", RULES, spec_of(ACTIONS["pong"]), [1, 2])
    for env in (one, two):
        env.reset(np.ones(env.lanes, bool), SEEDS[: env.lanes])
        for action in (2, 3, 4):
            env.step(np.full(env.lanes, action, np.int32), np.ones(env.lanes, bool))
    assert ((one.known, one.steps), (two.known, two.steps)) == ((0, 3), (6, 6))
    assert (one.crew.played, two.crew.played) == (3, 0)
    one.close(), two.close()


def test_what_is_to_be_done_is_shared_evenly():
    assert evenly(np.array([0, 0, 0, 0, 0, 2]), 3).tolist() == [0, 0, 1, 1, 2, 2]
    assert evenly(np.array([1, 1]), 3).tolist() == [1, 0]
    assert evenly(np.zeros(0, int), 3).tolist() == []
    rng = np.random.default_rng(0)
    for count in (1, 4, 15):
        wish = rng.integers(count, size=50)
        done = np.bincount(evenly(wish, count), minlength=count)
        share = -(-50 // count)
        assert done.sum() == 50 and done.max() <= share
        kept = (evenly(wish, count) == wish).sum()
        assert kept == np.minimum(np.bincount(wish, minlength=count), share).sum(), (
            "as wished where it can be"
        )


def test_what_several_do_is_done_once(lanes_of):
    env, every, asked = lanes_of("pong"), np.ones(len(SEEDS), bool), []
    env.reset(every, SEEDS)
    crew = env.crew.explore
    env.crew.explore = lambda *what: asked.append([part.tolist() for part in what[:2]]) or crew(*what)
    first = env.step(np.array([2, 3, 2, 2, 2, 2, 2, 3], np.int32), every)
    assert [len(part) for part in asked[0]] == [4, 4], (
        "two actions from the start of seed 1, one from 2 and 3"
    )
    np.testing.assert_array_equal(first.frame[1], first.frame[7])
    assert (env.known, env.steps) == (0, 8)


def test_few_emulators_play_many_games(lanes_of, monkeypatch):
    """Where one has gone on, another comes."""
    built = []
    monkeypatch.setattr(explore, "Emulator", lambda *how: built.append(Emulator(*how)) or built[-1])
    for share, most in ((4, 2), (100, 1)):
        monkeypatch.setattr(recall, "SHARE", share)
        built.clear()
        compare("qbert", lanes_of("qbert"), 100)
        assert len(built) == most


def test_a_game_that_is_known_ends_at_its_horizon(lanes_of):
    env, every = lanes_of("pong", Rules(lives=False, horizon=20)), np.ones(len(SEEDS), bool)
    for first in (True, False):
        env.reset(every, np.full(len(SEEDS), 1, np.uint64))
        known = env.known
        over = [env.step(np.full(len(SEEDS), 3, np.int32), every).over.tolist() for _ in range(20)]
        assert over == [[False] * len(SEEDS)] * 19 + [[True] * len(SEEDS)]
        assert env.known - known == (0 if first else 20 * len(SEEDS))


def test_states_are_told_apart_by_all_but_the_count_of_frames():
    """That it stands where this says is what a new ALE might change."""
    emulator, out = Emulator("pong", RULES), np.zeros((84, 84), np.uint8)
    emulator.reset(np.uint64(1), out)
    for _ in range(9):
        emulator.step(2, out)
    ale, seen = emulator.ale, out.tobytes()
    state = ale.cloneState(include_rng=False).serialize()
    assert struct.unpack("<ii", state[8:16]) == (ale.getFrameNumber(), ale.getEpisodeFrameNumber())
    name, later = name_of(state, 0, seen), bytearray(state)
    later[8:16] = struct.pack("<ii", 12345, 678)
    assert name_of(bytes(later), 0, seen) == name
    assert name not in (name_of(state, 1, seen), name_of(state, 0, seen[:-1] + b"1"))
    for at in (0, 4, 16, 20, 24, 500, len(state) - 1):
        other = bytearray(state)
        other[at] ^= 1
        assert name_of(bytes(other), 0, seen) != name


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance(check, lanes_of):
    check(lambda lanes: lanes_of("assault", Rules(lives=False, horizon=60), lanes))


def test_only_evaluations_without_sticky_actions_recall(monkeypatch):
    monkeypatch.setattr("vcrl.envs.processes.cores", lambda: 2)

    def kinds(protocol: str) -> list[type]:
        """Of lanes to be trained in, to be evaluated in, and to be audited in."""
        plan, found = make_plan("rainbow", "pong", [0], protocol=protocol), []
        for training in (True, False):
            with field(plan, lambda *_: None, 2, training) as ground:
                found.append(type(ground.env))
        return [*found, type(TASKS["pong"].make(2, PROTOCOLS[protocol], False))]

    assert kinds("atari100k") == [AtariEnv, RecallingEnv, AtariEnv]
    assert kinds("atari100k-sticky") == [AtariEnv] * 3


def test_with_more_cores_processes_explore_and_leave_nothing(monkeypatch):
    monkeypatch.setattr("vcrl.envs.processes.cores", lambda: 4)
    before = open_files()
    (env,) = TASKS["pong"].recall([8], PROTOCOLS["atari100k"])
    pids = [child.process.pid for child in env.crew._children]
    try:
        assert len(pids) == 3
        plain, every = AtariEnv(8, "pong", Rules(lives=False)), np.ones(8, bool)
        np.testing.assert_array_equal(plain.reset(every, SEEDS), env.reset(every, SEEDS))
        for one, two in zip(plain.step(SEEDS % 6, every), env.step(SEEDS % 6, every), strict=True):
            np.testing.assert_array_equal(one, two)
    finally:
        env.close()
    env.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    del env  # whose memory has files open, too
    gc.collect()
    assert open_files() == before


@pytest.mark.parametrize("teams", [1, 2])
def test_teams_of_an_evaluation_play_the_games_that_one_plays_in_full(monkeypatch, teams):
    monkeypatch.setattr(evaluate, "teams_of", lambda plan: teams)
    plan = make_plan("rainbow", "pong", [0, 1])
    plan = replace(plan, protocol=replace(plan.protocol, eval_episodes=3, horizon=40))

    def act(state, obs, frame, known, seeds):
        return obs, np.asarray(frame.sum(axis=(2, 3, 4)) % 6, np.int32)

    found, full = (
        evaluate.games(replace(plan, task=replace(plan.task, recall=recall)), act, np.zeros(2), 3)
        for recall in (plan.task.recall, None)
    )
    for mine, theirs in zip(chain(*found), chain(*full), strict=True):
        assert mine.finished[1:] == theirs.finished[1:]
        assert len(mine.actions) == 40 and mine.actions.tolist() == theirs.actions.tolist()
