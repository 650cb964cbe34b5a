"""Reward prediction, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose

from vcrl.objectives import reward_prediction

loss = jax.jit(reward_prediction)
# Chances 0.2, 0.3, 0.5 of a loss, nothing, a gain.
LOGITS = jnp.log(jnp.array([0.2, 0.3, 0.5]))


def test_the_class_is_the_sign():
    for reward, chance in ((-1.0, 0.2), (-7.5, 0.2), (0.0, 0.3), (0.25, 0.5), (1.0, 0.5)):
        got = loss(LOGITS[None, None], jnp.full((1, 1), reward), jnp.ones((1, 1)))
        assert_allclose(got, [-np.log(chance)], rtol=1e-6)


def test_a_mean_over_steps_in_which_masked_ones_count_as_zero():
    logits = jnp.broadcast_to(LOGITS, (4, 2, 3))
    reward = jnp.array([[1.0, 0.0], [0.0, -1.0], [-1.0, 1.0], [1.0, 1.0]])
    mask = jnp.array([[1.0, 1.0], [1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    expected = [-(np.log(0.5) + np.log(0.3) + np.log(0.2)) / 4, -np.log(0.3) / 4]
    assert_allclose(loss(logits, reward, mask), expected, rtol=1e-6)


def test_logits_are_normalised():
    got = loss(LOGITS[None, None] + 30, jnp.zeros((1, 1)), jnp.ones((1, 1)))
    assert_allclose(got, [-np.log(0.3)], rtol=1e-5)
