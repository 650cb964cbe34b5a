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
    wanted = [jnp.sum(convolved(jax.tree.map(lambda x, i=i: x[i], encoder), obs[i])) for i in range(2)]
    np.testing.assert_allclose(found, jnp.stack(wanted), rtol=1e-4)
