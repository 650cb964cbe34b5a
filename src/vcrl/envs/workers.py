"""Lanes of any environment, shared out to processes.

Pictures, rewards and flags lie in memory that all processes share; a byte through a pipe says go, a byte back says
done. A process that dies is started again and its open games are played again from their actions, so that a crash of
a simulator costs seconds and changes nothing.
"""

import contextlib
import os
import pickle
import select
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from vcrl.core.errors import UserError
from vcrl.core.spec import EnvSpec
from vcrl.envs.actions import ActionLog
from vcrl.envs.base import Arrays, Step, VecEnv
from vcrl.envs.board import Board, memory

GO, ASK = b"g", b"a"  # step or reset by shared memory; a pickled question with a pickled answer
DONE, FAILED = b"d", b"f"
HAND = "hand"  # asked of a process, not of its lanes: which they are from now on
FEWER = (
    0.8  # of the games that went on when lanes were last dealt: when so many are left they may be dealt again
)
UNEVEN = 1.25  # times the mean that the busiest process may have to do
PATIENCE = 120.0  # seconds for one step or reset, after which a process hangs
FAREWELL = 5.0  # seconds for a process to end by itself


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def spread(make: Callable[[int], VecEnv], spec: EnvSpec, lanes: int, together: bool = False) -> VecEnv:
    """Lanes over as many processes as pay, neighbours together or apart: one core is left to whoever uses them.

    With a third core a single lane has a process of its own, too: a simulator holds Python's lock, for which the thread
    that asks a GPU for learning would have to wait. Where there is no GPU that costs 0.1 to 0.2 ms a step.
    """
    if cores() <= 2 or sys.platform == "win32":
        return make(lanes)
    return Workers(make, spec, lanes, min(lanes, cores() - 1), together)


class Workers:
    """A `VecEnv` whose lanes are dealt out to `count` processes like cards; `make` builds one hand.

    Neighbours go to different processes: games that last long often lie side by side, being those of one seed. Where
    neighbours have something to share, and are to be `together`, a hand is a stretch of lanes, and as games end those
    that go on are dealt again. For that lanes must be able to `leave` a process and to `join` another.
    """

    def __init__(
        self,
        make: Callable[[int], VecEnv],
        spec: EnvSpec,
        lanes: int,
        count: int,
        together: bool = False,
    ):
        self.spec, self.lanes, self.news = spec, lanes, list[str]()
        self._make, self._file = make, memory()
        self._board = Board(self._file, spec, lanes, create=True)
        every, self._together, self._dealt = np.arange(lanes), together, lanes
        self._hands = np.array_split(every, count) if together else [every[i::count] for i in range(count)]
        # What every open game came from: a saved simulator or a seed, and the actions since.
        self._saved: Arrays | None = None
        self._from_seed = np.ones(lanes, bool)
        self._seeds = np.zeros(lanes, np.uint64)
        self._log = ActionLog(lanes, spec.actions)
        self._hung: set[int] = set()
        self._processes = [self._start(i) for i in range(count)]
        for i in range(count):
            self._answer(i)  # all are built side by side; now wait

    def reset(self, which: np.ndarray, seeds: np.ndarray) -> np.ndarray:
        self._log.clear(which)
        self._from_seed |= which
        self._seeds[which] = seeds[which]
        self._board.seed[:] = self._seeds
        self._dealt = int(which.sum())
        self._go(which, True)
        return self._board.frame.copy()

    def step(self, actions: np.ndarray, active: np.ndarray) -> Step:
        self._board.action[active] = actions[active]
        if self._together and self._uneven(active):
            self._deal(active)
        self._go(active, False)
        self._log.append(actions, active)
        return Step(*(_taken(part, active) for part in self._board.came))

    def save(self) -> Arrays | None:
        for i, process in enumerate(self._processes):
            if process.poll() is not None:
                self._revive(i)
        parts = [self._ask(i, "save") for i in range(len(self._hands))]
        if any(part is None for part in parts):
            return None
        lanes = np.argsort(np.concatenate(self._hands))
        return {name: _rows([part[name] for part in parts])[lanes] for name in parts[0]}

    def load(self, arrays: Arrays) -> None:
        self._saved = arrays
        self._from_seed[:] = False
        self._log.clear(np.ones(self.lanes, bool))
        for i, lanes in enumerate(self._hands):
            self._ask(i, "load", {name: array[lanes] for name, array in arrays.items()})

    def close(self) -> None:
        for process in self._processes:
            _hang_up(process)  # all at once
        for process in self._processes:
            _gone(process)
        self._processes = []
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _uneven(self, active: np.ndarray) -> bool:
        """Whether many games are over since lanes were last dealt, and one process has much more left than others."""
        left = int(active.sum())
        if left > FEWER * self._dealt:
            return False
        self._dealt = left
        most = max(int(active[hand].sum()) for hand in self._hands)
        return most > UNEVEN * left / len(self._hands) + 1

    def _deal(self, active: np.ndarray) -> None:
        """Games that go on, to the processes in even shares; neighbours stay together. Others stay where they are."""
        for i, process in enumerate(self._processes):
            if process.poll() is not None:
                self._revive(i)
        owner = np.zeros(self.lanes, int)
        for i, hand in enumerate(self._hands):
            owner[hand] = i
        heir = owner.copy()
        for i, share in enumerate(np.array_split(np.flatnonzero(active), len(self._hands))):
            heir[share] = i
        moving, luggage = owner != heir, dict[int, Any]()
        for i, hand in enumerate(self._hands):
            if moving[hand].any():
                luggage |= zip(hand[moving[hand]].tolist(), self._ask(i, "leave", moving[hand]), strict=True)
        for i, hand in enumerate(self._hands):
            new = np.flatnonzero(moving & (heir == i))
            if len(new):
                self._ask(i, "join", [luggage[int(lane)] for lane in new])
            if len(new) or moving[hand].any():
                self._hands[i] = np.concatenate([hand[~moving[hand]], new])
                self._ask(i, HAND, self._hands[i])

    def _go(self, which: np.ndarray, resetting: bool) -> None:
        """Let the processes of these lanes reset or step them, all at once, and wait."""
        board = self._board
        board.going[:], board.resetting[:] = which, resetting
        busy = [i for i, lanes in enumerate(self._hands) if which[lanes].any()]
        lost = [i for i in busy if not self._tell(i, GO)]
        lost += [i for i in busy if i not in lost and self._reply(i, PATIENCE) is None]
        for i in lost:
            self._revive(i)
            board.going[:], board.resetting[:] = which, resetting
            if not self._tell(i, GO) or self._reply(i, PATIENCE) is None:
                raise UserError(
                    f"the simulator of {self._named(i)} died or hung twice at the same step "
                    f"(seeds of their games: {self._seeds[self._hands[i]].tolist()}): what was saved is kept; "
                    "run the same command again, and report this if it returns"
                )

    def _revive(self, i: int) -> None:
        """Start a process again and play its open games again up to now."""
        lanes = self._hands[i]
        _hang_up(self._processes[i])
        how = f"hung for {PATIENCE:.0f} seconds" if i in self._hung else "died"
        self._hung.discard(i)
        self.news.append(
            f"the simulator process of {self._named(i)} {how} (exit code "
            f"{_gone(self._processes[i])}): started again, its open games are played again from their actions"
        )
        self._processes[i] = self._start(i)
        self._answer(i)
        if self._saved is not None:
            self._ask(i, "load", {name: array[lanes] for name, array in self._saved.items()})
        board, due = self._board, self._board.action.copy()
        board.going[:], board.resetting[:] = self._from_seed, True
        self._answer(i, GO)
        board.resetting[:] = False
        for at in range(int(self._log.length[lanes].max(initial=0))):
            board.action[:], board.going[:] = self._log.at(at)
            self._answer(i, GO)
        board.action[:] = due

    def _start(self, i: int) -> Any:
        process = subprocess.Popen(
            [sys.executable, "-m", "vcrl.envs.workers", str(self._file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[self._file],
            # What can be imported here can be imported there: `make` may be of any module.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            # Ctrl-C is for the one who waits: it finishes the step, saves, and closes these.
            start_new_session=True,
        )
        job = (self._make, self.spec, self.lanes, self._hands[i])
        _send(process.stdin, job)
        return process

    def _ask(self, i: int, method: str, *arguments: Any) -> Any:
        if self._tell(i, ASK):
            _send(self._processes[i].stdin, (method, arguments))
        self._answer(i)
        return _receive(self._processes[i].stdout)

    def _answer(self, i: int, say: bytes | None = None) -> None:
        """Wait for a process that must not die here."""
        limit = PATIENCE if say == GO else None
        if (say is not None and not self._tell(i, say)) or self._reply(i, limit) is None:
            raise UserError(
                f"the simulator process of {self._named(i)} ended (exit code "
                f"{_gone(self._processes[i])}): its own message is above"
            )

    def _named(self, i: int) -> str:
        lanes = self._hands[i]
        more = f" and {len(lanes) - 3} more" if len(lanes) > 3 else ""
        return f"lane{'s' * (len(lanes) > 1)} {', '.join(map(str, lanes[:3]))}{more}"

    def _tell(self, i: int, what: bytes) -> bool:
        try:
            self._processes[i].stdin.write(what)
            self._processes[i].stdin.flush()
        except BrokenPipeError:
            return False
        return True

    def _reply(self, i: int, limit: float | None = None) -> bytes | None:
        """None if the process is dead, or is killed because it does not answer in `limit` seconds."""
        pipe = self._processes[i].stdout
        # Nothing of an earlier answer is left in the pipe's buffer, so the system knows when the next one begins.
        waiting = select.poll()
        waiting.register(pipe, select.POLLIN)
        if not waiting.poll(None if limit is None else 1000 * limit):
            self._hung.add(i)
            self._processes[i].kill()
        said = pipe.read(1)
        if said == FAILED:
            raise UserError(_receive(self._processes[i].stdout))
        return said or None


def work(file: int) -> None:
    """The other side: build a hand of lanes and do what is asked until the pipe closes."""
    into, out = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever a simulator prints must not enter the pipe

    def report(result: Callable[[], Any], answer: bool) -> bool:
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

    make, spec, lanes, mine = _receive(into)
    board, env = Board(file, spec, lanes), None

    def build() -> None:
        nonlocal env
        env = make(len(mine))

    def go() -> None:
        assert env is not None
        going = board.going[mine]
        if not len(mine):  # all of its games have gone on elsewhere
            return
        if board.resetting[mine[0]]:
            board.frame[mine] = env.reset(going, board.seed[mine])
            return
        came = env.step(board.action[mine], going)
        for shared, value in zip(board.came, came, strict=True):
            shared[mine[going]] = value[going]

    alive = report(build, answer=False)
    while alive and (said := into.read(1)):
        if said == GO:
            alive = report(go, answer=False)
        else:
            method, arguments = _receive(into)
            if method == HAND:
                mine = arguments[0]
                alive = report(lambda: None, answer=True)
            else:
                alive = report(lambda m=method, a=arguments: getattr(env, m)(*a), answer=True)
    if env is not None:
        env.close()


def _taken(shared: np.ndarray, active: np.ndarray) -> np.ndarray:
    """A copy that nobody will write to. Late in an evaluation a few games of a thousand go on: of them alone."""
    if 2 * active.sum() > len(active):
        return shared.copy()
    copy = np.zeros(shared.shape, shared.dtype)  # not zeros_like, which writes all of it
    copy[active] = shared[active]
    return copy


def _rows(parts: list[np.ndarray]) -> np.ndarray:
    """Hands of lanes under each other; rows of different width are filled up with zeros."""
    if parts[0].ndim == 2:
        width = max(part.shape[1] for part in parts)
        parts = [np.pad(part, ((0, 0), (0, width - part.shape[1]))) for part in parts]
    return np.concatenate(parts)


def _hang_up(process: Any) -> None:
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    process.stdout.close()


def _gone(process: Any) -> int:
    """A process's exit code, once it has ended; one that does not is ended."""
    try:
        return process.wait(FAREWELL)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


# These pipes lead to our own child processes and nowhere else.
def _send(pipe: Any, value: Any) -> None:
    data = pickle.dumps(value)
    pipe.write(len(data).to_bytes(8, "little") + data)
    pipe.flush()


def _receive(pipe: Any) -> Any:
    return pickle.loads(pipe.read(int.from_bytes(pipe.read(8), "little")))


if __name__ == "__main__":
    work(int(sys.argv[1]))
