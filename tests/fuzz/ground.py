"""Real files to spoil: a run folder, kept results, a bank of runs, a config; and a secret beside them."""

import csv
import io
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from handmade import make
from tiny import CHANGES, SCHEDULE, tiny

from vcrl.bench import results
from vcrl.runs import checkpoint
from vcrl.training.plan import Plan, make_plan

TOML = """
[env]
id = "CartPole-v1"
render = true
size = [84, 84]
gray = true
[train]
steps = 20000
[settings]
batch = 16
gamma = 0.99
value.low = -20.0
terms.vcr.weight = 0.5
"""
BANK = {"Pong": [1.0, 2.5, -3], "MsPacman": [100, 200]}
SECRET = '{"state": "done", "secret": "swordfish"}\n'


@cache
def whole() -> Path:
    """One of everything, made once."""
    root = Path(tempfile.mkdtemp(prefix="vcrl-fuzz-"))
    run = make(root / "runs")
    two_generations(run / "checkpoint")
    (root / "results").mkdir()
    status = json.loads((run / "status.json").read_text())
    (run / "status.json").write_text(json.dumps(status | {"not_finite_since": {}, "seconds": 5.0}))
    final = results.final(results.read_run(run))
    scores, episodes = final.scores, results.episode_rows(final)
    errors = [
        {name: row[name] for name in results.KEY} | {"agent_steps": "20", "q_error/1": "0.5"}
        for row in scores
    ]
    for kind, rows in zip(results.KINDS, (scores, episodes, errors), strict=True):
        (root / "results" / f"toy{kind}.csv").write_text(sheet(rows))
    (root / "bank" / "atari100k").mkdir(parents=True)
    (root / "bank" / "atari100k" / "SPR.json").write_text(json.dumps(BANK))
    (root / "my.toml").write_text(TOML)
    return root


@cache
def trained() -> Path:
    """A run of a real agent, stopped on the way."""
    root = Path(tempfile.mkdtemp(prefix="vcrl-fuzz-"))
    for stop in (35, 50):  # which makes two generations
        tiny(root / "runs", halt=lambda now, stop=stop: now == stop)
    return root


@cache
def plan_of_trained() -> Plan:
    return make_plan("vcr", "catch", (3, 5), 80, CHANGES, SCHEDULE)


def two_generations(folder: Path) -> None:
    """An older one before the newest, with rows that both have and some that are new."""
    found = checkpoint.load(folder, print)
    assert found is not None
    (rows,) = found.rows
    for start, stop in ((0, 25), (25, rows.stop)):
        part = {name: array[:, start:stop] for name, array in rows.arrays.items()}
        extra = found.extra | {"counters": found.extra["counters"] | {"tick": stop}}
        checkpoint.save(folder, stop, found.arrays, extra, checkpoint.Rows(start, stop, part))


def sheet(rows: list[dict[str, str]]) -> str:
    out = io.StringIO()
    table = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return out.getvalue()


def run_in(root: Path) -> Path:
    (run,) = root.glob("runs/*/*/*/*")
    return run


@contextmanager
def copy(of_trained: bool = False) -> Iterator[Path]:
    """A folder of one's own: `inside` to spoil, `outside` with a secret."""
    with tempfile.TemporaryDirectory(prefix="vcrl-fuzz-") as folder:
        shutil.copytree(trained() if of_trained else whole(), Path(folder, "inside"))
        Path(folder, "outside").mkdir()
        Path(folder, "outside", "secret.json").write_text(SECRET)
        yield Path(folder, "inside")
