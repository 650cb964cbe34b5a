"""Targets of temporal-difference learning: by hand, against slow loops, and on random input."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from vcrl.objectives import categorical_target, double_q, huber, n_step, pick, project
from vcrl.objectives.td import clipped_mass

# Compiled whole: faster here than operation by operation.
fast_n_step = jax.jit(n_step, static_argnames=("n", "gamma"))
fast_target = jax.jit(categorical_target)
fast_clipped = jax.jit(clipped_mass)
fast_project = jax.jit(project)

REWARD = jnp.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])


def at(*rows: int) -> jax.Array:
    return jnp.array([row in rows for row in range(6)])


def returns(*, terminal: jax.Array, pad: jax.Array, n: int = 3, gamma: float = 0.5) -> list[list[float]]:
    ahead = fast_n_step(REWARD, terminal, pad, n=n, gamma=gamma)
    return [ahead.returns.tolist(), ahead.discount.tolist(), ahead.steps.tolist()]


def test_n_step_without_an_end():
    # 1 + 2/2 + 4/4, 2 + 4/2 + 8/4, 4 + 8/2 + 16/4; gamma^3 = 1/8
    assert returns(terminal=at(), pad=at()) == [[3, 6, 12], [0.125] * 3, [3, 3, 3]]


def test_terminal_in_the_middle():
    # Row 2 ends the episode and its own reward 4 still counts: 1 + 2/2 + 4/4, 2 + 4/2, 4
    assert returns(terminal=at(2), pad=at()) == [[3, 4, 4], [0, 0, 0], [3, 2, 1]]


def test_terminal_in_the_first_row():
    assert returns(terminal=at(0), pad=at()) == [[1, 6, 12], [0, 0.125, 0.125], [1, 3, 3]]


def test_terminal_in_the_last_row_read():
    # The last start, row 2, reads rewards 2..4; row 5 is only its bootstrap state.
    assert returns(terminal=at(4), pad=at()) == [[3, 6, 12], [0.125, 0.125, 0], [3, 3, 3]]
    assert returns(terminal=at(5), pad=at()) == returns(terminal=at(), pad=at())


def test_pad_in_the_middle_is_the_state_to_bootstrap_from():
    # Row 2 has no action: 1 + 2/2 over two steps, 2 over one, and nothing from the pad row itself.
    # Rewards 8, 16 of the new episode behind it do not leak in.
    assert returns(terminal=at(), pad=at(2)) == [[2, 2, 0], [0.25, 0.5, 1], [2, 1, 0]]


def test_pad_in_the_first_row_followed_by_a_new_episode():
    assert returns(terminal=at(), pad=at(0)) == [[0, 6, 12], [1, 0.125, 0.125], [0, 3, 3]]


def test_pad_in_the_last_rows():
    # 4 + 8/2 over two steps from row 2
    assert returns(terminal=at(), pad=at(4)) == [[3, 6, 8], [0.125, 0.125, 0.25], [3, 3, 2]]
    assert returns(terminal=at(), pad=at(5)) == returns(terminal=at(), pad=at())


def test_terminal_of_the_episode_behind_a_pad_does_not_reach_back():
    assert returns(terminal=at(3), pad=at(2)) == [[2, 2, 0], [0.25, 0.5, 1], [2, 1, 0]]


def test_pad_behind_a_terminal_does_not_bring_the_bootstrap_back():
    assert returns(terminal=at(1), pad=at(2)) == [[2, 2, 0], [0, 0, 1], [2, 1, 0]]


def test_one_step():
    found = returns(terminal=at(1), pad=at(3), n=1, gamma=0.5)
    assert found == [[1, 2, 4, 0, 16], [0.5, 0, 0.5, 1, 0.5], [1, 1, 1, 0, 1]]


def test_as_many_rows_as_steps_leave_no_start():
    ahead = fast_n_step(REWARD, at(), at(), n=6, gamma=0.5)
    assert ahead.returns.shape == ahead.discount.shape == ahead.steps.shape == (0,)


def test_gamma_zero_and_one():
    assert returns(terminal=at(), pad=at(), gamma=0.0) == [[1, 2, 4], [0, 0, 0], [3, 3, 3]]
    assert returns(terminal=at(), pad=at(), gamma=1.0) == [[7, 14, 28], [1, 1, 1], [3, 3, 3]]


def slow_n_step(reward: list[float], terminal: list[bool], pad: list[bool], n: int, gamma: float):
    rows = []
    for start in range(len(reward) - n):
        total, steps, ended = 0.0, 0, False
        for i in range(start, start + n):
            if pad[i] or ended:
                break
            total += gamma**steps * reward[i]
            steps += 1
            ended = terminal[i]
        rows.append((total, 0.0 if ended else gamma**steps, steps))
    return [list(column) for column in zip(*rows, strict=True)]


number = st.floats(-10, 10, width=32)


@settings(max_examples=150)
@given(
    rows=st.lists(st.tuples(number, st.booleans(), st.booleans()), min_size=9, max_size=9),
    n=st.sampled_from([1, 3, 8]),
)
def test_n_step_is_the_plain_loop(rows: list[tuple[float, bool, bool]], n: int):
    reward, terminal, pad = (list(column) for column in zip(*rows, strict=True))
    arrays = jnp.array(reward, jnp.float32), jnp.array(terminal), jnp.array(pad)
    expected = slow_n_step(reward, terminal, pad, n, 0.9)
    for found, right in zip(fast_n_step(*arrays, n=n, gamma=0.9), expected, strict=True):
        assert_allclose(found, right, rtol=1e-4, atol=1e-4)


def test_n_step_treats_the_columns_of_a_batch_one_by_one():
    rng = np.random.default_rng(0)
    reward = rng.normal(size=(12, 5)).astype(np.float32)
    terminal, pad = rng.random((2, 12, 5)) < 0.2
    together = fast_n_step(jnp.asarray(reward), jnp.asarray(terminal), jnp.asarray(pad), n=4, gamma=0.9)
    for b in range(5):
        expected = slow_n_step(reward[:, b].tolist(), terminal[:, b].tolist(), pad[:, b].tolist(), 4, 0.9)
        for found, right in zip(together, expected, strict=True):
            assert_allclose(found[:, b], right, rtol=1e-5, atol=1e-6)


SMALL = jnp.array([-2.0, -1.0, 0.0, 1.0, 2.0])
ATARI = jnp.linspace(-10.0, 10.0, 51)


def slow_project(probs: np.ndarray, values: np.ndarray, support: np.ndarray) -> np.ndarray:
    """Each mass goes to the atom below and the atom above, in proportion to nearness."""
    low, high, spacing = support[0], support[-1], (support[-1] - support[0]) / (len(support) - 1)
    out = np.zeros(len(support))
    for mass, value in zip(probs, values, strict=True):
        place = (min(max(value, low), high) - low) / spacing
        below = min(int(np.floor(place)), len(support) - 2)
        out[below] += mass * (below + 1 - place)
        out[below + 1] += mass * (place - below)
    return out


def test_categorical_target_by_hand():
    probs = jnp.array([0.1, 0.2, 0.4, 0.2, 0.1])
    # Moved by half an atom, every mass is halved between two atoms; the last one, at 2.5, is clipped to 2:
    # 0.05, 0.05 + 0.1, 0.1 + 0.2, 0.2 + 0.1, 0.1 + 0.1
    found = fast_target(probs, jnp.array(0.5), jnp.array(1.0), SMALL)
    assert_allclose(found, [0.05, 0.15, 0.3, 0.3, 0.2], rtol=1e-5)


def test_categorical_target_with_a_discount_by_hand():
    probs = jnp.array([0.5, 0.0, 0.0, 0.0, 0.5])
    # 1 + 0.75 * (-2) = -0.5 and 1 + 0.75 * 2 = 2.5: 0.25 at -1, 0.25 at 0, 0.5 clipped to 2
    found = fast_target(probs, jnp.array(1.0), jnp.array(0.75), SMALL)
    assert_allclose(found, [0.0, 0.25, 0.25, 0.0, 0.5], atol=1e-6)


@pytest.mark.parametrize(
    ("returns", "discount", "expected"),
    [
        (0.5, 1.0, 0.1),  # -1.5 ... 2.5: the last atom alone
        (1.0, 0.75, 0.1),  # -0.5 ... 2.5 likewise
        (-1.5, 1.0, 0.3),  # -3.5, -2.5 below: 0.1 + 0.2
        (1.5, 0.5, 0.1),  # 0.5, 1, 1.5, 2, 2.5
        (0.0, 1.0, 0.0),  # from edge to edge
        (1.0, 0.5, 0.0),  # 0 ... 2, the last one on the edge
        (0.2, 0.9, 0.0),  # 0.2 + 0.9 * 2 is 2, but for rounding
        (2.001, 0.0, 1.0),  # a terminal return just beyond
        (-50.0, 0.0, 1.0),
    ],
)
def test_clipped_mass_by_hand(returns: float, discount: float, expected: float):
    probs = jnp.array([0.1, 0.2, 0.4, 0.2, 0.1])
    found = fast_clipped(probs, jnp.array(returns), jnp.array(discount), SMALL)
    assert_allclose(found, expected, atol=1e-6)


def test_what_is_clipped_is_what_the_projection_moved():
    """The mean of a projected target falls short of R + discount E[Z] only where mass was clipped."""
    rng = np.random.default_rng(1)
    probs = jnp.asarray(rng.dirichlet(np.ones(51), 200), jnp.float32)
    returns = jnp.asarray(rng.normal(size=200) * 4, jnp.float32)
    discount = jnp.asarray(rng.uniform(0, 1, 200), jnp.float32)
    share = np.asarray(fast_clipped(probs, returns, discount, ATARI))
    lost = np.abs(returns + discount * (probs @ ATARI) - fast_target(probs, returns, discount, ATARI) @ ATARI)
    assert (lost[share == 0] < 1e-4).all() and (lost[share > 0.05] > 1e-3).all()
    assert (share == 0).sum() > 20 and (share > 0.05).sum() > 20


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (-2.0, [1, 0, 0, 0, 0]),  # on an atom: all of it there
        (0.0, [0, 0, 1, 0, 0]),
        (2.0, [0, 0, 0, 0, 1]),
        (-50.0, [1, 0, 0, 0, 0]),  # clipped below
        (50.0, [0, 0, 0, 0, 1]),  # and above
        (0.25, [0, 0, 0.75, 0.25, 0]),
        (-1.9, [0.9, 0.1, 0, 0, 0]),
    ],
)
def test_discount_zero_gives_a_point_mass_at_the_return(value: float, expected: list[float]):
    probs = jnp.array([0.3, 0.1, 0.2, 0.2, 0.2])
    found = fast_target(probs, jnp.array(value), jnp.array(0.0), SMALL)
    assert_allclose(found, expected, atol=1e-6)


def test_projection_onto_where_it_already_is_changes_nothing():
    probs = jnp.asarray(np.random.default_rng(0).dirichlet(np.ones(51), 4), jnp.float32)
    found = fast_target(probs, jnp.zeros(4), jnp.ones(4), ATARI)
    assert_allclose(found, probs, atol=2e-6)


@pytest.mark.parametrize("support", [SMALL, ATARI])
def test_projection_is_the_brute_force_one(support: jax.Array):
    rng, size = np.random.default_rng(1), len(support)
    probs = rng.dirichlet(np.ones(size), 40).astype(np.float32)
    high = float(support[-1])
    values = rng.uniform(-1.5 * high, 1.5 * high, (40, size)).astype(np.float32)
    values[:10] = rng.choice(np.asarray(support), (10, size))  # exact hits
    values[10] = high
    values[11] = -high
    found = fast_project(jnp.asarray(probs), jnp.asarray(values), support)
    expected = [
        slow_project(p, v, np.asarray(support, np.float64)) for p, v in zip(probs, values, strict=True)
    ]
    assert_allclose(found, expected, atol=2e-6)
    assert_allclose(jnp.sum(found, axis=-1), np.ones(40), atol=5e-6)
    # Splitting between neighbours keeps the mean, up to what was clipped.
    means = np.sum(probs * np.clip(values, -high, high), axis=-1)
    assert_allclose(found @ support, means, atol=2e-4)


@settings(max_examples=60)
@given(
    weights=st.lists(st.floats(0, 1, width=32), min_size=5, max_size=5).filter(lambda w: sum(w) > 0.01),
    reward=st.floats(-5, 5, width=32),
    discount=st.floats(0, 1, width=32),
)
def test_mass_is_conserved_and_never_negative(weights: list[float], reward: float, discount: float):
    probs = np.array(weights, np.float32) / np.float32(sum(weights))
    found = fast_target(jnp.asarray(probs), jnp.float32(reward), jnp.float32(discount), SMALL)
    assert_allclose(jnp.sum(found), 1.0, atol=1e-5)
    assert np.all(np.asarray(found) >= 0)
    assert_allclose(
        found, slow_project(probs, reward + discount * np.asarray(SMALL), np.asarray(SMALL)), atol=1e-5
    )


def test_targets_of_a_batch_are_those_of_its_rows():
    rng = np.random.default_rng(2)
    probs = jnp.asarray(rng.dirichlet(np.ones(5), (2, 3)), jnp.float32)
    reward, discount = jnp.asarray(rng.normal(size=(2, 2, 3)), jnp.float32)
    together = fast_target(probs, reward, discount, SMALL)
    for i, j in np.ndindex(2, 3):
        alone = fast_target(probs[i, j], reward[i, j], discount[i, j], SMALL)
        assert_allclose(together[i, j], alone, atol=1e-6)


VALUES = jnp.array([[[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]], [[4.0, 40.0], [5.0, 50.0], [6.0, 60.0]]])


def test_pick_takes_the_entry_of_each_action():
    assert_array_equal(pick(VALUES, jnp.array([2, 0])), [[3.0, 30.0], [4.0, 40.0]])
    assert_array_equal(pick(VALUES[0], jnp.array(1)), [2.0, 20.0])
    assert pick(VALUES[None], jnp.array([[2, 0]])).shape == (1, 2, 2)


def test_pick_sends_its_gradient_to_that_action_only():
    gradient = jax.grad(lambda v: jnp.sum(pick(v, jnp.array([2, 0]))))(VALUES)
    assert_array_equal(gradient, [[[0, 0], [0, 0], [1, 1]], [[1, 1], [0, 0], [0, 0]]])


def test_double_q_chooses_by_one_and_reads_the_other():
    # The selector likes action 1, then action 0; the evaluator would have chosen action 2 both times.
    selector = jnp.array([[0.0, 5.0, 1.0], [3.0, 2.0, 2.9]])
    assert_array_equal(double_q(selector, VALUES), [[2.0, 20.0], [4.0, 40.0]])


def test_double_q_with_itself_is_the_maximum():
    one = VALUES[..., :1]
    assert_array_equal(double_q(one[..., 0], one)[..., 0], jnp.max(one[..., 0], axis=-1))


def test_double_q_takes_the_first_of_equals():
    assert_array_equal(double_q(jnp.array([1.0, 7.0, 7.0]), VALUES[0]), [2.0, 20.0])


@pytest.mark.parametrize(
    ("error", "delta", "expected"),
    [
        (0.0, 1.0, 0.0),
        (0.5, 1.0, 0.125),  # 0.5^2 / 2
        (-0.5, 1.0, 0.125),
        (1.0, 1.0, 0.5),
        (3.0, 1.0, 2.5),  # 1/2 + 1 * (3 - 1)
        (-3.0, 1.0, 2.5),
        (3.0, 2.0, 4.0),  # 4/2 + 2 * (3 - 2)
        (3.0, 5.0, 4.5),
    ],
)
def test_huber_by_hand(error: float, delta: float, expected: float):
    assert_allclose(huber(jnp.array(error), delta), expected)


def test_huber_gradient_is_the_error_clipped():
    errors = jnp.array([-4.0, -2.5, -1.0, 0.0, 0.3, 2.0, 7.0])
    slope = jax.vmap(jax.grad(partial(huber, delta=1.5)))(errors)
    assert_allclose(slope, [-1.5, -1.5, -1.0, 0.0, 0.3, 1.5, 1.5], rtol=1e-6)
