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
    def reading(self, head: Any, state: Array, action: Array, key: Array) -> Float[Array, "*n M E"]:
        """Of the action taken and of others, by one pass through the head."""
        ...

    def parted(
        self, reading: Array, action: Array
    ) -> tuple[Float[Array, "*n E"], Float[Array, "*n M E"], Float[Array, "*n M"]]:
        """The value of the action taken; the others'; 1 at those of them that count."""
        ...

    @property
    def as_target(self) -> Callable[..., Array]: ...


@dataclass(frozen=True)
class DiscreteValues:
    """Values of finitely many actions, all read at once."""

    size: int  # E
    settle: Callable[[Array], Array]  # what a head gives *n E -> a reading *n E
    scalar: Callable[[Array], Array]  # a reading *n E -> its expected return *n
    as_target: Callable[[Array], Array]  # a reading as something to be compared with, without gradient
    bellman: Callable[[Array, Array, Array], Array]  # reading, return, discount -> target *n E
    loss: Callable[[Array, Array], Array]  # reading, target -> *n
    surprise: Callable[[Array, Array], Array]  # reading, target -> replay priority before its exponent
    distance: Distance
    # as `bellman` -> share of the target that its range cannot hold; None where there is no range
    clipped: Callable[[Array, Array, Array], Array] | None = None

    def read(self, head: QHead, state: Float[Array, "*n H W C"]) -> Float[Array, "*n A E"]:
        return self.settle(head(state))

    def taken(
        self, head: QHead, state: Float[Array, "*n H W C"], action: Int[Array, "*n"]
    ) -> Float[Array, "*n E"]:
        return pick(self.read(head, state), action)

    def reading(
        self, head: QHead, state: Float[Array, "*n H W C"], action: Int[Array, "*n"], key: Array
    ) -> Float[Array, "*n A E"]:
        """All actions. The key is for bases that must draw the others."""
        return self.read(head, state)

    def parted(
        self, reading: Float[Array, "*n A E"], action: Int[Array, "*n"]
    ) -> tuple[Float[Array, "*n E"], Float[Array, "*n A E"], Float[Array, "*n A"]]:
        return pick(reading, action), reading, 1 - jax.nn.one_hot(action, reading.shape[-2])


@dataclass(frozen=True)
class TwinValues:
    """Values of continuous actions by two critics: E is 2, and a few random actions stand for the others."""

    actions: int
    samples: int  # M
    least: bool  # a target is the lesser critic's, not each one's own
    distance: Distance = squared_error

    def reading(
        self, head: TwinQ, state: Float[Array, "*n D"], action: Float[Array, "*n A"], key: Array
    ) -> Float[Array, "*n some 2"]:
        """The action taken, then random ones, which are the same for the same key, whatever the state."""
        drawn = jax.random.uniform(key, (*state.shape[:-1], self.samples, self.actions), minval=-1.0)
        actions = jnp.concatenate([action[..., None, :], drawn], axis=-2)
        states = jnp.broadcast_to(state[..., None, :], (*actions.shape[:-1], state.shape[-1]))
        return head(states, actions)

    def parted(
        self, reading: Float[Array, "*n some 2"], action: Float[Array, "*n A"]
    ) -> tuple[Float[Array, "*n 2"], Float[Array, "*n M 2"], Float[Array, "*n M"]]:
        taken, others = reading[..., 0, :], reading[..., 1:, :]
        return taken, others, jnp.ones(others.shape[:-1])

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
        settle=jax.nn.log_softmax,
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
        settle=lambda value: value,
        scalar=lambda value: value[..., 0],
        as_target=jax.lax.stop_gradient,
        bellman=lambda value, returns, discount: returns[..., None] + discount[..., None] * value,
        loss=lambda value, target: huber((value - target)[..., 0], config.huber),
        surprise=lambda value, target: jnp.abs(value - target)[..., 0],
        distance=squared_error,
    )


def make_values(config: Categorical | Scalar) -> DiscreteValues:
    return categorical(config) if isinstance(config, Categorical) else scalar(config)
