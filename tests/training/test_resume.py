"""Stopping and resuming a run leaves no trace in it."""

import io
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console
from tiny import assert_same_files, tiny

from vcrl.bench.audit import audit
from vcrl.core.errors import UserError
from vcrl.runs.folder import RunFolder
from vcrl.runs.verify import verify
from vcrl.training.run import load_run

pytestmark = pytest.mark.usefixtures("quick_compiles")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that was never stopped."""
    return tiny(tmp_path_factory.mktemp("whole"))


def test_a_run_ends_done_with_all_its_files(whole):
    folder = RunFolder.read(whole.path)
    assert folder.status["state"] == "done"
    assert folder.status["agent_steps"] == 80 and folder.status["updates"] == 50
    assert folder.status["scores"] == {str(seed): score for seed, score in whole.scores().items()}
    assert [row["agent_steps"] for row in folder.metrics()] == [40, 50, 60, 70, 80]
    assert {row.agent_steps for row in folder.evaluations()} == {30, 60, 80}
    assert folder.episodes() and {row.seed for row in folder.episodes()} == {3, 5}


@pytest.mark.parametrize("stops", [(37,), (12, 31, 64)])
def test_stopped_and_resumed_equals_not_stopped(whole, tmp_path, stops):
    for at in stops:
        run = tiny(tmp_path, halt=lambda agent_steps, at=at: agent_steps == at)
        assert run.folder.status["state"] == "stopped" and run.folder.status["agent_steps"] == at
    run = tiny(tmp_path)
    assert run.folder.status["state"] == "done"
    assert_same_files(run, whole)


def test_resumed_in_another_process_equals_not_stopped(whole, tmp_path):
    tiny(tmp_path, halt=lambda agent_steps: agent_steps == 45)
    here = Path(__file__).parent
    code = f"import sys; sys.path.insert(0, {str(here)!r}); from pathlib import Path; from tiny import tiny; "
    code += f"tiny(Path({str(tmp_path)!r}))"
    # Compiled as the tests here are.
    env = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300, env=env)
    assert_same_files(tiny(tmp_path), whole)


def test_a_finished_run_is_left_alone(whole):
    before = {p.name: p.read_bytes() for p in whole.path.iterdir() if p.is_file() and p.name != "lock"}
    tiny(whole.path.parents[3])
    assert {
        p.name: p.read_bytes() for p in whole.path.iterdir() if p.is_file() and p.name != "lock"
    } == before


def test_a_damaged_newest_checkpoint_falls_back_and_says_so(whole, tmp_path):
    tiny(tmp_path, halt=lambda agent_steps: agent_steps == 40)
    run = tiny(tmp_path, halt=lambda agent_steps: agent_steps == 60)
    newest = sorted((run.path / "checkpoint").glob("*.safetensors"))[-1]
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    said = io.StringIO()
    run = tiny(tmp_path, log=Console(file=said, width=200))
    assert "damaged" in said.getvalue() and "continuing at 40 agent steps" in said.getvalue()
    assert_same_files(run, whole)


def test_no_whole_checkpoint_is_one_clear_error(tmp_path):
    run = tiny(tmp_path, halt=lambda agent_steps: agent_steps == 40)
    for file in (run.path / "checkpoint").glob("*.safetensors"):
        file.write_bytes(b"")
    with pytest.raises(UserError, match="delete"):
        tiny(tmp_path)


def test_a_finished_run_whose_checkpoints_are_gone_is_trained_again(whole, tmp_path):
    run = tiny(tmp_path)
    shutil.rmtree(run.path / "checkpoint")
    assert_same_files(tiny(tmp_path), whole)
    assert run.folder.status["state"] == "done" and run.folder.status["reason"] is None


def test_another_config_is_another_folder(whole):
    root = whole.path.parents[3]
    other = tiny(root, changes={"adam.rate": 0.5}, halt=lambda agent_steps: agent_steps == 5)
    assert other.path != whole.path and other.folder.status["agent_steps"] == 5
    assert load_run(whole.path).folder.status["state"] == "done"


def test_a_folder_of_another_config_is_refused(whole, tmp_path):
    record = dict(whole.folder.record)
    run = tiny(tmp_path, halt=lambda agent_steps: agent_steps == 5)
    with pytest.raises(UserError, match=r"config\.batch"):
        RunFolder.open(run.path, record | {"config": record["config"] | {"batch": 5}})


def test_sigterm_saves_and_the_same_call_continues(whole, tmp_path):
    def later() -> None:
        while not any(log.stat().st_size for log in tmp_path.rglob("metrics.jsonl")):
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGTERM)

    sender = threading.Thread(target=later)
    sender.start()
    run = tiny(tmp_path)
    sender.join()
    assert run.folder.status["state"] == "stopped"
    assert_same_files(tiny(tmp_path), whole)


def test_a_finished_run_is_whole_and_its_scores_can_be_audited(whole):
    checks = verify(whole.path)
    assert {check.state for check in checks} == {"ok"}, checks
    verdict = audit(whole.path)
    assert verdict.holds and verdict.repeated == 3 * 2 * 100


def test_cut_off_between_the_receipt_and_its_rows(whole, tmp_path, monkeypatch):
    def cut(*row):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(RunFolder, "evaluation", cut)
        tiny(tmp_path)
    assert [path.name for path in tmp_path.rglob("*.receipt")] == ["000000030.receipt"]
    assert_same_files(tiny(tmp_path), whole)
