"""A run in the hand of a user: score it, act with it, load it again, film it."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from tiny import tiny

import vcrl
from vcrl.core.errors import UserError
from vcrl.envs.lanes import Lanes
from vcrl.nets import tiles
from vcrl.training import evaluate, loop
from vcrl.training.engine import engine_of
from vcrl.training.film import film
from vcrl.training.memory import check_memory, need_in_bytes
from vcrl.training.plan import Schedule, make_plan
from vcrl.training.watch import mean_of

pytestmark = pytest.mark.usefixtures("quick_compiles")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tiny(tmp_path_factory.mktemp("run"))


def test_the_score_is_the_mean_of_the_final_evaluation(run):
    rows = [r for r in run.folder.evaluations() if r.agent_steps == 80]
    assert len(rows) == 2 * run.plan.protocol.eval_episodes
    assert run.scores() == {s: pytest.approx(np.mean([r.score for r in rows if r.seed == s])) for s in (3, 5)}


def test_a_row_of_the_log_is_the_mean_over_the_updates_of_its_step(tmp_path, monkeypatch):
    tick, told = loop.tick, {}

    def overheard(plan, engine, training):
        metrics, finished = tick(plan, engine, training)
        told[training.tick] = jax.device_get(metrics)
        return metrics, finished

    monkeypatch.setattr(loop, "tick", overheard)
    run = tiny(tmp_path, "rainbow", steps=50, changes={"updates_per_step": 2}, schedule=Schedule(log=10))
    rows = run.folder.metrics()
    assert [row["agent_steps"] for row in rows] == [40, 50] and rows[-1]["updates"] == 40
    for row in rows:
        one, two = (each["loss/rl"] for each in told[row["agent_steps"]])
        np.testing.assert_allclose(row["loss/rl"], (one + two) / 2, rtol=1e-6)
        assert (one != two).all()


def test_what_diverged_has_a_mean_too():
    one, two = jnp.array([jnp.inf, 3e38, 1.0]), jnp.array([-jnp.inf, 3e38, 2.0])
    np.testing.assert_array_equal(mean_of([{"loss": one}, {"loss": two}])["loss"], [np.nan, np.inf, 1.5])


def test_evaluate_repeats_the_final_evaluation_and_more_games_begin_with_the_same(run):
    final = {
        s: [r.score for r in run.folder.evaluations() if (r.seed, r.agent_steps) == (s, 80)] for s in (3, 5)
    }
    games = run.evaluate()
    assert {s: [g.score for g in mine] for s, mine in games.items()} == final
    assert [g.episode for g in run.evaluate(130)[3]] == list(range(130))
    assert [g.score for g in run.evaluate(7)[5]] == final[5][:7]
    with pytest.raises(UserError, match="at least one"):
        run.evaluate(0)


def test_a_loaded_run_is_the_run(run):
    again = vcrl.load_run(run.path)
    assert again.plan == run.plan
    assert again.evaluate(3) == run.evaluate(3)


def test_the_policy_plays_an_evaluation_game_frame_by_frame(run):
    games = {seed: [g.score for g in mine] for seed, mine in run.evaluate(3).items()}
    for seed in (3, 5):
        lanes = Lanes(run.plan.task.make(1, run.plan.protocol, False), [seed], 1, evaluate.EVAL_SALT)
        scores: list[float] = []
        run.policy.reset()
        while len(scores) < 3:
            # Epsilon is 0.001: these few games have no random action, whichever draw names them.
            _, finished = lanes.step(np.array([run.policy(lanes.obs[0], seed)]))
            if finished:
                scores.append(finished[0].score)
                run.policy.reset()
        assert scores == games[seed]


def test_the_policy_refuses_what_is_not_a_frame(run):
    with pytest.raises(UserError, match=r"uint8\[16, 16, 1\]"):
        run.policy(np.zeros((84, 84, 4), np.uint8))
    with pytest.raises(UserError, match="seed 9"):
        run.policy(np.zeros((16, 16), np.uint8), seed=9)


def test_a_run_without_a_checkpoint_says_so(run, tmp_path):
    (tmp_path / "config.json").write_text((run.path / "config.json").read_text())
    for name in ("metrics.jsonl", "episodes.csv", "eval.csv", "speed.jsonl"):
        (tmp_path / name).write_bytes((run.path / name).read_bytes())
    with pytest.raises(UserError, match="no checkpoint yet"):
        vcrl.load_run(tmp_path).evaluate(1)


def test_a_film_shows_the_games(run, tmp_path):
    path = film(run, tmp_path / "play.gif", [3, 5], 2)
    with Image.open(path) as picture:
        assert picture.n_frames > 7 and picture.width > picture.height


def test_memory_is_counted_before_it_is_taken(run, monkeypatch):
    engine = engine_of(run.plan)
    replay, weights, work = need_in_bytes(run.plan, engine)
    rows = 2 * run.plan.capacity * (16 * 16 + 4 + 4 + 3 + 4)
    assert replay == rows and weights > 0
    # Two seeds, batches of 4; o_t, twice 3 bootstrap states, 2 real ones; 8x8 patches of 4x4 pixels, 2 frames, floats.
    widest = 4 * (1 + 2 * 3 + 2) * 64 * 16 * 2 * 4
    # And the stacks themselves, in bytes: o_t..o_t+2 and 3 bootstrap ones.
    stacks = 4 * (3 + 3) * 16 * 16 * 2
    # And the nets that a moment's Q-error is measured with.
    nets = run.state.online
    waiting = sum(
        x.nbytes for x in jax.tree.leaves((nets.encoder, nets.q_head, nets.transition, run.state.stats))
    )
    update = 2 * (widest + stacks)
    # Measuring it takes more here: of 50 positions a stack, the 7x7x16 of the first layer and three states of 3x3x16.
    assert work - waiting == 2 * 50 * (16 * 16 * 2 + 4 * 7 * 7 * 16 + 12 * 3 * 3 * 3 * 16) > update
    never = replace(run.plan, schedule=replace(run.plan.schedule, q_error=0))
    assert need_in_bytes(never, engine)[2] == update
    monkeypatch.setattr("vcrl.training.memory.free_in_bytes", lambda: (replay + weights + work) * 0.7)
    with pytest.raises(UserError, match=r"GB are free: use at most 1 seeds at once"):
        check_memory(run.plan, engine)


def test_a_q_error_counts_where_it_takes_more_than_an_update():
    """Ten seeds of SPR held 11.4 GB on a GPU, measuring the Q-errors of five moments together."""
    spr = make_plan("spr", "kung-fu-master", seeds=range(10))
    assert 11.0e9 < sum(need_in_bytes(spr, engine_of(spr), gpu=True)) < 12.5e9
    never = make_plan("spr", "kung-fu-master", seeds=range(10), schedule=Schedule(q_error=0))
    assert sum(need_in_bytes(never, engine_of(never), gpu=True)) < 9.5e9


def test_seeds_of_continuous_control_work_all_at_once_or_one_after_the_other(monkeypatch):
    """Ten seeds of SPR on cartpole-swingup held 23.6 GB on a GPU. Without kernels only one works at a time."""
    plan = make_plan("spr", "cartpole-swingup", seeds=range(10))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    found = list[float]()
    for kernels in (True, False):
        monkeypatch.setattr(tiles, "available", lambda there=kernels: there)
        monkeypatch.setattr("vcrl.training.engine._engines", {})
        engine = engine_of(plan)
        assert engine.agent.alone is not kernels
        found.append(sum(need_in_bytes(plan, engine)))
    assert 22e9 < found[0] < 27e9 and 10e9 < found[1] < 15e9


def test_ten_seeds_of_atari_fit_a_large_gpu_and_a_hundred_do_not(monkeypatch):
    """Within a tenth of the 10.9 GB that ten seeds of VCR were seen to take; a replay is below 0.75 GB a seed."""
    plan = make_plan("vcr", "alien", seeds=range(10))
    replay, weights, work = need_in_bytes(plan, engine_of(plan))
    assert replay < 10 * 0.75e9 and 9.8e9 < replay + weights + work < 12e9
    monkeypatch.setattr("vcrl.training.memory.free_in_bytes", lambda: 104e9)
    check_memory(plan, engine_of(plan))
    plan = make_plan("vcr", "alien", seeds=range(100))
    with pytest.raises(UserError, match=r"use at most \d\d seeds at once"):
        check_memory(plan, engine_of(plan))
