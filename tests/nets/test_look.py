"""The path for a GPU gives what the plain one gives; here both run on the CPU."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vcrl.nets import encoders
from vcrl.nets.encoders import LAYERS, Encoder, convolved
from vcrl.nets.half import _products, convolve, in_halves
from vcrl.nets.layers import Conv


def some(name: str, seeds: int):
    layers = LAYERS[name]
    keys = jax.random.split(jax.random.key(3), seeds)
    encoder = jax.jit(jax.vmap(lambda k: Encoder.make(k, 4, layers)))(keys)
    size = 20 if name == "small" else 84
    return encoder, jax.random.uniform(jax.random.key(4), (seeds, 2, size, size, 4))


RARE = ("nature-same", "data-efficient", "control-32")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in RARE else n for n in LAYERS]
)
def test_one_seed_after_the_other_equals_all_at_once(name):
    encoder, obs = some(name, 3)
    wanted = jax.jit(jax.vmap(lambda e, o: e(o)))(encoder, obs)
    found = jax.jit(jax.vmap(encoders._look))(encoder, obs)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["small", "nature"])
def test_in_half_precision_states_differ_by_rounding(name):
    """A product of a GPU keeps ten bits of float32 factors, so that 2^-10 of the largest is what it may be off too."""
    encoder, obs = some(name, 2)
    wanted = jax.jit(jax.vmap(lambda e, o: e(o)))(encoder, obs)
    found = jax.jit(jax.vmap(encoders._look))(encoder, obs.astype(jnp.float16))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, wanted, atol=4e-3 * float(jnp.max(wanted)))


def test_what_half_precision_cannot_hold_stays_finite():
    encoder, obs = some("small", 1)
    encoder = jax.tree.map(lambda x: 1e4 * jnp.abs(x[0]), encoder)
    found = jax.jit(encoders._look)(encoder, obs[0].astype(jnp.float16))
    assert bool(jnp.isfinite(found).all())
    assert not bool(jnp.isfinite(obs[0].astype(jnp.float16) * jnp.float16(1e4) * 10).all())


def test_shared_weights_or_images_are_not_indexed():
    encoder, obs = some("small", 3)
    first = jax.tree.map(lambda x: x[0], encoder)
    found = jax.vmap(encoders._look, in_axes=(None, 0))(first, obs)
    np.testing.assert_allclose(found, jnp.stack([first(o) for o in obs]), rtol=1e-4, atol=1e-5)
    found = jax.vmap(encoders._look, in_axes=(0, None))(encoder, obs[0])
    np.testing.assert_allclose(found[0], first(obs[0]), rtol=1e-4, atol=1e-5)


def test_the_gpu_takes_that_path_inside_a_gradient(monkeypatch):
    """As the agent uses it: constants of a differentiated function, under a vmap over seeds."""
    encoder, obs = some("small", 2)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")

    def loss(x, encoder, obs):
        return jnp.sum(x * encoder.look(obs))

    found = jax.jit(jax.vmap(jax.grad(loss)))(jnp.ones(2), encoder, obs)
    half = obs.astype(jnp.float16)
    wanted = [jnp.sum(convolved(jax.tree.map(lambda x, i=i: x[i], encoder), half[i])) for i in range(2)]
    np.testing.assert_allclose(found, jnp.stack(wanted), rtol=1e-4)


def slopes(function, encoder, obs, size):
    """Of a loss whose gradient is about so large at every number of a state."""
    wanted = jax.random.normal(jax.random.key(5), jax.eval_shape(function, encoder, obs).shape)
    return jax.jit(jax.grad(lambda e: size * jnp.sum(wanted * function(e, obs))))(encoder)


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e6])
def test_gradients_in_half_precision_differ_by_rounding_however_small_or_large(size):
    """1e-9 is nothing to a half and 1e6 infinity. No activation is near zero, where rounding would shut a unit."""
    encoder, obs = some("small", 1)
    encoder = Encoder(jax.tree.map(lambda x: jnp.abs(x[0]), encoder.convs), renormalised=False)
    obs = obs[0]
    plain, half = (slopes(f, encoder, obs, size) for f in (convolved, partial(in_halves, convolved)))
    for wanted, found in zip(jax.tree.leaves(plain), jax.tree.leaves(half), strict=True):
        assert found.dtype == jnp.float32
        np.testing.assert_allclose(found, wanted, atol=2e-3 * float(jnp.abs(wanted).max()))


def test_where_nothing_is_wanted_the_gradient_in_half_precision_is_zero():
    encoder, obs = some("small", 1)
    encoder = jax.tree.map(lambda x: x[0], encoder)
    found = jax.jit(jax.grad(lambda e: 0.0 * jnp.sum(in_halves(convolved, e, obs[0]))))(encoder)
    assert all(not np.any(x) for x in jax.tree.leaves(found))


def test_a_sum_that_half_precision_cannot_hold_stays_finite():
    """Every gradient the same and activations of 9,600: the sum over a batch of 128 is beyond 65,504."""
    encoder, obs = some("small", 1)
    first, second = encoder.convs
    first, second = (
        jax.tree.map(lambda x, to=to: jnp.full_like(x[0], to), conv)
        for conv, to in ((first, 1.0), (second, 1e-3))
    )
    large = jnp.tile(300 * obs[0], (64, 1, 1, 1))
    found = jax.jit(jax.grad(lambda e: jnp.sum(in_halves(convolved, e, large))))(
        Encoder((first, second), renormalised=False)
    )
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(found))
    np.testing.assert_array_equal(found.convs[1].weight, 65504 * 2**6)


def test_an_encoder_of_its_own_accelerator_takes_half_precision():
    encoder, obs = some("small", 1)
    encoder = jax.tree.map(lambda x: x[0], encoder)
    alone = Encoder(encoder.convs, renormalised=True, alone=True)
    np.testing.assert_array_equal(alone(obs[0]), convolved(encoder, obs[0].astype(jnp.float16)))
    assert np.any(np.asarray(alone(obs[0])) != np.asarray(encoder(obs[0])))


@pytest.mark.parametrize("name", list(LAYERS))
def test_gradients_by_the_library_are_those_of_the_plain_path(name):
    encoder, obs = some(name, 1)
    encoder = jax.tree.map(lambda x: x[0], encoder)
    plain, library = (slopes(f, encoder, obs[0], 1.0) for f in (lambda e, o: e(o), convolved))
    for wanted, found in zip(jax.tree.leaves(plain), jax.tree.leaves(library), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-4 * float(jnp.abs(wanted).max()))


def test_a_kernel_grows_where_the_image_has_the_room():
    """3x3 at stride 2 on 84 pixels becomes 2x2 on tiles of 2x2 pixels; on 83 there is no room for a fourth line."""
    conv = Conv.make(jax.random.key(0), 3, 8, 3, 2)
    for pixels, kernel, stride in ((84, (2, 2, 12, 8), 1), (83, (3, 3, 3, 8), 2)):
        image, weight, left = conv.dense(jnp.ones((1, pixels, pixels, 3)), grow=True)
        assert (weight.shape, left) == (kernel, stride)
        assert image.shape[1] == pixels // (2 if stride == 1 else 1)
        assert convolve(conv, jnp.ones((1, pixels, pixels, 3))).shape == (1, 41, 41, 8)


def test_half_precision_is_off_by_less_than_twice_what_tf32_is(tf32):
    """Both against float32, states and gradients, where units are near zero and rounding opens and shuts some."""
    encoder, obs = some("control-32", 1)
    encoder = Encoder(jax.tree.map(lambda x: x[0], encoder.convs), renormalised=False)

    def by_tf32(encoder, x):
        for conv in encoder.convs:
            x = jax.nn.relu(
                tf32(partial(_products, conv.stride))(conv.weight, x) + conv.bias[None, None, None]
            )
        return x

    def off(function):
        pairs = [tuple(jax.jit(f)(encoder, obs[0]) for f in (function, convolved))]
        pairs += [[slopes(f, encoder, obs[0], 1.0) for f in (function, convolved)]]
        flat = [[jnp.concatenate([x.ravel() for x in jax.tree.leaves(y)]) for y in pair] for pair in pairs]
        return [float(jnp.linalg.norm(a - b) / jnp.linalg.norm(b)) for a, b in flat]

    half, other = off(partial(in_halves, convolved)), off(by_tf32)
    assert all(0 < mine < 2 * theirs for mine, theirs in zip(half, other, strict=True))
    assert other[0] < 2e-3 and other[1] < 0.1
