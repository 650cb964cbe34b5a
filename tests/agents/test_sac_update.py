"""One update of the continuous base: four gradient steps, each where the one before left off, and slow copies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_sac as tiny

from vcrl.agents import sac
from vcrl.agents.base import whole_update
from vcrl.agents.sac import descents
from vcrl.agents.soft import SACNets
from vcrl.core.types import Clock
from vcrl.methods.configs import Auxiliary, ControlTerms, SACConfig, Temperature

RATE, EPSILON, CLIP = 1e-2, 1e-3, 1.5  # those of the tiny agent
REST = (".q_head", ".transition", ".projection", ".prediction", ".backward", ".likeness", ".decoder")
RATES = {
    "critic": {".encoder": RATE, ".q_head": RATE},
    "auxiliary": {".encoder": 2 * RATE} | dict.fromkeys(REST, RATE / 2),
    "actor": {".actor": RATE},
    "temperature": {".log_alpha": 3e-2},
}
# 700 agent steps of 4 env steps each; the ramps have 4000 and 3000 of these.
WEIGHTS = {
    "spr": 0.8,
    "vcr": 0.7 * np.exp(-5 * (1 - 2801 / 4000) ** 2),
    "cycle": 0.6 * np.exp(-5 * (1 - 2801 / 3000) ** 2),
    "crops": 0.5,
    "reconstruction": 0.4,
}


class ByHand:
    """The same updates, out of gradients at given nets and arithmetic in NumPy."""

    def __init__(self, state, batches):
        self.state, self.batches, self.look = state, batches, tiny.look_at_full()
        self.nets = {path: x.astype(np.float64) for path, x in tiny.leaves(state.online).items()}
        self.moments = {name: ({}, {}) for name in RATES}
        self.steps = dict.fromkeys(RATES, 0)
        self.bites = []

    def pulls(self, clock):
        def placed(path, x):
            return jnp.asarray(self.nets[jax.tree_util.keystr(path)], x.dtype)

        online = jax.tree_util.tree_map_with_path(placed, self.state.online)
        looked = self.look(self.state._replace(online=online), self.batches, clock)
        return {
            name: {path: g.astype(np.float64) for path, g in tiny.leaves(pull).items()}
            for name, (_, pull, _) in looked.items()
        }

    def adam(self, name, gradient, momentum=0.9):
        self.steps[name] += 1
        t, (first, second) = self.steps[name], self.moments[name]
        for path, g in gradient.items():
            rate = next((r for part, r in RATES[name].items() if path.startswith(part)), None)
            if rate is None:
                continue
            first[path] = momentum * first.get(path, 0) + (1 - momentum) * g
            second[path] = 0.999 * second.get(path, 0) + 0.001 * g**2
            root = np.sqrt(second[path] / (1 - 0.999**t))
            self.nets[path] = self.nets[path] - rate * first[path] / (1 - momentum**t) / (root + EPSILON)

    def clip(self, gradient, *parts):
        mine = [path for path in gradient if path.startswith(parts)]
        length = np.sqrt(sum(np.sum(gradient[path] ** 2) for path in mine))
        self.bites.append(length > CLIP)
        return gradient | {path: gradient[path] * min(1, CLIP / length) for path in mine}

    def update(self, clock):
        self.adam("critic", self.pulls(clock)["critic"])
        pulls = self.pulls(clock)
        total = {p: sum(w * pulls[name][p] for name, w in WEIGHTS.items()) for p in self.nets}
        self.adam("auxiliary", self.clip(self.clip(total, ".encoder"), ".encoder", *REST))
        if clock.updates % 2 == 1:  # after every second one
            pulls = self.pulls(clock)
            self.adam("actor", pulls["actor"])
            self.adam("temperature", pulls["temperature"], momentum=0.5)
            target = {}
            for path, old in tiny.leaves(self.state.target).items():
                rate = 0.125 if path.startswith(".q_head") else 0.25
                target[path] = rate * self.nets[path] + (1 - rate) * old
            self.state = self.state._replace(
                target=jax.tree_util.tree_map_with_path(
                    lambda path, x: jnp.asarray(target[jax.tree_util.keystr(path)], x.dtype),
                    self.state.target,
                )
            )


@pytest.fixture(scope="module")
def three():
    """States before, between and after three updates, of which the second is a second one; what each told."""
    agent, now = tiny.full(), tiny.CLOCK
    update, states, told = jax.jit(whole_update(agent)), [tiny.state(agent)], []
    for _ in range(3):
        state, result = update(states[-1], tiny.batches(agent), now, tiny.SEED)
        assert result.priority is None
        states, told = [*states, state], [*told, jax.device_get(result.metrics)]
        now = now._replace(updates=now.updates + 1)
    return states, told


def test_two_updates_are_six_steps_of_adam(three):
    """Each at its own rates, on the gradient where the step before left off; the terms' clipped in two groups."""
    by_hand = ByHand(three[0][0], tiny.batches(tiny.full()))
    for i in (0, 1):
        by_hand.update(Clock(tiny.CLOCK.agent_steps, tiny.CLOCK.updates + i))
        moved = tiny.leaves(three[0][i + 1].online)
        for path, expected in by_hand.nets.items():
            np.testing.assert_allclose(moved[path], expected, atol=5e-6, err_msg=path)
            by_hand.nets[path] = moved[path].astype(np.float64)  # so that rounding does not grow
        for path, expected in tiny.leaves(by_hand.state.target).items():
            np.testing.assert_allclose(
                tiny.leaves(three[0][i + 1].target)[path], expected, atol=2e-6, err_msg=path
            )
    assert all(by_hand.bites), "both limits should bite"


def different(one, two):
    one, two = tiny.leaves(one), tiny.leaves(two)
    return {path for path in one if not np.array_equal(one[path], two[path])}


def of(tree, *parts):
    return {path for path in tiny.leaves(tree) if path.startswith(parts)}


def test_actor_temperature_and_slow_copies_move_at_every_second_update_only(three):
    states, _ = three
    learn = of(states[0].online, ".encoder", *REST)
    rarely = of(states[0].online, ".actor", ".log_alpha")
    for i, due in enumerate((False, True, False)):
        before, after = states[i], states[i + 1]
        assert different(before.online, after.online) == (learn | rarely if due else learn)
        assert different(before.target, after.target) == (of(before.target, "") if due else set())
        for name in ("actor", "temperature"):
            assert bool(different(before.opt[name], after.opt[name])) == due
            assert int(after.opt[name].count) == (i + 1) // 2
        for name in ("critic", "auxiliary"):
            assert int(after.opt[name].count) == i + 1


def test_what_is_told_of_rare_steps_stays_until_the_next(three):
    _, told = three
    for name in sac.SELDOM:
        assert told[0][name] == 0 and told[1][name] != 0 and told[2][name] == told[1][name]
    assert told[1]["alpha"] == pytest.approx(0.3, rel=1e-5)
    names = {f"loss/{name}" for name in (*WEIGHTS, "rl", "actor", "temperature")}
    more = {"q", "state/spread", "alpha", "entropy", "vcr/taken", "vcr/others", "reconstruction/error"}
    assert told[0].keys() == names | more


@pytest.mark.slow
def test_gradient_norms_are_those_of_the_weighted_losses():
    """On the parts that their step moves, at the same draws as an update's; of an agent with one of the terms."""
    state, batches = tiny.state(tiny.full()), tiny.batches(tiny.full())
    pulls = ByHand(state, batches).pulls(tiny.CLOCK)
    agent = tiny.agent(tiny.config(terms=ControlTerms(spr=tiny.ALL.spr)))
    nets = state.online
    parts = (nets.encoder, nets.q_head, nets.actor, nets.log_alpha)
    online = SACNets(*parts, nets.transition, nets.projection, nets.prediction)
    norms = jax.jit(agent.gradient_norms)(state._replace(online=online), batches, tiny.CLOCK, tiny.SEED)

    def length(name):
        return np.sqrt(sum(np.sum(g**2) for g in pulls[name].values()))

    expected = {"grad_norm/rl": length("critic"), "grad_norm/spr": 0.8 * length("spr")}
    assert {name: float(x) for name, x in norms.items()} == pytest.approx(expected, rel=1e-4)


# The numbers of the references


def test_the_defaults_are_the_references():
    steps = descents(SACConfig())
    assert steps["critic"].rates == {"encoder": 1e-3, "q_head": 1e-3}
    assert steps["actor"].rates == {"actor": 1e-3}
    assert steps["temperature"].rates == {"log_alpha": 1e-3} and steps["temperature"].momentum == 0.5
    assert {step.momentum for name, step in steps.items() if name != "temperature"} == {0.9}
    assert {step.epsilon for step in steps.values()} == {1e-8}
    rest = ("transition", "projection", "prediction", "backward", "likeness", "decoder", "own")
    aux = steps["auxiliary"]
    assert aux.rates == {"encoder": 1e-3} | dict.fromkeys(rest, 5e-4)
    assert aux.clip == ((10.0, ("encoder",)), (10.0, ("encoder", *rest)))
    target = SACConfig().target
    assert (target.encoder, target.critics, target.every) == (0.05, 0.01, 2)
    assert Temperature() == Temperature(start=0.1, rate=1e-3, momentum=0.5)


@pytest.mark.parametrize(("heads", "expected"), [(True, 5e-4), (False, None)])
def test_value_consistency_moves_the_critics_unless_told_not_to(heads, expected):
    terms = ControlTerms(spr=tiny.ALL.spr, vcr=tiny.ALL.vcr)
    aux = descents(SACConfig(terms=terms, auxiliary=Auxiliary(heads=heads)))["auxiliary"]
    assert aux.rates.get("q_head") == expected
    assert ("q_head" in aux.clip[1][1]) == heads
    without = descents(SACConfig(terms=ControlTerms(spr=tiny.ALL.spr), auxiliary=Auxiliary(heads=heads)))
    assert "q_head" not in without["auxiliary"].rates
