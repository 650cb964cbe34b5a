"""Told to stop while it looks at games, or told how to begin: what a training does then."""

import os
import shutil
import signal

import pytest
from tiny import assert_same_files, tiny

from vcrl.bench.results import final
from vcrl.core.errors import UserError
from vcrl.runs import checkpoint
from vcrl.training.watch import Interrupted, Watch

pytestmark = pytest.mark.usefixtures("quick_compiles")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that was never stopped."""
    return tiny(tmp_path_factory.mktemp("whole"))


def looks(monkeypatch, at):
    """Send SIGTERM at one look at a game, counted from the start; gives what was owed at every look."""
    seen, play = [], Watch.play

    def watched(self, *arguments):
        seen.append(dict(self.owed))
        if len(seen) == at:
            os.kill(os.getpid(), signal.SIGTERM)
        return play(self, *arguments)

    monkeypatch.setattr(Watch, "play", watched)
    return seen


@pytest.fixture(scope="module")
def moments(tmp_path_factory):
    """The numbers of a look in the middle of the first evaluation, of a Q-error, and of the last evaluation."""
    with pytest.MonkeyPatch.context() as patch:
        seen = looks(patch, 0)
        tiny(tmp_path_factory.mktemp("moments"))
    evaluation = [i for i, owed in enumerate(seen) if owed.get("evaluate") and not owed["q_error"]]
    measuring = [i for i, owed in enumerate(seen) if owed.get("q_error")]
    last = [i for i, owed in enumerate(seen) if not any(owed.values())]
    return {"evaluation": evaluation[3], "q_error": measuring[3], "last": last[3]}


@pytest.mark.parametrize(("moment", "tick"), [("evaluation", 30), ("q_error", 40), ("last", 80)])
def test_sigterm_cuts_a_look_short_and_the_same_call_takes_it_again(
    whole, tmp_path, monkeypatch, moments, moment, tick
):
    with monkeypatch.context() as patch:
        seen = looks(patch, moments[moment])
        run = tiny(tmp_path)
    assert len(seen) <= moments[moment] + 1  # not a step further
    assert run.folder.status["state"] == "stopped" and run.folder.status["agent_steps"] == tick
    found = checkpoint.load(run.path / "checkpoint", pytest.fail)
    assert found is not None and found.agent_steps == tick
    owed = found.extra.get("owed", {})
    assert (owed.get("q_error", False), owed.get("evaluate", False)) == (
        moment == "q_error",
        moment == "evaluation",
    )
    # A row of metrics that waits for its Q-error is in the checkpoint and not in the log.
    assert ("loss/rl" in owed.get("row", {})) == (moment == "q_error")
    assert (tick in [row["agent_steps"] for row in run.folder.metrics()]) == (moment == "last")
    assert tick not in {game.agent_steps for game in run.folder.evaluations()}
    assert_same_files(tiny(tmp_path), whole)


def test_a_second_sigterm_does_not_keep_it_from_saving(whole, tmp_path):
    def twice(now):
        if now == 45:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
        return False

    run = tiny(tmp_path, halt=twice)
    assert run.folder.status["state"] == "stopped" and run.folder.status["agent_steps"] in (45, 46)
    assert_same_files(tiny(tmp_path), whole)


def test_a_checkpoint_comes_before_learning_is_compiled(tmp_path, monkeypatch):
    monkeypatch.setattr("vcrl.training.watch.COMPILE_SECONDS", -1.0)
    seen = []
    monkeypatch.setattr(Watch, "save", lambda self, training, rows=True: seen.append((training.tick, rows)))
    with pytest.raises(UserError, match="nothing to continue"):
        tiny(tmp_path, resume="must")
    tiny(tmp_path, halt=lambda now: now == 31)
    assert seen == [(30, True), (31, True)]


def test_never_must_and_auto(whole, tmp_path):
    with pytest.raises(UserError, match=r"--resume must: nothing to continue in .*catch"):
        tiny(tmp_path, resume="must")
    assert not list(tmp_path.iterdir())
    tiny(tmp_path, resume="never", halt=lambda now: now == 35)
    with pytest.raises(UserError, match=r"--resume never: .* already has a run, saved at 35 agent steps"):
        tiny(tmp_path, resume="never")
    with pytest.raises(UserError, match="musst: known are auto, never, must"):
        tiny(tmp_path, resume="musst")
    assert_same_files(tiny(tmp_path, resume="must"), whole)
    assert tiny(tmp_path, resume="must").folder.status["state"] == "done"
    with pytest.raises(UserError, match=r"--resume never: .* saved at 80 agent steps"):
        tiny(tmp_path, resume="never")


def test_never_begins_anew_where_nothing_was_saved(tmp_path):
    """As after a run that was killed before its first checkpoint."""
    run = tiny(tmp_path, halt=lambda now: now == 5)
    for file in [*(run.path / "checkpoint").rglob("*")]:
        file.is_file() and file.unlink()
    assert tiny(tmp_path, resume="never", halt=lambda now: now == 6).folder.status["agent_steps"] == 6


def test_the_word_done_alone_does_not_delete_a_checkpoint(whole, tmp_path):
    """status.json is not to be trusted: it may have been changed, or damaged."""
    run = tiny(tmp_path, halt=lambda now: now == 45)
    status = run.path / "status.json"
    status.write_text(status.read_text().replace('"stopped"', '"done"'))
    assert_same_files(tiny(tmp_path), whole)


def test_games_behind_the_end_can_be_played_elsewhere(whole, tmp_path, monkeypatch):
    """Told to stop in the final evaluation, and taken to another computer: nets alone have to travel."""
    play = Watch.play

    def cut(watch, *arguments):
        if watch.finishing:
            raise Interrupted
        return play(watch, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Watch, "play", cut)
        run = tiny(tmp_path / "here")
    status = run.folder.status
    assert status["state"] == "stopped" and status["agent_steps"] == 80
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    folder = tmp_path / "there" / run.path.relative_to(tmp_path / "here") / "checkpoint"
    checkpoint.settle(folder, 80)
    assert sorted(p.stem for p in folder.iterdir() if p.is_file()) == ["000000080"] * 2
    found = checkpoint.load(folder, pytest.fail)
    assert found is not None and not any("opt" in name or "replay" in name for name in found.arrays)
    monkeypatch.setattr("vcrl.training.run._accelerator", lambda: "a GPU")
    again = tiny(tmp_path / "there")
    assert_same_files(again, whole)
    (here,) = whole.folder.status["hardware"]
    assert again.folder.status["hardware"] == [here, f"a GPU, {os.cpu_count()} CPU cores"]
    assert final(again.folder).scores[0]["hardware"] == f"{here}; then a GPU, {os.cpu_count()} CPU cores"
