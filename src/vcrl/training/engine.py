"""A plan made executable, and the moving parts of one run."""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vcrl.agents.base import Agent
from vcrl.agents.rainbow import make_rainbow
from vcrl.agents.sac import make_sac
from vcrl.core.types import Metrics, Row, now
from vcrl.envs.lanes import Lanes
from vcrl.methods.own import known
from vcrl.replay import Replay
from vcrl.runs.checkpoint import Checkpoint, Rows
from vcrl.training.lift import BLOCK, Lifted, lift
from vcrl.training.pack import pack, unpack
from vcrl.training.plan import Plan


class Engine(NamedTuple):
    """A plan made executable. Kept between runs of the same shape, so that nothing is compiled twice."""

    agent: Agent
    lifted: Lifted


class Training:
    """The moving parts of one run: what a checkpoint must hold, and nothing else."""

    def __init__(self, plan: Plan, engine: Engine):
        self.seeds = jnp.array(plan.seeds, jnp.int32)
        env = plan.task.make(len(plan.seeds), plan.protocol, True)
        self.lanes = Lanes(env, plan.seeds, plan.config.observation.stack, fill=plan.config.observation.fill)
        self.lifted = engine.lifted
        self.state, self.replay = self.lifted.init(self.seeds), self.lifted.empty(self.seeds)
        self.good = self.lifted.init(self.seeds)  # the newest state of each seed that was finite
        # Agent steps at which a seed was found not finite, or -1.
        self.failed = np.full(len(plan.seeds), -1, np.int64)
        self.tick = 0  # agent steps
        self.rows = 0  # of the replay, since the start
        self.newest: tuple[np.ndarray, np.ndarray] | None = None  # of them, packed, until it is stored
        self.updates = 0
        self.capacity, self.budget = plan.capacity, plan.budget
        self.rows_kept = 0  # rows of the replay up to this number are in a checkpoint or overwritten
        self.thread = ThreadPoolExecutor(1, "learning") if threaded() else None

    def aside(self, ask: Callable[[], Any]) -> Callable[[], Any]:
        """Ask the device for something, and go on with the games; what comes back gives the answer."""
        if self.thread is not None:
            return self.thread.submit(ask).result
        answer = ask()
        return lambda: answer

    def learn(self, updates: int, row: tuple[np.ndarray, np.ndarray], moment: Any) -> list[Metrics]:
        """The updates of an agent step, in as few calls as the device likes best.

        The row of the step before goes into the replay with the first of them.
        """
        told = list[Metrics]()
        while len(told) < updates:
            self.arrays, self.replay, metrics = self.lifted.learn(
                self.arrays, self.replay, row, self.now if told else moment, self.seeds
            )
            self.updates += len(metrics)
            told += metrics
        return told

    @property
    def state(self) -> Any:
        """What learns, of all seeds. Between the calls of a step it is kept as the list of its arrays."""
        return jax.tree.unflatten(self._structure, self.arrays)

    @state.setter
    def state(self, state: Any) -> None:
        self.arrays, self._structure = jax.tree.flatten(state)

    def close(self) -> None:
        try:
            if self.thread is not None:
                self.thread.shutdown()
        finally:
            self.lanes.close()

    @property
    def counters(self) -> dict[str, int]:
        return {"tick": self.tick, "rows": self.rows, "updates": self.updates}

    @property
    def now(self) -> np.ndarray:
        return now(self.tick, self.updates, self.rows, self.newest is not None)

    def store(self) -> None:
        """The newest row into the replay, where it is not there yet."""
        if self.newest is not None:
            self.replay = self.lifted.insert(self.replay, self.newest, self.now)
            self.newest = None

    def ending(self) -> "Snapshot":
        """What is needed to play behind the end: of every seed the nets to judge it by, and nothing to learn with."""
        state, host = self.lifted.bare(self.trusted()), {**self.lanes.save(), "failed": self.failed}
        return Snapshot(self.counters, (self.rows, self.rows), state, None, {}, host, [])

    def snapshot(self) -> "Snapshot":
        """What is needed to go on from here, copied on the device, so that training need not wait for the disk.

        With all rows of the replay that are new since the last snapshot.
        """
        self.store()
        self.rows_kept = max(self.rows_kept, self.rows - self.capacity)
        starts = range(self.rows_kept, self.rows, BLOCK)
        blocks = [self.lifted.rows(self.replay, np.int32(start)) for start in starts]
        # Of a seed that is finite the last good state is its state.
        good = self.good if (self.failed >= 0).any() else None
        state, good, ranks = self.lifted.copy(self.state, good, _ranks(self.replay))
        host = {**self.lanes.save(), "failed": self.failed.copy()}
        taken = Snapshot(self.counters, (self.rows_kept, self.rows), state, good, ranks, host, blocks)
        self.rows_kept = self.rows
        return taken

    def restore(self, found: Checkpoint) -> None:
        arrays = found.arrays
        if found.agent_steps == self.budget:  # there is nothing to learn with, and nothing to be learned
            self.state, self.good = self.lifted.bare(self.state), self.lifted.bare(self.good)
        else:
            self.replay = self.replay._replace(**unpack(_ranks(self.replay), arrays, "replay"))
            for part in found.rows:
                for start in range(part.start, part.stop, BLOCK):
                    self._refill(part, start)
        self.state = unpack(self.state, arrays, "state")
        saved = any(name.startswith("good.") for name in arrays)
        self.good = unpack(self.good, arrays, "good") if saved else self.lifted.copy(self.state)[0]
        host = {
            name.removeprefix("host/"): value for name, value in arrays.items() if name.startswith("host/")
        }
        self.failed = host.pop("failed")
        self.lanes.load(host)
        for name in self.counters:
            setattr(self, name, found.extra["counters"][name])
        self.rows_kept = found.stop

    def _refill(self, part: Rows, start: int) -> None:
        """One block of rows back into the replay; the last one of a file is filled up to the common size."""
        at, count = start - part.start, min(BLOCK, part.stop - start)

        def block(array: np.ndarray) -> np.ndarray:
            piece = array[:, at : at + count]
            return np.concatenate(
                [piece, np.zeros((len(piece), BLOCK - count, *piece.shape[2:]), piece.dtype)], 1
            )

        row = Row(*(block(part.arrays[name]) for name in Row._fields))
        self.replay = self.lifted.fill(self.replay, row, np.int32(start), np.int32(count))

    def trusted(self) -> Any:
        """The state to judge a seed by: its own while finite, else the last that was."""
        return self.lifted.trusted(self.state, self.good)


def threaded() -> bool:
    """Whether a thread of its own asks for learning.

    For a GPU that takes the host as long as a step of the games does, and longer where the program has a question that
    the host must answer. On a CPU the thread would cost more than it gains.
    """
    return jax.default_backend() == "gpu"


class Snapshot(NamedTuple):
    """One moment of a training. Its arrays are still on the device until somebody asks."""

    counters: dict[str, int]
    span: tuple[int, int]  # the rows that are new, by number
    state: Any
    good: Any
    ranks: Any
    host: dict[str, np.ndarray]
    blocks: list[Row]

    def arrays(self) -> dict[str, np.ndarray]:
        good = pack(self.good, "good") if self.good is not None else {}
        host = {f"host/{name}": value for name, value in self.host.items()}
        return {**pack(self.state, "state"), **good, **pack(self.ranks, "replay"), **host}

    def rows(self) -> Rows:
        start, stop = self.span
        parts = {
            name: np.concatenate([np.asarray(getattr(block, name)) for block in self.blocks], axis=1)[
                :, : stop - start
            ]
            for name in (Row._fields if self.blocks else ())
        }
        return Rows(start, stop, parts)


def _ranks(replay: Replay) -> dict[str, Any]:
    """What changes while a row is in the replay; its rows themselves never do."""
    return {"priority": replay.priority, "top": replay.top}


def keep_compiled() -> None:
    """Keep programs for a GPU on disk, where compiling takes half a minute; whoever has chosen a place keeps it.

    Not for a CPU: compiling is quick there, and a program made on one computer may not run on the next that shares the
    folder.
    """
    if jax.default_backend() == "cpu" or jax.config.jax_compilation_cache_dir is not None:  # type: ignore
        return
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    jax.config.update("jax_compilation_cache_dir", str(cache / "vcrl" / "compiled"))


# Programs compiled for a CPU take thousands of mappings of memory an engine, of which Linux gives a process 65,530 and
# ends one that wants more: somebody who trains many configs in one process has only the last few compiled.
KEPT = 8
_engines: dict[Any, Engine] = {}  # the one used last comes last
_lock = threading.Lock()


def engine_of(plan: Plan) -> Engine:
    """The compiled functions of a plan. Tasks that look the same from outside share them."""
    own = plan.config.terms.own
    # Without the module that a loss of one's own is of an engine can play and not learn.
    there = own is not None and known(own.loss, own.code) is not None
    key = (plan.config, plan.task.spec, plan.protocol, plan.capacity, there)
    with _lock:
        engine = _engines.pop(key, None)
        if engine is None:
            keep_compiled()
            make: Any = {"rainbow": make_rainbow, "sac": make_sac}[plan.base]
            agent = make(plan.config, plan.task.spec, plan.protocol)
            engine = Engine(agent, lift(agent, plan.task.spec, plan.capacity))
        _engines[key] = engine
        while len(_engines) > KEPT:
            del _engines[next(iter(_engines))]
        return engine
