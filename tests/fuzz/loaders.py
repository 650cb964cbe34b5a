"""Everything that reads files which somebody else may have written, each with the files it reads."""

import io
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import rich.console
from ground import plan_of_trained, run_in

from vcrl.bench import audit, compare, listing, results, sources
from vcrl.bench.report import report
from vcrl.campaign import plan as campaign_plan
from vcrl.campaign import progress
from vcrl.campaign.ask import Ask
from vcrl.campaign.child import Child, verdict
from vcrl.commands.words import as_json
from vcrl.envs import gym_config
from vcrl.runs import checkpoint, verify
from vcrl.runs.folder import RunFolder
from vcrl.runs.rates import Clock
from vcrl.runs.reading import find_runs, read_run
from vcrl.training.config_file import from_file
from vcrl.training.console import Console
from vcrl.training.engine import Training, engine_of
from vcrl.training.resume import resume
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
    trained: bool = False  # the run is one of a real agent
    slow: bool = False  # a second and more


def _shown(text: str) -> str:
    """What a command prints: a terminal can show it, and is told nothing else."""
    assert all(letter == "\n" or letter.isprintable() for letter in text), repr(text)
    return text


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


def _weights(root: Path) -> Any:
    with redirect_stderr(io.StringIO()):
        return load_run(run_in(root)).state


def _resume(root: Path) -> Any:
    """As a training does that goes on: the plan is the user's, the folder may be anybody's."""
    plan, quiet = plan_of_trained(), rich.console.Console(quiet=True)
    training = Training(plan, engine_of(plan))
    with (
        RunFolder.open(run_in(root), plan.identity) as folder,
        Console("", plan.seeds, plan.budget, quiet) as console,
    ):
        return resume(training, folder, console)


def _verify(root: Path) -> Any:
    checks = verify.verify(run_in(root))
    return _shown(verify.text(checks)), as_json(verify.as_data(run_in(root), checks))


def _audit(root: Path) -> Any:
    found = audit.audit(run_in(root))
    return _shown(audit.text(found)), as_json(audit.as_data(found))


def _tables(root: Path) -> Any:
    with redirect_stdout(io.StringIO()):
        results.add((run_in(root),), root / "results")


def _page(root: Path) -> Any:
    with redirect_stdout(io.StringIO()):
        results.page(root / "results", root / "docs")


def _report(root: Path) -> Any:
    left_out, _ = report([root / "runs"], root / "page", root / "bank", root / "results", mixed=True)
    return [_shown(line) for line in left_out]


def _campaign(root: Path) -> Any:
    run = run_in(root)
    digest = run.name.rpartition("-")[2]
    what = campaign_plan.Scouted("vcr", "catch", "toy", digest, 40, "", 1, 1, 1, 1, 100)
    ask = Ask("toy", ("vcr",), ("catch",), (3, 5), root / "runs")
    clock = Clock(root / "runs", "cpu")
    times = clock.forecast("toy", "vcr", "catch", 2, 100), clock.memory("toy", "vcr")
    ended = verdict(run, Child(None, root / "log", 0), 1)  # type: ignore  (the process is not asked)
    looks = [progress.look(job) for job in campaign_plan.existing(ask, what)]
    mine = progress.look(campaign_plan.Job(what, (3, 5), run))
    return times, looks, mine, campaign_plan.holder(run), ended


def _show(root: Path) -> Any:
    told = listing.describe(run_in(root))
    return _shown(listing.description_text(told)), as_json(told)


def _ls(root: Path) -> Any:
    found = listing.list_runs(root / "runs")
    as_json([line._asdict() for line in found.lines])
    return _shown(listing.listing_text(found.lines) if found.lines else "\n".join(found.left_out))


def _compare(root: Path) -> Any:
    return _shown(compare.compare(run_in(root), run_in(root)))


LOADERS = {
    "logs and status": Loader([*RECORD, *LOGS], _read),
    "find_runs": Loader(EVERYTHING, lambda root: find_runs(root)),
    "checkpoint": Loader(CHECKPOINT, _checkpoint),
    "continuing": Loader(EVERYTHING, _open, writes=True),
    "verify": Loader(EVERYTHING, _verify),
    "audit": Loader([*RECORD, *LOGS, *RECEIPTS], _audit),
    "load_run": Loader(RECORD, lambda root: load_run(run_in(root))),
    "weights": Loader([*RECORD, *CHECKPOINT], _weights, trained=True, slow=True),
    "resume": Loader([*RECORD, *LOGS, *CHECKPOINT], _resume, writes=True, trained=True, slow=True),
    "ls": Loader(EVERYTHING, _ls),
    "show": Loader(EVERYTHING, _show),
    "compare": Loader(EVERYTHING, _compare),
    "report": Loader([*EVERYTHING, "results/*.csv", "bank/*/*.json"], _report, writes=True, slow=True),
    "results add": Loader([*EVERYTHING, "results/*.csv"], _tables, writes=True),
    "results page": Loader(["results/*.csv"], _page, writes=True, slow=True),
    "scores of runs": Loader(EVERYTHING, lambda root: sources.read_runs([root / "runs"])),
    "results": Loader(["results/*.csv"], lambda root: sources.read_results(root / "results")),
    "bank": Loader(["bank/*/*.json"], lambda root: sources.read_bank(root / "bank")),
    "config": Loader(["my.toml"], lambda root: gym_config.read(root / "my.toml"), typed=True),
    "config for a method": Loader(["my.toml"], lambda root: from_file("vcr", root / "my.toml"), typed=True),
    "campaign": Loader(EVERYTHING, _campaign),
}
