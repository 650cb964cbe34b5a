"""`python toy.py KIND OUT` is a small training as a process; for drills, how to start and compare such."""

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
STEPS = {"toy": 400, "brief": 100, "atari": 40, "gym": 200, "control": 130}


class Process:
    """A training that runs; it says every tick, and every time it begins to look at games."""

    def __init__(self, kind: str, out: Path, environment: dict[str, str]):
        self.out, self.lines = out, list[str]()
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "toy.py"), kind, str(out)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **environment},
        )
        self.heard = threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                with self.heard:
                    self.lines.append(line.rstrip("\n"))
                    self.heard.notify_all()
        with self.heard:
            self.lines.append("end")
            self.heard.notify_all()

    def until(self, word: str) -> bool:
        """Wait for a line, such as `tick 30`; False if the process ended without it."""
        with self.heard:
            self.heard.wait_for(lambda: word in self.lines or "end" in self.lines, timeout=300)
            return word in self.lines

    def reaches(self, tick: int) -> bool:
        """Wait until it is as far as that, or goes on from a checkpoint beyond; False if it ended before."""
        with self.heard:
            self.heard.wait_for(
                lambda: max(self.ticks(), default=0) >= tick or "end" in self.lines, timeout=300
            )
            return max(self.ticks(), default=0) >= tick

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)

    def end(self) -> int:
        code = self.process.wait(timeout=300)
        self.reader.join()
        return code

    def said(self) -> str:
        """All it said but for the marks."""
        marks = ("tick ", "looking ", "end")
        return "\n".join(line for line in self.lines if not line.startswith(marks))

    def ticks(self) -> list[int]:
        return [int(line.split()[1]) for line in self.lines if line.startswith("tick ")]

    def folder(self) -> Path:
        (config,) = self.out.rglob("config.json")
        return config.parent


def start(kind: str, out: Path, **environment: str) -> Process:
    """`SAVE` is the seconds between checkpoints, `SLOW` and `PACE` those that looks at games and ticks take longer."""
    return Process(kind, out, {"SAVE": "0.15", **environment})


def files(run: Path) -> dict[str, Any]:
    """What must be the same in two runs that ended: everything but for what tells the time, the command, and events."""
    found: dict[str, Any] = {
        str(path.relative_to(run)): path.read_bytes()
        for path in sorted(run.rglob("*"))
        if path.is_file() and path.name not in ("lock", "speed.jsonl")
    }
    for name, but in (("status.json", ("seconds", "events")), ("config.json", ("facts",))):
        found[name] = {key: value for key, value in json.loads(found[name]).items() if key not in but}
    return found


def assert_same(run: Path, other: Path) -> None:
    """Bit for bit: weights, optimiser, logs, receipts, status."""
    one, two = files(run), files(other)
    assert one.keys() == two.keys() and len(one) > 6
    assert one["status.json"]["state"] == "done"
    for name, data in one.items():
        assert data == two[name], name


def plan_of(kind: str) -> Any:
    import tiny
    import tiny_atari
    import tiny_control

    from vcrl.training.plan import Schedule, make_plan

    steps = STEPS[kind]
    if kind == "atari":
        plan = tiny_atari.atari_plan(steps=steps)
    elif kind == "control":
        small = {**tiny_control.changes("vcr"), "observation.size": 32, "encoder": "small", "crop": None}
        plan = make_plan("vcr", "cartpole-swingup", (3, 5), steps, small, Schedule(10, 0, 0, 0))
    else:
        task = "gym:games:Walk-v0" if kind == "gym" else "catch"
        plan = make_plan("vcr", task, (3, 5), steps, tiny.CHANGES, tiny.SCHEDULE)
    episodes = {"gym": 2, "control": 1}.get(kind, plan.protocol.eval_episodes)
    return replace(plan, protocol=replace(plan.protocol, eval_episodes=episodes))


ballast: list[bytearray] = []


def take_memory() -> None:
    """No more memory from the system, and of what the process has freed only small pieces, so that Python lives on."""
    import resource

    small = [bytearray(2**15) for _ in range(1000)]
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used, resource.RLIM_INFINITY))
    for size in (2**24, 2**20, 2**16):
        try:
            while True:
                ballast.append(bytearray(size))
        except MemoryError:
            pass
    ballast.extend(small[::2])  # the others, between them, become free


def main(kind: str, out: Path) -> None:
    sys.path[:0] = [str(HERE), str(HERE.parent / "training")]
    import resource
    import time

    from rich.console import Console

    from vcrl.core.errors import UserError
    from vcrl.envs import processes, workers
    from vcrl.training import watch
    from vcrl.training.run import train_plan

    workers.PATIENCE = float(os.environ.get("ENV_SECONDS", workers.PATIENCE))
    if "CORES" in os.environ:
        processes.cores = lambda: int(os.environ["CORES"])
    watch.CHECKPOINT_SECONDS = float(os.environ["SAVE"])
    watch.COMPILE_SECONDS = float(os.environ.get("EARLY", 1000))
    slow, play = float(os.environ.get("SLOW", 0)), watch.Watch.play

    def slowly(self: Any, *arguments: Any) -> Any:
        print("looking", self.owed.get("q_error"), self.owed.get("evaluate"), flush=True)
        time.sleep(slow)
        return play(self, *arguments)

    if slow:
        watch.Watch.play = slowly
    plan, pace = plan_of(kind), float(os.environ.get("PACE", 0))
    if "LARGEST" in os.environ:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(os.environ["LARGEST"]),) * 2)
    if "JUMPS" in os.environ:
        began, real = time.monotonic(), time.time
        time.time = lambda: real() + (-3.2e8 if int(time.monotonic() - began) % 2 else 9e5)

    def halt(now: int) -> bool:
        print("tick", now, flush=True)
        if pace:
            time.sleep(pace)
        if os.environ.get("NO_MEMORY_AT") == str(now):
            take_memory()
        return False

    try:
        run = train_plan(plan, out, Console(width=300), halt)
    except UserError as error:
        ballast.clear()
        resource.setrlimit(
            resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2
        )  # JAX tidies up when a process ends
        print(f"vcrl: {error}", flush=True)
        raise SystemExit(2) from None
    raise SystemExit(130 if run.folder.status["state"] == "stopped" else 0)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
