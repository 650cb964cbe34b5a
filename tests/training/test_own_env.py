"""Training on environments of one's own, from the command line and from Python, also where they break."""

import io
import re
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from rich.console import Console
from tiny import assert_same_files, tiny

import vcrl
from vcrl.cli import main
from vcrl.core.errors import UserError
from vcrl.envs import registry
from vcrl.envs.lanes import game_seed
from vcrl.training import evaluate
from vcrl.training.config_file import asked
from vcrl.training.plan import Schedule, make_plan

pytestmark = pytest.mark.usefixtures("quick_compiles")
# All trainings here look the same to the compiler.
FIT = "16x16,gray"
QUIET = Schedule(log=10, gradients=0, q_error=0)


class Lamp(gymnasium.Env):
    """Press the button on the lit side; a game has eight steps. Games whose seed is doomed break in their fourth."""

    observation_space = Box(0, 255, (20, 20, 3), np.uint8)
    action_space = Discrete(2, start=1)
    doomed, broken = 0, False  # one game in so many breaks; or all of them

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.bad = self.broken or (self.doomed and seed % self.doomed == 0)
        self.side, self.steps = int(self.np_random.integers(2)), 0
        return self.look(), {}

    def step(self, action):
        self.steps += 1
        if self.bad and self.steps == 4:
            raise RuntimeError("the bulb burst")
        reward, self.side = float(action - 1 == self.side), int(self.np_random.integers(2))
        return self.look(), reward, False, self.steps == 8, {}

    def look(self):
        frame = np.zeros((20, 20, 3), np.uint8)
        frame[:, 10 * self.side : 10 * self.side + 10] = 255
        return frame


class Doomed(Lamp):
    doomed = 3


def own(out, **more):
    return tiny(out, "rainbow", None, **{"env": Doomed, "fit": FIT, "schedule": QUIET, **more})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return own(tmp_path_factory.mktemp("whole"))


def test_a_game_that_breaks_is_noted_and_not_scored(whole):
    assert (
        whole.plan.task.name == f"gym:{__name__}:Doomed@16x16,gray" and whole.folder.status["state"] == "done"
    )
    events = [event["event"] for event in whole.folder.status["events"]]
    dropped = [text for text in events if "the game is dropped" in text]
    assert dropped and all("at step 4 of its game: RuntimeError: the bulb burst" in text for text in dropped)
    assert {row.length for row in whole.folder.episodes()} == {8}, "only whole games are in the log"
    gaps = [row.episode for row in whole.folder.episodes() if row.seed == 3]
    assert gaps == sorted(set(gaps)) and len(gaps) < max(gaps) + 1


@pytest.mark.parametrize("stops", [(37,), pytest.param((9, 31, 64), marks=pytest.mark.slow)])
def test_stopped_and_resumed_equals_not_stopped_though_games_break(whole, tmp_path, stops):
    for at in stops:
        own(tmp_path, halt=lambda agent_steps, at=at: agent_steps == at)
    assert_same_files(own(tmp_path), whole)


def test_an_environment_that_breaks_always_ends_the_run_with_everything_saved(whole, tmp_path, monkeypatch):
    said = io.StringIO()
    own(tmp_path, halt=lambda agent_steps: agent_steps == 40)
    monkeypatch.setattr(Doomed, "broken", True)
    with pytest.raises(UserError, match="failed 4 times in a row") as caught:
        own(tmp_path, log=Console(file=said, width=300))
    assert "\n" not in str(caught.value)
    (path,) = (p.parent for p in tmp_path.rglob("status.json"))
    run = vcrl.load_run(path)
    status = run.folder.status
    assert status["state"] == "failed" and "the bulb burst" in status["reason"]
    saved = sorted(p.stem for p in (path / "checkpoint").glob("*.safetensors"))[-1]
    assert int(saved) == status["agent_steps"] > 50, "saved at the very step at which it was given up"
    assert "continuing at 40 agent steps" in said.getvalue()
    monkeypatch.setattr(Doomed, "broken", False)
    said = io.StringIO()
    run = own(tmp_path, log=Console(file=said, width=300))
    assert f"continuing at {status['agent_steps']} agent steps" in said.getvalue()
    assert run.folder.status["state"] == "done" and run.folder.status["reason"] is None


def test_a_run_is_found_again_by_the_name_of_what_makes_its_environment(whole, monkeypatch):
    again = vcrl.load_run(whole.path)
    scores = again.evaluate(2)
    registry.OWN.clear()  # as in another process
    assert vcrl.load_run(whole.path).evaluate(2) == scores, "its module is imported here"
    assert vcrl.load_run(whole.path, env=lambda: Doomed()).evaluate(2) == scores
    registry.OWN.clear()
    monkeypatch.delitem(sys.modules, __name__)
    with pytest.raises(UserError, match="a file cannot have code imported"):
        vcrl.load_run(whole.path)


def test_names_tell_runs_apart():
    def plan(**more):
        return make_plan("rainbow", asked("rainbow", None, None, None, env=lambda: Lamp(), **more).task)

    one, two = plan(), plan(name="lamp 2", fit=FIT)
    assert one.task.name == f"gym:{__name__}:Lamp" and two.task.name == "gym:lamp 2@16x16,gray"
    assert (
        two.task.spec.frame == (16, 16, 1) and one.digest != two.digest == plan(name="lamp 2", fit=FIT).digest
    )


def test_the_policy_takes_what_the_environment_shows(whole):
    run, env = vcrl.load_run(whole.path, env=Lamp), Lamp()
    for number, game in enumerate(run.evaluate(2)[3]):
        run.policy.reset()
        seen, _ = env.reset(seed=int(game_seed(evaluate.EVAL_SALT, 3, number)) % 2**31)
        total, over = 0.0, False
        while not over:
            seen, reward, _, over, _ = env.step(run.policy(seen, seed=3) + 1)
            total += reward
        assert total == game.score
    with pytest.raises(UserError, match="not the uint8"):
        run.policy(np.zeros((30, 30, 3), np.uint8))


def test_what_can_be_asked_for():
    with pytest.raises(UserError, match="one of them is enough"):
        asked("vcr", "catch", None, None, env=Lamp)
    with pytest.raises(UserError, match="nothing to train on"):
        asked("vcr", None, None, None)
    with pytest.raises(UserError, match="is a name already"):
        asked("vcr", None, None, None, env="CartPole-v1", name="x")
    with pytest.raises(UserError, match="give a class or a function"):
        vcrl.train("vcr", env=Lamp())
    found = asked("vcr", None, 7, {"batch": 3}, env="CartPole-v1", fit="render,42x42")
    assert found == ("gym:CartPole-v1@render,42x42", 7, {"batch": 3})


CONFIG = """
[env]
id = "NAME"
size = [16, 16]
gray = true
[train]
steps = 80
[settings]
learn_start = 30
value.high = 10.0
terms.vcr.ramp = 35
"""


def test_one_config_serves_all_methods_and_the_command_line_goes_first(tmp_path):
    path = tmp_path / "lamp.toml"
    path.write_text(CONFIG.replace("NAME", f"{__name__}:Lamp"))
    settings = {"learn_start": 30, "value.high": 10.0}
    assert asked("vcr", str(path), None, {}) == (
        f"gym:{__name__}:Lamp@16x16,gray",
        80,
        {**settings, "terms.vcr.ramp": 35},
    )
    assert asked("spr", str(path), None, {}).changes == settings, "spr has no value consistency"
    assert asked("drq", str(path), None, {}).changes == {"learn_start": 30}, "nor has drq a range of values"
    first = asked("spr", str(path), 60, {"value.high": 2.0})
    assert first.steps == 60 and first.changes == {"learn_start": 30, "value.high": 2.0}
    other = asked("spr", str(path), None, {}, env=Doomed)
    assert other.task == f"gym:{__name__}:Doomed@16x16,gray", "the environment in it can be replaced"
    plan = make_plan("vcr", first.task, [0], 60, first.changes)
    assert plan.task.spec.frame == (16, 16, 1) and plan.config.value.high == 2.0
    path.write_text(CONFIG.replace("NAME", f"{__name__}:Lamp") + "valeu.low = 3\n")
    with pytest.raises(UserError, match=r"did you mean value\.low"):
        asked("vcr", str(path), None, {})


MODULE = """
import gymnasium
from {here} import Lamp
gymnasium.register("vcrltest/Lamp-v0", entry_point=Lamp)
print("imported")
"""


def test_a_config_cannot_import_but_the_command_line_can(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "lamp_module.py").write_text(MODULE.format(here=__name__))
    (tmp_path / "lamp.toml").write_text(CONFIG.replace("NAME", "lamp_module:vcrltest/Lamp-v0"))
    words = ["--seeds", "3,5", "--value.atoms", "11", "--n-step", "2", "--batch", "4", "--hidden", "8"]
    words += ["--q-error-every", "0", "--gradients-every", "0"]
    with pytest.raises(SystemExit) as stop:
        main(["train", "rainbow", "lamp.toml", *words])
    told = capsys.readouterr()
    assert stop.value.code == 2 and "--module lamp_module" in told.err and told.err.count("\n") == 1
    assert "imported" not in told.out and "lamp_module" not in sys.modules
    main(["train", "rainbow", "lamp.toml", "--module", "lamp_module", *words])
    told = capsys.readouterr().out
    assert "imported" in told and "rainbow on gym:lamp_module:vcrltest/Lamp-v0@16x16,gray" in told
    (folder,) = (p.parent for p in tmp_path.rglob("status.json"))

    # Nor can a run folder, which may be a stranger's as well.
    del sys.modules["lamp_module"], gymnasium.registry["vcrltest/Lamp-v0"]
    with pytest.raises(SystemExit):
        main(["eval", str(folder), "--episodes", "1"])
    assert "--module lamp_module" in capsys.readouterr().err and "lamp_module" not in sys.modules
    main(["eval", str(folder), "--episodes", "1", "--module", "lamp_module"])
    assert "1 games a seed" in capsys.readouterr().out
    del sys.modules["lamp_module"], gymnasium.registry["vcrltest/Lamp-v0"]


@pytest.mark.slow
def test_from_a_check_to_a_score_on_cart_pole_pixels(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main(["check-env", "CartPole-v1", "--steps", "150"])
    said = capsys.readouterr().out
    assert "400x600, colour, uint8, channels last, rendered" in said and "Discrete(2)" in said
    assert "wrote cartpole.toml; next: vcrl train vcr cartpole.toml" in said
    text = (tmp_path / "cartpole.toml").read_text()
    for line in (
        "render = true",
        "size = [84, 84]",
        "gray = true",
        "observation.stack = 4",
        "value.high = 100.0",
    ):
        assert re.search(rf"^{re.escape(line)} +# \S", text, re.MULTILINE)
    (tmp_path / "cartpole.toml").write_text(text.replace("[84, 84]", "[20, 20]"))
    settings = (
        "--steps 60 --learn-start 40 --batch 4 --hidden 8 --seeds 0 --q-error-every 0 --gradients-every 0"
    )
    main(f"train vcr cartpole.toml {settings}".split())
    said = capsys.readouterr().out
    assert "vcr on gym:CartPole-v1@render,20x20,gray" in said
    (status,) = tmp_path.rglob("status.json")
    run = vcrl.load_run(status.parent)
    assert run.plan.config.observation.stack == 4 and run.plan.config.value.high == 100
    score = run.scores()[0]
    assert 8 <= score <= 500 and score == run.folder.status["scores"]["0"], "a point for each step"


class Push(gymnasium.Env):
    """Continuous actions: push a light towards the middle; cut after twelve steps."""

    observation_space = Box(0, 255, (20, 20, 3), np.uint8)
    action_space = Box(-4, 4, (2,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(0, 17, 2)
        return self.look(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.place = np.clip(self.place + action, 0, 17)
        return self.look(), 1 - float(np.abs(self.place - 8.5).mean()) / 8.5, False, False, {}

    def look(self):
        frame = np.zeros((20, 20, 3), np.uint8)
        row, column = self.place.astype(int)
        frame[row : row + 3, column : column + 3] = 255
        return frame


@pytest.mark.slow
def test_continuous_actions(tmp_path):
    changes = {
        "batch": 4,
        "auxiliary.batch": 4,
        "hidden": 8,
        "transition": 8,
        "projection": 8,
        "learn_start": 30,
    }
    log = Console(file=io.StringIO())
    run = vcrl.train("sac", None, (0,), 60, changes, QUIET, tmp_path, log, env=Push, fit="limit=12")
    assert run.plan.base == "sac" and run.folder.status["state"] == "done"
    assert 0 <= run.scores()[0] <= 12
