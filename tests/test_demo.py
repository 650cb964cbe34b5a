"""The demonstration, in small: everything it promises is there."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vcrl import demo
from vcrl.training.plan import Schedule


def test_the_demo_ends_with_a_table_figures_and_a_film(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # in the processes that train
    monkeypatch.setattr(
        demo, "SCHEDULE", Schedule(log=50, evaluate=100, gradients=0, q_error=150, q_error_positions=50)
    )
    rows = demo.demo(tmp_path, [0, 1], 300, ("catch", "balloon"), ("rainbow", "spr"))
    assert [(r.task, r.method, r.seeds) for r in rows] == [
        (game, method, 2) for game in ("catch", "balloon") for method in ("rainbow", "spr")
    ]
    assert rows[0].q_error is None and rows[1].q_error is not None
    said = capsys.readouterr().out
    for name in ("learning-curves.png", "q-error.png", "spr-balloon.gif", "summary.md"):
        assert name in said.replace("\n", "") and (tmp_path / name).stat().st_size > 0
    with Image.open(tmp_path / "learning-curves.png") as picture:
        assert np.asarray(picture.convert("L")).std() > 5
    # Again: nothing is trained twice, and the table is the same.
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("checkpoint/*")}
    again = demo.demo(tmp_path, [0, 1], 300, ("catch", "balloon"), ("rainbow", "spr"))
    assert again == rows and {p: p.stat().st_mtime_ns for p in tmp_path.rglob("checkpoint/*")} == before


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
def test_a_demo_that_is_stopped_or_killed_leaves_saved_runs_and_no_process(tmp_path):
    words = [sys.executable, "-m", "vcrl.cli", "demo", "--out", str(tmp_path), "--games", "catch"]
    environment = {**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}

    def until(true, seconds=120.0):
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, "that took too long"
            time.sleep(0.2)

    def states():
        return [json.loads(path.read_text())["state"] for path in tmp_path.rglob("status.json")]

    def left():
        """Processes of this demo."""
        found = 0
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                found += mark.encode() in path.read_bytes()
        return found

    mark = f"OF_THE_DEMO={tmp_path}"
    environment["OF_THE_DEMO"] = str(tmp_path)
    for number, code in ((signal.SIGINT, 130), (signal.SIGKILL, -9)):
        demo_process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)
        until(lambda: states().count("running") >= 2)
        demo_process.send_signal(number)
        said, _ = demo_process.communicate(timeout=120)
        assert demo_process.returncode == code
        assert ("stopped and saved" in said) == (number == signal.SIGINT)
        until(lambda: left() == 0)
        assert set(states()) == {"stopped"}
