"""Everything that reads files which somebody else may have written, each with the files it reads."""

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from ground import run_in

from vcrl.bench import compare, listing, results, scores
from vcrl.bench.audit import audit
from vcrl.campaign import plan as campaign_plan
from vcrl.campaign import progress
from vcrl.campaign.rates import Clock
from vcrl.envs import gym_config
from vcrl.runs import checkpoint
from vcrl.runs.folder import RunFolder
from vcrl.runs.reading import find_runs, read_run
from vcrl.runs.verify import failed, text, verify
from vcrl.training.config_file import from_file
from vcrl.training.run import load_run

RUN = "runs/*/*/*/*/"
RECORD = [RUN + "config.json", RUN + "status.json"]
LOGS = [RUN + name for name in ("metrics.jsonl", "episodes.csv", "eval.csv", "speed.jsonl")]
CHECKPOINT = [RUN + "checkpoint/*.json", RUN + "checkpoint/*.safetensors", RUN + "checkpoint/rows/*"]
RECEIPTS = [RUN + "receipts/*"]
EVERYTHING = [*RECORD, *LOGS, *CHECKPOINT, *RECEIPTS, RUN + "lock"]


class Loader(NamedTuple):
    files: list[str]  # patterns
    load: Callable[[Path], Any]  # of a folder as `ground.copy` gives it
    writes: bool = False  # into the run folder
    typed: bool = False  # its path is typed by the user, who may well mean a link or a pipe


def _read(root: Path) -> Any:
    run = read_run(run_in(root))
    return run.metrics(), run.episodes(), run.evaluations(), run.speed()


def _checkpoint(root: Path) -> Any:
    found = checkpoint.load(run_in(root) / "checkpoint", lambda text: None)
    return found if found is None else (found.arrays, list(found.rows))


def _open(root: Path) -> Any:
    """As a training does that continues: lock, mend, cut back to the checkpoint, write on."""
    path = run_in(root)
    record = read_run(path).record
    with RunFolder.open(path, record) as folder:
        found = checkpoint.load(folder.checkpoint, lambda text: None)
        folder.truncate(found.extra["logs"] if found and isinstance(found.extra.get("logs"), dict) else None)
        folder.episode(3, 41, 9, 1.0, 7)
        folder.metrics({"agent_steps": 41})
        folder.status({"state": "running"})
        folder.positions()


def _verify(root: Path) -> Any:
    checks = verify(run_in(root))
    return text(checks), failed(checks)


def _scores(root: Path) -> Any:
    return scores.read_runs([root / "runs"])


def _tables(root: Path) -> Any:
    with redirect_stdout(io.StringIO()):
        results.add((run_in(root),), root / "results")


def _campaign(root: Path) -> Any:
    run = run_in(root)
    Clock(root / "runs", "cpu").forecast("toy", "vcr", "catch", 2, 100)
    return progress._newest(run), progress._recent(run), campaign_plan.holder(run)


def _show(root: Path) -> Any:
    return listing.description_text(listing.describe(run_in(root)))


def _ls(root: Path) -> Any:
    found = listing.list_runs(root / "runs")
    return listing.listing_text(found.lines) if found.lines else found.left_out


LOADERS = {
    "logs and status": Loader([*RECORD, *LOGS], _read),
    "find_runs": Loader(EVERYTHING, lambda root: find_runs(root)),
    "checkpoint": Loader(CHECKPOINT, _checkpoint),
    "continuing": Loader(EVERYTHING, _open, writes=True),
    "verify": Loader(EVERYTHING, _verify),
    "audit": Loader([*RECORD, *LOGS, *RECEIPTS], lambda root: audit(run_in(root))),
    "load_run": Loader(RECORD, lambda root: load_run(run_in(root))),
    "ls": Loader(EVERYTHING, _ls),
    "show": Loader(EVERYTHING, _show),
    "compare": Loader(EVERYTHING, lambda root: compare.compare(run_in(root), run_in(root))),
    "scores of runs": Loader(EVERYTHING, _scores),
    "results add": Loader([*EVERYTHING, "results/*.csv"], _tables, writes=True),
    "results": Loader(["results/*.csv"], lambda root: scores.read_results(root / "results")),
    "bank": Loader(["bank/*/*.json"], lambda root: scores.read_bank(root / "bank")),
    "config": Loader(["my.toml"], lambda root: gym_config.read(root / "my.toml"), typed=True),
    "config for a method": Loader(["my.toml"], lambda root: from_file("vcr", root / "my.toml"), typed=True),
    "campaign": Loader(EVERYTHING, _campaign),
}
