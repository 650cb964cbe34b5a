"""A checkpoint that is whole but not of this training is refused in one line, whatever is in it."""

import json

import numpy as np
import pytest
from tiny import tiny

from vcrl.core.errors import UserError
from vcrl.runs import checkpoint
from vcrl.training.run import load_run

pytestmark = pytest.mark.usefixtures("quick_compiles")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    run = tiny(tmp_path_factory.mktemp("saved"), halt=lambda now: now == 35)
    found = checkpoint.load(run.path / "checkpoint", pytest.fail)
    assert found is not None
    return run, found, list(found.rows)


CHANGES = {
    "no counters": lambda extra, arrays: extra.pop("counters"),
    "counters of words": lambda extra, arrays: extra["counters"].update(tick="35"),
    "negative counters": lambda extra, arrays: extra["counters"].update(rows=-1),
    "another step": lambda extra, arrays: extra["counters"].update(tick=34),
    "no logs": lambda extra, arrays: extra.pop("logs"),
    "other logs": lambda extra, arrays: extra.update(logs={"passwd": 1}),
    "logs that are no numbers": lambda extra, arrays: extra["logs"].update(metrics="0"),
    "checksums that are none": lambda extra, arrays: extra.update(sha256=[1]),
    "something else owed": lambda extra, arrays: extra.update(owed={"row": 1}),
    "owed as a list": lambda extra, arrays: extra.update(owed=[1, 2]),
    "an array less": lambda extra, arrays: arrays.pop("host/lanes/obs"),
    "a smaller picture": lambda extra, arrays: arrays.update(
        {"host/lanes/obs": arrays["host/lanes/obs"][:, :4]}
    ),
    "lengths of words": lambda extra, arrays: arrays.update({"host/lanes/length": np.ones(2, np.float32)}),
    "a game without end": lambda extra, arrays: arrays.update({"host/lanes/length": np.array([2**62, 1])}),
    "negative lengths": lambda extra, arrays: arrays.update({"host/lanes/length": np.array([-4, 4])}),
    "negative games": lambda extra, arrays: arrays.update({"host/lanes/episode": np.array([-1, 0])}),
    "another head": lambda extra, arrays: arrays.update(
        {name: array[..., :1] for name, array in arrays.items() if "q_head" in name}
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_refused(saved, tmp_path, name):
    run, found, rows = saved
    out = tmp_path / run.path.relative_to(run.path.parents[3])
    out.mkdir(parents=True)
    for file in run.path.iterdir():
        if file.is_file():
            (out / file.name).write_bytes(file.read_bytes())
    extra, arrays = json.loads(json.dumps(found.extra)), dict(found.arrays)
    CHANGES[name](extra, arrays)
    for part in rows:
        checkpoint.save(out / "checkpoint", found.agent_steps, arrays, extra, part)
    before = {
        path: path.read_bytes() for path in out.rglob("*") if path.is_file() and "checkpoint" in str(path)
    }
    with pytest.raises(UserError, match=r"delete") as caught:
        tiny(tmp_path)
    assert "\n" not in str(caught.value)
    assert before == {path: path.read_bytes() for path in before}


@pytest.mark.parametrize(
    ("field", "value"),
    [("task", 1e308), ("task", None), ("method", []), ("seeds", ["0"]), ("protocol", "toy")],
)
def test_a_record_that_makes_no_sense_is_refused(saved, tmp_path, field, value):
    record = json.loads((saved[0].path / "config.json").read_text()) | {field: value}
    (tmp_path / "config.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match=r"config\.json is damaged"):
        load_run(tmp_path)
