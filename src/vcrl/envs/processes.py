"""A process of our own that does what it is asked, through two pipes.

A byte says go, a byte back says done; what is large lies in memory that both share (`board.py`). Whoever waits learns
when a process has died or hangs.
"""

import contextlib
import os
import pickle
import select
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from vcrl.core.errors import UserError

GO, ASK = b"g", b"a"  # do what the shared memory says; a pickled question with a pickled answer
DONE, FAILED = b"d", b"f"
PATIENCE = 120.0  # seconds for what must not take long, after which a process hangs
FAREWELL = 5.0  # seconds for a process to end by itself


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def helpers(lanes: int) -> int:
    """How many processes pay for so many lanes, if any: one core is left to whoever waits for them."""
    return min(lanes, cores() - 1) if cores() > 2 and sys.platform != "win32" else 0


class Child:
    """A process that serves by `build(*files)`: by its `go`, and by its other methods when asked.

    The files are the memory that is shared. What `build` makes has a `close`.
    """

    def __init__(self, files: Sequence[int], build: Callable[..., Any]):
        self.hung: float | None = None  # after how many seconds, if it did
        self.process: Any = subprocess.Popen(
            [sys.executable, "-m", "vcrl.envs.processes", *map(str, files)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=files,
            # What can be imported here can be imported there: `build` may be of any module.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            # Ctrl-C is for the one who waits: it finishes the step, saves, and closes these.
            start_new_session=True,
        )
        self._waiting = select.poll()
        self._waiting.register(self.process.stdout, select.POLLIN)
        _send(self.process.stdin, build)

    def alive(self) -> bool:
        return self.process.poll() is None

    def go(self) -> bool:
        """Say go; False if nobody is there."""
        return self._say(GO)

    def ask(self, method: str, *arguments: Any) -> bool:
        """Say what to do; False if nobody is there."""
        return self._say(ASK, (method, arguments))

    def done(self, limit: float | None = None) -> bool:
        """Wait; False if the process is dead, or is killed because it does not answer in `limit` seconds."""
        pipe = self.process.stdout
        # Nothing of an earlier answer is left in the pipe's buffer, so the system knows when the next one begins.
        if not self._waiting.poll(None if limit is None else 1000 * limit):
            self.hung = limit
            self.process.kill()
        said = pipe.read(1)
        if said == FAILED:
            raise UserError(_receive(pipe))
        return bool(said)

    def answer(self) -> Any:
        """To what was asked, once that is done."""
        return _receive(self.process.stdout)

    def hang_up(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()

    def gone(self) -> int:
        """The exit code, once it has ended; a process that does not is ended."""
        try:
            return self.process.wait(FAREWELL)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def end(self) -> str:
        """Of one that is lost: what happened to it."""
        self.hang_up()
        how = "died" if self.hung is None else f"hung for {self.hung:.0f} seconds"
        return f"{how} (exit code {self.gone()})"

    def _say(self, what: bytes, more: Any = None) -> bool:
        try:
            self.process.stdin.write(what)
            if more is not None:
                _send(self.process.stdin, more)
            self.process.stdin.flush()
        except BrokenPipeError:
            return False
        return True


def close(children: Sequence[Child]) -> None:
    for child in children:
        child.hang_up()  # all at once
    for child in children:
        child.gone()


def serve(files: Sequence[int]) -> None:
    """The other side: build, and do what is asked until the pipe closes."""
    into, out = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a simulator prints must not enter the pipe
    servant: Any = None

    def done(result: Callable[[], Any], answer: bool) -> bool:
        try:
            value = result()
        except UserError as error:
            out.write(FAILED)
            _send(out, str(error))
            return False
        out.write(DONE)
        if answer:
            _send(out, value)
        out.flush()
        return True

    def build() -> None:
        nonlocal servant
        servant = _receive(into)(*files)

    alive = done(build, answer=False)
    while alive and (said := into.read(1)):
        if said == GO:
            alive = done(servant.go, answer=False)
        else:
            method, arguments = _receive(into)
            alive = done(lambda m=method, a=arguments: getattr(servant, m)(*a), answer=True)
    if servant is not None:
        servant.close()


# These pipes lead to our own child processes and nowhere else.
def _send(pipe: Any, value: Any) -> None:
    data = pickle.dumps(value)
    pipe.write(len(data).to_bytes(8, "little") + data)
    pipe.flush()


def _receive(pipe: Any) -> Any:
    return pickle.loads(pipe.read(int.from_bytes(pipe.read(8), "little")))


if __name__ == "__main__":
    serve([int(file) for file in sys.argv[1:]])
