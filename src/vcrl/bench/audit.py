"""`vcrl audit`: the games behind a run's scores, played again from its receipts without an agent."""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from vcrl.bench.folders import BAD, read_checked
from vcrl.core.config import from_json
from vcrl.core.errors import UserError
from vcrl.core.modules import bring
from vcrl.core.protocol import Protocol
from vcrl.envs.again import EVAL_SALT, Again, play_again, possible
from vcrl.envs.lanes import game_seed
from vcrl.envs.processes import cores
from vcrl.envs.registry import Task
from vcrl.envs.registry import find as find_task
from vcrl.runs import receipts
from vcrl.runs.logs import Episode, by_steps, mean_scores, unlike
from vcrl.runs.reading import Run
from vcrl.runs.receipts import BadReceipt, Game

SHOWN = 10  # games named


class Verdict(NamedTuple):
    run: str
    claims: int  # games that the log claims and that were asked about
    repeated: int  # of these, played again
    faults: list[str]  # of the run as a whole
    wrong: list[str]  # games that went another way, by name
    unproven: list[str]  # games without a receipt, by name
    notes: list[str]

    @property
    def holds(self) -> bool:
        return not (self.faults or self.wrong or self.unproven)


def audit(
    path: Path,
    seeds: Sequence[int] | None = None,
    games: int | None = None,
    final: bool = False,
    tolerance: float = 0.0,
    module: str | None = None,
    progress: Callable[[int, int], None] = lambda done, all: None,
) -> Verdict:
    """Play the claimed games again and compare scores and lengths, row by row.

    Of some seeds, of the first `games` of each, or of the `final` evaluation alone, if so asked. A user's own
    environment needs the `module` it comes from: a run folder cannot have code imported.
    """
    run = read_checked(path)
    try:
        return _audit(run, _task(run, module), seeds, games, final, tolerance, progress)
    except BAD as error:
        raise UserError(f"{path} is damaged ({type(error).__name__}: {str(error)[:80]})") from error


def _audit(
    run: Run,
    task: Task,
    seeds: Sequence[int] | None,
    games: int | None,
    final: bool,
    tolerance: float,
    progress: Callable[[int, int], None],
) -> Verdict:
    of_run: list[int] = run.record["seeds"]
    for seed in seeds or ():
        if seed not in of_run:
            raise UserError(f"seed {seed} is not of this run: it has {', '.join(map(str, of_run))}")
    if games is not None and games < 1:
        raise UserError(f"--games {games}: at least one is needed")
    if not 0 <= tolerance < math.inf:
        raise UserError(f"--tolerance {tolerance}: 0 or a positive number")
    protocol: Protocol = from_json(Protocol, run.record["protocol"], "protocol")
    rows = run.evaluations()
    if not rows:
        raise UserError(f"{run.path} has no evaluation yet, so it claims nothing: let the training end")
    budget = protocol.budget // (task.spec.repeat if protocol.unit == "env steps" else 1)
    verdict = Verdict(str(run.path), 0, 0, [], [], [], [])
    verdict.faults.extend(_whole(run, protocol, rows, budget))
    if run.status.get("state") != "done":
        verdict.notes.append("the run is not done: what it has claimed so far is looked at")
    played: list[tuple[Episode, Game]] = []
    for at, rows_there in sorted(by_steps(rows).items()):
        if final and at != budget:
            continue
        known = _receipt(run, at, task, protocol, verdict)
        for row in rows_there:
            if (seeds is None or row.seed in seeds) and (games is None or row.episode < games):
                game = known.get((row.seed, row.episode))
                if game is None:
                    verdict.unproven.append(_name(row))
                else:
                    played.append((row, game))
    again = _repeat(task, protocol, [game for _, game in played], progress)
    for (row, game), came in zip(played, again, strict=True):
        if told := _difference(row, game, came, tolerance):
            verdict.wrong.append(f"{_name(row)}: {told}")
    claims = len(played) + len(verdict.unproven)
    return verdict._replace(claims=claims, repeated=len(played))


def _task(run: Run, module: str | None) -> Task:
    name = run.record["task"]
    if module is not None:
        bring(module, f"which should have {name}")
    return find_task(name, trusted=module is not None and name.startswith(f"gym:{module}:"))


def _whole(run: Run, protocol: Protocol, rows: list[Episode], budget: int) -> list[str]:
    """What can be seen without playing: the protocol, which games there are, the scores made of them."""
    found: list[str] = []
    if protocol.hash != run.record["protocol_hash"]:
        found.append(
            f"the protocol in config.json was changed: its hash is {protocol.hash} where the run has "
            f"{run.record['protocol_hash']}"
        )
    for at, games in sorted(by_steps(rows).items()):
        if odd := unlike(games, run.record["seeds"], protocol.eval_episodes):
            seed, episode = odd.wanted or odd.found or (0, 0)
            found.append(
                f"the evaluation at {at:,} agent steps has not the protocol's games: "
                f"seed {seed}, game {episode} first"
            )
    if any(not math.isfinite(row.score) for row in rows):
        found.append("eval.csv has scores that are not finite")
    done, scores = run.status.get("state") == "done", run.status.get("scores")
    if done and not any(row.agent_steps == budget for row in rows):
        found.append(f"status.json says done, and eval.csv has no evaluation at {budget:,} agent steps")
    if scores is not None:
        means = mean_scores(rows, budget)
        for seed in run.record["seeds"]:
            claimed, mean = scores.get(str(seed)), means.get(seed)
            if claimed != mean:
                found.append(
                    f"status.json has the score {claimed} for seed {seed}, its games in eval.csv have the mean {mean}"
                )
    return found


def _receipt(
    run: Run, at: int, task: Task, protocol: Protocol, verdict: Verdict
) -> dict[tuple[int, int], Game]:
    """The games of one evaluation by seed and episode; none, and a fault, where the receipt is not of this run."""
    try:
        found = receipts.read(run.path, at)
    except BadReceipt as error:
        verdict.faults.append(f"the receipt of the evaluation at {at:,} agent steps {error}")
        return {}
    theirs = (found.task, found.protocol_hash, found.salt)
    ours = (run.record["task"], protocol.hash, EVAL_SALT)
    for what, there, here in zip(("task", "protocol", "salt"), theirs, ours, strict=True):
        if there != here:
            verdict.faults.append(
                f"the receipt of the evaluation at {at:,} agent steps is for {what} {there}, the run for {here}"
            )
            return {}
    bad = [g for g in found.games if not possible(task.spec.actions, g.actions)]
    if bad:
        verdict.faults.append(
            f"the receipt of the evaluation at {at:,} agent steps has actions that {task.name} does not know: "
            f"seed {bad[0].seed}, game {bad[0].episode} first"
        )
        return {}
    return {(game.seed, game.episode): game for game in found.games}


def _repeat(
    task: Task, protocol: Protocol, games: list[Game], progress: Callable[[int, int], None]
) -> list[Again]:
    if not games:
        return []
    every, done = sum(len(game.actions) for game in games), 0

    def more(steps: int) -> None:
        nonlocal done
        done += steps
        progress(done, every)

    env = task.make(min(len(games), max(16, cores())), protocol, False)
    try:
        seeds = [game_seed(EVAL_SALT, game.seed, game.episode) for game in games]
        return play_again(env, seeds, [game.actions for game in games], protocol.horizon, more)
    finally:
        env.close()


def _difference(row: Episode, game: Game, came: Again, tolerance: float) -> str | None:
    """How a game went otherwise than claimed, if it did."""
    claimed = f"{row.score} in {row.length:,} steps"
    if len(game.actions) != row.length:
        return f"claimed {claimed}, its receipt has {len(game.actions):,} actions"
    if came.length != len(game.actions):
        return f"claimed {claimed}, the game was over after {came.length:,} with {came.score}"
    if not came.ended:
        return f"claimed {claimed}, the game was not over by then"
    if abs(came.score - row.score) > tolerance:
        return f"claimed {claimed}, it gives {came.score}"
    return None


def _name(row: Episode) -> str:
    return f"seed {row.seed}, game {row.episode} at {row.agent_steps:,} agent steps"


@contextmanager
def progress_line() -> Iterator[Callable[[int, int], None]]:
    """How far it is, on a terminal; minutes may pass."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        line = bar.add_task("playing again", total=None)
        yield lambda done, all: bar.update(line, completed=done, total=all)


def as_data(verdict: Verdict) -> dict[str, Any]:
    return {"holds": verdict.holds, **verdict._asdict()}


def text(verdict: Verdict) -> str:
    """The verdict in a few lines, the first games named."""
    lines = [f"{verdict.repeated:,} of {verdict.claims:,} claimed games were played again"]
    lines += verdict.notes
    lines += verdict.faults
    for what, names in (("went another way", verdict.wrong), ("without a receipt", verdict.unproven)):
        if names:
            lines.append(f"{len(names):,} game{'s' * (len(names) > 1)} {what}:")
            lines += [f"  {name}" for name in names[:SHOWN]]
            lines += [f"  and {len(names) - SHOWN:,} more"] if len(names) > SHOWN else []
    return "\n".join([*lines, f"the scores of {verdict.run} {'hold' if verdict.holds else 'DO NOT HOLD'}"])
