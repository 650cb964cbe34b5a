"""Products of halves, as a GPU makes them, against the plain path; here both run on the CPU."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from vcrl.nets.heads import QHead
from vcrl.nets.layers import Conv
from vcrl.nets.products import END, by_halves, convolution, linear, patches, widened
from vcrl.nets.transition import Transition, imagine


def some(size: int, stride: int, inputs: int, outputs: int = 6):
    weight, x, pull = jax.random.split(jax.random.key(0), 3)
    weight = jax.random.normal(weight, (size, size, inputs, outputs))
    x = jax.random.normal(x, (3, 9, 7, inputs))
    shape = jax.eval_shape(partial(convolution, stride), weight, x).shape
    return weight, x, jax.random.normal(pull, shape)


def halves(stride, weight, x):
    return by_halves(stride, *widened(weight, x))


def both_ways(function, weight, x, pull):
    def run(weight, x, pull):
        out, back = jax.vjp(function, weight, x)
        return out, back(pull)

    return jax.jit(run)(weight, x, pull)


@pytest.mark.parametrize("slope", [1e-9, 1.0, 1e6])
@pytest.mark.parametrize(("size", "stride", "inputs"), [(3, 1, 8), (3, 1, 10), (4, 2, 3), (3, 2, 5)])
def test_by_halves_results_and_gradients_differ_by_rounding(size, stride, inputs, slope):
    weight, x, pull = some(size, stride, inputs)
    wanted = both_ways(partial(convolution, stride), weight, x, slope * pull)
    found = both_ways(partial(halves, stride), weight, x, slope * pull)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert a.dtype == jnp.float32 and a.shape == b.shape
        assert_allclose(a, b, atol=1e-3 * float(jnp.abs(b).max()))
    assert np.any(np.asarray(found[0]) != np.asarray(wanted[0]))


def test_numbers_that_halves_hold_come_out_exactly():
    """Small whole numbers: nothing is rounded."""
    weight, x, pull = (jnp.round(3 * a) for a in some(3, 1, 10))
    for a, b in zip(
        jax.tree.leaves(both_ways(partial(halves, 1), weight, x, pull)),
        jax.tree.leaves(both_ways(partial(convolution, 1), weight, x, pull)),
        strict=True,
    ):
        assert_array_equal(a, b)


def test_what_halves_cannot_hold_is_cut_off():
    """An image of a million; then a gradient whose way back through weights of 5,000 leads out of range."""
    weight, x, pull = jnp.full((1, 1, 8, 1), 5e3), jnp.full((1, 1, 1, 8), 1e6), jnp.full((1, 1, 1, 1), 16.0)
    out, (by_weight, by_x) = both_ways(partial(by_halves, 1), weight, x, pull)
    assert_array_equal(out, 8 * END * 5000)  # a half holds 5,000
    assert_array_equal(by_weight, 16 * END)
    assert_array_equal(by_x, END)  # 80,000


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
def test_what_is_not_finite_stays_so(bad):
    """Or a training that went wrong would go on unseen."""
    weight, x, pull = some(3, 1, 8)
    spoilt = pull.at[0, 0, 0, 0].set(bad)
    for found in both_ways(partial(by_halves, 1), weight, x, spoilt)[1]:
        assert not np.isfinite(found).all()
    if np.isnan(bad):
        assert np.isnan(by_halves(1, weight, x.at[0, 0, 0, 0].set(bad))).any()


def test_where_nothing_is_wanted_the_gradient_is_zero():
    weight, x, pull = some(3, 1, 8)
    for found in both_ways(partial(by_halves, 1), weight, x, 0 * pull)[1]:
        assert_array_equal(found, 0 * found)


def test_a_gpu_computes_in_float64_where_that_is_asked_for(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    with jax.enable_x64(True):
        weight, x, pull = (jnp.asarray(np.asarray(a), jnp.float64) for a in some(3, 1, 8))
        out, back = both_ways(partial(convolution, 1), weight, x, pull)
        assert_array_equal(out, patches(1, 3, x) @ weight.reshape(-1, weight.shape[-1]))
        assert {a.dtype for a in (out, *back, linear(weight[0, 0], x))} == {jnp.dtype("float64")}


def test_no_vectors_at_all(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert linear(jnp.ones((8, 3)), jnp.ones((2, 0, 8))).shape == (2, 0, 3)


def test_a_gpu_takes_that_path_with_all_seeds_at_once(monkeypatch):
    keys = jax.random.split(jax.random.key(1), 2)
    convs = jax.vmap(lambda k: Conv.make(k, 10, 6, 3, padding=1))(keys)
    images = jax.random.normal(jax.random.key(2), (2, 3, 7, 7, 10))

    def slopes():
        return jax.jit(jax.vmap(jax.grad(lambda conv, x: jnp.mean(jnp.square(conv(x))))))(convs, images)

    plain = slopes()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    for a, b in zip(jax.tree.leaves(slopes()), jax.tree.leaves(plain), strict=True):
        assert_allclose(a, b, atol=1e-3 * float(jnp.abs(b).max()))
        assert np.any(np.asarray(a) != np.asarray(b))


def test_imagination_by_halves_is_off_by_little_more_than_by_tf32(monkeypatch, tf32):
    """Five steps at Atari's size; states and gradients, both against float32."""
    model = Transition.make(jax.random.key(0), 64, 6)
    # All units open: rounding opens or shuts one otherwise, and that moves a gradient by far more than its last bits.
    model = eqx.tree_at(lambda m: (m.conv1.bias, m.conv2.bias), model, (jnp.full(64, 3.0), jnp.full(64, 9.0)))
    start = jax.random.uniform(jax.random.key(1), (8, 7, 7, 64))
    actions = jax.random.randint(jax.random.key(2), (5, 8), 0, 6)
    wanted = jax.random.normal(jax.random.key(3), (6, *start.shape)) / start.size

    def results(way):
        monkeypatch.setattr("vcrl.nets.layers.convolution", way)

        def loss(model, start):
            states = imagine(model, start, actions, model.stats(), learning=True)[0]
            return jnp.sum(wanted * states), states

        slopes, states = jax.jit(jax.grad(loss, (0, 1), has_aux=True))(model, start)
        return [np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)]) for tree in (states, *slopes)]

    exact, half = results(convolution), results(halves)
    other = results(lambda stride, *factors: tf32(partial(convolution, stride))(*factors))
    for a, b, c in zip(half, other, exact, strict=True):
        mine, theirs = (np.linalg.norm(x - c) / np.linalg.norm(c) for x in (a, b))
        assert 0 < mine < 1.5 * theirs < 0.02


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
