"""What is read off a state: action values, and the vectors SPR compares."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vcrl.nets.layers import Linear, NoisyLinear, scale_gradient

Layer = Linear | NoisyLinear


def _layer(key: Array, inputs: int, outputs: int, sigma: float | None) -> Layer:
    return (
        Linear.make(key, inputs, outputs) if sigma is None else NoisyLinear.make(key, inputs, outputs, sigma)
    )


class QHead(eqx.Module):
    """Dueling action values, each of E numbers: the logits of C51's atoms, or one scalar.

    A noisy head is read through `draw` (one sample of noise) or `mean` (none); both give a head of plain layers.
    """

    advantage: tuple[Layer, Layer]
    value: tuple[Layer, Layer]
    actions: int = eqx.field(static=True)

    @staticmethod
    def make(key: Array, inputs: int, hidden: int, actions: int, size: int, sigma: float | None) -> "QHead":
        """`size` is E; `sigma` the initial noise, None for a head without."""
        k = jax.random.split(key, 4)
        return QHead(
            (_layer(k[0], inputs, hidden, sigma), _layer(k[1], hidden, actions * size, sigma)),
            (_layer(k[2], inputs, hidden, sigma), _layer(k[3], hidden, size, sigma)),
            actions,
        )

    def draw(self, key: Array) -> "QHead":
        """The head under one sample of noise; all layers share one call of the generator."""
        layers = [x for x in (*self.advantage, *self.value) if isinstance(x, NoisyLinear)]
        noise = jax.random.normal(key, (sum(sum(x.weight.shape) for x in layers),))

        def turn(layer: NoisyLinear) -> Linear:
            nonlocal noise
            size = sum(layer.weight.shape)
            mine, noise = noise[:size], noise[size:]
            return layer.draw(mine)

        return self._plain(turn)

    def mean(self) -> "QHead":
        return self._plain(NoisyLinear.mean)

    def _plain(self, turn: Callable[[NoisyLinear], Linear]) -> "QHead":
        def plain(layers: tuple[Layer, Layer]) -> tuple[Layer, Layer]:
            one, two = (turn(x) if isinstance(x, NoisyLinear) else x for x in layers)
            return one, two

        return QHead(plain(self.advantage), plain(self.value), self.actions)

    def __call__(self, state: Float[Array, "*n H W C"]) -> Float[Array, "*n A E"]:
        # Two streams push back into one state: 1/sqrt 2 keeps their joint gradient at the size of one.
        flat = scale_gradient(_flat(state), 2**-0.5)
        advantage, value = (two(jax.nn.relu(one(flat))) for one, two in (self.advantage, self.value))  # type: ignore
        advantage = advantage.reshape(*advantage.shape[:-1], self.actions, -1)
        return value[..., None, :] + advantage - jnp.mean(advantage, axis=-2, keepdims=True)

    def project(self, state: Float[Array, "*n H W C"]) -> Float[Array, "*n D"]:
        """SPR's projection g: the first layers of both streams, without their ReLU and without scaled gradient."""
        flat = _flat(state)
        return jnp.concatenate([self.advantage[0](flat), self.value[0](flat)], axis=-1)  # type: ignore


def _flat(state: Float[Array, "*n H W C"]) -> Float[Array, "*n D"]:
    return state.reshape(*state.shape[:-3], -1)


def prediction_head(key: Array, hidden: int) -> Linear:
    """SPR's prediction head q, on the online branch only: one linear layer as wide as the projection."""
    return Linear.make(key, 2 * hidden, 2 * hidden)
