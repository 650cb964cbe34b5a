"""Convolutions by the library and in half precision give what the plain path gives; here all run on the CPU."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vcrl.nets import tiles
from vcrl.nets.augment import as_it_is, drawn_for, picture
from vcrl.nets.convolutions import by_library
from vcrl.nets.encoders import LAYERS, Encoder, convolved
from vcrl.nets.half import in_halves, layers
from vcrl.nets.layers import Conv


def some(name: str, seeds: int):
    keys = jax.random.split(jax.random.key(3), seeds)
    encoder = jax.jit(jax.vmap(lambda k: Encoder.make(k, 4, LAYERS[name])))(keys)
    size = 20 if name == "small" else 84
    return encoder, jax.random.uniform(jax.random.key(4), (seeds, 2, size, size, 4))


def slopes(function, encoder, obs, size):
    """Of a loss whose gradient is about so large at every number of a state."""
    wanted = jax.random.normal(jax.random.key(5), jax.eval_shape(function, encoder, obs).shape)
    return jax.jit(jax.grad(lambda e: size * jnp.sum(wanted * function(e, obs))))(encoder)


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e6])
def test_gradients_in_half_precision_differ_by_rounding_however_small_or_large(size):
    """1e-9 is nothing to a half and 1e6 infinity. No activation is near zero, where rounding would shut a unit."""
    encoder, obs = some("small", 1)
    encoder = Encoder(jax.tree.map(lambda x: jnp.abs(x[0]), encoder.convs), renormalised=False)
    obs = obs[0]
    plain, half = (slopes(f, encoder, obs, size) for f in (convolved, partial(in_halves, convolved)))
    for wanted, found in zip(jax.tree.leaves(plain), jax.tree.leaves(half), strict=True):
        assert found.dtype == jnp.float32
        np.testing.assert_allclose(found, wanted, atol=2e-3 * float(jnp.abs(wanted).max()))


def test_where_nothing_is_wanted_the_gradient_in_half_precision_is_zero():
    encoder, obs = some("small", 1)
    encoder = jax.tree.map(lambda x: x[0], encoder)
    found = jax.jit(jax.grad(lambda e: 0.0 * jnp.sum(in_halves(convolved, e, obs[0]))))(encoder)
    assert all(not np.any(x) for x in jax.tree.leaves(found))


def test_a_sum_that_half_precision_cannot_hold_stays_finite():
    """Every gradient the same and activations of 9,600: the sum over a batch of 128 is beyond 65,504."""
    encoder, obs = some("small", 1)
    first, second = encoder.convs
    first, second = (
        jax.tree.map(lambda x, to=to: jnp.full_like(x[0], to), conv)
        for conv, to in ((first, 1.0), (second, 1e-3))
    )
    large = jnp.tile(300 * obs[0], (64, 1, 1, 1))
    found = jax.jit(jax.grad(lambda e: jnp.sum(in_halves(convolved, e, large))))(
        Encoder((first, second), renormalised=False)
    )
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(found))
    np.testing.assert_array_equal(found.convs[1].weight, 65504 * 2**6)


def test_an_encoder_takes_half_precision_where_it_is_told_to():
    encoder, obs = some("small", 1)
    encoder = jax.tree.map(lambda x: x[0], encoder)
    halves = Encoder(encoder.convs, renormalised=True, halves=True)
    np.testing.assert_array_equal(halves(obs[0]), convolved(encoder, obs[0].astype(jnp.float16)))
    assert np.any(np.asarray(halves(obs[0])) != np.asarray(encoder(obs[0])))
    # In acting they are not seen so.
    np.testing.assert_array_equal(halves.glance(obs[0]), encoder(obs[0]))


def test_where_no_gradient_is_wanted_the_halves_come_as_they_are():
    encoder, obs = some("small", 1)
    encoder = Encoder(jax.tree.map(lambda x: x[0], encoder.convs), renormalised=False, halves=True)
    found = encoder.without_gradient(obs[0])
    assert found.dtype == jnp.float16
    np.testing.assert_array_equal(found.astype(jnp.float32), encoder(obs[0]))
    for one in (
        encoder,
        Encoder(encoder.convs, False, halves=False),
        Encoder(encoder.convs, True, halves=True),
    ):
        slopes = jax.grad(lambda e: jnp.sum(e.without_gradient(obs[0]).astype(jnp.float32)))(one)
        assert all(not np.any(x) for x in jax.tree.leaves(slopes))
        np.testing.assert_array_equal(one.without_gradient(obs[0]).astype(jnp.float32), one(obs[0]))


# Inputs, filters, size, stride, padding: of nine channels at stride 2, folded or not, then of 16 at stride 1; then with
# layers behind that images are padded and folded for.
SHORT = ((9, 16, 3, 2, 0), (16, 32, 3, 1, 0))
LONG = (*SHORT, (32, 16, 3, 1, 1), (16, 16, 2, 2, 0), (16, 32, 2, 1, 0))


def chain(kinds, seed: int = 7):
    keys = jax.random.split(jax.random.key(seed), len(kinds))
    return tuple(Conv.make(key, *kind) for key, kind in zip(keys, kinds, strict=True))


def plain_path(convs, x):
    for conv in convs:
        x = jax.nn.relu(conv(x))
    return x


def both_ways(function, convs, obs, aim):
    """The result, and the gradients of layers and images."""

    def run(convs, obs, aim):
        out, back = jax.vjp(function, convs, obs)
        return out, back(aim)

    return jax.jit(run)(convs, obs, aim)


def program(function, *arguments) -> str:
    return str(jax.make_jaxpr(partial(both_ways, function))(*arguments))


def by_halves(convs, obs):
    return Encoder(convs, renormalised=False, halves=True)(obs)


def aimed(convs, obs):
    return jax.random.normal(jax.random.key(5), jax.eval_shape(plain_path, convs, obs).shape)


@pytest.mark.parametrize(("pixels", "images"), [(20, 3), pytest.param(21, 2, marks=pytest.mark.slow)])
def test_halves_by_kernels_are_those_of_the_library(monkeypatch, pixels, images):
    """Both ways by kernels. No unit is near zero, where rounding would open or shut it."""
    convs = tuple(Conv(c.weight / 2, 4 * jnp.sign(c.bias), c.stride, c.padding) for c in chain(SHORT))
    obs = jax.random.uniform(jax.random.key(8), (images, pixels, pixels, 9))
    aim = aimed(convs, obs)
    wanted = both_ways(by_halves, convs, obs, aim)
    monkeypatch.setattr(tiles, "available", lambda: True)
    text, found = program(by_halves, convs, obs, aim), both_ways(by_halves, convs, obs, aim)
    # Of every layer the result, and the gradients of its weight and of what it saw.
    assert text.count("pallas_call") == 3 * 2 and "conv_general_dilated" not in text
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        # The library rounds a sum to a half before the bias is added, a kernel after that.
        np.testing.assert_allclose(a, b, atol=1e-3 * float(jnp.abs(b).max()))


def whole_numbers(kinds, seed: int = 7):
    """Layers of -1, 0 and 1, the later the fewer, small images and a small gradient: halves hold what comes of them."""

    def ones(conv: Conv, size: float) -> Conv:
        weight = jnp.trunc(size * conv.weight / jnp.abs(conv.weight).max())
        bias = jnp.arange(conv.bias.size) % 3 - 1
        return Conv(weight, bias.astype(jnp.float32), conv.stride, conv.padding)

    convs = tuple(map(ones, chain(kinds, seed), (1.9, 1.2, 1.1, 1.1, 1.1)))
    one, two = jax.random.split(jax.random.key(seed))
    obs = jax.random.randint(one, (2, 20, 20, 9), 0, 3).astype(jnp.float32)
    shape = jax.eval_shape(plain_path, convs, obs).shape
    return convs, obs, jax.random.randint(two, shape, -2, 3).astype(jnp.float32)


@pytest.mark.parametrize("kinds", [SHORT, LONG])
def test_whole_numbers_go_both_ways_exactly(monkeypatch, kinds):
    """By kernels and back through every ReLU: all that the plain path gives."""
    monkeypatch.setattr(tiles, "available", lambda: True)
    convs, obs, aim = whole_numbers(kinds)
    text = program(by_halves, convs, obs, aim)
    assert text.count("pallas_call") == 3 * len(kinds) and "conv_general_dilated" not in text
    found, wanted = (both_ways(f, convs, obs, aim) for f in (by_halves, plain_path))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_array_equal(a, b)
        assert np.mean(np.asarray(b) != 0) > 0.1


def test_halves_by_kernels_of_all_seeds_at_once(monkeypatch):
    """Each as it is alone, with images of its own."""
    monkeypatch.setattr(tiles, "available", lambda: True)
    seeds = [whole_numbers(SHORT, seed) for seed in (7, 8)]

    def both(*mine):
        return both_ways(by_halves, *mine)

    given = jax.tree.map(lambda *x: jnp.stack(x), *seeds)
    text = str(jax.make_jaxpr(jax.vmap(both))(*given))
    assert text.count("pallas_call") == 6 and "conv_general_dilated" not in text
    together = jax.vmap(both)(*given)
    for i, mine in enumerate(seeds):
        for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(both(*mine)), strict=True):
            np.testing.assert_array_equal(a[i], b)


def test_a_chain_begins_anew_where_images_are_padded_or_folded():
    """With the gradients of the plain path, of the images too; halves are not needed for that."""
    convs, obs = chain(LONG), jax.random.uniform(jax.random.key(8), (2, 20, 20, 9))
    assert str(jax.make_jaxpr(lambda x: layers(convs, x))(obs)).count("custom_vjp_call[") == 3
    found, wanted = (both_ways(f, convs, obs, aimed(convs, obs)) for f in (layers, plain_path))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert np.any(b)
        np.testing.assert_allclose(a, b, atol=1e-4 * float(jnp.abs(b).max()))


def test_squares_of_images_are_looked_at_where_they_lie(monkeypatch):
    """Where no gradient is wanted; states are those of images made before."""
    keys = jax.random.split(jax.random.key(7), 4)
    convs = Conv.make(keys[0], 9, 16, 3, 2), Conv.make(keys[1], 16, 32, 3, 1)
    encoder = Encoder(convs, renormalised=False, halves=True)
    obs = jax.random.randint(keys[2], (3, 20, 20, 9), 0, 256).astype(jnp.uint8)
    (drawn,) = drawn_for(keys[3], [obs], shift=0, intensity=0.05, crop=17)
    wanted = encoder.without_gradient(drawn)
    np.testing.assert_array_equal(wanted, encoder.without_gradient(picture(drawn)))
    monkeypatch.setattr(tiles, "available", lambda: True)
    text = str(jax.make_jaxpr(encoder.without_gradient)(drawn))
    assert text.count("pallas_call") == 2 and "f32[3,17,17,9]" not in text
    found = encoder.without_gradient(drawn)
    assert found.dtype == wanted.dtype == jnp.float16
    np.testing.assert_allclose(found, wanted, atol=2e-3 * float(wanted.max()))


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in ("nature-same", "control-32"))) for n in LAYERS]
)
def test_gradients_by_the_library_are_those_of_the_plain_path(name):
    encoder, obs = some(name, 1)
    encoder = jax.tree.map(lambda x: x[0], encoder)
    plain, library = (slopes(f, encoder, obs[0], 1.0) for f in (lambda e, o: e(o), convolved))
    for wanted, found in zip(jax.tree.leaves(plain), jax.tree.leaves(library), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-4 * float(jnp.abs(wanted).max()))


@pytest.mark.parametrize(
    ("name", "images", "size"),  # products before sums, and the library's convolutions
    [
        ("small", 6, 3),
        *(pytest.param("small", *pair, marks=pytest.mark.slow) for pair in ((7, 1), (4, 4))),
        ("nature", 6, 3),
        *(pytest.param("nature", *pair, marks=pytest.mark.slow) for pair in ((7, 1), (4, 4))),
    ],
)
def test_looking_in_pieces_gives_the_states_of_one_look(monkeypatch, name, images, size):
    """As many images as fit, the same number in every piece; seeds one after the other."""
    encoder, obs = some(name, 2)
    pixels = obs.shape[2]
    obs = jax.random.randint(jax.random.key(6), (2, images, pixels, pixels, 4), 0, 256).astype(jnp.uint8)
    monkeypatch.setattr("vcrl.nets.encoders.PIECE", 4 * obs[0, 0].size)
    seen = []
    monkeypatch.setattr(
        "vcrl.nets.encoders.picture", lambda drawn: seen.append(drawn.obs.shape) or picture(drawn)
    )

    def drawn(obs):
        return drawn_for(jax.random.key(4), [obs[:2], obs[2:]], shift=2, intensity=0.05)

    together = jax.vmap(lambda e, o: jnp.concatenate(e.look(drawn(o))))
    found = jax.jit(together)(encoder, obs)
    assert {shape[0] for shape in seen} == {size}
    program = jax.make_jaxpr(together)(encoder, obs)
    (seeds,) = [step for step in program.eqns if step.primitive.name == "scan"]
    assert seeds.params["length"] == 2
    assert ("conv_general_dilated" in str(program)) is (name == "small")
    for seed in range(2):
        mine = jax.tree.map(lambda x, seed=seed: x[seed], encoder)
        wanted = jnp.concatenate([mine(picture(part)) for part in drawn(obs[seed])])
        np.testing.assert_allclose(found[seed], wanted, rtol=1e-4, atol=1e-5)


def test_looking_at_nothing_and_in_float64():
    encoder, _ = some("small", 1)
    encoder = jax.tree.map(lambda x: x[0], encoder)
    assert encoder.look([as_it_is(jnp.zeros((0, 20, 20, 4), jnp.uint8))])[0].shape[0] == 0
    with jax.enable_x64(True):
        exact = jax.tree.map(lambda x: x.astype(jnp.float64), encoder)
        image = jnp.full((2, 20, 20, 4), 51, jnp.uint8)
        (found,) = exact.look([as_it_is(image)])
        assert found.dtype == jnp.float64
        np.testing.assert_allclose(found, exact(jnp.full((2, 20, 20, 4), 0.2)), rtol=1e-5)


def test_a_kernel_grows_where_the_image_has_the_room():
    """3x3 at stride 2 on 84 pixels becomes 2x2 on tiles of 2x2 pixels; on 83 there is no room for a fourth line."""
    conv = Conv.make(jax.random.key(0), 3, 8, 3, 2)
    for pixels, kernel, stride in ((84, (2, 2, 12, 8), 1), (83, (3, 3, 3, 8), 2)):
        image, weight, left = conv.dense(jnp.ones((1, pixels, pixels, 3)), grow=True)
        assert (weight.shape, left) == (kernel, stride)
        assert image.shape[1] == pixels // (2 if stride == 1 else 1)
        assert layers([conv], jnp.ones((1, pixels, pixels, 3))).shape == (1, 41, 41, 8)


def test_half_precision_is_off_by_less_than_twice_what_tf32_is(tf32):
    """Both against float32, states and gradients, where units are near zero and rounding opens and shuts some."""
    encoder, obs = some("control-32", 1)
    encoder = Encoder(jax.tree.map(lambda x: x[0], encoder.convs), renormalised=False)

    def by_tf32(encoder, x):
        for conv in encoder.convs:
            x = jax.nn.relu(
                tf32(partial(by_library, conv.stride))(conv.weight, x) + conv.bias[None, None, None]
            )
        return x

    def off(function):
        pairs = [tuple(jax.jit(f)(encoder, obs[0]) for f in (function, convolved))]
        pairs += [[slopes(f, encoder, obs[0], 1.0) for f in (function, convolved)]]
        flat = [[jnp.concatenate([x.ravel() for x in jax.tree.leaves(y)]) for y in pair] for pair in pairs]
        return [float(jnp.linalg.norm(a - b) / jnp.linalg.norm(b)) for a, b in flat]

    half, other = off(partial(in_halves, convolved)), off(by_tf32)
    assert all(0 < mine < 2 * theirs for mine, theirs in zip(half, other, strict=True))
    assert other[0] < 2e-3 and other[1] < 0.1
