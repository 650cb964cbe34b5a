"""Every objective is the same function jitted, vmapped over seeds, and called plainly."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import vcrl.objectives as objectives

S, K, B, M, A, N = 3, 2, 4, 3, 3, 5  # seeds, steps, batch, drawn actions, actions, atoms
RNG = np.random.default_rng(0)


def normal(*shape: int) -> jax.Array:
    return jnp.asarray(RNG.normal(size=(S, *shape)), jnp.float32)


def chances(*shape: int) -> jax.Array:
    return jax.nn.softmax(normal(*shape))


def flags(*shape: int) -> jax.Array:
    return jnp.asarray(RNG.random((S, *shape)) < 0.3)


def whole(high: int, *shape: int) -> jax.Array:
    return jnp.asarray(RNG.integers(high, size=(S, *shape)), jnp.int32)


support = jnp.linspace(-2.0, 2.0, N)


def project(probs: jax.Array, values: jax.Array) -> jax.Array:
    return objectives.project(probs, values, support)


def categorical_target(probs: jax.Array, returns: jax.Array, discount: jax.Array) -> jax.Array:
    return objectives.categorical_target(probs, returns, discount, support)


CASES: dict[str, tuple[Callable[..., Any], tuple[jax.Array, ...]]] = {
    "cross_entropy": (objectives.cross_entropy, (normal(B, N), chances(B, N))),
    "squared_error": (objectives.squared_error, (normal(B, 2), normal(B, 2))),
    "unit_distance": (objectives.unit_distance, (normal(B, N), normal(B, N))),
    "gaussian_ramp": (partial(objectives.gaussian_ramp, length=100), (whole(120),)),
    "self_prediction": (
        objectives.self_prediction,
        (normal(K, B, N), normal(K, B, N), flags(K, B).astype(jnp.float32)),
    ),
    "info_nce": (objectives.info_nce, (normal(B, N), normal(B, N), normal(N, N))),
    "cycle_consistency": (
        objectives.cycle_consistency,
        (normal(M, B, N), normal(M, B, N), flags(B).astype(jnp.float32)),
    ),
    "reward_prediction": (
        objectives.reward_prediction,
        (normal(K, B, 3), normal(K, B), flags(K, B).astype(jnp.float32)),
    ),
    "n_step": (partial(objectives.n_step, n=3, gamma=0.9), (normal(7, B), flags(7, B), flags(7, B))),
    "project": (project, (chances(B, N), 2 * normal(B, N))),
    "categorical_target": (categorical_target, (chances(B, N), normal(B), chances(B))),
    "pick": (objectives.pick, (normal(B, A, N), whole(A, B))),
    "double_q": (objectives.double_q, (normal(B, A), normal(B, A, N))),
    "huber": (objectives.huber, (3 * normal(B),)),
    "value_consistency": (
        partial(objectives.value_consistency, distance=objectives.cross_entropy),
        (
            jax.nn.log_softmax(normal(K, B, N)), chances(K, B, N),
            jax.nn.log_softmax(normal(K, B, M, N)), chances(K, B, M, N),
            1 - flags(K, B, M).astype(jnp.float32), 1 - flags(K, B).astype(jnp.float32),
        ),
    ),
}  # fmt: skip


def assert_same(found: Any, expected: Any) -> None:
    jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=2e-6, atol=2e-6), found, expected)


def test_no_objective_is_forgotten():
    assert {*CASES, "NStep"} == set(objectives.__all__)


@pytest.mark.parametrize("name", CASES)
def test_jitted_and_vmapped_are_the_plain_loop(name: str):
    function, arguments = CASES[name]
    seeds = [function(*(x[s] for x in arguments)) for s in range(S)]
    looped = jax.tree.map(lambda *x: np.stack(x), *seeds)
    assert_same(jax.jit(function)(*(x[0] for x in arguments)), seeds[0])
    assert_same(jax.jit(jax.vmap(function))(*arguments), looped)
