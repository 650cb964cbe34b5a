"""The demonstration: three methods, two games, five seeds each, on whatever computer this is."""

import itertools
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table

from vcrl.bench import figures, tables
from vcrl.bench.figures import Curve
from vcrl.bench.stats import Interval, interval, iqm
from vcrl.core.errors import UserError
from vcrl.envs.registry import find, normalise
from vcrl.methods import library
from vcrl.runs.folder import RunFolder, run_path
from vcrl.runs.reading import CONFIG
from vcrl.training.film import film
from vcrl.training.loop import interrupts
from vcrl.training.plan import Plan, Schedule, make_plan
from vcrl.training.run import load_run, train

STEPS = {"rainbow": 2000, "sac": 1200}  # agent steps, by base: what a few minutes on two cores allow
SCHEDULE = Schedule(log=200, evaluate=200, gradients=0, q_error=400)
PLAIN_SECONDS = 15.0  # between lines where there is no terminal


class Job(NamedTuple):
    plan: Plan
    path: Path


def demo(
    out: Path, seeds: Sequence[int], steps: int | None, games: Sequence[str], methods: Sequence[str] | None
) -> list[tables.Summary]:
    """Train everything that is not trained yet, then compare, draw and film it.

    Where no methods are named: the base that a game's actions ask for, SPR and VCR.
    """
    log, began = Console(), time.monotonic()
    if not games or (methods is not None and not methods):
        raise UserError("the demo needs at least one method and one game")
    for game in games:
        if game.startswith("gym:") or find(game).random_score is None:
            raise UserError(
                f"{game} has no known random and best scores, which the demo normalises by: use vcrl train"
            )
    named = {game: methods or (_base(game), "spr", "vcr") for game in games}
    budget = {game: STEPS[_base(game)] if steps is None else steps for game in games}
    jobs = [_job(out, method, game, seeds, budget[game]) for game in games for method in named[game]]
    names = ", ".join(dict.fromkeys(itertools.chain(*named.values())))
    log.print(
        f"{names} on {' and '.join(games)}: {len(seeds)} seeds each, "
        f"{' and '.join(f'{n:,}' for n in dict.fromkeys(budget.values()))} agent steps, "
        f"from 16x16 pixels. {os.cpu_count()} CPU cores, no GPU needed, nothing downloaded."
    )
    _train_all(jobs, log)
    rows = [summary(job) for job in jobs]
    filmed = next((j for j in jobs if j.plan.method == "vcr"), jobs[-1])
    name = f"{filmed.plan.method}-{filmed.plan.task.name}.gif"
    written = [*_draw(jobs, out), film(load_run(filmed.path), out / name, list(seeds[:5]), 5)]
    (out / "summary.md").write_text(tables.summary_table(rows) + "\n")
    log.print(tables.rich_table(rows))
    log.print(
        "score: 0 is random play, 1 the best possible; interquartile mean over seeds, 95% stratified-bootstrap interval"
        "\nQ error: distance of a state's value from the return that followed, in units of reward; the two columns "
        "divide by different counts (docs/protocol.md), so compare down a column, not across"
    )
    log.print("look at", *(f"\n  {path}" for path in [*written, out / "summary.md"]), soft_wrap=True)
    log.print(f"done in {time.monotonic() - began:.0f} s; to train again, delete {out} first")
    return rows


def summary(job: Job) -> tables.Summary:
    """What the table says of one method on one game."""
    run, task = load_run(job.path), job.plan.task
    scores = np.array([normalise(task, score) for score in run.scores().values()])
    last = [row for row in run.folder.metrics() if "q_error/real" in row][-1:]

    def error(name: str) -> Interval | None:
        found = [np.array(row[name], float) for row in last if name in row]
        return interval([found[0]], iqm) if found else None

    diverged = len(run.folder.status["not_finite_since"])
    imagined, real = error("q_error/imagined"), error("q_error/real")
    return tables.Summary(
        task.name, job.plan.method, len(scores), interval([scores], iqm), imagined, real, diverged
    )


def curves(job: Job) -> tuple[Curve, dict[str, Curve]]:
    """Normalised evaluation scores, and Q-errors of imagined and real states, along training."""
    folder, seeds, task = RunFolder.read(job.path), job.plan.seeds, job.plan.task
    rows = folder.evaluations()
    steps = sorted({r.agent_steps for r in rows})
    means = [
        [np.mean([r.score for r in rows if (r.seed, r.agent_steps) == (s, at)]) for at in steps]
        for s in seeds
    ]
    scores = Curve(np.array(steps), np.array([[normalise(task, float(x)) for x in mine] for mine in means]))
    measured = [row for row in folder.metrics() if "q_error/real" in row]
    at = np.array([row["agent_steps"] for row in measured])
    errors = {
        kind: Curve(at, np.array([row[f"q_error/{kind}"] for row in measured], float).T)
        for kind in ("imagined", "real")
        if measured and f"q_error/{kind}" in measured[0]
    }
    return scores, errors


def _base(game: str) -> str:
    task = find(game)
    return library.find("vcr", task.suite, task.name, task.spec.actions).base


def _job(out: Path, method: str, game: str, seeds: Sequence[int], steps: int) -> Job:
    plan = make_plan(method, game, seeds, steps, None, SCHEDULE)
    return Job(plan, run_path(out / "runs", plan.task.suite, method, plan.task.name, plan.seeds, plan.digest))


def _draw(jobs: Sequence[Job], out: Path) -> list[Path]:
    scores: dict[str, dict[str, Curve]] = {}
    errors: dict[str, dict[str, dict[str, Curve]]] = {}
    for job in jobs:
        learned, wrong = curves(job)
        scores.setdefault(job.plan.task.name, {})[job.plan.method] = learned
        if wrong:
            errors.setdefault(job.plan.task.name, {})[job.plan.method] = wrong
    bounds = {game: {"random": 0.0, "optimal": 1.0} for game in scores}
    learning = figures.learning_curves(scores, references=bounds, label="normalised score")
    written = [figures.save(learning, out / "learning-curves")[0]]
    if errors:
        written.append(figures.save(figures.q_error_curves(errors), out / "q-error")[0])
    return written


def _train_all(jobs: Sequence[Job], log: Console) -> None:
    """Several at a time, the longest first: one small game does not fill two cores."""
    line = Line(jobs)
    workers = min(len(jobs), max(2, (os.cpu_count() or 1) // 2))
    with interrupts() as stop, ThreadPoolExecutor(workers) as pool:
        waiting = {pool.submit(_train_some, line, stop) for _ in range(workers)}
        try:
            _follow(waiting, jobs, log)
        finally:
            stopped = stop.is_set()
            stop.set()  # an error in one of them ends the others, saved
    if stopped:
        log.print("stopped and saved: the same command continues")
        raise SystemExit(130)


class Line:
    """Jobs in the order in which they are to be begun: those of the methods named last take longest.

    The first job of a method compiles what all its games run; meanwhile the others of it are passed over.
    """

    def __init__(self, jobs: Sequence[Job]):
        methods = list(dict.fromkeys(job.plan.method for job in jobs))
        self.jobs = sorted(jobs, key=lambda job: -methods.index(job.plan.method))
        self.compiled = {method: threading.Event() for method in methods}
        self.begun, self.lock = set[str](), threading.Lock()

    def take(self) -> Job | None:
        """The next job that has nothing to wait for, if there is one."""
        with self.lock:
            for job in self.jobs:
                method = job.plan.method
                if method not in self.begun or self.compiled[method].is_set():
                    self.begun.add(method)
                    self.jobs.remove(job)
                    return job
            return None


def _train_some(line: Line, stop: threading.Event) -> None:
    """What is left in the line, one after the other, silently: what happens is read off the run folders."""
    while line.jobs and not stop.is_set():
        job = line.take()
        if job is None:
            stop.wait(0.2)
            continue
        plan, ready = job.plan, line.compiled[job.plan.method]
        silent, root, budget = Console(file=StringIO()), job.path.parents[3], plan.budget
        halt = _halt(plan.schedule.q_error, ready, stop)
        train(plan.method, plan.task.name, plan.seeds, budget, None, plan.schedule, root, silent, halt)
        ready.set()


def _halt(ticks: int, ready: threading.Event, stop: threading.Event) -> Callable[[int], bool]:
    """Stop when told to; and after so many ticks, when everything there is has run once, say so."""
    count = itertools.count(1)

    def halt(agent_steps: int) -> bool:
        if next(count) > ticks:
            ready.set()
        return stop.is_set()

    return halt


def _follow(waiting: set[Future[None]], jobs: Sequence[Job], log: Console) -> None:
    """Show progress until all games have ended; an error in one of them is raised here."""
    printed = time.monotonic()
    with Live(console=log, transient=True, auto_refresh=False) as live:
        while waiting:
            done, waiting = wait(waiting, timeout=0.5)
            for future in done:
                future.result()
            if log.is_terminal:
                live.update(_progress(jobs), refresh=True)
            elif time.monotonic() - printed > PLAIN_SECONDS:
                printed = time.monotonic()
                reached = (f"{j.plan.task.name}/{j.plan.method} {_where(j)[0]:,}" for j in jobs)
                log.print("  ".join(reached), soft_wrap=True)


def _progress(jobs: Sequence[Job]) -> Table:
    table = Table("game", "method", "agent steps", "score", box=None, pad_edge=False)
    for job in jobs:
        at, score = _where(job)
        table.add_row(
            job.plan.task.name,
            job.plan.method,
            f"{at:,} of {job.plan.budget:,}",
            "" if score is None else f"{score:5.2f} " + "█" * round(30 * min(max(score, 0), 1)),
        )
    return table


def _where(job: Job) -> tuple[int, float | None]:
    """How far a run is, and its newest evaluation, normalised."""
    if not (job.path / CONFIG).exists():
        return 0, None
    folder = RunFolder.read(job.path)
    metrics, games = folder.metrics(), folder.evaluations()
    newest = [g.score for g in games if g.agent_steps == games[-1].agent_steps]
    score = normalise(job.plan.task, float(np.mean(newest))) if newest else None
    return max(
        [row["agent_steps"] for row in metrics[-1:]] + [g.agent_steps for g in games[-1:]], default=0
    ), score
