"""Rows reach the replay once, whoever asks for learning meanwhile, and come back from a checkpoint bit for bit."""

import jax
import numpy as np
import pytest
from tiny import assert_same_files, tiny

from vcrl.runs import checkpoint
from vcrl.training import engine as engine_module
from vcrl.training import lift as lift_module
from vcrl.training.engine import Training, engine_of
from vcrl.training.lift import BLOCK, no_row
from vcrl.training.loop import tick
from vcrl.training.plan import make_plan

SMALL = {"batch": 4, "hidden": 8, "value.atoms": 11, "n_step": 2, "learn_start": 30, "updates_per_step": 2}
CAPACITY = 40  # half of what is written, and no multiple of any save
USUAL = {("wrapped", 7), ("wrapped", 40), ("all of it", 41)}  # of blocks; the others in `make slow`

pytestmark = pytest.mark.usefixtures("quick_compiles")


def planned(method, capacity=CAPACITY):
    return make_plan(method, "catch", (3, 5), 120, SMALL | {"replay.capacity": capacity})


def started(plan):
    return Training(plan, engine_of(plan))


def play(plan, training, until):
    while training.tick < until:
        tick(plan, engine_of(plan), training)


def snapshot(training):
    """As `Watch.save` does: every seed is looked at first."""
    finite, training.good = training.lifted.guard(training.state, training.good)
    assert np.array_equal(finite, training.failed < 0)
    return training.snapshot()


def write(folder, plan, taken):
    """As `Watch.write` does."""
    oldest = taken.span[1] - plan.capacity
    checkpoint.save(
        folder, taken.counters["tick"], taken.arrays(), {"counters": taken.counters}, taken.rows(), oldest
    )


def restored(folder, plan):
    found = checkpoint.load(folder, pytest.fail)
    assert found is not None
    fresh = started(plan)
    fresh.restore(found)
    return fresh


def host(training):
    """Everything a training holds, as it is now: later ticks take the arrays themselves away."""
    training.store()
    trees = {"state": training.state, "replay": training.replay, "good": training.good}
    return jax.tree.map(lambda x: np.array(x), trees) | {
        "lanes": training.lanes.save(),
        "counters": (training.counters, training.rows_kept, training.failed.copy()),
    }


def assert_same(one, two):
    (names, structure), (others, same) = (jax.tree_util.tree_flatten_with_path(x) for x in (one, two))
    assert structure == same and len(names) > 20
    for (path, a), (_, b) in zip(names, others, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype), path
        assert a.tobytes() == b.tobytes(), jax.tree_util.keystr(path)


@pytest.mark.parametrize("method", ["rainbow", "der"])
@pytest.mark.parametrize("saves", [(20, 45, 60, 93), (93,), (35, 93), (40, 80), (39, 41, 42, 43)], ids=str)
def test_a_restored_training_is_the_one_that_was_saved(tmp_path, method, saves):
    """At once after the last save, and after both have gone on; `der` keeps the largest priority, too."""
    plan = planned(method)
    training = started(plan)
    for at in saves:
        play(plan, training, at)
        taken = snapshot(training)
        # What is new since the last save, and still there.
        assert taken.span[1] == at and taken.span[1] - taken.span[0] <= CAPACITY
        write(tmp_path, plan, taken)
    again, wanted = restored(tmp_path, plan), host(training)
    assert_same(wanted, host(again))
    assert (training.replay.top is not None) == (method == "der")
    if method == "der" and saves[-1] > 60:
        assert (np.asarray(again.replay.top) > 1).any()  # it has been learned, so it had to be saved
    assert (np.asarray(again.replay.priority) != 1).any()
    assert len(np.unique(np.asarray(again.replay.frame).reshape(-1, 256), axis=0)) > 20
    for one in (training, again):
        play(plan, one, saves[-1] + 9)
        snapshot(one)
    assert_same(host(training), host(again))


def test_learning_asked_for_by_a_thread_is_the_same_learning(monkeypatch):
    plan, ends = planned("rainbow", 40), []
    for by_thread in (False, True):
        monkeypatch.setattr(engine_module, "threaded", lambda by_thread=by_thread: by_thread)
        training = started(plan)
        assert (training.thread is not None) == by_thread
        play(plan, training, 77)
        ends.append(host(training))
        training.close()
    assert ends[0]["counters"][0]["updates"] > 20
    assert_same(*ends)


def test_a_game_that_fails_while_learning_goes_on_loses_neither_state_nor_replay(monkeypatch):
    monkeypatch.setattr(engine_module, "threaded", lambda: True)
    plan = planned("rainbow", 40)
    training = started(plan)
    play(plan, training, 60)
    before = host(training)

    def fail(actions):
        raise ZeroDivisionError

    monkeypatch.setattr(training.lanes, "step", fail)
    with pytest.raises(ZeroDivisionError):
        tick(plan, engine_of(plan), training)
    after = host(training)  # what was given away could not be read
    states = zip(jax.tree.leaves(before["state"]), jax.tree.leaves(after["state"]), strict=True)
    assert not all(np.array_equal(a, b) for a, b in states)
    np.testing.assert_array_equal(before["replay"].frame, after["replay"].frame)
    training.close()


def test_a_row_reaches_the_replay_once_and_none_where_there_is_none():
    plan = planned("rainbow", 40)
    training = started(plan)
    play(plan, training, 45)
    assert training.newest is not None and training.rows == 45
    kept = np.array(training.replay.frame[:, 4])  # of row 4 still, which row 44 will be written over
    training.store()
    assert training.newest is None and not training.now[3]
    assert not np.array_equal(kept, training.replay.frame[:, 4])
    stored = jax.tree.map(np.array, training.replay)
    training.store()
    replay = training.lifted.insert(training.replay, no_row(plan.task.spec, 2), training.now)
    for name, array in stored._asdict().items():
        np.testing.assert_array_equal(array, getattr(replay, name), err_msg=name)


# Every one has programs of its own.
@pytest.mark.parametrize(
    ("capacity", "block"),
    [
        pytest.param(
            capacity, block, marks=[pytest.mark.slow] * ((name, block) not in USUAL), id=f"{name}-{block}"
        )
        for name, capacity in (("wrapped", 40), ("all of it", 120))
        for block in (1, 7, 40, 41)
    ],
)
def test_blocks_of_any_size_put_the_same_rows_together(tmp_path, monkeypatch, block, capacity):
    assert BLOCK > 41  # elsewhere here a replay is less than one block
    plan = planned("rainbow", capacity)
    training = started(plan)
    play(plan, training, 29)
    write(tmp_path, plan, snapshot(training))
    play(plan, training, 77)
    state, wanted = snapshot(training), host(training)
    monkeypatch.setattr(lift_module, "BLOCK", block)
    monkeypatch.setattr(engine_module, "BLOCK", block)
    monkeypatch.setattr(engine_module, "_engines", {})
    # The same rows cut otherwise, both on the way out and on the way back.
    lifted = engine_of(plan).lifted
    starts = range(state.span[0], 77, block)
    cut = [lifted.rows(training.replay, np.int32(start)) for start in starts]
    assert all(part.reward.shape == (2, block) for part in cut)
    again = state._replace(blocks=cut)
    for name, array in state.rows().arrays.items():
        np.testing.assert_array_equal(array, again.rows().arrays[name], err_msg=name)
    write(tmp_path, plan, again)
    assert_same(wanted, host(restored(tmp_path, plan)))


def test_training_may_go_on_before_a_snapshot_is_written(tmp_path):
    """Its arrays are copies: neither learning nor inserting, which work in place, reach them."""
    plan = planned("der")
    training = started(plan)
    play(plan, training, 70)
    taken, wanted = snapshot(training), host(training)
    play(plan, training, 110)  # every row of then is overwritten by now
    write(tmp_path, plan, taken)
    assert_same(wanted, host(restored(tmp_path, plan)))
    write(tmp_path, plan, snapshot(training))
    assert_same(host(training), host(restored(tmp_path, plan)))


def test_the_last_good_state_is_saved_once_a_seed_has_failed(tmp_path):
    plan = planned("rainbow")
    training = started(plan)
    play(plan, training, 50)
    assert not any(name.startswith("good") for name in snapshot(training).arrays())
    finite = host(training)["state"]
    training.good = jax.tree.map(jax.numpy.array, finite)
    training.failed[1] = 44
    training.state = jax.tree.map(
        lambda x: x.at[1].set(np.nan) if x.dtype == np.float32 else x, training.state
    )
    training.rows_kept = 0
    write(tmp_path, plan, snapshot(training))
    again = restored(tmp_path, plan)
    assert_same(host(training)["good"], host(again)["good"])
    assert again.failed.tolist() == [-1, 44]
    for a, b in zip(jax.tree.leaves(again.trusted()), jax.tree.leaves(finite), strict=True):
        np.testing.assert_array_equal(a, b)


def test_behind_the_end_nets_to_play_with_are_all_that_is_saved():
    plan = planned("rainbow")
    training = started(plan)
    play(plan, training, 50)
    whole = training.snapshot().arrays()
    taken = training.ending()
    assert taken.blocks == [] and taken.rows().arrays == {}
    nets = {name: value for name, value in taken.arrays().items() if not name.startswith("host/")}
    assert nets and all(name.startswith("state.online.") for name in nets)
    for name, value in nets.items():
        np.testing.assert_array_equal(value, whole[name], err_msg=name)
    # Of a seed that is no longer finite they are the last ones that were.
    snapshot(training)
    training.state = jax.tree.map(
        lambda x: x.at[1].set(np.nan) if x.dtype == np.float32 else x, training.state
    )
    ill = training.ending().arrays()
    for name, value in nets.items():
        np.testing.assert_array_equal(ill[name], value, err_msg=name)


@pytest.mark.parametrize("stops", [(70,), (20, 45, 70), (69, 70)], ids=str)
def test_a_whole_run_with_a_small_replay_stopped_and_resumed(tmp_path_factory, tmp_path, stops):
    """Through files and folders as a user does it."""
    small: dict = {"changes": {"replay.capacity": CAPACITY}}
    whole = tiny(tmp_path_factory.mktemp("whole"), "rainbow", **small)
    for at in stops:
        run = tiny(tmp_path, "rainbow", halt=lambda now, at=at: now == at, **small)
    held = host(restored(run.path / "checkpoint", run.plan))["replay"]
    training = started(run.plan)
    play(run.plan, training, 70)
    assert_same({"replay": held, "pad": [0] * 20}, {"replay": host(training)["replay"], "pad": [0] * 20})
    run = tiny(tmp_path, "rainbow", **small)
    assert run.folder.status["state"] == "done"
    assert_same_files(run, whole)
    # Nothing will be sampled any more, so no row is kept.
    assert not [*(run.path / "checkpoint" / "rows").glob("*")]
