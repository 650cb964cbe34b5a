"""A run as a user holds it: train, look, score, act."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
import rich.console

from vcrl.core.config import change, from_json
from vcrl.core.errors import UserError
from vcrl.core.protocol import Protocol
from vcrl.envs import rendering
from vcrl.envs.gym_adapt import Fault
from vcrl.envs.lanes import Finished
from vcrl.envs.registry import Task, own
from vcrl.envs.registry import find as find_task
from vcrl.methods.configs import CONFIGS
from vcrl.methods.own import found
from vcrl.runs import checkpoint, reading
from vcrl.runs.facts import facts, hardware
from vcrl.runs.folder import RunFolder, run_path
from vcrl.training import evaluate, loop
from vcrl.training.config_file import asked
from vcrl.training.console import Console
from vcrl.training.engine import engine_of
from vcrl.training.forecast import outlook, traced_learning
from vcrl.training.lift import told
from vcrl.training.memory import check_memory, need_in_bytes, out_of_memory
from vcrl.training.pack import unpack
from vcrl.training.plan import Plan, Schedule, at_size, make_plan

RESUME = ("auto", "never", "must")


class Run:
    """A run folder with its newest weights. Nothing is read before it is asked for."""

    def __init__(self, path: Path, plan: Plan):
        self.path, self.plan = path, plan
        self._state: Any = None
        self.policy = Policy(self)

    @property
    def folder(self) -> reading.Run:
        """The folder's files: `record`, `status`, `metrics()`, `episodes()`, `evaluations()`."""
        return RunFolder.read(self.path)

    @property
    def state(self) -> Any:
        """What plays and imagines, of all seeds, as of the newest checkpoint; of one that diverged what was finite."""
        if self._state is None:
            found = checkpoint.load(self.path / "checkpoint", _warn, rows=False)
            if found is None:
                raise UserError(f"{self.path} has no checkpoint yet: train it first")
            lifted = engine_of(self.plan).lifted
            whole = jax.eval_shape(lifted.init, np.array(self.plan.seeds, np.int32))
            like = jax.eval_shape(lifted.bare, whole)
            self._state = unpack(like, found.arrays, "state")
            if any(name.startswith("good.") for name in found.arrays):
                self._state = lifted.trusted(self._state, unpack(like, found.arrays, "good"))
        return self._state

    def evaluate(self, episodes: int | None = None) -> dict[int, list[Finished]]:
        """Whole games without exploration: for every seed its episodes, with raw scores."""
        count = self.plan.protocol.eval_episodes if episodes is None else episodes
        if count < 1:
            raise UserError(f"--episodes {count}: at least one is needed")
        play = engine_of(self.plan).lifted.play
        return dict(zip(self.plan.seeds, evaluate.scores(self.plan, play, self.state, count), strict=True))

    def scores(self) -> dict[int, float]:
        """Each seed's score by the protocol: the mean of its final evaluation."""
        rows = [r for r in self.folder.evaluations() if r.agent_steps == self.plan.budget]
        if not rows:
            raise UserError(f"{self.path} has no final evaluation yet: let the training end")
        return {s: float(np.mean([r.score for r in rows if r.seed == s])) for s in self.plan.seeds}


class Policy:
    """Acts on single frames as the environment gives them; remembers the stack until `reset`."""

    def __init__(self, run: Run):
        self._run = run
        self._past: dict[int, np.ndarray] = {}
        self._ticks: dict[int, int] = {}

    def reset(self) -> None:
        """Call it when a new episode begins."""
        self._past.clear()
        self._ticks.clear()

    def __call__(self, frame: np.ndarray, seed: int | None = None) -> Any:
        """The action of one seed (the first by default) on the newest frame, uint8 H W C (or H W).

        As in evaluation: greedy, but for the protocol's small epsilon. A number, or a vector in [-1, 1].
        """
        plan = self._run.plan
        seed = plan.seeds[0] if seed is None else seed
        if seed not in plan.seeds:
            raise UserError(f"seed {seed} is not of this run: it has {', '.join(map(str, plan.seeds))}")
        frame = np.asarray(frame) if plan.task.see is None else _seen(plan, frame)
        frame = frame[..., None] if frame.ndim == 2 else frame
        if frame.shape != plan.task.spec.frame or frame.dtype != np.uint8:
            wanted, given = f"uint8{list(plan.task.spec.frame)}", f"{frame.dtype}{list(frame.shape)}"
            raise UserError(f"a frame of {plan.task.name} is {wanted}, not {given}")
        shape = (*frame.shape[:2], frame.shape[2] * plan.config.observation.stack)
        past, tick = self._past.get(seed, np.zeros(shape, np.uint8)), self._ticks.get(seed, 0)
        seeds = np.array(plan.seeds, np.int32)
        # What this seed sees is shown to all.
        past, frame = (np.broadcast_to(x, (len(seeds), 1, *x.shape)) for x in (past, frame))
        known = told(np.zeros((len(seeds), 1)), tick, np.full((len(seeds), 1), tick == 0))
        seen, actions = engine_of(plan).lifted.play(self._run.state, past, frame, known, seeds)
        self._past[seed], self._ticks[seed] = np.asarray(seen)[0, 0], tick + 1
        mine = np.asarray(actions)[plan.seeds.index(seed), 0]
        return mine if mine.shape else int(mine)


def train(
    method: str,
    task: str | None = None,
    seeds: Sequence[int] = (0,),
    steps: int | None = None,
    changes: Mapping[str, Any] | None = None,
    schedule: Schedule | None = None,
    out: str | Path = "runs",
    log: rich.console.Console | None = None,
    halt: Callable[[int], bool] = lambda agent_steps: False,
    protocol: str | None = None,
    resume: str = "auto",
    env: Any = None,
    name: str | None = None,
    fit: str = "",
) -> Run:
    """Train `method` on `task` with all seeds at once, or continue where the same call was stopped.

    `changes` are dotted paths of the config, such as {"terms.vcr.weight": 0.5}. `halt(agent_steps)` may stop early.
    `resume` is auto, or never to insist on a new run, or must to insist on one that can be continued.

    A task may be a config that `vcrl check-env` wrote. In its place, or for the environment in it, `env` is a Gymnasium
    environment: a name, or a class or function that makes one. Its runs are known by its module and qualified name, or
    by `name`, and by nothing else. `fit` is what is done to its pictures, as in "render,84x84,gray".
    """
    task, steps, changes = asked(method, task, steps, changes, None, env, name, fit)
    plan = make_plan(method, task, list(seeds), steps, changes, schedule, protocol)
    return train_plan(plan, out, log, halt, resume)


def train_plan(
    plan: Plan,
    out: str | Path = "runs",
    log: rich.console.Console | None = None,
    halt: Callable[[int], bool] = lambda agent_steps: False,
    resume: str = "auto",
) -> Run:
    """`train`, of a plan that is already made."""
    path = run_path(Path(out), plan.task.suite, plan.method, plan.task.name, plan.seeds, plan.digest)
    check_resume(path, resume)
    done = reading.state_of(path) == "done"
    if not done:
        rehearse(plan)
        check_memory(plan, engine_of(plan))
    log, here = log or rich.console.Console(), facts(_accelerator())
    with (
        RunFolder.open(path, plan.identity | {"facts": here}) as folder,
        Console(f"{plan.method} {plan.task.name}", plan.seeds, plan.budget, log) as console,
    ):
        for line in [sizes(plan), *folder.mended, *([] if done else ahead(plan, Path(out), path))]:
            console.line(line)
        if not done:
            folder.ran_on(hardware(here))
        try:
            ended = loop.train(plan, folder, console, halt)
        except KeyboardInterrupt:
            # Before or after the loop, where nothing is half done: what was cut off will be done again.
            folder.status({"state": "stopped"})
            raise
        except BaseException as error:
            with suppress(UserError):  # of a full disk the first complaint is the one to hear
                folder.status({"state": "failed", "reason": f"{type(error).__name__}: {error}"})
            if told := out_of_memory(error):
                raise told from error
            raise
    run = Run(path, plan)
    if ended == "stopped":
        log.print(f"stopped and saved in {path}: the same command continues")
    return run


def sizes(plan: Plan) -> str:
    """How much is to be done, by which protocol, and what that holds in memory."""
    replay, weights, work = need_in_bytes(plan, engine_of(plan))
    return (
        f"protocol {plan.protocol.name} [{plan.protocol.hash}]  {plan.budget:,} agent steps  "
        f"{len(plan.seeds)} seed{'s' * (len(plan.seeds) != 1)}  "
        f"replay {replay / 1e6:,.1f} MB  weights {weights / 1e6:,.1f} MB  work {work / 1e6:,.1f} MB"
    )


def ahead(plan: Plan, out: Path, path: Path, always: bool = False) -> Iterator[str]:
    """What this computer draws pictures with, where it has to, and how long it may take from where it was saved."""
    if plan.task.suite == "dmc":
        yield rendering.choose().note
    yield from other_code(plan, path)
    behind = max(checkpoint.generations(path / "checkpoint"), default=0)
    yield from outlook(plan, engine_of(plan).lifted, out, always, behind)


def other_code(plan: Plan, path: Path) -> Iterator[str]:
    """Runs that are the same but for the code of a loss of one's own: those who go on with one see where it went."""
    if plan.config.terms.own is None or checkpoint.generations(path / "checkpoint"):
        return
    mine = change(plan.config, "terms.own.code", "")
    for other in sorted(path.parent.glob("*/config.json")):
        with suppress(UserError, KeyError):
            record = reading.read_run(other.parent).record
            if any(record[name] != plan.identity[name] for name in ("seeds", "protocol_hash", "schedule")):
                continue
            theirs = from_json(type(plan.config), record["config"])
            if theirs.terms.own is None or theirs.terms.own.code == plan.config.terms.own.code:
                continue
            if change(theirs, "terms.own.code", "") == mine:
                yield f"{other.parent} was trained with other code of {plan.config.terms.own.loss}: this is a new run"


def preview(plan: Plan, out: Path, resume: str = "auto") -> list[str]:
    """What `train_plan` would begin with, of which nothing is begun and nothing is written."""
    path = run_path(out, plan.task.suite, plan.method, plan.task.name, plan.seeds, plan.digest)
    check_resume(path, resume)
    if reading.state_of(path) == "done":
        return [sizes(plan), f"finished already: {path}"]
    rehearse(plan)
    check_memory(plan, engine_of(plan))
    saved = checkpoint.generations(path / "checkpoint")
    there = f"would continue from {saved[-1]:,} agent steps" if saved else "would begin"
    return [sizes(plan), *ahead(plan, out, path, always=True), f"{there}: {path}"]


def rehearse(plan: Plan) -> None:
    """A user's loss fails here, if it does, with nothing begun, and not when learning starts."""
    own = plan.config.terms.own
    if own is None:
        return
    if found(own.loss).code != own.code:
        raise UserError(f"the code of {own.loss} is not what it was when this was planned: plan it anew")
    traced_learning(plan, engine_of(plan).lifted)


def check_word(resume: str) -> None:
    if resume not in RESUME:
        raise UserError(f"--resume {resume}: known are {', '.join(RESUME)}")


def check_resume(path: Path, resume: str) -> None:
    """Refuse to begin where something was to be continued, or to continue where something was to begin."""
    check_word(resume)
    saved = checkpoint.generations(path / "checkpoint")
    if resume == "never" and saved:
        raise UserError(
            f"--resume never: {path} already has a run, saved at {saved[-1]:,} agent steps; "
            "leave the flag out to continue it, or choose another --out"
        )
    if resume == "must" and not saved:
        raise UserError(
            f"--resume must: nothing to continue in {path}; leave the flag out to begin a new run, "
            "or look for another setting with vcrl ls"
        )


def load_run(path: str | Path, env: Callable[[], Any] | None = None) -> Run:
    """A run from its folder, with everything needed to score it or act with it.

    No module is imported for it: where its environment is one's own, import its module first, or give the class or
    function that made it as `env`.
    """
    folder = RunFolder.read(Path(path))
    record = folder.record
    reading.check_record(folder.path, record)
    try:
        config = from_json(CONFIGS[record["base"]], record["config"])
        plan = Plan(
            record["method"],
            at_size(_task(record["task"], env), config),
            tuple(record["seeds"]),
            config,
            from_json(Protocol, record["protocol"], "protocol"),
            from_json(Schedule, record["schedule"], "schedule"),
        )
    except (KeyError, TypeError) as error:
        raise UserError(
            f"{path}/config.json lacks or garbles {error}: it was not written by this version"
        ) from error
    return Run(Path(path), plan)


def _task(name: str, env: Callable[[], Any] | None) -> Task:
    if env is None:
        return find_task(name, trusted=False)
    whole, _, fit = name.removeprefix("gym:").partition("@")
    return own(env, whole, fit)


def _seen(plan: Plan, shown: Any) -> np.ndarray:
    """What an environment of the user's shows, as a frame; one that was made already is taken as it is."""
    frame = np.asarray(shown)
    if frame.shape == plan.task.spec.frame and frame.dtype == np.uint8:
        return frame
    try:
        return cast(Any, plan.task.see)(shown)
    except Fault as error:
        raise UserError(f"{plan.task.name}: {error}") from error


def _accelerator() -> str | None:
    device = jax.devices()[0]
    return None if device.platform == "cpu" else device.device_kind


def _warn(text: str) -> None:
    rich.console.Console(stderr=True).print(text)
