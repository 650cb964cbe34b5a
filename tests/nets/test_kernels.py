"""Convolutions as kernels, as a GPU makes them, against the plain path; here both run on the CPU."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from vcrl.nets import first_layers, kernels, long_sums, tiles
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


def whole(size: int, stride: int, inputs: int, outputs: int, images: int):
    """Weights of -1, 0 and 1, and as halves images and a gradient of numbers from -2 to 2."""
    weight, x, pull = some(size, stride, inputs, outputs, images)
    x, pull = (jnp.clip(jnp.round(a), -2, 2).astype(jnp.float16) for a in (x, pull))
    return jnp.clip(jnp.round(weight), -1, 1), x, pull


def plain_back(stride, weight, x, pull):
    """The gradients of weight and images by the plain path, in float32."""
    return jax.vjp(partial(plain, stride), weight, x.astype(jnp.float32))[1](pull.astype(jnp.float32))


def back(stride, weight, x, pull, **more):
    return kernels.convolve_back(*kernels.way_back(stride, weight, x.shape, pull), x, **more)


# Places of images, and channels, fewer than one program takes, and more; a stride that leaves a row over.
BACK = [(3, 1, 16, 16, 1), (3, 1, 64, 32, 3), (2, 1, 96, 64, 3), (3, 2, 32, 16, 2)]


@pytest.mark.parametrize("shape", BACK)
def test_a_gradient_on_its_way_back_to_a_relu(shape):
    """Whole numbers: exact, and so is what they add up to, of which each place is counted once."""
    size, stride, *rest = shape
    weight, x, pull = whole(size, stride, *rest)
    seen = jax.nn.relu(x)
    through, total = jax.jit(partial(back, stride))(weight, seen, pull)
    wanted = np.where(np.asarray(seen) > 0, plain_back(stride, weight, seen, pull)[1], 0)
    assert through.dtype == jnp.float16 and total.dtype == jnp.float32
    assert 0.2 < np.mean(wanted != 0) < 0.6
    assert np.abs(wanted).max() <= 2048  # up to there a half holds all of them
    assert_array_equal(through, wanted)
    assert_array_equal(total, wanted.sum(axis=(0, 1, 2)))


def test_what_is_no_number_goes_back_to_a_relu():
    """To the pixels it had seen, and into the sums; not through units that were shut."""
    weight, x, pull = whole(3, 1, 16, 16, 3)
    pull = pull.at[1, 2, 4, 5].set(jnp.nan)
    through, total = back(1, weight, jnp.ones_like(x).at[..., 7].set(0), pull)
    wanted = np.zeros(x.shape, bool)
    wanted[1, 2:5, 4:7] = True
    wanted[..., 7] = False
    assert_array_equal(np.isnan(through), wanted)
    assert_array_equal(np.isnan(total), np.arange(16) != 7)
    assert total[7] == 0


@pytest.mark.parametrize("sign", [1, -1])
def test_a_gradient_that_halves_cannot_hold_is_cut_off(sign):
    """Beyond the sums too, which add up what is left: 63 places of 65,504."""
    weight, seen = jnp.full((1, 1, 16, 16), 1e6), jnp.ones((1, 9, 7, 16), jnp.float16)
    through, total = back(1, weight, seen, sign * seen)
    assert_array_equal(through.astype(jnp.float32), sign * END)
    assert_array_equal(total, 63 * sign * END)


# Pieces of a row as long as there are outputs; longer, several to a row; shorter, to a row and of three programs.
WEIGHTS = [(3, 2, 16, 16, 9), (3, 1, 128, 32, 2), (2, 1, 48, 64, 3), (3, 1, 16, 96, 3)]


@pytest.mark.parametrize(
    "more",
    [pytest.param({}, marks=pytest.mark.slow), {"tiles": tiles.Tiles(32), "steps": 2}],
    ids=["one part", "parts"],
)
@pytest.mark.parametrize("shape", WEIGHTS)
def test_the_gradient_of_a_weight_of_halves(shape, more):
    """Whole numbers: exact. The last program has fewer places than it takes."""
    size, stride, *rest = shape
    weight, x, pull = whole(size, stride, *rest)
    count = pull.size // pull.shape[-1]
    assert count % 32 and count > 2 * 32
    found = jax.jit(lambda x, pull: kernels.by_weight(stride, size, x, pull, **more))(x, pull)
    assert found.dtype == jnp.float32
    assert_array_equal(found, plain_back(stride, weight, x, pull)[0])


@pytest.mark.parametrize("shape", [WEIGHTS[0], WEIGHTS[2]])
def test_what_is_no_number_reaches_a_weight(shape):
    """All that its output looked at."""
    size, stride, *rest = shape
    _, x, pull = whole(size, stride, *rest)
    found = kernels.by_weight(stride, size, x, pull.at[1, 1, 1, 5].set(jnp.nan))
    assert_array_equal(np.isnan(found), np.broadcast_to(np.arange(found.shape[-1]) == 5, found.shape))


def test_all_seeds_at_once_by_halves():
    """Each as it is alone."""
    weight, x, pull = whole(2, 1, 48, 64, 2)
    ways = [(weight, x, pull), (weight[::-1], x[:, ::-1], pull[:, :, ::-1])]

    def both(weight, x, pull):
        seen = jax.nn.relu(x)
        return kernels.by_weight(1, 2, x, pull), back(1, weight, seen, pull)

    together = jax.jit(jax.vmap(both))(*(jnp.stack(pair) for pair in zip(*ways, strict=True)))
    for i, mine in enumerate(ways):
        for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(jax.jit(both)(*mine)), strict=True):
            assert_array_equal(a[i], b)
    assert all((a[0] != a[1]).any() for a in jax.tree.leaves(together))


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


def halves(*shape: int):
    return jnp.zeros(shape, jnp.float16)


@pytest.mark.parametrize(
    ("kernel", "arguments"),
    [
        (partial(first_layers.convolve_cropped, 2, crop=17),
         (jnp.zeros((3, 3, 9, 64)), jnp.zeros(64), jnp.zeros((2, 20, 20, 9), jnp.uint8),
          *[jnp.zeros(2, jnp.int32)] * 2, jnp.ones(2))),
        (kernels.convolve_back, (jnp.zeros((3, 3, 64, 32)), halves(2, 7, 7, 64), halves(2, 9, 9, 32))),
        (partial(kernels.by_weight, 1, 3), (halves(2, 9, 9, 64), halves(2, 7, 7, 64))),
        (partial(kernels.by_weight, 1, 2), (halves(2, 9, 9, 48), halves(2, 8, 8, 64))),
        (long_sums.summed, (halves(70, 640), halves(640, 50))),
    ],
    ids=["squares", "back to a relu", "weight", "weight turned", "long sums"],
)  # fmt: skip
def test_triton_takes_what_large_images_are_learned_by(real, kernel, arguments):
    text = real(kernel, *arguments)
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
