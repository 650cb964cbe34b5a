"""Lanes in processes: the same as without, also when a process dies, and clear words when it cannot go on."""

import os
import signal

import numpy as np
import pytest
from conformance import CHECKS
from worker_games import Broken, Counting, Hanging

from vcrl.core.errors import UserError
from vcrl.envs.lanes import Lanes
from vcrl.envs.processes import cores
from vcrl.envs.toy import Balloon, Reach
from vcrl.envs.workers import Workers, spread


@pytest.fixture
def opened():
    """Whatever a test starts is closed behind it."""
    made: list[Workers] = []

    def make(build, lanes, count, spec=None):
        made.append(Workers(build, spec or build.spec, lanes, count))
        return made[-1]

    yield make
    for workers in made:
        workers.close()


@pytest.mark.parametrize("game", [Balloon, Reach], ids=["discrete", "continuous"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance(check, game, opened):
    check(lambda lanes: opened(game, lanes, min(lanes, 2)))


def test_few_lanes_of_many_are_those_of_one_process(opened):
    """Fewer and fewer go on, as at the end of an evaluation; what was handed out before stays as it was."""
    plain, dealt = Balloon(7), opened(Balloon, 7, 2)
    everyone, seeds = np.ones(7, bool), np.arange(7, dtype=np.uint64)
    np.testing.assert_array_equal(plain.reset(everyone, seeds), dealt.reset(everyone, seeds))
    moves, handed = np.random.default_rng(0).integers(3, size=(14, 7)), []
    for at, row in enumerate(moves):
        active = np.arange(7) <= 6 - at // 2
        one, two = plain.step(row, active), dealt.step(row, active)
        for mine, theirs in zip(one, two, strict=True):
            np.testing.assert_array_equal(mine[active], theirs[active])
        handed.append((two.frame, two.frame.copy()))
    assert len({frame.tobytes() for frame, _ in handed}) == len(moves)
    for frame, then in handed:
        np.testing.assert_array_equal(frame, then)


def test_a_killed_process_costs_nothing(opened):
    def play(env, kills):
        lanes, seen = Lanes(env, [1, 2, 3], 2), []
        for i in range(60):
            if i in kills:
                os.kill(env._children[kills[i]].process.pid, signal.SIGKILL)
            tick = lanes.step(np.array([i % 3, (i * 7) % 3, (i * 5) % 3]))
            seen += [*tick.row, lanes.obs]
        return seen, lanes

    alone, _ = play(Balloon(3), {})
    killed, lanes = play(opened(Balloon, 3, 2), {13: 0, 30: 1, 31: 1})
    for one, two in zip(alone, killed, strict=True):
        np.testing.assert_array_equal(one, two)
    news = lanes.news()
    assert len(news) == 3 and "lanes 0, 2 died (exit code -9)" in news[0] and "played again" in news[0]
    assert lanes.news() == []


def test_a_killed_process_goes_on_from_a_saved_state(opened):
    """Games that came from a save have no beginning here: the save and the actions since bring them back."""
    one = Lanes(opened(Balloon, 3, 2), [4, 5, 6], 2)
    moves = np.random.default_rng(0).integers(3, size=(50, 3))
    for row in moves[:18]:
        one.step(row)
    saved = one.save()
    two = Lanes(opened(Balloon, 3, 3), [4, 5, 6], 2)  # shared out otherwise
    two.load(saved)
    for i, row in enumerate(moves[18:]):
        if i in (2, 20):
            os.kill(two.env._children[1].process.pid, signal.SIGKILL)
        wanted, found = one.step(row), two.step(row)
        for a, b in zip(wanted.row, found.row, strict=True):
            np.testing.assert_array_equal(a, b)
    assert len(two.news()) == 2


def test_a_process_that_died_between_two_steps_is_saved_all_the_same(opened):
    one, two = Lanes(Balloon(3), [1, 2, 3], 2), Lanes(opened(Balloon, 3, 2), [1, 2, 3], 2)
    for lanes in (one, two):
        for i in range(4):
            lanes.step(np.full(3, i % 3))
    two.env._children[0].process.kill()
    two.env._children[0].process.wait()
    wanted, found = one.save(), two.save()
    assert wanted.keys() == found.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(array, found[name])


def test_a_simulator_that_dies_twice_at_one_step_is_an_error_with_its_seeds(opened):
    env = opened(Counting, 2, 2)
    env.reset(np.ones(2, bool), np.array([8, 9], np.uint64))
    with pytest.raises(UserError, match=r"lane 0 died or hung twice .* \[8\]"):
        for _ in range(5):
            env.step(np.ones(2, np.int32), np.array([True, False]))


@pytest.fixture
def impatient(tmp_path, monkeypatch):
    """Games that hang as often as told, and nobody who waits long for them."""
    monkeypatch.setenv("HANGS", str(tmp_path / "hangs"))
    monkeypatch.setattr("vcrl.envs.workers.PATIENCE", 0.5)
    return lambda times: (tmp_path / "hangs").write_text("x\n" * times)


def test_a_process_that_hangs_is_started_again(opened, impatient):
    impatient(1)
    alone, env = Balloon(2), opened(Hanging, 2, 2)
    for one in (alone, env):
        one.reset(np.ones(2, bool), np.array([8, 9], np.uint64))
    for i in range(6):
        actions = np.array([i % 3, 2 - i % 3], np.int32)
        active = np.array([True, i > 2])
        for a, b in zip(alone.step(actions, active), env.step(actions, active), strict=True):
            np.testing.assert_array_equal(a[active], b[active])
    (said,) = env.news
    assert "lane 0 hung for 0 seconds (exit code -9): started again" in said


def test_a_process_that_hangs_twice_at_one_step_is_an_error(opened, impatient):
    impatient(2)
    env = opened(Hanging, 2, 2)
    env.reset(np.ones(2, bool), np.array([8, 9], np.uint64))
    with pytest.raises(UserError, match=r"lane 0 died or hung twice .* \[8\]"):
        for _ in range(3):
            env.step(np.ones(2, np.int32), np.array([True, False]))


def test_closing_does_not_wait_for_a_process_that_hangs(opened, impatient, monkeypatch):
    impatient(1)
    monkeypatch.setattr("vcrl.envs.processes.FAREWELL", 0.2)
    env = opened(Hanging, 2, 2)
    env.reset(np.ones(2, bool), np.zeros(2, np.uint64))
    pids = [child.process.pid for child in env._children]
    env._board.going[:], env._board.resetting[:] = True, False
    for _ in range(2):
        env.step(np.zeros(2, np.int32), np.array([True, False]))
    env._board.going[:] = [True, False]
    env._children[0].go()  # and nobody waits for the answer
    env.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_an_error_inside_a_process_is_told_as_it_is(opened):
    env = opened(Broken, 2, 2)
    with pytest.raises(UserError, match="this game cannot be reset"):
        env.reset(np.ones(2, bool), np.zeros(2, np.uint64))


def test_what_a_simulator_prints_does_not_disturb(opened, capfd):
    env = opened(Counting, 2, 2)
    env.reset(np.ones(2, bool), np.zeros(2, np.uint64))
    came = env.step(np.zeros(2, np.int32), np.ones(2, bool))
    assert came.reward.tolist() == [1, 1]
    env.close()
    assert "counting aloud" in capfd.readouterr().err


def test_processes_are_gone_after_closing(opened):
    env = opened(Balloon, 4, 2)
    pids = [child.process.pid for child in env._children]
    env.close()
    env.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_one_core_stays_free(monkeypatch):
    monkeypatch.setattr("vcrl.envs.processes.cores", lambda: 2)
    assert isinstance(spread(Balloon, Balloon.spec, 8), Balloon)
    monkeypatch.setattr("vcrl.envs.processes.cores", lambda: 4)
    env = spread(Balloon, Balloon.spec, 8)
    assert isinstance(env, Workers)
    dealt = [hand.tolist() for hand in env._hands]
    assert dealt == [[0, 3, 6], [1, 4, 7], [2, 5]], "neighbours in different processes"
    env.close()
    env = spread(Balloon, Balloon.spec, 1)
    assert isinstance(env, Workers) and len(env._children) == 1, "who asks a GPU needs Python's lock"
    env.close()
    assert cores() >= 1
