"""Continuous methods train on `reach`: lanes are solo runs, stops leave no trace, and every weight moves."""

import io
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_control as tiny
from rich.console import Console
from tiny import assert_same_files

from vcrl.agents import sac
from vcrl.core.config import change
from vcrl.core.protocol import Protocol
from vcrl.core.spec import Box, EnvSpec
from vcrl.core.types import Row, now
from vcrl.methods.continuous import FAMILY
from vcrl.nets import control, encoders, products, tiles
from vcrl.replay import Replay
from vcrl.training.engine import engine_of
from vcrl.training.lift import lift, no_row, packed
from vcrl.training.loop import tick
from vcrl.training.run import train

pytestmark = pytest.mark.usefixtures("quick_compiles")
SPEC, CAPACITY, ROWS = EnvSpec((16, 16, 1), Box(2), horizon=20), 50, 60


# Lanes


def a_row(seed: int, number: int) -> Row:
    """What a seed's lane writes: games of its own, some terminal, some cut."""
    rng = np.random.default_rng([seed, number])
    place = (number + seed) % 14
    pad = place == 13
    return Row(
        frame=rng.integers(0, 256, (16, 16, 1), np.uint8),
        action=np.zeros(2, np.float32) if pad else rng.uniform(-1, 1, 2).astype(np.float32),
        reward=np.float32(0 if pad else rng.normal()),
        terminal=np.bool_(place == 5),
        first=np.bool_(place in (0, 6) or number == 0),
        pad=np.bool_(pad),
    )


def filled(seeds: tuple[int, ...]) -> Replay:
    """A replay of every seed after so many rows, written down as it would be."""
    kept = [next(n for n in range(ROWS - 1, -1, -1) if n % CAPACITY == slot) for slot in range(CAPACITY)]
    rows = [[a_row(seed, number) for number in kept] for seed in seeds]
    arrays = (
        jnp.asarray(np.array([[getattr(row, name) for row in mine] for mine in rows])) for name in Row._fields
    )
    return Replay(*arrays, priority=jnp.ones((len(seeds), CAPACITY)))


def learned(lifted, begin, seeds: tuple[int, ...], updates: int = 4):
    """State and metrics of each lane after some updates, on the host."""
    names, replay = jnp.array(seeds), filled(seeds)
    state = jax.tree.map(lambda *x: jnp.stack(x), *(begin(seed) for seed in seeds))
    for i in range(updates):
        state, replay, (metrics,) = lifted.learn(
            state, replay, no_row(SPEC, len(seeds)), now(20 + i, i, ROWS), names
        )
    whole = jax.device_get((state, metrics))
    return [jax.tree.map(lambda x, i=i: x[i], whole) for i in range(len(seeds))]


def acted(lifted, begin, seeds: tuple[int, ...]) -> np.ndarray:
    """What every seed does in the same two places."""
    state = jax.tree.map(lambda *x: jnp.stack(x), *(begin(seed) for seed in seeds))
    names, chosen = jnp.array(seeds), []
    for place in np.random.default_rng(0).integers(0, 256, (2, 1, 16, 16, 2), np.uint8):
        action, _ = lifted.act(state, np.repeat(place, len(seeds), axis=0), now(500, 0, 0), names)
        chosen.append(np.asarray(action))
    return np.stack(chosen, axis=1)


def agent(method: str):
    config = FAMILY.resolve(method, "toy")
    for path, value in tiny.changes(method).items():
        config = change(config, path, value)
    return sac.make_sac(config, SPEC, Protocol("tiny", 1000, 1, None, 1, 0.0))


def some(shapes, seed: int):
    """Weights of no particular start, so that nothing is compiled to make them."""
    rng = np.random.default_rng(seed)
    start = jax.tree.map(lambda x: jnp.asarray(0.3 * rng.normal(size=x.shape), x.dtype), shapes)
    return start._replace(opt=jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes.opt))


@pytest.mark.parametrize("method", ["sac", pytest.param("vcr", marks=pytest.mark.slow)])
def test_a_lane_learns_what_its_seed_does_alone(monkeypatch, method):
    """All seeds at once by a vmap, and one after the other: two ways of learning from large images, here small ones.

    Half precision, which is asked for by itself, is left out: what it rounds is told in tests/nets. Nobody acts by it.
    """
    lanes, chosen, halved = {}, {}, []

    def in_halves(function, nets, obs, **more):
        halved.append(obs.shape)
        return function(nets, obs)

    def without_gradient(self, obs):
        return jax.lax.stop_gradient(self(obs))

    for module in (control, encoders):
        monkeypatch.setattr(module, "in_halves", in_halves)
    monkeypatch.setattr(encoders.Encoder, "without_gradient", without_gradient)
    for name, alone, halves, seeds in (
        ("solo", False, False, (9,)),
        ("at once", False, True, (4, 9)),
        ("in turn", True, False, (4, 9)),
    ):
        monkeypatch.setattr(sac, "alone", lambda config, alone=alone: alone)
        monkeypatch.setattr(sac, "halves", lambda config, halves=halves: halves)
        made = agent(method)
        shapes = jax.eval_shape(made.init, jnp.asarray(0))
        assert made.alone == alone and made.large == shapes.online.encoder.convs.halves == halves
        lifted = lift(made, SPEC, CAPACITY)
        lanes[name] = learned(lifted, partial(some, shapes), seeds)
        assert bool(halved) == halves
        halved.clear()
        chosen[name] = acted(lifted, partial(some, shapes), seeds)
        assert not halved
    np.testing.assert_allclose(chosen["at once"][1], chosen["solo"][0], atol=1e-5)
    np.testing.assert_allclose(chosen["in turn"], chosen["at once"], atol=1e-5)
    assert (np.abs(chosen["at once"][0] - chosen["at once"][1]) > 1e-3).any()
    own, shown = lanes["solo"][0]
    for name in ("at once", "in turn"):
        state, metrics = lanes[name][1]
        for path, x in tiny.leaves(own).items():
            np.testing.assert_allclose(tiny.leaves(state)[path], x, rtol=1e-3, atol=1e-5, err_msg=path)
        for told in metrics:
            np.testing.assert_allclose(metrics[told], shown[told], rtol=1e-3, atol=1e-4, err_msg=told)
        start, other = tiny.leaves(some(shapes, 9).online), tiny.leaves(lanes[name][0][0].online)
        for path, x in tiny.leaves(own.online).items():
            assert np.abs(x - start[path]).max() > 1e-3, f"{path} should have moved far more than rounding"
            assert (x != other[path]).any(), f"{path} should differ between lanes"


@pytest.mark.slow
def test_halves_and_kernels_move_what_is_learned_by_rounding(monkeypatch):
    """As on a GPU, whose kernels run here too, against float32; all seeds at once both ways."""
    found = []
    for gpu in (False, True):
        monkeypatch.setattr(sac, "halves", lambda config, gpu=gpu: gpu)
        monkeypatch.setattr(tiles, "available", lambda gpu=gpu: gpu)
        monkeypatch.setattr(products, "_halved", lambda weight, x, gpu=gpu: gpu)
        made = agent("vcr")
        shapes = jax.eval_shape(made.init, jnp.asarray(0))
        found.append(learned(lift(made, SPEC, CAPACITY), partial(some, shapes), (4, 9), updates=2))
    for (state, told), (wanted, loss) in zip(found[1], found[0], strict=True):
        for name in loss:
            np.testing.assert_allclose(told[name], loss[name], rtol=2e-3, atol=2e-3, err_msg=name)
        halves, plain = tiny.leaves(state.online), tiny.leaves(wanted.online)
        for path, x in plain.items():
            np.testing.assert_allclose(halves[path], x, atol=4e-3, err_msg=path)
        assert any((halves[path] != x).any() for path, x in plain.items())


def test_a_packed_row_of_vectors_is_stored_as_it_was():
    lifted, seeds = lift(agent("sac"), SPEC, CAPACITY), (4, 9)
    replay = lifted.empty(jnp.array(seeds))
    for number in (0, 5, 6):
        row = Row(*(np.stack(x) for x in zip(*(a_row(seed, number) for seed in seeds), strict=True)))
        replay = lifted.insert(replay, packed(row), now(0, 0, number + 1, True))
        for name in Row._fields:
            np.testing.assert_array_equal(getattr(replay, name)[:, number], getattr(row, name))
    assert replay.action.shape == (2, CAPACITY, 2) and np.abs(replay.action[:, 0]).min() > 0


@pytest.mark.parametrize(
    "method", ["vcr", *(pytest.param(m, marks=pytest.mark.slow) for m in ("drq", "playvirtual"))]
)
def test_no_key_is_used_twice_in_an_update_or_a_look(method):
    """JAX's own checker, over the whole programs of a lane; what is drawn twice on purpose says so."""
    lifted = lift(agent(method), SPEC, CAPACITY)
    with jax.debug_key_reuse(True):
        shapes = [jax.eval_shape(f, jnp.array([0])) for f in (lifted.init, lifted.empty)]
        for program, row in ((lifted.learn, [no_row(SPEC, 1)]), (lifted.probe, [])):
            assert program.trace(*shapes, *row, now(20, 0, ROWS), jnp.array([0])).jaxpr is not None


@pytest.mark.slow
def test_a_seed_trained_in_company_is_the_seed_trained_alone():
    """Whole ticks on `reach` by VCR: the same first weights, actions and games, and from one state the same next.

    Not for long: where tanh saturates, log-probabilities make a thousandth of what was a millionth.
    """
    both, single = tiny.plan("vcr", (3, 5)), tiny.plan("vcr", (5,))
    (company, _, _), (alone, start, _) = tiny.ticks(both, 30), tiny.ticks(single, 30)
    mine = jax.tree.map(lambda x: jnp.copy(x[1:]), (company.state, company.replay))
    for path, x in tiny.leaves((alone.state, alone.replay)).items():
        np.testing.assert_allclose(tiny.leaves(mine)[path], x, rtol=1e-4, atol=1e-5, err_msg=path)
    alone.state = mine[0]
    told = [tick(p, engine_of(p), t)[0] for p, t in ((both, company), (single, alone))]
    assert told[0] is not None and told[1] is not None and company.updates == alone.updates == 1
    (here,), (there,) = told
    after, first = tiny.leaves(company.state), tiny.leaves(start)
    for path, x in tiny.leaves(alone.state).items():
        np.testing.assert_allclose(after[path][1:], x, rtol=1e-4, atol=1e-5, err_msg=path)
        if path.startswith((".online.encoder", ".online.q_head", ".online.transition")):
            assert np.abs(x - first[path]).max() > 1e-4, path
    for name, x in there.items():
        np.testing.assert_allclose(here[name][1:], x, rtol=1e-4, atol=1e-5, err_msg=name)


# Stopping


def run(out, **more):
    arguments = ("vcr", "reach", (3, 5), 80, tiny.changes("vcr"), tiny.SCHEDULE, out)
    return train(*arguments, Console(file=io.StringIO()), **more)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that was never stopped."""
    return run(tmp_path_factory.mktemp("whole"))


@pytest.mark.slow
def test_a_run_ends_done_with_finite_numbers(whole):
    status, rows = whole.folder.status, whole.folder.metrics()
    assert status["state"] == "done" and status["agent_steps"] == 80 and status["updates"] == 50
    assert {"loss/rl", "loss/vcr", "loss/spr", "loss/actor", "alpha", "entropy", "vcr/taken"} <= rows[
        -1
    ].keys()
    assert {"q_error/real", "q_error/imagined"} <= rows[-1].keys()
    assert all(np.isfinite(row[name]).all() for row in rows for name in row)


@pytest.mark.slow
@pytest.mark.parametrize("stops", [(37,), (20, 31, 64)])
def test_stopped_and_resumed_equals_not_stopped(whole, tmp_path, stops):
    """Bit for bit. At 20 all lanes are at a time limit, and their last frames not written yet."""
    for at in stops:
        stopped = run(tmp_path, halt=lambda agent_steps, at=at: agent_steps == at)
        assert stopped.folder.status["state"] == "stopped" and stopped.folder.status["agent_steps"] == at
    again = run(tmp_path)
    assert again.folder.status["state"] == "done"
    assert_same_files(again, whole)


@pytest.mark.slow
def test_a_row_more_is_written_at_every_time_limit_and_no_step_is_lost():
    training, _, _ = tiny.ticks(tiny.plan("vcr", (3, 5)), 29)
    assert (training.tick, training.rows, training.updates) == (29, 30, 0)
    pads = np.asarray(training.replay.pad)
    np.testing.assert_array_equal(np.flatnonzero(pads[0]), [20])
    np.testing.assert_array_equal(pads[0], pads[1])
    assert (training.lanes.agent_steps == 29).all()


# Every method


@pytest.mark.slow
@pytest.mark.parametrize("method", FAMILY.methods)
def test_every_method_trains_and_every_weight_moves(method):
    training, start, told = tiny.ticks(tiny.plan(method, (1,)), 34)
    assert training.updates == len(told) == 4 and (training.failed < 0).all()
    assert all(np.isfinite(x).all() for metrics in told for x in metrics.values())
    after = tiny.leaves(training.state)
    for path, x in tiny.leaves(start).items():
        assert np.isfinite(after[path]).all(), path
        # At lambda 0 value consistency is measured, and its step leaves the critics alone.
        still = method == "vcr-lambda-0" and path.startswith(".opt['auxiliary']") and "q_head" in path
        assert (after[path] != x).any() != still, path
