"""Lanes of Gymnasium environments that do what they should; those that do not are in test_gym_faults.py."""

import gymnasium
import numpy as np
import pytest
from conformance import CHECKS, some_actions
from own_games import Slide, register

from vcrl.core import spec
from vcrl.core.errors import UserError
from vcrl.envs.gym_adapt import Fit, parse_fit
from vcrl.envs.gym_find import by_name
from vcrl.envs.gymnasium import GymEnv
from vcrl.envs.lanes import Lanes

WALK = register("Walk", limit=12)
GRAY = register("Gray", limit=9, shape=(16, 16))
ENDLESS = register("Endless", shape=(20, 16, 1))
FIRST = register("First", limit=9, shape=(3, 16, 20))
FLOATS = register("Floats", limit=9, shape=(16, 16, 3), dtype=np.float32, high=1.0)
BIG = register("Big", limit=9, shape=(150, 130, 3))
SLIDE = register("Slide", limit=15, kind=Slide)
ALL = {
    WALK: "",
    GRAY: "",
    FIRST: "gray",
    FLOATS: "",
    BIG: "48x40,gray",
    ENDLESS: "limit=7",
    SLIDE: "",
    "CartPole-v1": "render,42x42,gray",
    "Pendulum-v1": "render,16x16,limit=20",
}
REAL = ("CartPole-v1", "Pendulum-v1")


def gym(name: str, lanes: int = 1, fit: str | None = None) -> GymEnv:
    return GymEnv(lanes, by_name(None, name), parse_fit(ALL.get(name, "") if fit is None else fit))


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize(
    "name", [WALK, SLIDE, *(pytest.param(n, marks=pytest.mark.slow) for n in (BIG, *REAL))]
)
def test_conformance(name, check):
    check(lambda lanes: gym(name, lanes))


def test_spec():
    discrete = spec.Discrete(3)
    assert gym(WALK).spec == spec.EnvSpec((16, 20, 3), discrete, 12)
    assert gym(GRAY).spec == spec.EnvSpec((16, 16, 1), discrete, 9)
    assert gym(ENDLESS, fit="").spec == spec.EnvSpec((20, 16, 1), discrete, None)
    assert gym(ENDLESS).spec.horizon == 7 and gym(WALK, fit="limit=50").spec.horizon == 12
    assert gym(FIRST, fit="").spec == spec.EnvSpec((16, 20, 3), discrete, 9)
    assert gym(BIG).spec == spec.EnvSpec((48, 40, 1), discrete, 9)
    assert gym(SLIDE).spec == spec.EnvSpec((24, 24, 3), spec.Box(2), 15)
    assert gym("CartPole-v1").spec == spec.EnvSpec((42, 42, 1), spec.Discrete(2), 500)
    assert gym("Pendulum-v1").spec == spec.EnvSpec((16, 16, 3), spec.Box(1), 20)


def test_a_time_limit_of_an_unregistered_one_is_found():
    from vcrl.envs.gymnasium import time_limit

    inner = gymnasium.wrappers.TimeLimit(Slide(), 33)
    assert time_limit(gymnasium.wrappers.RecordEpisodeStatistics(inner)) == 33
    assert time_limit(Slide()) is None


def test_same_as_the_library_by_hand():
    env, theirs = gym(WALK, 2), gymnasium.make(WALK)
    seeds, both = np.array([2**63 + 17, 5], np.uint64), np.ones(2, bool)
    frames = env.reset(both, seeds)
    theirs_frame, _ = theirs.reset(seed=17)
    assert np.array_equal(frames[0], theirs_frame)
    for action in (0, 2, 1, 0, 0):
        came = env.step(np.array([action, 1], np.int32), both)
        frame, reward, *_ = theirs.step(action + 5)
        assert np.array_equal(came.frame[0], frame) and came.reward[0] == reward


def test_continuous_actions_reach_the_environment_in_its_own_range():
    env, theirs, on = gym(SLIDE), gymnasium.make(SLIDE), np.ones(1, bool)
    env.reset(on, np.array([4], np.uint64))
    theirs.reset(seed=4)
    for ours, own in (([-1, -1], [-2, 0]), ([1, 1], [2, 10]), ([0, 0.5], [0, 7.5]), ([9, -9], [2, 0])):
        came = env.step(np.array([ours], np.float32), on)
        frame, reward, *_ = theirs.step(np.array(own, np.float32))
        assert np.array_equal(came.frame[0], frame) and came.reward[0] == np.float32(reward)


def test_what_a_state_environment_renders_is_what_the_library_wraps():
    env, on = gym("CartPole-v1", fit="render,84x84"), np.ones(1, bool)
    theirs = gymnasium.wrappers.AddRenderObservation(gymnasium.make("CartPole-v1", render_mode="rgb_array"))
    theirs = gymnasium.wrappers.ResizeObservation(theirs, (84, 84))
    frame = env.reset(on, np.array([9], np.uint64))
    pixels, _ = theirs.reset(seed=9)
    assert np.array_equal(frame[0], pixels)
    for action in (0, 1, 1):
        came, (pixels, *_) = env.step(np.array([action], np.int32), on), theirs.step(action)
        assert np.array_equal(came.frame[0], pixels)


def test_ends():
    def final(start: int, action: int, fit: str = ""):
        env, on = gym(WALK, fit=fit), np.array([True])
        env.reset(on, np.array([1], np.uint64))
        env._envs[0].unwrapped.at = start
        for step in range(1, 13):
            came = env.step(np.array([action], np.int32), on)
            if came.last[0]:
                return step, bool(came.terminal[0]), bool(came.over[0])
        return None

    assert final(13, 2) == (2, True, True)
    assert final(8, 0) == (12, False, True), "cut off by the time limit"
    assert final(3, 2) == (12, True, True), "arrives in the last moment: that is an end, not a cut"
    assert final(8, 0, "limit=5") == (5, False, True), "cut off by our limit"
    assert final(10, 2, "limit=5") == (5, True, True)


def test_resume_by_playing_again():
    env = gym(WALK, 3)
    lanes, other = Lanes(env, [1, 2, 3], 2), Lanes(gym(WALK, 3), [1, 2, 3], 2)
    actions = some_actions(env, 60, 3)
    for action in actions[:30]:
        lanes.step(action)
    other.load(lanes.save())
    for action in actions[30:]:
        a, b = lanes.step(action), other.step(action)
        assert np.array_equal(lanes.obs, other.obs) and a.finished == b.finished
    assert lanes.episode.min() > 2


def test_sizes_that_no_encoder_reads_are_refused():
    for shape in ((129, 84), (16, 200, 3), (15, 16), (64, 8, 1)):
        with pytest.raises(UserError) as caught:
            gym(register("Odd", shape=shape))
        told = str(caught.value)
        assert f"{shape[0]}x{shape[1]}, sides must be 16 to 128 pixels" in told and "Odd-v0@84x84" in told
    assert gym(register("Odd", shape=(128, 16))).spec.frame == (128, 16, 1)
    with pytest.raises(UserError, match="@render,84x84,gray, or let"):
        gym("CartPole-v1", fit="render,gray")


def test_has_no_state_to_load():
    env = GymEnv(1, by_name(None, WALK), Fit())
    assert env.save() is None
    with pytest.raises(ValueError, match="replay its actions"):
        env.load({})
