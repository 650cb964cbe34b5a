"""Whatever is changed in a run folder, `verify` says so in a line, and nothing in the folder can hurt who looks."""

import json
import os
import random
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from handmade import make

from vcrl.cli import main
from vcrl.core.errors import UserError
from vcrl.runs import checkpoint
from vcrl.runs.checkpoint import _render
from vcrl.runs.folder import RunFolder
from vcrl.runs.logs import read_rows
from vcrl.runs.reading import read_object
from vcrl.runs.verify import as_data, failed, text, verify


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make(tmp_path_factory.mktemp("made"))


@pytest.fixture
def run(made, tmp_path):
    root = made.parents[3]
    shutil.copytree(root, tmp_path / "runs")
    return tmp_path / "runs" / made.relative_to(root)


def states(checks):
    return {check.name: check.state for check in checks}


def bad(checks, state="FAILED"):
    return [check.name for check in checks if check.state == state]


def edit(path, old, new):
    data = path.read_bytes()
    assert old in data, (old, data[:400])
    path.write_bytes(data.replace(old, new, 1))


def change(path, **values):
    data = json.loads(path.read_text())
    path.write_text(json.dumps(data | values))


def test_a_whole_run_is_whole(run):
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    checks = verify(run)
    assert set(states(checks).values()) == {"ok"} and len(checks) == 11 and not failed(checks)
    assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file()} == before
    told = text(checks)
    assert told.count("\n") == 11 and told.endswith("11 checks: 11 ok")
    assert as_data(run, checks)["whole"] is True


def test_a_run_with_continuous_actions_is_whole(tmp_path):
    assert {check.state for check in verify(make(tmp_path, "reach", games=1))} == {"ok"}


def protocol(run, **values):
    """In config.json alone, as somebody would who does not know of hashes."""
    record = json.loads((run / "config.json").read_text())
    change(run / "config.json", protocol=record["protocol"] | values)


FINAL = "checkpoint/000000040"
DAMAGE = {
    "config.json": {
        "not JSON": lambda r: (r / "config.json").write_text("{"),
        "a list": lambda r: (r / "config.json").write_text("[]"),
        "deep": lambda r: (r / "config.json").write_text('{"a":' + "[" * 900 + "]" * 900 + "}"),
        "very deep": lambda r: (r / "config.json").write_text('{"a":' * 100_000),
        "a huge number": lambda r: edit(r / "config.json", b'"budget": 40', b'"budget": 1e999'),
        "a long number": lambda r: edit(r / "config.json", b'"budget": 40', b'"budget": ' + b"9" * 4000),
        "NaN": lambda r: edit(r / "config.json", b'"budget": 40', b'"budget": NaN'),
        "another protocol": lambda r: protocol(r, eval_episodes=2),
        "another horizon": lambda r: protocol(r, horizon=5),
        "no protocol": lambda r: change(r / "config.json", protocol=None),
        "seeds twice": lambda r: change(r / "config.json", seeds=[3, 3]),
        "a name with a newline": lambda r: change(r / "config.json", task="catch\nok"),
        "a name that is no text": lambda r: change(r / "config.json", task="\ud800"),
        "a folder": lambda r: ((r / "config.json").unlink(), (r / "config.json").mkdir()),
        "config is a number": lambda r: change(r / "config.json", config=3),
        "another budget": lambda r: change(r / "config.json", budget=80),
    },
    "name": {
        "another config": lambda r: edit(r / "config.json", b'"batch"', b'"bitch"'),
        "another method": lambda r: change(r / "config.json", method="spr"),
        "another seed": lambda r: change(r / "config.json", seeds=[3, 6]),
        "no schedule": lambda r: change(r / "config.json", schedule=None),
    },
    "status.json": {
        "not JSON": lambda r: (r / "status.json").write_text("{}}"),
        "an unknown state": lambda r: change(r / "status.json", state="dnoe"),
        "done too early": lambda r: change(r / "status.json", agent_steps=39),
        "a counter that is none": lambda r: change(r / "status.json", updates="many"),
        "seeds of others": lambda r: change(r / "status.json", not_finite_since={"9": 1}),
        "a seed that is no number": lambda r: change(r / "status.json", not_finite_since={"x": 1}),
        "lanes too many": lambda r: change(r / "status.json", lane_agent_steps=[1, 2, 3]),
    },
    "eval.csv": {
        "a game less": lambda r: edit(r / "eval.csv", b"5,40,2,", b"5,40,1,"),
        "a line less": lambda r: (r / "eval.csv").write_text("".join(lines(r, "eval.csv")[:-1])),
        "lines swapped": lambda r: swap(r / "eval.csv", 1, 2),
        "evaluations swapped": lambda r: swap(r / "eval.csv", 2, 8),
        "a seed of others": lambda r: edit(r / "eval.csv", b"\n5,40", b"\n6,40"),
        "a score that is none": lambda r: (r / "eval.csv").write_text(nan(r)),
        "no line break": lambda r: edit(r / "eval.csv", b"seed", b"sead"),
        "gone": lambda r: (r / "eval.csv").unlink(),
    },
    "scores": {
        "better": lambda r: change(r / "status.json", scores={"3": 1.0, "5": 1.0}),
        "one less": lambda r: change(r / "status.json", scores={"3": 1.0}),
        "one more": lambda r: change(
            r / "status.json",
            scores={**json.loads((r / "status.json").read_text())["scores"], "9": 1.0},
        ),
        "a list": lambda r: change(r / "status.json", scores=[1]),
    },
    "receipts": {
        "one less": lambda r: (r / "receipts/000000020.receipt").unlink(),
        "a bit": lambda r: flip(r / "receipts/000000040.receipt", -1),
        "the other": lambda r: shutil.copy(
            r / "receipts/000000020.receipt", r / "receipts/000000040.receipt"
        ),
        "one more": lambda r: shutil.copy(r / "receipts/000000020.receipt", r / "receipts/000000030.receipt"),
    },
    "episodes.csv": {
        "out of order": lambda r: swap(r / "episodes.csv", 1, 5),
        "a game twice": lambda r: edit(r / "episodes.csv", b"3,20,2,", b"3,20,1,"),
        "no length": lambda r: edit(r / "episodes.csv", b"3,20,2,1.0,7", b"3,20,2,1.0,0"),
        "too long a number": lambda r: edit(r / "episodes.csv", b"3,20,2", b"3," + b"9" * 5000 + b",2"),
    },
    "metrics.jsonl": {
        "out of order": lambda r: swap(r / "metrics.jsonl", 0, 1),
        "a seed less": lambda r: edit(r / "metrics.jsonl", b"[0.5,0.5]", b"[0.5]"),
        "no counter": lambda r: edit(r / "metrics.jsonl", b"env_steps", b"env-steps"),
        "not JSON": lambda r: edit(r / "metrics.jsonl", b"[0.5", b"(0.5"),
        "infinite": lambda r: edit(r / "metrics.jsonl", b"0.5", b"1e999"),
    },
    "speed.jsonl": {"not JSON": lambda r: (r / "speed.jsonl").write_text("x\n")},
    "checkpoint": {
        "arrays gone": lambda r: (r / f"{FINAL}.safetensors").unlink(),
        "a bit of arrays": lambda r: flip(r / f"{FINAL}.safetensors", -1),
        "a bit of the manifest": lambda r: flip(r / f"{FINAL}.json", 30),
        "cut off": lambda r: os.truncate(r / f"{FINAL}.safetensors", 100),
        "a bit of rows": lambda r: flip(r / "checkpoint/rows/000000000-000000040.safetensors", -1),
        "rows gone": lambda r: (r / "checkpoint/rows/000000000-000000040.safetensors").unlink(),
        "rows of elsewhere": lambda r: forge(r, lambda b: b["rows"][0].update(start="../../0")),
        "a step of elsewhere": lambda r: forge(r, lambda b: b.update(agent_steps="../40")),
        "other counters": lambda r: forge(r, lambda b: b["extra"]["counters"].update(tick=39)),
        "logs that are longer": lambda r: forge(r, lambda b: b["extra"]["logs"].update(eval=10**9)),
        "logs of others": lambda r: forge(r, lambda b: b["extra"]["logs"].update(shadow=1)),
        "no extra": lambda r: forge(r, lambda b: b.update(extra={})),
        "another shape": lambda r: forge(r, lambda b: b["arrays"]["weight"].update(shape=[2**40, 2**40])),
    },
    "files": {
        "a link out": lambda r: (r / "notes.json").symlink_to("/etc/passwd"),
        "a link out of a folder": lambda r: (r / "checkpoint/rows/x").symlink_to("/"),
        "a link inside": lambda r: (r / "other.csv").symlink_to("eval.csv"),
        "a pipe": lambda r: os.mkfifo(r / "checkpoint/000000041.json"),
    },
}  # fmt: skip


def lines(run, name):
    return (run / name).read_text().splitlines(keepends=True)


def swap(path, one, two):
    rows = path.read_text().splitlines(keepends=True)
    rows[one], rows[two] = rows[two], rows[one]
    path.write_text("".join(rows))


def nan(run):
    rows = lines(run, "eval.csv")
    seed, at, episode, _, length = rows[-1].split(",")
    return "".join([*rows[:-1], ",".join([seed, at, episode, "nan", length])])


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def forge(run, alter):
    """A manifest changed by somebody who also repaired its checksum."""
    path = run / f"{FINAL}.json"
    body = json.loads(path.read_text())
    del body["checksum"]
    alter(body)
    path.write_bytes(_render(body))


@pytest.mark.parametrize(("check", "name"), [(c, n) for c, names in DAMAGE.items() for n in names])
def test_damage_is_named(run, check, name):
    DAMAGE[check][name](run)
    checks = verify(run)
    assert check in bad(checks) and failed(checks)
    (found,) = (c for c in checks if c.name == check)
    assert found.found.isprintable() and len(found.found) <= 300
    assert found.todo or ": " in found.found, "what to do is said"


def test_a_log_changed_before_the_checkpoint_is_noticed_by_it(run):
    edit(run / "episodes.csv", b"3,10,1,1.0,7", b"3,10,1,9.0,7")
    assert bad(verify(run)) == ["checkpoint"]


def test_what_is_odd_but_harmless_is_a_warning(run):
    (run / "thoughts.txt").write_text("mine")
    (run / ".status.json.tmp").write_text("half")
    (run / "checkpoint" / "000000007.safetensors").write_bytes(b"without a manifest")
    checks = verify(run)
    assert not failed(checks) and bad(checks, "warning") == ["files", "checkpoint"]
    assert "thoughts.txt" in text(checks)


def test_moved_and_renamed_folders_are_warnings(run, tmp_path):
    moved = tmp_path / run.name
    shutil.copytree(run, moved)
    assert bad(verify(moved), "warning") == ["name"] and not failed(verify(moved))
    renamed = tmp_path / "the best one"
    run.rename(renamed)
    assert bad(verify(renamed), "warning") == ["name"] and not failed(verify(renamed))


def test_a_run_from_before_receipts_is_a_warning(run):
    shutil.rmtree(run / "receipts")
    assert bad(verify(run), "warning") == ["receipts"] and not failed(verify(run))


def test_a_config_of_another_version_is_a_warning_if_it_is_as_it_was(run):
    """Its hash is right, so nobody changed it; a knob that this version does not know keeps it from being loaded."""
    record = json.loads((run / "config.json").read_text())
    record["config"]["knob_of_tomorrow"] = 1
    from vcrl.core.config import digest

    name = digest(tuple(record[k] for k in ("method", "task", "config", "protocol", "schedule")))
    (run / "config.json").write_text(json.dumps(record))
    run = run.rename(run.with_name(f"3_5-{name}"))
    checks = verify(run)
    assert bad(checks, "warning") == ["config.json"] and not failed(checks)


def test_a_run_on_its_way(run):
    """Stopped within its last evaluation: nothing is lost, and nothing is claimed that is not there."""
    change(run / "status.json", state="stopped", scores=None)
    (run / "eval.csv").write_text("".join(lines(run, "eval.csv")[:-2]))
    checks = verify(run)
    assert not failed(checks) and bad(checks, "warning") == ["eval.csv"]
    (run / "eval.csv").write_text("".join(lines(run, "eval.csv")[:7]))
    checks = verify(run)
    assert not failed(checks) and bad(checks, "warning") == ["receipts"]


def test_a_run_being_written_is_said(run):
    with RunFolder.open(run, json.loads((run / "config.json").read_text())):
        assert bad(verify(run), "warning") == ["files"]
    assert not bad(verify(run), "warning")


def test_random_damage_never_breaks_the_check(run):
    """Bytes changed, cut, doubled, in any file: an answer comes, and the file that was hurt is not called whole."""
    chance = random.Random(0)
    files = sorted(p for p in run.rglob("*") if p.is_file() and p.name not in ("lock", "speed.jsonl"))
    whole = {path: path.read_bytes() for path in files}
    quiet = 0
    for round in range(120):
        path = files[round % len(files)]
        data = bytearray(whole[path])
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(data))
            cut = (
                data[:at],
                data[: at + 1] + data[at:],
                data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :],
            )
            data = bytearray(cut[chance.randrange(3)]) or bytearray(b"?")
        path.write_bytes(data)
        checks = verify(run)
        assert text(checks).isprintable() is False and len(checks) in (3, 11)
        if data != whole[path] and not failed(checks):
            quiet += 1
            # Facts and times can say anything, and half a row at the end is a row still being written.
            assert path.name in ("config.json", "status.json", "eval.csv", "episodes.csv", "metrics.jsonl")
        path.write_bytes(whole[path])
    assert quiet < 15
    assert not failed(verify(run))


HOSTILE = {
    "a header beyond the file": struct.pack("<Q", 2**62) + b"{}",
    "a header of nesting": struct.pack("<Q", 200_000) + b"[" * 200_000,
    "an array beyond the file": None,
    "arrays that overlap": None,
    "a shape that overflows": None,
}


def header(entries):
    body = json.dumps(entries).encode()
    return struct.pack("<Q", len(body)) + body


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_safetensors_under_a_good_checksum(run, name):
    one = {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]}
    made_up = {
        "an array beyond the file": header({"weight": one | {"data_offsets": [0, 2**40]}}) + bytes(48),
        "arrays that overlap": header({"weight": one, "on": one}) + bytes(48),
        "a shape that overflows": header({"weight": one | {"shape": [2**32, 2**32]}}) + bytes(48),
    }
    data = HOSTILE[name] or made_up[name]
    path = run / f"{FINAL}.safetensors"
    path.write_bytes(data)
    import hashlib

    forge(run, lambda b: b.update(bytes=len(data), sha256=hashlib.sha256(data).hexdigest()))
    assert bad(verify(run)) == ["checkpoint"]
    with pytest.raises(UserError, match="every checkpoint is damaged"):
        checkpoint.load(run / "checkpoint", pytest.fail)


PIPES = [
    "config.json",
    "status.json",
    "eval.csv",
    "checkpoint/000000040.json",
    "receipts/000000040.receipt",
    "lock",
]


@pytest.mark.parametrize("name", PIPES)
def test_a_pipe_in_place_of_a_file_is_not_waited_for(run, name):
    """In a process of its own, so that a test that waits would be noticed."""
    (run / name).unlink()
    os.mkfifo(run / name)
    done = subprocess.run(
        [sys.executable, "-m", "vcrl.cli", "verify", str(run)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1 and "no plain file" in done.stdout


VICTIMS = ["lock", "metrics.jsonl", ".status.json.tmp", "checkpoint/rows", "receipts"]


@pytest.mark.parametrize("name", VICTIMS)
def test_a_writer_does_not_follow_a_link_out_of_the_folder(run, tmp_path, name):
    """A stranger's folder whose lock, log or folder of rows leads to our files would empty them."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis").write_text("years of work, without a line break")
    path = run / name
    target = precious if name in ("checkpoint/rows", "receipts") else precious / "thesis"
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    path.symlink_to(target)
    with pytest.raises(UserError, match="is a link, and a run writes into its own folder alone"):
        RunFolder.open(run, json.loads((run / "config.json").read_text()))
    assert (precious / "thesis").read_text() == "years of work, without a line break"
    assert [p.name for p in precious.iterdir()] == ["thesis"] and bad(verify(run))[0] == "files"


def test_a_writer_does_not_wait_for_a_pipe(run):
    (run / "metrics.jsonl").unlink()
    os.mkfifo(run / "metrics.jsonl")
    with pytest.raises(UserError, match=r"metrics.jsonl is no plain file"):
        RunFolder.open(run, json.loads((run / "config.json").read_text()))


def test_a_run_reached_by_a_link_is_a_run(run, tmp_path):
    (tmp_path / "latest").symlink_to(run)
    assert not failed(verify(tmp_path / "latest"))
    RunFolder.open(tmp_path / "latest", json.loads((run / "config.json").read_text())).close()


def test_sizes_are_looked_at_before_reading(tmp_path):
    """A sparse file costs nothing to make and would cost everything to read."""
    for name in ("config.json", "metrics.jsonl"):
        with open(tmp_path / name, "wb") as file:
            file.truncate(2**40)
    with pytest.raises(UserError, match="larger than"):
        read_object(tmp_path / "config.json")
    with pytest.raises(UserError, match="larger than"):
        read_rows(tmp_path / "metrics.jsonl")
    assert bad(verify(tmp_path)) == ["config.json"]


def test_the_command(run, capsys):
    main(["verify", str(run)])
    assert "11 checks: 11 ok" in capsys.readouterr().out
    main(["verify", str(run), "--json"])
    assert json.loads(capsys.readouterr().out)["whole"] is True
    flip(run / f"{FINAL}.safetensors", -1)
    with pytest.raises(SystemExit) as stop:
        main(["verify", str(run), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert stop.value.code == 1 and found["whole"] is False
    (wrong,) = [check for check in found["checks"] if check["state"] == "FAILED"]
    assert (
        wrong["name"] == "checkpoint" and "checksum differs" in wrong["found"] and "delete" in wrong["todo"]
    )


def test_no_run_is_one_clear_line(tmp_path):
    with pytest.raises(UserError, match="no run folder"):
        verify(tmp_path / "nowhere")
    with pytest.raises(UserError, match="is not a run folder"):
        verify(Path(tmp_path))
