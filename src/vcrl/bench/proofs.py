"""What proves the scores in results/: the games behind them, which `vcrl audit` plays again on any computer.

A small run folder without weights and logs: 350 KB for ten seeds of a game of Atari, 50 for a task of DMControl.
"""

import json
from pathlib import Path
from typing import Any

from vcrl.core.config import digest
from vcrl.runs import receipts
from vcrl.runs.files import write_atomic, writing
from vcrl.runs.folder import run_path
from vcrl.runs.reading import CONFIG, LOGS, STATUS, Run

FOLDER = "games"
# Of where a run was made, as the tables have it.
FACTS = ("command", "accelerator", "cpus", "commit", "dirty")


def keep(run: Run, out: Path) -> Path | None:
    """Put the games of a finished run there; None where one of its evaluations has no receipt."""
    record, facts = run.record, run.record.get("facts") or {}
    steps = sorted({game.agent_steps for game in run.evaluations()})
    if set(steps) - set(receipts.steps_in(run.path)):
        return None
    made = f"{digest(record['config'])}-{(facts.get('commit') or 'unknown')[:10]}"
    suite, method, task = (record[name] for name in ("suite", "method", "task"))
    folder = run_path(out / FOLDER, suite, method, task, record["seeds"], made)
    told = record | {"facts": {name: facts[name] for name in FACTS if name in facts}}
    with writing(folder):
        (folder / receipts.FOLDER).mkdir(parents=True, exist_ok=True)
        write_atomic(folder / CONFIG, _json(told))
        write_atomic(folder / STATUS, _json(run.status))
        for path in (run.path / LOGS["eval"], *(receipts.path_of(run.path, at) for at in steps)):
            write_atomic(folder / path.relative_to(run.path), path.read_bytes())
    return folder


def _json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=2) + "\n").encode()
