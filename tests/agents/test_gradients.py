"""What each loss is, what it pulls at, and what it must leave alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_agent as tiny

from vcrl.agents import greedy
from vcrl.methods.configs import SPR, Slow, Terms

HEAD = [f".q_head.{stream}[{i}]" for stream in ("advantage", "value") for i in (0, 1)]
FIRST = [f".q_head.{stream}[0]" for stream in ("advantage", "value")]
MU, SIGMA = (".weight", ".bias"), (".weight_sigma", ".bias_sigma")
WHOLE_HEAD = {layer + part for layer in HEAD for part in MU + SIGMA}

# Which parameters a loss reaches; every other one must get exactly nothing.
REACHES = {
    "rl": (".encoder",),
    "spr": (".encoder", ".transition", ".prediction"),
    "vcr": (".encoder", ".transition"),
    "d_mse": (".encoder", ".transition"),
    "d_mse_a": (".encoder", ".transition"),
}
REACHES_IN_HEAD = {name: WHOLE_HEAD for name in REACHES} | {
    "spr": {
        layer + part for layer in FIRST for part in MU
    }  # the projection: mean weights of the first layers
}


@pytest.fixture(scope="module")
def looked(pulls, state):
    return pulls(state, tiny.segment(), tiny.CLOCK, tiny.SEED)


@pytest.fixture(scope="module")
def by_hand(readings, state):
    segment = tiny.segment()
    return tiny.by_hand(readings(state, segment, *tiny.noises()), segment)


@pytest.mark.parametrize("name", REACHES)
def test_a_loss_reaches_exactly_its_nets(looked, name):
    gradient = tiny.leaves(looked[1][name].online)
    reached = {path for path, g in gradient.items() if np.any(g != 0)}
    parts = {path for path in gradient if path.startswith(REACHES[name])}
    assert reached == parts | REACHES_IN_HEAD[name]
    assert all(np.isfinite(g).all() for g in gradient.values())


def test_every_parameter_is_reached_by_some_loss(looked):
    online = tiny.leaves(looked[1]["rl"].online)
    assert (
        len(online) == 2 * 2 + 4 * 4 + (2 + 2 + 2) + 2
    )  # convolutions, noisy layers, transition, prediction
    untouched = set(online)
    for name in ("rl", "spr", "vcr"):
        untouched -= {path for path, g in tiny.leaves(looked[1][name].online).items() if np.any(g != 0)}
    assert not untouched


@pytest.mark.parametrize("name", [*REACHES, "single"])
def test_no_loss_pulls_at_its_targets(looked, name):
    pull = looked[1][name]
    for what in (pull.target, pull.frozen):
        for path, g in tiny.leaves(what).items():
            assert not np.any(g), path


def test_targets_do_matter(pulls, state, looked):
    """The zeros above say something only if the losses look at the targets at all."""
    other = jax.tree.map(lambda x: 1.1 * x, state.target)
    moved, _ = pulls(state._replace(target=other), tiny.segment(), tiny.CLOCK, tiny.SEED)
    for name, loss in looked[0].items():
        assert abs(float(moved[name] - loss)) > 1e-5, name


@pytest.mark.parametrize("name", [*REACHES, "single"])
def test_a_loss_equals_its_equation(looked, by_hand, name):
    """Assembled in NumPy from plain calls of the nets: targets, projections, masks, means and weights."""
    expected = np.mean(np.asarray(tiny.segment().weight) * by_hand[name])
    assert float(looked[0][name]) == pytest.approx(expected, rel=2e-5)


def test_double_q_makes_a_difference(by_hand):
    """Otherwise the equality of the two ways of choosing an action would prove nothing."""
    assert np.abs(by_hand["rl"] - by_hand["single"]).max() > 1e-3


@pytest.mark.parametrize("swapped", ["online", "target"])
def test_the_online_head_has_this_updates_noise_and_the_target_head_the_last(
    looked, readings, state, swapped
):
    """That the losses equal their equations says so already, if the noise is seen in them."""
    online, target = tiny.noises()
    noise = (target, target) if swapped == "online" else (online, online)
    wrong = tiny.by_hand(readings(state, tiny.segment(), *noise), tiny.segment())
    for name in ("rl", "vcr", "d_mse"):
        expected = np.mean(np.asarray(tiny.segment().weight) * wrong[name])
        assert abs(float(looked[0][name]) - expected) > 1e-3


def test_spr_sees_no_noise(pulls, state, looked):
    later = tiny.CLOCK._replace(updates=tiny.CLOCK.updates + 7)
    losses, _ = pulls(state, tiny.segment(), later, tiny.SEED)
    assert float(losses["spr"]) == float(looked[0]["spr"])
    assert float(losses["rl"]) != float(looked[0]["rl"])


def test_without_a_copy_the_online_weights_are_the_target(state):
    """The one pass that serves all three kinds of state gives what three passes give."""
    with_copy = tiny.setup(tiny.agent(tiny.config()))
    without = tiny.setup(tiny.agent(tiny.config(target=Slow())))

    @jax.jit
    def both(state):
        arguments = (tiny.segment(), tiny.CLOCK, tiny.SEED)
        copied = state._replace(target=state.online)
        one = greedy.losses(with_copy, state.online, copied, *arguments)
        two = greedy.losses(without, state.online, state._replace(target=None), *arguments)
        return one, two

    (one, rest), (two, more) = both(state)
    for a, b in zip(jax.tree.leaves((one, rest)), jax.tree.leaves((two, more)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_the_running_statistics_pass_over_every_imagined_step(state, readings):
    setup = tiny.setup(tiny.agent(tiny.config()))
    stats = jax.jit(lambda s: greedy.losses(setup, s.online, s, tiny.segment(), tiny.CLOCK, tiny.SEED)[1][0])(
        state
    )
    by_hand = readings(state, tiny.segment(), *tiny.noises())["stats"]
    for got, expected, old in zip(stats, by_hand, state.stats, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-6)
        assert np.abs(np.asarray(got - old)).max() > 1e-3


def cut(at: int, terminal: bool) -> tiny.Segment:
    """All windows end at the same offset: by a terminal there, or by a pad row right after it."""
    whole = tiny.segment(seed=1)
    offset = np.arange(tiny.STEPS + 1)[:, None] * np.ones((1, tiny.BATCH), int)
    alive = jnp.asarray(offset <= at, jnp.float32)
    return whole._replace(
        alive=alive,
        terminal=jnp.asarray((offset == at) & terminal),
        returns=whole.returns * alive,
        discount=whole.discount * alive,
    )


def with_junk_after(segment: tiny.Segment, at: int) -> tiny.Segment:
    """Everything behind offset `at` is replaced: observations, actions, rewards, flags, bootstraps."""
    rng, behind = np.random.default_rng(9), slice(at + 1, None)

    def junk(x):
        new = rng.integers(0, 256, x.shape).astype(np.uint8) if x.dtype == jnp.uint8 else None
        return x.at[behind].set(new[behind])

    return segment._replace(
        obs=junk(segment.obs),
        boot_obs=junk(segment.boot_obs),
        action=segment.action.at[behind].set((segment.action[behind] + 1) % tiny.ACTIONS),
        reward=segment.reward.at[behind].add(100),
        terminal=segment.terminal.at[behind].set(~segment.terminal[behind]),
    )


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("at", [0, 1])
def test_what_lies_behind_the_end_of_an_episode_does_not_matter(pulls, state, at, terminal):
    """Observations, actions, rewards and bootstraps behind the last state change no loss and no gradient."""
    segment = cut(at, terminal)
    one = pulls(state, segment, tiny.CLOCK, tiny.SEED)
    two = pulls(state, with_junk_after(segment, at), tiny.CLOCK, tiny.SEED)
    for name in one[0]:
        assert float(one[0][name]) == float(two[0][name]), name
        before, after = tiny.leaves(one[1][name].online), tiny.leaves(two[1][name].online)
        for path in before:
            np.testing.assert_allclose(before[path], after[path], rtol=1e-6, atol=1e-9, err_msg=path)
    counted = {name: float(loss) != 0 for name, loss in one[0].items()}
    # One step after the start exists where the end is at t+1. SPR drops it too if the end is a terminal.
    assert counted == {
        "rl": True, "single": True, "vcr": at == 1, "d_mse": at == 1, "d_mse_a": at == 1,
        "spr": at == 1 and not terminal,
    }  # fmt: skip


@pytest.mark.parametrize("at", [0, 1])
def test_what_lies_before_the_end_does_matter(pulls, state, at):
    """The control of the test above: one offset earlier, and the losses move."""
    segment = cut(at, terminal=False)
    one, _ = pulls(state, segment, tiny.CLOCK, tiny.SEED)
    two, _ = pulls(state, with_junk_after(segment, at - 1), tiny.CLOCK, tiny.SEED)
    assert float(one["rl"]) != float(two["rl"]) or at == 1
    for name in ("spr", "vcr", "d_mse", "d_mse_a"):
        assert (float(one[name]) != float(two[name])) == (at == 1), name


def test_spr_is_one_step_stricter_than_vcr(pulls, state):
    """Sample 2 terminates at t+1: VCR counts that state and SPR does not. Sample 3, truncated: both do."""
    alone = {}
    for sample in range(tiny.BATCH):
        only = tiny.segment()._replace(weight=jnp.asarray(np.arange(tiny.BATCH) == sample, jnp.float32))
        alone[sample], _ = pulls(state, only, tiny.CLOCK, tiny.SEED)
    counts = {name: [float(alone[s][name]) != 0 for s in alone] for name in ("rl", "spr", "vcr", "d_mse")}
    assert counts == {
        "rl": [True, True, True, True],
        "spr": [True, False, False, True],
        "vcr": [True, False, True, True],
        "d_mse": [True, False, True, True],
    }


def test_a_term_imagines_only_as_many_steps_as_it_asks_for(state, readings):
    setup = tiny.setup(tiny.agent(tiny.config(terms=Terms(spr=SPR(steps=1), vcr=tiny.VCR2))))
    segment = tiny.segment()
    losses = jax.jit(lambda s: greedy.losses(setup, s.online, s, segment, tiny.CLOCK, tiny.SEED)[0])(state)
    one_step = segment._replace(alive=segment.alive.at[2:].set(0))
    expected = tiny.by_hand(readings(state, segment, *tiny.noises()), one_step)["spr"]
    assert float(losses["spr"]) == pytest.approx(np.mean(np.asarray(segment.weight) * expected), rel=1e-4)
