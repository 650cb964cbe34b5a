"""The encoders: sizes of the reference, and what they compute."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from vcrl.nets.encoders import DATA_EFFICIENT, LAYERS, NATURE, NATURE_SAME, SMALL, Encoder, state_shape

encode = jax.jit(Encoder.__call__)

Layers = tuple[tuple[int, int, int] | tuple[int, int, int, str], ...]


def shapes(layers: Layers, frame: tuple[int, int, int]) -> tuple[int, ...]:
    """Of the state, by tracing alone."""

    def run(key: jax.Array) -> jax.Array:
        return Encoder.make(key, frame[2], layers)(jnp.zeros((1, *frame)))

    return jax.eval_shape(run, jax.random.key(0)).shape[1:]


def test_nature_has_the_weights_of_the_reference():
    encoder = eqx.filter_eval_shape(Encoder.make, jax.random.key(0), 4, NATURE)
    sizes = [x.size for conv in encoder.convs for x in (conv.weight, conv.bias)]
    # 4 inputs x 8x8 x 32, 32 x 4x4 x 64, 64 x 3x3 x 64, and a bias each
    assert sizes == [8192, 32, 32768, 64, 36864, 64]
    assert sum(sizes) == 77_984


def test_nature_makes_7_by_7_by_64_of_84_pixels():
    assert shapes(NATURE, (84, 84, 4)) == state_shape((84, 84, 4), NATURE) == (7, 7, 64)
    assert 7 * 7 * 64 == 3136


def test_small_makes_3_by_3_by_16_of_16_pixels():
    assert shapes(SMALL, (16, 16, 4)) == state_shape((16, 16, 4), SMALL) == (3, 3, 16)


@pytest.mark.parametrize(("layers", "expected"), [(NATURE_SAME, (11, 11, 64)), (DATA_EFFICIENT, (3, 3, 64))])
def test_the_states_of_the_other_references(layers: Layers, expected: tuple[int, ...]):
    assert shapes(layers, (84, 84, 4)) == state_shape((84, 84, 4), layers) == expected
    assert 3 * 3 * 64 == 576


def test_padded_layers_take_frames_of_any_size():
    for name, layers in LAYERS.items():
        frame = (5, 9, 2)
        assert (state_shape(frame, layers) is None) == (name != "nature-same")
    assert shapes(NATURE_SAME, frame) == state_shape(frame, NATURE_SAME) == (1, 2, 64)


def test_an_encoder_can_do_without_renormalisation():
    x = jnp.asarray(np.random.default_rng(0).random((4, 16, 16, 3)), jnp.float32)
    scaled, plain = (
        Encoder.make(jax.random.key(1), 3, SMALL, renormalised) for renormalised in (True, False)
    )
    states = np.asarray(encode(plain, x))
    low, high = (f(states, axis=(1, 2, 3), keepdims=True) for f in (np.min, np.max))
    assert_allclose(encode(scaled, x), (states - low) / (high - low + 1e-5), atol=1e-5)
    assert np.abs(states.max(axis=(1, 2, 3)) - 1).min() > 0.1


@pytest.mark.parametrize(("height", "width"), [(8, 8), (16, 40), (17, 33), (25, 21), (40, 16)])
def test_state_shape_is_the_shape_of_the_state(height: int, width: int):
    frame = (height, width, 3)
    assert shapes(SMALL, frame) == state_shape(frame, SMALL)


@pytest.mark.parametrize(
    ("frame", "layers", "expected"),
    [
        ((36, 36, 1), NATURE, (1, 1, 64)),  # 36 -> 8 -> 3 -> 1
        ((35, 36, 1), NATURE, None),  # 35 -> 7 -> 2 -> 0
        ((84, 35, 1), NATURE, None),
        ((7, 84, 1), NATURE, None),
        ((8, 8, 1), SMALL, (1, 1, 16)),
        ((7, 8, 1), SMALL, None),
        ((5, 6, 2), (), (5, 6, 2)),
    ],
)
def test_frames_too_small_have_no_state(frame: tuple[int, int, int], layers: Layers, expected: object):
    assert state_shape(frame, layers) == expected


def test_an_encoder_is_convolutions_with_relu_and_renormalisation():
    encoder = Encoder.make(jax.random.key(1), 3, SMALL)
    x = jnp.asarray(np.random.default_rng(0).random((4, 16, 16, 3)), jnp.float32)

    def by_hand(x: jax.Array) -> jax.Array:
        for conv, (_, _, stride) in zip(encoder.convs, SMALL, strict=True):
            x = jax.lax.conv_general_dilated(
                x, conv.weight, (stride,) * 2, "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            x = jnp.maximum(x + jnp.broadcast_to(conv.bias, x.shape), 0)
        low, high = (f(x, axis=(1, 2, 3), keepdims=True) for f in (jnp.min, jnp.max))
        return (x - low) / (high - low + 1e-5)

    states = encode(encoder, x)
    assert_allclose(states, jax.jit(by_hand)(x), atol=1e-5)
    # ReLU after the last layer: a good part of the state sits at the very bottom
    assert np.mean(np.asarray(states) == 0) > 0.2
    assert np.asarray(states).min() >= 0
    assert np.asarray(states).max() <= 1


def test_samples_of_a_batch_do_not_mix():
    encoder = Encoder.make(jax.random.key(2), 3, SMALL)
    x = np.random.default_rng(1).random((4, 16, 16, 3)).astype(np.float32)
    other = x.copy()
    other[1] = 0
    assert_allclose(encode(encoder, jnp.asarray(other))[2], encode(encoder, jnp.asarray(x))[2], atol=1e-6)


def test_layers_start_from_different_draws():
    encoder = Encoder.make(jax.random.key(3), 16, ((16, 3, 1), (16, 3, 1)))
    assert not np.allclose(encoder.convs[0].weight, encoder.convs[1].weight)
