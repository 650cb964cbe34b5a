"""The layers everything is built from: Equinox modules that hold arrays and static fields only."""

from collections.abc import Callable
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vcrl.nets.convolutions import convolution, without_gradient
from vcrl.nets.norms import spread


def weight_and_bias(key: Array, fan_in: int, outputs: int) -> tuple[Float[Array, "I O"], Float[Array, " O"]]:
    """Both U(-1/sqrt(fan_in), 1/sqrt(fan_in)), the default of the reference code's framework."""
    bound = fan_in**-0.5
    both = jax.random.uniform(key, (fan_in + 1, outputs), minval=-bound, maxval=bound)
    return both[:-1], both[-1]


def xavier(
    key: Array, fan_in: int, outputs: int, taps: int = 1
) -> tuple[Float[Array, "I O"], Float[Array, " O"]]:
    """Weights U(-b, b) with b = sqrt(6 / (fan_in + fan_out)), no bias: Dopamine's start.

    `taps` is the number of places a convolution's kernel covers: fan_out counts the outputs at each of them.
    """
    bound = (6 / (fan_in + taps * outputs)) ** 0.5
    return jax.random.uniform(key, (fan_in, outputs), minval=-bound, maxval=bound), jnp.zeros(outputs)


def orthogonal(key: Array, fan_in: int, outputs: int) -> tuple[Float[Array, "I O"], Float[Array, " O"]]:
    """Rows or columns at right angles and of length 1, no bias: the start of SAC's layers."""
    return orthonormal(key, fan_in, outputs), jnp.zeros(outputs)


def orthonormal(key: Array, rows: int, columns: int) -> Float[Array, "I O"]:
    """A random orthogonal matrix: the nearest one to a Gaussian matrix, by products that push singular values to 1.

    Not by the library's QR: several of those in one program wait for each other for ever on a CPU of two cores.
    """
    drawn = jax.random.normal(key, (max(rows, columns), min(rows, columns)))
    one = jnp.eye(drawn.shape[1])

    def far(at: tuple[Array, Array, Array]) -> Array:
        return (jnp.max(jnp.abs(at[1] - one)) > 1e-5) & (at[2] < 40)

    def nearer(at: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        matrix, square, count = at
        matrix = matrix @ (1.875 * one - 1.25 * square + 0.375 * (square @ square))
        return matrix, matrix.T @ matrix, count + 1

    with jax.default_matmul_precision("highest"):
        # The largest singular value of a Gaussian matrix is about the sum of the roots of its sides.
        start = drawn / (1.05 * (rows**0.5 + columns**0.5))
        tall, _, _ = jax.lax.while_loop(far, nearer, (start, start.T @ start, jnp.asarray(0)))
    return tall if rows >= columns else tall.T


class Linear(eqx.Module):
    weight: Float[Array, "I O"]
    bias: Float[Array, " O"]

    @staticmethod
    def make(key: Array, inputs: int, outputs: int, init: str = "torch") -> "Linear":
        draw = {"torch": weight_and_bias, "xavier": xavier, "orthogonal": orthogonal}[init]
        return Linear(*draw(key, inputs, outputs))

    def __call__(
        self, x: Float[Array, "*n I"], product: Callable[[Array, Array], Array] = lambda weight, x: x @ weight
    ) -> Float[Array, "*n O"]:
        out = product(self.weight, x)
        return out + jnp.broadcast_to(self.bias, out.shape)


class NoisyLinear(eqx.Module):
    """A linear layer with factorised Gaussian noise on its weights (Fortunato et al., 2018).

    It cannot be called: `draw` or `mean` turn it into a plain layer, so that every reader of a head says which noise
    it uses, and the noisy weights are built once an update however many states are read.
    """

    weight: Float[Array, "I O"]
    bias: Float[Array, " O"]
    weight_sigma: Float[Array, "I O"]
    bias_sigma: Float[Array, " O"]

    @staticmethod
    def make(key: Array, inputs: int, outputs: int, sigma: float) -> "NoisyLinear":
        mu = Linear.make(key, inputs, outputs)
        return NoisyLinear(
            mu.weight,
            mu.bias,
            jnp.full((inputs, outputs), sigma * inputs**-0.5, jnp.float32),
            jnp.full((outputs,), sigma * outputs**-0.5, jnp.float32),
        )

    def draw(self, noise: Float[Array, " {sum(self.weight.shape)}"]) -> Linear:
        """The layer under this standard-normal noise: a number for each input, then one for each output."""
        inputs = self.weight.shape[0]
        # f(x) = sign(x) sqrt|x|, of Fortunato et al.
        noise = noise / jnp.sqrt(jnp.maximum(jnp.abs(noise), 1e-12))
        # Here, not anew at every weight.
        noise = jax.lax.optimization_barrier(noise)
        into, out = noise[:inputs], noise[inputs:]
        return Linear(
            self.weight + self.weight_sigma * into[:, None] * out[None, :], self.bias + self.bias_sigma * out
        )

    def mean(self) -> Linear:
        return Linear(self.weight, self.bias)


class Conv(eqx.Module):
    """A convolution written as slices and one matrix product, on a GPU as a kernel.

    Under a vmap over seeds a `lax.conv` becomes a grouped convolution; a matrix product becomes a batched one, which
    is nearly 4 times faster on two CPU cores.
    """

    weight: Float[Array, "k k I O"]
    bias: Float[Array, " O"]
    stride: int = eqx.field(static=True)
    padding: int | str = eqx.field(static=True)  # zeros on each side, or "same": as many outputs as strides

    @staticmethod
    def make(
        key: Array,
        inputs: int,
        outputs: int,
        size: int,
        stride: int = 1,
        padding: int | str = 0,
        init: str = "torch",
    ) -> "Conv":
        """`init` may be "orthogonal" too, or "delta": orthogonal at the kernel's centre, zero elsewhere."""
        taps, shape = size * size, (size, size, inputs, outputs)
        if init in ("orthogonal", "delta"):
            if init == "orthogonal":
                weight = orthonormal(key, taps * inputs, outputs).reshape(shape)
            else:
                middle = (size - 1) // 2
                weight = jnp.zeros(shape).at[middle, middle].set(orthonormal(key, inputs, outputs))
            return Conv(2**0.5 * weight, jnp.zeros(outputs), stride, padding)
        weight, bias = (
            xavier(key, taps * inputs, outputs, taps)
            if init == "xavier"
            else weight_and_bias(key, taps * inputs, outputs)
        )
        return Conv(weight.reshape(shape), bias, stride, padding)

    def __call__(self, x: Float[Array, "B H W I"]) -> Float[Array, "B h w O"]:
        x, weight, stride = self.dense(x)
        out = convolution(stride, weight, x)
        return out + spread(self.bias, out.shape)

    def seen(self, x: Float[Array, "B H W I"]) -> Float[Array, "B h w O"]:
        """The same for one seed on a CPU where no gradient is wanted."""
        x, weight, stride = self.dense(x)
        return without_gradient(stride, weight, x) + self.bias[None, None, None]

    def dense(self, x: Float[Array, "B H W I"], grow: bool = False) -> tuple[Array, Array, int]:
        """Image, weight and stride of the same convolution without padding and, where possible, without stride.

        With `grow` zeros are added to a kernel that no stride divides, where the image has the room.
        """
        size, stride, weight = self.weight.shape[0], self.stride, self.weight
        if self.padding:
            rows, columns = (pads(n, size, stride, self.padding) for n in x.shape[1:3])
            x = jnp.pad(x, ((0, 0), rows, columns, (0, 0)))
        larger = -(-size // stride) * stride
        if grow and all((n - size) // stride == (n - larger) // stride for n in x.shape[1:3]):
            weight = jnp.pad(weight, ((0, larger - size), (0, larger - size), (0, 0), (0, 0)))
            size = larger
        if stride > 1 and size % stride == 0:
            # Fold each stride x stride tile into channels: fewer, wider slices, and all of them contiguous.
            height, width = (((n - size) // stride) * stride + size for n in x.shape[1:3])
            x = _fold(x[:, :height, :width], stride)
            weight = _fold(weight.transpose(3, 0, 1, 2), stride).transpose(1, 2, 3, 0)
            stride = 1
        return x, weight, stride


def pads(length: int, size: int, stride: int, padding: int | str) -> tuple[int, int]:
    """Zeros before and after an axis; with "same" an odd one goes behind, as TensorFlow has it."""
    if isinstance(padding, int):
        return padding, padding
    assert padding == "same", padding
    outputs = -(-length // stride)
    total = max((outputs - 1) * stride + size - length, 0)
    return total // 2, total - total // 2


def _fold(x: Float[Array, "B H W C"], tile: int) -> Float[Array, "B h w c"]:
    """Space to depth."""
    batch, height, width, channels = x.shape
    x = x.reshape(batch, height // tile, tile, width // tile, tile, channels)
    return x.transpose(0, 1, 3, 2, 4, 5).reshape(batch, height // tile, width // tile, tile * tile * channels)


class MLP(eqx.Module):
    """Linear layers, ReLU between them."""

    layers: tuple[Linear, ...]

    @staticmethod
    def make(key: Array, widths: tuple[int, ...], init: str = "torch") -> "MLP":
        keys, ends = jax.random.split(key, len(widths) - 1), pairwise(widths)
        return MLP(tuple(Linear.make(k, i, o, init) for k, (i, o) in zip(keys, ends, strict=True)))

    def __call__(self, x: Float[Array, "*n I"]) -> Float[Array, "*n O"]:
        first, *rest = self.layers
        x = first(x)
        for layer in rest:
            x = layer(jax.nn.relu(x))
        return x


def scale_gradient(x: Array, factor: float) -> Array:
    """x itself, with its gradient multiplied by `factor`."""
    return factor * x + jax.lax.stop_gradient((1 - factor) * x)
