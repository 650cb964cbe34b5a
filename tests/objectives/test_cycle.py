"""PlayVirtual's cycle loss, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose

from vcrl.objectives import cycle_consistency

loss = jax.jit(cycle_consistency)


def test_it_is_zero_where_the_way_back_undoes_the_way_there():
    """States are vectors, an action turns them, and the way back turns them the other way."""
    rng = np.random.default_rng(0)
    start, angles = rng.normal(size=(4, 3, 2)), rng.uniform(0, 6, size=(9, 4, 3))

    def turned(states, angle):
        (c, s), (x, y) = (np.cos(angle), np.sin(angle)), (states[..., 0], states[..., 1])
        return np.stack([c * x - s * y, s * x + c * y], -1)

    there = start
    for angle in angles:
        there = turned(there, angle)
    back = there
    for angle in angles[::-1]:
        back = turned(back, -angle)
    assert_allclose(loss(jnp.float32(back), jnp.float32(start), jnp.ones(3)), np.zeros(3), atol=1e-5)
    lost = loss(jnp.float32(there), jnp.float32(start), jnp.ones(3))
    assert_allclose(lost, np.mean(2 - 2 * np.cos(angles.sum(0)), axis=0), atol=1e-5)


def test_a_mean_over_copies_under_a_mask():
    """Right angles, opposite, the same: 2, 4 and 0; the second sample does not count."""
    start = jnp.array([[1.0, 0.0], [1.0, 0.0]])
    returned = jnp.array([[0.0, 2.0], [-3.0, 0.0], [5.0, 0.0]])[:, None] * jnp.ones((1, 2, 1))
    got = loss(returned, jnp.stack([start] * 3), jnp.array([1.0, 0.0]))
    assert_allclose(got, [2.0, 0.0], atol=1e-6)
