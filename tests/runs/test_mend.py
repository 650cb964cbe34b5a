"""What a run folder makes anew, and what it notices: a damaged status, a log that is not as it was, a full disk."""

import errno
import os

import pytest

from vcrl.core.errors import UserError
from vcrl.runs.files import open_plain, writing
from vcrl.runs.folder import RunFolder
from vcrl.runs.logs import Log
from vcrl.runs.reading import read_status, state_of

RECORD = {"method": "m", "task": "t", "protocol_hash": "p", "config": {"a": 1}, "facts": {}}


@pytest.mark.parametrize("text", ["", "{", "[1]", '"done"', "\0" * 40, '{"state": 1e999}', '{"a":' * 1000])
def test_a_damaged_status_is_begun_anew_and_said(tmp_path, text):
    RunFolder.open(tmp_path, RECORD).close()
    (tmp_path / "status.json").write_text(text)
    assert state_of(tmp_path) is None
    with RunFolder.open(tmp_path, RECORD) as folder:
        (said,) = folder.mended
        assert "status.json was damaged: it is begun anew" in said
        folder.status({"state": "running"})
    assert read_status(tmp_path) == {"state": "running"}


def test_a_good_status_is_left_alone(tmp_path):
    with RunFolder.open(tmp_path, RECORD) as folder:
        folder.status({"state": "stopped", "seconds": 5})
        assert folder.mended == []
    assert state_of(tmp_path) == "stopped"
    with RunFolder.open(tmp_path, RECORD) as folder:
        assert folder.mended == [] and folder.read_status()["seconds"] == 5


def test_a_changed_log_is_noticed(tmp_path):
    with RunFolder.open(tmp_path, RECORD) as folder:
        for step in range(50):
            folder.metrics({"agent_steps": step, "loss": [0.5, 0.25]})
        folder.episode(0, 3, 0, 1.0, 7)
        positions = folder.positions()
        digests = folder.digests(positions)
        assert digests.keys() == {"metrics", "episodes", "eval"} and folder.changed(positions, digests) == []
        folder.metrics({"agent_steps": 99, "loss": [1, 1]})  # what comes later does not matter
        folder.flush()
        assert folder.changed(positions, digests) == []
        path = tmp_path / "metrics.jsonl"
        data = bytearray(path.read_bytes())
        data[100] ^= 1
        path.write_bytes(data)
        assert folder.changed(positions, digests) == ["metrics.jsonl"]
        assert folder.changed(positions, {"episodes": digests["episodes"]}) == []  # of an older version


def test_a_full_disk_is_called_so(tmp_path):
    for code in (errno.ENOSPC, errno.EDQUOT):
        with pytest.raises(UserError, match=r"the disk is full: .* free some space"), writing(tmp_path / "x"):
            raise OSError(code, os.strerror(code))
    with pytest.raises(UserError, match=r"choose another place with --out"), writing(tmp_path / "x"):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))


@pytest.mark.parametrize("length", [0, 1, 2**20 - 1, 2**20, 2**20 + 1, 3 * 2**20])
def test_half_a_line_is_cut_off_however_long_it_is(tmp_path, length):
    path = tmp_path / "log"
    path.write_bytes(b"head\nrow\n" + b"x" * length)
    log = Log(path, b"head\n")
    log.append(b"next\n")
    log.close()
    assert path.read_bytes() == b"head\nrow\nnext\n"


def test_a_file_without_a_whole_line_is_begun_anew(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"x" * (2**20 + 5))
    Log(path, b"head\n").close()
    assert path.read_bytes() == b"head\n"


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "secret").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError) as caught, open_plain(tmp_path / "link"):
        pass
    assert caught.value.strerror == "a link, which is not followed"
    with open_plain(tmp_path / "secret") as file:
        assert file.read() == b"{}"
