"""Random shift and intensity: against padding and cropping, and the law of the draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from vcrl.nets.augment import augment, centre, crop_and_pad, to_float

augmented = jax.jit(augment, static_argnames=("shift", "intensity", "crop"))


def images(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def pad_and_crop(obs: np.ndarray, shift: int) -> dict[tuple[int, int], np.ndarray]:
    """What the reference can make of one stack: by how much the crop lies off the middle -> image."""
    height, width, _ = obs.shape
    padded = np.pad(obs, ((shift, shift), (shift, shift), (0, 0)), mode="edge")
    return {
        (down - shift, right - shift): padded[down : down + height, right : right + width]
        for down in range(2 * shift + 1)
        for right in range(2 * shift + 1)
    }


@pytest.mark.parametrize("shift", [1, 4])
def test_shift_is_pad_and_crop(shift: int):
    obs = images(300, 9, 7, 3)
    out = np.asarray(augmented(jax.random.key(0), jnp.asarray(obs), shift=shift, intensity=0.0))
    assert out.dtype == np.float32
    bytes_out = np.round(out * 255).astype(np.uint8)
    assert_allclose(bytes_out / 255, out, atol=1e-6)
    seen = set()
    for before, after in zip(obs, bytes_out, strict=True):
        # The whole stack is one crop: all channels have moved together.
        matches = [off for off, crop in pad_and_crop(before, shift).items() if np.array_equal(crop, after)]
        assert len(matches) == 1
        seen.add(matches[0])
    # Every offset occurs, at both ends too. At 81 offsets and 300 draws some may be missing.
    rows, columns = zip(*seen, strict=True)
    assert set(rows) == set(columns) == set(range(-shift, shift + 1))
    assert len(seen) == 9 if shift == 1 else len(seen) > 70


def offsets(key: jax.Array, count: int, shift: int) -> np.ndarray:
    """Those of `count` stacks, read off the middle pixel of an image that holds its own coordinates."""
    side = 2 * shift + 1
    coordinates = np.arange(side * side, dtype=np.uint8).reshape(side, side, 1)
    obs = jnp.asarray(np.broadcast_to(coordinates, (count, side, side, 1)))
    out = augmented(key, obs, shift=shift, intensity=0.0)
    middle = np.round(np.asarray(out[:, shift, shift, 0]) * 255).astype(int)
    return np.stack([middle // side - shift, middle % side - shift])


@pytest.mark.parametrize("shift", [1, 4])
def test_offsets_are_uniform_and_independent_in_the_two_directions(shift: int):
    count, side = 20_000, 2 * shift + 1
    down, right = offsets(jax.random.key(1), count, shift)
    table = np.zeros((side, side))
    np.add.at(table, (down + shift, right + shift), 1)
    expected = count / side**2
    chi_square, freedom = np.sum((table - expected) ** 2 / expected), side**2 - 1
    assert chi_square < freedom + 4 * np.sqrt(2 * freedom)


def test_neighbours_in_a_batch_are_independent():
    down, right = offsets(jax.random.key(2), 20_000, 4)
    for x in (down, right):
        assert abs(np.corrcoef(x[:-1], x[1:])[0, 1]) < 0.03


def test_intensity_is_one_factor_a_stack():
    intensity = 0.05
    obs = np.maximum(images(4000, 2, 2, 3), 1)
    out = np.asarray(augmented(jax.random.key(3), jnp.asarray(obs), shift=0, intensity=intensity))
    factors = out / (obs.astype(np.float32) / 255)
    assert_allclose(factors.min(axis=(1, 2, 3)), factors.max(axis=(1, 2, 3)), rtol=1e-5)
    factor = factors[:, 0, 0, 0]
    normal = (factor - 1) / intensity
    assert np.abs(normal).max() < 2 + 1e-4
    # A normal clipped at two deviations: 4.55% sit on the ends, 68.3% within one; it deviates by 0.9595.
    assert_allclose(np.mean(np.abs(normal) > 2 - 1e-4), 0.0455, atol=0.01)
    assert_allclose(np.mean(np.abs(normal) < 1), 0.6827, atol=0.03)
    assert_allclose(np.std(normal), 0.9595, atol=0.04)
    assert_allclose(np.mean(normal), 0.0, atol=0.06)
    inside = factor[np.abs(normal) < 2 - 1e-4]
    assert len(np.unique(inside)) > 0.9 * len(inside)


def test_brightness_is_not_cut_at_one():
    white = jnp.asarray(np.full((50, 2, 2, 1), 255, np.uint8))
    out = np.asarray(augmented(jax.random.key(4), white, shift=0, intensity=0.05))
    assert out.max() > 1.05
    assert out.min() < 0.95


def test_brightness_and_shift_are_independent():
    pixels = np.arange(100, 181, dtype=np.uint8).reshape(9, 9, 1)
    obs = jnp.asarray(np.broadcast_to(pixels, (10_000, 9, 9, 1)))
    both = np.asarray(augmented(jax.random.key(5), obs, shift=4, intensity=0.05))
    moved = np.asarray(augmented(jax.random.key(5), obs, shift=4, intensity=0.0))
    factor, place = (both / moved)[:, 4, 4, 0], np.round(moved[:, 4, 4, 0] * 255) - 100
    for direction in (place // 9, place % 9):
        assert len(np.unique(direction)) == 9
        assert abs(np.corrcoef(factor, direction)[0, 1]) < 0.04


def test_neither_is_division_by_255():
    obs = jnp.asarray(images(3, 2, 6, 5, 4))
    out = augmented(jax.random.key(6), obs, shift=0, intensity=0.0)
    assert out.dtype == jnp.float32
    assert out.shape == obs.shape
    assert_array_equal(out, to_float(obs))
    assert_allclose(to_float(obs), np.asarray(obs) / 255, rtol=1e-6)


def test_draws_follow_the_key_and_the_place_in_the_batch():
    obs = jnp.asarray(np.broadcast_to(images(12, 12, 2), (64, 12, 12, 2)))
    one, again, other = (augmented(jax.random.key(k), obs, shift=4, intensity=0.05) for k in (7, 7, 8))
    assert_array_equal(one, again)
    assert len(np.unique(np.asarray(one).reshape(64, -1), axis=0)) > 50  # equal images come out different
    assert np.mean(np.all(np.asarray(one) == np.asarray(other), axis=(1, 2, 3))) < 0.1


def test_leading_axes_are_only_a_list_of_stacks():
    obs = images(6, 8, 8, 2)
    flat = augmented(jax.random.key(9), jnp.asarray(obs), shift=2, intensity=0.1)
    folded = augmented(jax.random.key(9), jnp.asarray(obs.reshape(3, 2, 8, 8, 2)), shift=2, intensity=0.1)
    assert_array_equal(np.asarray(folded).reshape(obs.shape), flat)
    single = jax.eval_shape(lambda x: augment(jax.random.key(9), x, shift=2, intensity=0.1), obs[0])
    assert single.shape == (8, 8, 2)


def crops(obs: np.ndarray, pixels: int) -> dict[tuple[int, ...], np.ndarray]:
    """What CURL can make of one stack: where the first crop lies, where the second one -> image."""
    height, width, _ = obs.shape
    out, places = {}, range(pixels + 1)
    for i, j, down, right in np.ndindex(*(len(places),) * 4):
        small = obs[i : i + height - pixels, j : j + width - pixels]
        padded = np.pad(small, ((pixels, pixels), (pixels, pixels), (0, 0)), mode="edge")
        out[i, j, down, right] = padded[down : down + height, right : right + width]
    return out


@pytest.mark.parametrize("pixels", [1, 2])
def test_a_crop_padded_is_one_of_those_the_reference_can_make(pixels: int):
    obs = images(200, 9, 7, 2)
    out = jax.jit(crop_and_pad, static_argnums=2)(jax.random.key(0), jnp.asarray(obs), pixels)
    found = np.round(np.asarray(out) * 255).astype(np.uint8)
    seen = []
    for before, after in zip(obs, found, strict=True):
        (match,) = [at for at, crop in crops(before, pixels).items() if np.array_equal(crop, after)]
        seen.append(match)
    # Each of the four offsets takes all its values about equally often, and none follows another.
    for column in np.array(seen).T:
        counts = np.bincount(column, minlength=pixels + 1)
        assert len(counts) == pixels + 1 and counts.min() > 0.7 * 200 / (pixels + 1)
    assert np.abs(np.corrcoef(np.array(seen).T) - np.eye(4)).max() < 0.25


def test_no_pixels_no_crop():
    obs = images(3, 9, 7, 2)
    assert_allclose(crop_and_pad(jax.random.key(0), jnp.asarray(obs), 0), obs / 255, atol=1e-6)


# Crops of a part


def test_a_random_crop_is_what_slicing_cuts_out():
    obs = images(120, 11, 9, 3)
    out = augmented(jax.random.key(10), jnp.asarray(obs), shift=0, intensity=0.0, crop=7)
    assert out.shape == (120, 7, 7, 3) and out.dtype == jnp.float32
    found = np.round(np.asarray(out) * 255).astype(np.uint8)
    seen = set()
    for before, after in zip(obs, found, strict=True):
        cuts = {(i, j): before[i : i + 7, j : j + 7] for i in range(5) for j in range(3)}
        (match,) = [at for at, cut in cuts.items() if np.array_equal(cut, after)]
        seen.add(match)
    assert len(seen) == 15  # every place there is


def test_offsets_of_the_references_crop_are_0_to_16_and_uniform():
    """Of 100 pixels 84: pictures that hold their rows and columns show where each was cut."""
    place = np.stack(np.meshgrid(np.arange(100), np.arange(100), indexing="ij"), axis=-1).astype(np.uint8)
    count = 1500

    def corner(k):
        obs = jnp.broadcast_to(jnp.asarray(place), (count, 100, 100, 2))
        out = augment(k, obs, shift=0, intensity=0.0, crop=84)
        return out[:, 0, 0], out[:, -1, -1]

    first, last = (np.round(np.asarray(x) * 255).astype(int) for x in jax.jit(corner)(jax.random.key(11)))
    assert_array_equal(last, first + 83)
    for offset in first.T:
        counts = np.bincount(offset, minlength=17)
        assert len(counts) == 17 and np.sum((counts - count / 17) ** 2 / (count / 17)) < 45  # 16 of freedom
    assert abs(np.corrcoef(first.T)[0, 1]) < 0.1


def test_a_crop_is_as_bright_as_its_draw():
    obs = np.maximum(images(500, 10, 10, 2), 1)
    both = np.asarray(augmented(jax.random.key(12), jnp.asarray(obs), shift=0, intensity=0.05, crop=8))
    cut = np.asarray(augmented(jax.random.key(12), jnp.asarray(obs), shift=0, intensity=0.0, crop=8))
    factor = both / cut
    assert_allclose(factor.min(axis=(1, 2, 3)), factor.max(axis=(1, 2, 3)), rtol=1e-5)
    assert 0.8999 < factor.min() < 0.93 and 1.07 < factor.max() < 1.1001


def test_a_crop_of_everything_is_everything():
    obs = jnp.asarray(images(5, 8, 8, 2))
    assert_array_equal(augmented(jax.random.key(13), obs, shift=0, intensity=0.0, crop=8), to_float(obs))


@pytest.mark.parametrize(("side", "crop", "at"), [(100, 84, 8), (7, 4, 1), (8, 8, 0)])
def test_the_centre_is_cut_at_half_of_what_is_left(side: int, crop: int, at: int):
    obs = images(2, 3, side, side, 2)
    expected = obs[:, :, at : at + crop, at : at + crop] / 255
    assert_allclose(centre(jnp.asarray(obs), crop), expected, rtol=1e-6)


def test_without_crops_the_centre_is_everything():
    obs = jnp.asarray(images(2, 9, 7, 2))
    assert_array_equal(centre(obs, None), to_float(obs))


def test_a_gpu_cuts_the_same_squares(monkeypatch):
    obs = jnp.asarray(images(30, 9, 8, 2))

    def cut():
        return augment(jax.random.key(0), obs, shift=0, intensity=0.1, crop=6)

    wanted = cut()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    text = str(jax.make_jaxpr(cut)())
    assert "optimization_barrier" in text
    np.testing.assert_array_equal(cut(), wanted)
