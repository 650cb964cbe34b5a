"""Training with a loss of one's own, from the command line and from Python."""

import importlib
import sys

import numpy as np
import pytest
from tiny import CHANGES, SCHEDULE, assert_same_files, tiny

import vcrl
from vcrl.bench.audit import audit
from vcrl.bench.listing import list_runs
from vcrl.bench.report import report
from vcrl.campaign.ask import make_ask
from vcrl.cli import main
from vcrl.core.errors import UserError
from vcrl.runs.verify import failed, verify
from vcrl.training import engine
from vcrl.training.plan import Schedule, make_plan
from vcrl.training.run import preview, train_plan

pytestmark = pytest.mark.usefixtures("quick_compiles")

IDEAS = """
import equinox as eqx
import jax
import jax.numpy as jnp
import vcrl

def guesser(key, shape, actions):
    return eqx.nn.Linear(shape[-1], 1, key=key)

@vcrl.loss(nets=guesser)
def reward(view, key, scale=1.0):
    pooled = view.imagined[1:].mean(axis=(2, 3))
    said = jax.vmap(jax.vmap(view.online.own))(pooled)[..., 0]
    wrong = (said - view.reward[:-1]) ** 2 * view.alive[:-1]
    return scale * wrong.mean(axis=0), {"error": wrong}

@vcrl.loss
def blind(view, key):
    return view.alive[0] * 0.0

@vcrl.loss
def broken(view, key):
    return view.imagind[0]

@vcrl.loss(targets=True)
def ahead(view, key):
    return view.td_target[0].sum(-1)
"""
WORDS = [
    "--seeds=3,5",
    "--steps=80",
    "--batch=4",
    "--hidden=8",
    "--value.atoms=11",
    "--n-step=2",
    "--learn-start=30",
]
QUIET = ["--log-every=10", "--q-error-every=0", "--gradients-every=40"]


@pytest.fixture
def ideas(tmp_path, monkeypatch):
    """Where a user stands, with a file of losses."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some_ideas.py").write_text(IDEAS)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "some_ideas.py"
    sys.modules.pop("some_ideas", None)


def test_from_the_command_line_to_a_score_and_back_to_the_run(ideas, capsys):
    main(["train", "rainbow+some_ideas:reward", "catch", *WORDS, *QUIET, "--terms.own.steps", "2"])
    said = capsys.readouterr().out
    assert "some_ideas:reward" in said and "rainbow+some_ideas:reward on catch" in said
    (path,) = (p.parent for p in ideas.parent.rglob("status.json"))
    assert path.parts[-3] == "rainbow_some_ideas_reward"
    run = vcrl.load_run(path)
    rows = run.folder.metrics()
    assert np.all(np.isfinite([row["own/error"] for row in rows])) and all(
        loss > 0 for loss in rows[-1]["loss/own"]
    )
    assert any("grad_norm/own" in row for row in rows)
    assert not failed(verify(path))

    # Nothing but training needs code of the user's.
    del sys.modules["some_ideas"]
    engine._engines.clear()  # type: ignore
    assert [line.method for line in list_runs(path.parents[3]).lines] == ["rainbow+some_ideas:reward"]
    _, written = report([path.parents[3]], ideas.parent / "report", None, None, None, False, False)
    assert "rainbow+some_ideas:reward" in written[0].read_text()
    capsys.readouterr()
    main(["eval", str(path), "--episodes", "1"])
    assert "1 games a seed" in capsys.readouterr().out
    assert audit(path).holds and "some_ideas" not in sys.modules
    # Nor does it matter what else that module has by now.
    again(ideas, "import vcrl")
    importlib.import_module("some_ideas")
    engine._engines.clear()  # type: ignore
    assert len(vcrl.load_run(path).evaluate(episodes=1)) == 2


def test_stopped_and_resumed_equals_not_stopped(ideas, tmp_path):
    changes = {"terms.own.numbers": [["scale", 0.5]]}
    whole = tiny(tmp_path / "whole", "spr+some_ideas:reward", changes=changes)
    stopped = tiny(tmp_path / "twice", "spr+some_ideas:reward", changes=changes, halt=lambda at: at == 45)
    assert stopped.folder.status["state"] == "stopped"
    assert_same_files(tiny(tmp_path / "twice", "spr+some_ideas:reward", changes=changes), whole)


def test_a_loss_that_pulls_at_nothing_changes_nothing(ideas, tmp_path):
    """Beside it the method is what it is without: same numbers drawn, same losses, same games."""
    quiet = Schedule(log=10, gradients=0, q_error=0)
    plain = tiny(tmp_path, "spr", schedule=quiet)
    changes = {"terms.own.steps": 2}  # as deep as SPR is in these trainings
    blind = tiny(tmp_path, "spr+some_ideas:blind", changes=changes, schedule=quiet)
    assert blind.path != plain.path and blind.scores() == plain.scores()
    for one, two in zip(plain.folder.metrics(), blind.folder.metrics(), strict=True):
        assert {name: two[name] for name in one} == one


def test_it_may_look_at_no_imagined_state_but_not_at_fewer(ideas):
    plan = make_plan("rainbow+some_ideas:blind", "catch", changes={"terms.own.steps": 0})
    assert plan.config.terms.own is not None and plan.config.terms.own.steps == 0
    with pytest.raises(UserError, match=r"--terms\.own\.steps -1: must lie between 0 and"):
        make_plan("rainbow+some_ideas:blind", "catch", changes={"terms.own.steps": -1})


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["spr+some_ideas:rewards", "catch"], "unknown loss in some_ideas 'rewards': did you mean reward?"),
        (["spr+no_ideas:reward", "catch"], "add its folder to PYTHONPATH"),
        (["spt+some_ideas:reward", "catch"], "unknown method 'spt': did you mean spr"),
        (["spr", "catch", "--terms.own.weight", "1"], "there is no own"),
        (["spr", "catch", "--terms.own.loss", "some_ideas:reward"], "unknown flag '--terms.own.loss'"),
    ],
)
def test_what_cannot_work_is_one_line(ideas, capsys, words, told):
    with pytest.raises(SystemExit) as stop:
        main(["train", *words])
    error = capsys.readouterr().err
    assert stop.value.code == 2 and told in error and error.count("\n") == 1


def again(ideas, text):
    """The file is changed and imported anew, as in a process that begins now."""
    ideas.write_text(text)
    sys.modules.pop("some_ideas", None)
    importlib.invalidate_caches()


def test_a_mistake_in_it_shows_before_anything_begins(ideas, tmp_path):
    with pytest.raises(AttributeError, match="imagind"):
        tiny(tmp_path / "out", "rainbow+some_ideas:broken")
    with pytest.raises(AttributeError, match="imagind"):
        preview(make_plan("rainbow+some_ideas:broken", "catch"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_other_code_begins_another_run_and_says_so(ideas, tmp_path):
    first = tiny(tmp_path, "rainbow+some_ideas:blind", "catch", (3, 5), 80, halt=lambda at: at == 5)
    name, task, seeds = first.plan.method, first.plan.task.name, first.plan.seeds
    changes = {path: value for path, value in CHANGES.items() if not path.startswith("terms.")}

    def ahead(seeds=seeds, steps=80, **more):
        plan = make_plan(name, task, seeds, steps, changes | more, SCHEDULE)
        return plan, "\n".join(preview(plan, tmp_path))

    plan, said = ahead()
    assert plan.digest == first.plan.digest and "would continue" in said and "other code" not in said
    # With other seeds, steps or settings and the same code nothing is said of it.
    for more in ({"seeds": (7, 8)}, {"steps": 90}, {"batch": 5}):
        assert "other code" not in ahead(**more)[1]
    again(ideas, IDEAS + "# a word more")
    plan, said = ahead()
    assert plan.digest != first.plan.digest and "would begin" in said
    assert f"{first.path} was trained with other code of some_ideas:blind: this is a new run" in said
    assert "other code" not in ahead(seeds=(7, 8))[1]
    again(ideas, IDEAS)
    assert ahead()[0].digest == first.plan.digest


def test_a_plan_is_not_carried_out_with_other_code(ideas, tmp_path):
    plan = make_plan("rainbow+some_ideas:blind", "catch")
    again(ideas, IDEAS + "# a word more")
    make_plan("rainbow+some_ideas:blind", "catch")
    with pytest.raises(UserError, match="the code of some_ideas:blind is not what it was"):
        train_plan(plan, tmp_path / "out")


def test_a_campaigns_run_is_not_trained_with_other_code(ideas, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["train", "rainbow+some_ideas:blind", "catch", "--expect", "0123abcd"])
    said = capsys.readouterr().err
    assert stop.value.code == 2 and "was 0123abcd when it was planned" in said and said.count("\n") == 1
    plan = make_plan("rainbow+some_ideas:blind", "catch", range(5))
    main(["train", "rainbow+some_ideas:blind", "catch", "--expect", plan.digest, "--dry-run"])
    assert "would begin" in capsys.readouterr().out
    ask = make_ask("toy", "spr,rainbow+some_ideas:blind", None, None, ideas.parent, {}, {})
    assert f"--expect={plan.digest}" in ask.words("rainbow+some_ideas:blind", "catch", [0], plan.digest)
    assert not any("expect" in word for word in ask.words("spr", "catch", [0], plan.digest))


def test_what_is_part_of_the_name_is_no_setting(ideas):
    for path in ("terms.own", "terms.own.loss", "terms.own.code"):
        with pytest.raises(UserError, match="part of the name, rainbow\\+module:function"):
            make_plan("rainbow+some_ideas:blind", "catch", changes={path: None})
    with pytest.raises(UserError, match=r"--terms\.own\.steps 0: some_ideas:ahead wants targets"):
        make_plan("rainbow+some_ideas:ahead", "catch", changes={"terms.own.steps": 0})
