"""From a stack of frames to a state."""

from collections.abc import Sequence
from itertools import accumulate

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vcrl.nets import first_layers, half, kernels, tiles
from vcrl.nets.augment import Drawn, picture, shown
from vcrl.nets.convolutions import widened
from vcrl.nets.half import in_halves
from vcrl.nets.layers import Conv, pads
from vcrl.nets.norms import renormalise

# Channels, kernel and stride of each layer; padding where there is some.
Layers = tuple[tuple[int, int, int] | tuple[int, int, int, str], ...]

NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # 84 pixels -> 7x7x64
NATURE_SAME = ((32, 8, 4, "same"), (64, 4, 2, "same"), (64, 3, 1, "same"))  # 84 pixels -> 11x11x64
DATA_EFFICIENT = ((32, 5, 5), (64, 5, 5))  # 84 pixels -> 3x3x64
SMALL = ((16, 4, 2), (16, 3, 2))  # 16 pixels -> 3x3x16
CONTROL = ((64, 3, 2), (64, 3, 1), (64, 3, 1), (64, 3, 1))  # 84 pixels -> 35x35x64
CONTROL_32 = ((32, 3, 2), (32, 3, 1), (32, 3, 1), (32, 3, 1))  # 84 pixels -> 35x35x32

LAYERS: dict[str, Layers] = {
    "nature": NATURE,
    "nature-same": NATURE_SAME,
    "data-efficient": DATA_EFFICIENT,
    "small": SMALL,
    "control": CONTROL,
    "control-32": CONTROL_32,
}

PIECE = 1_000_000  # bytes of images that are looked at together on a CPU: 35 stacks of Atari


class Encoder(eqx.Module):
    """Convolutions with ReLU, also after the last, then min-max renormalisation where the method has it."""

    convs: tuple[Conv, ...]
    renormalised: bool = eqx.field(static=True, default=True)
    halves: bool = eqx.field(static=True, default=False)  # in half precision: for hundreds of images

    @staticmethod
    def make(
        key: Array,
        channels: int,
        layers: Layers,
        renormalised: bool = True,
        init: str = "torch",
        halves: bool = False,
    ) -> "Encoder":
        convs: list[Conv] = []
        for k, (outputs, size, stride, *padding) in zip(
            jax.random.split(key, len(layers)), layers, strict=True
        ):
            convs.append(Conv.make(k, channels, outputs, size, stride, *(padding or [0]), init=init))
            channels = outputs
        return Encoder(tuple(convs), renormalised, halves)

    def __call__(self, obs: Float[Array, "B H W C"] | Drawn) -> Float[Array, "B h w c"]:
        obs = shown(obs)
        return in_halves(convolved, self, obs) if self.halves else self.glance(obs)

    def glance(self, obs: Float[Array, "B H W C"]) -> Float[Array, "B h w c"]:
        """The same in float32: for few images, as in acting."""
        for conv in self.convs:
            obs = jax.nn.relu(conv(obs))
        return renormalise(obs) if self.renormalised else obs

    def without_gradient(self, obs: Float[Array, "B H W C"] | Drawn) -> Float[Array, "B h w c"]:
        """The same where no gradient is wanted; in half precision as the halves they come as."""
        states = self(obs) if not self.halves or self.renormalised else _in_halves(self, obs)
        return jax.lax.stop_gradient(states)

    def look(self, draws: Sequence[Drawn]) -> list[Float[Array, "B h w c"]]:
        """The same states, of stacks that are not cropped, where no gradient is wanted, nor to be had: most images.

        On a GPU half precision loses little there: products of float32 keep ten bits of each factor, as many as a half
        has, and what is stored between the layers is half as large. The states themselves keep ten bits, too. On a
        CPU a few images at a time are looked at.
        """
        if tiles.available():
            return [_kernels(self, drawn) for drawn in draws]
        # Not one array after the other: all of them are divided into pieces of one size.
        every = draws[0] if len(draws) == 1 else jax.tree.map(lambda *x: jnp.concatenate(x), *draws)
        states = _piece_by_piece(self, every) if jax.default_backend() == "cpu" else self(picture(every))
        return jnp.split(states, list(accumulate(len(drawn.obs) for drawn in draws))[:-1])


@jax.custom_batching.sequential_vmap
def _piece_by_piece(encoder: Encoder, drawn: Drawn) -> Float[Array, "B h w c"]:
    """A few images at a time, and one seed after the other: what lies between the layers stays in a CPU's cache."""

    def states(piece: Drawn) -> Array:
        x = picture(piece).astype(encoder.convs[0].weight.dtype)
        for conv in encoder.convs:
            x = jax.nn.relu(conv.seen(x))
        return renormalise(x) if encoder.renormalised else x

    count, least = len(drawn.obs), -(-drawn.obs.size // PIECE)
    pieces = next(n for n in range(max(least, 1), max(count, 1) + 1) if count % n == 0)
    if pieces == 1:
        return states(drawn)
    found = jax.lax.map(states, jax.tree.map(lambda x: x.reshape(pieces, -1, *x.shape[1:]), drawn))
    return found.reshape(count, *found.shape[2:])


def _kernels(encoder: Encoder, drawn: Drawn) -> Float[Array, "B h w c"]:
    """All layers as kernels; the first reads the stacks as they are, where it can."""
    assert drawn.crop is None, "squares are for `without_gradient`"
    first, *rest = encoder.convs
    if first.padding == 0 and first_layers.fit_shifted(first.weight):
        top, left = (
            jnp.zeros(len(drawn.obs), jnp.int32) if x is None else x for x in (drawn.top, drawn.left)
        )
        x = first_layers.convolve_shifted(
            first.stride, first.weight, first.bias, drawn.obs, top, left, drawn.light
        )
    else:
        x, rest = picture(drawn).astype(jnp.float16), encoder.convs
    for conv in rest:
        weight, stride = conv.weight, conv.stride
        if conv.padding or not kernels.fit(weight):
            x, weight, stride = conv.dense(x)
            weight, x = widened(weight, x, tiles.LEAST)
        assert kernels.fit(weight), f"{weight.shape[-1]} outputs: a multiple of {tiles.LEAST} is needed"
        x = kernels.convolve(stride, weight, x, bias=conv.bias)
    x = x.astype(jnp.float32)
    return renormalise(x) if encoder.renormalised else x


def _in_halves(encoder: Encoder, obs: Float[Array, "B H W C"] | Drawn) -> Float[Array, "B h w c"]:
    """All layers in half precision. Squares of images are looked at where they lie, if a kernel can."""
    first, *rest = encoder.convs
    fits = tiles.available() and first.padding == 0 and first_layers.fit_cropped(first.weight)
    if not (fits and isinstance(obs, Drawn) and obs.crop is not None):
        return half.layers(encoder.convs, shown(obs).astype(jnp.float16))
    assert obs.top is not None and obs.left is not None, "a square without a corner"
    drawn = obs.obs, obs.top, obs.left, obs.light
    return half.layers(
        rest, first_layers.convolve_cropped(first.stride, first.weight, first.bias, *drawn, crop=obs.crop)
    )


def convolved(encoder: Encoder, obs: Float[Array, "B H W C"]) -> Float[Array, "B h w c"]:
    """What calling the encoder gives, as precise between the layers as `obs` is."""
    obs = half.layers(encoder.convs, obs).astype(jnp.float32)
    return renormalise(obs) if encoder.renormalised else obs


def state_shape(frame: tuple[int, int, int], layers: Layers) -> tuple[int, int, int] | None:
    """Shape of a state, or None where the frame is too small for the layers."""
    height, width, channels = frame
    for channels, size, stride, *padding in layers:  # noqa: B007, the last one is the state's
        height, width = (
            (n + sum(pads(n, size, stride, *(padding or [0]))) - size) // stride + 1 for n in (height, width)
        )
        if min(height, width) < 1:
            return None
    return height, width, channels
