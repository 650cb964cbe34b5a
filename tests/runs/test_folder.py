"""A run folder: its identity, its one writer, its status, its name."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from vcrl.core.errors import UserError
from vcrl.runs.folder import RunFolder, run_path, seeds_name

RECORD = {
    "method": "vcr",
    "task": "toy:catch",
    "seeds": [0, 1, 2],
    "config": {
        "kind": "RainbowConfig",
        "learning_rate": 1e-4,
        "vcr": {"steps": 9, "weight": 1.0},
        "spr": None,
    },
    "protocol": {"budget": 1000, "hash": "abcd1234"},
    "facts": {"commit": "1"},
}

HOLDER = """
import sys, time
from pathlib import Path
from vcrl.runs.folder import RunFolder
with RunFolder.open(Path(sys.argv[1]), {"a": 1}):
    print("open", flush=True)
    sys.stdin.read()
"""


def changed(path, value):
    record = json.loads(json.dumps(RECORD))
    *way, last = path.split(".")
    part = record
    for name in way:
        part = part[name]
    part[last] = value
    return record


def test_a_new_folder_has_everything_a_reader_needs(tmp_path):
    path = tmp_path / "a" / "b"
    with RunFolder.open(path, RECORD) as run:
        assert run.record == RECORD and run.path == path and run.checkpoint == path / "checkpoint"
        found = RunFolder.read(path)  # while it is open
    assert (found.record, found.status) == (RECORD, {})
    assert (found.metrics(), found.episodes(), found.evaluations(), found.speed()) == ([], [], [], [])
    assert (path / "eval.csv").read_text() == "seed,agent_steps,episode,score,length\n"


def test_the_same_record_continues_and_the_first_facts_stay(tmp_path):
    RunFolder.open(tmp_path, RECORD).close()
    before = (tmp_path / "config.json").read_bytes()
    with RunFolder.open(tmp_path, changed("facts.commit", "2")) as run:
        assert run.record == RECORD
    with RunFolder.open(tmp_path, {k: RECORD[k] for k in reversed(RECORD) if k != "facts"}) as run:
        assert run.record == RECORD
    assert (tmp_path / "config.json").read_bytes() == before


def test_tuples_and_lists_are_one_identity(tmp_path):
    RunFolder.open(tmp_path, RECORD).close()
    with RunFolder.open(tmp_path, {**RECORD, "seeds": (0, 1, 2)}) as run:
        assert run.record == RECORD


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("method", "spr", 'method is "vcr" there and "spr" here'),
        ("seeds", [0, 1], "seeds is [0, 1, 2] there and [0, 1] here"),
        ("config.vcr.steps", 5, "config.vcr.steps is 9 there and 5 here"),
        ("config.vcr.weight", 1, "config.vcr.weight is 1.0 there and 1 here"),
        ("config.vcr", None, 'config.vcr is {"steps": 9, "weight": 1.0} there and null here'),
        ("config.spr", {"steps": 1}, 'config.spr is null there and {"steps": 1} here'),
        ("config.new", True, "config.new is - there and true here"),
        ("task", "x" * 500, 'task is "toy:catch" there and "' + "x" * 76 + "... here"),
    ],
)
def test_another_identity_is_refused_by_its_first_difference(tmp_path, path, value, told):
    RunFolder.open(tmp_path, RECORD).close()
    with pytest.raises(UserError) as caught:
        RunFolder.open(tmp_path, changed(path, value))
    text = str(caught.value)
    assert told in text and "--out" in text and "\n" not in text
    RunFolder.open(tmp_path, RECORD).close()  # the refusal holds no lock


def test_a_name_that_only_the_folder_has_is_a_difference(tmp_path):
    RunFolder.open(tmp_path, RECORD).close()
    with pytest.raises(UserError, match=r"protocol is \{.*\} there and - here"):
        RunFolder.open(tmp_path, {k: v for k, v in RECORD.items() if k != "protocol"})


def test_a_folder_of_somebody_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(UserError, match=r"not a run folder \(thesis.tex but no config.json\).*--out"):
        RunFolder.open(tmp_path, RECORD)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_logs_with_rows_but_no_config_are_not_ours_to_empty(tmp_path):
    RunFolder.open(tmp_path, RECORD).close()
    (tmp_path / "config.json").unlink()
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match=r"metrics.jsonl but no config.json"):
        RunFolder.open(tmp_path, RECORD)
    assert (tmp_path / "metrics.jsonl").read_text() == "{}\n"


def test_a_run_killed_at_birth_is_born_again(tmp_path):
    RunFolder.open(tmp_path, RECORD).close()
    (tmp_path / "config.json").rename(tmp_path / ".config.json.tmp")
    (tmp_path / "eval.csv").write_text("seed,agent")
    with RunFolder.open(tmp_path, RECORD) as run:
        run.evaluation(0, 1, 2, 3, 4)
    assert RunFolder.read(tmp_path).evaluations() == [(0, 1, 2, 3.0, 4)]
    assert not (tmp_path / ".config.json.tmp").exists()


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "\xff", "[" * 100_000, "9" * 9999], ids=range(7))
def test_unreadable_config_is_an_error_and_never_a_fresh_start(tmp_path, text):
    RunFolder.open(tmp_path, RECORD).close()
    (tmp_path / "config.json").write_text(text, encoding="latin-1")
    for attempt in (lambda: RunFolder.open(tmp_path, RECORD), lambda: RunFolder.read(tmp_path)):
        with pytest.raises(UserError, match=r"config.json is damaged"):
            attempt()
    assert (tmp_path / "config.json").read_text(encoding="latin-1") == text


def test_unwritable_places(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run", tmp_path / ("x" * 300)):
        with pytest.raises(UserError) as caught:
            RunFolder.open(path, RECORD)
        assert str(caught.value).startswith(f"cannot write to {path}: choose another place with --out")

    def denied(*args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("builtins.open", denied)
    with pytest.raises(UserError, match=r"cannot write to .*Permission denied"):
        RunFolder.open(tmp_path / "run", RECORD)


def test_disk_full_while_creating_leaves_no_half_config(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(UserError, match="the disk is full"):
            RunFolder.open(tmp_path, RECORD)
    assert not (tmp_path / "config.json").exists() and not (tmp_path / ".config.json.tmp").exists()
    RunFolder.open(tmp_path, RECORD).close()
    assert RunFolder.read(tmp_path).record == RECORD


def test_one_writer_at_a_time(tmp_path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None and first.stdout.readline() == "open\n"
        with pytest.raises(UserError, match=rf"another process \(pid {first.pid}\) is writing this run"):
            RunFolder.open(tmp_path, {"a": 1})
        second = subprocess.run(command, input="", capture_output=True, text=True)
        assert second.returncode != 0 and f"pid {first.pid}" in second.stderr
        assert RunFolder.read(tmp_path).record == {"a": 1}  # readers do not wait
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        with RunFolder.open(tmp_path, {"a": 1}) as run:  # nothing to clean up by hand
            assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n" and run.record == {"a": 1}


def test_closing_releases_even_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), RunFolder.open(tmp_path, RECORD) as run:
        run.episode(0, 1, 0, 1.0, 1)
        raise ZeroDivisionError
    run.close()  # a second time is no harm
    with RunFolder.open(tmp_path, RECORD):
        assert len(RunFolder.read(tmp_path).episodes()) == 1


def test_status_merges(tmp_path):
    with RunFolder.open(tmp_path, RECORD) as run:
        assert run.read_status() == {}
        run.status({"state": "running", "reason": None})
        run.status({"state": "done", "peak": np.float32(0.5), "rate": float("nan"), "seeds": np.arange(2)})
        wanted = {"state": "done", "reason": None, "peak": 0.5, "rate": None, "seeds": [0, 1]}
        assert run.read_status() == wanted == RunFolder.read(tmp_path).status
    (tmp_path / "status.json").write_text("{")
    with pytest.raises(UserError, match=r"status.json is damaged"):
        RunFolder.read(tmp_path)


def test_reading_a_folder_that_is_not_there_names_the_near_ones(tmp_path):
    for name in ("0-4-aaaa1111", "0-4-bbbb2222", "5-9-cccc3333"):
        RunFolder.open(tmp_path / name, RECORD).close()
    with pytest.raises(UserError) as caught:
        RunFolder.read(tmp_path / "0-4-aaaa1112")
    assert str(caught.value).startswith(
        f"no run folder at {tmp_path}/0-4-aaaa1112: did you mean {tmp_path}/0-4-aaaa1111"
    )
    with pytest.raises(UserError, match=rf"not a run folder .*did you mean {tmp_path}/"):
        RunFolder.read(tmp_path)
    with pytest.raises(UserError) as caught:
        RunFolder.read(tmp_path / "empty" / "run")
    assert str(caught.value) == f"no run folder at {tmp_path}/empty/run"


@pytest.mark.parametrize(
    ("seeds", "name"),
    [
        ([0], "0"),
        ([7], "7"),
        (range(5), "0-4"),
        ((3, 4, 5), "3-5"),
        ([0, 3, 7], "0_3_7"),
        ([2, 1, 0], "2_1_0"),
        (list(range(0, 24, 2)), "0_2_4_6_8_10_12_14_16_18_20_22"),
        (list(range(0, 100, 2)), "0-98-50"),
        (range(1000), "0-999"),
    ],
)
def test_seeds_have_a_short_name(seeds, name):
    assert seeds_name(seeds) == name


def test_a_run_needs_seeds():
    with pytest.raises(UserError, match="at least one seed"):
        seeds_name([])


def test_run_path():
    path = run_path(Path("runs"), "atari100k", "vcr", "gym:my.games:Catch/Pixels-v0", range(5), "0123abcd")
    assert path == Path("runs/atari100k/vcr/gym_my.games_Catch_Pixels-v0/0-4-0123abcd")


@pytest.mark.parametrize(
    "task", ["..", ".", "", "/etc/passwd", "../../x", "a\0b", "a\nb", "~", "-", "ü" * 400, "x" * 400]
)
def test_no_task_name_leaves_its_folder(tmp_path, task):
    path = run_path(tmp_path, "s", "m", task, [0], "d")
    assert path.resolve().parent.parent == tmp_path / "s" / "m"
    with RunFolder.open(path, {"task": task}):
        assert RunFolder.read(path).record == {"task": task}
