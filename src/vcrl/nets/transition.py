"""The latent transition model h, and imagination: its K-step rollout along given actions."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from vcrl.nets.layers import BatchNorm, Conv, Stats, renormalise


class Transition(eqx.Module):
    """z, a -> z': the one-hot action as extra planes, two 3x3 convolutions, batch norm between them."""

    conv1: Conv
    norm: BatchNorm
    conv2: Conv
    actions: int = eqx.field(static=True)

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
        hidden = jax.nn.relu(self.conv1(jnp.concatenate([state, planes], axis=-1)))
        hidden, stats = self.norm(hidden, stats, learning)
        return renormalise(jax.nn.relu(self.conv2(hidden))), stats


def imagine(
    transition: Transition,
    state: Float[Array, "B H W C"],
    actions: Int[Array, "K B"],
    stats: Stats,
    learning: bool,
) -> tuple[Float[Array, "K+1 B H W C"], Stats]:
    """z^_t = z_t, z^_{t+k+1} = h(z^_{t+k}, a_{t+k}): the start and the K states that follow from the actions.

    Gradients run through every step at full size. The running statistics are shared by all steps.
    """

    def step(carry: tuple[Array, Stats], action: Array):
        state, stats = transition(carry[0], action, carry[1], learning)
        return (state, stats), state

    (_, stats), states = jax.lax.scan(step, (state, stats), actions, unroll=True)
    return jnp.concatenate([state[None], states]), stats
