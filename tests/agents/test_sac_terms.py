"""What the terms of the continuous base see: augmented looks, weights that follow env steps, other returns."""

import jax
import jax.numpy as jnp
import numpy as np
import numpy_sac as hand
import pytest
import tiny_sac as tiny

from vcrl.agents.soft import critic_loss, look_ahead, term_losses, term_weights
from vcrl.core.spec import EnvSpec
from vcrl.core.types import Clock
from vcrl.methods.configs import VCR, Augment, Continuous, ControlTerms
from vcrl.nets import tiles
from vcrl.nets.augment import augment

LOOK = Augment(shift=2, intensity=0.3)
BOTH = ControlTerms(spr=tiny.ALL.spr, vcr=tiny.ALL.vcr, crops=tiny.ALL.crops)
SETUPS = {
    "seen anew": tiny.setup(tiny.agent(tiny.config(terms=BOTH, augment=LOOK))),
    "least": tiny.setup(
        tiny.agent(
            tiny.config(terms=ControlTerms(vcr=tiny.ALL.vcr), continuous=Continuous(tiny.SAMPLES, True))
        )
    ),
    "real": tiny.setup(
        tiny.agent(tiny.config(terms=ControlTerms(vcr=VCR(steps=tiny.STEPS, taken="real", others="none"))))
    ),
}


@pytest.fixture(scope="module")
def state():
    """With every part: a term reads those it needs."""
    return tiny.state(tiny.full())


@pytest.fixture(scope="module")
def windows():
    return tiny.batches(tiny.full()).aux


@pytest.fixture(scope="module")
def named(state, windows):
    """The terms of every variant."""
    aug, noise = tiny.streams(tiny.CLOCK)

    def every(state):
        arguments = (state.target, windows, tiny.CLOCK, tiny.SEED, aug[1], noise[1], state.online)
        return {name: term_losses(setup, *arguments)[0] for name, setup in SETUPS.items()}

    return jax.device_get(jax.jit(every)(state))


shown = jax.jit(augment, static_argnames=("shift", "intensity"))


def seen(k, obs):
    return np.asarray(shown(k, obs, shift=2, intensity=0.3), np.float64)


def test_terms_see_every_stack_shifted_and_brightened_by_itself(named, state, windows):
    """The start once; each later state once, for its likeness, for Q_T and for its own soft target alike."""
    (aug, noise), action = tiny.streams(tiny.CLOCK), np.asarray(windows.action, np.float64)
    nets, target = hand.numbers(state.online), hand.numbers(state.target)
    first, second = jax.random.split(aug[1])
    start = hand.encoded(nets.encoder, seen(first, windows.obs[:1])[0])
    ahead = seen(jax.random.split(second)[0], windows.boot_obs)  # t+1 .. t+K+1
    assert len(np.unique(np.round(ahead.reshape(-1, 16, 16, 2).max(axis=(1, 2, 3)), 6))) == 9  # a factor each
    imagined, real = (
        hand.rolled(nets.transition, start, action[:-1]),
        hand.encoded(target.encoder, ahead[:-1]),
    )
    spr = hand.apart(hand.predicted(nets, imagined), hand.mlp(target.projection, real)).sum(axis=0)
    assert float(named["seen anew"]["spr"]) == pytest.approx(spr.mean(), rel=1e-4)

    normal = jax.random.normal(noise[1], (tiny.STEPS * tiny.WINDOWS, tiny.ACTIONS))
    y = hand.soft_target(nets, target, ahead[1:], normal, windows.returns[1:], windows.discount[1:])
    shape = (tiny.STEPS, tiny.WINDOWS, tiny.SAMPLES, tiny.ACTIONS)
    others = jax.random.uniform(tiny.term_key("vcr", tiny.CLOCK, BOTH), shape, minval=-1.0)
    vcr = consistency(nets, target, imagined, real, action[1:], y, others)
    assert float(named["seen anew"]["vcr"]) == pytest.approx(vcr, rel=1e-4)

    one, two = jax.random.split(tiny.term_key("crops", tiny.CLOCK, BOTH))
    anchor = hand.encoded(nets.encoder, seen(one, windows.obs[:1])[0])
    other = hand.encoded(target.encoder, seen(two, windows.obs[:1])[0])
    likeness = np.exp(anchor @ nets.likeness.bilinear @ other.T)
    crops = -np.mean(np.log(np.diagonal(likeness) / likeness.sum(axis=1)))
    assert float(named["seen anew"]["crops"]) == pytest.approx(crops, rel=1e-4)


def consistency(nets, target, imagined, real, action, y, others, least=False):
    """L_VCR with the sum over critics and steps written out."""
    total = 0.0
    for k, b in np.ndindex(*y.shape):
        total += np.sum((hand.critics(nets.q_head, imagined[k, b], action[k, b]) - y[k, b]) ** 2)
        for a in np.asarray(others[k, b], np.float64):
            known = hand.critics(target.q_head, real[k, b], a)
            known = known.min() if least else known
            total += (
                0.1 * np.sum((hand.critics(nets.q_head, imagined[k, b], a) - known) ** 2) / len(others[k, b])
            )
    return total / y.shape[1]


def plain(state, windows):
    """Nets, and states imagined and real, without augmentation."""
    nets, target = hand.numbers(state.online), hand.numbers(state.target)
    start = hand.encoded(nets.encoder, hand.image(windows.obs[0]))
    imagined = hand.rolled(nets.transition, start, np.asarray(windows.action, np.float64)[:-1])
    return nets, target, imagined, hand.encoded(target.encoder, hand.image(windows.obs[1:]))


def test_the_other_actions_can_be_held_against_the_lesser_critic(named, state, windows):
    nets, target, imagined, real = plain(state, windows)
    normal = jax.random.normal(tiny.streams(tiny.CLOCK)[1][1], (tiny.STEPS * tiny.WINDOWS, tiny.ACTIONS))
    y = hand.soft_target(
        nets, target, hand.image(windows.boot_obs[1:]), normal, windows.returns[1:], windows.discount[1:]
    )
    shape = (tiny.STEPS, tiny.WINDOWS, tiny.SAMPLES, tiny.ACTIONS)
    others = jax.random.uniform(
        tiny.term_key("vcr", tiny.CLOCK, ControlTerms(vcr=tiny.ALL.vcr)), shape, minval=-1.0
    )
    arguments = (nets, target, imagined, real, np.asarray(windows.action, np.float64)[1:], y, others)
    expected, own = consistency(*arguments, least=True), consistency(*arguments)
    assert float(named["least"]["vcr"]) == pytest.approx(expected, rel=1e-4)
    assert abs(expected - own) > 1e-3


def test_d_mse_holds_the_taken_action_against_the_target_critics(named, state, windows):
    nets, target, imagined, real = plain(state, windows)
    action = np.asarray(windows.action, np.float64)[1:]
    apart = hand.critics(nets.q_head, imagined, action) - hand.critics(target.q_head, real, action)
    assert float(named["real"]["vcr"]) == pytest.approx(np.sum(apart**2) / tiny.WINDOWS, rel=1e-4)


def test_brightness_is_for_the_terms_alone(state):
    """The critics' looks are shifted, and as bright as they were."""
    rl, (aug, noise) = tiny.batches(tiny.full()).rl, tiny.streams(tiny.CLOCK)

    def loss(change):
        setup = tiny.setup(tiny.agent(tiny.config(augment=change)))
        return critic_loss(setup, state.target, rl, aug[0], noise[0], state.online)[0]

    one, two, three = jax.jit(lambda: [loss(c) for c in (LOOK, Augment(shift=2), Augment())])()
    assert float(one) == float(two) != float(three)


def test_longer_returns_bootstrap_where_they_end(state):
    """n = 2: the state to bootstrap from is not the next real one, so each has a look of its own."""
    agent = tiny.agent(tiny.config(n_step=2, terms=ControlTerms(vcr=tiny.ALL.vcr)))
    windows = tiny.segment(tiny.STEPS, tiny.STEPS + 1, tiny.WINDOWS)
    far = tiny.segment(tiny.STEPS, tiny.STEPS + 1, tiny.WINDOWS, seed=9)
    windows = windows._replace(boot_obs=far.obs, discount=windows.discount**2)
    aug, noise = tiny.streams(tiny.CLOCK)
    real, y = jax.jit(lambda s: look_ahead(tiny.setup(agent), s.online, s.target, windows, aug[1], noise[1]))(
        state
    )
    nets, target = hand.numbers(state.online), hand.numbers(state.target)
    normal = jax.random.normal(noise[1], (tiny.STEPS * tiny.WINDOWS, tiny.ACTIONS))
    expected = hand.soft_target(
        nets, target, hand.image(far.obs[1:]), normal, windows.returns[1:], windows.discount[1:]
    )
    np.testing.assert_allclose(y[1:], np.stack([expected] * 2, axis=-1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        real, hand.encoded(target.encoder, hand.image(windows.obs[1:])), rtol=1e-4, atol=1e-5
    )


# Weights


def test_ramps_count_env_steps():
    """A step of the agent is four of them here; SPR and the pictures' terms have no ramp."""
    setup = tiny.setup(tiny.full())
    for agent_steps, vcr, cycle in (
        (0, 0.7 * np.exp(-5 * (1 - 1 / 4000) ** 2), 0.6 * np.exp(-5 * (1 - 1 / 3000) ** 2)),
        (500, 0.7 * np.exp(-5 * (1 - 2001 / 4000) ** 2), 0.6 * np.exp(-5 * (1 - 2001 / 3000) ** 2)),
        (750, 0.7 * np.exp(-5 * (1 - 3001 / 4000) ** 2), 0.6),
        (1000, 0.7, 0.6),
    ):
        weights = term_weights(setup, Clock(jnp.asarray(agent_steps), jnp.asarray(0)))
        expected = {"spr": 0.8, "vcr": vcr, "cycle": cycle, "crops": 0.5, "reconstruction": 0.4}
        assert {name: float(w) for name, w in weights.items()} == pytest.approx(expected, rel=1e-5)


# What is asked of the replay


def test_windows_are_whole_and_apart_from_single_transitions():
    rl, aux = tiny.full().sample
    assert (rl.batch, rl.steps, rl.targets, rl.n, rl.whole, rl.fill) == (tiny.BATCH, 0, 1, 1, False, "first")
    assert (aux.batch, aux.steps, aux.targets, aux.whole) == (tiny.WINDOWS, tiny.STEPS, tiny.STEPS + 1, True)
    assert not rl.prioritised and not aux.prioritised and tiny.full().steps == tiny.STEPS
    alone = tiny.agent(tiny.config(terms=ControlTerms()))
    assert alone.sample.aux is None and alone.steps == 0 and alone.samples == [alone.sample.rl]


@pytest.mark.parametrize(("backend", "encoder", "kernels", "decoder", "large", "in_turn"), [
    ("gpu", "control", True, False, True, False), ("gpu", "control", False, False, True, True),
    ("gpu", "control", True, True, True, True),
    ("gpu", "small", True, True, False, False), ("gpu", "small", False, True, False, False),
    ("cpu", "control", False, True, False, False),
])  # fmt: skip
def test_seeds_learn_one_by_one_where_the_library_goes_back_to_large_images(
    monkeypatch, backend, encoder, kernels, decoder, large, in_turn
):
    """As it does on a GPU without kernels, and in a decoder. In half precision such images are seen by every GPU."""
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(tiles, "obstacle", lambda: None if kernels else "it is old")
    config = tiny.config(encoder=encoder, terms=tiny.ALL if decoder else BOTH)
    agent = tiny.agent(config, EnvSpec((40, 40, 1), tiny.SPEC.actions))
    nets = jax.eval_shape(agent.init, jnp.asarray(0)).online
    assert (agent.large, nets.encoder.convs.halves, agent.alone) == (large, large, in_turn)
    assert (nets.decoder is not None) is decoder
