"""Environments that break: the game is dropped, the environment built again, and nothing wrong is learned from."""

import numpy as np
import pytest
from own_games import Walk, register

from vcrl.core.errors import UserError
from vcrl.envs.base import fault_of
from vcrl.envs.gym_adapt import Fit
from vcrl.envs.gym_find import Source, by_name
from vcrl.envs.gymnasium import GymEnv
from vcrl.envs.lanes import Lanes

SAYS = {
    "raise": "ZeroDivisionError: the wheel came off",
    "nan": "the reward nan",
    "inf": "the reward np.float64(-inf)",
    "words": "the reward 'much'",
    "array": "single values",
    "flag": "single values",
    "shape": "it showed uint8 (15, 20, 3), not the uint8 (16, 20, 3)",
    "dtype": "it showed float32 (16, 20, 3)",
    "old": "step must return 5 values",
    "hang": "step: no answer for 0.2 s",
}


def broken(**how) -> GymEnv:
    return GymEnv(1, Source("Walk", lambda render: Walk(**how)))


def play(lanes: Lanes, ticks: int, action: int = 0) -> list:
    return [lanes.step(np.full(len(lanes.seeds), action, np.int32)) for _ in range(ticks)]


@pytest.mark.parametrize("fault", SAYS)
def test_a_fault_ends_the_game_as_a_cut_at_its_last_good_frame(fault, monkeypatch):
    monkeypatch.setenv("VCRL_ENV_SECONDS", "0.2" if fault == "hang" else "60")
    good, lanes = Lanes(broken(), [7], 2), Lanes(broken(fault=fault, games=[0]), [7], 2)
    first = lanes.obs.copy()
    assert np.array_equal(first, good.obs)
    played, expected = play(lanes, 2), play(good, 2)
    for a, b in zip(played, expected, strict=True):
        assert all(np.array_equal(x, y) for x, y in zip(a.row, b.row, strict=True))
    last = lanes.obs[..., -3:].copy()
    assert np.array_equal(last, good.obs[..., -3:])

    (tick,) = play(lanes, 1, action=2)  # the one that breaks
    row = tick.row
    assert np.array_equal(row.frame, last) and row.pad[0] and not row.terminal[0] and not row.first[0]
    assert row.action[0] == 0 and row.reward[0] == 0, "nothing was done on the last good frame"
    assert tick.finished == [], "a game that broke off has no score"
    assert lanes.agent_steps[0] == 2 and lanes.episode[0] == 1 and lanes.length[0] == 0
    (news,) = lanes.news()
    assert SAYS[fault] in news and "in lane 0 at step 3 of its game" in news and "\n" not in news
    assert "the game is dropped and the environment is built again (1 of 3 in a row)" in news

    # The next game is the one with the next address, on a new environment, whose own first game it is.
    fresh = Lanes(broken(), [7], 2, episodes=[1])
    assert lanes.first[0] and np.array_equal(lanes.obs, fresh.obs)


def test_the_first_step_may_break_too():
    lanes = Lanes(broken(fault="raise", at=1, games=[0]), [7], 2)
    (tick,) = play(lanes, 1)
    assert tick.row.first[0] and tick.row.pad[0] and lanes.first[0] and lanes.episode[0] == 1


def test_other_lanes_do_not_notice():
    def env(fault):
        made = iter([fault, None])
        return GymEnv(2, Source("Walk", lambda render: Walk(fault=next(made, None), games=[0])))

    healthy, ill = Lanes(env(None), [1, 2], 2), Lanes(env("raise"), [1, 2], 2)
    for action in np.random.default_rng(0).integers(0, 3, (40, 2)):
        a, b = healthy.step(action), ill.step(action)
        assert all(np.array_equal(x[1], y[1]) for x, y in zip(a.row, b.row, strict=True))
    assert len(ill.news()) == 1 and healthy.news() == []


def test_after_three_in_a_row_it_is_given_up_and_one_step_is_left_to_save():
    env = broken(fault="raise", at=2)
    lanes = Lanes(env, [7], 2)
    play(lanes, 6)
    assert fault_of(env) == "" and len(lanes.news()) == 3 and lanes.episode[0] == 3
    play(lanes, 2)
    fault = fault_of(env)
    assert fault.startswith("Walk failed 4 times in a row in lane 0, the last time at step 2 of its game: ")
    assert "what was learned is saved" in fault and "\n" not in fault
    play(lanes, 1)
    with pytest.raises(UserError, match="4 times in a row"):
        play(lanes, 1)


def test_a_game_that_ends_well_or_lasts_forgives_what_was_before(monkeypatch):
    class EverySecond(Walk):
        count = 0

        def reset(self, *, seed=None, options=None):
            EverySecond.count += 1
            self.fault = "raise" if EverySecond.count % 2 else None
            return super().reset(seed=seed)

    def news(env: GymEnv, ticks: int, action: int) -> int:
        lanes = Lanes(env, [7], 2)
        play(lanes, ticks, action)
        assert not fault_of(env)
        return len(lanes.news())

    assert news(GymEnv(1, Source("EverySecond", lambda render: EverySecond())), 100, 2) > 6
    # No game ends well here, but they last: else the fourth fault would be the last.
    monkeypatch.setattr("vcrl.envs.gymnasium.PROVEN", 20)
    assert news(broken(fault="raise", at=30), 30 * 8, 0) == 8


def test_of_many_faults_few_are_told():
    class Often(Walk):
        count = 0

        def reset(self, *, seed=None, options=None):
            Often.count += 1
            self.fault, self.when = "raise" if Often.count % 2 else None, 1
            return super().reset(seed=seed)

        def step(self, action):
            seen, reward, *_ = super().step(action)
            return seen, reward, True, False, {}

    lanes = Lanes(GymEnv(1, Source("Often", lambda render: Often())), [7], 2)
    play(lanes, 140)
    assert Often.count >= 140
    told = lanes.news()
    assert len(told) == 20 + 2 and "in a row); 32 faults so far" in told[20] and "64 faults" in told[21]


def test_a_reset_that_breaks_is_tried_again_and_then_given_up():
    class Moody(Walk):
        tries = 0

        def reset(self, *, seed=None, options=None):
            Moody.tries += 1
            if Moody.tries in (1, 2):
                raise RuntimeError("not yet")
            return super().reset(seed=seed)

    env = GymEnv(1, Source("Moody", lambda render: Moody()))
    lanes, good = Lanes(env, [7], 2), Lanes(broken(), [7], 2)
    assert np.array_equal(lanes.obs, good.obs) and len(lanes.news()) == 2
    env = broken(fault="reset")
    Lanes(env, [7], 2)
    assert "Walk failed 4 times in a row in lane 0, the last time in reset: RuntimeError: no way" in fault_of(
        env
    )


def test_in_evaluation_a_game_counts_as_far_as_it_went_and_giving_up_is_at_once():
    env, on = (
        GymEnv(1, Source("Walk", lambda render: Walk(fault="nan", at=3)), training=False),
        np.ones(1, bool),
    )
    frame = env.reset(on, np.array([1], np.uint64))
    for _ in range(2):
        came = env.step(np.zeros(1, np.int32), on)
        assert not came.over[0] and not np.array_equal(came.frame, frame)
    last = env.step(np.zeros(1, np.int32), on)
    assert last.over[0] and not last.terminal[0] and last.reward[0] == 0
    assert np.array_equal(last.frame, came.frame)
    assert "the game counts as far as it went and the environment is built again" in env.news[0]
    broken_off = GymEnv(1, Source("Walk", lambda render: Walk(fault="reset")), training=False)
    with pytest.raises(UserError, match="4 times in a row"):
        broken_off.reset(on, np.array([1], np.uint64))


def test_an_environment_that_cannot_be_built_again_is_given_up():
    built = []

    def build(render: bool) -> Walk:
        built.append(1)
        if len(built) > 1:
            raise UserError("cannot build Walk: no more licences")
        return Walk(fault="raise")

    env = GymEnv(1, Source("Walk", build))
    play(Lanes(env, [7], 2), 3)
    assert fault_of(env) == "Walk failed and cannot be built again: cannot build Walk: no more licences"


@pytest.mark.parametrize("cut", [2, 3, 4, 10, 17])
def test_resuming_is_exact_across_games_that_broke(cut):
    """Game numbers 0 and 2 of every lane break, whoever plays them and however often."""

    class Address(Walk):
        def reset(self, *, seed=None, options=None):
            seen = super().reset(seed=seed)
            self.doomed = seed % 3 == 0
            return seen

        def step(self, action):
            if self.doomed and self.steps == 4:
                raise ValueError("doomed")
            return super().step(action)

    def lanes() -> Lanes:
        return Lanes(GymEnv(2, Source("Address", lambda render: Address())), [7, 8], 2)

    actions = np.random.default_rng(2).integers(0, 3, (40, 2))
    whole, first, second = lanes(), lanes(), lanes()
    for action in actions[:cut]:
        whole.step(action)
        first.step(action)
    second.load(first.save())
    for action in actions[cut:]:
        a, b = whole.step(action), second.step(action)
        assert (
            all(np.array_equal(x, y) for x, y in zip(a.row, b.row, strict=True)) and a.finished == b.finished
        )
        assert np.array_equal(whole.obs, second.obs)
    assert any("doomed" in text for text in whole.news())


def test_a_game_that_goes_another_way_when_played_again_is_dropped():
    """Not deterministic: it cannot be resumed exactly, but nothing breaks."""
    length = iter([30, 30, 3, 30, 30])

    class Fickle(Walk):
        def reset(self, *, seed=None, options=None):
            self.length = next(length)
            return super().reset(seed=seed)

        def step(self, action):
            seen, reward, *_ = super().step(action)
            return seen, reward, self.steps >= self.length, False, {}

    source = Source("Fickle", lambda render: Fickle())
    lanes, other = Lanes(GymEnv(1, source), [7], 2), Lanes(GymEnv(1, source), [7], 2)
    play(lanes, 10)
    other.load(lanes.save())  # played again, its game is over after 3 of 10 steps
    (tick,) = play(other, 1)
    assert tick.row.pad[0] and tick.finished == [] and other.episode[0] == 1
    assert "with the same seed and actions its game ended earlier" in other.news()[0]


def test_a_registered_environment_breaks_alike():
    env = GymEnv(1, by_name(None, register("Bad", limit=9, fault="raise", at=2)), Fit())
    play(Lanes(env, [7], 2), 2)
    assert "vcrltest/Bad-v0 failed in lane 0 at step 2" in env.news[0]
