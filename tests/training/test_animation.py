"""Frames into an animated GIF and back."""

import numpy as np
import pytest
from PIL import Image

from vcrl.core.errors import UserError
from vcrl.training.animation import side_by_side, write_gif


def read(path):
    """Every frame as H W 3, and the milliseconds it stays."""
    frames, durations = [], []
    with Image.open(path) as image:
        for i in range(image.n_frames):
            image.seek(i)
            frames.append(np.asarray(image.convert("RGB")))
            durations.append(image.info["duration"])
    return np.stack(frames), durations


def game(count, colours=None):
    """Small frames with a moving square."""
    frames = np.zeros((count, 42, 42), np.uint8)
    for i, frame in enumerate(frames):
        frame[2 * i : 2 * i + 3, 5:9] = 255
        frame[40:, i : i + 5] = 130
    return frames if colours is None else np.asarray(colours, np.uint8)[frames // 128]


def test_grey_frames_come_back_exactly_enlarged_by_whole_pixels(tmp_path):
    frames = game(6)
    found, durations = read(write_gif(tmp_path / "play.gif", frames, fps=10))
    assert found.shape == (6, 252, 252, 3)
    np.testing.assert_array_equal(found, frames.repeat(6, 1).repeat(6, 2)[..., None].repeat(3, -1))
    assert durations == [100] * 6


def test_noise_in_all_greys_comes_back_exactly(tmp_path):
    frames = np.random.default_rng(0).integers(0, 256, (5, 20, 30), dtype=np.uint8)
    found, _ = read(write_gif(tmp_path / "play.gif", list(frames), scale=1))
    np.testing.assert_array_equal(found[..., 1], frames)


def test_coloured_frames_with_captions_come_back_exactly(tmp_path):
    frames = game(4, [[10, 20, 200], [250, 130, 0]])
    captions = [f"score {i}  q 0.{i}3" for i in range(4)]
    found, _ = read(write_gif(tmp_path / "play.gif", (f for f in frames), scale=5, captions=captions))
    np.testing.assert_array_equal(found[:, :210:5, ::5], frames)
    bars = found[:, 210:]
    assert bars.shape[1] > 10
    assert (bars.min(), bars.max()) == (34, 255)  # light text on dark grey, nothing darker
    assert (bars > 200).any(axis=-1).sum() > 4 * 40
    assert all(not np.array_equal(bars[0], bar) for bar in bars[1:])


def test_many_colours_come_back_nearly(tmp_path):
    ramp = np.linspace(0, 255, 64, dtype=np.uint8)
    frame = np.stack([*np.meshgrid(ramp, ramp), np.full((64, 64), 90, np.uint8)], axis=-1)
    found, _ = read(write_gif(tmp_path / "play.gif", [frame], scale=1))
    assert np.abs(found[0].astype(int) - frame).mean() < 8


def test_long_captions_are_made_to_fit(tmp_path):
    frames, text = game(2), "score 12  q 0.93  imagined 0.91  real 0.90"
    found, _ = read(write_gif(tmp_path / "play.gif", frames, captions=["", text]))
    right = found[1, 252:, -6:]
    assert len(np.unique(right)) == 1  # the margin is free


def test_large_frames_keep_their_size_and_wide_ones_stay_moderate(tmp_path):
    big, wide = np.zeros((300, 260), np.uint8), np.zeros((42, 429), np.uint8)
    assert read(write_gif(tmp_path / "big.gif", [big]))[0].shape[1:3] == (300, 260)
    assert read(write_gif(tmp_path / "wide.gif", [wide]))[0].shape[1:3] == (84, 858)


def test_side_by_side_puts_a_thin_line_between():
    left, right = np.full((3, 4), 10, np.uint8), np.full((3, 2), 20, np.uint8)
    found = side_by_side([left, right])
    np.testing.assert_array_equal(found, [[10] * 4 + [128] + [20] * 2] * 3)
    np.testing.assert_array_equal(side_by_side([left]), left)


def test_side_by_side_mixes_grey_and_colour():
    found = side_by_side([np.full((2, 2), 10, np.uint8), np.full((2, 2, 3), (1, 2, 3), np.uint8)])
    assert found.shape == (2, 5, 3)
    assert found[0].tolist() == [[10] * 3] * 2 + [[128] * 3] + [[1, 2, 3]] * 2


def test_frames_side_by_side_need_one_height():
    with pytest.raises(UserError, match="one height"):
        side_by_side([np.zeros((2, 2), np.uint8), np.zeros((3, 2), np.uint8)])
    with pytest.raises(UserError, match="no frames"):
        side_by_side([])


@pytest.mark.parametrize(
    ("name", "frames", "rest", "message"),
    [
        ("play.mp4", game(1), {}, "written as .gif"),
        ("missing/play.gif", game(1), {}, "cannot write"),
        ("play.gif", [], {}, "no frames"),
        ("play.gif", [np.zeros((2, 2))], {}, "uint8"),
        ("play.gif", [np.zeros((2, 2, 4), np.uint8)], {}, "H W 3"),
        ("play.gif", [np.zeros((2, 2), np.uint8), np.zeros((3, 2), np.uint8)], {}, "differ"),
        ("play.gif", game(2), {"captions": ["one"]}, "captions"),
    ],
)
def test_bad_input_is_refused_and_leaves_nothing_behind(tmp_path, name, frames, rest, message):
    with pytest.raises(UserError, match=message):
        write_gif(tmp_path / name, frames, **rest)
    assert not list(tmp_path.iterdir())
