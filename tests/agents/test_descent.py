"""One gradient step of an agent that has several: what it moves, how far, and how it is clipped."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from vcrl.agents.descent import SMALL, Descent, clipped, descend, merged, norm, parts_of


class Nets(eqx.Module):
    one: Array
    two: dict[str, Array]
    rest: Array
    absent: Array | None = None


NETS = Nets(jnp.array([1.0, -2.0]), {"a": jnp.array([0.5]), "b": jnp.array(3.0)}, jnp.array([7.0]))


def bowl(nets: Nets):
    """Its gradient is twice the weight times 1, 3 and 100."""
    loss = (
        jnp.sum(nets.one**2)
        + 3 * (jnp.sum(nets.two["a"] ** 2) + nets.two["b"] ** 2)
        + 100 * jnp.sum(nets.rest**2)
    )
    return loss, {"loss": loss}


def adam(weight, gradients, rate, momentum, epsilon):
    """Kingma and Ba's algorithm, one number at a time; `gradients` gives that of a weight."""
    first = second = 0.0
    for t in (1, 2, 3):
        g = gradients(weight)
        first = momentum * first + (1 - momentum) * g
        second = 0.999 * second + 0.001 * g**2
        weight -= rate * (first / (1 - momentum**t)) / (np.sqrt(second / (1 - 0.999**t)) + epsilon)
    return weight


@pytest.mark.parametrize("momentum", [0.9, 0.5])
def test_three_steps_are_three_of_adam_each_part_at_its_rate(momentum):
    step = Descent({"one": 0.1, "two": 0.02, "absent": 5.0}, 1e-3, momentum)
    nets, opt = NETS, step.init(NETS)
    go = jax.jit(lambda nets, opt: descend(step, bowl, nets, opt))
    for _ in range(3):
        nets, opt, metrics = go(nets, opt)
    expected = {
        "one": [adam(w, lambda w: 2 * w, 0.1, momentum, 1e-3) for w in (1.0, -2.0)],
        "a": [adam(0.5, lambda w: 6 * w, 0.02, momentum, 1e-3)],
        "b": adam(3.0, lambda w: 6 * w, 0.02, momentum, 1e-3),
    }
    np.testing.assert_allclose(nets.one, expected["one"], rtol=1e-5)
    np.testing.assert_allclose(nets.two["a"], expected["a"], rtol=1e-5)
    np.testing.assert_allclose(nets.two["b"], expected["b"], rtol=1e-5)
    np.testing.assert_array_equal(nets.rest, [7.0])  # whatever its gradient
    assert nets.absent is None and metrics.keys() == {"loss"}


def test_the_momentum_matters():
    """Or the test above could not tell 0.5 from 0.9."""
    one, two = (adam(1.0, lambda w: 2 * w, 0.1, m, 1e-3) for m in (0.9, 0.5))
    assert abs(one - two) > 1e-3


def test_where_there_is_no_gradient_nothing_moves():
    step = Descent({"one": 0.1, "two": 0.1}, 1e-8, clip=((1.0, ("one",)), (1.0, ("one", "two"))))
    nets, _, _ = descend(step, lambda nets: (jnp.sum(nets.rest), {}), NETS, step.init(NETS))
    for old, new in zip(jax.tree.leaves(NETS), jax.tree.leaves(nets), strict=True):
        np.testing.assert_array_equal(old, new)


def test_adam_keeps_moments_of_its_own_parts_alone():
    state = Descent({"two": 0.1, "absent": 0.1}, 1e-8).init(NETS)
    assert [x.shape for x in jax.tree.leaves(state.mu)] == [(1,), ()]


def test_parts_come_out_and_go_back():
    parts = parts_of(NETS, ("two", "absent", "one"))
    assert list(parts) == ["two", "one"]
    again = merged(NETS, {"one": jnp.array([9.0, 8.0])})
    np.testing.assert_array_equal(again.one, [9, 8])
    assert again.two is not None and float(again.two["b"]) == 3.0 and float(again.rest[0]) == 7.0


LIMITS = Descent({}, 1e-8, clip=((10.0, ("one",)), (10.0, ("one", "two", "missing"))))


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        # Norms of the two groups of gradients, and what is left of them.
        ((6.0, 0.0), 8.0, (6.0, 8.0)),  # together just 10
        ((30.0, 40.0), 0.0, (10.0, 0.0)),  # the first alone is 50
        ((30.0, 40.0), 24.0, (10 * 10 / 26, 24 * 10 / 26)),  # to 10 first, then 10 and 24, which are 26
        ((3.0, 4.0), 12.0, (5 * 10 / 13, 12 * 10 / 13)),  # only together too long
        ((0.0, 0.0), 0.0, (0.0, 0.0)),
    ],
)
def test_the_first_group_is_clipped_and_then_all_together(one, two, expected):
    gradient = {"one": jnp.array(one), "two": {"x": jnp.array([two])}, "three": jnp.array([99.0])}
    out = clipped(LIMITS, gradient)
    norms = (np.linalg.norm(out["one"]), np.linalg.norm(out["two"]["x"]))
    assert norms == pytest.approx(expected, rel=1e-5)
    assert float(out["three"][0]) == 99.0
    if any(one):  # the direction stays
        np.testing.assert_allclose(out["one"] / norms[0], np.array(one) / np.linalg.norm(one), rtol=1e-5)


def test_without_limits_nothing_is_clipped():
    gradient = {"one": jnp.array([1e6])}
    assert clipped(Descent({"one": 1.0}, 1e-8), gradient) is gradient


@pytest.mark.parametrize("sizes", [(3,), (3, SMALL), (SMALL, 5, SMALL + 1, 2), (SMALL,), ()])
def test_the_norm_is_that_of_all_arrays_small_and_large(sizes):
    arrays = [np.random.default_rng(n).normal(size=n).astype(np.float32) for n in sizes]
    wanted = np.sqrt(sum(np.sum(np.square(a, dtype=np.float64)) for a in arrays))
    assert float(norm({"nets": arrays})) == pytest.approx(float(wanted), rel=1e-5)
