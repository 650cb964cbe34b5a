"""Lanes of DeepMind Control against dm_control stepped by hand, and everything an adapter must be able to do."""

import os
import signal
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from conformance import CHECKS, advance, play, same

from vcrl.core.errors import UserError
from vcrl.core.spec import Box
from vcrl.envs import dmc, rendering
from vcrl.envs.dmc import ACTIONS, REPEATS, DmcEnv, Game, plain, repeat_of
from vcrl.envs.lanes import Lanes
from vcrl.envs.protocols import PROTOCOLS
from vcrl.envs.registry import TASKS, find, normalise
from vcrl.envs.workers import Workers

SIX = ["finger-spin", "cartpole-swingup", "reacher-easy", "cheetah-run", "walker-walk", "ball_in_cup-catch"]
SEED = 2**40 + 17


@pytest.fixture(scope="module", autouse=True)
def renderer():
    """Chosen before anything imports MuJoCo; without one these tests fail, and say what to install."""
    return rendering.choose()


@pytest.fixture
def blind(monkeypatch):
    """Instead of pictures the bits of the state: nothing is drawn, and nothing is rounded away."""
    monkeypatch.setattr(dmc, "Camera", Blind)


class Blind:
    def __init__(self, model, size):
        pass

    def take(self, model, data, out):
        told = np.concatenate([data.qpos, data.qvel, data.geom_xpos.ravel(), [data.time]])
        out[...] = np.resize(told.view(np.uint8), out.shape)

    def close(self):
        pass


def by_hand(task: str, seed: int):
    """dm_control's own environment at the start of the game that a seed stands for."""
    from dm_control import suite

    random = np.random.RandomState([seed & 0xFFFFFFFF, seed >> 32])
    env = suite.load(*task.split("-"), task_kwargs={"random": random})
    env.reset()
    return env


def moves(task: str, steps: int, lanes: int = 1) -> np.ndarray:
    return np.random.default_rng(3).uniform(-1, 1, (steps, lanes, ACTIONS[task])).astype(np.float32)


def filmed(task: str, seed: int, actions: np.ndarray, repeat: int, size: int) -> tuple[list, list]:
    """Pictures and rewards by hand. Before our camera is there: two in one thread would be in each other's way."""
    env, rewards = by_hand(task, seed), []
    frames = [env.physics.render(size, size, camera_id=0)]
    for action in actions:
        rewards.append(np.float32(sum(env.step(action.astype(np.float64)).reward for _ in range(repeat))))
        frames.append(env.physics.render(size, size, camera_id=0))
    env.physics.free()
    return frames, rewards


@pytest.mark.parametrize("task", SIX)
def test_a_lane_follows_dm_control_to_the_pixel(task):
    repeat, actions, both = repeat_of(task), moves(task, 3, 2), np.ones(2, bool)
    frames, rewards = filmed(task, SEED, actions[:, 1], repeat, 100)
    env = DmcEnv(2, task, 100, repeat)
    # The second lane, since the camera was made for the first.
    first = env.reset(both, np.array([4, SEED], np.uint64))
    np.testing.assert_array_equal(first[1], frames[0])
    assert (first[0] != first[1]).any() and (frames[0] != frames[-1]).any()
    for action, frame, reward in zip(actions, frames[1:], rewards, strict=True):
        came = env.step(action, both)
        np.testing.assert_array_equal(came.frame[1], frame)
        assert came.reward[1] == reward
        assert not (came.terminal.any() or came.last.any() or came.over.any())
    env.close()


@pytest.mark.parametrize("task", SIX)
def test_a_whole_episode_is_a_thousand_env_steps_and_its_end_no_terminal(task, blind):
    repeat, one = repeat_of(task), np.ones(1, bool)
    theirs, env = by_hand(task, SEED), DmcEnv(1, task, 16, repeat)
    env.reset(one, np.array([SEED], np.uint64))
    assert env.spec.horizon == 1000 // repeat
    for at, action in enumerate(moves(task, 1000 // repeat), 1):
        came, steps = env.step(action, one), [theirs.step(action[0]) for _ in range(repeat)]
        assert came.reward[0] == np.float32(sum(step.reward for step in steps))
        last = at == 1000 // repeat
        assert (came.terminal[0], came.last[0], came.over[0]) == (False, last, last)
        assert [step.last() for step in steps] == [False] * (repeat - 1) + [last]


def test_an_action_is_not_held_beyond_the_end():
    theirs, game = by_hand("reacher-easy", 5), Game("reacher-easy", 300)
    game.reset(np.uint64(5))
    action = np.zeros(2, np.float32)
    wanted = [theirs.step(action).reward for _ in range(1000)]
    found = [game.step(action) for _ in range(4)]
    assert dmc.spec_of("reacher-easy", 84, 300).horizon == 4
    assert [came.over for came in found] == [False, False, False, True]
    assert [came.reward for came in found] == [sum(wanted[a : a + 300]) for a in range(0, 1000, 300)]


def test_a_game_that_the_task_itself_ends_is_terminal(monkeypatch):
    import dm_env

    game = Game("cartpole-swingup", 8)
    game.reset(np.uint64(0))
    played = iter([dm_env.transition(0.5, None), dm_env.termination(0.25, None)])
    monkeypatch.setattr(game.env, "step", lambda action: next(played))
    assert game.step(np.zeros(1, np.float32)) == (0.75, True, True)


def test_actions_are_stretched_to_the_range_of_the_task(monkeypatch):
    game, seen = Game("quadruped-run", 1), []
    game.reset(np.uint64(0))
    step, bounds = game.env.step, game.env.action_spec()
    assert len(set(bounds.minimum)) > 1 and len(set(bounds.maximum)) > 1
    monkeypatch.setattr(game.env, "step", lambda action: (seen.append(action), step(action))[1])
    for action in (-1, 1, 0, 0.5, 7, np.nan):
        game.step(np.full(12, action, np.float32))
    low, high = bounds.minimum, bounds.maximum
    wanted = [low, high, (low + high) / 2, (low + 3 * high) / 4, high, (low + high) / 2]
    np.testing.assert_allclose(seen, wanted, rtol=0, atol=1e-15)
    assert (seen[0] == low).all() and (seen[1] == high).all()


@pytest.mark.parametrize("task", SIX)
def test_a_game_is_decided_by_its_seed_whatever_was_before(task):
    fresh, used = Game(task, 4), Game(task, 4)
    for seed in (1, 2):
        used.reset(np.uint64(seed))
        for action in moves(task, 15)[:, 0]:
            used.step(action)
    for game in (fresh, used):
        game.reset(np.uint64(SEED))
    assert model(fresh) == model(used)
    for action in moves(task, 15)[:, 0]:
        assert fresh.step(action) == used.step(action)
        assert state(fresh) == state(used)
    starts = [state_after(fresh, seed) for seed in (SEED, SEED - 2**40, SEED + 1, SEED)]
    assert starts[0] == starts[3] and len(set(starts)) == 3, "all 64 bits count"


def state_after(game: Game, seed: int) -> bytes:
    game.reset(np.uint64(seed))
    return state(game)


def state(game: Game) -> bytes:
    """Everything MuJoCo's next step depends on."""
    import mujoco

    return game.env.physics.get_state(mujoco.mjtState.mjSTATE_INTEGRATION.value).tobytes()


def model(game: Game) -> bytes:
    import mujoco

    own = game.env.physics.model.ptr
    out = np.zeros(mujoco.mj_sizeModel(own), np.uint8)
    mujoco.mj_saveModel(own, None, out)
    return out.tobytes()


@pytest.mark.parametrize("task", SIX)
def test_a_restored_lane_goes_on_as_one_that_was_never_stopped(task, blind):
    one, other = DmcEnv(2, task, 16, repeat_of(task)), DmcEnv(2, task, 16, repeat_of(task))
    seeds, actions = np.array([1, SEED], np.uint64), moves(task, 75, 2)
    play(other, seeds + np.uint64(5), actions[:9])
    one.reset(np.ones(2, bool), seeds)
    for at, action in enumerate(actions[:70]):  # more than the log of actions holds at first
        one.step(action, np.array([True, at % 2 == 0]))
    saved = one.save()
    other.load({name: value.copy() for name, value in saved.items()})
    for mine, theirs in zip(one._games, other._games, strict=True):
        assert model(mine) == model(theirs) and state(mine) == state(theirs)
        assert mine.env._step_count == theirs.env._step_count > 0
    rest: list[list] = [[], []]
    resumed: list[list] = [[], []]
    advance(one, rest, actions[70:])
    advance(other, resumed, actions[70:])
    assert all(same(a, b) for a, b in zip(rest, resumed, strict=True))
    again = other.save()
    assert again["length"].tolist() == [75, 40]
    assert all(np.array_equal(value, again[name]) for name, value in one.save().items())


def test_games_of_other_versions_are_refused(blind, monkeypatch):
    env = DmcEnv(1, "reacher-easy", 16, 4)
    env.reset(np.ones(1, bool), np.zeros(1, np.uint64))
    saved = env.save()
    monkeypatch.setattr(dmc, "_versions", lambda: "dm_control==9 mujoco==9")
    with pytest.raises(UserError, match=r"pip install dm_control==1\S+ mujoco==3\S+ to continue"):
        env.load(saved)


def test_physics_that_diverge_cut_the_game_and_not_the_run(blind):
    env, both = DmcEnv(2, "cheetah-run", 16, 4), np.ones(2, bool)
    env.reset(both, np.arange(2, dtype=np.uint64))
    env._games[0].env.physics.data.qvel[:] = 1e30
    came = env.step(moves("cheetah-run", 1, 2)[0], both)
    assert came.over.tolist() == came.last.tolist() == [True, False] and not came.terminal.any()
    assert np.isfinite(came.reward).all()
    first = env.reset(both, np.arange(2, dtype=np.uint64))
    np.testing.assert_array_equal(
        first, DmcEnv(2, "cheetah-run", 16, 4).reset(both, np.arange(2, dtype=np.uint64))
    )


@pytest.mark.parametrize("check", CHECKS[2:4], ids=lambda check: check.__name__)
def test_conformance(check, blind):
    check(lambda lanes: DmcEnv(lanes, "walker-walk", 16, 2))


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance_in_pictures(check):
    check(lambda lanes: DmcEnv(lanes, "reacher-easy", 16, 125))


def test_a_killed_process_costs_nothing():
    build = partial(DmcEnv, task="reacher-easy", size=32, repeat=4)
    there = Workers(build, dmc.spec_of("reacher-easy", 32, 4), 2, 2)
    here = Lanes(build(2), [1, 2], 2)
    lanes = Lanes(there, [1, 2], 2)
    for at, action in enumerate(moves("reacher-easy", 8, 2)):
        if at == 5:
            os.kill(there._children[1].process.pid, signal.SIGKILL)
        for one, two in zip(here.step(action).row, lanes.step(action).row, strict=True):
            np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(here.obs, lanes.obs)
    (news,) = lanes.news()
    assert "lane 1 died (exit code -9)" in news and "played again" in news
    # What processes saved goes on in one of other shape, and dies and goes on there too.
    here.load(lanes.save())
    for action in moves("reacher-easy", 3, 2):
        for one, two in zip(here.step(action).row, lanes.step(action).row, strict=True):
            np.testing.assert_array_equal(one, two)
    here.close()
    lanes.close()


@pytest.mark.slow
@pytest.mark.parametrize("task", ["quadruped-escape", "dog-fetch", "humanoid_CMU-run"])
def test_other_tasks_of_the_suite_look_right_too(task):
    wanted = [filmed(task, seed, np.zeros((0, 1)), 4, 84)[0][0] for seed in (5, 6)]
    env = DmcEnv(2, task, 84, 4)
    found = env.reset(np.ones(2, bool), np.array([5, 6], np.uint64))
    np.testing.assert_array_equal(found, wanted)
    assert (found[0] != found[1]).any()
    env.close()


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("cartpole-swingup", "cartpole-swingup"),
        ("cartpole_swingup", "cartpole-swingup"),
        ("CartpoleSwingup", "cartpole-swingup"),
        ("dmc:cartpole_swingup", "cartpole-swingup"),
        ("dm_control/cartpole-swingup", "cartpole-swingup"),
        ("ball_in_cup-catch", "ball_in_cup-catch"),
        ("ball-in-cup-catch", "ball_in_cup-catch"),
        ("BallInCupCatch", "ball_in_cup-catch"),
        ("cup-catch", "ball_in_cup-catch"),
        ("cup_catch", "ball_in_cup-catch"),
        ("Walker walk", "walker-walk"),
    ],
)
def test_any_usual_spelling(spelling, name):
    assert plain(spelling) == name and find(spelling) is TASKS[name]


def test_misspelt_and_other_names():
    assert plain("catch") is None and plain("pong") is None and plain("lqr-lqr_2_1") is None
    with pytest.raises(UserError, match="did you mean cartpole-swingup"):
        find("cartpole-swing")


@pytest.mark.slow
def test_tasks_sizes_and_limits_are_those_of_the_suite():
    games = {task: Game(task, 1).env for task in ACTIONS}
    assert {task: env.action_spec().shape for task, env in games.items()} == {
        task: (size,) for task, size in ACTIONS.items()
    }
    assert {env._step_limit for env in games.values()} == {1000.0}
    from dm_control import suite

    assert set(ACTIONS) == {f"{domain}-{task}" for domain, task in suite.ALL_TASKS if domain != "lqr"}


def test_the_six_tasks_are_registered():
    assert [name for name, task in TASKS.items() if task.suite == "dmc"] == SIX == list(REPEATS)
    assert [repeat_of(task) for task in SIX] == [2, 8, 4, 4, 2, 4]
    for name in SIX:
        task = TASKS[name]
        assert task.spec.frame == (100, 100, 3) and task.spec.horizon == 1000 // repeat_of(name)
        assert normalise(task, 0) == 0 and normalise(task, 1000) == 1
        small = task.sized(84)
        assert small.spec.frame == (84, 84, 3) and small.spec.actions == task.spec.actions == Box(
            ACTIONS[name]
        )
        assert (small.name, small.suite, small.sized(100).spec) == (name, "dmc", task.spec)


def test_other_tasks_of_the_suite_are_found_but_not_normalised():
    task = find("HumanoidCMU-run")
    assert task.name == "humanoid_CMU-run" and task.spec.actions == Box(56) and task.spec.horizon == 250
    with pytest.raises(UserError, match="no reference scores"):
        normalise(task, 1.0)


def test_a_task_builds_lanes(monkeypatch):
    monkeypatch.setattr("vcrl.envs.processes.cores", lambda: 2)  # and so in this process
    env = TASKS["cartpole-swingup"].sized(84).make(1, PROTOCOLS["toy"], True)
    assert isinstance(env, DmcEnv) and env.spec == TASKS["cartpole-swingup"].sized(84).spec
    assert env.reset(np.ones(1, bool), np.zeros(1, np.uint64)).shape == (1, 84, 84, 3)
    env.close()


@pytest.mark.parametrize("package", ["dm_control", "mujoco"])
def test_a_missing_package_says_what_to_install(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=rf"needs {package}, .*: pip install 'vcrl\[dmc\]'"):
        find("walker-walk").make(1, PROTOCOLS["toy"], True)


def test_naming_a_task_needs_no_simulator():
    code = (
        "import sys; from vcrl.envs.registry import find; find('cup-catch'); find('dog-run').spec\n"
        "print({'mujoco', 'dm_control', 'OpenGL'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
