"""Self-prediction against numbers worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose

from vcrl.objectives import self_prediction as plain

self_prediction = jax.jit(plain)

# K = 3 steps, B = 2 samples, D = 2
PREDICTED = jnp.array([[[3.0, 4.0], [1.0, 0.0]], [[1.0, 0.0], [2.0, 0.0]], [[1.0, 1.0], [0.0, 1.0]]])
TARGET = jnp.array([[[4.0, 3.0], [0.0, 1.0]], [[5.0, 0.0], [-1.0, 0.0]], [[-1.0, -1.0], [0.0, 9.0]]])
# 2 - 2 cos: sample 0 has cos 24/25, 1, -1; sample 1 has cos 0, -1, 1
DISTANCES = [[0.08, 2.0], [0.0, 4.0], [4.0, 0.0]]


def test_sum_over_steps_by_hand():
    # 0.08 + 0 + 4; 2 + 4 + 0: a sum, not a mean
    assert_allclose(self_prediction(PREDICTED, TARGET, jnp.ones((3, 2))), [4.08, 6.0], rtol=1e-5)


def test_masked_steps_fall_out_by_hand():
    mask = jnp.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    assert_allclose(self_prediction(PREDICTED, TARGET, mask), [0.08, 4.0], rtol=1e-5)


def test_each_step_adds_its_own_distance():
    for k in range(3):
        mask = jnp.array([[1.0 * (k == row)] * 2 for row in range(3)])
        assert_allclose(self_prediction(PREDICTED, TARGET, mask), DISTANCES[k], atol=1e-6)


def test_at_five_steps_it_is_five_times_the_mean():
    rng = np.random.default_rng(0)
    predicted, target = rng.normal(size=(2, 5, 3, 4)).astype(np.float32)
    loss = self_prediction(jnp.asarray(predicted), jnp.asarray(target), jnp.ones((5, 3)))
    p = predicted / np.linalg.norm(predicted, axis=-1, keepdims=True)
    t = target / np.linalg.norm(target, axis=-1, keepdims=True)
    assert_allclose(loss, 5 * np.mean(2 - 2 * np.sum(p * t, axis=-1), axis=0), rtol=1e-4)


def test_zero_where_prediction_is_target():
    loss = self_prediction(PREDICTED, PREDICTED * 3, jnp.ones((3, 2)))
    assert_allclose(loss, [0.0, 0.0], atol=1e-6)


def test_masked_entries_touch_neither_value_nor_gradient():
    rng = np.random.default_rng(1)
    predicted, target, junk = jnp.asarray(rng.normal(size=(3, 3, 2, 4)), jnp.float32)
    mask = jnp.array([[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]])
    gone = (mask == 0)[..., None]

    def loss(p: jax.Array, t: jax.Array) -> jax.Array:
        return jnp.sum(self_prediction(p, t, mask))

    clean, dirty = (
        (predicted, target),
        (jnp.where(gone, 1e6 * junk, predicted), jnp.where(gone, junk, target)),
    )
    assert_allclose(loss(*dirty), loss(*clean), rtol=1e-6)
    pull = jax.jit(jax.grad(loss))
    gradients = [pull(*pair) for pair in (clean, dirty)]
    assert_allclose(gradients[1], gradients[0], rtol=1e-6)
    assert np.all(np.array(gradients[1])[np.broadcast_to(gone, predicted.shape)] == 0)
    assert np.all(np.abs(np.array(gradients[1])[0]).sum(axis=-1) > 0)
