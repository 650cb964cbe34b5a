"""Environments that misbehave: the training goes on without the game in question, or saves and says why it cannot."""

import io
import os
import random
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from tiny import CHANGES
from toy import STEPS, assert_same, start

from vcrl.core.errors import UserError
from vcrl.runs.reading import read_status
from vcrl.training.plan import Schedule, make_plan
from vcrl.training.run import train_plan

BAD = {
    "Raises": "an environment raises",
    "Hangs": "an environment hangs",
    "Misshapen": "an environment gives a frame of a wrong shape",
    "NoReward": "an environment gives the reward NaN",
}


@pytest.fixture
def play(tmp_path, monkeypatch):
    """Train in an environment that fails at steps counted from its failure before; gives the run and what was said."""
    monkeypatch.setenv("FAULTS", str(tmp_path / "faults"))
    monkeypatch.setenv("VCRL_ENV_SECONDS", "0.5")

    def train(name: str, faults: list[int]):
        (tmp_path / "faults").write_text("\n".join(map(str, faults)))
        changes = {path: value for path, value in CHANGES.items() if not path.startswith("terms.")}
        plan = make_plan("rainbow", f"gym:games:{name}-v0", (3, 5), 100, changes, Schedule(10, 0, 0, 0))
        plan = replace(plan, protocol=replace(plan.protocol, eval_episodes=2, horizon=60))
        return train_plan(plan, tmp_path / "runs", Console(file=io.StringIO(), width=500))

    return train


@pytest.mark.drill("bad environment")
@pytest.mark.parametrize("name", BAD)
def test_once(name, play, tell):
    run = play(name, [77])
    status = run.folder.status
    (event,) = (event for event in status["events"] if "failed" in event["event"])
    assert status["state"] == "done" and event["agent_steps"] == 39
    assert "the game is dropped and the environment is built again (1 of 3 in a row)" in event["event"]
    assert all(abs(game.score) < 1e6 for game in run.folder.episodes())
    tell(f"{BAD[name]}, once", "all but that game, which is dropped and noted", event["event"])


@pytest.mark.drill("bad environment")
@pytest.mark.parametrize("name", BAD)
def test_again_and_again(name, play, tmp_path, tell):
    with pytest.raises(UserError) as caught:
        play(name, [77, *[0] * 40])
    said = str(caught.value)
    assert "4 times in a row" in said and "what was learned is saved" in said and "\n" not in said
    (status,) = (tmp_path / "runs").rglob("status.json")
    before = read_status(status.parent)
    assert before["state"] == "failed" and before["agent_steps"] >= 39
    assert (status.parent / "checkpoint" / f"{before['agent_steps']:09d}.json").exists()
    run = play(name, [])  # mended
    assert run.folder.status["state"] == "done"
    kept = f"all {before['agent_steps']} agent steps; once it is mended the same command continues"
    tell(f"{BAD[name]} from agent step 39 on, always", kept, said)


@pytest.mark.drill("bad environment")
def test_endless(play, tell):
    run = play("Endless", [])
    assert run.folder.status["state"] == "done" and run.folder.episodes() == []
    assert {game.length for game in run.folder.evaluations()} == {60}
    tell(
        "an environment never ends",
        "everything; evaluation cuts its games at the protocol's horizon",
        "nothing",
    )


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return sorted({int(word) for task in tasks for word in task.read_text().split()})


@pytest.mark.drill("simulator process")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=lambda number: number.name)
def test_a_process_of_emulators_is_lost(number, tmp_path, whole, tell):
    """Stopped by a signal it neither answers nor ends: it hangs."""
    chance = random.Random(3)
    run = start("atari", tmp_path, CORES="3", ENV_SECONDS="2")
    for tick in sorted(chance.sample(range(2, STEPS["atari"] - 2), 3)):
        assert run.until(f"tick {tick}"), run.said()
        os.kill(chance.choice(children(run.process.pid)), number)
    assert run.end() == 0, run.said()
    events = [event["event"] for event in read_status(run.folder())["events"]]
    assert 1 <= len(events) <= 3 and all("started again" in event for event in events)
    assert_same(run.folder(), whole("atari"))
    what = "killed" if number == signal.SIGKILL else "made to hang"
    tell(f"a process of emulators is {what}, three times", "everything, bit for bit the same", events[0])
