"""The latent transition model h, and imagination: its K-step rollout along given actions."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from vcrl.nets.layers import BatchNorm, Conv, LayerNorm, Linear, Stats, renormalise


class Transition(eqx.Module):
    """z, a -> z': the one-hot action as extra planes, two 3x3 convolutions, batch norm between them."""

    conv1: Conv
    norm: BatchNorm
    conv2: Conv
    actions: int = eqx.field(static=True)

    @property
    def variety(self) -> int:
        """How many actions there are to choose from."""
        return self.actions

    def draw(self, key: Array, shape: tuple[int, ...]) -> Int[Array, "..."]:
        """Random actions."""
        return jax.random.randint(key, shape, 0, self.actions)

    @staticmethod
    def make(key: Array, channels: int, actions: int) -> "Transition":
        one, two = jax.random.split(key)
        return Transition(
            Conv.make(one, channels + actions, channels, 3, padding=1),
            BatchNorm.make(channels),
            Conv.make(two, channels, channels, 3, padding=1),
            actions,
        )

    def stats(self) -> Stats:
        """Fresh running statistics."""
        return BatchNorm.stats(self.norm.scale.shape[-1])

    def __call__(
        self, state: Float[Array, "B H W C"], action: Int[Array, " B"], stats: Stats, learning: bool
    ) -> tuple[Float[Array, "B H W C"], Stats]:
        planes = jax.nn.one_hot(action, self.actions)[:, None, None, :]
        planes = jnp.broadcast_to(planes, (*state.shape[:3], self.actions))
        hidden = jax.nn.relu(self.conv1(jnp.concatenate([state, planes], axis=-1), constant=self.actions))
        hidden, stats = self.norm(hidden, stats, learning)
        return renormalise(jax.nn.relu(self.conv2(hidden))), stats


class VectorTransition(eqx.Module):
    """The same where states and actions are vectors: two linear layers, layer norm between them."""

    hidden: Linear
    norm: LayerNorm
    out: Linear
    actions: int = eqx.field(static=True)
    variety: int = eqx.field(static=True, default=1)  # random actions are as good as any number of them

    @staticmethod
    def make(key: Array, width: int, actions: int, hidden: int) -> "VectorTransition":
        one, two = jax.random.split(key)
        return VectorTransition(
            Linear.make(one, width + actions, hidden),
            LayerNorm.make(hidden),
            Linear.make(two, hidden, width),
            actions,
        )

    def stats(self) -> tuple[()]:
        """Nothing runs along here."""
        return ()

    def draw(self, key: Array, shape: tuple[int, ...]) -> Float[Array, "... A"]:
        return jax.random.uniform(key, (*shape, self.actions), minval=-1.0)

    def __call__(
        self,
        state: Float[Array, "B D"],
        action: Float[Array, "B A"],
        stats: tuple[()] = (),
        learning: bool = True,
    ) -> tuple[Float[Array, "B D"], tuple[()]]:
        hidden = self.norm(self.hidden(jnp.concatenate([state, action], axis=-1)))
        return self.out(jax.nn.relu(hidden)), stats


def imagine(
    transition: Transition | VectorTransition,
    state: Float[Array, " B *s"],
    actions: Shaped[Array, "K B *a"],
    stats: Any,
    learning: bool,
) -> tuple[Float[Array, "K+1 B *s"], Any]:
    """z^_t = z_t, z^_{t+k+1} = h(z^_{t+k}, a_{t+k}): the start and the K states that follow from the actions.

    Gradients run through every step at full size. The running statistics are shared by all steps.
    """

    def step(carry: tuple[Array, Any], action: Array):
        state, stats = transition(carry[0], action, carry[1], learning)
        return (state, stats), state

    (_, stats), states = jax.lax.scan(step, (state, stats), actions, unroll=True)
    return jnp.concatenate([state[None], states]), stats
