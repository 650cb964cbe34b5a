"""Trainings on real Atari frames: stopped, resumed, disturbed; and every method of the library."""

import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from tiny import assert_same_files
from tiny_atari import atari, atari_plan

from vcrl.envs.workers import Workers
from vcrl.methods.discrete import FAMILY
from vcrl.runs import checkpoint
from vcrl.training import watch
from vcrl.training.engine import Training, engine_of
from vcrl.training.plan import Schedule
from vcrl.training.run import load_run

pytestmark = pytest.mark.usefixtures("quick_compiles")


@pytest.fixture(scope="module", autouse=True)
def in_this_process():
    """All lanes, unless a test wants processes for them: to start these takes longer than to play."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vcrl.envs.processes.cores", lambda: 1)
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that was never stopped."""
    return atari(tmp_path_factory.mktemp("whole"))


def test_a_run_counts_frames_and_has_everything_in_its_logs(whole):
    status = whole.folder.status
    assert status["state"] == "done" and status["events"] == []
    assert (status["agent_steps"], status["env_steps"], status["frames"]) == (40, 40, 4 * 40)
    assert status["updates"] == 16 and status["lane_agent_steps"] == [40, 40]
    rows = whole.folder.metrics()
    assert [row["agent_steps"] for row in rows] == [28, 30, 32, 36, 40]
    assert all(row["frames"] == 4 * row["agent_steps"] for row in rows)
    for name in ("loss/rl", "loss/spr", "loss/vcr"):
        assert all(math.isfinite(x) for row in rows if row["agent_steps"] != 30 for x in row[name])
    (errors,) = (row for row in rows if row["agent_steps"] == 30)
    for name in ("q_error/real", "q_error/imagined", "q_error/imagined_batch_norm"):
        assert len(errors[name]) == 2 and all(math.isfinite(x) and x > 0 for x in errors[name])


def test_evaluations_are_whole_games_of_every_seed(whole):
    rows = whole.folder.evaluations()
    assert [(r.agent_steps, r.seed, r.episode) for r in rows] == [
        (at, seed, episode) for at in (20, 40) for seed in (3, 5) for episode in (0, 1)
    ]
    assert all(0 < r.length <= 40 and r.score >= 0 for r in rows)
    assert whole.scores().keys() == {3, 5}
    again = load_run(whole.path).evaluate()
    assert [g.score for g in again[5]] == [r.score for r in rows if r.seed == 5 and r.agent_steps == 40]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that was stopped twice, and what it held then; it is not resumed yet."""
    out = tmp_path_factory.mktemp("stopped")
    for at in (11, 33):
        run = atari(out, halt=lambda now, at=at: now == at)
        assert run.folder.status["state"] == "stopped" and run.folder.status["frames"] == 4 * at
        held = sorted(p.name for p in (run.path / "checkpoint" / "rows").iterdir())
        assert held == ["000000000-000000011.safetensors", "000000011-000000033.safetensors"][: len(held)]
    found = checkpoint.load(run.path / "checkpoint", pytest.fail)
    assert found is not None
    rows = [part.arrays for part in found.rows]
    return out, {name: np.concatenate([part[name] for part in rows], axis=1) for name in rows[0]}


def test_training_saw_pictures_and_lost_lives(stopped):
    """What the tests below compare is a game that moved."""
    _, rows = stopped
    frame = rows["frame"]
    assert frame.shape == (2, 33, 84, 84, 1) and frame.max() > 100
    for lane in frame:
        assert len(np.unique(lane.reshape(33, -1), axis=0)) > 20
    assert (frame[0] != frame[1]).any(axis=(1, 2, 3)).sum() > 20
    assert rows["terminal"].any() and not rows["pad"].any()


def test_stopped_and_resumed_equals_not_stopped(whole, stopped):
    assert_same_files(atari(stopped[0]), whole)


@pytest.mark.slow  # that files are the same says so above, and of the replay of a toy game test_resume_rows.py
def test_a_restored_replay_of_frames_is_the_same_to_the_bit(tmp_path):
    """Of a run that was stopped twice and of one that came here at once."""

    def held(out, stops):
        for at in stops:
            run = atari(out, halt=lambda now, at=at: now == at)
        training = Training(run.plan, engine_of(run.plan))
        found = checkpoint.load(run.path / "checkpoint", pytest.fail)
        assert found is not None
        training.restore(found)
        return training

    one, two = held(tmp_path / "one", (35,)), held(tmp_path / "two", (7, 30, 35))
    for tree in ("state", "good", "replay"):
        leaves = zip(*(jax.tree.leaves(getattr(t, tree)) for t in (one, two)), strict=True)
        for a, b in leaves:
            np.testing.assert_array_equal(a, b)
    for name, array in one.lanes.save().items():
        np.testing.assert_array_equal(array, two.lanes.save()[name], err_msg=name)
    for training in (one, two):
        training.close()


@pytest.mark.slow  # in this process it is resumed above, and a toy game in another one in test_resume.py
def test_resumed_in_another_process_equals_not_stopped(whole, tmp_path):
    atari(tmp_path, halt=lambda now: now == 29)
    here = Path(__file__).parent
    code = f"import sys; sys.path.insert(0, {str(here)!r}); from pathlib import Path; "
    code += f"from tiny_atari import atari; atari(Path({str(tmp_path)!r}))"
    # Compiled as the tests here are.
    env = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300, env=env)
    run = atari(tmp_path)
    assert run.folder.status["state"] == "done"
    assert_same_files(run, whole)


def test_a_killed_simulator_changes_nothing_and_is_noted(whole, tmp_path, monkeypatch):
    """Lanes in two processes, one of which is killed while the run goes on, and again after a resume."""
    monkeypatch.setattr("vcrl.envs.processes.cores", lambda: 3)
    envs: list[Workers] = []

    class Watch(watch.Watch):
        def begin(self, training, *found):
            assert isinstance(training.lanes.env, Workers)
            envs.append(training.lanes.env)
            super().begin(training, *found)

    monkeypatch.setattr("vcrl.training.loop.Watch", Watch)

    def halt(now):
        if now in (9, 26, 37):
            os.kill(envs[-1]._children[now % 2].process.pid, signal.SIGKILL)
        return now == 20

    run = atari(tmp_path, halt=halt)
    assert run.folder.status["state"] == "stopped"
    run = atari(tmp_path, halt=lambda now: now != 20 and halt(now))
    status = run.folder.status
    assert status["state"] == "done" and [e["agent_steps"] for e in status["events"]] == [10, 27, 38]
    for event, lane in zip(status["events"], (1, 0, 1), strict=True):
        assert f"the simulator process of lane {lane} died (exit code -9)" in event["event"]
    assert_same_files(run, whole)


def sticky(out, whole, **more):
    run = atari(out, protocol="atari100k-sticky", **more)
    assert run.plan.protocol.sticky == 0.25 and run.folder.record["protocol"]["sticky"] == 0.25
    assert run.plan.digest != whole.plan.digest and run.path.name != whole.path.name
    assert run.folder.record["protocol_hash"] != whole.folder.record["protocol_hash"]
    assert load_run(run.path).plan == run.plan
    return run


def test_sticky_actions_are_another_run(whole, stopped, tmp_path):
    """Other games from the start; stopped before anything is evaluated or learned, which is compiled anew."""
    run = sticky(tmp_path, whole, halt=lambda now: now == 19)
    assert run.folder.status["state"] == "stopped" and run.folder.status["frames"] == 76
    found = checkpoint.load(run.path / "checkpoint", pytest.fail)
    assert found is not None
    (rows,) = found.rows
    assert (rows.arrays["frame"] != stopped[1]["frame"][:, :19]).any()


@pytest.mark.slow
def test_a_whole_run_with_sticky_actions(whole, tmp_path):
    run = sticky(tmp_path, whole)
    assert run.folder.status["state"] == "done" and run.folder.status["frames"] == 160
    one, two = ((r.path / "metrics.jsonl").read_bytes() for r in (run, whole))
    assert one != two


ONCE = Schedule(log=1, evaluate=0, gradients=0, q_error=64, q_error_positions=20)


@pytest.mark.slow
@pytest.mark.parametrize("method", FAMILY.methods)
def test_every_method_trains_on_real_frames(tmp_path, monkeypatch, method):
    """And moves every one of its arrays, also those that a finished run does not keep."""
    held, trusted = [], Training.trusted
    monkeypatch.setattr(Training, "trusted", lambda training: held.append(trusted(training)) or held[-1])
    plan = atari_plan(method, "ms-pacman", seeds=(1,), steps=64, learn_start=60, schedule=ONCE)
    fresh = jax.tree.map(np.array, engine_of(plan).lifted.init(np.array([1], np.int32)))
    run = atari(
        tmp_path, method=method, game="ms-pacman", seeds=(1,), steps=64, learn_start=60, schedule=ONCE
    )
    status = run.folder.status
    assert status["state"] == "done" and not status["not_finite_since"]
    assert (status["updates"], status["frames"]) == (4, 256)
    rows = run.folder.metrics()
    assert [row["agent_steps"] for row in rows] == [61, 62, 63, 64]
    losses = {name for name in rows[0] if name.startswith("loss/")}
    terms = {f"loss/{name}" for name, term in vars(plan.config.terms).items() if term is not None}
    assert losses == {"loss/rl"} | terms
    for row in rows:
        for name in losses:
            assert all(math.isfinite(x) for x in row[name]), name
    assert math.isfinite(rows[-1]["q_error/real"][0])
    before, after = (jax.tree_util.tree_leaves_with_path(s.online) for s in (fresh, held[-1]))
    moved = [np.any(np.asarray(a) != np.asarray(b)) for (_, a), (_, b) in zip(before, after, strict=True)]
    still = [jax.tree_util.keystr(path) for (path, _), m in zip(before, moved, strict=True) if not m]
    assert not still
    assert all(np.isfinite(np.asarray(x)).all() for x in jax.tree.leaves((held[-1], run.state)))
    assert math.isfinite(run.scores()[1]) and len(run.folder.evaluations()) == 2
