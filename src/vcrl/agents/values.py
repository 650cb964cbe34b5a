"""How action values are read off a state: the seam that lets one term serve every kind of value.

E is what one value consists of: the atoms of C51, the one number of DQN, or SAC's two critics. They differ here and
nowhere else.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from vcrl.methods.configs import Categorical, Scalar
from vcrl.nets.control import TwinQ
from vcrl.nets.heads import QHead
from vcrl.objectives import categorical_target, cross_entropy, huber, pick, squared_error
from vcrl.objectives.distance import Distance
from vcrl.objectives.td import clipped_mass


class Values(Protocol):
    """What a term may ask of a base. `distance` compares a reading with the `as_target` of another reading."""

    @property
    def distance(self) -> Distance: ...
    def taken(self, head: Any, state: Array, action: Array) -> Float[Array, "*n E"]: ...
    def others(
        self, head: Any, state: Array, action: Array, key: Array
    ) -> tuple[Float[Array, "*n M E"], Float[Array, "*n M"]]: ...
    @property
    def as_target(self) -> Callable[..., Array]: ...


@dataclass(frozen=True)
class DiscreteValues:
    """Values of finitely many actions, all read at once."""

    size: int  # E
    read: Callable[[QHead, Array], Array]  # head, state -> *n A E
    scalar: Callable[[Array], Array]  # a reading *n E -> its expected return *n
    as_target: Callable[[Array], Array]  # a reading as something to be compared with, without gradient
    bellman: Callable[[Array, Array, Array], Array]  # reading, return, discount -> target *n E
    loss: Callable[[Array, Array], Array]  # reading, target -> *n
    surprise: Callable[[Array, Array], Array]  # reading, target -> replay priority before its exponent
    distance: Distance
    # as `bellman` -> share of the target that its range cannot hold; None where there is no range
    clipped: Callable[[Array, Array, Array], Array] | None = None

    def taken(
        self, head: QHead, state: Float[Array, "*n H W C"], action: Int[Array, "*n"]
    ) -> Float[Array, "*n E"]:
        return pick(self.read(head, state), action)

    def others(
        self, head: QHead, state: Float[Array, "*n H W C"], action: Int[Array, "*n"], key: Array
    ) -> tuple[Float[Array, "*n A E"], Float[Array, "*n A"]]:
        """All actions, and 0 at the one taken. The key is for bases that must draw the others."""
        values = self.read(head, state)
        return values, 1 - jax.nn.one_hot(action, values.shape[-2])


@dataclass(frozen=True)
class TwinValues:
    """Values of continuous actions by two critics: E is 2, and a few random actions stand for the others."""

    actions: int
    samples: int  # M
    least: bool  # a target is the lesser critic's, not each one's own
    distance: Distance = squared_error

    def taken(
        self, head: TwinQ, state: Float[Array, "*n D"], action: Float[Array, "*n A"]
    ) -> Float[Array, "*n 2"]:
        return head(state, action)

    def others(
        self, head: TwinQ, state: Float[Array, "*n D"], action: Float[Array, "*n A"], key: Array
    ) -> tuple[Float[Array, "*n M 2"], Float[Array, "*n M"]]:
        """The same random actions for the same key, whatever the state."""
        shape = (*state.shape[:-1], self.samples)
        drawn = jax.random.uniform(key, (*shape, self.actions), minval=-1.0)
        states = jnp.broadcast_to(state[..., None, :], (*shape, state.shape[-1]))
        return head(states, drawn), jnp.ones(shape)

    def as_target(self, values: Float[Array, "*n 2"]) -> Float[Array, "*n 2"]:
        if self.least:
            values = jnp.broadcast_to(jnp.min(values, axis=-1, keepdims=True), values.shape)
        return jax.lax.stop_gradient(values)


def categorical(config: Categorical) -> DiscreteValues:
    """C51: a reading is log-probabilities over the atoms, a target probabilities."""
    support = jnp.linspace(config.low, config.high, config.atoms)

    def kl(log_prob: Array, target: Array) -> Array:
        entropy = cross_entropy(jnp.log(jnp.maximum(target, 1e-30)), target)
        return cross_entropy(log_prob, target) - entropy

    return DiscreteValues(
        size=config.atoms,
        read=lambda head, state: jax.nn.log_softmax(head(state)),
        scalar=lambda log_prob: jnp.exp(log_prob) @ support,
        as_target=lambda log_prob: jax.lax.stop_gradient(jnp.exp(log_prob)),
        bellman=lambda log_prob, returns, discount: categorical_target(
            jnp.exp(log_prob), returns, discount, support
        ),
        loss=cross_entropy,
        surprise=kl,
        distance=cross_entropy,
        clipped=lambda log_prob, returns, discount: clipped_mass(
            jnp.exp(log_prob), returns, discount, support
        ),
    )


def scalar(config: Scalar) -> DiscreteValues:
    """DQN: a reading is one number."""
    return DiscreteValues(
        size=1,
        read=lambda head, state: head(state),
        scalar=lambda value: value[..., 0],
        as_target=jax.lax.stop_gradient,
        bellman=lambda value, returns, discount: returns[..., None] + discount[..., None] * value,
        loss=lambda value, target: huber((value - target)[..., 0], config.huber),
        surprise=lambda value, target: jnp.abs(value - target)[..., 0],
        distance=squared_error,
    )


def make_values(config: Categorical | Scalar) -> DiscreteValues:
    return categorical(config) if isinstance(config, Categorical) else scalar(config)
