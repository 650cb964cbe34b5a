"""Layers that scale what they are given, against numbers worked out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from vcrl.nets.norms import BatchNorm, LayerNorm, Stats, renormalise, spread

X = jnp.array([[1.0, 10.0], [3.0, 30.0]])  # means 2, 20; variances 1, 100; unbiased 2, 200
NORM = BatchNorm(scale=jnp.array([2.0, 1.0]), bias=jnp.array([0.5, 0.0]))


def test_batch_norm_while_learning_by_hand():
    out, stats = NORM(X, BatchNorm.stats(2), learning=True)
    # 2 * (1 - 2) / sqrt(1 + 1e-5) + 0.5; (10 - 20) / sqrt(100 + 1e-5)
    assert_allclose(out, [[-1.49999, -1.0], [2.49999, 1.0]], rtol=1e-6)
    assert_allclose(stats.mean, [0.2, 2.0], rtol=1e-6)  # 0.9 * 0 + 0.1 * 2
    assert_allclose(stats.var, [1.1, 20.9], rtol=1e-6)  # 0.9 * 1 + 0.1 * 2, 0.9 * 1 + 0.1 * 200


def test_batch_norm_while_looking_by_hand():
    running = Stats(mean=jnp.array([1.0, 0.0]), var=jnp.array([4.0, 25.0]))
    out, stats = NORM(X, running, learning=False)
    # 2 * (1 - 1) / 2 + 0.5, 2 * (3 - 1) / 2 + 0.5; 10 / 5, 30 / 5
    assert_allclose(out, [[0.5, 2.0], [2.5, 6.0]], rtol=1e-5)
    assert_array_equal(stats.mean, running.mean)
    assert_array_equal(stats.var, running.var)


def test_running_statistics_forget_a_tenth_each_time():
    stats = BatchNorm.stats(2)
    for _ in range(3):
        _, stats = NORM(X, stats, learning=True)
    # 2 (1 - 0.9^3), 20 (1 - 0.9^3); 2 - 0.9^3, 200 - 199 * 0.9^3
    assert_allclose(stats.mean, [0.542, 5.42], rtol=1e-5)
    assert_allclose(stats.var, [1.271, 54.929], rtol=1e-5)


def test_batch_norm_of_images_is_over_everything_but_channels():
    x = np.random.default_rng(0).normal(3.0, 2.0, size=(4, 3, 3, 2)).astype(np.float32)
    out, stats = BatchNorm.make(2)(jnp.asarray(x), BatchNorm.stats(2), learning=True)
    rows = x.reshape(36, 2).astype(np.float64)
    expected = (rows - rows.mean(0)) / np.sqrt(rows.var(0) + 1e-5)
    assert_allclose(np.reshape(out, (36, 2)), expected, atol=1e-5)
    assert_allclose(stats.mean, 0.1 * rows.mean(0), rtol=1e-5)
    assert_allclose(stats.var, 0.9 + 0.1 * rows.var(0, ddof=1), rtol=1e-5)


def test_batch_norm_of_a_single_row_is_finite():
    out, stats = NORM(X[:1], BatchNorm.stats(2), learning=True)
    assert_allclose(out, [[0.5, 0.0]])
    assert_allclose(stats.var, [0.9, 0.9], rtol=1e-6)


def test_no_gradient_flows_into_the_statistics():
    def new_stats(x: jax.Array, scale: jax.Array) -> jax.Array:
        _, stats = BatchNorm(scale, NORM.bias)(x, BatchNorm.stats(2), learning=True)
        return jnp.sum(stats.mean + stats.var)

    def output(mean: jax.Array, var: jax.Array) -> jax.Array:
        return jnp.sum(NORM(X, Stats(mean, var), learning=True)[0] ** 2)

    for gradient in jax.jit(jax.grad(new_stats, argnums=(0, 1)))(X, NORM.scale):
        assert_array_equal(gradient, np.zeros(gradient.shape))
    for gradient in jax.jit(jax.grad(output, argnums=(0, 1)))(jnp.zeros(2), jnp.ones(2)):
        assert_array_equal(gradient, [0.0, 0.0])


def test_gradient_runs_through_the_batch_statistics():
    def output(x: jax.Array, row: int) -> jax.Array:
        return BatchNorm.make(2)(x, BatchNorm.stats(2), learning=True)[0][row, 0]

    # Rows x, y have the variance v = (x-y)^2 / 4, and x becomes (x-y)/2 / sqrt(v + e), whose slope in x is
    # e / 2 / (v + e)^1.5: with v = 1 and e = 1e-5 it is 5e-6. Not through the statistics it would be 1.
    slope = jax.jit(jax.grad(output), static_argnums=1)(X, 0)
    assert_allclose(slope, np.zeros((2, 2)), atol=1e-5)


def plainly(x, scale, bias):
    """Scaled by the batch as the textbook has it, differentiated by the compiler."""
    axes = tuple(range(x.ndim - 1))
    mean, var = jnp.mean(x, axes, keepdims=True), jnp.var(x, axes, keepdims=True)
    scale, bias = (jnp.broadcast_to(v, x.shape) for v in (scale, bias))
    return (x - mean) * jax.lax.rsqrt(var + 1e-5) * scale + bias


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
@pytest.mark.parametrize("shape", [(7, 5), (4, 3, 2, 5)])
def test_the_gradient_of_a_batch_norm_is_the_compilers(monkeypatch, backend, shape):
    """Which has no part in how it is found here; a GPU adds up in two steps."""
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    rng = np.random.default_rng(0)
    given = [jnp.asarray(rng.normal(1.0, 2.0, s), jnp.float32) for s in (shape, shape[-1:], shape[-1:])]
    pull = jnp.asarray(rng.normal(size=shape), jnp.float32)

    def ours(x, scale, bias):
        return BatchNorm(scale, bias)(x, BatchNorm.stats(5), learning=True)[0]

    def both(function):
        out, back = jax.vjp(function, *given)
        return out, *back(pull)

    for found, wanted in zip(jax.jit(lambda: both(ours))(), jax.jit(lambda: both(plainly))(), strict=True):
        assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("first", [0.0, 1.0, 50.0])
def test_the_variance_keeps_its_digits_far_from_zero_and_behind_an_odd_first_row(first):
    """A mean of 1,000 deviations; and a first row, from which all is measured, 50 deviations off."""
    rows = np.random.default_rng(0).normal(size=(1568, 3))
    rows[0] = first
    rows = (rows + 1000).astype(np.float32)
    _, stats = BatchNorm.make(3)(jnp.asarray(rows), BatchNorm.stats(3), learning=True)
    exact = rows.astype(np.float64)
    assert_allclose(
        10 * (np.asarray(stats.var, np.float64) - 0.9), exact.var(0, ddof=1), rtol=len(rows) * 2**-23
    )
    assert_allclose(10 * np.asarray(stats.mean, np.float64), exact.mean(0), rtol=1e-6)


def test_halves_are_added_up_as_float32_and_no_rows_are_none():
    rows = (300 + 100 * np.random.default_rng(0).normal(size=(64, 3))).astype(np.float16)
    norm = BatchNorm.make(3)

    def by(x):
        out, stats = norm(x, BatchNorm.stats(3), learning=True)
        return jnp.sum(out * jnp.arange(3.0, dtype=x.dtype)[None]), (out, stats)

    slope, (out, stats) = jax.grad(by, has_aux=True)(jnp.asarray(rows))
    assert slope.dtype == out.dtype == jnp.float16 and stats.mean.dtype == jnp.float32
    assert_allclose(stats.mean, 0.1 * rows.astype(np.float64).mean(0), rtol=1e-5)
    assert np.isfinite(out).all() and np.isfinite(slope).all()
    empty, _ = norm(jnp.zeros((0, 3)), BatchNorm.stats(3), learning=True)
    assert empty.shape == (0, 3)


def test_a_bias_that_is_spread_over_images_gets_the_sum_of_their_gradients(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    pull = jnp.asarray(np.random.default_rng(0).integers(-9, 9, (4, 3, 2, 5)), jnp.float32)
    out, back = jax.vjp(lambda v: spread(v, pull.shape), jnp.arange(5.0))
    assert_array_equal(out, np.broadcast_to(np.arange(5.0), pull.shape))
    assert_array_equal(back(pull)[0], np.asarray(pull).sum(axis=(0, 1, 2)))


def test_renormalise_by_hand():
    state = jnp.array([[0.0, 2.0], [4.0, 1.0]]).reshape(1, 2, 2, 1)
    # divided by 4 - 0 + 1e-5
    assert_allclose(renormalise(state).ravel(), [0.0, 0.5, 1.0, 0.25], atol=1e-5)
    assert_allclose(renormalise(10 * state - 7).ravel(), [0.0, 0.5, 1.0, 0.25], atol=1e-5)


def test_renormalise_takes_each_sample_by_itself_and_all_its_channels_together():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(5, 3, 3, 4)), jnp.float32)
    out = np.asarray(renormalise(x))
    assert np.all(out.min(axis=(1, 2, 3)) == 0)
    assert_allclose(out.max(axis=(1, 2, 3)), np.ones(5), atol=1e-5)
    assert np.all(out.max(axis=(1, 2, 3)) <= 1)
    assert np.sum(out.min(axis=(1, 2)) == 0) == 5  # only one channel of each sample touches 0
    assert_allclose(renormalise(x[2:3]), out[2:3])


def test_renormalise_of_a_constant_map_is_finite():
    value, slope = jax.jit(jax.value_and_grad(lambda x: jnp.sum(renormalise(x) ** 2)))(
        jnp.full((2, 3, 3, 2), 7.0)
    )
    assert value == 0
    assert np.all(np.isfinite(slope))
    assert_array_equal(renormalise(jnp.zeros((1, 2, 2, 1))), np.zeros((1, 2, 2, 1)))


def test_renormalise_has_gradient_through_minimum_and_maximum():
    # y = (b - a) / (c - a): dy/da = -1/2 + 1/4, dy/db = 1/2, dy/dc = -1/4 at a, b, c = 0, 1, 2
    slope = jax.jit(jax.grad(lambda x: renormalise(x)[0, 0, 1, 0]))(
        jnp.array([0.0, 1.0, 2.0]).reshape(1, 1, 3, 1)
    )
    assert_allclose(slope.ravel(), [-0.25, 0.5, -0.25], atol=1e-4)


def test_layer_norm_by_hand():
    norm = LayerNorm(jnp.array([2.0, 1.0]), jnp.array([0.5, 0.0]))
    # (1, 3) has mean 2 and variance 1, (10, 30) mean 20 and variance 100: both become -1 and 1
    assert_allclose(norm(jnp.array([[1.0, 3.0], [10.0, 30.0]])), [[-1.5, 1.0]] * 2, atol=1e-4)
    assert_allclose(norm(jnp.array([7.0, 7.0])), [0.5, 0.0])  # no deviation at all
    fresh = LayerNorm.make(3)
    assert_array_equal(fresh.scale, [1, 1, 1])
    assert_array_equal(fresh.bias, [0, 0, 0])
