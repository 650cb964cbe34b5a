"""Q-errors of several moments measured together: the same numbers, in the same rows, wherever a run was stopped."""

import json
import os
import signal
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from tiny import assert_same_files, tiny

from vcrl.runs import checkpoint
from vcrl.training import diagnostics, moments, watch
from vcrl.training.engine import Training, engine_of
from vcrl.training.evaluate import field, play
from vcrl.training.memory import need_in_bytes
from vcrl.training.moments import Moments
from vcrl.training.plan import Schedule, make_plan

pytestmark = pytest.mark.usefixtures("quick_compiles")

# Five moments, of which three are measured at 60 steps and two at the end.
OFTEN = Schedule(log=10, evaluate=30, gradients=40, q_error=10, q_error_positions=50)


@pytest.fixture(autouse=True)
def three(monkeypatch):
    monkeypatch.setattr(moments, "together", lambda plan: 3)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that was never stopped."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(moments, "together", lambda plan: 3)
        return tiny(tmp_path_factory.mktemp("whole"), schedule=OFTEN)


def often(out, **more):
    return tiny(out, schedule=OFTEN, **more)


def test_each_moment_has_the_q_error_that_it_has_alone(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(moments, "together", lambda plan: 1)
    alone = often(tmp_path).folder.metrics()
    both = whole.folder.metrics()
    assert [row["agent_steps"] for row in both] == [row["agent_steps"] for row in alone]
    assert [r["agent_steps"] for r in both if "q_error/imagined" in r] == [40, 50, 60, 70, 80]
    for one, two in zip(alone, both, strict=True):
        assert list(one) == list(two)
        for name in one:
            np.testing.assert_allclose(two[name], one[name], rtol=1e-4, err_msg=name)
    # And they are not all one: every moment has nets of its own.
    assert len({row["q_error/imagined"][0] for row in both if "q_error/imagined" in row}) == 5


def test_rows_wait_for_the_q_error_before_them(tmp_path):
    seen = {}

    def look(now):
        (path,) = (p for p in tmp_path.rglob("metrics.jsonl"))
        seen[now] = [json.loads(line)["agent_steps"] for line in path.read_text().splitlines()]
        return False

    run = tiny(tmp_path, schedule=Schedule(log=5, evaluate=0, gradients=0, q_error=10), halt=look)
    assert seen[39] == [35] and seen[40] == [35] and seen[59] == [35]
    assert seen[60] == [35, 40, 45, 50, 55, 60] and seen[65] == [*seen[60], 65] and seen[79] == seen[65]
    assert [row["agent_steps"] for row in run.folder.metrics()] == [*seen[79], 70, 75, 80]


@pytest.mark.parametrize("at", [40, 41, 55, 60, 63, 70])
def test_a_run_that_is_stopped_while_moments_wait_is_the_same_in_the_end(whole, tmp_path, at):
    run = often(tmp_path, halt=lambda now: now == at)
    assert run.folder.status["state"] == "stopped" and run.folder.status["agent_steps"] == at
    found = checkpoint.load(run.path / "checkpoint", pytest.fail)
    assert found is not None
    # What is due at this very tick can be measured another day, if nothing before it has to be measured now.
    left = at in (40, 70)
    assert found.extra.get("owed", {}).get("q_error", False) is left
    assert [r["agent_steps"] for r in run.folder.metrics()] == [40, 50, 60, 70][: at // 10 - 3 - left]
    assert_same_files(often(tmp_path), whole)


def test_a_checkpoint_comes_behind_the_rows_that_wait(whole, tmp_path, monkeypatch):
    """What is lost with a process is all behind the checkpoint, and comes again."""
    monkeypatch.setattr(watch, "CHECKPOINT_SECONDS", -1.0)
    save = watch.Watch.save
    monkeypatch.setattr(
        watch.Watch, "save", lambda self, *more, **rest: (save(self, *more, **rest), self.saving.result())
    )

    def die(now):
        assert now < 52, "the end"
        return False

    with pytest.raises(AssertionError, match="the end"):
        often(tmp_path, halt=die)
    (path,) = tmp_path.rglob("checkpoint")
    rows = (path.parent / "metrics.jsonl").read_text().splitlines()
    assert checkpoint.generations(path)[-1] == 52
    assert [json.loads(row)["agent_steps"] for row in rows] == [40, 50]
    assert_same_files(often(tmp_path), whole)


def test_a_checkpoint_prefers_the_time_between_two_groups(tmp_path, monkeypatch):
    saved, clock = [], [0.0]
    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(watch, "CHECKPOINT_SECONDS", 60.0)
    monkeypatch.setattr(watch, "COMPILE_SECONDS", 5.0)
    save = watch.Watch.save
    monkeypatch.setattr(
        watch.Watch, "save", lambda self, t, last=False: (saved.append(t.tick), save(self, t, last))
    )

    def passed(now):
        clock[0] += 1.1
        return False

    often(tmp_path, halt=passed)
    # At 30 before learning is compiled; 33 of 60 seconds later a group has been measured; and at the end.
    assert saved == [30, 60, 80]


def looks(monkeypatch, at, number):
    """Send a signal at one look at a game of a Q-error, counted from the start; gives all looks so far."""
    seen, act = [], watch.Watch.play

    def watched(self, state, *arguments):
        if len(arguments[-1]) == 6:  # the seeds of three moments
            seen.append(self.moments.count)
            if len(seen) in at:
                os.kill(os.getpid(), number)
        return act(self, state, *arguments)

    monkeypatch.setattr(watch.Watch, "play", watched)
    return seen


def test_who_stops_it_while_it_measures_waits_for_the_moments_that_are_gone(whole, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        seen = looks(patch, [5], signal.SIGTERM)
        run = often(tmp_path)
    assert set(seen) == {3} and run.folder.status["agent_steps"] == 60
    assert run.folder.status["state"] == "stopped"
    assert [r["agent_steps"] for r in run.folder.metrics()] == [40, 50, 60]
    found = checkpoint.load(run.path / "checkpoint", pytest.fail)
    assert found is not None
    # Of this tick there was an evaluation to come.
    assert found.extra["owed"] == {"row": {}, "q_error": False, "evaluate": True}
    assert_same_files(often(tmp_path), whole)


@pytest.fixture
def at_a_terminal():
    """Where a shell starts the tests behind itself, Ctrl-C is ignored from the start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("at_a_terminal")
def test_who_does_not_wait_goes_on_from_the_checkpoint_before(whole, tmp_path, monkeypatch):
    often(tmp_path, halt=lambda now: now == 45)
    with monkeypatch.context() as patch:
        seen = looks(patch, [3, 6], signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            often(tmp_path, halt=lambda now: now == 71)
    assert len(seen) == 6
    (path,) = tmp_path.rglob("checkpoint")
    assert checkpoint.generations(path)[-1] == 45
    assert_same_files(often(tmp_path), whole)


def test_how_long_a_seed_plays_does_not_depend_on_the_others(whole, monkeypatch):
    """Games of `catch` have 7 steps: for 50 positions eight are played, by those who want any."""
    plan, engine, seen = whole.plan, engine_of(whole.plan), []

    def spy(ground, state, episodes, **more):
        seen.append((tuple(episodes), more["who"].tolist(), more["most"].tolist()))
        played = play(ground, state, episodes, **more)
        assert [len(mine) for mine in played] == [wanted * len(episodes) for wanted in more["who"]]
        # One seed has played enough at once.
        return [[*played[0] * 9], *played[1:]] if len(seen) == 1 else played

    monkeypatch.setattr(diagnostics, "play", spy)
    monkeypatch.setattr(diagnostics, "horizon", lambda gamma: 4)
    with field(plan, engine.lifted.play, 1, training=True) as ground:
        found = diagnostics.trajectories(ground, whole.state, 2, 2)
        assert [who for _, who, _ in seen] == [[True, True], *([[False, True]] * (len(seen) - 1))]
        assert len(seen) > 2 and [e for (e,), *_ in seen] == list(range(len(seen)))
        length = len(found[1][0].action)
        assert [most[1] for *_, most in seen] == [54 - length * i for i in range(len(seen))]
        assert len(found) == 2 and sum(len(t.action) for t in found[1]) >= 50
        seen.clear()
        (only,) = diagnostics.trajectories(ground, whole.state, 2, 1)
        assert {tuple(who) for _, who, _ in seen} == {(True, False)} and only


def test_every_seed_has_a_limit_of_its_own(whole):
    plan, lifted = whole.plan, engine_of(whole.plan).lifted
    with field(plan, lifted.play, 2, training=True) as ground:
        every = play(ground, whole.state, (4, 5), record=True)
        some = play(ground, whole.state, (4, 5), record=True, most=np.array([2, 3]))
        one = play(ground, whole.state, (4, 5), record=True, who=np.array([False, True]))
    assert [[g.finished.length for g in mine] for mine in some] == [[2, 2], [3, 3]]
    assert one[0] == [] and len(one[1]) == 2
    for whole_game, cut, alone in zip(every[1], some[1], one[1], strict=True):
        assert whole_game.finished == alone.finished
        np.testing.assert_array_equal(whole_game.trajectory.frame, alone.trajectory.frame)
        np.testing.assert_array_equal(whole_game.trajectory.ending, alone.trajectory.ending)
        np.testing.assert_array_equal(whole_game.trajectory.frame[:3], cut.trajectory.frame)
        np.testing.assert_array_equal(whole_game.trajectory.frame[3], cut.trajectory.ending)


def test_a_diverged_seed_is_measured_by_its_last_finite_nets_and_news_are_noted(tmp_path, monkeypatch):
    given, trusted, add, news = [], Training.trusted, Moments.add, ["a lane was lost"]

    def asked(self):
        given.append(trusted(self))
        return given[-1]

    def added(self, state):
        assert state is given[-1]
        add(self, state)

    monkeypatch.setattr(Training, "trusted", asked)
    monkeypatch.setattr(Moments, "add", added)
    monkeypatch.setattr(Moments, "news", lambda self: [news.pop()] if news else [])
    run = often(tmp_path, halt=lambda now: now == 51)
    assert len(given) >= 2
    assert {"agent_steps": 51, "event": "a lane was lost"} in run.folder.status["events"]


@pytest.mark.parametrize("method, task", [("vcr", "catch"), ("curl", "catch"), ("vcr", "reach")])
def test_what_waits_is_no_more_than_what_plays_and_imagines(whole, method, task):
    plan = whole.plan if (method, task) == ("vcr", "catch") else make_plan(method, task, (3, 5))
    engine = engine_of(plan)
    state = engine.lifted.init(np.array(plan.seeds, np.int32))
    two = Moments(plan, engine, engine.lifted.play)
    two.add(state)
    two.add(jax.tree.map(lambda x: x + 1, state))
    kept = [engine.lifted.take(two.nets, np.int32(at), 2) for at in (0, 2)]
    for more, found in enumerate(kept):
        assert not jax.tree.leaves((found.opt, found.target))
        for part in ("encoder", "q_head", "transition", "actor"):
            parts = (getattr(nets.online, part, None) for nets in (found, state))
            for now, then in zip(*map(jax.tree.leaves, parts), strict=True):
                np.testing.assert_array_equal(now, then + more)
        for part in ("prediction", "projection", "contrast", "backward", "decoder"):
            assert getattr(found.online, part, None) is None
    two.close()
    assert two.nets is None


def test_how_many_wait(monkeypatch):
    monkeypatch.undo()
    atari = {n: make_plan("vcr", "pong", range(n)) for n in (1, 5, 10, 20, 60)}
    assert {moments.together(plan) for plan in atari.values()} == {1}  # on a CPU
    before = sum(need_in_bytes(atari[10], engine_of(atari[10])))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert [moments.together(plan) for plan in atari.values()] == [10, 10, 5, 2, 1]
    assert moments.together(make_plan("vcr", "catch", range(2))) == 1
    # Nets of 3.55 million numbers, of ten seeds at four moments more; none where there are no Q-errors.
    after = sum(need_in_bytes(atari[10], engine_of(atari[10])))
    assert 4 * 10 * 3.5e6 * 4 < after - before < 4 * 10 * 3.6e6 * 4
    # A campaign asks on a CPU what a GPU would hold, and about one seed.
    assert (
        need_in_bytes(atari[10], engine_of(atari[10]), gpu=False)[2]
        < need_in_bytes(atari[10], engine_of(atari[10]))[2]
    )
    # Long games would fill the host's memory with frames.
    far = {g: make_plan("vcr", "pong", range(10), changes={"gamma": g}) for g in (0.99, 0.997, 1.0)}
    assert [moments.together(plan) for plan in far.values()] == [5, 2, 1]
    never = make_plan("vcr", "pong", range(10), schedule=Schedule(q_error=0))
    assert sum(need_in_bytes(never, engine_of(never))) < before
