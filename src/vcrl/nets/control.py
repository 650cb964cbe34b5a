"""The nets of continuous control, where a state is a vector: encoder, twin critics, actor, decoder."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vcrl.nets.augment import Drawn, shown
from vcrl.nets.encoders import Encoder, Layers, state_shape
from vcrl.nets.half import in_halves, layers
from vcrl.nets.layers import MLP, Conv, Linear
from vcrl.nets.long_sums import product
from vcrl.nets.norms import LayerNorm

LOG_STD = (-10.0, 2.0)  # of the policy, before it is squashed


class Trunk(eqx.Module):
    """From the convolutions' output to a vector: one linear layer, layer norm, tanh where a method has it."""

    linear: Linear
    norm: LayerNorm
    tanh: bool = eqx.field(static=True, default=False)

    @staticmethod
    def make(key: Array, inputs: int, width: int, tanh: bool) -> "Trunk":
        return Trunk(Linear.make(key, inputs, width, "orthogonal"), LayerNorm.make(width), tanh)

    def __call__(self, seen: Float[Array, "B h w c"]) -> Float[Array, "B D"]:
        flat = seen.reshape(len(seen), -1)
        if flat.dtype == jnp.float16:  # which are read as they are
            return self.behind(product(self.linear.weight, flat))
        return self.behind(flat @ self.linear.weight)

    def behind(self, sums: Float[Array, "B D"]) -> Float[Array, "B D"]:
        """What is left to do when the linear layer's product is there."""
        out = self.norm(sums + jnp.broadcast_to(self.linear.bias, sums.shape))
        return jnp.tanh(out) if self.tanh else out


class VectorEncoder(eqx.Module):
    """Convolutions and a trunk. The actor reads the same convolutions through a trunk of its own."""

    convs: Encoder
    trunk: Trunk

    def __call__(self, image: Float[Array, "B H W C"] | Drawn) -> Float[Array, "B D"]:
        if not self.convs.halves or self.convs.renormalised:
            return self.trunk(self.convs(image))

        def sums(nets: tuple[Encoder, Array], image: Float[Array, "B H W C"]) -> Float[Array, "B D"]:
            seen = layers(nets[0].convs, image)
            return product(nets[1], seen.reshape(len(seen), -1))

        # What comes back to so few numbers is of another size than what comes back to a picture.
        return self.trunk.behind(
            in_halves(sums, (self.convs, self.trunk.linear.weight), shown(image), most=16.0)
        )

    def without_gradient(self, image: Float[Array, "B H W C"] | Drawn) -> Float[Array, "B D"]:
        """The same where no gradient is wanted."""
        return jax.lax.stop_gradient(self.trunk(self.convs.without_gradient(image)))


class TwinQ(eqx.Module):
    """Two critics of a state and an action; their two numbers are the last axis."""

    one: MLP
    two: MLP

    @staticmethod
    def make(key: Array, width: int, actions: int, hidden: int) -> "TwinQ":
        widths = (width + actions, hidden, hidden, 1)
        return TwinQ(*(MLP.make(k, widths, "orthogonal") for k in jax.random.split(key)))

    def __call__(self, state: Float[Array, "*n D"], action: Float[Array, "*n A"]) -> Float[Array, "*n 2"]:
        both = jnp.concatenate([state, action], axis=-1)
        return jnp.concatenate([self.one(both), self.two(both)], axis=-1)

    def mean(self) -> "TwinQ":
        """Itself: there is no noise in it."""
        return self


class Policy(NamedTuple):
    """A Gaussian squashed by tanh, at each of the states it was asked at."""

    mean: Float[Array, "*n A"]
    log_std: Float[Array, "*n A"]

    def best(self) -> Float[Array, "*n A"]:
        return jnp.tanh(self.mean)

    def draw(self, normal: Float[Array, "*n A"]) -> tuple[Float[Array, "*n A"], Float[Array, "*n"]]:
        """An action for these standard-normal numbers, and the log of its density."""
        action = jnp.tanh(self.mean + jnp.exp(self.log_std) * normal)
        gauss = -0.5 * jnp.square(normal) - self.log_std - 0.5 * jnp.log(2 * jnp.pi)
        squash = jnp.log(jax.nn.relu(1 - jnp.square(action)) + 1e-6)
        return action, jnp.sum(gauss - squash, axis=-1)


class Actor(eqx.Module):
    trunk: Trunk
    layers: MLP

    @staticmethod
    def make(key: Array, inputs: int, width: int, actions: int, hidden: int, tanh: bool) -> "Actor":
        one, two = jax.random.split(key)
        return Actor(
            Trunk.make(one, inputs, width, tanh),
            MLP.make(two, (width, hidden, hidden, 2 * actions), "orthogonal"),
        )

    def __call__(self, seen: Float[Array, "B h w c"]) -> Policy:
        """What to do where the convolutions see this; the spread is squashed into its range by a tanh."""
        mean, spread = jnp.split(self.layers(self.trunk(seen)), 2, axis=-1)
        low, high = LOG_STD
        return Policy(mean, low + 0.5 * (high - low) * (jnp.tanh(spread) + 1))


class Likeness(eqx.Module):
    """CURL's bilinear form on states as they are."""

    bilinear: Float[Array, "D D"]


class Decoder(eqx.Module):
    """From a state back to the image: the encoder's layers in reverse, each turned round."""

    linear: Linear
    weights: tuple[Array, ...]  # k k I O, of each layer its own
    biases: tuple[Array, ...]
    seen: tuple[int, int, int] = eqx.field(static=True)  # what the encoder's convolutions give
    strides: tuple[int, ...] = eqx.field(static=True)
    extra: tuple[tuple[int, int], ...] = eqx.field(static=True)  # rows and columns that a stride had left out

    @staticmethod
    def make(key: Array, width: int, image: tuple[int, int, int], layers: Layers) -> "Decoder":
        shapes = [image]
        for layer in layers:
            shape = state_shape(shapes[-1], (layer,))
            assert shape is not None, "the image is too small for the encoder"
            shapes.append(shape)
        keys = jax.random.split(key, len(layers) + 1)
        convs: list[tuple[Array, Array, int, tuple[int, int]]] = []
        for k, (_, size, stride, *_), into, out in zip(keys[1:], layers, shapes, shapes[1:], strict=False):
            turned = Conv.make(k, out[2], into[2], size, init="delta")  # how the encoder's layers begin, too
            left = (into[0] - (out[0] - 1) * stride - size, into[1] - (out[1] - 1) * stride - size)
            convs.append((turned.weight, turned.bias, stride, left))
        weights, biases, strides, extra = (tuple(part) for part in zip(*reversed(convs), strict=True))
        height, width_, channels = shapes[-1]
        linear = Linear.make(keys[0], width, height * width_ * channels, "orthogonal")
        return Decoder(linear, weights, biases, shapes[-1], strides, extra)  # type: ignore

    def __call__(self, state: Float[Array, "B D"]) -> Float[Array, "B H W C"]:
        out = jax.nn.relu(self.linear(state)).reshape(len(state), *self.seen)
        forms = ("NHWC", "HWIO", "NHWC")
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            reach, stride = weight.shape[0] - 1, self.strides[i]
            pads = [(reach, reach + more) for more in self.extra[i]]
            out = out if i == 0 else jax.nn.relu(out)
            out = jax.lax.conv_transpose(out, weight, (stride, stride), pads, dimension_numbers=forms)
            out = out + jnp.broadcast_to(bias, out.shape)
        return out
