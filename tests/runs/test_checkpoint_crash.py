"""Whatever moment the writer stops, the reader finds a whole checkpoint."""

import errno
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from vcrl.core.errors import UserError
from vcrl.runs.checkpoint import load, save

WRITER = """
import sys
from pathlib import Path
import numpy as np
from vcrl.runs.checkpoint import load, save
folder = Path(sys.argv[1])
found = load(folder, print)
n = found.agent_steps if found else 0
print("ready", flush=True)
while True:
    n += 1
    arrays = {"n": np.array(n), "a": np.full((50, 1000), n), "b": np.full((10, 100), n % 256, np.uint8)}
    save(folder, n, arrays, {"n": n})
    print(n, flush=True)
"""


class PowerCut(BaseException):
    """Nothing that code may catch as an error."""


def assert_whole(found):
    n = found.agent_steps
    assert found.extra == {"n": n} and int(found.arrays["n"]) == n
    assert (found.arrays["a"] == n).all()


def test_killed_while_saving_in_a_loop(tmp_path):
    chance = random.Random(1)
    last = 0
    for _ in range(8):
        command = [sys.executable, "-c", WRITER, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            first = (
                writer.stdout.readline() if last == 0 else ""
            )  # something must exist before the first kill
            time.sleep(chance.uniform(0, 0.08))
            os.kill(writer.pid, signal.SIGKILL)
            said = [int(line) for line in (first + writer.stdout.read()).split()]
        warnings: list[str] = []
        found = load(tmp_path, warnings.append)
        assert found is not None and warnings == []
        assert_whole(found)
        assert found.agent_steps >= max([last, *said])  # what was reported as saved is there
        last = found.agent_steps
    assert last > 0


def step(folder, n, value=None):
    arrays = {"n": np.array(n), "a": np.full(100, n if value is None else value)}
    return save(folder, n, arrays, {"n": n})


def cut_at(monkeypatch, call):
    """The power fails at the given system call; whatever runs afterwards has no effect on the disk."""
    count = 0

    def failing(real):
        def wrapped(*args, **kwargs):
            nonlocal count
            count += 1
            if count >= call:
                raise PowerCut
            return real(*args, **kwargs)

        return wrapped

    monkeypatch.setattr(os, "replace", failing(os.replace))
    monkeypatch.setattr(os, "fsync", failing(os.fsync))
    monkeypatch.setattr(Path, "unlink", failing(Path.unlink))


@pytest.mark.parametrize("again", [False, True], ids=["next step", "same step with other arrays"])
def test_power_cut_at_every_system_call(tmp_path, monkeypatch, again):
    seen = set()
    for call in range(1, 40):
        folder = tmp_path / str(call)
        for n in (1, 2, 3):
            step(folder, n)
        new = 3 if again else 4
        with monkeypatch.context() as patch:
            cut_at(patch, call)
            try:
                step(folder, new, value=9)
                finished = True
            except PowerCut:
                finished = False
        found = load(folder, pytest.fail)
        assert found is not None and found.extra == {"n": found.agent_steps}
        value = int(found.arrays["a"][0])
        assert (found.agent_steps, value) in {(2, 2), (3, 3), (new, 9)}
        seen.add((found.agent_steps, value))
        if finished:
            break
    assert finished and {(3, 3), (new, 9)} <= seen
    step(folder, 5)
    assert len(list(folder.iterdir())) == 4


def test_power_cut_while_saving_the_same_arrays_again_loses_nothing(tmp_path, monkeypatch):
    step(tmp_path, 3)
    for call in range(1, 40):
        with monkeypatch.context() as patch:
            cut_at(patch, call)
            try:
                step(tmp_path, 3)
                break
            except PowerCut:
                pass
        assert load(tmp_path, pytest.fail).agent_steps == 3
    assert call > 4


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize(
    "failing", ["open of the arrays", "sync of the arrays", "sync of the manifest", "rename"]
)
def test_disk_full_keeps_the_last_checkpoint(tmp_path, monkeypatch, code, failing):
    step(tmp_path, 1)
    step(tmp_path, 2)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    calls = {"open of the arrays": 1, "sync of the arrays": 1, "sync of the manifest": 2, "rename": 1}
    count = 0

    def full(real):
        def wrapped(*args, **kwargs):
            nonlocal count
            count += 1
            if count == calls[failing]:
                raise OSError(code, os.strerror(code))
            return real(*args, **kwargs)

        return wrapped

    with monkeypatch.context() as patch:
        if failing.startswith("open"):
            patch.setattr("builtins.open", full(open))
        else:
            name = "replace" if failing == "rename" else "fsync"
            patch.setattr(os, name, full(getattr(os, name)))
        with pytest.raises(UserError) as caught:
            save(tmp_path, 3, {"a": np.zeros(1_000_000)}, {})
    text = str(caught.value)
    assert "needs 8.0 MB" in text and "the last checkpoint (000000002) is kept" in text and "\n" not in text
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    assert load(tmp_path, pytest.fail).agent_steps == 2


def test_disk_full_before_any_checkpoint(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="there is no earlier checkpoint"):
        step(tmp_path, 1)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write checkpoint 000000001"):
        step(tmp_path / "file" / "checkpoint", 1)


def test_interrupt_leaves_no_temporary_file(tmp_path, monkeypatch):
    def interrupted(handle):
        raise KeyboardInterrupt

    step(tmp_path, 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            step(tmp_path, 2)
    assert {p.name for p in tmp_path.iterdir()} == {"000000001.json", "000000001.safetensors"}
