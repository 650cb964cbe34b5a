"""Stands in for `vcrl train`: makes a run folder as it does, learns nothing, and crashes when told to.

A file `crash-TASK` in --out says what goes wrong, one word an attempt: `raise`, `kill` or `refuse`.
"""

import os
import signal
import sys
import time
from pathlib import Path

from vcrl.commands.words import parse_seeds
from vcrl.core.errors import UserError
from vcrl.runs.folder import RunFolder, run_path

DIGEST = "0123abcd"
SECONDS = float(os.environ.get("FAKE_SECONDS", "0.2"))


def main(words: list[str]) -> None:
    flags = dict(word[2:].split("=", 1) for word in words if word.startswith("--"))
    _, method, task = [word for word in words if not word.startswith("--")]
    seeds, out, budget = parse_seeds(flags["seeds"]), Path(flags["out"]), int(flags.get("steps", 100))
    path = run_path(out, "toy", method, task, seeds, DIGEST)
    stop: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda n, frame: stop.append(n))
    with open(out / "attempts", "a") as file:
        file.write(f"{method} {task} {flags['seeds']} {os.environ.get('CUDA_VISIBLE_DEVICES', 'cpu')}\n")
    record = {"method": method, "task": task, "seeds": seeds, "facts": {"accelerator": None}}
    with RunFolder.open(path, record) as folder:
        at = folder.read_status().get("agent_steps", 0)
        for step in range(at, budget, 10):
            folder.metrics({"agent_steps": step})
            folder.flush()
            for seed in seeds:
                folder.episode(seed, step, step, float(seed), 7)
            folder.status({"state": "running", "agent_steps": step, "seconds": 1.0})
            time.sleep(SECONDS * 10 / budget)
            if stop:
                folder.status({"state": "stopped"})
                raise SystemExit(130)
            if step >= budget // 2:
                fail(out / f"crash-{task}", folder)
        for seed in seeds:
            folder.evaluation(seed, budget, 0, seed + 0.5, 7)
        folder.status({"state": "done", "agent_steps": budget})


def fail(told: Path, folder: RunFolder) -> None:
    if not told.exists() or not (left := told.read_text().split()):
        return
    told.write_text(" ".join(left[1:]))
    if left[0] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if left[0] == "refuse":
        raise UserError("the disk is full")
    folder.status({"state": "failed", "reason": "ValueError: told to"})
    raise ValueError("told to")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        print(f"vcrl: {error}", file=sys.stderr)
        raise SystemExit(2) from None
