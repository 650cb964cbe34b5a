import sys
from functools import partial

import gymnasium
import numpy as np
import pytest
from conformance import CHECKS, some_actions
from gymnasium.spaces import Box, Discrete

from vcrl.core import spec
from vcrl.core.errors import UserError
from vcrl.envs.gymnasium import GymEnv, parse
from vcrl.envs.lanes import Lanes


class Walk(gymnasium.Env):
    """A light walks along a noisy strip; it is over at the right end, or when the time limit cuts it."""

    def __init__(self, shape=(16, 20, 3), dtype=np.uint8, actions=None, fails_at=None, really=None):
        self.observation_space = Box(0, 255, shape, dtype)
        self.action_space = Discrete(3, start=5) if actions is None else actions
        self.really, self.fails_at = really or (shape, dtype), fails_at

    def _look(self):
        shape, dtype = self.really
        frame = self.np_random.integers(0, 100, shape).astype(dtype)
        frame[:, self.at] = 255
        return frame

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.steps = int(self.np_random.integers(0, 12)), 0
        return self._look(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.steps += 1
        if self.steps == self.fails_at:
            raise ZeroDivisionError("the wheel came off\nand rolled away")
        self.at = int(np.clip(self.at + action - 6, 0, 15))
        return self._look(), self.at / 4, self.at == 15, False, {}


def register(name: str, limit: int | None = None, **kwargs) -> str:
    gymnasium.registry.pop(f"vcrltest/{name}-v0", None)  # registering twice warns
    gymnasium.register(f"vcrltest/{name}-v0", entry_point=Walk, max_episode_steps=limit, kwargs=kwargs)
    return f"vcrltest/{name}-v0"


WALK = register("Walk", limit=12)
GRAY = register("Gray", limit=9, shape=(16, 16))
ENDLESS = register("Endless", shape=(20, 16, 1))


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("name", [WALK, GRAY])
def test_conformance(name, check):
    check(partial(GymEnv, module=None, name=name))


def test_spec():
    assert GymEnv(1, None, WALK).spec == spec.EnvSpec((16, 20, 3), spec.Discrete(3), 12)
    assert GymEnv(1, None, GRAY).spec == spec.EnvSpec((16, 16, 1), spec.Discrete(3), 9)
    assert GymEnv(1, None, ENDLESS).spec == spec.EnvSpec((20, 16, 1), spec.Discrete(3), None)


def test_same_as_the_library_by_hand():
    env, theirs = GymEnv(2, None, WALK), gymnasium.make(WALK)
    seeds, both = np.array([2**63 + 17, 5], np.uint64), np.ones(2, bool)
    frames = env.reset(both, seeds)
    theirs_frame, _ = theirs.reset(seed=17)
    assert np.array_equal(frames[0], theirs_frame)
    for action in (0, 2, 1, 0, 0):
        came = env.step(np.array([action, 1], np.int32), both)
        frame, reward, *_ = theirs.step(action + 5)
        assert np.array_equal(came.frame[0], frame) and came.reward[0] == reward


def test_ends():
    def final(start: int, action: int):
        env, on = GymEnv(1, None, WALK), np.array([True])
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


def test_resume_by_playing_again():
    env = GymEnv(3, None, WALK)
    lanes, other = Lanes(env, [1, 2, 3], 2), Lanes(GymEnv(3, None, WALK), [1, 2, 3], 2)
    actions = some_actions(env, 60, 3)
    for action in actions[:30]:
        lanes.step(action)
    other.load(lanes.save())
    for action in actions[30:]:
        a, b = lanes.step(action), other.step(action)
        assert np.array_equal(lanes.obs, other.obs) and a.finished == b.finished
    assert lanes.episode.min() > 2


def test_module_is_imported_first(tmp_path, monkeypatch):
    (tmp_path / "my_games.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('MyWalk-v3', entry_point=lambda: gymnasium.make('vcrltest/Gray-v0'))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module, name = parse("gym:my_games:MyWalk-v3")
    assert GymEnv(2, module, name).spec.frame == (16, 16, 1)


def test_parse():
    assert parse("gym:Pong-v5") == (None, "Pong-v5")
    assert parse("gym:a.b:ALE/Pong-v5") == ("a.b", "ALE/Pong-v5")
    with pytest.raises(UserError, match="write gym:Name-v0 or gym:module:Name-v0"):
        parse("gym:")


def refusal(name: str, module: str | None = None) -> str:
    with pytest.raises(UserError) as caught:
        GymEnv(2, module, name)
    text = str(caught.value)
    assert "\n" not in text and len(text) < 300
    return text


def test_no_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    assert refusal(WALK) == "Gymnasium is not installed: pip install 'vcrl[gym]'"


def test_no_module(tmp_path, monkeypatch):
    assert "cannot import 'no_such_games'" in refusal("X-v0", "no_such_games")
    (tmp_path / "bad_games.py").write_text("raise RuntimeError('not today')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "RuntimeError: not today; install it or add its folder to PYTHONPATH" in refusal(
        "X-v0", "bad_games"
    )


def test_no_name():
    assert f"did you mean {WALK}" in refusal("vcrltest/Wlak-v0")
    assert "no registered name is near" in refusal("QQQQQQQQQQQQQQQQQQQQ")


def test_refused_observations():
    for kwargs in ({"dtype": np.float32}, {"shape": (3, 16, 16)}, {"shape": (16, 16, 4)}, {"shape": (16,)}):
        told = refusal(register("Odd", **kwargs))
        assert "not uint8 images" in told and "AddRenderObservation" in told
    assert "CartPole-v1 are Box of float32 (4,)" in refusal("CartPole-v1")
    for shape in ((129, 84), (16, 200, 3), (15, 16), (64, 8, 1)):
        told = refusal(register("Odd", shape=shape))
        assert (
            f"{shape[0]} x {shape[1]}, sides must be 16 to 128 pixels" in told and "ResizeObservation" in told
        )
    assert GymEnv(1, None, register("Odd", shape=(128, 16))).spec.frame == (128, 16, 1)


def test_refused_actions():
    told = refusal(register("Odd", actions=Box(-1, 1, (2,))))
    assert "Box of float32 (2,), only Discrete is supported" in told and "TransformAction" in told


def test_constructor_that_fails():
    assert "cannot build vcrltest/Odd-v0: TypeError" in refusal(register("Odd", no_such_argument=1))


def test_failing_step_names_environment_lane_and_step():
    env = GymEnv(2, None, register("Odd", fails_at=3))
    env.reset(np.ones(2, bool), np.array([1, 2], np.uint64))
    actions, second = np.zeros(2, np.int32), np.array([False, True])
    env.step(actions, second)
    env.step(actions, second)
    with pytest.raises(UserError) as caught:
        env.step(actions, second)
    assert "vcrltest/Odd-v0 failed in lane 1 at step 3 of its game" in str(caught.value)
    assert "ZeroDivisionError: the wheel came off;" in str(caught.value) and "\n" not in str(caught.value)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(
    "really", [((16, 20, 3), np.float32), ((16, 20, 1), np.uint8), ((20, 16, 3), np.uint8)]
)
def test_frames_that_break_their_promise(really):
    env = GymEnv(1, None, register("Odd", really=really))
    with pytest.raises(UserError, match="not the uint8 image its observation_space promises"):
        env.reset(np.ones(1, bool), np.array([1], np.uint64))


def test_has_no_state_to_load():
    env = GymEnv(1, None, WALK)
    assert env.save() is None
    with pytest.raises(ValueError, match="replay its actions"):
        env.load({})


def test_the_old_interface_and_rewards_that_are_not_numbers_are_one_line(monkeypatch):
    env, lanes = GymEnv(1, None, WALK), np.ones(1, bool)
    env.reset(lanes, np.array([1], np.uint64))
    walk = env._envs[0].unwrapped
    came = walk.step(5)
    monkeypatch.setattr(env._envs[0], "step", lambda action: (came[0], float("nan"), False, False, {}))
    with pytest.raises(UserError, match="gave the reward nan in lane 0 at step 1"):
        env.step(np.zeros(1, np.int32), lanes)
    monkeypatch.setattr(env._envs[0], "step", lambda action: (came[0], 1.0, False, {}))
    with pytest.raises(UserError, match="must return 5 values"):
        env.step(np.zeros(1, np.int32), lanes)
    monkeypatch.setattr(env._envs[0], "reset", lambda seed: came[0])
    with pytest.raises(UserError, match="must return 2 values"):
        env.reset(lanes, np.array([1], np.uint64))
