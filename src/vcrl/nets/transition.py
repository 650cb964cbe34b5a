"""The latent transition model h, and imagination: its K-step rollout along given actions."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from vcrl.nets.layers import Conv, Linear
from vcrl.nets.norms import BatchNorm, LayerNorm, Stats, renormalise


class Transition(eqx.Module):
    """z, a -> z': the one-hot action as extra planes, two 3x3 convolutions, batch norm between them."""

    conv1: Conv  # of state and planes
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
        return self.after(state, self.given(action, state.shape[1:3]), stats, learning)

    def given(self, actions: Int[Array, "*n"], sides: tuple[int, ...]) -> Float[Array, "*n H W C"]:
        """What the first convolution makes of the actions' planes.

        A plane is the same everywhere but for the zeros around it, so of each action it is a picture that can be drawn
        once, for all steps. The convolution itself has fewer channels then, and they come in large powers of two.
        """
        weight = self.conv1.weight[:, :, -self.actions :]
        down, across = (_taps(length).astype(weight.dtype) for length in sides)
        pictures = jnp.einsum("yi,xj,ijac->ayxc", down, across, weight)
        # A product, whose way back is one, too: on a GPU adding up what a lookup was asked for is slow.
        chosen = jax.nn.one_hot(actions, self.actions, dtype=weight.dtype) @ pictures.reshape(
            self.actions, -1
        )
        return chosen.reshape(*actions.shape, *pictures.shape[1:])

    def after(
        self, state: Float[Array, "B H W C"], given: Float[Array, "B H W C"], stats: Stats, learning: bool
    ) -> tuple[Float[Array, "B H W C"], Stats]:
        """The next state, from what `given` makes of the action."""
        seen = Conv(self.conv1.weight[:, :, : -self.actions], self.conv1.bias, stride=1, padding=1)
        hidden, stats = self.norm(jax.nn.relu(seen(state) + given), stats, learning)
        return renormalise(jax.nn.relu(self.conv2(hidden))), stats


def _taps(length: int) -> Array:
    """Which of three in a row lie on the picture, at each of so many places."""
    place = jnp.arange(length)[:, None] + jnp.arange(-1, 2)[None]
    return (place >= 0) & (place < length)


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

    def given(self, actions: Float[Array, "*n A"], sides: tuple[int, ...]) -> Float[Array, "*n A"]:
        """The actions themselves: a vector has no planes."""
        return actions

    after = __call__


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

    def step(carry: tuple[Array, Any], given: Array):
        state, stats = transition.after(carry[0], given, carry[1], learning)
        return (state, stats), state

    given = transition.given(actions, state.shape[1:3])
    (_, stats), states = jax.lax.scan(step, (state, stats), given, unroll=True)
    return jnp.concatenate([state[None], states]), stats
