"""Value consistency: by hand for both kinds of value, its published variants, and what must not matter."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from vcrl.objectives import cross_entropy, squared_error
from vcrl.objectives import value_consistency as plain

# Compiled whole: faster here than operation by operation.
value_consistency = jax.jit(plain, static_argnames=("distance", "taken_weight", "others_weight", "summed"))

HALF, QUARTER, LEFT, RIGHT = [0.5, 0.5], [0.25, 0.75], [1.0, 0.0], [0.0, 1.0]


def discrete() -> dict[str, jax.Array]:
    """K = 2 steps, one sample, three actions of which two and then one are kept, two atoms."""
    junk = [0.9, 0.1]
    return {
        "taken": jnp.log(jnp.array([[HALF], [QUARTER]])),
        "taken_target": jnp.array([[LEFT], [HALF]]),
        "others": jnp.log(jnp.array([[[HALF, QUARTER, junk]], [[junk, junk, QUARTER]]])),
        "others_target": jnp.array([[[HALF, RIGHT, junk]], [[junk, junk, RIGHT]]]),
        "keep": jnp.array([[[1.0, 1.0, 0.0]], [[0.0, 0.0, 1.0]]]),
        "alive": jnp.ones((2, 1)),
    }


def continuous() -> dict[str, jax.Array]:
    """K = 2 steps, one sample, two drawn actions, twin critics."""
    return {
        "taken": jnp.array([[[1.0, 2.0]], [[0.0, 3.0]]]),
        "taken_target": jnp.array([[[2.0, 2.0]], [[1.0, 1.0]]]),
        "others": jnp.array([[[[1.0, 1.0], [2.0, 0.0]]], [[[1.0, 0.0], [0.0, 3.0]]]]),
        "others_target": jnp.zeros((2, 1, 2, 2)),
        "keep": jnp.ones((2, 1, 2)),
        "alive": jnp.ones((2, 1)),
    }


def drawn(seed: int, K: int = 3, B: int = 4, M: int = 5, E: int = 2) -> dict[str, jax.Array]:
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> jax.Array:
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    return {
        "taken": normal(K, B, E),
        "taken_target": normal(K, B, E),
        "others": normal(K, B, M, E),
        "others_target": normal(K, B, M, E),
        "keep": jnp.asarray(rng.random((K, B, M)) < 0.6, jnp.float32),
        "alive": jnp.asarray(np.cumprod(rng.random((K, B)) < 0.8, axis=0), jnp.float32),
    }


def test_discrete_by_hand():
    loss, parts = value_consistency(**discrete(), distance=cross_entropy)
    # k = 1: -ln 0.5 = 0.693147; k = 2: -(0.5 ln 0.25 + 0.5 ln 0.75) = 0.693147 + 0.143841
    assert_allclose(parts["taken"], [1.530135], rtol=1e-5)
    # k = 1: mean of -ln 0.5 = 0.693147 and -ln 0.75 = 0.287682; k = 2: -ln 0.75
    assert_allclose(parts["others"], [0.490415 + 0.287682], rtol=1e-5)
    # 1.530135 + 0.1 * 0.778097
    assert_allclose(loss, [1.607945], rtol=1e-5)


def test_continuous_by_hand():
    loss, parts = value_consistency(**continuous(), distance=squared_error)
    # k = 1: (1-2)^2 + (2-2)^2 = 1; k = 2: (0-1)^2 + (3-1)^2 = 5
    assert_allclose(parts["taken"], [6.0])
    # k = 1: mean of 1+1 and 4+0; k = 2: mean of 1+0 and 0+9
    assert_allclose(parts["others"], [3.0 + 5.0])
    assert_allclose(loss, [6.8], rtol=1e-6)


def test_weights_scale_the_two_parts_and_not_what_is_reported():
    loss, parts = value_consistency(
        **continuous(), distance=squared_error, taken_weight=2.0, others_weight=0.5
    )
    assert_allclose(loss, [2 * 6 + 0.5 * 8])
    assert_allclose([parts["taken"], parts["others"]], [[6.0], [8.0]])


@pytest.mark.parametrize(
    ("alive", "expected"),
    [
        ([1.0, 0.0], 1.3),  # 1 + 0.1 * 3
        ([0.0, 1.0], 5.5),  # 5 + 0.1 * 5
        ([0.0, 0.0], 0.0),
    ],
)
def test_states_that_do_not_exist_by_hand(alive: list[float], expected: float):
    case = continuous() | {"alive": jnp.array(alive)[:, None]}
    assert_allclose(value_consistency(**case, distance=squared_error)[0], [expected], rtol=1e-6)


def test_d_mse_is_the_taken_action_against_the_real_state():
    """The ablation d_MSE: the real state's value as target, no other actions at all."""
    case = continuous()
    real = jnp.array([[[3.0, 2.0]], [[0.0, 0.0]]])
    nothing: dict[str, Any] = {
        "others": jnp.zeros((2, 1, 0, 2)),
        "others_target": jnp.zeros((2, 1, 0, 2)),
        "keep": jnp.zeros((2, 1, 0)),
    }
    loss, parts = value_consistency(**case | nothing | {"taken_target": real}, distance=squared_error)
    # k = 1: (1-3)^2 + (2-2)^2 = 4; k = 2: 0 + 3^2 = 9
    assert_allclose(loss, [13.0])
    assert_allclose(parts["others"], [0.0])


def test_d_mse_a_is_the_mean_over_all_actions_against_the_real_state():
    """The ablation d_MSE-A: every action kept, the Bellman target without weight."""
    case = discrete() | {"keep": jnp.ones((2, 1, 3))}
    loss, _ = value_consistency(**case, distance=cross_entropy, taken_weight=0.0, others_weight=1.0)
    # The junk action costs its entropy -(0.9 ln 0.9 + 0.1 ln 0.1) = 0.325083.
    # (0.693147 + 0.287682 + 0.325083) / 3 + (0.325083 + 0.325083 + 0.287682) / 3
    assert_allclose(loss, [0.435304 + 0.312616], rtol=1e-5)
    moved = case | {"taken_target": 7 * case["taken_target"]}
    assert_allclose(
        value_consistency(**moved, distance=cross_entropy, taken_weight=0.0, others_weight=1.0)[0], loss
    )


def test_nothing_kept_adds_nothing():
    case = continuous() | {"keep": jnp.zeros((2, 1, 2))}
    loss, parts = value_consistency(**case, distance=squared_error)
    assert_allclose(parts["others"], [0.0])
    assert_allclose(loss, [6.0])


def test_against_a_plain_loop():
    case = drawn(0)
    expected = np.zeros(4)
    a = {name: np.asarray(x, np.float64) for name, x in case.items()}
    for k, b in np.ndindex(3, 4):
        if not a["alive"][k, b]:
            continue
        taken = np.sum((a["taken"][k, b] - a["taken_target"][k, b]) ** 2)
        kept = [m for m in range(5) if a["keep"][k, b, m]]
        each = [np.sum((a["others"][k, b, m] - a["others_target"][k, b, m]) ** 2) for m in kept]
        expected[b] += taken + 0.1 * (np.mean(each) if each else 0.0)
    assert_allclose(value_consistency(**case, distance=squared_error)[0], expected, rtol=1e-5)


def test_a_mean_over_actions_and_a_sum_over_steps():
    case = drawn(1) | {"alive": jnp.ones((3, 4))}
    loss, parts = value_consistency(**case, distance=squared_error)
    more_actions = {n: np.concatenate([case[n]] * 2, axis=2) for n in ("others", "others_target", "keep")}
    assert_allclose(value_consistency(**case | more_actions, distance=squared_error)[0], loss, rtol=1e-5)
    more_steps = {n: np.concatenate([x, x]) for n, x in case.items()}
    twice, twice_parts = value_consistency(**more_steps, distance=squared_error)
    assert_allclose(twice, 2 * loss, rtol=1e-5)
    for name in parts:
        assert_allclose(twice_parts[name], 2 * parts[name], rtol=1e-5)


def test_the_other_actions_can_be_summed():
    """Squares 2 and 4 at the first step, 1 and 9 at the second: a mean of 3 and 5, a sum of 6 and 10."""
    for summed, expected in ((False, 8.0), (True, 16.0)):
        _, parts = value_consistency(**continuous(), distance=squared_error, summed=summed)
        assert_allclose(parts["others"], [expected], rtol=1e-6)
    some = continuous() | {"keep": jnp.array([[[1.0, 0.0]], [[0.0, 1.0]]])}
    _, parts = value_consistency(**some, distance=squared_error, summed=True)
    assert_allclose(parts["others"], [2.0 + 9.0], rtol=1e-6)


def test_samples_do_not_mix():
    case = drawn(2)
    together, _ = value_consistency(**case, distance=squared_error)
    for b in range(4):
        alone, _ = value_consistency(**{n: x[:, b : b + 1] for n, x in case.items()}, distance=squared_error)
        assert_allclose(together[b : b + 1], alone, rtol=1e-5)


def test_zero_where_imagination_is_right():
    case = drawn(3)
    case |= {"taken_target": case["taken"], "others_target": case["others"]}
    loss, _ = value_consistency(**case, distance=squared_error)
    assert_array_equal(loss, np.zeros(4))


def test_cross_entropy_has_no_pull_where_imagination_is_right():
    logits = drawn(4, E=6)

    def loss(taken: jax.Array, others: jax.Array) -> jax.Array:
        target = {n: jax.nn.softmax(logits[n]) for n in ("taken", "others")}
        found, _ = plain(
            jax.nn.log_softmax(taken), target["taken"], jax.nn.log_softmax(others), target["others"],
            logits["keep"], jnp.ones((3, 4)), distance=cross_entropy,
        )  # fmt: skip
        return jnp.sum(found)

    pull = jax.jit(jax.grad(loss, argnums=(0, 1)))
    at_target = pull(logits["taken"], logits["others"])
    away = pull(logits["taken"] + logits["taken_target"], logits["others"])
    assert_allclose(np.concatenate([g.ravel() for g in at_target]), 0.0, atol=1e-6)
    assert np.abs(away[0]).max() > 0.1


@pytest.mark.parametrize("size", [1.0, 1e6, 1e15])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_masked_touches_neither_value_nor_gradient(seed: int, size: float):
    case, junk = drawn(10 + seed), drawn(20 + seed)
    gone = (case["alive"] == 0)[..., None]
    unkept = (case["alive"][..., None] * case["keep"] == 0)[..., None]
    where = {"taken": gone, "taken_target": gone, "others": unkept, "others_target": unkept}
    dirty = case | {n: jnp.where(mask, size * junk[n], case[n]) for n, mask in where.items()}

    def loss(taken: jax.Array, others: jax.Array, rest: dict[str, jax.Array]) -> jax.Array:
        found, _ = value_consistency(**rest | {"taken": taken, "others": others}, distance=squared_error)
        return jnp.sum(found)

    results = [jax.value_and_grad(loss, argnums=(0, 1))(c["taken"], c["others"], c) for c in (case, dirty)]
    assert_allclose(results[1][0], results[0][0], rtol=1e-6)
    for clean, found, mask in zip(results[0][1], results[1][1], (gone, unkept), strict=True):
        assert_allclose(found, clean, rtol=1e-6)
        assert np.all(np.asarray(found)[np.broadcast_to(mask, found.shape)] == 0)
        assert np.any(np.asarray(found) != 0)


def test_a_mask_does_not_hide_what_is_not_a_number():
    """0 x nan is nan: a state that is masked needs finite values all the same, and a broken one shows."""
    case = continuous()
    case |= {"alive": jnp.array([[1.0], [0.0]]), "taken": case["taken"].at[1].set(jnp.nan)}
    assert np.isnan(np.asarray(value_consistency(**case, distance=squared_error)[0]))
