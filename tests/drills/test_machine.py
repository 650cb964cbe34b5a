"""A machine that runs out of things: disk, memory, time that goes forward."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from toy import assert_same, start

from vcrl.runs.reading import read_status


@pytest.fixture
def small_disk(tmp_path):
    """A disk of a few megabytes, which is real; where we may not mount one, none."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "vcrl-drill", str(place)]
    mounted = shutil.which("mount") and subprocess.run(command, capture_output=True).returncode == 0
    yield place if mounted else None
    if mounted:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.drill("disk full")
def test_the_disk_fills_up_while_training(small_disk, tmp_path, whole, tell):
    if small_disk is None:
        return limited_files(tmp_path, whole, tell)
    run = start("toy", small_disk / "runs")
    assert run.until("tick 120")
    ballast = small_disk / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    assert run.end() == 2, run.said()
    said = run.said().splitlines()[-1]
    assert "the disk is full" in said and "run the same command again" in said
    ballast.unlink()
    again = start("toy", small_disk / "runs")
    assert again.end() == 0, again.said()
    assert_same(again.folder(), whole("toy"))
    went_on = min(again.ticks())
    tell(
        f"a disk of 4 MB fills up at agent step 120, is cleared after the run ended at {max(run.ticks())}",
        f"all up to agent step {went_on - 1}; continued, the end is bit for bit the same",
        said,
    )


def limited_files(tmp_path, whole, tell):
    """Without a disk of our own: files that may not grow, which the system refuses in the same way."""
    run = start("toy", tmp_path / "runs", LARGEST="100000")
    assert run.end() == 2, run.said()
    said = run.said().splitlines()[-1]
    assert "cannot write" in said
    again = start("toy", tmp_path / "runs")
    assert again.end() == 0, again.said()
    assert_same(again.folder(), whole("toy"))
    tell("files may not be larger than 100 kB", "continued without that limit, the end is the same", said)


def vcrl(*words: str, kilobytes: int | None = None) -> tuple[int, str]:
    """A command, perhaps with so much memory."""
    shell = ["sh", "-c", f'ulimit -v {kilobytes} && exec "$@"', "sh"] if kilobytes else []
    command = [*shell, sys.executable, "-m", "vcrl.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stderr.strip()


@pytest.mark.drill("out of memory")
def test_a_replay_that_cannot_fit_is_refused(tmp_path, tell):
    words = ["train", "rainbow", "catch", "--seeds", "0:5", "--out", str(tmp_path / "runs")]
    code, said = vcrl(*words, "--steps", "100000000", "--replay.capacity", "100000000")
    assert code == 2 and "\n" not in said and "are free" in said and "--replay.capacity" in said
    assert not (tmp_path / "runs").exists()
    tell("a replay of 100 million steps is asked for", "nothing was begun", said)


@pytest.mark.drill("out of memory")
def test_the_limit_of_a_shell_counts(tmp_path, tell):
    words = ["train", "rainbow", "catch", "--seeds", "0:5", "--out", str(tmp_path / "runs")]
    code, said = vcrl(*words, "--steps", "5000000", "--replay.capacity", "5000000", kilobytes=5_000_000)
    assert code == 2 and "\n" not in said and "are free" in said
    tell("a replay larger than `ulimit -v` leaves", "nothing was begun", said)


@pytest.mark.drill("out of memory")
def test_memory_that_is_taken_away_while_training(tmp_path, whole, tell):
    """What was free is gone by the time it is asked for: here, once the first checkpoints are written."""
    run = start("toy", tmp_path, NO_MEMORY_AT="120")
    code = run.end()
    said = run.said().splitlines()[-1]
    assert code == 2 and "out of memory" in said, run.said()
    assert read_status(run.folder())["state"] == "failed"
    again = start("toy", tmp_path)
    assert again.end() == 0 and min(again.ticks()) > 1, again.said()
    assert_same(again.folder(), whole("toy"))
    kept = f"all up to agent step {min(again.ticks()) - 1}; continued, the end is bit for bit the same"
    tell("no memory is given any more from agent step 120 on", kept, said)


FAKETIME = next(iter(sorted(Path("/usr/lib").rglob("libfaketime.so.1"))), None)


@pytest.mark.drill("clock")
def test_a_clock_that_jumps(tmp_path, whole, tell):
    """By a library that stands between the process and the system's clock, or else by Python's own functions."""
    stamp = tmp_path / "stamp"
    stamp.write_text("+0")
    patched = {"JUMPS": "1"}
    if FAKETIME is not None:
        patched = {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(stamp),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
    run = start("brief", tmp_path / "runs", **patched)
    for tick, jump in ((25, "-3600"), (45, "+864000"), (65, "-315360000"), (85, "+0")):
        assert run.until(f"tick {tick}"), run.said()
        stamp.write_text(jump)
    assert run.end() == 0, run.said()
    assert 0 <= read_status(run.folder())["seconds"] < 600
    assert_same(run.folder(), whole("brief"))
    how = "the system's, by libfaketime" if FAKETIME is not None else "Python's"
    tell(
        f"it goes back an hour, on ten days, back ten years ({how})",
        "bit for bit the same; durations are measured by a clock that cannot jump",
        "nothing",
    )
