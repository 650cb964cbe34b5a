"""Stopped at any moment, in any way, a training ends as if it had not been."""

import json
import os
import random
import signal
import time

import pytest
from toy import STEPS, assert_same, start

from vcrl.runs.reading import read_status


def kill_and_resume(kind, out, points):
    """Kill at each point, (tick or 0, seconds after it), then let it end; gives where it was and where it went on."""
    were, went_on = [], []
    for tick, later in points:
        run = start(kind, out, PACE="0.01")  # so that no computer is done before it was killed often enough
        assert not tick or run.reaches(tick), run.said()
        time.sleep(later)
        run.kill()
        run.end()
        were.append(max(run.ticks(), default=0))
        went_on.append(min(run.ticks(), default=0))
    run = start(kind, out)
    assert run.end() == 0, run.said()
    return run.folder(), were, [*went_on[1:], min(run.ticks(), default=STEPS[kind])]


@pytest.mark.drill("kill -9")
def test_killed_at_twenty_random_points(tmp_path, whole, tell):
    chance = random.Random(20)
    ticks = sorted(chance.sample(range(1, STEPS["toy"] - 60), 17))
    points = [(tick, chance.uniform(0, 0.1)) for tick in ticks]
    for at in (5, 10, 15):  # while it starts: importing, building, reading the checkpoint
        points.insert(at, (0, chance.uniform(0, 4)))
    folder, were, went_on = kill_and_resume("toy", tmp_path, points)
    assert_same(folder, whole("toy"))
    again = sum(max(0, a - b + 1) for a, b in zip(were, went_on, strict=True) if b)
    tell(
        f"20 times at random: agent steps {', '.join(map(str, were))}",
        f"all but {again} of {STEPS['toy']} agent steps, which were done again; the end is bit for bit the same",
        "continuing at N agent steps",
    )


@pytest.mark.drill("kill -9, other environments")
@pytest.mark.parametrize("kind", ["atari", "gym", "control"])
def test_killed_in_other_environments(kind, tmp_path, whole, tell):
    chance = random.Random(4)
    ticks = sorted(chance.sample(range(1, STEPS[kind] + 1), 3))
    folder, were, _ = kill_and_resume(kind, tmp_path, [(tick, chance.uniform(0, 0.3)) for tick in ticks])
    assert_same(folder, whole(kind))
    told = {
        "atari": "emulators go on from their saved state",
        "gym": "open games are played again",
        "control": "physics goes on from its saved state",
    }
    tell(
        f"{kind}: 3 times at random: agent steps {', '.join(map(str, were))}",
        f"bit for bit the same; {told[kind]}",
        "continuing at N agent steps",
    )


MOMENTS = {
    "while training": "tick 57",
    "in a Q-error": "looking True False",
    "in an evaluation": "looking False True",
    "in the last evaluation": "looking None None",
}


@pytest.mark.drill("SIGTERM")
@pytest.mark.parametrize("moment", MOMENTS)
def test_sigterm_saves_within_seconds(moment, tmp_path, whole, tell):
    run = start("toy", tmp_path, SLOW="0.3", SAVE="1000")
    assert run.until(MOMENTS[moment])
    began = time.monotonic()
    run.kill(signal.SIGTERM)
    assert run.end() == 130
    took = time.monotonic() - began
    status = read_status(run.folder())
    assert status["state"] == "stopped" and status["agent_steps"] >= max(run.ticks())
    newest = max((run.folder() / "checkpoint").glob("*.json"))
    owed = json.loads(newest.read_text())["extra"].get("owed", {})
    assert int(newest.stem) == status["agent_steps"]
    assert owed.get("q_error", False) is (moment == "in a Q-error")
    assert owed.get("evaluate", False) is (moment == "in an evaluation")
    last = start("toy", tmp_path)
    assert last.end() == 0 and (not last.ticks() or min(last.ticks()) == status["agent_steps"] + 1)
    assert_same(last.folder(), whole("toy"))
    tell(moment, f"everything, saved {took:.1f} s later; bit for bit the same", run.said().splitlines()[-1])


@pytest.mark.drill("SIGTERM")
def test_sigterm_while_compiling(tmp_path, whole, tell):
    """Of the program that learns, which nothing can interrupt: what came before is on disk by then."""
    run = start("toy", tmp_path, SAVE="1000", EARLY="0", JAX_ENABLE_COMPILATION_CACHE="false")
    assert run.until("tick 30")
    time.sleep(0.5)
    run.kill(signal.SIGTERM)
    time.sleep(0.5)
    run.kill(signal.SIGKILL)  # a scheduler that does not wait
    run.end()
    saved = max((run.folder() / "checkpoint").glob("*.json"))
    assert int(saved.stem) == 30
    last = start("toy", tmp_path)
    assert last.end() == 0 and min(last.ticks()) == 31
    assert_same(last.folder(), whole("toy"))
    tell(
        "while learning is compiled, and kill -9 at once after", "everything", "continuing at 30 agent steps"
    )


@pytest.mark.drill("two processes")
def test_a_second_process_is_refused(tmp_path, whole, tell):
    first = start("toy", tmp_path)
    assert first.until("tick 40")
    os.kill(first.process.pid, signal.SIGSTOP)
    second = start("toy", tmp_path)
    code = second.end()
    os.kill(first.process.pid, signal.SIGCONT)
    said = second.said().splitlines()[-1]
    assert code == 2 and f"another process (pid {first.process.pid}) is writing this run" in said
    assert first.end() == 0
    assert_same(first.folder(), whole("toy"))
    tell("a second one on the same run folder", "the first goes on, undisturbed", said)
