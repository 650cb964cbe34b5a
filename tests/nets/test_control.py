"""The nets of continuous control: by hand, at the sizes of the references, and from state back to image."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from vcrl.nets import long_sums, products, tiles
from vcrl.nets.control import Actor, Decoder, Policy, Trunk, TwinQ, VectorEncoder
from vcrl.nets.encoders import CONTROL, CONTROL_32, LAYERS, Encoder, state_shape
from vcrl.nets.layers import MLP, Conv, Linear
from vcrl.nets.norms import LayerNorm
from vcrl.nets.transition import VectorTransition, imagine

pytestmark = pytest.mark.usefixtures("quick_compiles")


def sizes(tree) -> int:
    return sum(x.size for x in jax.tree.leaves(tree))


def some(shapes):
    """Any weights: nothing is compiled to draw them."""
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), jnp.float32), shapes)


# The sizes of the references


@pytest.mark.parametrize(("layers", "filters"), [(CONTROL, 64), (CONTROL_32, 32)])
def test_parameters_of_the_encoders(layers, filters):
    assert state_shape((84, 84, 9), layers) == (35, 35, filters)
    convs = eqx.filter_eval_shape(Encoder.make, jax.random.key(0), 9, layers, False, "delta")
    assert sizes(convs) == 9 * 9 * filters + filters + 3 * (9 * filters * filters + filters)
    inputs = 35 * 35 * filters
    trunk = eqx.filter_eval_shape(Trunk.make, jax.random.key(0), inputs, 50, False)
    assert sizes(trunk) == inputs * 50 + 50 + 50 + 50  # linear, and layer norm's scale and bias
    out = eqx.filter_eval_shape(lambda e, x: e(x), VectorEncoder(convs, trunk), jnp.zeros((2, 84, 84, 9)))
    assert out.shape == (2, 50)
    if filters == 64:
        assert inputs == 78_400


@pytest.mark.parametrize("actions", [1, 2, 6])
def test_parameters_of_actor_critics_and_transition(actions):
    k = jax.random.key(0)
    critic = (50 + actions) * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 + 1
    assert sizes(eqx.filter_eval_shape(TwinQ.make, k, 50, actions, 1024)) == 2 * critic
    actor = eqx.filter_eval_shape(Actor.make, k, 78_400, 50, actions, 1024, False)
    assert sizes(actor.trunk) == 78_400 * 50 + 150
    out = 2 * actions
    assert sizes(actor.layers) == 50 * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 * out + out
    model = eqx.filter_eval_shape(VectorTransition.make, k, 50, actions, 512)
    assert sizes(model) == (50 + actions) * 512 + 512 + 2 * 512 + 512 * 50 + 50


def test_the_decoder_goes_from_50_numbers_to_84x84x9():
    decoder = eqx.filter_eval_shape(Decoder.make, jax.random.key(0), 50, (84, 84, 9), CONTROL_32)
    assert decoder.linear.weight.shape == (50, 32 * 35 * 35)
    assert [w.shape for w in decoder.weights] == [(3, 3, 32, 32)] * 3 + [(3, 3, 32, 9)]
    assert decoder.strides == (1, 1, 1, 2) and decoder.extra[-1] == (1, 1)  # the reference's output padding
    sides = [35]
    for stride, (more, _) in zip(decoder.strides, decoder.extra, strict=True):
        sides.append((sides[-1] - 1) * stride + 3 + more)
    assert sides == [35, 37, 39, 41, 84]
    out = eqx.filter_eval_shape(lambda d, z: d(z), decoder, jnp.zeros((2, 50)))
    assert out.shape == (2, 84, 84, 9)
    assert sizes(decoder) == 51 * 39_200 + 3 * (9 * 32 * 32 + 32) + 9 * 32 * 9 + 9


# By hand


def line(*weights: float, bias: float = 0.0) -> Linear:
    return Linear(jnp.array(weights)[:, None], jnp.array([bias]))


def test_twin_critics_by_hand():
    """A state of one number, an action of two: Q = state + 2 a_1 - a_2 + 0.5, and its negative part times -3."""
    one, two = MLP((line(1.0, 2.0, -1.0, bias=0.5),)), MLP((line(1.0, 2.0, -1.0), line(-3.0)))
    state, action = jnp.array([[1.0], [-5.0]]), jnp.array([[0.5, 1.0], [0.0, 1.0]])
    assert_allclose(TwinQ(one, two)(state, action), [[1.5, -3.0], [-5.5, 0.0]])
    head = TwinQ(one, two)
    assert head.mean() is head


def test_a_trunk_normalises_and_squashes_where_it_is_told_to():
    linear, norm = Linear(jnp.eye(4), jnp.zeros(4)), LayerNorm(jnp.full(4, 2.0), jnp.full(4, 0.5))
    seen = jnp.array([1.0, 3.0, 1.0, 3.0]).reshape(1, 2, 2, 1)  # mean 2, variance 1
    assert_allclose(Trunk(linear, norm, False)(seen), [[-1.5, 2.5, -1.5, 2.5]], atol=1e-4)
    assert_allclose(Trunk(linear, norm, True)(seen), np.tanh([[-1.5, 2.5, -1.5, 2.5]]), atol=1e-4)


@pytest.mark.parametrize(
    ("raw", "expected"), [(0.0, -4.0), (99.0, 2.0), (-99.0, -10.0), (0.5, -4 + 6 * 0.46211716)]
)
def test_the_spread_of_the_policy_stays_in_its_range(raw, expected):
    """tanh, and then from -10 to 2."""
    trunk = Trunk(Linear(jnp.zeros((4, 3)), jnp.zeros(3)), LayerNorm.make(3))
    actor = Actor(trunk, MLP((Linear(jnp.zeros((3, 2)), jnp.array([0.7, raw])),)))
    policy = actor(jnp.ones((1, 2, 2, 1)))
    assert_allclose(policy.log_std, [[expected]], rtol=1e-5)
    assert_allclose(policy.mean, [[0.7]], rtol=1e-6)
    assert_allclose(policy.best(), [[np.tanh(0.7)]], rtol=1e-6)


def test_a_drawn_action_by_hand():
    """Mean 0.5, deviation e^0 = 1, and -0.5 drawn: tanh 0 = 0, whose density is that of the Gaussian."""
    action, log_prob = Policy(jnp.array([0.5]), jnp.array([0.0])).draw(jnp.array([-0.5]))
    assert_array_equal(action, [0.0])
    assert float(log_prob) == pytest.approx(-0.125 - 0.9189385, rel=1e-5)


# The transition model


def test_the_transition_model_by_hand():
    """State and action side by side, layer norm, ReLU, and no residual."""
    hidden = Linear(jnp.array([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]), jnp.array([0.0, 0.0]))
    model = VectorTransition(
        hidden, LayerNorm.make(2), Linear(jnp.array([[1.0, 2.0], [9.0, 9.0]]), jnp.ones(2)), 1
    )
    # Hidden is (state_1, action) = (5, -3): normalised 1 and -1, of which ReLU leaves 1 and 0.
    out, stats = model(jnp.array([[5.0, 7.0]]), jnp.array([[-3.0]]))
    assert_allclose(out, [[2.0, 3.0]], rtol=1e-5)
    assert stats == model.stats() == ()


def test_imagination_takes_each_state_and_its_action_on():
    model = some(jax.eval_shape(lambda k: VectorTransition.make(k, 3, 2, 5), jax.random.key(0)))
    rng = np.random.default_rng(0)
    state, actions = (jnp.asarray(rng.normal(size=s), jnp.float32) for s in ((4, 3), (3, 4, 2)))
    states, _ = jax.jit(imagine, static_argnums=(3, 4))(model, state, actions, (), True)
    assert_array_equal(states[0], state)
    step = jax.jit(lambda z, a: model(z, a)[0])
    for k in range(3):
        assert_allclose(states[k + 1], step(states[k], actions[k]), rtol=1e-4, atol=1e-5)


def test_virtual_actions_are_uniform_and_as_many_as_asked_for():
    model = some(jax.eval_shape(lambda k: VectorTransition.make(k, 3, 2, 5), jax.random.key(0)))
    drawn = np.asarray(model.draw(jax.random.key(1), (4, 500)))
    assert drawn.shape == (4, 500, 2) and model.variety == 1
    assert drawn.min() >= -1 and drawn.max() < 1 and abs(drawn.mean()) < 0.05
    assert drawn.std() == pytest.approx(3**-0.5, rel=0.03)


# Back to the image


def scattered(x: np.ndarray, weight: np.ndarray, stride: int, more: tuple[int, int]) -> np.ndarray:
    """A transposed convolution pixel by pixel: each puts the turned kernel onto the picture."""
    size, (rows, columns) = weight.shape[0], x.shape[1:3]
    out = np.zeros((len(x), (rows - 1) * stride + size + more[0], (columns - 1) * stride + size + more[1],
                    weight.shape[-1]))  # fmt: skip
    for row, column, i, j in np.ndindex(rows, columns, size, size):
        out[:, row * stride + i, column * stride + j] += (
            x[:, row, column] @ weight[size - 1 - i, size - 1 - j]
        )
    return out


def test_the_decoder_against_scattered_kernels():
    """An odd and an even side: one of them leaves a pixel over at the stride, which the way back must make up."""
    layers = ((4, 3, 2), (5, 3, 1))
    decoder = some(jax.eval_shape(lambda k: Decoder.make(k, 6, (11, 12, 2), layers), jax.random.key(0)))
    assert decoder.seen == (3, 3, 5) and decoder.extra == ((0, 0), (0, 1))
    rng = np.random.default_rng(0)
    state = rng.normal(size=(3, 6))
    x = np.maximum(state @ np.asarray(decoder.linear.weight) + np.asarray(decoder.linear.bias), 0)
    x = x.reshape(3, 3, 3, 5)
    x = scattered(x, np.asarray(decoder.weights[0]), 1, (0, 0)) + np.asarray(decoder.biases[0])
    x = scattered(np.maximum(x, 0), np.asarray(decoder.weights[1]), 2, (0, 1)) + np.asarray(decoder.biases[1])
    out = jax.jit(lambda d, z: d(z))(decoder, jnp.asarray(state, jnp.float32))
    assert x.shape == (3, 11, 12, 2)
    assert_allclose(out, x, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["small", "control-32"])
def test_a_decoder_fits_every_image_of_its_encoder(name):
    for side in range(16, 24):
        shape = (side, side + 1, 3)
        decoder = eqx.filter_eval_shape(Decoder.make, jax.random.key(0), 4, shape, LAYERS[name])
        out = eqx.filter_eval_shape(lambda d, z: d(z), decoder, jnp.zeros((1, 4)))
        assert out.shape == (1, *shape)


# In half precision


def test_convolutions_in_half_precision_are_the_same_to_rounding():
    rng = np.random.default_rng(0)
    image = jnp.asarray(rng.random((2, 13, 13, 3)), jnp.float32)
    shapes = jax.eval_shape(lambda k: Encoder.make(k, 3, ((4, 3, 2), (5, 3, 1)), False), jax.random.key(0))
    plain = some(shapes)
    halves = Encoder(plain.convs, False, halves=True)
    one, two = (jax.jit(lambda e, x: e(x))(e, image) for e in (plain, halves))
    assert_allclose(one, two, atol=2e-3 * float(one.max()))
    assert (np.asarray(one) == 0).any() and (np.asarray(one) > 0.1).any()


def vector_encoders():
    """In float32, and the same in halves. No unit is near zero, where rounding would open or shut it."""
    shapes = jax.eval_shape(lambda k: Encoder.make(k, 9, ((16, 3, 2), (32, 3, 1)), False), jax.random.key(0))
    convs = tuple(
        Conv(c.weight / 4 / c.weight[..., 0].size ** 0.5, 4 * jnp.sign(c.bias), c.stride, c.padding)
        for c in some(shapes).convs
    )
    trunk = some(jax.eval_shape(lambda k: Trunk.make(k, 8 * 8 * 32, 5, True), jax.random.key(0)))
    # So small that of a gradient of 2^-6 halves would lose bits on the way through it; a real one's are about 1/280.
    trunk = eqx.tree_at(lambda t: t.linear.weight, trunk, trunk.linear.weight / 1000)
    return [VectorEncoder(Encoder(convs, False, halves=halves), trunk) for halves in (False, True)]


@pytest.mark.parametrize(
    "there", [pytest.param(False, marks=pytest.mark.slow), True], ids=["library", "kernels"]
)
@pytest.mark.parametrize("size", [1e-9, 1e6])
def test_vectors_in_half_precision_differ_by_rounding(monkeypatch, size, there):
    """The gradients of all there is, too: 1e-9 is nothing to a half and 1e6 infinity."""
    image = jnp.asarray(np.random.default_rng(1).random((3, 22, 22, 9)), jnp.float32)
    pull = size * jnp.asarray(np.random.default_rng(2).normal(size=(3, 5)), jnp.float32)

    def both_ways(encoder):
        def run(encoder, image):
            out, back = jax.vjp(lambda e: e(image), encoder)
            return out, back(pull)[0]

        return jax.jit(run)(encoder, image), str(jax.make_jaxpr(run)(encoder, image))

    plain, halves = vector_encoders()
    wanted, _ = both_ways(plain)
    monkeypatch.setattr(products, "_halved", lambda weight, x: True)  # as on a GPU
    monkeypatch.setattr(tiles, "available", lambda: there)
    monkeypatch.setattr(long_sums, "LONG", 8 * 8 * 32)
    found, program = both_ways(halves)
    assert ("conv_general_dilated" in program) is not there
    assert program.count("pallas_call") == (2 + 4 + 1 if there else 0)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert a.dtype == jnp.float32 and np.any(np.asarray(a) != np.asarray(b))
        # Factors and results are rounded to 2^-11 of their size, in two layers and the trunk.
        assert_allclose(a, b, atol=2e-3 * float(jnp.abs(b).max()))
