"""A training as a process of its own: how it is started, and `python -m vcrl.campaign.child`, what it starts as."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from vcrl.core.errors import UserError
from vcrl.runs.files import writing
from vcrl.runs.reading import read_status

TRAIN = (sys.executable, "-m", "vcrl.cli")  # a tuple, so that tests can put something quicker in its place
PR_SET_PDEATHSIG = 1
PARENT = "VCRL_CAMPAIGN"  # in a training's environment: the process that started it


class Child(NamedTuple):
    process: subprocess.Popen[bytes]
    log: Path
    start: int  # where in the log its words begin


def start(
    words: Sequence[str],
    log: Path,
    environment: Mapping[str, str],
    cores: Sequence[int] = (),
    program: Sequence[str] = TRAIN,
) -> Child:
    """Begin a training. Its output is appended to a log; a Ctrl-C in the terminal does not reach it."""
    with writing(log):
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "ab") as file:
            at = file.tell()
            file.write(f"$ vcrl {' '.join(words)}\n".encode())
            file.flush()
            launcher = [
                sys.executable,
                "-m",
                "vcrl.campaign.child",
                ",".join(map(str, cores)),
                str(os.getpid()),
            ]
            process = subprocess.Popen(
                [*launcher, *program, *words],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment, PARENT: str(os.getpid())},
                start_new_session=True,
            )
    return Child(process, log, at)


def verdict(path: Path, child: Child, code: int) -> tuple[str, str]:
    """How it ended (done, stopped, refused, crashed) and why."""
    try:
        status = read_status(path)
    except UserError as error:
        status = {"reason": str(error)}
    if code == 0 and status.get("state") == "done":
        return "done", ""
    if code == 130:
        return "stopped", ""
    said = last_line(child.log, child.start)
    if code == 2 and said.startswith("vcrl: "):
        return "refused", said.removeprefix("vcrl: ")
    if code < 0:
        killed = f"killed by {signal.Signals(-code).name}"
        return "crashed", killed + (" (out of memory?)" if -code == signal.SIGKILL else "")
    reason = str(status.get("reason") or "") if status.get("state") == "failed" else ""
    return "crashed", reason or said or f"exit code {code}"


def last_line(log: Path, start: int) -> str:
    try:
        with open(log, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(start, size - 4096))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")[:300]


def orphaned(pid: str) -> bool:
    """Whether a process is a training whose campaign is dead: it was told so, and will save and let go."""
    try:
        given = Path(f"/proc/{int(pid)}/environ").read_bytes().split(b"\0")
    except (OSError, ValueError):
        return False
    named = [word.partition(b"=")[2] for word in given if word.startswith(f"{PARENT}=".encode())]
    return bool(named) and not Path(f"/proc/{named[0].decode('ascii', 'replace')}").exists()


def supervise(cores: str, parent: int, command: Sequence[str]) -> None:
    """Run the training and end as it ends. When the parent dies, however that dies, the training saves and stops.

    A process between the two, because the system may tell of the death of a parent with many threads several times,
    and a training that is told to stop twice ends without saving.
    """
    signals = {
        signal.SIGINT,
        signal.SIGTERM,
    }  # which a shell may have told us to ignore, and a Ray worker blocks
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    outlive_nobody(parent)
    if cores:
        with suppress(OSError):  # they may have been taken away since
            os.sched_setaffinity(0, map(int, cores.split(",")))
    here = os.getpid()
    child = os.fork()
    if child == 0:
        outlive_nobody(here)
        for number in signals:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        os.execv(command[0], list(command))
    told: list[int] = []

    def pass_on(number: int, frame: object) -> None:
        if not told:
            told.append(number)
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGINT)

    for number in signals:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0:  # ended by a signal, and so do we
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(here, -code)
    raise SystemExit(code)


def outlive_nobody(parent: int) -> None:
    """Be told when the parent dies; only Linux can."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGINT), 0, 0, 0)
        if os.getppid() != parent:  # too late to be told
            os._exit(130)


if __name__ == "__main__":
    supervise(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
