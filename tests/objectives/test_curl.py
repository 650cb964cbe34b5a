"""CURL's contrastive loss, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose

from vcrl.objectives import info_nce

loss = jax.jit(info_nce, static_argnums=3)


def test_two_by_two_by_hand():
    """Likeness 1 0 / 2 3: sample 0 leads by 1 and so does sample 1; -log of a sigmoid each."""
    anchor = jnp.array([[1.0, 0.0], [2.0, 3.0]])
    got = loss(anchor, jnp.eye(2), jnp.eye(2), 1.0)
    assert_allclose(got, [np.log(1 + np.exp(-1)), np.log(1 + np.exp(-1))], rtol=1e-6)


def test_three_by_three_by_hand():
    """The bilinear form stands between anchor and key, in this order, and the scale outside."""
    rng = np.random.default_rng(0)
    anchor, other, form = (rng.normal(size=s) for s in ((3, 2), (3, 2), (2, 2)))
    expected = []
    for i in range(3):
        likeness = [0.1 * anchor[i] @ form @ other[j] for j in range(3)]
        expected.append(np.log(sum(np.exp(likeness))) - likeness[i])
    assert_allclose(loss(*map(jnp.float32, (anchor, other, form)), 0.1), expected, rtol=1e-5)
    # The form is not symmetric: the other order is another loss.
    assert not np.allclose(loss(*map(jnp.float32, (anchor, other, form.T)), 0.1), expected, rtol=1e-3)


def test_when_all_look_alike_it_is_a_guess_among_all():
    same = jnp.ones((5, 4))
    assert_allclose(loss(same, same, jnp.eye(4), 1.0), np.full(5, np.log(5)), rtol=1e-6)


def test_it_is_nothing_where_each_is_like_its_own_alone():
    assert_allclose(loss(jnp.eye(3), jnp.eye(3), 100 * jnp.eye(3), 1.0), np.zeros(3), atol=1e-6)


def test_large_likeness_stays_finite():
    """Weights that start between 0 and 1 make it so; the reference subtracts the largest of a row for that."""
    got = loss(1e3 * jnp.ones((2, 128)), jnp.ones((2, 128)), jnp.ones((128, 128)), 1.0)
    assert_allclose(got, np.full(2, np.log(2)), rtol=1e-4)
