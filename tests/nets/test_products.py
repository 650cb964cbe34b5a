"""Products of halves, as a GPU makes them, against the plain path; here both run on the CPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from vcrl.nets.heads import QHead
from vcrl.nets.products import END, by_halves, linear


def some(inputs: int = 10, outputs: int = 6):
    weight, x, pull = jax.random.split(jax.random.key(0), 3)
    return (
        jax.random.normal(weight, (inputs, outputs)),
        jax.random.normal(x, (21, inputs)),
        jax.random.normal(pull, (21, outputs)),
    )


def both_ways(function, weight, x, pull):
    def run(weight, x, pull):
        out, back = jax.vjp(function, weight, x)
        return out, back(pull)

    return jax.jit(run)(weight, x, pull)


@pytest.mark.parametrize("slope", [1e-9, 1.0, 1e6])
def test_by_halves_results_and_gradients_differ_by_rounding(slope):
    weight, x, pull = some()
    wanted = both_ways(linear, weight, x, slope * pull)
    found = both_ways(by_halves, weight, x, slope * pull)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert a.dtype == jnp.float32 and a.shape == b.shape
        assert_allclose(a, b, atol=1e-3 * float(jnp.abs(b).max()))
        assert np.any(np.asarray(a) != np.asarray(b))


def test_numbers_that_halves_hold_come_out_exactly():
    """Small whole numbers: nothing is rounded."""
    weight, x, pull = (jnp.round(3 * a) for a in some())
    for a, b in zip(
        jax.tree.leaves(both_ways(by_halves, weight, x, pull)),
        jax.tree.leaves(both_ways(linear, weight, x, pull)),
        strict=True,
    ):
        assert_array_equal(a, b)


def test_what_halves_cannot_hold_is_cut_off():
    """An input of a million; then a gradient whose way back through weights of 5,000 leads out of range."""
    weight, x, pull = jnp.full((8, 1), 5e3), jnp.full((1, 8), 1e6), jnp.full((1, 1), 16.0)
    out, (by_weight, by_x) = both_ways(by_halves, weight, x, pull)
    assert_array_equal(out, 8 * END * 5000)  # a half holds 5,000
    assert_array_equal(by_weight, 16 * END)
    assert_array_equal(by_x, END)  # 80,000


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
def test_what_is_not_finite_stays_so(bad):
    """Or a training that went wrong would go on unseen."""
    weight, x, pull = some()
    for found in both_ways(by_halves, weight, x, pull.at[0, 0].set(bad))[1]:
        assert not np.isfinite(found).all()
    if np.isnan(bad):
        assert np.isnan(by_halves(weight, x.at[0, 0].set(bad))).any()


def test_what_comes_as_halves_is_read_as_it_is():
    weight, x, pull = some()
    halves = x.astype(jnp.float16)
    out, (by_weight, by_x) = both_ways(by_halves, weight, halves, pull)
    wanted, (slope, _) = both_ways(by_halves, weight, halves.astype(jnp.float32), pull)
    assert_array_equal(out, wanted)
    assert_array_equal(by_weight, slope)
    assert by_x.dtype == jnp.float16
    # Where products are no halves, they are made of as many bits as the weights have.
    assert_array_equal(linear(weight, halves), halves.astype(jnp.float32) @ weight)


def test_where_nothing_is_wanted_the_gradient_is_zero():
    weight, x, pull = some()
    for found in both_ways(by_halves, weight, x, 0 * pull)[1]:
        assert_array_equal(found, 0 * found)


def test_a_gpu_computes_in_float64_where_that_is_asked_for(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with jax.enable_x64(True):
        weight, x, pull = (jnp.asarray(np.asarray(a), jnp.float64) for a in some())
        out, back = both_ways(linear, weight, x, pull)
        assert_array_equal(out, x @ weight)
        assert {a.dtype for a in (out, *back)} == {jnp.dtype("float64")}


def test_nothing_is_rounded_to_what_the_weights_are():
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        weight, x, _ = some()
        x = np.asarray(x, np.float64) + 1e-12
        found = linear(weight, jnp.asarray(x))
        assert found.dtype == jnp.float64
        assert_allclose(found, x @ np.asarray(weight, np.float64), rtol=1e-14)


def test_no_vectors_at_all(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert linear(jnp.ones((8, 3)), jnp.ones((2, 0, 8))).shape == (2, 0, 3)


@pytest.mark.slow
def test_heads_by_halves_are_off_by_little_more_than_by_tf32(monkeypatch, tf32):
    """A noisy dueling head of C51 and SPR's projection: what they read, and what they send to weights and states."""
    head = QHead.make(jax.random.key(0), 7 * 7 * 8, 32, 6, 51, 0.5)
    states = jax.random.uniform(jax.random.key(1), (2, 4, 7, 7, 8))

    def results(way):
        monkeypatch.setattr("vcrl.nets.heads.linear", way)

        def loss(head, states):
            drawn = head.draw(jax.random.key(2))
            read, projected = jax.nn.log_softmax(drawn(states)), head.mean().project(states)
            return jnp.mean(jnp.square(projected)) - jnp.mean(read[..., 0]), (read, projected)

        slopes, found = jax.jit(jax.grad(loss, (0, 1), has_aux=True))(head, states)
        return [np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)]) for tree in (*found, *slopes)]

    exact, other = results(linear), results(tf32(linear))
    with monkeypatch.context() as on_a_gpu:
        on_a_gpu.setattr(jax, "default_backend", lambda: "gpu")
        half = results(linear)
    for a, b, c in zip(half, other, exact, strict=True):
        mine, theirs = (np.linalg.norm(x - c) / np.linalg.norm(c) for x in (a, b))
        assert 0 < mine < 1.5 * theirs < 0.02
