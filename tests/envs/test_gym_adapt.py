"""Pictures, sizes, colours and actions, against references written out by hand."""

import sys
import threading
import time

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from hypothesis import given, settings
from hypothesis import strategies as st
from own_games import Slide, register

from vcrl.core import spec
from vcrl.core.errors import UserError
from vcrl.envs.deadline import Hang, deadline
from vcrl.envs.gym_adapt import Fault, Fit, Pictures, actions, parse_fit, pictures
from vcrl.envs.gym_find import by_name
from vcrl.envs.gymnasium import GymEnv
from vcrl.envs.pixels import area_mean, gray, resize


def slowly(image: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Area means pixel by pixel: each old pixel counts by how much of it lies in the new one."""
    out = np.zeros((*size, image.shape[2]))
    tall, wide = image.shape[0] / size[0], image.shape[1] / size[1]
    for i in range(size[0]):
        for j in range(size[1]):
            total = 0.0
            for y in range(image.shape[0]):
                for x in range(image.shape[1]):
                    high = min(y + 1, (i + 1) * tall) - max(y, i * tall)
                    long = min(x + 1, (j + 1) * wide) - max(x, j * wide)
                    if high > 0 and long > 0:
                        out[i, j] += high * long * image[y, x]
                        total += high * long
            assert total == pytest.approx(tall * wide)
            out[i, j] /= total
    return out


@pytest.mark.parametrize("size", [(6, 5), (4, 4), (12, 10), (7, 3), (24, 30), (13, 10)])
def test_resizing_is_the_mean_of_the_area(size):
    image = np.random.default_rng(3).integers(0, 256, (12, 10, 3)).astype(np.uint8)
    expected = slowly(image, size)
    for found in (area_mean(image, size), resize(image, size)):
        assert found.dtype == np.uint8 and found.shape == (*size, 3)
        assert np.abs(found - expected).max() <= 0.5 + 1e-3


def test_resizing_without_opencv_is_the_same_to_a_level(monkeypatch):
    image = np.random.default_rng(4).integers(0, 256, (210, 160, 1)).astype(np.uint8)
    by_opencv = resize(image, (84, 84))
    monkeypatch.setitem(sys.modules, "cv2", None)
    alone = resize(image, (84, 84))
    assert alone.shape == (84, 84, 1) and np.abs(alone.astype(int) - by_opencv).max() <= 1


def test_gray_by_hand():
    image = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255], [10, 20, 30]]], np.uint8)
    assert gray(image)[0, :, 0].tolist() == [76, 150, 29, 255, 18]
    assert gray(gray(image)).tolist() == gray(image).tolist()


def of(shape, dtype=np.uint8, low=0.0, high=255.0, **fit) -> Pictures:
    return Pictures("X-v0", shape, dtype, low, high, Fit(**fit))


def test_channel_orders_and_kinds_of_numbers():
    image = np.random.default_rng(5).integers(0, 256, (20, 18, 3)).astype(np.uint8)
    assert np.array_equal(of((20, 18, 3))(image), image)
    assert np.array_equal(of((3, 20, 18))(np.moveaxis(image, -1, 0)), image)
    assert of((3, 20, 18), size=(10, 9), gray=True).frame == (10, 9, 1)
    assert np.array_equal(of((20, 18))(image[..., 0]), image[..., :1])
    floats = image.astype(np.float32) / 255
    assert np.array_equal(of((20, 18, 3), np.float32, 0.0, 1.0)(floats), image)
    assert np.array_equal(of((20, 18, 3), np.float64, -1.0, 1.0)(floats.astype(np.float64) * 2 - 1), image)
    assert np.array_equal(of((20, 18, 3), np.int32, 0.0, 255.0)(image.astype(np.int32)), image)
    assert np.array_equal(of((20, 18, 3), key="eye")({"eye": image, "ear": 1.0}), image)
    both = of((20, 18, 3), size=(10, 9), gray=True)(image)
    assert np.array_equal(both, gray(resize(image, (10, 9))))


def test_frames_that_break_their_promise_are_faults():
    see, good = of((16, 20, 3)), np.zeros((16, 20, 3), np.uint8)
    for bad in (good.astype(np.float32), good[..., :1], good[:-1], good.astype(np.int64), None, 7):
        with pytest.raises(Fault, match=r"not the uint8 \(16, 20, 3\) that it promises"):
            see(bad)
    floats = of((16, 20, 3), np.float32, 0.0, 1.0)
    with pytest.raises(Fault, match="not finite"):
        floats(np.full((16, 20, 3), np.nan, np.float32))
    with pytest.raises(Fault, match="promises"):
        floats(good)


def refusal(make) -> str:
    with pytest.raises(UserError) as caught:
        make()
    told = str(caught.value)
    assert "\n" not in told and len(told) < 300
    return told


def test_observations_that_are_no_pictures_are_refused_with_what_to_do():
    assert "gym:X-v0@render,84x84" in refusal(lambda: of((4,), np.float32))
    assert "Is it a stack of frames?" in refusal(lambda: of((84, 84, 4)))
    assert "Is it a stack of frames?" in refusal(lambda: of((4, 84, 84, 3)))
    assert "declare finite bounds" in refusal(lambda: of((84, 84, 3), np.float32, -np.inf, np.inf))
    told = refusal(lambda: GymEnv(1, by_name(None, "CartPole-v1")))
    assert "CartPole-v1 are float32 (4,) and no picture" in told and "gym:CartPole-v1@render,84x84" in told
    assert "renders as None" in refusal(
        lambda: pictures("X", Slide(), Slide().observation_space, Fit(render=True))
    )
    parts = Dict({"eye": Box(0, 255, (20, 20, 3), np.uint8), "arm": Box(-1, 1, (3,))})
    assert "gym:X@key=eye" in refusal(lambda: pictures("X", None, parts, Fit()))
    assert pictures("X", None, parts, Fit(key="eye")).frame == (20, 20, 3)
    assert "no Dict" in refusal(lambda: pictures("X", None, parts["eye"], Fit(key="eye")))
    assert "Tuple" in refusal(lambda: pictures("X", None, Tuple([Discrete(2)]), Fit()))


def test_actions_that_no_agent_has_are_refused_with_what_to_do():
    told = refusal(lambda: GymEnv(1, by_name(None, register("Odd", actions=MultiDiscrete([3, 2])))))
    assert "MultiDiscrete of int64 (2,)" in told and "TransformAction with a Discrete space of all" in told
    assert "MultiBinary" in refusal(lambda: actions("X", MultiBinary(3)))
    assert "finite bounds" in refusal(lambda: actions("X", Box(-np.inf, np.inf, (2,))))
    assert "need floats" in refusal(lambda: actions("X", Box(0, 5, (2,), np.int32)))


def test_actions_in_their_own_range():
    kind, own = actions("X", Discrete(4, start=-2))
    assert kind == spec.Discrete(4) and [own(np.int32(i)) for i in range(4)] == [-2, -1, 0, 1]
    space = Box(np.array([[-1, 0], [5, -3]], np.float32), np.array([[1, 10], [6, 3]], np.float32))
    kind, own = actions("X", space)
    assert kind == spec.Box(4)
    assert own(np.array([-1, -1, -1, -1], np.float32)).tolist() == space.low.tolist()
    assert own(np.array([1, 1, 1, 1], np.float32)).tolist() == space.high.tolist()
    assert own(np.array([0, 0.5, 0, -0.5], np.float32)).tolist() == [[0, 7.5], [5.5, -1.5]]
    for action in np.random.default_rng(1).normal(size=(200, 4)).astype(np.float32):
        assert space.contains(own(action))


words = st.builds(
    Fit,
    st.booleans(),
    st.none() | st.from_regex(r"[a-z_.]{1,8}", fullmatch=True),
    st.none() | st.tuples(st.integers(1, 999), st.integers(1, 999)),
    st.booleans(),
    st.none() | st.integers(1, 10**6),
)


@settings(max_examples=30)
@given(words)
def test_what_is_done_to_an_environment_survives_being_written(fit):
    assert parse_fit(str(fit)) == fit


def test_words_behind_a_name():
    assert parse_fit(" gray , 48x64,limit=9") == Fit(size=(48, 64), gray=True, limit=9)
    assert "did you mean gray" in refusal(lambda: parse_fit("grey"))
    for bad in ("84x", "x84", "0x5", "limit=", "limit=-1", "key=", "84x84x3", "limit=" + "9" * 5000):
        refusal(lambda bad=bad: parse_fit(bad))


def test_a_deadline_ends_what_waits_and_leaves_alarms_of_others_alone():
    with pytest.raises(Hang, match=r"no answer for 0\.05 s"), deadline(0.05):
        time.sleep(30)

    def swallows():
        while True:
            try:
                time.sleep(30)
            except Exception:
                continue

    with pytest.raises(Hang), deadline(0.05):
        swallows()
    with deadline(20), pytest.raises(Hang), deadline(0.05):
        time.sleep(30)
    with pytest.raises(Hang), deadline(0.1):  # the outer one still rings after an inner one
        with deadline(20):
            pass
        time.sleep(30)
    done: list[str] = []

    def elsewhere():
        with deadline(0.01):
            done.append("not interrupted, for only the main thread hears the alarm")

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert done
