"""Many seeds at once: traced once, in place, and no lane can hurt another."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vcrl.agents.rainbow import make_rainbow
from vcrl.core.protocol import Observation, Protocol
from vcrl.core.spec import Discrete, EnvSpec
from vcrl.core.types import Row, now
from vcrl.methods.configs import Adam, Categorical, RainbowConfig, ReplayConfig, Slow, Terms
from vcrl.training.engine import Training
from vcrl.training.lift import lift, no_row, packed, told

SPEC, SEEDS, CAPACITY = EnvSpec((16, 16, 1), Discrete(3)), jnp.array([3, 4, 5]), 40


pytestmark = pytest.mark.usefixtures("quick_compiles")


def lifted(**more):
    """Plain Rainbow, with a target that follows every other update, so that the shared clock is seen."""
    config = RainbowConfig(
        observation=Observation(stack=2), encoder="small", hidden=16, value=Categorical(11, -2.0, 2.0),
        n_step=2, batch=4, learn_start=10, target=Slow(0.5, 2),
        replay=ReplayConfig(capacity=CAPACITY), adam=Adam(rate=1e-3), terms=Terms(), **more,
    )  # fmt: skip
    agent = make_rainbow(config, SPEC, Protocol("tiny", 1000, 1, None, 1, 0.001))
    return lift(agent, SPEC, CAPACITY)


@pytest.fixture(scope="module")
def once():
    return lifted()


def rows(number: int, lanes: int) -> Row:
    """A row of every lane, different in each; episodes of seven steps."""
    rng = np.random.default_rng(number)
    frame = rng.integers(0, 256, (lanes, 16, 16, 1), np.uint8)
    reward = rng.normal(size=lanes).astype(np.float32)
    terminal, first = np.full(lanes, number % 7 == 6), np.full(lanes, number % 7 == 0)
    action = rng.integers(0, 3, lanes).astype(np.int32)
    return Row(frame, action, reward, terminal, first, np.zeros(lanes, bool))


def filled(lifted):
    """A fresh state and a replay with 30 rows."""
    state, replay = lifted.init(SEEDS), lifted.empty(SEEDS)
    for i in range(30):
        replay = lifted.insert(replay, packed(rows(i, len(SEEDS))), now(0, 0, i + 1, True))
    return state, replay


def learn(lifted, state, replay, updates: int):
    return lifted.learn(state, replay, no_row(SPEC, len(SEEDS)), now(50, updates, 30), SEEDS)


def copied(tree):
    return jax.tree.map(np.array, tree)


def lane(tree, i: int):
    return jax.tree.map(lambda x: np.asarray(x)[i], tree)


def same(one, two) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    return all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)


def test_everything_is_traced_once(once):
    """Also when what goes in has come out of another function, and after the clocks have moved on."""
    state, replay = filled(once)
    obs = jnp.zeros((3, 2, 16, 16, 2), jnp.uint8)
    good, held = jax.tree.map(jnp.copy, state), None
    for i in range(4):
        known = told(np.zeros((3, 2)), i, np.zeros((3, 2)))
        moment = now(8 + i, i, 31 + i, True)
        seen, played = once.play(state, jnp.copy(obs), np.zeros((3, 2, 16, 16, 1), np.uint8), known, SEEDS)
        assert seen.shape == obs.shape and seen.dtype == obs.dtype
        row = packed(rows(30 + i, 3))
        action, back = once.act(state, np.asarray(obs)[:, 0], moment, SEEDS)
        assert played.shape == (3, 2) and action.shape == (3,) and played.dtype == action.dtype == jnp.int32
        np.testing.assert_array_equal(back, moment)
        state, replay, metrics = once.learn(state, replay, row, back, SEEDS)
        replay = once.insert(replay, row, moment)
        once.probe(state, replay, moment, SEEDS)
        along, batch = once.values_along(state, obs, jnp.zeros((3, 3, 2), jnp.int32))
        assert once.worth(state, obs).shape == (3, 2)
        finite, good = once.guard(state, good)
        once.trusted(state, good)
        replay = once.fill(replay, once.rows(replay, jnp.asarray(i)), jnp.asarray(i), jnp.asarray(3))
        once.copy(state, None, {"priority": replay.priority})
        held = once.put(once.room(state, 2) if i < 2 else held, state, np.int32(3 * (i % 2)))
        assert not jax.tree.leaves((once.bare(state).opt, once.bare(state).target))
        mine = once.take(held, np.int32(3 * (i % 2)), 3)
        np.testing.assert_array_equal(
            mine.online.encoder.convs[0].weight, state.online.encoder.convs[0].weight
        )
    assert along.shape == (3, 1, 2) and finite.shape == (3,)
    (metrics,) = metrics
    assert all(m.shape == (3,) for m in metrics.values())
    assert batch is None
    programs = once._asdict()
    assert {name: program._cache_size() for name, program in programs.items()} == dict.fromkeys(programs, 1)


def test_the_updates_of_a_step_follow_the_clock_and_bring_its_row_once(once):
    """Noise, samples and the target's period follow the number of updates; what each of them tells comes back."""
    row, training, asked = packed(rows(30, 3)), Training.__new__(Training), list[np.ndarray]()

    def learn(state, replay, row, moment, seeds):
        asked.append(np.asarray(moment))
        return once.learn(state, replay, row, moment, seeds)

    training.lifted, training.seeds, training.newest = once._replace(learn=learn), SEEDS, None
    training.tick, training.rows, training.updates = 50, 31, 7
    training.state, training.replay = filled(once)
    told = copied(training.learn(3, row, now(50, 7, 31, True)))
    assert training.updates == 10
    # Agent steps, updates, rows, and whether the newest row comes with the call.
    np.testing.assert_array_equal(asked, [[50, 7, 31, 1], [50, 8, 31, 0], [50, 9, 31, 0]])
    state, replay = filled(once)
    for i, moment in enumerate(asked):
        brought = row if i == 0 else no_row(SPEC, 3)
        state, replay, metrics = once.learn(state, replay, brought, moment, SEEDS)
        assert same(told[i : i + 1], metrics)
    assert same((training.state, training.replay), (state, replay))
    assert not same(told[0], told[1]) and not same(told[1], told[2])


def test_a_state_may_come_as_the_list_of_its_arrays(once):
    """And goes back as it came, which is how a training asks: the same arrays, in the order of the tree."""
    obs, row = np.zeros((3, 16, 16, 2), np.uint8), packed(rows(30, 3))
    ends, actions = [], []
    for form in (lambda state: state, jax.tree.leaves):
        state, replay = filled(once)
        obs[:, 3:9, 5] = 200
        actions.append(
            [np.asarray(once.act(form(state), obs, now(t, 0, 30), SEEDS)[0]) for t in range(60, 70)]
        )
        learned, _, metrics = once.learn(form(state), replay, row, now(50, 0, 31, True), SEEDS)
        ends.append(copied((learned, metrics)))
    (tree, told), (arrays, told_again) = ends
    assert isinstance(arrays, list) and same(tree, arrays) and same(told, told_again)
    assert not same(copied(once.init(SEEDS)), arrays)
    np.testing.assert_array_equal(*actions)
    assert len(np.unique(actions)) > 1


def test_on_a_gpu_a_call_makes_two_updates(once, monkeypatch):
    """As two calls would: a row is stored once, the clock goes on, each update tells its metrics."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    together = lifted(updates_per_step=4)
    monkeypatch.undo()
    row, training, ends, told = packed(rows(30, 3)), Training.__new__(Training), [], dict[str, list[int]]()

    for name, way in (("together", together), ("once", once)):

        def learn(*arguments, name=name, way=way):
            found = way.learn(*arguments)
            told.setdefault(name, []).append(len(found[2]))
            return found

        training.lifted, training.seeds, training.newest = way._replace(learn=learn), SEEDS, None
        training.tick, training.rows, training.updates = 50, 31, 7
        training.state, training.replay = filled(once)
        metrics = training.learn(4, row, now(50, 7, 31, True))
        assert training.updates == 11
        ends.append(copied((training.state, training.replay, metrics)))
    assert told == {"together": [2, 2], "once": [1, 1, 1, 1]}
    for one, other in zip(*map(jax.tree.leaves, ends), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_row_that_is_brought_is_stored_before_anything_is_learned(once):
    """As by a call of its own; where none is brought, nothing is written."""
    row, ends = packed(rows(30, 3)), []
    for apart in (False, True):
        state, replay = filled(once)
        before = np.array(replay.frame)
        if apart:
            replay = once.insert(replay, row, now(50, 0, 31, True))
        given = no_row(SPEC, 3) if apart else row
        state, replay, metrics = once.learn(state, replay, given, now(50, 0, 31, not apart), SEEDS)
        ends.append(copied((state, replay, metrics)))
    assert same(*ends)
    changed = (ends[0][1].frame != before).any(axis=(2, 3, 4))
    np.testing.assert_array_equal(changed, [[slot == 30 for slot in range(CAPACITY)]] * 3)


def test_learning_writes_the_new_priorities(once):
    state, replay = filled(once)
    before = np.array(replay.priority)
    _, replay, _ = learn(once, state, replay, 0)
    changed = np.asarray(replay.priority) != before
    assert ((changed.sum(axis=1) >= 1) & (changed.sum(axis=1) <= 4)).all()
    assert not changed[:, 30 - 3 :].any(), "rows that cannot be drawn keep theirs"


def test_state_and_replay_are_given_away_and_frames_stay_in_place(once):
    state, replay = filled(once)
    place = replay.frame.unsafe_buffer_pointer()
    weight = state.online.encoder.convs[0].weight
    old = replay
    replay = once.insert(replay, packed(rows(30, 3)), now(0, 0, 31, True))
    assert old.frame.is_deleted() and replay.frame.unsafe_buffer_pointer() == place
    old = replay
    state, replay, _ = learn(once, state, replay, 0)
    assert old.frame.is_deleted() and weight.is_deleted()
    assert replay.frame.unsafe_buffer_pointer() == place


def poisoned(state, which: int):
    """One lane's parameters set to NaN, as after a divergence."""

    def spoil(x):
        return x.at[which].set(jnp.nan) if jnp.issubdtype(x.dtype, jnp.floating) else x

    return state._replace(online=jax.tree.map(spoil, state.online))


def test_a_broken_lane_leaves_the_others_bit_for_bit(once):
    healthy, sick = filled(once), filled(once)
    sick = (poisoned(sick[0], 1), sick[1])
    for updates in range(5):
        *healthy, _ = learn(once, *healthy, updates)
        *sick, (metrics,) = learn(once, *sick, updates)
    for i in (0, 2):
        assert same(lane(healthy, i), lane(sick, i))
        assert np.isfinite(np.asarray(metrics["loss/rl"])[i])
    assert not np.isfinite(np.asarray(metrics["loss/rl"])[1])
    assert np.isnan(np.asarray(sick[0].online.q_head.value[1].weight)[1]).all()


def test_the_guard_marks_a_broken_lane_and_keeps_its_last_finite_state(once):
    state, replay = filled(once)
    good = jax.tree.map(jnp.copy, state)
    state, replay, _ = learn(once, state, replay, 0)
    finite, good = once.guard(state, good)
    assert np.asarray(finite).tolist() == [True, True, True]
    assert same(good, state)
    last = copied(state)
    state = poisoned(state, 1)
    for updates in (1, 2):
        state, replay, _ = learn(once, state, replay, updates)
        now = copied(state)
        finite, good = once.guard(state, good)
        assert np.asarray(finite).tolist() == [True, False, True]
        assert same(lane(good, 1), lane(last, 1)), "the broken lane stays where it was last finite"
        for i in (0, 2):
            assert same(lane(good, i), lane(now, i)), "the others move on"


def test_trusted_takes_each_lane_whole_from_one_side(once):
    one, two = once.init(SEEDS), once.init(SEEDS + 10)
    ill = jax.tree.map(lambda x: x.at[1].set(jnp.nan) if x.dtype == jnp.float32 else x, one)
    mixed = once.trusted(ill, two)
    for i, source in enumerate((one, two, one)):
        assert same(lane(mixed, i), lane(source, i))
    assert not same(lane(one, 1), lane(two, 1))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_bad_number_anywhere_is_enough(once, bad):
    state = once.init(SEEDS)
    good = jax.tree.map(jnp.copy, state)
    second = state.opt[0].nu
    broken = second.encoder.convs[1].bias.at[2, 3].set(bad)
    spoilt = jax.tree.map(lambda x: broken if x is second.encoder.convs[1].bias else x, state)
    finite, kept = once.guard(spoilt, good)
    assert np.asarray(finite).tolist() == [True, True, False]
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(copied(kept)))


def test_a_packed_row_is_stored_as_it_was(once):
    _, replay = filled(once)
    for i in (0, 6, 29):
        row = rows(i, len(SEEDS))
        for name in Row._fields:
            np.testing.assert_array_equal(getattr(replay, name)[:, i], getattr(row, name))
            assert getattr(replay, name).dtype == getattr(row, name).dtype
    assert (np.asarray(replay.action[:, :30]) == 2).any() and (np.asarray(replay.reward) < 0).any()
