"""Whether logs, receipts and checkpoints are what the run's record promises: the second half of `vcrl verify`."""

import math
from pathlib import Path
from typing import Any

from vcrl.runs import checkpoint, receipts
from vcrl.runs.checkpoint import Damaged
from vcrl.runs.checks import COUNTERS, OK, RESTORE, WARNING, Check, Fault, Seen, need, walk
from vcrl.runs.files import is_temp
from vcrl.runs.folder import COUNTED
from vcrl.runs.logs import Episode, by_steps, mean_scores, prefix_digest, read_episodes, read_rows, unlike
from vcrl.runs.reading import LOGS
from vcrl.runs.receipts import BadReceipt
from vcrl.runs.strict import BAD

AGAIN = "delete the checkpoint folder and run the training command again"


def _order(rows: list[Episode], seeds: list[int]) -> None:
    """What holds of every table of games."""
    for number, row in enumerate(rows, start=2):
        good = row.seed in seeds and row.length >= 1 and row.episode >= 0 and math.isfinite(row.score)
        need(good, f"line {number} cannot be: {','.join(map(str, row))[:80]}")
        need(number == 2 or row.agent_steps >= rows[number - 3].agent_steps, f"line {number} is out of order")


def check_evaluations(seen: Seen) -> Check:
    """Every evaluation is the protocol's: all seeds, each with its games."""
    _order(seen.rows, seen.seeds)
    episodes = seen.record["protocol"]["eval_episodes"]
    count, found = len(seen.seeds) * episodes, by_steps(seen.rows)
    for at, games in found.items():
        if odd := unlike(games, seen.seeds, episodes):
            text = f"{len(games)} games at {at:,} agent steps where the protocol has {count}"
            if len(games) == count:
                text = f"other games than the protocol's at {at:,} agent steps"
            need(at == max(found) and odd.found is None and not seen.done, text)
            return Check("", WARNING, f"{text}: cut off, the training will do them again")
    return Check("", OK, f"{len(found)} evaluations of {count} games")


def check_scores(seen: Seen) -> Check:
    if not seen.done:
        return Check("", OK, "none yet: the run is not done")
    means = {str(s): mean for s, mean in mean_scores(seen.rows, seen.status["agent_steps"]).items()}
    need(bool(means), "the run is done and eval.csv has no final evaluation")
    told = seen.status.get("scores")
    if told is None:
        return Check("", WARNING, "status.json has none; those in eval.csv count")
    wrong = next((s for s in (*means, *told) if told.get(s) != means.get(s)), None)
    need(
        wrong is None,
        f"seed {ascii(wrong)[:20]} has {told.get(wrong)} in status.json, {means.get(wrong or '')} by eval.csv",
    )
    return Check("", OK, f"{len(means)} seeds, each the mean of its games")


def check_receipts(seen: Seen) -> Check:
    """Every evaluation has a receipt of the same games; whether these pay what is claimed, `vcrl audit` says."""
    there, claimed = receipts.steps_in(seen.path), sorted({row.agent_steps for row in seen.rows})
    if claimed and not (seen.path / receipts.FOLDER).exists():
        return Check("", WARNING, "none: made before there were receipts, its scores cannot be audited")
    evaluations = by_steps(seen.rows)
    for at in claimed:
        name = receipts.path_of(seen.path, at).name
        try:
            found = receipts.read(seen.path, at)
        except BadReceipt as error:
            raise Fault(f"{name} {error}", "the evaluation cannot be audited; " + RESTORE) from error
        ours = (seen.record["task"], seen.record["protocol_hash"])
        need((found.task, found.protocol_hash) == ours, f"{name} is of another task or protocol")
        rows = [(r.seed, r.episode, r.length) for r in evaluations[at]]
        games = receipts.sequence(found.games)
        need(games[: len(rows)] == rows if not seen.done else games == rows, f"{name} has other games")
    if more := [at for at in there if at not in claimed]:
        need(not seen.done, f"one at {more[0]:,} agent steps, where eval.csv has no evaluation")
        return Check("", WARNING, f"one at {more[0]:,} agent steps without its evaluation, harmless")
    return Check("", OK, f"{len(claimed)} evaluations; `vcrl audit` plays them again")


def check_episodes(seen: Seen) -> Check:
    rows = read_episodes(seen.path / LOGS["episodes"])
    _order(rows, seen.seeds)
    last: dict[int, int] = {}
    for number, row in enumerate(rows, start=2):
        need(row.episode > last.get(row.seed, -1), f"line {number}: game {row.episode} comes late or twice")
        last[row.seed] = row.episode
    return Check("", OK, f"{len(rows):,} games")


def check_metrics(seen: Seen) -> Check:
    rows = read_rows(seen.path / LOGS["metrics"])
    before = -1
    for number, row in enumerate(rows, start=1):
        for name in COUNTERS:
            good = type(row.get(name)) is int and row[name] >= 0
            need(good, f"line {number}: {name} is {ascii(row.get(name))[:40]}")
        need(row["agent_steps"] > before, f"line {number} is out of order")
        before = row["agent_steps"]
        for name, value in row.items():
            good = not isinstance(value, list) or len(value) == len(seen.seeds)
            need(good, f"line {number}: {ascii(name)[:40]} has not one number a seed")
    return Check("", OK, f"{len(rows):,} rows")


def check_checkpoints(seen: Seen) -> Check:
    """Each generation by its manifest, and what the newest says of the logs."""
    folder = seen.path / "checkpoint"
    found = checkpoint.generations(folder)
    if not found:
        if seen.done:
            return Check("", WARNING, "none: the weights are gone, the scores are not")
        return Check("", OK, "none yet")
    whole: list[int] = []
    used: set[Path] = set()
    damaged: list[str] = []
    for at in found:
        try:
            body, files = checkpoint.check(folder, at)
            _extra(seen, body)
        except (Damaged, *BAD) as reason:
            damaged.append(f"{at:09d} is damaged ({ascii(str(reason))[1:-1][:120]})")
            continue
        whole.append(at)
        used |= files
    if damaged:
        rest = f"the training will continue from {whole[-1]:09d}" if whole else AGAIN
        raise Fault("; ".join(damaged), rest)
    steps = seen.status.get("agent_steps")
    need(not seen.done or whole[-1] == steps, f"the newest is {whole[-1]:,} and the run ended at {steps}")
    every = [Path(e.path) for e in walk(folder, 1) if e.is_file() and not is_temp(Path(e.path))]
    text = f"{', '.join(f'{at:,}' for at in whole)} agent steps: sizes, shapes and checksums agree"
    if spare := len([path for path in every if path not in used]):
        return Check("", WARNING, f"{text}; {spare} files belong to none, the next checkpoint removes them")
    return Check("", OK, text)


def _extra(seen: Seen, body: dict[str, Any]) -> None:
    """What a training would go on from."""
    logs, counters = body["extra"]["logs"], body["extra"]["counters"]
    if set(logs) != set(COUNTED) or any(type(n) is not int or n < 0 for n in logs.values()):
        raise ValueError("it counts other logs")
    if counters["tick"] != body["agent_steps"] or any(type(n) is not int for n in counters.values()):
        raise ValueError("its counters disagree")
    for name, position in logs.items():
        size = (seen.path / LOGS[name]).stat().st_size
        if size < position:
            raise ValueError(f"{LOGS[name]} has {size} bytes where it counted {position}")
        digest = body["extra"].get("sha256", {}).get(name)
        if digest is not None and prefix_digest(seen.path / LOGS[name], position) != digest:
            raise ValueError(f"{LOGS[name]} was changed since")
