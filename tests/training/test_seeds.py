"""Seeds: each its own, and the same run whether it trains alone or in company."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.errors import KeyReuseError

from vcrl.agents.rainbow import make_rainbow
from vcrl.core.keys import Stream, key
from vcrl.core.protocol import Observation, Protocol
from vcrl.core.spec import Discrete, EnvSpec
from vcrl.core.types import Row, now
from vcrl.methods.configs import SPR, VCR, Augment, Categorical, RainbowConfig, ReplayConfig, Slow, Terms
from vcrl.training.lift import lift, no_row, packed

SPEC, CAPACITY, ROWS, UPDATES = EnvSpec((16, 16, 1), Discrete(3)), 50, 60, 25


pytestmark = pytest.mark.usefixtures("quick_compiles")


@pytest.fixture(scope="module")
def agent():
    """SPR and VCR with everything that draws: noise, samples, augmentation; and a target that is a copy."""
    config = RainbowConfig(
        observation=Observation(stack=2), encoder="small", hidden=16, value=Categorical(11, -2.0, 2.0),
        n_step=2, batch=4, learn_start=10, updates_per_step=1, target=Slow(0.5, 2),
        augment=Augment(shift=2, intensity=0.05), replay=ReplayConfig(capacity=CAPACITY),
        terms=Terms(spr=SPR(steps=2), vcr=VCR(steps=2, ramp=1000)),
    )  # fmt: skip
    return make_rainbow(config, SPEC, Protocol("tiny", 1000, 1, None, 1, 0.001))


@pytest.fixture(scope="module")
def lifted(agent):
    return lift(agent, SPEC, CAPACITY)


def a_row(seed: int, number: int) -> Row:
    """What a seed's lane writes: games of its own, some terminal, some truncated."""
    rng = np.random.default_rng([seed, number])
    frame = rng.integers(0, 256, (16, 16, 1), np.uint8)
    place = (number + seed) % 9  # eight states and, in every other game, a pad
    pad = place == 8
    return Row(
        frame=frame,
        action=np.int32(0 if pad else rng.integers(3)),
        reward=np.float32(0 if pad else rng.normal()),
        terminal=np.bool_(place == 3),
        first=np.bool_(place in (0, 4) or number == 0),
        pad=np.bool_(pad),
    )


def train(lifted, seeds: tuple[int, ...], updates: int = UPDATES, games: tuple[int, ...] | None = None):
    """So many updates from a fixed replay; state, replay and metrics of each lane, on the host."""
    names = jnp.array(seeds)
    state, replay = lifted.init(names), lifted.empty(names)
    for number in range(ROWS):
        row = Row(*(np.stack(x) for x in zip(*(a_row(g, number) for g in games or seeds), strict=True)))
        replay = lifted.insert(replay, packed(row), now(0, 0, number + 1, True))
    for i in range(updates):
        state, replay, (metrics,) = lifted.learn(state, replay, packed(row), now(20 + i, i, ROWS), names)
    whole = jax.tree.map(np.asarray, (state, replay, metrics))
    return [jax.tree.map(lambda x, i=i: x[i], whole) for i in range(len(seeds))]


@pytest.fixture(scope="module")
def joint(lifted):
    return train(lifted, (0, 1, 2))


def furthest(one, two) -> float:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    return max(float(np.abs(a.astype(np.float64) - b).max()) for a, b in pairs)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_lane_equals_its_solo_run(lifted, joint, seed):
    """Alone and in company the same arithmetic runs in another order, so they agree to rounding."""
    (state, replay, metrics), (alone, own, shown) = joint[seed], train(lifted, (seed,))[0]
    for path, x in jax.tree_util.tree_flatten_with_path(state)[0]:
        y = dict(jax.tree_util.tree_flatten_with_path(alone)[0])[path]
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5, err_msg=jax.tree_util.keystr(path))
    assert furthest(state.online, alone.online) < 5e-6  # measured: 6e-8; the weights moved by 2e-3
    np.testing.assert_allclose(replay.priority, own.priority, rtol=1e-3)
    for name in metrics:
        np.testing.assert_allclose(metrics[name], shown[name], rtol=1e-3, atol=1e-4, err_msg=name)


def test_the_order_of_seeds_does_not_matter(lifted, joint):
    shuffled = train(lifted, (2, 0, 1))
    for lane, seed in enumerate((2, 0, 1)):
        (state, replay, _), (moved, other, _) = joint[seed], shuffled[lane]
        assert furthest(state, moved) < 1e-5
        np.testing.assert_array_equal(replay.frame, other.frame)
        np.testing.assert_allclose(replay.priority, other.priority, rtol=1e-4)


def test_training_moved_the_weights_far_more_than_rounding(lifted, joint):
    """Otherwise the agreements above would say nothing."""
    for (state, _, _), (fresh, _, _) in zip(joint, train(lifted, (0, 1, 2), updates=1), strict=True):
        assert furthest(state.online, fresh.online) > 1e-3


def test_lanes_differ(joint):
    for (one, old, _), (two, new, _) in itertools.combinations(joint, 2):
        for x, y in zip(jax.tree.leaves(one.online), jax.tree.leaves(two.online), strict=True):
            assert (x != y).mean() > 0.9
        assert (old.priority != new.priority).any()


def test_lanes_with_the_same_games_still_differ(lifted):
    """Seeds that see the same rows draw first weights, samples, noise and augmentations of their own."""
    ours = train(lifted, (0, 1, 1), updates=1, games=(5, 5, 5))
    (one, old, _), (two, new, _), (three, newer, _) = ours
    for x, y, z in zip(*(jax.tree.leaves(s.online) for s in (one, two, three)), strict=True):
        assert (x != y).mean() > 0.9
        np.testing.assert_array_equal(y, z)  # the same seed twice is the same run twice
    np.testing.assert_array_equal(old.frame, new.frame)
    assert set(np.flatnonzero(old.priority != 1)) != set(np.flatnonzero(new.priority != 1))
    np.testing.assert_array_equal(new.priority, newer.priority)


def test_learning_was_traced_once_for_each_number_of_seeds(lifted, joint):
    train(lifted, (7, 8, 9), updates=2)
    train(lifted, (7,), updates=2)
    assert lifted.learn._cache_size() == 2
    assert lifted.init._cache_size() == 2


def test_every_seed_stream_and_counter_has_a_key_of_its_own():
    def data(seed, stream, counter):
        return tuple(np.asarray(jax.random.key_data(key(seed, stream, counter))).tolist())

    counters = (0, 1, 2, 15, 16, 17, 196_000, 2**28 - 1)
    addresses = list(itertools.product((0, 1, 2, 1000), Stream, counters))
    assert len({data(*a) for a in addresses}) == len(addresses)


def test_a_key_is_the_same_for_numbers_and_for_arrays():
    """The host may ask with a Python number what the device asks with a traced one."""
    traced = jax.jit(lambda seed, counter: key(seed, Stream.NOISE, counter))(jnp.asarray(3), jnp.asarray(77))
    assert (jax.random.key_data(traced) == jax.random.key_data(key(3, Stream.NOISE, 77))).all()


def test_no_key_is_used_twice_in_an_update(agent):
    """JAX's own checker, over the whole program of a lane: sample, update and gradient."""
    lifted = lift(agent, SPEC, CAPACITY)
    with jax.debug_key_reuse(True):
        with pytest.raises(KeyReuseError):  # the checker does look
            jax.jit(lambda k: jax.random.normal(k) + jax.random.uniform(k)).trace(jax.random.key(0))
        shapes = (jax.eval_shape(f, jnp.array([0])) for f in (lifted.init, lifted.empty))
        traced = lifted.learn.trace(*shapes, no_row(SPEC, 1), now(20, 0, ROWS), jnp.array([0]))
    assert traced.jaxpr is not None
