"""What is read off a state: action values, the vectors SPR and CURL compare, the reward on arriving there."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vcrl.nets.layers import Conv, Linear, NoisyLinear, scale_gradient
from vcrl.nets.norms import BatchNorm, layer_norm
from vcrl.nets.products import linear

Layer = Linear | NoisyLinear
SHAPES = ("streams", "shared", "plain")


class QHead(eqx.Module):
    """Action values, each of E numbers: the logits of C51's atoms, or one scalar.

    Three shapes: 'streams' is dueling with a hidden layer for each stream, 'shared' is dueling with one hidden layer
    for both, and 'plain' has that one layer and no dueling. A noisy head is read through `draw` (one sample of noise)
    or `mean` (none); both give a head of plain layers.
    """

    advantage: tuple[Layer, ...]
    value: tuple[Layer, ...]  # empty: no dueling
    actions: int = eqx.field(static=True)
    hidden: Layer | None = None  # shared by the streams
    gradient: float = eqx.field(static=True, default=2**-0.5)  # factor on what is sent back into the state

    @staticmethod
    def make(
        key: Array,
        inputs: int,
        hidden: int,
        actions: int,
        size: int,
        sigma: float | None,
        shape: str = "streams",
        gradient: float = 2**-0.5,
        init: str = "torch",
    ) -> "QHead":
        """`size` is E; `sigma` the initial noise, None for a head without. `init` is for layers without noise."""
        assert shape in SHAPES, shape

        def layer(key: Array, inputs: int, outputs: int) -> Layer:
            if sigma is None:
                return Linear.make(key, inputs, outputs, init)
            return NoisyLinear.make(key, inputs, outputs, sigma)

        k = jax.random.split(key, 4)
        advantage, value = layer(k[1], hidden, actions * size), layer(k[3], hidden, size)
        if shape == "streams":
            one, two = layer(k[0], inputs, hidden), layer(k[2], inputs, hidden)
            return QHead((one, advantage), (two, value), actions, None, gradient)
        return QHead(
            (advantage,),
            (value,) if shape == "shared" else (),
            actions,
            layer(k[0], inputs, hidden),
            gradient,
        )

    def draw(self, key: Array) -> "QHead":
        """The head under one sample of noise; all layers share one call of the generator."""
        layers = [x for x in (*self.advantage, *self.value, self.hidden) if isinstance(x, NoisyLinear)]
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
        def plain(layer: Layer) -> Layer:
            return turn(layer) if isinstance(layer, NoisyLinear) else layer

        advantage, value = (tuple(plain(x) for x in stream) for stream in (self.advantage, self.value))
        hidden = None if self.hidden is None else plain(self.hidden)
        return QHead(advantage, value, self.actions, hidden, self.gradient)

    def __call__(self, state: Float[Array, "*n H W C"]) -> Float[Array, "*n A E"]:
        # Two streams push back into one state: 1/sqrt 2 keeps their joint gradient at the size of one.
        flat = _flat(state) if self.gradient == 1 else scale_gradient(_flat(state), self.gradient)
        if self.hidden is not None:
            flat = jax.nn.relu(self.hidden(flat, linear))  # type: ignore
        advantage = _through(self.advantage, flat)
        advantage = advantage.reshape(*advantage.shape[:-1], self.actions, -1)
        if not self.value:
            return advantage
        value = _through(self.value, flat)
        return value[..., None, :] + advantage - jnp.mean(advantage, axis=-2, keepdims=True)

    def project(self, state: Float[Array, "*n H W C"]) -> Float[Array, "*n D"]:
        """SPR's projection g: the first layers of both streams, without their ReLU and without scaled gradient."""
        assert self.hidden is None, "the projection is made of the two streams' own hidden layers"
        flat = _flat(state)
        both = (stream[0](flat, linear) for stream in (self.advantage, self.value))  # type: ignore
        return jnp.concatenate([*both], axis=-1)


def _through(layers: tuple[Layer, ...], x: Float[Array, "*n I"]) -> Float[Array, "*n O"]:
    """One layer after the other, ReLU between them."""
    first, *rest = layers
    x = first(x, linear)  # type: ignore
    for layer in rest:
        x = layer(jax.nn.relu(x), linear)  # type: ignore
    return x


def _flat(state: Float[Array, "*n H W C"]) -> Float[Array, "*n D"]:
    return state.reshape(*state.shape[:-3], -1)


def prediction_head(key: Array, hidden: int) -> Linear:
    """SPR's prediction head q, on the online branch only: one linear layer as wide as the projection."""
    return Linear.make(key, 2 * hidden, 2 * hidden)


class ContrastHead(eqx.Module):
    """CURL's vectors and how alike two of them are: two layers, each normalised, and a bilinear form."""

    hidden: Linear
    out: Linear
    bilinear: Float[Array, "D D"]

    @staticmethod
    def make(key: Array, inputs: int, hidden: int, size: int) -> "ContrastHead":
        """Weights U(0, 1), as the reference has them: the normalisations take care of their size."""
        k = jax.random.split(key, 3)

        def layer(key: Array, inputs: int, outputs: int) -> Linear:
            return Linear(jax.random.uniform(key, (inputs, outputs)), jnp.zeros(outputs))

        return ContrastHead(
            layer(k[0], inputs, hidden), layer(k[1], hidden, size), jax.random.uniform(k[2], (size, size))
        )

    def __call__(self, state: Float[Array, "*n H W C"]) -> Float[Array, "*n D"]:
        return layer_norm(self.out(jax.nn.relu(layer_norm(self.hidden(_flat(state))))))


class RewardHead(eqx.Module):
    """Logits of the reward's sign on arriving at a state: -1, 0, 1. One plane of the state, then two layers."""

    plane: Conv
    norm: BatchNorm
    hidden: Linear
    out: Linear

    @staticmethod
    def make(key: Array, state: tuple[int, int, int], hidden: int = 256) -> "RewardHead":
        k, (height, width, channels) = jax.random.split(key, 3), state
        return RewardHead(
            Conv.make(k[0], channels, 1, 1),
            BatchNorm.make(1),
            Linear.make(k[1], height * width, hidden),
            Linear.make(k[2], hidden, 3),
        )

    def __call__(self, state: Float[Array, "B H W C"]) -> Float[Array, "B 3"]:
        # It is only ever read while learning, so no running statistics are kept.
        plane, _ = self.norm(jax.nn.relu(self.plane(state)), BatchNorm.stats(1), learning=True)
        return self.out(jax.nn.relu(self.hidden(_flat(plane))))
