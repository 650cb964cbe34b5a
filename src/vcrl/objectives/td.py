"""Temporal-difference targets: n-step returns, the C51 projection, double-Q, the Huber loss."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class NStep(NamedTuple):
    returns: Float[Array, " P *b"]  # sum_{i<m} gamma^i r_{k+i}
    discount: Float[Array, " P *b"]  # gamma^m, or 0 if the episode terminated on the way
    steps: Int[Array, " P *b"]  # m: how far ahead the bootstrap state lies


def n_step(
    reward: Float[Array, " T *b"],
    terminal: Bool[Array, " T *b"],
    pad: Bool[Array, " T *b"],
    *,
    n: int,
    gamma: float,
) -> NStep:
    """n-step returns from each of the first T - n rows (the R_k and D_k of discrete VCR).

    A terminal ends the sum and cancels the bootstrap. A pad row, the final frame of a truncated episode, ends the sum
    too, but is itself the state to bootstrap from, so m may be shorter than n.
    """
    starts = reward.shape[0] - n
    going = jnp.ones(reward[:starts].shape, bool)
    returns, discount = jnp.zeros_like(reward[:starts]), jnp.ones_like(reward[:starts])
    steps = jnp.zeros(going.shape, jnp.int32)
    for i in range(n):
        going &= ~pad[i : starts + i]
        returns += jnp.where(going, discount * reward[i : starts + i], 0.0)
        discount = jnp.where(going, discount * gamma, discount)
        steps += going.astype(jnp.int32)
        ends = going & terminal[i : starts + i]
        discount = jnp.where(ends, 0.0, discount)
        going &= ~ends
    return NStep(returns, discount, steps)


def project(
    probs: Float[Array, "*n N"], values: Float[Array, "*n N"], support: Float[Array, " N"]
) -> Float[Array, "*n N"]:
    """C51 projection: masses `probs` sitting at `values` are split between the two nearest atoms of `support`.

    The triangular-kernel form of Bellemare et al. (2017), equation 7; the support is evenly spaced.
    """
    spacing = support[1] - support[0]
    clipped = jnp.clip(values, support[0], support[-1])
    share = jnp.clip(1 - jnp.abs(jnp.subtract.outer(clipped, support)) / spacing, 0, 1)
    return jnp.sum(share * probs[..., None], axis=-2)


def categorical_target(
    probs: Float[Array, "*n N"],
    returns: Float[Array, "*n"],
    discount: Float[Array, "*n"],
    support: Float[Array, " N"],
) -> Float[Array, "*n N"]:
    """The distribution of R + discount * Z for Z ~ probs on the support, projected back onto it."""
    return project(probs, returns[..., None] + jnp.multiply.outer(discount, support), support)


def clipped_mass(
    probs: Float[Array, "*n N"],
    returns: Float[Array, "*n"],
    discount: Float[Array, "*n"],
    support: Float[Array, " N"],
) -> Float[Array, "*n"]:
    """How much of R + discount * Z for Z ~ probs lies beyond the support: what a projection moves to its edges."""
    values = returns[..., None] + jnp.multiply.outer(discount, support)
    # A value that is an edge but for rounding is not beyond it.
    slack = 1e-4 * (support[1] - support[0])
    beyond = (values < support[0] - slack) | (values > support[-1] + slack)
    return jnp.sum(jnp.where(beyond, probs, 0), axis=-1)


def pick(values: Float[Array, "*n A E"], action: Int[Array, "*n"]) -> Float[Array, "*n E"]:
    """The entry of one action out of the values of all."""
    return jnp.take_along_axis(values, action[..., None, None], axis=-2).squeeze(-2)


def double_q(selector: Float[Array, "*n A"], evaluator: Float[Array, "*n A E"]) -> Float[Array, "*n E"]:
    """Double Q-learning: one network chooses the action, the other says what it is worth."""
    return pick(evaluator, jnp.argmax(selector, axis=-1))


def huber(error: Float[Array, "*n"], delta: float = 1.0) -> Float[Array, "*n"]:
    """Squared error / 2 up to `delta`, linear beyond."""
    size = jnp.abs(error)
    inside = jnp.minimum(size, delta)
    return 0.5 * jnp.square(inside) + delta * (size - inside)
