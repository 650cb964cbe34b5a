"""A campaign runs, is stopped, killed, crashes, and ends with every run once."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import FAKE, asking, attempts, scouts

from vcrl.campaign.child import start, verdict
from vcrl.campaign.local import Local
from vcrl.campaign.machine import Gpu, Machine
from vcrl.campaign.plan import make_campaign
from vcrl.core.errors import UserError
from vcrl.runs.rates import Clock
from vcrl.runs.reading import find_runs, read_status

Quick = Callable[..., tuple[int, str]]


def states(out: Path) -> list[str]:
    return sorted(str(read_status(path).get("state")) for path in find_runs(out))


def test_two_methods_on_two_tasks_then_nothing_is_left(tmp_path: Path, quick: Quick):
    ask = asking(tmp_path)
    code, said = quick(ask)
    assert code == 0 and states(tmp_path) == ["done"] * 4 and len(attempts(tmp_path)) == 4
    assert "4 runs, 0 done, 4 to do" in said and "4 done" in said.splitlines()[-1]
    body = json.loads((ask.folder / "campaign.json").read_text())
    assert body["asked"]["methods"] == ["spr", "vcr"] and body["asked"]["seeds"] == [0, 1, 2, 3]
    assert all((tmp_path / entry["folder"] / "config.json").exists() for entry in body["runs"])
    assert all("$ vcrl train" in (ask.folder / entry["log"]).read_text() for entry in body["runs"])
    code, said = quick(ask)
    assert code == 0 and "4 done, 0 to do" in said and len(attempts(tmp_path)) == 4


def test_more_seeds_later_train_the_new_ones_alone(tmp_path: Path, quick: Quick):
    assert quick(asking(tmp_path, methods="vcr", tasks="catch", seeds=range(2)))[0] == 0
    assert quick(asking(tmp_path, methods="vcr", tasks="catch", seeds=range(4)))[0] == 0
    assert attempts(tmp_path) == ["vcr catch 0:2 cpu", "vcr catch 2:4 cpu"]


def test_a_dry_run_starts_and_writes_nothing(tmp_path: Path, quick: Quick):
    code, said = quick(asking(tmp_path / "new"), dry_run=True)
    assert code == 0 and "forecast: " in said and not list(tmp_path.iterdir())


def test_a_crash_is_tried_again_and_continues(tmp_path: Path, quick: Quick):
    (tmp_path / "crash-catch").write_text("raise kill")
    code, said = quick(asking(tmp_path, methods="vcr"))
    assert code == 0 and states(tmp_path) == ["done"] * 2
    assert "crashed (ValueError: told to): will be tried again, 1 of 2" in said
    assert "killed by SIGKILL (out of memory?)" in said
    assert [line.split()[1] for line in attempts(tmp_path)] == ["catch", "balloon", "catch", "catch"]


def test_who_keeps_crashing_is_reported_and_the_others_go_on(tmp_path: Path, quick: Quick):
    (tmp_path / "crash-catch").write_text("raise " * 10)
    code, said = quick(asking(tmp_path, methods="vcr"), retries=1)
    assert code == 1 and states(tmp_path) == ["done", "failed"] and len(attempts(tmp_path)) == 3
    assert "vcr catch 0-3 failed: ValueError: told to; see " in said
    (tmp_path / "crash-catch").unlink()
    assert quick(asking(tmp_path, methods="vcr"))[0] == 0 and states(tmp_path) == ["done"] * 2


def test_what_is_refused_is_not_tried_again(tmp_path: Path, quick: Quick):
    (tmp_path / "crash-catch").write_text("refuse " * 10)
    code, said = quick(asking(tmp_path, methods="vcr", tasks="catch"))
    assert code == 1 and len(attempts(tmp_path)) == 1 and "failed: the disk is full" in said


def test_one_run_a_gpu_and_each_sees_its_own(tmp_path: Path):
    ask = asking(tmp_path)
    two = Machine((Gpu("0", "H200", 80e9), Gpu("3", "H200", 80e9)), None, 2)
    engine = Local(make_campaign(ask, scouts(ask), two, None, Clock(tmp_path, "gpu")), 0, FAKE)
    most = 0
    while engine.poll():
        most = max(most, len(engine.running))
        time.sleep(0.02)
    assert most == 2 and states(tmp_path) == ["done"] * 4
    assert {line.split()[-1] for line in attempts(tmp_path)} == {"0", "3"}


CAMPAIGN = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from fakes import FAKE, asking, scouts
from vcrl.campaign import run
run.scouted = scouts
sys.exit(run.campaign(asking(Path({out!r})), gpus="none", program=FAKE))
"""


def begin(out: Path, seconds: str = "3") -> subprocess.Popen[str]:
    program = CAMPAIGN.format(tests=str(Path(__file__).parent), out=str(out))
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "FAKE_SECONDS": seconds},
        start_new_session=True,
    )
    wait_for(lambda: bool(attempts(out)) and states(out) == ["running"])
    return process


def wait_for(what: Callable[[], bool], seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_and_run_again(tmp_path: Path, quick: Quick, number: int):
    process = begin(tmp_path)
    os.killpg(process.pid, number)  # as a terminal does: the whole group
    said, _ = process.communicate(timeout=20)
    assert process.returncode == 130 and "the same command continues" in said
    assert states(tmp_path) == ["stopped"] and len(attempts(tmp_path)) == 1
    code, said = quick(asking(tmp_path))
    assert code == 0 and "continues" in said and states(tmp_path) == ["done"] * 4
    assert len(attempts(tmp_path)) == 5, "the stopped one went on, the others began"


def test_killed_and_run_again(tmp_path: Path, quick: Quick):
    process = begin(tmp_path)
    process.kill()  # nobody is told; the run notices that it is alone, and saves
    process.communicate(timeout=20)
    wait_for(lambda: states(tmp_path) == ["stopped"])
    assert quick(asking(tmp_path))[0] == 0 and states(tmp_path) == ["done"] * 4


def test_killed_while_it_compiles_and_run_again_at_once(tmp_path: Path, quick: Quick):
    """A run that is slow to save, as one that compiles, is waited for: longer than a stranger's."""
    process = begin(tmp_path)
    run = int((find_runs(tmp_path)[0] / "lock").read_text())
    os.kill(run, signal.SIGSTOP)
    process.kill()
    process.communicate(timeout=20)
    later = subprocess.Popen([sys.executable, "-c", f"import os, time; time.sleep(1); os.kill({run}, 18)"])
    code, said = quick(asking(tmp_path))  # its patience with strangers is 0.3 seconds
    assert code == 0 and states(tmp_path) == ["done"] * 4 and later.wait() == 0
    assert f"waiting for spr catch 0-3 (pid {run}) to save: its campaign was killed" in said


def test_a_run_whose_supervisor_was_killed_saves_before_it_is_tried_again(tmp_path: Path):
    ask = asking(tmp_path, methods="vcr", tasks="catch")
    engine = Local(
        make_campaign(ask, scouts(ask), Machine((), None, 2), None, Clock(tmp_path, "cpu")), 1, FAKE
    )
    wait_for(lambda: engine.poll() and states(tmp_path) == ["running"])
    run = int((find_runs(tmp_path)[0] / "lock").read_text())
    os.kill(run, signal.SIGSTOP)
    next(iter(engine.running.values()))[1].process.kill()
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        assert engine.poll() and len(attempts(tmp_path)) == 1
        time.sleep(0.05)
    os.kill(run, signal.SIGCONT)
    wait_for(lambda: not engine.poll())
    assert states(tmp_path) == ["done"] and len(attempts(tmp_path)) == 2


def test_a_second_interrupt_ends_at_once(tmp_path: Path):
    process = begin(tmp_path, "60")
    child = int((find_runs(tmp_path)[0] / "lock").read_text())
    os.kill(child, signal.SIGSTOP)  # it will not listen
    process.send_signal(signal.SIGINT)
    time.sleep(0.6)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=10)
    assert process.returncode == 130


def test_a_run_that_somebody_else_writes_is_refused(tmp_path: Path, quick: Quick):
    path = tmp_path / "toy/vcr/catch/0-3-0123abcd"
    path.mkdir(parents=True)
    with open(path / "lock", "w") as file:
        file.write("4711\n")
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(UserError, match=r"pid 4711\) is writing vcr catch 0-3: wait") as error:
            quick(asking(tmp_path))
        assert "\n" not in str(error.value) and not attempts(tmp_path)
        assert "locked (pid 4711)" in quick(asking(tmp_path), dry_run=True)[1]


def test_the_same_campaign_twice_at_once_is_refused(tmp_path: Path, quick: Quick):
    ask = asking(tmp_path)
    ask.folder.mkdir(parents=True)
    with open(ask.folder / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="is running already"):
            quick(ask)


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path, quick: Quick):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="--out"):
        quick(asking(tmp_path / "file" / "runs"))


def test_an_end_without_an_end_is_a_crash(tmp_path: Path):
    child = start(["-c", "pass"], tmp_path / "log", {}, program=(sys.executable,))
    assert verdict(tmp_path, child, child.process.wait())[0] == "crashed"
    assert FAKE[0] == sys.executable


COUNT = """
import signal, time
came = []
signal.signal(signal.SIGINT, lambda *_: came.append(1))
print("ready", flush=True)
time.sleep(1)
print("came", len(came), flush=True)
"""


def test_a_training_is_told_to_stop_once_however_often_we_are(tmp_path: Path):
    """Linux may tell several times of the death of a parent with threads; a second time would end without saving."""
    child = start(["-c", COUNT], tmp_path / "log", {}, program=(sys.executable,))
    wait_for(lambda: "ready" in child.log.read_text().splitlines())
    for _ in range(3):
        child.process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    assert child.process.wait() == 0 and "came 1" in child.log.read_text()


def test_the_signal_that_ended_a_training_is_passed_on(tmp_path: Path):
    program = "import os; os.kill(os.getpid(), 9)"
    child = start(["-c", program], tmp_path / "log", {}, program=(sys.executable,))
    assert child.process.wait() == -9
