"""The replay against a plain list of rows that never forgets and knows no ring."""

from functools import cache, partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from vcrl import replay as rp
from vcrl.core.spec import Box, Discrete, EnvSpec
from vcrl.core.types import Clock, Row
from vcrl.envs import toy
from vcrl.envs.lanes import Lanes
from vcrl.training.diagnostics import stacked
from vcrl.training.lift import pushed

SPEC = EnvSpec((2, 1, 2), Discrete(5))
GAMMA = 0.5  # with rewards in quarters every return is exact in float32, so nothing here needs a tolerance


def wanted(stack=1, steps=0, targets=1, n=1, **more) -> rp.Sample:
    more = {"batch": 8, "prioritised": True, **more}
    return rp.Sample(steps=steps, targets=targets, n=n, gamma=GAMMA, stack=stack, **more)


CASES = {
    "one frame, one step": (17, wanted()),
    "targets at the start only": (29, wanted(stack=3, steps=2, targets=1, n=3)),
    "targets at every step": (40, wanted(stack=4, steps=3, targets=4, n=2)),
    "returns longer than episodes": (37, wanted(stack=2, steps=1, targets=2, n=10)),
    "whole windows, first frames repeated": (
        33,
        wanted(stack=3, steps=2, targets=3, whole=True, fill="first"),
    ),
}


# Compiled without optimisation: nothing here runs long enough to earn it back.
quick = partial(
    jax.jit,
    compiler_options={"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True},
)
sample = quick(rp.sample, static_argnums=2)
gather = quick(rp.gather, static_argnums=2)
insert = quick(rp.insert, donate_argnums=0)


@cache
def functions(name: str):
    spec = CASES[name][1]
    return (
        quick(partial(rp.sampleable, spec=spec)),
        quick(partial(rp.gather, spec=spec)),
        quick(rp.reprioritise),
    )


def a_frame(number: int) -> np.ndarray:
    """An image that names its row, unlike any other and never zero."""
    return np.array([[[1 + number % 250, 1 + number // 250]], [[7, 1 + number % 83]]], np.uint8)


def history(episodes: list[tuple[int, bool]], seed: int) -> list[Row]:
    """Rows of episodes (agent steps, whether it was truncated). What a pad row says is junk on purpose."""
    rng, rows = np.random.default_rng(seed), []
    for length, truncated in episodes:
        for i in range(length):
            reward, action = rng.integers(-8, 9) / 4, int(rng.integers(5))
            ends = i == length - 1 and not truncated
            rows.append(Row(a_frame(len(rows)), action, reward, ends, i == 0, False))
        if truncated:
            rows.append(Row(a_frame(len(rows)), 4, 1000.0, False, False, True))
    return rows


class Model:
    """What the replay should say, told from the list of all rows ever written."""

    def __init__(self, capacity: int, spec: rp.Sample):
        self.capacity, self.spec = capacity, spec
        self.rows: list[Row] = []
        self.priority: list[float] = []

    def insert(self, row: Row) -> None:
        self.rows.append(row)
        self.priority.append(1.0)

    def slot(self, row: int) -> int:
        return row % self.capacity

    def kept(self) -> range:
        return range(max(0, len(self.rows) - self.capacity), len(self.rows))

    def sampleable(self) -> list[int]:
        """Row numbers of all starts, by what is read: K + n rows on, one to spare, the stack behind."""
        kept, spec = self.kept(), self.spec
        return [
            t
            for t in kept
            if not self.rows[t].pad
            and t + spec.steps + spec.n + 1 in kept
            and max(0, t - spec.stack + 1) in kept
            and (not spec.whole or self.whole(t))
        ]

    def whole(self, t: int) -> bool:
        """Whether the state behind the last of K + 1 actions is of the same episode, and something was done on it."""
        episode = np.cumsum([row.first for row in self.rows])
        behind = t + self.spec.steps + 1
        return episode[t] == episode[behind] and not self.rows[behind].pad

    def ended(self, row: int) -> bool:
        return self.rows[row].terminal or self.rows[row].pad

    def state(self, t: int, k: int) -> int:
        """The row whose frame is seen k steps after t; an episode's last state is repeated."""
        for _ in range(k):
            t = t if self.ended(t) else t + 1
        return t

    def alive(self, t: int, k: int) -> bool:
        return not any(self.ended(i) for i in range(t, t + k)) and not self.rows[t + k].pad

    def stack(self, row: int) -> np.ndarray:
        frames = [self.rows[row].frame]
        for _ in range(self.spec.stack - 1):
            if row is not None and not self.rows[row].first:
                row -= 1
                frames.insert(0, self.rows[row].frame)
            else:
                row = None
                frames.insert(0, frames[0] if self.spec.fill == "first" else np.zeros_like(frames[0]))
        return np.concatenate(frames, axis=-1)

    def ahead(self, t: int, k: int) -> tuple[float, float, int]:
        """Return, discount and row of the bootstrap state, of the state k steps after t."""
        if not self.alive(t, k):
            return 0.0, 0.0, self.state(t, k)
        total, factor, row = 0.0, 1.0, t + k
        for _ in range(self.spec.n):
            if self.rows[row].pad:
                break
            total += factor * self.rows[row].reward
            factor *= GAMMA
            if self.rows[row].terminal:
                return total, 0.0, row
            row += 1
        return total, factor, row

    def window(self, t: int) -> dict[str, np.ndarray]:
        offsets, starts = range(self.spec.steps + 1), range(self.spec.targets)
        ahead = [self.ahead(t, k) for k in starts]
        return {
            "obs": np.stack([self.stack(self.state(t, k)) for k in offsets]),
            "action": np.array([self.rows[t + k].action for k in offsets]),
            "reward": np.array([self.rows[t + k].reward for k in offsets]),
            "terminal": np.array([self.rows[t + k].terminal for k in offsets]),
            "alive": np.array([float(self.alive(t, k)) for k in offsets]),
            "returns": np.array([a[0] for a in ahead]),
            "discount": np.array([a[1] for a in ahead]),
            "boot_obs": np.stack([self.stack(a[2]) for a in ahead]),
        }


def same_windows(model: Model, replay: rp.Replay, windows) -> int:
    segment = windows(replay, jnp.arange(model.capacity))
    seen = {name: np.asarray(getattr(segment, name)) for name in segment._fields}
    starts = model.sampleable()
    for t in starts:
        slot = model.slot(t)
        for name, value in model.window(t).items():
            np.testing.assert_array_equal(seen[name][:, slot], value, err_msg=f"{name} of row {t}")
    np.testing.assert_array_equal(seen["weight"], 1.0)
    np.testing.assert_array_equal(seen["slot"], np.arange(model.capacity))
    return len(starts)


def same_priorities(model: Model, replay: rp.Replay) -> None:
    stored = np.asarray(replay.priority)
    for row in model.kept():
        assert stored[model.slot(row)] == np.float32(model.priority[row])


# The simpler ones in `make slow`.
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (i < 2)) for i, name in enumerate(CASES)]
)
@settings(max_examples=8, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
@given(
    episodes=st.lists(st.tuples(st.integers(1, 13), st.booleans()), min_size=1, max_size=25),
    seed=st.integers(0, 2**16),
)
def test_any_sequence_of_operations_agrees_with_the_list(name, episodes, seed):
    capacity, spec = CASES[name]
    sampleable, windows, reprioritise = functions(name)
    rng, model, replay = np.random.default_rng(seed), Model(capacity, spec), rp.init(SPEC, capacity)
    checked = 0
    rows = history(episodes * (4 * capacity), seed)[: int(3.3 * capacity)]  # the ring wraps three times
    for number, row in enumerate(rows):
        replay = insert(replay, row, jnp.asarray(number))
        model.insert(row)
        ready = np.flatnonzero(np.asarray(sampleable(replay, jnp.asarray(number + 1))))
        assert sorted(model.slot(t) for t in model.sampleable()) == ready.tolist()
        if len(ready) and rng.random() < 0.3:
            index = rng.choice(ready, spec.batch)  # with replacement: most batches hold a row twice
            priority = rng.integers(1, 1000, spec.batch) / 8
            replay = reprioritise(replay, jnp.asarray(index), jnp.asarray(priority, jnp.float32))
            for slot, new in reversed(list(zip(index, priority, strict=True))):  # so that the first one stays
                row_number = next(r for r in model.kept() if model.slot(r) == slot)
                model.priority[row_number] = new
        if rng.random() < 0.06:
            checked += same_windows(model, replay, windows)
        same_priorities(model, replay)
    checked += same_windows(model, replay, windows)
    # Where windows are whole, all episodes may be too short.
    assert checked > 0 or (spec.whole and max(length for length, _ in episodes) <= spec.steps + 1)


def test_ends_by_terminal_and_by_truncation_with_hand_made_numbers():
    """Episodes of rows 0 1 2(terminal), 3 4 5(pad) and 6 to 11, seen with n = 2 and K = 3."""
    spec = wanted(stack=2, steps=3, targets=4, n=2)
    rewards = [1, 2, 4, 8, 16, 999, 0, 0, 0, 0, 0, 0]
    rows = [
        Row(np.full((2, 1, 2), i + 1, np.uint8), i, float(r), i == 2, i in (0, 3, 6), i == 5)
        for i, r in enumerate(rewards)
    ]
    replay = rp.init(SPEC, 16)
    for i, row in enumerate(rows):
        replay = insert(replay, row, jnp.asarray(i))
    segment = gather(replay, jnp.array([1, 3]), spec)
    newest, older = np.asarray(segment.obs[:, :, 0, 0, 2]), np.asarray(segment.obs[:, :, 0, 0, 0])
    np.testing.assert_array_equal(newest.T, [[2, 3, 3, 3], [4, 5, 6, 6]])
    np.testing.assert_array_equal(older.T, [[1, 2, 2, 2], [0, 4, 5, 5]])
    np.testing.assert_array_equal(segment.alive.T, [[1, 1, 0, 0], [1, 1, 0, 0]])
    # 2 + 4/2 and nothing after it; 4 alone.   8 + 16/2 and a quarter of the pad's value; 16 and half of it.
    np.testing.assert_array_equal(segment.returns.T, [[4, 4, 0, 0], [16, 16, 0, 0]])
    np.testing.assert_array_equal(segment.discount.T, [[0, 0, 0, 0], [0.25, 0.5, 0, 0]])
    np.testing.assert_array_equal(segment.boot_obs[:, 1, 0, 0, 2], [6, 6, 6, 6])
    np.testing.assert_array_equal(segment.action.T, [[1, 2, 3, 4], [3, 4, 5, 6]])


def number_of(frame: np.ndarray) -> np.ndarray:
    """The row that an image names."""
    return frame[..., 0, 0, 0].astype(int) - 1 + 250 * (frame[..., 0, 0, 1].astype(int) - 1)


@pytest.mark.parametrize("steps", [0, 3])
def test_a_whole_window_lies_in_one_episode_with_the_state_behind_it(steps):
    """Episodes of 1 to 12 steps, half of them cut off; every whole window is drawn, and nothing else."""
    rng = np.random.default_rng(steps)
    rows = history([(int(rng.integers(1, 13)), bool(rng.integers(2))) for _ in range(40)], seed=steps)
    spec = wanted(stack=2, steps=steps, targets=steps + 1, batch=4000, whole=True, prioritised=False)
    capacity = 200
    replay = rp.init(SPEC, capacity)
    for i, row in enumerate(rows):
        replay = insert(replay, row, jnp.asarray(i))
    assert len(rows) > 1.1 * capacity  # the ring has wrapped
    segment = sample(replay, jnp.asarray(len(rows)), spec, clock(0), jax.random.key(0))
    episode = np.cumsum([row.first for row in rows])
    last = [row.terminal or row.pad or after.pad for row, after in pairwise(rows)]
    seen, behind = (number_of(np.asarray(x)[..., -2:]) for x in (segment.obs, segment.boot_obs))
    start = seen[0]
    for k in range(steps + 1):
        np.testing.assert_array_equal(seen[k], start + k)
        np.testing.assert_array_equal(behind[k], start + k + 1)
        np.testing.assert_array_equal(episode[behind[k]], episode[start])
        assert not np.array(last)[seen[k]].any()
    np.testing.assert_array_equal(segment.alive, 1)
    np.testing.assert_array_equal(segment.discount, GAMMA)
    assert not np.asarray(segment.terminal).any()
    expected = [
        t
        for t in range(len(rows) - capacity + 1, len(rows) - spec.window)
        if not any(last[t : t + steps + 1])
    ]
    assert set(start.tolist()) == set(expected) and len(expected) > 40


@pytest.mark.parametrize("fill", ["zeros", "first"])
@pytest.mark.parametrize("game", [toy.Catch, toy.Reach])
def test_replay_lanes_and_evaluation_show_the_same_stacks(game, fill):
    """Episodes that end and episodes that are cut: the pad's own stack is among them, which is bootstrapped from."""
    env, stack, ticks = game(2), 3, 70
    lanes, actions = Lanes(env, [3, 4], stack, fill=fill), some_actions(env, ticks, 2)
    replays = [rp.init(env.spec, ticks) for _ in range(2)]
    stacks, shown, shapes = jnp.zeros((2, 1, *lanes.obs.shape[1:]), jnp.uint8), [], set()
    for t, action in enumerate(actions):
        obs, (row, _) = lanes.obs, lanes.step(action)
        shown.append(obs)
        stacks = pushed(stacks, row.frame[:, None], row.first[:, None], fill)
        np.testing.assert_array_equal(np.asarray(stacks)[:, 0], obs)
        for lane in range(2):
            one = Row(*(part[lane] for part in row))
            replays[lane] = insert(replays[lane], one, jnp.asarray(t))
        shapes |= {(bool(f), bool(p)) for f, p in zip(row.first, row.pad, strict=True)}
    assert (True, False) in shapes and ((False, True) in shapes) == (game is toy.Reach)
    at = np.arange(ticks)[:, None]
    for lane in range(2):
        kept = quick(rp.stacks, static_argnums=(2, 3))(replays[lane], at, stack, fill)
        np.testing.assert_array_equal(np.asarray(kept)[:, 0], np.stack(shown)[:, lane])
        frame, first = np.asarray(replays[lane].frame), np.asarray(replays[lane].first)
        np.testing.assert_array_equal(stacked(frame, first, stack, fill), np.stack(shown)[:, lane])
    newest = np.stack(shown)[..., -1:]
    assert (np.stack(shown)[0, ..., :-1] == (newest[0] if fill == "first" else 0)).all()


def some_actions(env, ticks: int, lanes: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    if isinstance(env.spec.actions, Box):
        return rng.uniform(-1, 1, (ticks, lanes, env.spec.actions.size)).astype(np.float32)
    return rng.integers(0, env.spec.actions.n, (ticks, lanes)).astype(np.int32)


def test_nothing_can_be_sampled_before_one_window_and_a_row_are_written():
    spec = wanted(steps=2, targets=3, n=3)  # a window is 6 rows
    replay = rp.init(SPEC, 20)._replace(first=jnp.arange(20) == 0)
    counts = [int(rp.sampleable(replay, jnp.asarray(at), spec).sum()) for at in range(10)]
    assert counts == [0, 0, 0, 0, 0, 0, 0, 1, 2, 3]


def test_atari_leaves_out_as_many_rows_as_the_reference():
    """The newest 1 + n + (K+1) = 17, one of them not written yet when learning runs, and 3 after a wrap."""
    spec = wanted(stack=4, steps=5, targets=6, n=10)
    replay = rp.init(SPEC, 50)
    before = np.flatnonzero(np.asarray(rp.sampleable(replay, jnp.asarray(40), spec)))
    np.testing.assert_array_equal(before, np.arange(40 - 16))
    after = np.asarray(rp.sampleable(replay, jnp.asarray(60), spec))  # slots 0..9 hold rows 50..59
    np.testing.assert_array_equal(np.flatnonzero(after), np.arange(10 + 3, 60 - 16))


draw = jax.jit(rp.draw)


def drawn(mass: np.ndarray, uniform: np.ndarray, chunk: int = 20_000) -> np.ndarray:
    uniform = uniform.astype(np.float32)
    size = -(-len(uniform) // chunk) * chunk
    padded = np.concatenate([uniform, np.zeros(size - len(uniform), np.float32)]).reshape(-1, chunk)
    parts = [np.asarray(draw(jnp.asarray(mass, jnp.float32), jnp.asarray(u))) for u in padded]
    return np.concatenate(parts)[: len(uniform)]


BELOW_ONE = np.nextafter(np.float32(1), np.float32(0))


def test_draws_are_in_proportion_to_mass():
    rng = np.random.default_rng(0)
    mass = np.where(rng.random(700) < 0.2, 0, rng.uniform(0.2, 3, 700))
    draws = 200_000
    counts = np.bincount(drawn(mass, rng.random(draws)), minlength=700)
    expected = draws * mass / mass.sum()
    assert counts[mass == 0].sum() == 0
    real = mass > 0
    statistic = np.sum((counts[real] - expected[real]) ** 2 / expected[real])
    assert statistic < chi2.ppf(1 - 1e-4, real.sum() - 1)


@pytest.fixture(scope="module")
def hard_masses():
    """100,000 rows like those of a full replay, each kind hard in its own way."""
    rng, rows = np.random.default_rng(1), 100_000
    spread = 10.0 ** rng.uniform(-6, 6, rows)
    alone = {at: np.where(np.arange(rows) == at, 1e-6, 0) for at in (0, rows - 1)}
    return {
        "twelve decades": spread,
        "twelve decades, half of them zero": np.where(rng.random(rows) < 0.5, 0, spread),
        "zeros at both ends": np.where(abs(np.arange(rows) - rows / 2) < rows / 3, spread, 0),
        "runs of zeros longer than a block": np.where((np.arange(rows) // 700) % 2, spread, 0),
        "one giant among dwarfs": np.where(np.arange(rows) == 55_555, 1e6, 1e-6),
        "all equal": np.ones(rows),
        "only the first": alone[0],
        "only the last": alone[rows - 1],
    }


KINDS = [
    "twelve decades",
    "twelve decades, half of them zero",
    "zeros at both ends",
    "runs of zeros longer than a block",
    "one giant among dwarfs",
    "all equal",
    "only the first",
    "only the last",
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_without_mass_is_never_drawn(hard_masses, kind):
    mass = hard_masses[kind].astype(np.float32)
    rng = np.random.default_rng(2)
    # Levels that fall exactly on the border of two rows, as near as float32 can say it, besides random ones.
    borders = np.cumsum(mass.astype(np.float64))[rng.integers(len(mass), size=5_000)] / mass.sum(
        dtype=np.float64
    )
    borders = np.clip(borders.astype(np.float32), 0, BELOW_ONE)
    count = 200_000 if kind == "twelve decades, half of them zero" else 20_000
    uniform = np.concatenate([[0, BELOW_ONE, np.float32(1e-45)], borders, rng.random(count - 5_003)])
    index = drawn(mass, uniform)
    assert ((index >= 0) & (index < len(mass))).all()
    assert (mass[index] > 0).all()

    # And a random level gives the right row: it lies in the row's share, up to the rounding of sums.
    index, level = index[5_003:], uniform[5_003:].astype(np.float32).astype(np.float64)
    ends = np.cumsum(mass.astype(np.float64))
    low, high = (ends[index] - mass[index]) / ends[-1], ends[index] / ends[-1]
    miss = np.maximum(np.maximum(low - level, level - high), 0)
    assert (miss > 1e-6).mean() < 1e-4


@pytest.mark.parametrize("size", [1, 2, 255, 256, 257, 513])
def test_draw_at_sizes_around_a_block(size):
    for at in {0, size // 2, size - 1}:
        mass = jnp.asarray(np.arange(size) == at, jnp.float32) * 3e-6
        index = draw(mass, jnp.array([0.0, 0.3, float(BELOW_ONE)]))
        np.testing.assert_array_equal(index, at)


BETA = {"correction": (0.4, 1.0), "span": (2000, 100_000)}


def filled(priorities: list[float], spec: rp.Sample) -> tuple[rp.Replay, jax.Array]:
    """A replay in which exactly the first rows, with these priorities, can be drawn."""
    replay, at = rp.init(SPEC, 32), len(priorities) + spec.window
    for i in range(at):
        row = Row(a_frame(i), 0, 0.0, False, i == 0, False)
        replay = insert(replay, row, jnp.asarray(i))
    index = jnp.arange(len(priorities))
    return rp.reprioritise(replay, index, jnp.asarray(priorities, jnp.float32)), jnp.asarray(at)


def clock(agent_steps: int) -> Clock:
    return Clock(jnp.asarray(agent_steps), jnp.asarray(0))


def test_importance_weights_by_hand():
    """(1 / (p + 1e-5))^beta over the largest in the batch; beta is 0.7 halfway from 0.4 to 1."""
    spec = wanted(batch=16, **BETA)
    replay, at = filled([0.25, 1.0, 4.0, 0.0], spec)
    segment = sample(replay, at, spec, clock(51_000), jax.random.key(5))
    index, weight = np.asarray(segment.slot), np.asarray(segment.weight)
    assert set(index) == {0, 1, 2}, "row 3 has no priority"
    # 4^0.7 = 2.63902, 1, 4^-0.7 = 0.378929; divided by the first
    by_hand = np.array([1.0, 0.378929, 0.143587])
    np.testing.assert_allclose(weight, by_hand[index], rtol=5e-5)
    np.testing.assert_array_equal(segment.obs, gather(replay, segment.slot, spec).obs)


def test_the_batch_maximum_is_over_the_batch_and_not_over_the_replay():
    spec = wanted(batch=16, **BETA)
    replay, at = filled([1e-6, 2.0, 2.0], spec)  # the first is hardly ever drawn
    segment = sample(replay, at, spec, clock(100_000), jax.random.key(0))
    assert 0 not in np.asarray(segment.slot)
    np.testing.assert_array_equal(segment.weight, 1.0)


def test_the_correction_goes_from_its_first_to_its_last_value_and_stays():
    spec = wanted(**BETA)
    steps = [0, 2000, 26_500, 51_000, 75_500, 100_000, 250_000]
    got = [float(rp.correction(spec, clock(s))) for s in steps]
    np.testing.assert_allclose(got, [0.4, 0.4, 0.55, 0.7, 0.85, 1.0, 1.0], rtol=1e-6)
    assert float(rp.correction(wanted(), clock(5))) == 1.0


def test_uniform_sampling_ignores_priority():
    spec = wanted(batch=4000, prioritised=False)
    replay, at = filled([0.0, 1e-3, 1.0, 1e3, 0.0, 5.0, 0.0, 2.0, 1.0, 1.0], spec)
    segment = sample(replay, at, spec, clock(0), jax.random.key(4))
    counts = np.bincount(np.asarray(segment.slot), minlength=10)
    assert np.sum((counts - 400.0) ** 2 / 400) < chi2.ppf(1 - 1e-4, 9)
    np.testing.assert_array_equal(segment.weight, 1.0)


def test_samples_differ_between_keys_and_agree_for_one():
    spec = wanted(batch=16, **BETA)
    replay, at = filled([1.0] * 20, spec)
    one, again, other = (sample(replay, at, spec, clock(0), jax.random.key(k)).slot for k in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert (np.asarray(one) != np.asarray(other)).any()


def test_a_new_row_takes_priority_one_over_whatever_was_there():
    replay = rp.init(SPEC, 4)
    assert not replay.priority.any()
    replay = replay._replace(priority=jnp.array([9.0, 9.0, 9.0, 9.0]))
    replay = insert(replay, Row(a_frame(0), 1, 0.5, True, True, False), jnp.asarray(6))
    np.testing.assert_array_equal(replay.priority, [9, 9, 1, 9])
    np.testing.assert_array_equal(replay.terminal, [False, False, True, False])
    np.testing.assert_array_equal(replay.frame[2], a_frame(0))


def test_a_new_row_can_take_the_largest_priority_so_far():
    """The largest there ever was: it stays when the row that had it is found to be dull."""
    replay, row = rp.init(SPEC, 8, top=True), Row(a_frame(0), 1, 0.5, False, False, False)
    replay = insert(insert(replay, row, jnp.asarray(0)), row, jnp.asarray(1))
    np.testing.assert_array_equal(replay.priority[:3], [1, 1, 0])  # nothing was larger than 1 yet
    replay = rp.reprioritise(replay, jnp.array([0, 1]), jnp.array([3.0, 0.25]))
    replay = insert(replay, row, jnp.asarray(2))
    replay = rp.reprioritise(replay, jnp.array([0, 2]), jnp.array([0.5, 2.0]))
    replay = insert(replay, row, jnp.asarray(3))
    np.testing.assert_array_equal(replay.priority[:5], [0.5, 0.25, 2, 3, 0])
    assert float(replay.top) == 3
    # Rows read and written back for a checkpoint leave it alone.
    again = rp.fill(replay, rp.rows(replay, jnp.asarray(0), 4), jnp.asarray(0), jnp.asarray(4))
    np.testing.assert_array_equal(again.priority, replay.priority)
    assert float(again.top) == 3


def test_without_being_asked_no_largest_priority_is_kept():
    replay = rp.init(SPEC, 4)
    assert replay.top is None
    replay = rp.reprioritise(replay, jnp.array([0]), jnp.array([3.0]))
    assert insert(replay, Row(a_frame(0), 1, 0.5, False, False, False), jnp.asarray(1)).top is None


def test_a_row_drawn_twice_keeps_its_first_new_priority():
    replay = rp.init(SPEC, 6)
    index = jnp.array([4, 1, 4, 4, 1, 0])
    replay = rp.reprioritise(replay, index, jnp.array([0.5, 2.0, 7.0, 8.0, 9.0, 3.0]))
    np.testing.assert_array_equal(replay.priority, [3, 2, 0, 0, 0.5, 0])


@pytest.mark.parametrize("actions", [Discrete(4), Box(3)])
def test_size_in_bytes_is_what_the_arrays_take(actions):
    spec = EnvSpec((5, 4, 3), actions)
    replay = rp.init(spec, 11)
    assert rp.size_in_bytes(spec, 11) == sum(x.nbytes for x in jax.tree.leaves(replay))
    per_row = 5 * 4 * 3 + (4 if isinstance(actions, Discrete) else 12) + 4 + 3 + 4
    assert rp.size_in_bytes(spec, 11) == 11 * per_row


def test_atari_frames_take_as_much_as_the_page_says():
    assert rp.size_in_bytes(EnvSpec((84, 84, 1), Discrete(18)), 100_000) == pytest.approx(0.7e9, rel=0.02)


def test_continuous_actions_come_back_as_written():
    spec = EnvSpec((2, 1, 2), Box(2))
    replay = rp.init(spec, 8)
    for i in range(8):
        action = np.array([i / 8, -i], np.float32)
        replay = insert(replay, Row(a_frame(i), action, 0.0, False, i == 0, False), jnp.asarray(i))
    segment = gather(replay, jnp.array([1, 3]), wanted(steps=1, targets=2))
    np.testing.assert_array_equal(segment.action, [[[1 / 8, -1], [3 / 8, -3]], [[2 / 8, -2], [4 / 8, -4]]])


def test_insert_writes_in_place():
    """Under donation the frames stay where they are, and no second copy of them is ever made."""
    spec = EnvSpec((20, 20, 1), Discrete(3))
    replay = rp.init(spec, 1000)
    row = Row(np.ones((20, 20, 1), np.uint8), 1, 0.5, False, True, False)
    memory = insert.lower(replay, row, jnp.asarray(0)).compile().memory_analysis()
    assert memory.alias_size_in_bytes >= replay.frame.nbytes
    assert memory.temp_size_in_bytes < replay.frame.nbytes / 10
    before = replay.frame.unsafe_buffer_pointer()
    for i in range(3):
        old, replay = replay, insert(replay, row, jnp.asarray(i))
        assert old.frame.is_deleted()
        assert replay.frame.unsafe_buffer_pointer() == before


@pytest.mark.parametrize("fill", ["zeros", "first"])
def test_four_gray_frames_are_stacked_like_any_others(fill):
    """They travel as words; frame by frame it must come to the same, at an episode's start too."""
    rng, capacity = np.random.default_rng(5), 12
    frame = rng.integers(0, 256, (capacity, 3, 2, 1), dtype=np.uint8)
    first = np.isin(np.arange(capacity), (0, 5, 6))
    empty = rp.init(EnvSpec((3, 2, 1), Discrete(2)), capacity)
    replay = empty._replace(frame=jnp.asarray(frame), first=jnp.asarray(first))
    slots = np.array([[3, 4, 5], [6, 8, 11]])
    found = np.asarray(rp.stacks(replay, jnp.asarray(slots), 4, fill))
    for place, slot in np.ndenumerate(slots):
        begin = max(row for row in range(slot + 1) if first[row])
        for i, row in enumerate(range(slot - 3, slot + 1)):
            shown = frame[max(row, begin), ..., 0]
            np.testing.assert_array_equal(
                found[place][..., i], shown if row >= begin or fill == "first" else 0
            )
