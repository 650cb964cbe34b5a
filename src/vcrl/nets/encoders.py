"""From a stack of frames to a state."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float

from vcrl.nets.half import convolve, in_halves
from vcrl.nets.layers import Conv, pads, renormalise

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


class Encoder(eqx.Module):
    """Convolutions with ReLU, also after the last, then min-max renormalisation where the method has it."""

    convs: tuple[Conv, ...]
    renormalised: bool = eqx.field(static=True, default=True)
    alone: bool = eqx.field(static=True, default=False)  # one seed at a time: the library's convolutions

    @staticmethod
    def make(
        key: Array,
        channels: int,
        layers: Layers,
        renormalised: bool = True,
        init: str = "torch",
        alone: bool = False,
    ) -> "Encoder":
        convs: list[Conv] = []
        for k, (outputs, size, stride, *padding) in zip(
            jax.random.split(key, len(layers)), layers, strict=True
        ):
            convs.append(Conv.make(k, channels, outputs, size, stride, *(padding or [0]), init=init))
            channels = outputs
        return Encoder(tuple(convs), renormalised, alone)

    def __call__(self, obs: Float[Array, "B H W C"]) -> Float[Array, "B h w c"]:
        return in_halves(convolved, self, obs) if self.alone else self.glance(obs)

    def glance(self, obs: Float[Array, "B H W C"]) -> Float[Array, "B h w c"]:
        """The same by matrix products, which many seeds do at once: the way to look at few images, as in acting."""
        for conv in self.convs:
            obs = jax.nn.relu(conv(obs))
        return renormalise(obs) if self.renormalised else obs

    def look(self, obs: Float[Array, "B H W C"]) -> Float[Array, "B h w c"]:
        """The same states where no gradient is wanted, which is where most images are.

        On a GPU with several seeds: one seed after the other by the library's convolutions, which need no patches in
        memory. At ten seeds of 544 images an H200 takes 1.3 ms instead of 2.4. With gradient the batches are small, and
        on a CPU the patches stay in its cache, so both do better with matrix products over all seeds.

        Half precision loses little there: a GPU's products of float32 keep ten bits of each factor, as many as a half
        has, and what is stored between the layers is half as large. The states themselves keep ten bits, too.
        """
        return _look(self, obs.astype(jnp.float16)) if jax.default_backend() == "gpu" else self(obs)


@custom_vmap
def _look(encoder: Encoder, obs: Float[Array, "B H W C"]) -> Float[Array, "B h w c"]:
    return convolved(encoder, obs)


@_look.def_vmap
def _look_each(size: int, batched: Any, encoder: Any, obs: Any) -> tuple[Array, bool]:
    def one(tree: Any, of: Any, i: int) -> Any:
        return jax.tree.map(lambda x, many: x[i] if many else x, tree, of)

    each = [convolved(one(encoder, batched[0], i), one(obs, batched[1], i)) for i in range(size)]
    return jnp.stack(each), True


def convolved(encoder: Encoder, obs: Float[Array, "B H W C"]) -> Float[Array, "B h w c"]:
    """What calling the encoder gives, by `lax.conv`, as precise between the layers as `obs` is."""
    for conv in encoder.convs:
        obs = convolve(conv, obs)
    obs = obs.astype(jnp.float32)
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
