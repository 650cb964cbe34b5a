"""What `vcrl check-env` finds and advises, on environments of which the truth is known."""

import warnings
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from own_games import Slide, Walk, register

from vcrl.core.errors import UserError
from vcrl.core.spec import Box as Continuous
from vcrl.core.spec import Discrete as Few
from vcrl.envs.check_env import check_env, default_name
from vcrl.envs.gym_adapt import Fit
from vcrl.envs.gym_advice import advise
from vcrl.envs.gym_check import Facts, Game, inspect
from vcrl.envs.gym_find import by_call, by_name
from vcrl.envs.gym_measure import new_size, unseen_in_gray
from vcrl.envs.gym_rewards import discounted, value_range


class Ball(gymnasium.Env):
    """A bright square on a field, in a game of 25 steps; how it moves, looks and pays is up to whoever inherits."""

    size, length = (40, 40), 25
    action_space = Discrete(4)

    def __init__(self):
        self.observation_space = Box(0, 255, (*self.size, 3), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.integers(5, 30, 2).astype(float)
        self.speed, self.steps = self.np_random.uniform(-3, 3, 2), 0
        return self.look(), {}

    def step(self, action):
        self.steps += 1
        self.move(action)
        return self.look(), self.pay(), False, self.steps == self.length, {}

    def move(self, action):
        self.place += [(-3, 0), (3, 0), (0, -3), (0, 3)][action]
        self.place = np.clip(self.place, 0, 33)

    def look(self):
        frame = np.zeros((*self.size, 3), np.uint8)
        row, column = self.place.astype(int)
        frame[row : row + 6, column : column + 6] = (255, 255, 255)
        return frame

    def pay(self):
        return float(self.place[0] > 20)


class Flying(Ball):
    def move(self, action):
        bounce = (self.place + self.speed < 0) | (self.place + self.speed > 33)
        self.speed = np.where(bounce, -self.speed, self.speed)
        self.place += self.speed


def facts_of(kind, steps=120, **changes) -> Facts:
    made = type(kind.__name__, (kind,), changes)
    return inspect(by_call(made), steps)


def test_where_pictures_tell_all_one_is_enough_and_where_things_fly_two_are_needed():
    seen = facts_of(Ball, 500)
    one, two = seen.past or (0, 0)
    assert one > 0.5 and two - one < 0.05 and advise(seen).settings["observation.stack"][0] == 1
    seen = facts_of(Flying, 500)
    one, two = seen.past or (0, 0)
    assert two - one > 0.2 and advise(seen).settings["observation.stack"][0] == 4


def test_colours_that_are_equally_bright_are_not_given_up():
    red, green = (255, 0, 0), (0, 130, 0)  # both are 76 in gray

    def look(self):
        frame = np.full((40, 40, 3), 30, np.uint8)
        frame[10:20, 10:20] = red if self.steps % 2 else green
        return frame

    facts = facts_of(Ball, look=look)
    assert facts.unseen_in_gray == 1.0 and not advise(facts).fit.gray
    assert facts_of(Ball).unseen_in_gray == 0.0 and advise(facts_of(Ball)).fit.gray
    assert unseen_in_gray([np.zeros((4, 4, 1), np.uint8)] * 3) == 0.0


def test_sizes():
    assert new_size((84, 84, 3)) is None and new_size((16, 100, 1)) is None
    assert new_size((400, 600, 3)) == (84, 84) and new_size((20, 400, 3)) == (20, 84)
    assert new_size((8, 10, 3)) == (16, 20) and new_size((7, 7, 3)) == (21, 21)


def test_motion_that_vanishes_when_made_smaller_is_noticed():
    def look(self):
        frame = np.zeros((300, 300, 3), np.uint8)
        frame[int(self.place[0]) * 3, int(self.place[1]) * 3] = 5  # a thirteenth of that is left at 84 pixels
        return frame

    facts = facts_of(Ball, size=(300, 300), look=look)
    assert facts.size == (84, 84) and facts.motion_lost > 0.5
    advice = advise(facts)
    assert advice.fit.size == (128, 128) and any("cannot be seen" in line for line in advice.warnings)
    assert any("brightest pixel is 5 of 255" in line for line in advice.warnings)


def test_a_picture_that_never_changes_cannot_be_trained_on(tmp_path):
    still = type("Still", (Ball,), {"look": lambda self: np.full((40, 40, 3), 200, np.uint8)})
    said: list[str] = []
    with pytest.raises(UserError, match="no config was written: its picture never changes"):
        check_env(still, tmp_path / "still.toml", 120, say=said.append)
    assert not list(tmp_path.iterdir()) and "FAIL" in said[0]


def test_pictures_that_rarely_change_are_said_to():
    slow = facts_of(Ball, move=lambda self, action: self.steps % 4 or Ball.move(self, action))
    assert slow.moved < 0.3 and any("repeat actions" in line for line in advise(slow).warnings)


def test_seeds():
    facts = facts_of(Ball)
    assert facts.repeats and not facts.alike
    careless = np.random.default_rng(5)

    def reset(self, *, seed=None, options=None):
        self.place, self.steps = careless.integers(5, 30, 2).astype(float), 0
        return self.look(), {}

    facts = facts_of(Ball, reset=reset)
    assert not facts.repeats and any("self.np_random" in line for line in advise(facts).warnings)

    def same(self, *, seed=None, options=None):
        Ball.reset(self, seed=3)
        return self.look(), {}

    facts = facts_of(Ball, reset=same)
    assert facts.repeats and facts.alike
    assert "all games begin alike" in " ".join(found for _, found, _ in advise(facts).table)


def test_ends():
    cut = advise(facts_of(Ball))
    assert (
        "episodes",
        "4 games of 25 to 25 steps, 0 terminated, 4 cut",
        "",
    ) in cut.table and not cut.warnings

    def step(self, action):
        seen, reward, _, ends, info = Ball.step(self, action)
        return seen, reward, ends, False, info

    wrong = advise(facts_of(Ball, step=step))
    assert any(
        "terminated after exactly 25 steps" in line and "truncated=True" in line for line in wrong.warnings
    )
    endless = advise(facts_of(Ball, length=10**6))
    assert endless.fit.limit == 1000 and endless.env["limit"][0] == 1000
    own = advise(inspect(by_name(None, register("Limited", limit=200, actions=Discrete(1, start=5))), 100))
    assert own.fit.limit is None
    assert ("episodes", "no game ended within 100 steps", "its own limit of 200") in own.table
    short = advise(facts_of(Ball, length=4))
    assert short.settings["n_step"][0] == 3 and "terms.spr.steps" not in short.settings
    limited = advise(inspect(by_call(lambda: gymnasium.wrappers.TimeLimit(Ball(), 4)), 120))
    assert {limited.settings[f"terms.{t}.steps"][0] for t in ("spr", "vcr", "cycle")} == {3}


def test_faults_in_check_are_reported_and_too_many_fail():
    once = iter([True])
    breaks = {"pay": lambda self: 1 / 0 if self.steps == 7 and next(once, False) else 1.0}
    facts = facts_of(Ball, **breaks)
    assert facts.steps == 120 and facts.faults == ["at step 7 of a game: ZeroDivisionError: division by zero"]
    advice = advise(facts)
    assert not advice.failures and any("it failed at step 7" in line for line in advice.warnings)
    always = advise(facts_of(Ball, pay=lambda self: float("nan")))
    assert "it failed 4 times" in always.failures[0] and "the reward nan" in always.failures[0]


def test_kinds_of_environments():
    facts = inspect(by_call(Slide), 120)
    assert facts.actions == Continuous(2) and facts.action_words == "Box of 2, bounds of their own"
    advice = advise(facts)
    assert "value.low" not in advice.settings and advice.settings["observation.stack"][0] in (1, 3)
    both = {"eye": Box(0, 255, (40, 40, 3), np.uint8), "arm": Box(-1, 1, (3,))}

    class Parts(Ball):
        def __init__(self):
            super().__init__()
            self.observation_space = Dict(both)

        def look(self):
            return {"eye": super().look(), "arm": np.zeros(3, np.float32)}

    facts = inspect(by_call(Parts), 120)
    assert facts.fit == Fit(key="eye") and advise(facts).env["key"][0] == "eye"
    floats = inspect(by_call(lambda: Walk(shape=(3, 16, 20), dtype=np.float32, high=1.0)), 120)
    assert floats.layout == "first" and floats.dtype == "float32" and floats.frame == (16, 20, 3)


def made(*games: list[float], limit: int | None = None, terminated: bool = True) -> Facts:
    """Facts of which only the rewards matter."""
    facts = Facts(
        "X", Fit(), "Box", (84, 84), "flat", (84, 84, 1), "uint8", Few(2), "Discrete(2)", limit, None
    )
    facts.games = [Game(list(rewards), terminated, not terminated) for rewards in games]
    return replace(facts, moved=1.0, brightest=255, step_seconds=0.01)


def test_discounted_returns_by_hand():
    assert discounted(np.array([1.0, 0.0, 2.0])) == pytest.approx([1 + 0.99**2 * 2, 0.99 * 2, 2])


def test_the_range_of_values_by_hand():
    ones = (1 - 0.99**500) / 0.01  # 99.34
    assert value_range(made([1.0] * 20, limit=500), 500, "raw")[:2] == (0, 100) and 99 < ones < 100
    assert value_range(made([-1.0] * 200, limit=200), 200, "raw")[:2] == (-87, 0)  # 86.6 at most
    assert value_range(made([0, 0, 5], [0, -3]), None, "raw")[:2] == (-3, 5), "only at the end: once"
    # Once in fifty steps, and not at the end: twice the largest return seen, 1 + 0.99^50 + ..., is 2 * 2.3 = 4.7.
    rare = ([1.0] + [0.0] * 49) * 4
    seen = sum(0.99 ** (50 * i) for i in range(4))
    assert value_range(made(rare, limit=1000), 1000, "raw")[1] == pytest.approx(2 * seen, abs=0.1)
    assert value_range(made([0.0] * 20), None, "raw")[:2] == (-1, 1)
    assert value_range(made([50, 0, -7, 0] * 20, limit=10), 10, "sign")[:2] == (-9.6, 9.6), (
        "never beyond ten of them"
    )


def test_what_learners_are_given():
    assert advise(made([1.0, 0, -1] * 50)).settings["observation.reward"][0] == "raw"
    events = advise(made(([0.0] * 9 + [1.0]) * 30 + [0.0, 250.0, 0.0]))
    assert events.settings["observation.reward"][0] == "sign"
    assert any("only their signs are learned from" in line for line in events.warnings)
    nothing = advise(made([0.0] * 100))
    assert any("no reward in 100 random steps" in line for line in nothing.warnings)
    assert "value.low" not in nothing.settings
    large = advise(made([1000.0, 0.0] * 100))
    assert any("such as drq" in line and "TransformReward" in line for line in large.warnings)
    flat = advise(made([1.0] * 100, terminated=False))
    assert any("all actions are worth the same" in line for line in flat.warnings)


def test_budget_and_memory():
    quick = advise(made([1.0, 0.0] * 50))
    assert quick.train["steps"][0] == 20_000 and quick.settings["replay.capacity"][0] == 20_000
    slow = advise(replace(made([1.0, 0.0] * 50), step_seconds=1.0))  # 5 seeds have 8 hours
    assert slow.train["steps"][0] == 5000 and slow.settings["terms.vcr.ramp"][0] == 2500
    assert slow.settings["learn_start"][0] == 500
    # 84 * 84 + 16 bytes a row, five seeds, half of 350 MB: 4928 rows.
    small = advise(made([1.0, 0.0] * 50), free=350_000_000)
    assert small.settings["replay.capacity"][0] == 4000
    assert any("half of the memory" in line for line in small.warnings)


def test_the_whole_report_and_what_is_refused(tmp_path):
    said: list[str] = []
    target = tmp_path / "ball.toml"
    check_env(Ball, target, 200, say=said.append)
    table, wrote = said
    rows = [" ".join(line.split()) for line in table.splitlines() if not line.startswith(("speed", "motion"))]
    assert rows == [
        f"{__name__}:Ball, 200 random steps",
        "pictures 40x40, colour, uint8, channels last -> as it is",
        "colour 0% of the pixels that change would not in gray -> gray",
        "actions Discrete(4)",
        "episodes 8 games of 25 to 25 steps, 0 terminated, 8 cut",
        "rewards 0 to 1, at 50% of the steps -> raw, values 0 to 100",
        "seeds the same seed gave the same game",
        "replay 0.03 GB a seed -> 20,000 steps",
    ]
    assert wrote == f'wrote {target}; next: vcrl.train("vcr", "{target}", env=...)'
    with pytest.raises(UserError, match="exists: give another --out, or --overwrite"):
        check_env(Ball, target, 200, say=said.append)
    check_env(Ball, target, 200, overwrite=True, say=said.append)
    with pytest.raises(UserError, match="at least 100"):
        check_env(Ball, target, 99)
    with pytest.raises(UserError, match="leave @gray out"):
        check_env("CartPole-v1@gray", target)
    with pytest.raises(UserError, match="cannot write"):
        check_env(Ball, tmp_path / "no" / "ball.toml", 100, say=said.append)


def test_names_of_files():
    assert default_name("my_games.deep:ALE/Harvest_2-v12") == "harvest-2.toml"
    assert default_name("__main__:<lambda>") == "lambda.toml" and default_name("-v0") == "environment.toml"


@pytest.mark.slow
def test_car_racing():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its bindings are older than the warnings that are errors here
        import Box2D  # type: ignore  # noqa: F401
    facts = inspect(by_name(None, "CarRacing-v3"), 200)
    assert facts.actions == Continuous(3) and facts.frame == (96, 96, 3) and facts.limit == 1000
    assert facts.repeats and facts.moved > 0.9 and not facts.faults
    advice = advise(facts)
    assert not advice.failures and advice.fit == Fit(gray=True) and "value.low" not in advice.settings
