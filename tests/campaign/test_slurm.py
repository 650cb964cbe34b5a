"""The printed script is one that bash runs and SLURM understands."""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import FAKE, asking, attempts
from test_local import states

from vcrl.campaign.slurm import limit

Quick = Callable[..., tuple[int, str]]


@pytest.fixture
def script(tmp_path: Path, quick: Quick, capsys: pytest.CaptureFixture[str]) -> str:
    out = tmp_path / "runs with a space"
    out.mkdir()
    code, _ = quick(asking(out, steps=200), engine="slurm", printed=True)
    assert code == 0 and not list(out.iterdir()), "printing writes nothing"
    return capsys.readouterr().out


def test_bash_reads_it(script: str):
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "#SBATCH --array=0-3\n" in script and "#SBATCH --requeue\n" in script
    assert re.search(r"#SBATCH --time=\d\d+:[0-5]\d:00\n", script)
    assert "--gres" not in script, "the CPU was asked for"


def test_a_task_of_the_array_trains_its_run(script: str, tmp_path: Path):
    out = tmp_path / "runs with a space"
    quicker = re.sub(r"^\S+ -m vcrl\.cli", " ".join(FAKE), script, flags=re.M)
    for task in (0, 3, 3):
        environment = {**os.environ, "SLURM_ARRAY_TASK_ID": str(task)}
        subprocess.run(["bash", "-c", quicker], env=environment, check=True, timeout=60)
    assert states(out) == ["done"] * 2
    assert [line.split()[:2] for line in attempts(out)][:2] == [["spr", "catch"], ["vcr", "balloon"]]
    environment = {**os.environ, "SLURM_ARRAY_TASK_ID": "4"}
    assert subprocess.run(["bash", "-c", quicker], env=environment, capture_output=True).returncode == 2


def test_nearly_out_of_time_it_saves_and_asks_for_another_turn(script: str, tmp_path: Path):
    out, tools = tmp_path / "runs with a space", tmp_path / "bin"
    tools.mkdir()
    (tools / "scontrol").write_text(f"#!/bin/sh\necho $* > {tmp_path}/requeued\n")
    (tools / "scontrol").chmod(0o755)
    quicker = re.sub(r"^\S+ -m vcrl\.cli", " ".join(FAKE), script, flags=re.M)
    # As SLURM does: the signal goes to the shell alone.
    warned = quicker.replace("run=$!", "run=$!\n(sleep 2; kill -USR1 $$) &")
    environment = {**os.environ, "SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_JOB_ID": "77", "FAKE_SECONDS": "30"}
    environment["PATH"] = f"{tools}:{environment['PATH']}"
    done = subprocess.run(["bash", "-c", warned], env=environment, timeout=60)
    assert done.returncode == 130 and states(out) == ["stopped"]
    assert (tmp_path / "requeued").read_text().split() == ["requeue", "77_1"]


def test_limits_are_whole_quarters():
    assert (limit(1), limit(900), limit(901), limit(360_000)) == (
        "00:15:00", "00:15:00", "00:30:00", "100:00:00",
    )  # fmt: skip
