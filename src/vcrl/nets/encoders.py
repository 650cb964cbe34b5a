"""From a stack of frames to a state."""

import equinox as eqx
import jax
from jaxtyping import Array, Float

from vcrl.nets.layers import Conv, renormalise

# (channels, kernel, stride) of each layer
NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # 84 pixels -> 7x7x64
SMALL = ((16, 4, 2), (16, 3, 2))  # 16 pixels -> 3x3x16

LAYERS = {"nature": NATURE, "small": SMALL}


class Encoder(eqx.Module):
    """Convolutions with ReLU, also after the last, then min-max renormalisation."""

    convs: tuple[Conv, ...]

    @staticmethod
    def make(key: Array, channels: int, layers: tuple[tuple[int, int, int], ...]) -> "Encoder":
        convs: list[Conv] = []
        for k, (outputs, size, stride) in zip(jax.random.split(key, len(layers)), layers, strict=True):
            convs.append(Conv.make(k, channels, outputs, size, stride))
            channels = outputs
        return Encoder(tuple(convs))

    def __call__(self, obs: Float[Array, "B H W C"]) -> Float[Array, "B h w c"]:
        for conv in self.convs:
            obs = jax.nn.relu(conv(obs))
        return renormalise(obs)


def state_shape(
    frame: tuple[int, int, int], layers: tuple[tuple[int, int, int], ...]
) -> tuple[int, int, int] | None:
    """Shape of a state, or None where the frame is too small for the layers."""
    height, width, channels = frame
    for channels, size, stride in layers:  # noqa: B007, the last one is the state's
        height, width = (height - size) // stride + 1, (width - size) // stride + 1
        if min(height, width) < 1:
            return None
    return height, width, channels
