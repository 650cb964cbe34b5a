"""Convolutions as kernels, as a GPU makes them, against the plain path; here both run on the CPU."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from vcrl.nets import first_layers, kernels, tiles
from vcrl.nets.augment import Drawn, drawn_for, picture
from vcrl.nets.convolutions import convolution, patches
from vcrl.nets.encoders import LAYERS, Encoder
from vcrl.nets.layers import Conv
from vcrl.nets.norms import renormalise
from vcrl.nets.products import END
from vcrl.nets.transition import Transition, imagine


@pytest.fixture
def gpu(monkeypatch):
    """Whoever asks is told that there is one."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")


def some(size: int, stride: int, inputs: int, outputs: int = 16, images: int = 3):
    weight, x, pull = jax.random.split(jax.random.key(0), 3)
    weight = jax.random.normal(weight, (size, size, inputs, outputs))
    x = jax.random.normal(x, (images, 9, 7, inputs))
    shape = jax.eval_shape(partial(plain, stride), weight, x).shape
    return weight, x, jax.random.normal(pull, shape)


def plain(stride, weight, x):
    return patches(stride, len(weight), x) @ weight.reshape(-1, weight.shape[-1])


def both_ways(function, *arguments):
    def run(weight, x, pull):
        out, back = jax.vjp(function, weight, x)
        return out, back(pull)

    return jax.tree.leaves(jax.jit(run)(*arguments))


# Kernel, stride, inputs, outputs, images: more places than one program takes, and more outputs; a stride that leaves
# a row over; channels that have to be filled up.
SHAPES = [(3, 1, 16, 16, 3), (3, 1, 10, 96, 9), (4, 2, 3, 16, 3), (3, 2, 5, 32, 2), (2, 1, 64, 16, 1)]
SOME = [pytest.param(s, marks=[pytest.mark.slow] * (s in (SHAPES[0], SHAPES[4]))) for s in SHAPES]


@pytest.mark.parametrize("slope", [1e-9, 1.0, 1e6])
@pytest.mark.parametrize("shape", SOME)
def test_results_and_gradients_differ_by_rounding(gpu, shape, slope):
    size, stride, *rest = shape
    weight, x, pull = some(size, stride, *rest)
    wanted = both_ways(partial(plain, stride), weight, x, slope * pull)
    found = both_ways(partial(convolution, stride), weight, x, slope * pull)
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == jnp.float32 and a.shape == b.shape
        assert_allclose(a, b, atol=1e-3 * float(jnp.abs(b).max()))
        assert np.any(np.asarray(a) != np.asarray(b))


@pytest.mark.parametrize("shape", SHAPES)
def test_numbers_that_halves_hold_come_out_exactly(gpu, shape):
    """Small whole numbers: nothing is rounded, so every place and every channel is where it belongs."""
    size, stride, *rest = shape
    arguments = [jnp.round(3 * a) for a in some(size, stride, *rest)]
    wanted = both_ways(partial(plain, stride), *arguments)
    for a, b in zip(both_ways(partial(convolution, stride), *arguments), wanted, strict=True):
        assert_array_equal(a, b)


def test_a_scale_is_the_next_power_of_two():
    above = float(np.nextafter(np.float32(8), np.float32(9)))
    sizes = jnp.array([1.0, 8.0, above, 0.7, 1e-20, 1e30, 0.0, 1e-35], jnp.float32)
    powers = [1.0, 8.0, 16.0, 1.0, 2.0**-66, 2.0**100, 1.0, 2.0**-99]  # below 1e-30 that counts
    assert_array_equal(kernels.FAR * kernels._scale(sizes), np.array(powers, np.float32))
    assert np.isinf(kernels._scale(jnp.float32(jnp.inf)))


def test_an_image_with_a_small_gradient_is_as_precise_as_one_with_a_large_one(gpu):
    """A factor of 1e12 between them, far beyond the range of a half."""
    weight, x, pull = some(3, 1, 16)
    pull = pull * jnp.array([1e-6, 1.0, 1e6])[:, None, None, None]
    wanted = both_ways(partial(plain, 1), weight, x, pull)[-1]
    found = both_ways(partial(convolution, 1), weight, x, pull)[-1]
    for a, b in zip(found, wanted, strict=True):
        assert_allclose(a, b, atol=1e-3 * float(jnp.abs(b).max()))


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf])
def test_what_is_not_finite_stays_so(gpu, bad):
    """Or a training that went wrong would go on unseen."""
    weight, x, pull = some(3, 1, 16)
    _, *slopes = both_ways(partial(convolution, 1), weight, x, pull.at[0, 0, 0, 0].set(bad))
    assert all(not np.isfinite(found).all() for found in slopes)
    if np.isnan(bad):
        assert np.isnan(convolution(1, weight, x.at[0, 0, 0, 0].set(bad))).any()


def test_where_nothing_is_wanted_the_gradient_is_zero(gpu):
    weight, x, pull = some(3, 1, 16)
    for found in both_ways(partial(convolution, 1), weight, x, 0 * pull)[1:]:
        assert_array_equal(found, 0 * found)


def test_a_gpu_computes_in_float64_where_that_is_asked_for(gpu):
    with jax.enable_x64(True):
        weight, x, pull = (jnp.asarray(np.asarray(a), jnp.float64) for a in some(3, 1, 16))
        out, *back = both_ways(partial(convolution, 1), weight, x, pull)
        assert_array_equal(out, plain(1, weight, x))
        assert {a.dtype for a in (out, *back)} == {jnp.dtype("float64")}


@pytest.mark.parametrize(
    ("backend", "capability", "there"),
    [("cpu", None, False), ("gpu", "9.0", True), ("gpu", "8.0", True), ("gpu", "12.0", True), ("gpu", "7.5", False),
     ("gpu", "gfx942", True)],
)  # fmt: skip
def test_older_gpus_have_no_kernels(monkeypatch, backend, capability, there):
    class Device:
        compute_capability, device_kind = capability, "Some Card"

    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(jax, "devices", lambda: [Device()])
    assert tiles.available() is there
    why = tiles.obstacle()
    assert (why is None) is (there or backend == "cpu") and (why is None or "this is Some Card" in why)
    monkeypatch.setattr(tiles, "triton", None)  # a JAX without it
    assert not tiles.available()
    assert (tiles.obstacle() is None) is (backend == "cpu")


def test_all_seeds_at_once(gpu):
    """Shared images too, as in a target's update."""
    keys = jax.random.split(jax.random.key(1), 2)
    convs = jax.vmap(lambda k: Conv.make(k, 10, 16, 3, padding=1))(keys)
    images = jax.random.normal(jax.random.key(2), (2, 3, 7, 7, 10))

    def slopes(conv, x):
        return jax.grad(lambda conv, x: jnp.mean(jnp.square(conv(x))), (0, 1))(conv, x)

    for axes, mine in ((0, images), (None, images[0])):
        together = jax.jit(jax.vmap(slopes, in_axes=(0, axes)))(convs, mine)
        for i in range(2):
            alone = jax.jit(slopes)(jax.tree.map(lambda x, i=i: x[i], convs), images[i if axes == 0 else 0])
            for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
                assert_allclose(a[i], b, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_imagination_is_off_by_little_more_than_by_tf32(monkeypatch, tf32):
    """Five steps at Atari's size; states and gradients, both against float32."""
    model = Transition.make(jax.random.key(0), 64, 6)
    # All units open: rounding opens or shuts one otherwise, and that moves a gradient by far more than its last bits.
    model = eqx.tree_at(lambda m: (m.conv1.bias, m.conv2.bias), model, (jnp.full(64, 3.0), jnp.full(64, 9.0)))
    start = jax.random.uniform(jax.random.key(1), (8, 7, 7, 64))
    actions = jax.random.randint(jax.random.key(2), (5, 8), 0, 6)
    wanted = jax.random.normal(jax.random.key(3), (6, *start.shape)) / start.size

    def results(way):
        monkeypatch.setattr("vcrl.nets.layers.convolution", way)

        def loss(model, start):
            states = imagine(model, start, actions, model.stats(), learning=True)[0]
            return jnp.sum(wanted * states), states

        slopes, states = jax.jit(jax.grad(loss, (0, 1), has_aux=True))(model, start)
        return [np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)]) for tree in (states, *slopes)]

    exact, other = (
        results(plain),
        results(lambda stride, weight, x: tf32(partial(plain, stride))(weight, x)),
    )
    with monkeypatch.context() as on_a_gpu:
        on_a_gpu.setattr(jax, "default_backend", lambda: "gpu")
        half = results(convolution)
    for a, b, c in zip(half, other, exact, strict=True):
        mine, theirs = (np.linalg.norm(x - c) / np.linalg.norm(c) for x in (a, b))
        assert 0 < mine < 1.5 * theirs < 0.02


def stacks(images: int, size: int = 20):
    return jax.random.randint(jax.random.key(5), (images, size, size, 4), 0, 256).astype(jnp.uint8)


def parts(drawn):
    return drawn.obs, drawn.top, drawn.left, drawn.light


@pytest.mark.parametrize(
    ("size", "stride", "outputs"), [pytest.param(8, 4, 32, marks=pytest.mark.slow), (4, 2, 16), (4, 3, 64)]
)
def test_the_first_layer_of_shifted_images(size, stride, outputs):
    """Every shift there is, to all sides; more places than one program takes."""
    weight = jax.random.normal(jax.random.key(1), (size, size, 4, outputs)) / 20
    bias = jax.random.normal(jax.random.key(2), (outputs,)) / 10
    obs, shift = stacks(25), jnp.arange(25)
    drawn = Drawn(obs, shift % 5 - 2, shift // 5 - 2, (0.8 + shift / 50) / 255)
    wanted = jax.nn.relu(plain(stride, weight, picture(drawn)) + bias[None, None, None])
    found = jax.jit(partial(first_layers.convolve_shifted, stride))(weight, bias, *parts(drawn))
    assert found.dtype == jnp.float16 and found.shape == wanted.shape
    assert_allclose(found.astype(jnp.float32), wanted, atol=2e-3 * float(wanted.max()))


def test_the_first_layer_of_whole_numbers_is_exact():
    """Weights of -1, 0 and 1, no bias and bytes as they are: each byte, channel and tap is where it belongs."""
    weight = jax.random.randint(jax.random.key(1), (4, 4, 4, 16), -1, 2).astype(jnp.float32)
    obs = stacks(3)
    drawn = Drawn(obs // 8, jnp.array([-2, 0, 1]), jnp.array([3, 0, -4]), jnp.ones(3))
    wanted = jax.nn.relu(plain(2, weight, picture(drawn)))
    found = first_layers.convolve_shifted(2, weight, jnp.zeros(16), *parts(drawn))
    assert_array_equal(found.astype(jnp.float32), wanted)


@pytest.mark.parametrize(
    ("size", "stride", "channels", "outputs"), [(3, 2, 9, 32), (4, 1, 4, 16), (2, 2, 3, 64)]
)
def test_the_first_layer_of_cropped_images(size, stride, channels, outputs):
    """Every crop there is, up to the last byte of the last image."""
    weight = jax.random.normal(jax.random.key(1), (size, size, channels, outputs)) / 20
    bias = jax.random.normal(jax.random.key(2), (outputs,)) / 10
    obs = jax.random.randint(jax.random.key(5), (25, 16, 16, channels), 0, 256).astype(jnp.uint8)
    shift = jnp.arange(25)
    drawn = Drawn(obs, shift // 5, shift % 5, (0.8 + shift / 50) / 255, crop=12)
    wanted = jax.nn.relu(plain(stride, weight, picture(drawn)) + bias[None, None, None])
    found = jax.jit(partial(first_layers.convolve_cropped, stride, crop=12))(weight, bias, *parts(drawn))
    assert found.dtype == jnp.float16 and found.shape == wanted.shape
    assert_allclose(found.astype(jnp.float32), wanted, atol=2e-3 * float(wanted.max()))
    # Weights of -1, 0 and 1, no bias and bytes as they are: exact.
    weight, drawn = jnp.sign(jnp.round(20 * weight)), Drawn(obs // 8, drawn.top, drawn.left, jnp.ones(25), 12)
    found = first_layers.convolve_cropped(stride, weight, jnp.zeros(outputs), *parts(drawn), crop=12)
    assert_array_equal(found.astype(jnp.float32), jax.nn.relu(plain(stride, weight, picture(drawn))))


@pytest.mark.parametrize(("count", "outputs"), [(1, 16), (300, 32), (2500, 64)])
def test_a_gradient_on_its_way_back_through_a_relu(count, outputs):
    """Whole numbers: exact. Fewer places than a program takes, and more."""
    one, two = jax.random.split(jax.random.key(0))
    out, pull = (jax.random.randint(k, (count, outputs), -3, 9).astype(jnp.float16) for k in (one, two))
    out = jax.nn.relu(out)
    through, total = jax.jit(kernels.open_only)(out, pull)
    wanted = np.where(np.asarray(out) > 0, pull, 0)
    assert through.dtype == jnp.float16 and total.dtype == jnp.float32
    assert_array_equal(through, wanted)
    assert_array_equal(total, wanted.astype(np.float32).sum(axis=0))


def test_what_is_no_number_goes_back_through_a_relu():
    pull = jnp.ones((3, 16), jnp.float16).at[1, 2].set(jnp.nan)
    through, total = kernels.open_only(jnp.ones((3, 16), jnp.float16), pull)
    assert np.isnan(through[1, 2]) and np.isnan(total[2]) and np.isfinite(np.delete(total, 2)).all()


RARE = ("nature-same", "data-efficient", "control-32", "control")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in RARE else n for n in LAYERS]
)
@pytest.mark.parametrize("shift", [0, 4])
def test_looking_at_images_gives_the_states_of_the_plain_path(monkeypatch, name, shift):
    """A GPU's product keeps ten bits of float32 factors, so that 2^-10 of the largest is what it may be off too."""
    keys = jax.random.split(jax.random.key(3), 2)
    encoder = jax.jit(jax.vmap(lambda k: Encoder.make(k, 4, LAYERS[name])))(keys)
    obs = jnp.stack([stacks(3, 20 if name == "small" else 84)] * 2)

    def look(encoder, obs):
        return encoder.look(
            drawn_for(jax.random.key(4), [obs[:2], obs[:0], obs[2:]], shift=shift, intensity=0.05)
        )

    wanted = jax.jit(jax.vmap(look))(encoder, obs)
    (drawn,) = drawn_for(jax.random.key(4), [obs[0]], shift=shift, intensity=0.05)
    first = jax.tree.map(lambda x: x[0], encoder)(picture(drawn))
    assert_allclose(jnp.concatenate([x[0] for x in wanted]), first, rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    found = jax.jit(jax.vmap(lambda *x: look(*x)))(encoder, obs)
    assert [x.shape for x in found] == [x.shape for x in wanted]
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == jnp.float32
        assert_allclose(a, b, atol=4e-3)  # states are scaled to 1
        assert b.size == 0 or np.any(np.asarray(a) != np.asarray(b))


def test_what_halves_cannot_hold_stays_finite(gpu):
    encoder = Encoder.make(jax.random.key(3), 4, LAYERS["small"])
    encoder = jax.tree.map(lambda x: 1e7 * jnp.abs(x), encoder)
    assert encoder.convs[0].weight.max() > END
    (found,) = encoder.look(drawn_for(jax.random.key(4), [stacks(2)], shift=0, intensity=0.0))
    assert bool(jnp.isfinite(found).all())
    zeros = jnp.zeros((1, 1, 1, 16), jnp.float16)
    large = jnp.full((1, 1, 16, 16), 1e6)
    assert_array_equal(kernels.convolve(1, large, zeros, bias=jnp.ones(16)), 1.0)
    assert_array_equal(kernels.convolve(1, large, zeros + 1, bias=jnp.ones(16)), END)


@pytest.mark.parametrize("way", ["weight", "bias", "light"])
def test_what_is_no_number_is_none_in_a_state(gpu, way):
    """Every layer passes it on."""
    encoder = Encoder.make(jax.random.key(3), 4, LAYERS["small"], renormalised=False)
    (drawn,) = drawn_for(jax.random.key(4), [stacks(2)], shift=1, intensity=0.0)
    if way == "light":
        drawn = eqx.tree_at(lambda d: d.light, drawn, drawn.light.at[1].set(jnp.nan))
    else:
        encoder = eqx.tree_at(
            lambda e: getattr(e.convs[0], way), encoder, replace_fn=lambda x: x.at[0].set(jnp.nan)
        )
    found = encoder.look([drawn])[0]
    assert np.isnan(found[1]).any() and (way != "light" or np.isfinite(found[0]).all())


@pytest.fixture
def real(gpu, lowered, monkeypatch):
    """Kernels as a GPU would get them, which nobody here can run; of what is lowered, the text."""
    monkeypatch.setattr(tiles, "interpreted", lambda: False)
    return lambda function, *x: lowered(jax.jit(function), *x)


def test_triton_takes_the_kernels_and_lets_pass_what_is_no_number(real):
    """Triton's maxnumf and minnumf drop a NaN, which running a kernel on a CPU would not show."""
    encoder = Encoder.make(jax.random.key(3), 4, LAYERS["nature"])
    obs = jnp.zeros((2, 192, 84, 84, 4), jnp.uint8)

    def look(obs):
        return encoder.look(drawn_for(jax.random.key(4), [obs], shift=4, intensity=0.05))

    weight, x, pull = (jnp.stack([a, a]) for a in some(3, 1, 82, 64))
    slopes = jax.vmap(lambda *x: jax.vjp(partial(convolution, 1), *x[:2])[1](x[2]))
    assert real(slopes, weight, x, pull).count("xla.gpu.triton") == 3
    text = real(jax.vmap(look), obs)
    assert text.count("xla.gpu.triton") == 3
    assert "maxnum" not in text and "minnum" not in text


def test_triton_takes_what_looks_at_squares_and_what_goes_back_through_a_relu(real):
    weight, bias, drawn = jnp.zeros((3, 3, 9, 64)), jnp.zeros(64), jnp.zeros(2, jnp.int32)
    obs = jnp.zeros((2, 20, 20, 9), jnp.uint8)
    look = partial(first_layers.convolve_cropped, 2, crop=17)
    halves = jnp.zeros((5, 4, 64), jnp.float16)
    texts = real(look, weight, bias, obs, drawn, drawn, jnp.ones(2)), real(kernels.open_only, halves, halves)
    for text in texts:
        assert text.count("xla.gpu.triton") == 1
        assert "maxnum" not in text and "minnum" not in text


def test_more_places_than_few(gpu):
    """The largest kernels divide their work in another way."""
    weight, x = jnp.round(2 * some(3, 1, 16)[0]), jax.random.randint(jax.random.key(1), (90, 9, 9, 16), 0, 4)
    assert kernels.FEW < 90 * 7 * 7
    found = kernels.convolve(1, weight, x.astype(jnp.float16))
    assert_array_equal(found, plain(1, weight, x.astype(jnp.float32)))


def test_a_look_inside_a_gradient(gpu):
    """As the agent uses it: constants of a differentiated function, under a vmap over seeds."""
    keys = jax.random.split(jax.random.key(3), 2)
    encoder = jax.jit(jax.vmap(lambda k: Encoder.make(k, 4, LAYERS["small"])))(keys)

    def seen(encoder):
        return encoder.look(drawn_for(jax.random.key(4), [stacks(2)], shift=1, intensity=0.0))[0]

    def loss(x, encoder):
        return jnp.sum(x * seen(encoder))

    found = jax.jit(jax.vmap(jax.grad(loss)))(jnp.ones(2), encoder)
    assert_allclose(found, jnp.sum(jax.jit(jax.vmap(seen))(encoder), axis=(1, 2, 3, 4)), rtol=1e-4)


def test_states_that_are_not_scaled(gpu):
    plain_states = Encoder.make(jax.random.key(3), 4, LAYERS["small"], renormalised=False)
    scaled = Encoder(plain_states.convs)
    draws = drawn_for(jax.random.key(4), [stacks(2)], shift=1, intensity=0.0)
    assert_allclose(renormalise(plain_states.look(draws)[0]), scaled.look(draws)[0])
