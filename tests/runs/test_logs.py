"""Logs grow by whole lines, are cut back exactly, and are read strictly but for a half-written end."""

import errno
import math
import random
import re

import numpy as np
import pytest

from vcrl.core.errors import UserError
from vcrl.runs.folder import RunFolder
from vcrl.runs.logs import Episode

RECORD = {"a": 1}
LOGS = ("metrics.jsonl", "episodes.csv", "eval.csv")
HEADER = "seed,agent_steps,episode,score,length\n"


@pytest.fixture
def run(tmp_path):
    with RunFolder.open(tmp_path, RECORD) as opened:
        yield opened


def write(run, first, last):
    for n in range(first, last):
        run.metrics({"agent_steps": n, "loss": [n / 3, math.nan if n % 2 else -0.0]})
        run.episode(n % 3, n, n, n / 7, n + 1)
        run.evaluation(n % 3, n, n, -n / 9, n + 1)
        run.speed({"seconds": n})


def contents(path):
    return {name: (path / name).read_bytes() for name in LOGS}


def test_rows_come_back(run):
    write(run, 0, 5)
    assert RunFolder.read(run.path).episodes() == []  # buffered
    run.flush()
    found = RunFolder.read(run.path)
    assert found.episodes()[3] == Episode(seed=0, agent_steps=3, episode=3, score=3 / 7, length=4)
    assert [row.score for row in found.evaluations()] == [-n / 9 for n in range(5)]
    assert [row["agent_steps"] for row in found.metrics()] == list(range(5))
    assert found.speed() == [{"seconds": n} for n in range(5)]


def test_exact_bytes(run):
    run.metrics({"agent_steps": 1, "loss": 0.1, "big": 1e22, "flag": True, "per": {"spr": [1.0]}})
    run.episode(2, 30, 4, 0.1 + 0.2, 5)
    run.flush()
    text = '{"agent_steps":1,"loss":0.1,"big":1e+22,"flag":true,"per":{"spr":[1.0]}}\n'
    assert (run.path / "metrics.jsonl").read_text() == text
    assert (run.path / "episodes.csv").read_text() == HEADER + "2,30,4,0.30000000000000004,5\n"


def test_numpy_numbers_are_written_as_numbers(run):
    run.metrics(
        {"n": np.int64(3), "x": np.float32(0.1), "per": np.array([1, np.nan], np.float32), "b": np.bool_(1)}
    )
    run.episode(np.int32(1), np.uint64(2**63), np.uint8(3), np.float32(0.1), np.int64(4))
    run.flush()
    text = '{"n":3,"x":0.10000000149011612,"per":[1.0,null],"b":true}\n'
    assert (run.path / "metrics.jsonl").read_text() == text
    assert RunFolder.read(run.path).episodes() == [(1, 2**63, 3, 0.10000000149011612, 4)]


def test_what_is_not_finite_reads_as_nan(run):
    run.metrics({"loss": [math.nan, math.inf, -math.inf, 1.0], "deep": {"x": math.inf}})
    run.flush()
    row = RunFolder.read(run.path).metrics()[0]
    assert [math.isnan(x) for x in row["loss"]] == [True, True, True, False]
    assert math.isnan(row["deep"]["x"])


def test_scores_round_trip_exactly(run):
    chance = random.Random(0)
    scores = [chance.uniform(-1, 1) * 10 ** chance.randrange(-300, 300) for _ in range(200)] + [-0.0, 1e-320]
    for n, score in enumerate(scores):
        run.evaluation(0, n, 0, score, 1)
    run.flush()
    assert [row.score.hex() for row in RunFolder.read(run.path).evaluations()] == [s.hex() for s in scores]


def test_a_count_with_a_fraction_is_refused(run):
    with pytest.raises(TypeError):
        run.episode(0, 1.5, 0, 1.0, 1)
    run.flush()
    assert (run.path / "episodes.csv").read_text() == HEADER


def test_cutting_back_and_writing_on_equals_never_having_stopped(tmp_path):
    with RunFolder.open(tmp_path / "whole", RECORD) as whole:
        write(whole, 0, 50)
    with RunFolder.open(tmp_path / "cut", RECORD) as first:
        write(first, 0, 20)
        positions = first.positions()
        write(first, 20, 33)
    with RunFolder.open(tmp_path / "cut", RECORD) as second:
        second.truncate(positions)
        assert second.positions() == positions
        write(second, 20, 50)
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")
    assert len(RunFolder.read(tmp_path / "cut").speed()) == 33 + 30  # the clock does not run backwards


def test_positions_count_bytes_on_disk(run):
    start = {"metrics": 0, "episodes": len(HEADER), "eval": len(HEADER)}
    assert run.positions() == start
    write(run, 0, 3)
    assert run.positions() == {n: (run.path / f).stat().st_size for n, f in zip(start, LOGS, strict=True)}
    run.truncate(start)
    assert run.positions() == start


def test_without_positions_only_the_headers_stay(run):
    write(run, 0, 9)
    run.truncate()
    assert contents(run.path) == {
        "metrics.jsonl": b"",
        "episodes.csv": HEADER.encode(),
        "eval.csv": HEADER.encode(),
    }
    write(run, 0, 1)
    run.flush()
    assert len(RunFolder.read(run.path).episodes()) == 1


@pytest.mark.parametrize("name", ["metrics", "episodes", "eval"])
def test_a_log_that_lost_rows_is_an_error_that_changes_nothing(tmp_path, name):
    file = dict(zip(["metrics", "episodes", "eval"], LOGS, strict=True))[name]
    with RunFolder.open(tmp_path, RECORD) as run:
        write(run, 0, 9)
        positions = run.positions()
        write(run, 9, 12)
    lines = (tmp_path / file).read_bytes().splitlines(keepends=True)
    (tmp_path / file).write_bytes(b"".join(lines[:5]))
    before = contents(tmp_path)
    with RunFolder.open(tmp_path, RECORD) as run:
        with pytest.raises(
            UserError, match=rf"{file} has \d+ bytes where the checkpoint counted \d+: delete"
        ):
            run.truncate(positions)
        assert contents(tmp_path) == before


def test_a_position_inside_a_row_is_refused(run):
    write(run, 0, 5)
    positions = run.positions()
    for name in positions:
        for wrong in (positions[name] - 1, 1, -5):
            with pytest.raises(UserError, match="no row that ends at byte"):
                run.truncate({**positions, name: wrong})
    with pytest.raises(UserError, match="counts other logs"):
        run.truncate({"metrics": 0})
    assert run.positions() == positions


def test_half_a_line_is_ignored_by_readers_and_removed_by_the_next_writer(tmp_path):
    with RunFolder.open(tmp_path, RECORD) as run:
        write(run, 0, 3)
    wanted = contents(tmp_path)
    rows = RunFolder.read(tmp_path).metrics()
    for name, half in zip(LOGS, ['{"agent_steps":3', "0,3,3", "0"], strict=True):
        with open(tmp_path / name, "a") as file:
            file.write(half)
    found = RunFolder.read(tmp_path)
    assert str(found.metrics()) == str(rows) and len(found.episodes()) == len(found.evaluations()) == 3
    RunFolder.open(tmp_path, RECORD).close()
    assert contents(tmp_path) == wanted


def test_reading_at_any_moment_of_writing(tmp_path):
    with RunFolder.open(tmp_path, RECORD) as run:
        write(run, 0, 4)
    whole = (tmp_path / "eval.csv").read_bytes()
    for length in range(len(whole) + 1):
        (tmp_path / "eval.csv").write_bytes(whole[:length])
        assert len(RunFolder.read(tmp_path).evaluations()) == max(whole[:length].count(b"\n") - 1, 0)


@pytest.mark.parametrize(
    "line",
    ["", "1,2,3,4", "1,2,3,4.0,5,6", "a,2,3,4.0,5", "1,2,3,x,5", " 1,2,3,4.0,5", "1_0,2,3,4.0,5", "1,2,3,4,5",
     "1,2,3,4.0,5\r", "\u0661,2,3,4.0,5", "1.0,2,3,4.0,5",
     "9" * 5000 + ",2,3,4.0,5", "+1,2,3,4.0,5", "\xff\xfe"],
    ids=range(14),
)  # fmt: skip
def test_episodes_are_read_strictly(run, line):
    write(run, 0, 2)
    run.flush()
    with open(run.path / "eval.csv", "ab") as file:
        file.write(line.encode("utf-8") + b"\n")
    with pytest.raises(
        UserError, match=r"eval.csv, line 4: expected seed,agent_steps,episode,score,length, found "
    ):
        RunFolder.read(run.path).evaluations()


def test_two_lines_that_only_together_have_the_right_number_of_cells(run):
    write(run, 0, 2)
    run.flush()
    for odd in ("1,2,3,4.0\n1,2,3,4.0,5,6\n", "1,2,3,4.0,5,6\n1,2,3,4.0\n", "1,2,3,4.0,5,1,2,3,4.0,5\n"):
        whole = (run.path / "eval.csv").read_text()
        (run.path / "eval.csv").write_text(whole + odd + "x\n")
        first = odd.partition("\n")[0]
        with pytest.raises(UserError, match=rf"eval.csv, line 4: expected .*, found '{re.escape(first)}'"):
            RunFolder.read(run.path).evaluations()
        (run.path / "eval.csv").write_text(whole)


@pytest.mark.parametrize(
    "cell", ["-0", "00", "01", "1e3", "1.0", "nan", "", "1.50", "0.10", "1e5", ".5", "1.", "-nan", "inf", "-inf",
             "1e400", "5e-324", "100000.0", "1e+16", "1e16", "0.30000000000000004", "0.300000000000000040"]
)  # fmt: skip
@pytest.mark.parametrize("column", range(5))
def test_all_rows_at_once_are_read_as_strictly_as_one(run, cell, column):
    cells = ["1", "2", "3", "4.0", "5"]
    cells[column] = cell
    line = ",".join(cells)
    (run.path / "eval.csv").write_text(HEADER + "0,1,2,3.5,4\n" + line + "\n0,1,3,2.5,4\n")
    kinds = (int, int, int, float, int)
    try:
        sound = repr(kinds[column](cell)) == cell
    except ValueError:
        sound = False
    if sound:
        assert repr(RunFolder.read(run.path).evaluations()[1][column]) == cell
    else:
        with pytest.raises(UserError, match=r"eval.csv, line 3: expected "):
            RunFolder.read(run.path).evaluations()


def test_null_reads_as_nan_in_any_encoding(run):
    for encoding in ("utf-8", "utf-16-le", "utf-32-le"):
        (run.path / "metrics.jsonl").write_bytes('{"a":[null,1]}\n'.encode(encoding))
        (row,) = RunFolder.read(run.path).metrics()
        assert math.isnan(row["a"][0]) and row["a"][1] == 1


def test_a_foreign_header_is_refused(tmp_path):
    with RunFolder.open(tmp_path, RECORD) as run:
        run.episode(0, 1, 2, 3, 4)
    (tmp_path / "episodes.csv").write_text("seed,score\n0,1\n")
    with pytest.raises(UserError, match=r"episodes.csv, line 1: expected seed,agent_steps"):
        RunFolder.read(tmp_path).episodes()
    with pytest.raises(UserError, match=r"episodes.csv, line 1: expected seed,agent_steps"):
        RunFolder.open(tmp_path, RECORD)


@pytest.mark.parametrize(
    "line", ["", "[]", "1", "null", '{"a":NaN}', '{"a":1}{', "{'a':1}", "[" * 100_000], ids=range(8)
)
def test_metrics_are_read_strictly(run, line):
    (run.path / "metrics.jsonl").write_text('{"a":1}\n' + line + '\n{"a":2}\n')
    with pytest.raises(UserError, match=r"metrics.jsonl, line 2: expected a JSON object, found ") as caught:
        RunFolder.read(run.path).metrics()
    assert len(str(caught.value)) < len(str(run.path)) + 200


def test_a_missing_log_is_an_error(run):
    (run.path / "eval.csv").unlink()
    with pytest.raises(UserError, match=r"cannot read .*eval.csv"):
        RunFolder.read(run.path).evaluations()


def test_disk_full_while_logging(tmp_path):
    class Full:
        def write(self, data):
            return len(data)

        def flush(self):
            raise OSError(errno.ENOSPC, "No space left on device")

        close = flush

    run = RunFolder.open(tmp_path, RECORD)
    real, run._logs["eval"]._file = run._logs["eval"]._file, Full()
    real.close()
    run.evaluation(0, 1, 2, 3, 4)
    with pytest.raises(UserError, match=r"the disk is full: .*eval.csv cannot be written"):
        run.flush()
    with pytest.raises(UserError, match="the disk is full"):
        run.close()
    with RunFolder.open(tmp_path, RECORD) as again:  # the lock went all the same
        assert again.record == RECORD
