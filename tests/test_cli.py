"""Bad input is one line with what to do and exit code 2; good input does what it says."""

import io
import subprocess
import sys

import jax
import pytest

import vcrl
from vcrl.cli import main
from vcrl.commands.making import Train
from vcrl.commands.words import parse_changes, parse_seeds
from vcrl.core.errors import UserError
from vcrl.runs import rates
from vcrl.runs.folder import run_path
from vcrl.training import run
from vcrl.training.plan import make_plan

BAD = {
    "trian vcr catch": "did you mean train?",
    "train vrc catch": "did you mean vcr",
    "train vcr cath": "did you mean catch",
    "train vcr catch --stpes 5": "did you mean --steps",
    "train vcr catch --terms.vcr.wieght 1": "did you mean --terms.vcr.weight",
    "train spr catch --terms.vcr.weight 1": "'terms.vcr.weight' does not apply",
    "train vcr catch --xyz 1": "unknown flag '--xyz': `vcrl train --help` and `vcrl methods NAME` list them.",
    "train vcr catch --batch many": "batch: expected int",
    "train vcr catch --batch": "--batch needs a value",
    "train vcr catch extra": "one argument too many",
    "train vcr catch --seeds 1,1": "seed 1 is given twice",
    "train vcr catch --seeds -1:2": "seed -1 is negative",
    "train vcr catch --seeds 3:3": "no seeds",
    "train vcr catch --seeds all": "give a range such as 0:5",
    "train vcr catch --steps 0": "at least one agent step",
    "train vcr catch --steps 100": "ends before learning starts at 200",
    "train vcr catch --terms.vcr.steps 7": "at most 6 can be imagined",
    "train vcr catch --terms.spr.steps 0": "at least one step",
    "train vcr catch --learn-start 4": "learning can start at 9 at the earliest",
    "train vcr catch --replay.capacity 5": "at least 10 rows are needed",
    "train vcr catch --encoder nature": "too small for the 'nature' encoder",
    "train vcr catch --encoder big": "known are nature, nature-same, data-efficient, small",
    "train vcr catch --terms.vcr.taken best": "known are n-step, real",
    "train vcr catch --observation.reward clip": "known are sign, raw",
    "train vcr catch --evaluate-every -5": "0 is never",
    "train vcr catch --steps 200000000 --replay.capacity 200000000": "a smaller --replay.capacity",
    "train vcr catch --steps 999999999": "can be counted",
    "train vcr catch --value.atoms 1": "between 2 and 1001",
    "train vcr catch --value.low 3": "must be below --value.high",
    "train vcr catch --gamma 1.5": "between 0.0 and 1.0",
    "train vcr catch --gamma NaN": "must be a finite number",
    "train vcr catch --augment.shift -1": "between 0 and 64",
    "demo --games gym:CartPole-v1": "no known random and best scores",
    "demo --methods": "at least one method",
    "train der reach": "der is not made for continuous actions",
    "train sac catch": "sac is not made for discrete actions",
    "train vcr reach --crop 90": "has 16x16 pixels",
    "train vcr reach --crop 12": "a crop shifts already; give --crop none",
    "train sac-ae reach --crop 12": "drawn again is the whole image; give --crop none",
    "train vcr reach --terms.vcr.steps 19": "at most 18 can be imagined",
    "train vcr reach --encoder nature": "known are small, control, control-32",
    "train vcr reach --continuous.samples 0": "at least 1",
    "train vcr gym:NoSuchThing-v0": "NoSuchThing",
    "train vcr nowhere.toml": "no config at nowhere.toml",
    "train vcr catch --module no_such_module": "cannot import 'no_such_module', which --module names",
    "check-env NoSuchThing-v0": "NoSuchThing",
    "check-env CartPole-v1@gray": "leave @gray out",
    "check-env CartPole-v1 --steps 5": "at least 100",
    "eval nowhere": "nowhere",
    "watch nowhere": "nowhere",
    "methods vrc": "did you mean vcr",
    "methods --diff spr vrc": "did you mean vcr",
    "methods --suite tyo": "did you mean toy",
    "tasks --all": "unknown flag '--all'",
    "ls nowhere": "no run folder at nowhere",
    "ls --jsno": "did you mean --json",
    "show nowhere": "no run folder at nowhere",
    "compare nowhere elsewhere": "no run folder at nowhere",
    "report": "name run folders",
    "report .": "no runs in .: `vcrl train` makes them",
    "ls .": "no runs in .",
    # What is missing, and in which form.
    "train": "METHOD and TASK are missing: vcrl train METHOD TASK; vcrl train --help says more",
    "train vcr": "TASK is missing: vcrl train METHOD TASK",
    "eval": "RUN is missing: vcrl eval RUN",
    "check-env": "ENV is missing: vcrl check-env ENV",
    "campaign toy": "--methods is missing: vcrl campaign SUITE --methods ...",
    "train vcr catch --seeds": "--seeds needs a value",
    "train vcr catch --steps abc": "--steps abc: expected a whole number",
    "audit nowhere --tolerance x": "--tolerance x: expected a number",
    "methods --diff spr": "--diff spr: expected two names",
    "methods --name vcr": "unknown flag '--name': known: --diff, --help, --suite.",
    "train --sedes 0:5 vcr catch": "unknown flag before METHOD TASK '--sedes': did you mean --seeds",
    "train --batch 16 vcr catch": "unknown flag before METHOD TASK '--batch': settings come behind METHOD TASK",
    "eval --json run": "unknown flag before RUN '--json': known: --episodes, --module.",
    # What is too much.
    "ls --json=true": "--json is given or not, and has no value",
    "methods one two": "'two' is one argument too many: vcrl methods [METHOD]",
    "doctor now": "'now' is one argument too many: vcrl doctor\n",
    "show one two": "'two' is one argument too many: vcrl show RUN",
    "campaign toy --methods spr vcr": "lists have commas and no spaces",
    "check-env one two": "'two' is one argument too many: vcrl check-env ENV",
    # What is called otherwise here.
    "train VCR catch": "did you mean vcr",
    "train vcr catch --lr 1": "did you mean --adam.rate?",
    "train vcr CartPole-v1": "gym:CartPole-v1? For one of Gymnasium `vcrl check-env CartPole-v1` writes",
    "train vcr catch --resume yes": "--resume yes: known are auto, never, must",
    "train vcr catch --protocol atari100k": "those of catch are toy",
    "report nowhere": "no run folder at nowhere",
    "report --bank nowhere": "no bank of runs at nowhere",
}


@pytest.mark.parametrize("line", BAD)
def test_bad_input_is_one_clear_line(line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(line.split())
    said = capsys.readouterr().err
    assert stop.value.code == 2
    assert said.startswith("vcrl: ") and said.count("\n") == 1
    assert BAD[line] in said
    assert not list(tmp_path.iterdir()), "nothing is written before the input is known to be good"


def test_in_a_terminal_with_colours_it_is_the_same_line(capsys, monkeypatch):
    monkeypatch.setattr("tyro._fmtlib._FORCE_ANSI", True)
    with pytest.raises(SystemExit):
        main(["train", "vcr"])
    assert (
        capsys.readouterr().err
        == "vcrl: TASK is missing: vcrl train METHOD TASK; vcrl train --help says more\n"
    )


def test_an_unwritable_place_is_one_clear_line(capsys, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SystemExit) as stop:
        main(f"train rainbow catch --steps 300 --out {tmp_path / 'file'}".split())
    assert stop.value.code == 2 and "--out" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text, seeds", [("0:5", [0, 1, 2, 3, 4]), (":2", [0, 1]), ("7", [7]), ("0,3,7", [0, 3, 7])]
)
def test_seeds(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    "text", ["0:five", "1:2:3", "", "1,,2", "0:99999999999", f"0:{'9' * 30}", "9" * 5000, "2:2", "5:3"]
)
def test_seeds_that_are_no_numbers_too_many_or_none(text):
    with pytest.raises(UserError, match="0:5") as caught:
        parse_seeds(text)
    assert len(str(caught.value)) < 200


def test_none_is_a_word_where_words_are_wanted_and_nothing_elsewhere():
    words = ["--terms.vcr.others", "none", "--noise=none", "--terms.spr", "None", "--batch", "8"]
    found = parse_changes(Train("vcr", "catch"), words)
    assert found == {"terms.vcr.others": "none", "noise": None, "terms.spr": None, "batch": 8}


def test_methods_diff_shows_exactly_what_differs(capsys):
    main(["methods", "--diff", "vcr", "vcr-mse"])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert rows == [["terms.vcr.taken", "n-step", "real"], ["terms.vcr.others", "others", "none"]]


def test_methods_and_tasks_are_listed(capsys):
    main(["methods"])
    main(["tasks"])
    said = capsys.readouterr().out
    for name in ("rainbow", "spr", "vcr", "vcr-mse", "vcr-mse-a", "catch", "balloon", "snow", "reach"):
        assert name in said


def test_one_method_with_the_source_of_every_value(capsys):
    main(["methods", "vcr", "--suite", "toy"])
    said = capsys.readouterr().out
    assert "terms.vcr.weight" in said and "paper" in said and "toy:" in said


def test_help_and_version(capsys):
    main([])
    main(["--version"])
    said = capsys.readouterr().out
    assert "vcrl train" in said and "vcrl 0." in said


def test_train_eval_and_watch_from_the_command_line(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = "--batch 4 --hidden 8 --learn-start 30 --seeds 1,4 --log-every 20 --gradients-every 0"
    main(f"train rainbow snow --steps 60 {settings} --dry-run".split())
    before = capsys.readouterr().out
    assert "60 agent steps  2 seeds  replay " in before and not list(tmp_path.iterdir())
    main(f"train rainbow snow --steps 60 {settings}".split())
    said = capsys.readouterr().out
    assert "changed for this run" in said and "run folder: " in said and "normalised" in said
    folder = said.split("run folder: ")[1].strip()
    assert before.split("would begin: ")[1].strip() == folder
    main(f"train rainbow snow --steps 60 {settings} --dry-run".split())
    assert f"finished already: {folder}" in capsys.readouterr().out
    main(f"eval {folder} --episodes 3".split())
    assert "3 games a seed" in capsys.readouterr().out
    main(f"watch {folder} --out play.gif --episodes 1 --seeds 4".split())
    assert (tmp_path / "play.gif").read_bytes().startswith(b"GIF")


def test_a_dry_run_tells_how_far_a_run_is_and_how_long_it_takes(capsys, tmp_path, monkeypatch):
    plan = make_plan("vcr", "pong", [0, 1])
    path = run_path(tmp_path, "atari", "vcr", "pong", (0, 1), plan.digest)
    (path / "checkpoint").mkdir(parents=True)
    monkeypatch.setattr(run.checkpoint, "generations", lambda folder: [4000, 5000])
    monkeypatch.setattr(rates, "speed", lambda: rates.CORES_SPEED)
    monkeypatch.setattr(
        rates, "table_seconds", lambda *asked: 6000.0 if asked[2:5] == ("vcr", "pong", 2) else 0
    )
    line = f"train vcr pong --seeds 0:2 --dry-run --out {tmp_path}".split()
    main(line)
    said = capsys.readouterr().out
    assert "\nno GPU found: about 1.7 h, by two CPU cores" in said
    assert f"\nwould continue from 5,000 agent steps: {path}\n" in said
    with pytest.raises(SystemExit):
        main([*line, "--resume", "never"])
    assert "saved at 5,000 agent steps" in capsys.readouterr().err
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    main(line)
    assert "\nabout 1.7 h, by one H200\n" in capsys.readouterr().out


def test_a_user_environment_is_found_in_the_folder_one_stands_in(capsys, tmp_path, monkeypatch):
    (tmp_path / "lamp_env.py").write_text(LAMP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    settings = "--batch 4 --hidden 8 --learn-start 30 --seeds 0,1 --log-every 20 --gradients-every 0"
    main(f"train rainbow gym:lamp_env:Lamp-v0 --steps 60 {settings}".split())
    said = capsys.readouterr().out
    assert "rainbow on gym:lamp_env:Lamp-v0" in said and "run folder: " in said


LAMP = '''
import gymnasium, numpy as np


class Lamp(gymnasium.Env):
    """Press the button on the lit side, for ten steps."""

    observation_space = gymnasium.spaces.Box(0, 255, (20, 20, 3), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.side = int(self.np_random.integers(2))
        return self.picture(), {}

    def step(self, action):
        reward = float(action == self.side)
        self.side = int(self.np_random.integers(2))
        return self.picture(), reward, False, False, {}

    def picture(self):
        frame = np.zeros((20, 20, 3), np.uint8)
        frame[:, 10 * self.side : 10 * self.side + 10] = 255
        return frame


gymnasium.register("Lamp-v0", entry_point=Lamp, max_episode_steps=10)
'''


def test_it_can_be_run_as_a_module():
    done = subprocess.run([sys.executable, "-m", "vcrl", "--version"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == f"vcrl {vcrl.__version__}\n"
