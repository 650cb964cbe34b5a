"""Rows that grow are written once, belong to the generations that name them, and go when none does."""

import errno
import hashlib
import itertools
import json
import os
from pathlib import Path

import numpy as np
import pytest

from vcrl.core.errors import UserError
from vcrl.runs import checkpoint
from vcrl.runs.checkpoint import Rows, _render, load, save, settle

HUGE = 10**400


class PowerCut(BaseException):
    """Nothing that code may catch as an error."""


def grown(start, stop, salt=0):
    """Rows of two seeds that name themselves, of several dtypes and shapes."""
    number = np.arange(start, stop) + 1000 * np.arange(2)[:, None] + salt
    return {
        "reward": number.astype(np.float32) / 4,
        "frame": (number[..., None, None] + np.arange(6).reshape(2, 3)).astype(np.uint8),
        "first": number % 3 == 0,
    }


def step(folder, start, stop, oldest=0, at=None, salt=0):
    """A generation with the rows from `start` on, at agent step `stop`."""
    at = stop if at is None else at
    rows = Rows(start, stop, grown(start, stop, salt) if stop > start else {})
    return save(folder, at, {"n": np.array(at)}, {"n": at}, rows, oldest)


def chunk(folder, start, stop):
    return folder / "rows" / f"{start:09d}-{stop:09d}.safetensors"


def chunks(folder):
    """The files of rows that are there, as pairs of numbers."""
    names = sorted(p.name for p in (folder / "rows").glob("*"))
    return [tuple(int(n) for n in name.removesuffix(".safetensors").split("-")) for name in names]


def named(folder, at):
    body = json.loads((folder / f"{at:09d}.json").read_text())
    return [(e["start"], e["stop"]) for e in body["rows"]]


def assert_rows(found, start, stop, salt=0):
    """All rows from `start` to `stop`, in order, as they went in."""
    parts = list(found.rows)
    assert found.stop == stop
    assert [p.start for p in parts] == [start, *(p.stop for p in parts[:-1])] and parts[-1].stop == stop
    for name, wanted in grown(start, stop, salt).items():
        array = np.concatenate([p.arrays[name] for p in parts], axis=1)
        assert array.dtype == wanted.dtype and np.array_equal(array, wanted), name


def test_rows_are_written_once_and_come_back_in_order(tmp_path):
    edges, seen = [0, 10, 25, 26, 40, 70], {}
    for start, stop in itertools.pairwise(edges):
        step(tmp_path, start, stop)
        files = {p: (p.stat().st_ino, p.read_bytes()) for p in (tmp_path / "rows").iterdir()}
        new = set(files) - set(seen)
        assert new == {chunk(tmp_path, start, stop)}
        assert {p: files[p] for p in seen} == seen  # not even replaced by the same bytes
        seen = files
        assert_rows(load(tmp_path, pytest.fail), 0, stop)
    assert chunks(tmp_path) == named(tmp_path, 70) == list(itertools.pairwise(edges))
    assert sorted(p.name for p in tmp_path.glob("*.json")) == ["000000040.json", "000000070.json"]


def test_a_generation_that_went_before_has_its_own_rows_only(tmp_path):
    for start, stop in ((0, 10), (10, 20), (20, 30)):
        step(tmp_path, start, stop)
    (tmp_path / "000000030.safetensors").unlink()
    assert_rows(load(tmp_path, lambda text: None), 0, 20)


def test_rows_that_a_ring_has_overwritten_go(tmp_path):
    """Capacity 30, saved every 10: three files hold what the ring holds, the older generation one more."""
    for stop in range(10, 100, 10):
        step(tmp_path, stop - 10, stop, oldest=stop - 30)
        assert named(tmp_path, stop) == [(n, n + 10) for n in range(max(0, stop - 30), stop, 10)]
        assert chunks(tmp_path) == [(n, n + 10) for n in range(max(0, stop - 40), stop, 10)]
        assert_rows(load(tmp_path, pytest.fail), max(0, stop - 30), stop)


@pytest.mark.parametrize(("oldest", "first"), [(9, 0), (10, 10), (11, 10), (20, 20)])
def test_a_file_stays_while_one_of_its_rows_is_needed(tmp_path, oldest, first):
    step(tmp_path, 0, 10)
    step(tmp_path, 10, 20)
    step(tmp_path, 20, 30, oldest)
    assert_rows(load(tmp_path, pytest.fail), first, 30)


def test_more_rows_than_the_ring_holds_since_the_last_save(tmp_path):
    """What lies between was never needed: the rows that are left begin anew."""
    step(tmp_path, 170, 200, oldest=170)  # also where nothing was saved before
    assert_rows(load(tmp_path, pytest.fail), 170, 200)
    step(tmp_path, 470, 500, oldest=470)
    assert named(tmp_path, 500) == [(470, 500)] and chunks(tmp_path) == [(170, 200), (470, 500)]
    assert_rows(load(tmp_path, pytest.fail), 470, 500)
    step(tmp_path, 500, 510, oldest=480)
    assert chunks(tmp_path) == named(tmp_path, 510) == [(470, 500), (500, 510)]


def test_files_that_no_kept_generation_names_go(tmp_path):
    step(tmp_path, 0, 10)
    for name in ("000000010-000000012.safetensors", ".000000010-000000013.safetensors.tmp"):
        (tmp_path / "rows" / name).write_text("left behind")
    step(tmp_path, 10, 20)
    assert chunks(tmp_path) == [(0, 10), (10, 20)]


def test_a_future_that_was_not_continued_goes_with_its_rows(tmp_path):
    """Also where the new save lies beyond it: the slot of a generation must not be taken by a damaged one."""
    step(tmp_path, 0, 10)
    step(tmp_path, 10, 20)
    chunk(tmp_path, 10, 20).write_bytes(b"")
    assert load(tmp_path, lambda text: None).agent_steps == 10
    step(tmp_path, 10, 35)
    assert sorted(p.name for p in tmp_path.glob("*.json")) == ["000000010.json", "000000035.json"]
    assert chunks(tmp_path) == [(0, 10), (10, 35)]
    (tmp_path / "000000035.safetensors").unlink()
    assert_rows(load(tmp_path, lambda text: None), 0, 10)


def test_a_save_without_rows_names_none(tmp_path):
    """The last one of a training: nothing more will be sampled."""
    step(tmp_path, 0, 10)
    save(tmp_path, 20, {"n": np.array(20)}, {})
    found = load(tmp_path, pytest.fail)
    assert (found.agent_steps, found.stop, list(found.rows)) == (20, 0, [])
    assert chunks(tmp_path) == [(0, 10)]  # of the generation before


def flipped(raw):
    return raw[:-1] + bytes([raw[-1] ^ 1])


DAMAGE = {
    "a byte": (lambda p: p.write_bytes(flipped(p.read_bytes())), "checksum differs"),
    "a byte of the header": (lambda p: p.write_bytes(b"\xff" + p.read_bytes()[1:]), "checksum differs"),
    "truncated": (lambda p: p.write_bytes(p.read_bytes()[:-3]), "bytes instead of"),
    "empty": (lambda p: p.write_bytes(b""), "0 bytes instead of"),
    "longer": (lambda p: p.write_bytes(p.read_bytes() + b"\0"), "bytes instead of"),
    "missing": (Path.unlink, "arrays are missing"),
    "rows of another time": (
        lambda p: p.write_bytes(chunk(p.parents[1], 0, 10).read_bytes()),
        "checksum differs",
    ),
    "a folder": (lambda p: (p.unlink(), p.mkdir()), "bytes instead of"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_rows_are_a_damaged_generation(tmp_path, kind):
    damage, reason = DAMAGE[kind]
    step(tmp_path, 0, 10)
    step(tmp_path, 10, 20)
    damage(chunk(tmp_path, 10, 20))
    said: list[str] = []
    found = load(tmp_path, said.append)
    assert found.agent_steps == 10 and found.extra == {"n": 10}
    assert_rows(found, 0, 10)
    assert len(said) == 1 and reason in said[0]
    assert said[0].startswith("checkpoint 000000020 is damaged (")
    assert said[0].endswith("): continuing from 000000010")
    # Who needs the weights alone does not look at rows.
    newest = load(tmp_path, pytest.fail, rows=False)
    assert newest.agent_steps == 20 and int(newest.arrays["n"]) == 20
    assert newest.stop == 20 and list(newest.rows) == []


def test_rows_that_both_generations_need(tmp_path):
    step(tmp_path, 0, 10)
    step(tmp_path, 10, 20)
    chunk(tmp_path, 0, 10).unlink()
    with pytest.raises(UserError, match=r"000000020: arrays are missing; 000000010: arrays are missing"):
        load(tmp_path, pytest.fail)
    assert load(tmp_path, pytest.fail, rows=False).agent_steps == 20


@pytest.mark.parametrize("start", [9, 11, 15, 1], ids=["again", "a gap of one", "a gap", "in the middle"])
def test_rows_go_on_where_the_last_ended(tmp_path, start):
    step(tmp_path, 0, 10)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(ValueError, match=f"no generation holds the rows up to {start}"):
        step(tmp_path, start, 20)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_the_first_rows_are_the_first(tmp_path):
    with pytest.raises(ValueError, match="rows up to 5"):
        step(tmp_path, 5, 9)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("count", [9, 11, 0])
def test_arrays_must_hold_as_many_rows_as_they_say(tmp_path, count):
    with pytest.raises(ValueError, match="along axis 1"):
        save(tmp_path, 10, {}, {}, Rows(0, 10, {"a": np.zeros((2, count))}))
    with pytest.raises(ValueError, match="along axis 1"):
        save(tmp_path, 10, {}, {}, Rows(0, 10, {"a": np.zeros(10)}))
    assert not list(tmp_path.iterdir())


def test_starting_again_from_nothing(tmp_path):
    """Rows from 0 on need no generation before, whatever is there."""
    step(tmp_path, 0, 10)
    step(tmp_path, 10, 20)
    step(tmp_path, 0, 15, salt=7)
    assert_rows(load(tmp_path, pytest.fail), 0, 15, salt=7)
    assert chunks(tmp_path) == [(0, 15)]
    assert [p.name for p in tmp_path.glob("*.json")] == ["000000015.json"]


def test_a_generation_without_new_rows(tmp_path):
    """Stopped at the very step of the last save: the same generation again, and a second name for the rows."""
    step(tmp_path, 0, 10)
    step(tmp_path, 10, 20)
    files = {p: (p.stat().st_ino, p.read_bytes()) for p in (tmp_path / "rows").iterdir()}
    step(tmp_path, 20, 20)
    step(tmp_path, 20, 20, at=21)
    assert {p: (p.stat().st_ino, p.read_bytes()) for p in (tmp_path / "rows").iterdir()} == files
    assert_rows(load(tmp_path, pytest.fail), 0, 20)
    assert named(tmp_path, 20) == named(tmp_path, 21) == [(0, 10), (10, 20)]


def test_saving_a_step_again(tmp_path):
    """With the same rows, and with others: a run that went back and came by again."""
    step(tmp_path, 0, 10)
    for salt in (0, 0, 3):
        step(tmp_path, 10, 20, salt=salt)
        first, second = load(tmp_path, pytest.fail).rows
        for name in first.arrays:
            assert np.array_equal(first.arrays[name], grown(0, 10)[name])
            assert np.array_equal(second.arrays[name], grown(10, 20, salt)[name])
        assert chunks(tmp_path) == [(0, 10), (10, 20)]
        assert len(list(tmp_path.iterdir())) == 5  # two generations of two files, and the folder of rows


def test_same_rows_same_bytes(tmp_path):
    for name in ("one", "two"):
        step(tmp_path / name, 0, 10)
    for part in ("000000010.json", "rows/000000000-000000010.safetensors"):
        assert (tmp_path / "one" / part).read_bytes() == (tmp_path / "two" / part).read_bytes()


def test_a_crash_between_rows_and_manifest(tmp_path, monkeypatch):
    step(tmp_path, 0, 10)
    step(tmp_path, 10, 20)

    def cut(path, data):
        raise PowerCut

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_durable", cut)
        with pytest.raises(PowerCut):
            step(tmp_path, 20, 30, salt=5)
    assert chunks(tmp_path) == [(0, 10), (10, 20), (20, 30)]  # the rows were first
    assert_rows(load(tmp_path, pytest.fail), 0, 20)
    # On to the same step, or past it: what was left there does no harm.
    step(tmp_path, 20, 30)
    assert_rows(load(tmp_path, pytest.fail), 0, 30)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_durable", cut)
        with pytest.raises(PowerCut):
            step(tmp_path, 30, 40, salt=5)
    step(tmp_path, 30, 33)
    assert_rows(load(tmp_path, pytest.fail), 0, 33)
    assert chunks(tmp_path) == [(0, 10), (10, 20), (20, 30), (30, 33)]


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


@pytest.mark.parametrize("oldest", [0, 12], ids=["all rows", "a ring"])
def test_power_cut_at_every_system_call(tmp_path, monkeypatch, oldest):
    seen = set()
    for call in range(1, 60):
        folder = tmp_path / str(call)
        for start, stop in ((0, 10), (10, 20), (20, 30)):
            step(folder, start, stop, max(0, oldest - 40 + stop))
        with monkeypatch.context() as patch:
            cut_at(patch, call)
            try:
                step(folder, 30, 40, oldest)
                finished = True
            except PowerCut:
                finished = False
        found = load(folder, pytest.fail)
        assert found.agent_steps in (30, 40)
        seen.add(found.agent_steps)
        first = 10 if oldest and found.agent_steps == 40 else 0
        assert_rows(found, first, found.agent_steps)
        # And from there on as if nothing had happened.
        step(folder, found.stop, 50, oldest)
        assert_rows(load(folder, pytest.fail), 10 if oldest else 0, 50)
        assert {p.name[0] for p in folder.rglob("*")} <= {"0", "r"}  # nothing temporary
        if finished:
            break
    assert finished and seen == {30, 40} and call > 6


@pytest.mark.parametrize("call", [1, 2, 3], ids=["rows", "arrays", "manifest"])
def test_disk_full_tells_what_is_needed_with_the_rows(tmp_path, monkeypatch, call):
    step(tmp_path, 0, 10)
    count, real = 0, os.replace

    def full(*paths):
        nonlocal count
        count += 1
        if count == call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*paths)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(UserError, match=r"needs 12\.0 MB .* the last checkpoint \(000000010\) is kept"):
            rows = Rows(10, 20, {"a": np.zeros((2, 10, 50_000))})
            save(tmp_path, 20, {"b": np.zeros(500_000)}, {}, rows)
    assert_rows(load(tmp_path, pytest.fail), 0, 10)
    step(tmp_path, 10, 20)
    assert_rows(load(tmp_path, pytest.fail), 0, 20)
    assert not [p for p in tmp_path.rglob("*") if p.name.endswith(".tmp")]


def test_settling_leaves_one_generation_and_its_rows(tmp_path):
    for stop in (10, 20, 30, 40):
        step(tmp_path, stop - 10, stop, oldest=stop - 20)
    assert chunks(tmp_path) == [(10, 20), (20, 30), (30, 40)]
    settle(tmp_path, 40)
    assert chunks(tmp_path) == [(20, 30), (30, 40)]
    assert {p.name for p in tmp_path.iterdir()} == {"000000040.json", "000000040.safetensors", "rows"}
    assert_rows(load(tmp_path, pytest.fail), 20, 40)
    save(tmp_path, 50, {}, {})
    settle(tmp_path, 50)
    assert chunks(tmp_path) == [] and load(tmp_path, pytest.fail).stop == 0


@pytest.fixture
def folder(tmp_path):
    for start, stop in ((0, 10), (10, 20)):
        step(tmp_path / "in" / "side", start, stop)
    return tmp_path / "in" / "side"


def forge(folder, change):
    """A manifest changed by somebody who also repaired its checksum."""
    path = folder / "000000020.json"
    body = json.loads(path.read_text())
    del body["checksum"]
    change(body)
    path.write_bytes(_render(body))


@pytest.mark.parametrize(
    "change",
    [
        lambda b: b.pop("rows"),
        lambda b: b.update(rows=None),
        lambda b: b.update(rows={}),
        lambda b: b.update(rows=[None]),
        lambda b: b.update(rows=["../../outside"]),
        lambda b: b.update(rows=[[]]),
        lambda b: b["rows"].append({}),
        lambda b: b["rows"].reverse(),
        lambda b: b["rows"].pop(0) and b["rows"].append(b["rows"][0]),
        lambda b: b["rows"][0].update(start=-1),
        lambda b: b["rows"][0].update(start=-10, stop=0),
        lambda b: b["rows"][0].update(start=10),
        lambda b: b["rows"][0].update(start=11),
        lambda b: b["rows"][1].update(start=9),
        lambda b: b["rows"][1].update(start=11),
        lambda b: b["rows"][1].update(stop=21),
        lambda b: b["rows"][1].update(stop=HUGE),
        lambda b: b["rows"][1].update(start=HUGE, stop=HUGE + 10),
        lambda b: b.update(rows=[b["rows"][1] | {"start": HUGE, "stop": HUGE + 10}]),
        lambda b: b.update(rows=[b["rows"][1] | {"start": 2**63, "stop": 2**63 + 10}]),
        lambda b: b["rows"][1].update(start=10.0),
        lambda b: b["rows"][1].update(start="10"),
        lambda b: b["rows"][1].update(start="../../../10"),
        lambda b: b["rows"][0].update(start=False),
        lambda b: b["rows"][1].update(stop=None),
        lambda b: b["rows"][1].pop("sha256"),
        lambda b: b["rows"][1].update(sha256="0" * 64),
        lambda b: b["rows"][1].update(sha256=7),
        lambda b: b["rows"][1].update(bytes=-1),
        lambda b: b["rows"][1].update(bytes=HUGE),
        lambda b: b["rows"][1].update(bytes=float(b["rows"][1]["bytes"])),
        lambda b: b["rows"][1].update(file="../../outside.safetensors"),
        lambda b: b["rows"][1].update(arrays=[]),
        lambda b: b["rows"][1].update(arrays={}),
        lambda b: b["rows"][1]["arrays"].pop("first"),
        lambda b: b["rows"][1]["arrays"].update(other={"shape": [2, 10], "dtype": "bool"}),
        lambda b: b["rows"][1]["arrays"]["first"].update(shape=[2, 9]),
        lambda b: b["rows"][1]["arrays"]["first"].update(shape=[4, 10]),
        lambda b: b["rows"][1]["arrays"]["first"].update(shape=[20]),
        lambda b: b["rows"][1]["arrays"]["first"].update(shape=[HUGE, 10]),
        lambda b: b["rows"][1]["arrays"]["first"].update(dtype="uint8"),
        lambda b: b["rows"][1]["arrays"]["first"].update(dtype="object"),
        lambda b: b["rows"][1]["arrays"]["first"].update(file="/etc/passwd"),
    ],
)
def test_forged_rows(folder, change):
    """Refused when the checkpoint is opened, not later when a training is half restored; and nothing is touched."""
    outside = folder.parents[1] / "outside.safetensors"
    outside.write_bytes(chunk(folder, 10, 20).read_bytes())
    forge(folder, change)
    said: list[str] = []
    found = load(folder, said.append)
    assert found.agent_steps == 10 and len(said) == 1 and "000000020 is damaged" in said[0]
    assert_rows(found, 0, 10)
    # Going on from there clears it away, and nothing beyond the folder.
    step(folder, 10, 25)
    assert_rows(load(folder, pytest.fail), 0, 25)
    assert chunks(folder) == [(0, 10), (10, 25)] and outside.exists()


def test_forging_nothing_changes_nothing(folder):
    forge(folder, lambda body: None)
    assert_rows(load(folder, pytest.fail), 0, 20)


def test_rows_that_are_no_safetensors_under_a_matching_manifest(folder):
    for raw in (b"", b"\xff" * 64, b"\x02\0\0\0\0\0\0\0{}", b"\x10\0\0\0\0\0\0\0" + b"[" * 16):
        chunk(folder, 10, 20).write_bytes(raw)
        seal = {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
        forge(folder, lambda b, seal=seal: b["rows"][1].update(seal))
        said: list[str] = []
        assert load(folder, said.append).agent_steps == 10
        assert len(said) == 1 and "(arrays" in said[0]


def test_a_manifest_that_cannot_be_read_does_not_stop_the_next_save(folder):
    path = folder / "000000020.json"
    path.unlink()
    path.symlink_to(path.name)  # a circle
    assert load(folder, lambda text: None).agent_steps == 10
    step(folder, 10, 25)
    assert_rows(load(folder, pytest.fail), 0, 25)
    assert not path.is_symlink()
