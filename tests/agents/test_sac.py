"""The losses of the continuous base against NumPy in double precision: their values, slopes and reach."""

import jax
import jax.numpy as jnp
import numpy as np
import numpy_sac as hand
import pytest
import tiny_sac as tiny
from scipy.stats import kstest, norm, uniform

from vcrl.agents.soft import critic_loss, soft_target
from vcrl.agents.values import TwinValues
from vcrl.methods.configs import Augment, ControlTerms
from vcrl.nets.augment import augment
from vcrl.nets.control import Policy, TwinQ

TERMS = ("spr", "vcr", "cycle", "crops", "reconstruction")
LOSSES = ("critic", *TERMS, "actor", "temperature")


@pytest.fixture(scope="module")
def state():
    return tiny.state(tiny.full())


@pytest.fixture(scope="module")
def batches():
    return tiny.batches(tiny.full())


@pytest.fixture(scope="module")
def looked(state, batches):
    return jax.device_get(tiny.look_at_full()(state, batches, tiny.CLOCK))


@pytest.fixture(scope="module")
def chance():
    """What terms draw, from their own keys: others' actions, virtual actions, noise below the bits."""
    shape = (tiny.STEPS, tiny.WINDOWS, tiny.SAMPLES, tiny.ACTIONS)
    virtual, _ = jax.random.split(tiny.term_key("cycle", tiny.CLOCK))
    cycle = jax.random.uniform(virtual, (tiny.STEPS, tiny.COPIES * tiny.WINDOWS, tiny.ACTIONS), minval=-1.0)
    return {
        "vcr": np.asarray(jax.random.uniform(tiny.term_key("vcr", tiny.CLOCK), shape, minval=-1.0)),
        "cycle": np.asarray(cycle).reshape(tiny.STEPS, tiny.COPIES, tiny.WINDOWS, tiny.ACTIONS),
        "reconstruction": np.asarray(
            jax.random.uniform(
                tiny.term_key("reconstruction", tiny.CLOCK), (tiny.WINDOWS, 16, 16, tiny.STACK)
            )
        ),
    }


@pytest.fixture(scope="module")
def by_hand(state, batches, chance):
    """nets, name -> loss. Targets and what else carries no gradient come from the state, whatever the nets."""
    held, target, noise = hand.numbers(state.online), hand.numbers(state.target), tiny.streams(tiny.CLOCK)[1]
    rl, aux = batches
    one = jax.random.split(noise[0], 1)[0]
    y = hand.soft_target(
        held, target, hand.image(rl.boot_obs[0]), normals(one, tiny.BATCH), rl.returns[0], rl.discount[0]
    )
    count = tiny.STEPS * tiny.WINDOWS
    ahead = hand.soft_target(
        held,
        target,
        hand.image(aux.boot_obs[1:]),
        normals(noise[1], count),
        aux.returns[1:],
        aux.discount[1:],
    )
    picture, actor_normal = hand.image(rl.obs[0]), normals(noise[2], tiny.BATCH)
    entropy = -np.mean(hand.drawn(held, picture, actor_normal)[1])

    def loss(nets, name):
        if name == "critic":
            return hand.critic_loss(nets, picture, rl.action[0], y)
        if name == "actor":
            return hand.actor_loss(nets, held, picture, actor_normal)
        if name == "temperature":
            return np.exp(nets.log_alpha) * (entropy + tiny.ACTIONS)
        return hand.term_losses(nets, target, aux, ahead, chance)[name]

    return loss


def normals(k, count):
    return np.asarray(jax.random.normal(k, (count, tiny.ACTIONS)))


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_equals_its_equation(looked, by_hand, state, name):
    assert float(looked[name][0]) == pytest.approx(by_hand(hand.numbers(state.online), name), rel=1e-4)
    assert abs(float(looked[name][0])) > 1e-2


TRUNK, CONVS = ".encoder.trunk", ".encoder.convs"
REACHES = {
    "critic": [TRUNK, CONVS, ".q_head"],
    "spr": [TRUNK, CONVS, ".transition", ".projection", ".prediction"],
    "vcr": [TRUNK, CONVS, ".transition", ".q_head"],
    "cycle": [TRUNK, CONVS, ".transition", ".projection", ".prediction", ".backward"],
    "crops": [TRUNK, CONVS, ".likeness"],
    "reconstruction": [TRUNK, CONVS, ".decoder"],
    "actor": [TRUNK, ".q_head", ".actor"],  # of which its step moves the last alone
    "temperature": [".log_alpha"],
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_reaches_exactly_its_nets(looked, name):
    gradient = tiny.leaves(looked[name][1])
    reached = {path for path, g in gradient.items() if np.any(g != 0)}
    assert reached == {path for path in gradient if path.startswith(tuple(REACHES[name]))}
    assert all(np.isfinite(g).all() for g in gradient.values())


@pytest.mark.parametrize("name", LOSSES)
def test_the_gradient_is_the_slope_where_targets_are_held(looked, by_hand, state, name):
    """Along a random direction of each part, by central differences. A gradient through a target would show."""
    nets, gradient = hand.numbers(state.online), hand.numbers(looked[name][1])
    rng, size = np.random.default_rng(0), 1e-6
    for part in vars(nets):
        along = jax.tree.map(lambda x: rng.normal(size=x.shape), getattr(nets, part))
        ends = []
        for sign in (1, -1):
            moved = jax.tree.map(lambda x, d, s=sign: x + s * size * d, getattr(nets, part), along)
            replaced = jax.tree.map(lambda x: x, nets)
            object.__setattr__(replaced, part, moved)
            ends.append(by_hand(replaced, name))
        slope = (ends[0] - ends[1]) / (2 * size)
        dots = jax.tree.map(lambda g, d: np.sum(g * d), getattr(gradient, part), along)
        assert sum(jax.tree.leaves(dots)) == pytest.approx(slope, rel=2e-3, abs=2e-4), part


def test_the_temperature_falls_where_the_policy_is_too_random_and_rises_where_it_is_not(looked):
    """d/d log_alpha of alpha (H + |a|) is alpha (H + |a|); Adam steps against its sign."""
    value, pull, metrics = looked["temperature"]
    entropy = float(looked["actor"][2]["entropy"])
    assert float(metrics["alpha"]) == pytest.approx(0.3, rel=1e-5)
    assert float(pull.log_alpha) == pytest.approx(0.3 * (entropy + tiny.ACTIONS), rel=1e-5)
    assert float(value) == float(pull.log_alpha)


def test_nothing_is_bootstrapped_behind_a_terminal(state, batches):
    """The second transition was terminal: its target is its reward, whatever the other picture shows."""
    rl = batches.rl

    @jax.jit
    def find(image):
        states = state.target.encoder(image)[None]
        return soft_target(state.online, state.target, image, states, jax.random.key(0), rl)

    one, two = (np.asarray(find(rl.boot_obs[0, order] / 255)) for order in ([0, 1, 2, 3], [0, 2, 1, 3]))
    np.testing.assert_array_equal(one[0, 1], np.full(2, rl.returns[0, 1]))
    np.testing.assert_array_equal(one[0, 1], two[0, 1])
    assert one[0, 2, 0] != two[0, 2, 0]
    np.testing.assert_array_equal(one[..., 0], one[..., 1])  # one target for both critics


# DrQ


def test_two_draws_average_their_targets_and_add_their_losses(state, batches):
    """DrQ: each draw has its own look at both states and its own action."""
    agent = tiny.agent(tiny.config(draws=2, augment=Augment(shift=3), terms=ControlTerms()))
    rl, (aug, noise) = batches.rl, tiny.streams(tiny.CLOCK)
    find = jax.jit(lambda s: critic_loss(tiny.setup(agent), s.target, rl, aug[0], noise[0], s.online)[0])
    looks, noises = jax.random.split(aug[0], (2, 2)), jax.random.split(noise[0], 2)
    shown = jax.jit(lambda k, obs: augment(k, obs, shift=3, intensity=0.0))
    nets, target = hand.numbers(state.online), hand.numbers(state.target)
    seen, ahead = (
        [np.asarray(shown(looks[i, j], obs), np.float64)[0] for i in range(2)]
        for j, obs in ((0, rl.obs), (1, rl.boot_obs))
    )
    assert all((a != b).any() for a, b in (seen, ahead))
    y = [
        hand.soft_target(
            nets, target, ahead[i], normals(noises[i], tiny.BATCH), rl.returns[0], rl.discount[0]
        )
        for i in range(2)
    ]
    assert np.abs(y[0] - y[1]).max() > 1e-2
    expected = sum(hand.critic_loss(nets, look, rl.action[0], np.mean(y, axis=0)) for look in seen)
    assert float(find(state)) == pytest.approx(expected, rel=1e-4)


# The policy


def test_the_density_of_an_action_is_the_slope_of_its_distribution():
    """P(a' <= a) = Phi((artanh a - mean) / deviation), by hand; the log-probability must be the log of its slope."""
    mean, log_std = np.array([0.3, -0.8, 0.0]), np.array([-0.5, 0.4, -2.0])
    normal = np.random.default_rng(0).normal(size=(50, 3))
    action, log_prob = Policy(
        *(jnp.asarray(np.broadcast_to(x, (50, 3)), jnp.float32) for x in (mean, log_std))
    ).draw(jnp.asarray(normal, jnp.float32))
    exact = np.tanh(mean + np.exp(log_std) * normal)
    np.testing.assert_allclose(action, exact, atol=1e-5)

    def below(a):
        return norm.cdf((np.arctanh(a) - mean) / np.exp(log_std))

    size = 1e-7 * (1 - exact**2)
    slope = (below(exact + size) - below(exact - size)) / (2 * size)
    np.testing.assert_allclose(log_prob, np.log(slope).sum(axis=-1), atol=2e-3)


def test_an_action_at_the_rim_has_a_finite_density():
    far = Policy(jnp.full((1, 2), 40.0), jnp.zeros((1, 2)))
    action, log_prob = far.draw(jnp.zeros((1, 2)))
    np.testing.assert_array_equal(action, 1.0)
    # Two times -log sqrt(2 pi) - log 1e-6
    assert float(log_prob[0]) == pytest.approx(2 * (-0.918939 + 13.815511), rel=1e-5)
    slope = jax.grad(lambda m: Policy(m, jnp.zeros((1, 2))).draw(jnp.zeros((1, 2)))[1][0])(far.mean)
    assert np.isfinite(slope).all()


# How value consistency reads twin critics


@pytest.mark.parametrize(("least", "expected"), [(False, [[1, 2], [3, 0]]), (True, [[1, 1], [0, 0]])])
def test_the_target_is_each_critics_own_or_the_lesser(least, expected):
    values = TwinValues(2, 3, least)
    np.testing.assert_array_equal(values.as_target(jnp.array([[1.0, 2.0], [3.0, 0.0]])), expected)
    slope = jax.grad(lambda x: jnp.sum(values.as_target(x)))(jnp.ones((2, 2)))
    np.testing.assert_array_equal(slope, 0)


class Show(TwinQ):
    """Critics that return the action they are asked about."""

    def __call__(self, state, action):
        return action


def test_the_others_are_the_same_random_actions_on_both_sides():
    """Uniform, fresh for each state, and equal for equal keys, whatever the states."""
    values, show = TwinValues(2, 100, False), Show(None, None)

    def parted(fill: float):
        action = jnp.full((3, 5, 2), fill)
        return values.parted(
            values.reading(show, jnp.full((3, 5, 4), fill), action, jax.random.key(0)), action
        )

    (zeros, one, keep), (ones, two, _) = parted(0.0), parted(1.0)
    np.testing.assert_array_equal(one, two)
    assert zeros.shape == ones.shape == (3, 5, 2) and (zeros == 0).all() and (ones == 1).all()
    assert one.shape == (3, 5, 100, 2) and keep.shape == (3, 5, 100) and (keep == 1).all()
    flat = np.sort(np.asarray(one), axis=None)
    assert len(np.unique(flat)) > 0.99 * flat.size and flat[0] >= -1 and flat[-1] < 1
    assert kstest(flat, uniform(-1, 2).cdf).pvalue > 1e-4
