"""Damage is noticed, named, and costs one generation at most."""

import hashlib
import json
import random

import numpy as np
import pytest

from vcrl.core.errors import UserError
from vcrl.runs.checkpoint import _render, load, save

OLD, NEW = 1000, 1200


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for n in (OLD, NEW):
        arrays = {
            "net/w": rng.normal(size=(3, 4)).astype(np.float32),
            "count": np.array(n),
            "on": np.array([True]),
        }
        save(tmp_path, n, arrays, {"agent_steps": n, "rate": 0.25, "logs": {"metrics": 17}})
    return tmp_path


def fallback(folder):
    """The old generation, after exactly one warning about the new one; gives the reason."""
    warnings: list[str] = []
    found = load(folder, warnings.append)
    assert found is not None and found.agent_steps == OLD and int(found.arrays["count"]) == OLD
    assert found.extra["agent_steps"] == OLD
    assert len(warnings) == 1
    head, _, rest = warnings[0].partition(" (")
    reason, _, tail = rest.rpartition("): ")
    assert (head, tail) == ("checkpoint 000001200 is damaged", "continuing from 000001000")
    return reason


def data(folder, n=NEW):
    return folder / f"{n:09d}.safetensors"


def manifest(folder, n=NEW):
    return folder / f"{n:09d}.json"


def forge(folder, change):
    """A manifest changed by somebody who also repaired its checksum."""
    body = json.loads(manifest(folder).read_text())
    del body["checksum"]
    change(body)
    manifest(folder).write_bytes(_render(body))


def test_the_warning_reads_as_promised(folder):
    raw = bytearray(data(folder).read_bytes())
    raw[-1] ^= 1
    data(folder).write_bytes(raw)
    warnings: list[str] = []
    assert load(folder, warnings.append) is not None
    assert warnings == ["checkpoint 000001200 is damaged (checksum differs): continuing from 000001000"]


@pytest.mark.parametrize("which", [data, manifest])
def test_any_single_byte_matters(folder, which):
    whole = which(folder).read_bytes()
    chance = random.Random(0)
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= chance.randrange(1, 256)
        which(folder).write_bytes(changed)
        assert fallback(folder)


@pytest.mark.parametrize("which", [data, manifest])
def test_any_truncation_or_addition_matters(folder, which):
    whole = which(folder).read_bytes()
    for length in {0, 1, 7, 8, 9, len(whole) // 2, len(whole) - 1}:
        which(folder).write_bytes(whole[:length])
        assert fallback(folder)
    for more in (b"\0", b" ", b"\n", whole):
        which(folder).write_bytes(whole + more)
        assert fallback(folder)


def test_a_checkpoint_without_manifest_does_not_exist(folder):
    manifest(folder).unlink()
    warnings: list[str] = []
    found = load(folder, warnings.append)
    assert found is not None and found.agent_steps == OLD and warnings == []


def test_missing_arrays(folder):
    data(folder).unlink()
    assert fallback(folder) == "arrays are missing"


@pytest.mark.parametrize("which", [data, manifest])
def test_a_folder_in_place_of_a_file(folder, which):
    which(folder).unlink()
    which(folder).mkdir()
    assert "bytes instead of" in fallback(folder) if which is data else "cannot be read" in fallback(folder)


def test_arrays_of_another_generation(folder):
    data(folder).write_bytes(data(folder, OLD).read_bytes())
    assert fallback(folder) == "checksum differs"


def test_manifest_of_another_generation(folder):
    manifest(folder).write_bytes(manifest(folder, OLD).read_bytes())
    assert fallback(folder) == "manifest belongs to another step"


def test_all_damaged_is_an_error_that_says_what_to_do(folder):
    data(folder).unlink()
    manifest(folder, OLD).write_text("{")
    with pytest.raises(UserError) as caught:
        load(folder, pytest.fail)
    text = str(caught.value)
    assert (
        "\n" not in text
        and "000001200: arrays are missing" in text
        and "000001000: manifest is unreadable" in text
    )
    assert text.endswith(f"delete the folder {folder} to start again; nothing else is lost")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        "[" * 100_000 + "]" * 100_000,
        "9" * 10_000,
        '{"agent_steps": 1e999}',
        '{"bytes": NaN}',
        "null",
        "[]",
        '"x"',
        "{}",
        '{"checksum": "' + "0" * 64 + '"}',
        "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
        "\0",
        "",
    ],
    ids=range(14),
)
def test_hostile_text(folder, text):
    manifest(folder).write_text(text)
    assert fallback(folder).startswith("manifest")


@pytest.mark.parametrize(
    "change",
    [
        lambda b: b.update(format="vcrl checkpoint 3"),
        lambda b: b.update(agent_steps=True),
        lambda b: b.update(agent_steps="1200"),
        lambda b: b.update(bytes=-1),
        lambda b: b.update(bytes=10**400),
        lambda b: b.update(bytes=float(b["bytes"])),
        lambda b: b.update(sha256="0" * 64),
        lambda b: b.update(sha256=None),
        lambda b: b.update(file="../../other.safetensors"),
        lambda b: b.pop("extra"),
        lambda b: b.update(extra=[]),
        lambda b: b.update(arrays=[]),
        lambda b: b["arrays"].clear(),
        lambda b: b["arrays"].pop("on"),
        lambda b: b["arrays"].update({"../../../etc/passwd": {"shape": [1], "dtype": "bool"}}),
        lambda b: b["arrays"].update(on=None),
        lambda b: b["arrays"].update(on={"shape": [1], "dtype": "uint8"}),
        lambda b: b["arrays"].update(on={"shape": [1], "dtype": "object"}),
        lambda b: b["arrays"].update(on={"shape": [1], "dtype": ["bool"]}),
        lambda b: b["arrays"].update(on={"shape": [True], "dtype": "bool"}),
        lambda b: b["arrays"].update(on={"shape": [1, 1], "dtype": "bool"}),
        lambda b: b["arrays"].update(on={"shape": [-1], "dtype": "bool"}),
        lambda b: b["arrays"].update(on={"shape": [1.0], "dtype": "bool"}),
        lambda b: b["arrays"].update(on={"shape": [10**400], "dtype": "bool"}),
        lambda b: b["arrays"].update(on={"shape": "1", "dtype": "bool"}),
        lambda b: b["arrays"].update(on={"shape": [1], "dtype": "bool", "file": "/etc/passwd"}),
        lambda b: b["arrays"]["net/w"].update(shape=[4, 3]),
        lambda b: b["arrays"]["net/w"].update(dtype="int32"),
    ],
)
def test_forged_manifest(folder, change):
    forge(folder, change)
    assert fallback(folder)


def test_forging_nothing_changes_nothing(folder):
    forge(folder, lambda body: None)
    assert load(folder, pytest.fail).agent_steps == NEW


def test_an_array_name_is_never_a_path(tmp_path):
    name = "../../outside"
    save(tmp_path / "in" / "side", 1, {name: np.arange(3)}, {})
    assert load(tmp_path / "in" / "side", pytest.fail).arrays[name].tolist() == [0, 1, 2]
    assert {p.name for p in tmp_path.rglob("*") if p.is_file()} == {"000000001.json", "000000001.safetensors"}


def test_file_that_is_no_safetensors_under_a_matching_manifest(folder):
    for raw in (b"", b"\xff" * 64, b"\x02\0\0\0\0\0\0\0{}", b"\x10\0\0\0\0\0\0\0" + b"[" * 16):
        data(folder).write_bytes(raw)
        seal = hashlib.sha256(raw).hexdigest()
        forge(folder, lambda b, raw=raw, seal=seal: b.update(bytes=len(raw), sha256=seal))
        assert fallback(folder).startswith("arrays")
