"""One tiny agent with every term, and one compiled program that shows all its losses from all sides."""

import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

# Test modules are imported by path, so a helper beside them is found only if its folder is known.
sys.path.insert(0, str(Path(__file__).parent))

import tiny_agent as tiny


@pytest.fixture(scope="module", autouse=True)
def everywhere_here(quick_compiles):
    """All tests of agents."""


@pytest.fixture(scope="session")
def full():
    """SPR and VCR on C51, with a target that is a copy of its own."""
    return tiny.agent(tiny.config())


@pytest.fixture(scope="session")
def state(full):
    """Online and target weights that have nothing in common, statistics that are not the initial ones.

    The heads' last layers are enlarged, so that distributions are far from flat and actions differ in value.
    """
    init = jax.jit(full.init)
    online, other = init(jnp.asarray(0)), init(jnp.asarray(1))
    online, other = (
        s._replace(online=eqx.tree_at(last_layers, s.online, replace_fn=lambda x: 4 * x))
        for s in (online, other)
    )
    stats = jax.tree.map(lambda x: 0.5 * x + jnp.linspace(0.1, 0.9, x.shape[0]), online.stats)
    return online._replace(target=other.online, stats=stats)


def last_layers(nets):
    return [
        getattr(stream[1], name)
        for stream in (nets.q_head.advantage, nets.q_head.value)
        for name in ("weight", "weight_sigma")
    ]


@pytest.fixture(scope="session")
def pulls():
    return jax.jit(tiny.all_pulls())


@pytest.fixture(scope="session")
def readings():
    return jax.jit(tiny.readings)
