"""Distances against numbers worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from vcrl.objectives import cross_entropy, squared_error, unit_distance


def test_cross_entropy_by_hand():
    log_prob = jnp.log(jnp.array([[0.25, 0.5, 0.25], [0.1, 0.1, 0.8]]))
    target = jnp.array([[0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])
    # -(0.5 ln 0.5 + 0.5 ln 0.25) = 0.5 * 0.693147 + 0.5 * 1.386294; -ln 0.8
    assert_allclose(cross_entropy(log_prob, target), [1.039721, 0.223144], rtol=1e-5)


def test_cross_entropy_is_smallest_at_the_target_and_there_the_entropy():
    target = jnp.array([0.7, 0.2, 0.1])
    # -(0.7 ln 0.7 + 0.2 ln 0.2 + 0.1 ln 0.1) = 0.249672 + 0.321888 + 0.230259
    assert_allclose(cross_entropy(jnp.log(target), target), 0.801819, rtol=1e-5)
    rng = np.random.default_rng(0)
    for other in rng.dirichlet([1.0, 1.0, 1.0], 50):
        assert cross_entropy(jnp.log(jnp.asarray(other, jnp.float32)), target) > 0.8018


def test_cross_entropy_pulls_logits_by_the_difference_of_probabilities():
    logits, target = jnp.array([0.3, -1.2, 2.0]), jnp.array([0.2, 0.5, 0.3])
    gradient = jax.grad(lambda x: cross_entropy(jax.nn.log_softmax(x), target))(logits)
    assert_allclose(gradient, jax.nn.softmax(logits) - target, atol=1e-6)


def test_squared_error_by_hand():
    prediction = jnp.array([[1.0, 3.0], [0.5, -1.0]])
    target = jnp.array([[2.0, 5.0], [0.5, 1.0]])
    # (1-2)^2 + (3-5)^2; 0 + (-1-1)^2
    assert_allclose(squared_error(prediction, target), [5.0, 4.0])


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([3.0, 4.0], [4.0, 3.0], 0.08),  # cos = 24 / 25, 2 - 48 / 25
        ([3.0, 4.0], [30.0, 40.0], 0.0),  # length does not matter
        ([2.0, 0.0], [0.0, 5.0], 2.0),  # orthogonal
        ([1.0, 1.0], [-2.0, -2.0], 4.0),  # opposite
        ([0.0, 0.0], [7.0, 0.0], 1.0),  # a zero vector stays zero: |0 - e|^2
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([5e-4, 0.0], [1.0, 0.0], 0.25),  # norm kept at 1e-3: 5e-4 / 1e-3 = 0.5, (0.5 - 1)^2
    ],
)
def test_unit_distance_by_hand(a: list[float], b: list[float], expected: float):
    assert_allclose(unit_distance(jnp.array(a), jnp.array(b)), expected, atol=1e-6)


def test_unit_distance_is_two_minus_two_cosines():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 20, 7)).astype(np.float32)
    cosine = np.sum(a * b, axis=-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
    assert_allclose(unit_distance(jnp.asarray(a), jnp.asarray(b)), 2 - 2 * cosine, atol=1e-5)


pull = jax.jit(jax.grad(lambda a, b: unit_distance(a, b), argnums=(0, 1)))


@pytest.mark.parametrize("a", [[0.0, 0.0], [1e-20, 0.0], [1e-3, 0.0], [1.0, 0.0]])
@pytest.mark.parametrize("b", [[0.0, 0.0], [1.0, 2.0]])
def test_unit_distance_has_a_finite_gradient_everywhere(a: list[float], b: list[float]):
    gradient = pull(jnp.array(a), jnp.array(b))
    assert np.all(np.isfinite(np.array(gradient)))


def test_unit_distance_below_the_floor_is_a_plain_scaled_distance():
    # d/da |a / 1e-3 - b|^2 = 2e3 (a / 1e-3 - b) at a = 0, b = (0.6, 0.8)
    gradient, _ = pull(jnp.array([0.0, 0.0]), jnp.array([0.6, 0.8]))
    assert_allclose(gradient, [-1200.0, -1600.0], rtol=1e-5)


def test_unit_distance_above_the_floor_has_no_gradient_along_the_vector():
    gradient, _ = pull(jnp.array([3.0, -4.0]), jnp.array([1.0, 1.0]))
    assert_allclose(3 * gradient[0] - 4 * gradient[1], 0.0, atol=1e-6)
    assert np.linalg.norm(gradient) > 0.1
