"""The path for a GPU gives what the plain one gives; here both run on the CPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vcrl.nets import encoders
from vcrl.nets.encoders import LAYERS, Encoder, convolved


def some(name: str, seeds: int):
    layers = LAYERS[name]
    keys = jax.random.split(jax.random.key(3), seeds)
    encoder = jax.vmap(lambda k: Encoder.make(k, 4, layers))(keys)
    size = 20 if name == "small" else 84
    return encoder, jax.random.uniform(jax.random.key(4), (seeds, 2, size, size, 4))


@pytest.mark.parametrize("name", list(LAYERS))
def test_one_seed_after_the_other_equals_all_at_once(name):
    encoder, obs = some(name, 3)
    wanted = jax.vmap(lambda e, o: e(o))(encoder, obs)
    found = jax.vmap(encoders._look)(encoder, obs)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["small", "nature"])
def test_in_half_precision_states_differ_by_rounding(name):
    """A product of a GPU keeps ten bits of float32 factors, so that 2^-10 of the largest is what it may be off too."""
    encoder, obs = some(name, 2)
    wanted = jax.vmap(lambda e, o: e(o))(encoder, obs)
    found = jax.vmap(encoders._look)(encoder, obs.astype(jnp.float16))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, wanted, atol=4e-3 * float(jnp.max(wanted)))


def test_what_half_precision_cannot_hold_stays_finite():
    encoder, obs = some("small", 1)
    encoder = jax.tree.map(lambda x: 1e4 * jnp.abs(x[0]), encoder)
    found = encoders._look(encoder, obs[0].astype(jnp.float16))
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
