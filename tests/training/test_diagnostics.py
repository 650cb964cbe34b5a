"""The Q-error by hand, and every loss and gradient norm in the log."""

from dataclasses import replace

import numpy as np
import pytest
from tiny import tiny

from vcrl.training import diagnostics
from vcrl.training.diagnostics import discounted, positions, stacked, trajectories
from vcrl.training.engine import engine_of
from vcrl.training.evaluate import Trajectory, field, play
from vcrl.training.plan import Schedule, make_plan

pytestmark = pytest.mark.usefixtures("quick_compiles")

CONTROL = {"learn_start": 20, "batch": 4, "hidden": 8, "width": 8}


def q_error(ground, lifted, state, steps):
    played = trajectories(ground, state, steps, len(ground.plan.seeds))
    return diagnostics.error_of(ground.plan, lifted, state, played, steps)


def trajectory(actions, rewards, terminals=None):
    count = len(actions)
    frame = np.arange(1, count + 1, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 2, 1), np.uint8)
    terminal = np.zeros(count, bool) if terminals is None else np.array(terminals)
    first = np.concatenate([[True], terminal[:-1]])
    ending = np.full((2, 2, 1), count + 1, np.uint8)
    return Trajectory(frame, first, np.array(actions), np.array(rewards, np.float32), terminal, ending)


def test_discounted_returns_by_hand():
    np.testing.assert_allclose(discounted(np.array([1.0, 0.0, 2.0]), 0.5), [1 + 0.25 * 2, 1.0, 2.0])


def test_what_is_still_to_come_behind_the_end_is_discounted_too():
    np.testing.assert_allclose(
        discounted(np.array([1.0, 0.0, 2.0]), 0.5, 4.0), [1.5 + 0.5, 1.0 + 1.0, 2.0 + 2.0]
    )
    cut, ended = trajectory([0, 1], [1, 1]), trajectory([0, 1], [1, 1], [True, True])
    p = positions([cut, ended], steps=0, limit=4, gamma=0.5, rest=[8.0, 0.0])
    np.testing.assert_allclose(p.returns[0], [1.5 + 0.25 * 8, 1 + 0.5 * 8, 1, 1])


def test_stacks_can_be_filled_with_the_first_frame():
    one = trajectory([0, 1, 2, 0], [1, 1, 1, 1], [False, True, False, True])
    p = positions([one], steps=0, limit=4, gamma=1.0)
    obs = stacked(p.frame, p.first, 3, "first")
    np.testing.assert_array_equal(obs[:, 0, 0], [[1, 1, 1], [1, 1, 2], [3, 3, 3], [3, 3, 4]])


def test_a_game_that_was_cut_goes_on_in_the_agents_own_opinion(tmp_path):
    """Of `reach`, whose games end by their time limit alone."""
    plan = make_plan("sac", "reach", (3, 4), 60, CONTROL, Schedule(q_error_positions=30))
    lifted = engine_of(plan).lifted
    state = lifted.init(np.array(plan.seeds, np.int32))
    with field(plan, lifted.play, diagnostics.lanes_for(plan), training=True) as ground:
        played = trajectories(ground, state, 0, 2)
        got = q_error(ground, lifted, state, 0)
    rest = diagnostics.left_over(plan, lifted, state, played)
    for i, mine in enumerate(played):
        assert [len(game.action) for game in mine] == [20, 20]
        for game, more in zip(mine, rest[i], strict=True):
            last = np.concatenate([game.frame[-1], game.ending], axis=-1)
            obs = np.repeat(last[None, None], 2, axis=0)
            assert more == pytest.approx(float(lifted.worth(state, obs)[i, 0]), rel=1e-5) and more != 0
        returns = np.concatenate([discounted(g.reward, 0.9, v) for g, v in zip(mine, rest[i], strict=True)])[
            :30
        ]
        obs = stacked(
            np.concatenate([g.frame for g in mine]), np.concatenate([g.first for g in mine]), 2, "first"
        )[:30]
        action = np.concatenate([g.action for g in mine])[:30]
        values = lifted.values_along(
            state, np.repeat(obs[None], 2, 0), np.repeat(action[None, None], 2, 0)
        ).running
        assert got["q_error/real"][i] == pytest.approx(np.abs(values[i, 0] - returns).mean(), rel=1e-4)


def test_what_is_too_far_away_to_count_is_not_played(monkeypatch):
    """Of `reach` again: games cut 7 steps behind the last position, where a tenth of a return is left at gamma 0.7."""
    plan = make_plan("sac", "reach", (3, 4), 60, CONTROL | {"gamma": 0.7}, Schedule(q_error_positions=5))
    lifted = engine_of(plan).lifted
    state = lifted.init(np.array(plan.seeds, np.int32))
    assert diagnostics.horizon(0.7) == 26 and diagnostics.horizon(0.99) == 917
    assert diagnostics.horizon(1.0) > 10**6 and diagnostics.horizon(0.0) == 0
    with field(plan, lifted.play, diagnostics.lanes_for(plan), training=True) as ground:
        whole = trajectories(ground, state, 0, 2)
        monkeypatch.setattr(diagnostics, "FAR", 0.1)
        assert diagnostics.horizon(0.7) == 7
        cut = trajectories(ground, state, 0, 2)
        got = q_error(ground, lifted, state, 0)
    rest = diagnostics.left_over(plan, lifted, state, cut)
    for i, ((long,), (short,)) in enumerate(zip(whole, cut, strict=True)):
        assert (len(long.action), len(short.action)) == (20, 12)
        np.testing.assert_array_equal(short.action, long.action[:12])
        np.testing.assert_array_equal(short.ending, long.frame[12])
        returns = discounted(long.reward[:12], 0.7, rest[i][0])[:5]
        obs = stacked(short.frame, short.first, 2, "first")[:5]
        told = np.repeat(obs[None], 2, 0), np.repeat(short.action[None, None, :5], 2, 0)
        values = lifted.values_along(state, *told).running[i, 0]
        assert got["q_error/real"][i] == pytest.approx(np.abs(values - returns).mean(), rel=1e-4)


def test_positions_line_up_what_followed():
    found = [trajectory([0, 1, 2], [0, 0, 1]), trajectory([2, 1], [1, -1])]
    p = positions(found, steps=2, limit=4, gamma=0.5)
    np.testing.assert_array_equal(p.action[0], [0, 1, 2, 2])
    np.testing.assert_array_equal(p.action[1], [1, 2, 2, 1])
    np.testing.assert_allclose(p.returns[0], [0.25, 0.5, 1.0, 0.5])
    np.testing.assert_allclose(p.returns[1, :2], [0.5, 1.0])
    # Stacks are oldest first, with zeros before a trajectory's start.
    obs = stacked(p.frame, p.first, 3)
    np.testing.assert_array_equal(obs[:, 0, 0], [[0, 0, 1], [0, 1, 2], [1, 2, 3], [0, 0, 1]])
    # t+k must lie in the same trajectory: the first has 3 positions, the second 2.
    np.testing.assert_array_equal(p.inside, [[1, 1, 1, 1], [1, 1, 0, 1], [1, 0, 0, 0]])


def test_a_lost_life_ends_the_trajectory_a_learner_sees():
    one = trajectory([0, 1, 2, 0], [1, 1, 1, 1], [False, True, False, True])
    p = positions([one], steps=1, limit=4, gamma=1.0)
    np.testing.assert_allclose(p.returns[0], [2, 1, 2, 1])
    np.testing.assert_array_equal(p.inside[1], [1, 0, 1, 0])
    np.testing.assert_array_equal(stacked(p.frame, p.first, 2)[:, 0, 0], [[0, 1], [1, 2], [0, 3], [3, 4]])


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return tiny(tmp_path_factory.mktemp("run"))


def test_q_error_against_a_plain_loop(trained):
    plan, lifted = trained.plan, engine_of(trained.plan).lifted
    steps, limit, gamma = 2, plan.schedule.q_error_positions, plan.config.gamma
    with field(plan, lifted.play, diagnostics.lanes_for(plan), training=True) as ground:
        got = q_error(ground, lifted, trained.state, steps)
        played = trajectories(ground, trained.state, steps, 2)
    for i, found in enumerate(played):
        imagined = real = 0.0
        count = 0
        for path in found:
            length = len(path.action)
            seen = [
                np.concatenate(
                    [path.frame[t - 1] if t else np.zeros_like(path.frame[0]), path.frame[t]], axis=-1
                )
                for t in range(length)
            ]
            returns = [sum(gamma**j * path.reward[t + j] for j in range(length - t)) for t in range(length)]
            for t in range(length):
                if count == limit:
                    break
                count += 1
                ahead = [path.action[min(t + k, length - 1)] for k in range(steps + 1)]
                obs = np.repeat(seen[t][None, None], len(plan.seeds), axis=0)
                action = np.broadcast_to(np.array(ahead)[None, :, None], (len(plan.seeds), steps + 1, 1))
                q = np.asarray(lifted.values_along(trained.state, obs, action).running)[i, :, 0]
                real += abs(q[0] - returns[t])
                imagined += sum(abs(q[k] - returns[t + k]) for k in range(1, steps + 1) if t + k < length)
        assert count == limit
        assert got["q_error/real"][i] == pytest.approx(real / limit, rel=1e-4)
        assert got["q_error/imagined"][i] == pytest.approx(imagined / (limit * steps), rel=1e-4)


def test_games_go_on_for_as_long_as_states_are_imagined(trained, monkeypatch):
    """However little what comes later counts: two steps behind the third position is the fifth."""
    plan, lifted, seen = trained.plan, engine_of(trained.plan).lifted, []

    def spy(ground, state, episodes, **more):
        seen.append(more["most"].tolist())
        return play(ground, state, episodes, **more)

    plan = replace(plan, schedule=replace(plan.schedule, q_error_positions=3))
    monkeypatch.setattr(diagnostics, "play", spy)
    with field(plan, lifted.play, 1, training=True) as ground:
        for behind, most in ((0, 5), (4, 7)):
            monkeypatch.setattr(diagnostics, "horizon", lambda gamma, behind=behind: behind)
            q_error(ground, lifted, trained.state, 2)
            assert seen == [[most, most]]
            seen.clear()


def test_every_loss_has_its_gradient_norm_in_the_log(trained):
    rows = trained.folder.metrics()
    assert {"agent_steps", "env_steps", "frames", "updates"} <= rows[-1].keys() and "step" not in rows[-1]
    for name in ("rl", "spr", "vcr"):
        assert all(np.isfinite(rows[-1][f"loss/{name}"])) and len(rows[-1][f"loss/{name}"]) == 2
        assert all(x > 0 for x in rows[-1][f"grad_norm/{name}"])
    assert {"q_error/real", "q_error/imagined", "q_error/imagined_batch_norm"} <= rows[-1].keys()


def test_without_a_model_only_the_real_error_is_measured(tmp_path):
    # The training of test_resume_rows.py, which is compiled there.
    last = tiny(tmp_path, "rainbow", changes={"replay.capacity": 40, "updates_per_step": 2}).folder.metrics()[
        -1
    ]
    assert "q_error/real" in last and "q_error/imagined" not in last
