"""The ramp against the reference's values."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from vcrl.objectives import gaussian_ramp


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0, 0.0067),  # exp(-5 (1 - 1/50000)^2), not 0
        (10_000, 0.041),
        (20_000, 0.165),
        (25_000, 0.287),  # exp(-5/4)
        (30_000, 0.449),
        (40_000, 0.819),  # exp(-0.2)
        (45_000, 0.951),
    ],
)
def test_values_of_the_reference(step: int, expected: float):
    digits = 4 if step == 0 else 3
    assert round(float(gaussian_ramp(step, 50_000)), digits) == expected


def test_short_ramp_by_hand():
    # exp(-5 (3/4)^2), exp(-5 (2/4)^2), exp(-5 (1/4)^2), then 1: step 3 is the fourth of four
    found = [float(gaussian_ramp(step, 4)) for step in range(6)]
    assert_allclose(found, [0.060055, 0.286505, 0.731616, 1.0, 1.0, 1.0], rtol=1e-5)


def test_one_from_the_end_of_the_ramp_on():
    assert [float(gaussian_ramp(step, 50_000)) for step in (49_999, 50_000, 10**6)] == [1.0, 1.0, 1.0]


def test_mean_over_the_ramp():
    steps = jnp.arange(50_000)
    assert_allclose(jnp.mean(jax.vmap(lambda s: gaussian_ramp(s, 50_000))(steps)), 0.396, atol=5e-4)


def test_rises_without_a_fall():
    found = jax.vmap(lambda s: gaussian_ramp(s, 300))(jnp.arange(400))
    assert np.all(np.diff(found) >= 0)
    assert np.all(np.diff(found)[:299] > 0)


@pytest.mark.parametrize("step", [0, 7, 10**6])
def test_length_zero_is_no_ramp(step: int):
    assert float(gaussian_ramp(step, 0)) == 1.0


def test_a_number_and_an_array_are_the_same_step():
    assert float(gaussian_ramp(17, 40)) == float(gaussian_ramp(jnp.int32(17), 40))
    assert_allclose(jax.jit(lambda s: gaussian_ramp(s, 40))(17), gaussian_ramp(17, 40), rtol=1e-6)
