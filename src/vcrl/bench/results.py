"""Results that are kept: finished run folders in, tables of text out, one row a seed.

    python -m vcrl.bench.results add RUN...     puts runs into results/, with the games that prove their scores
    python -m vcrl.bench.results page           writes docs/results.md and its figures from results/

A suite has three tables: `<suite>.csv` with scores and where they come from, `<suite>_episodes.csv` with every game of
the final evaluation, `<suite>_q_error.csv` with the Q-errors along training. All scores of a suite are of one protocol.
"""

import csv
import io
import math
import re
import sys
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

from vcrl.bench import proofs
from vcrl.core.config import digest
from vcrl.core.errors import UserError
from vcrl.envs import registry
from vcrl.runs.facts import hardware
from vcrl.runs.files import read_limited, write_atomic, writing
from vcrl.runs.logs import Episode
from vcrl.runs.reading import Run, check_record, read_run
from vcrl.runs.strict import BAD

Row = dict[str, str]

LARGEST = 256 * 2**20  # bytes of a table

KEY = ("task", "method", "config_hash", "commit", "seed")  # rows that agree in these are replaced
SCORE_COLUMNS = (
    "suite",
    "task",
    "method",
    "seed",
    "score",
    "normalised",
    "episodes",
    "agent_steps",
    "protocol",
    "protocol_hash",
    "config_hash",
    "commit",
    "command",
    "seeds",
    "hardware",
    "wall_clock_s",
    "finished",
    "not_finite_since",
)
COUNTERS = ("seed", "episode", "agent_steps")  # sorted as numbers
KINDS = ("", "_episodes", "_q_error")  # the tables of a suite


class Tables(NamedTuple):
    """What one run, or all of a suite, has to say."""

    scores: list[Row]
    episodes: list[Row]
    q_error: list[Row]


class Final(NamedTuple):
    """The final evaluation of a finished run."""

    scores: list[Row]  # of every seed
    games: list[list[Episode]]  # behind each of them
    evaluations: list[Episode]  # all games, those on the way included


def add(
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN...")],
    out: Path = Path("results"),
) -> None:
    """Put finished runs into the tables; rows of the same task, method, config, seed and commit are replaced.

    Args:
        runs: run folders, every seed finished
        out: where the tables are
    """
    if not runs:
        raise UserError("name at least one run folder: python -m vcrl.bench.results add RUN...")
    found = [_read_run(path) for path in runs]
    read = [tables_of(run) for run in found]  # all of them before anything is written
    suites = list(dict.fromkeys(tables.scores[0]["suite"] for tables in read))
    merged: dict[str, Tables] = {}
    for suite in suites:
        merged[suite] = load(out, suite)
        for tables in read:
            if tables.scores[0]["suite"] == suite:
                merged[suite] = _merge(merged[suite], tables)
        _one_protocol(out / f"{suite}.csv", merged[suite].scores)
    for suite, tables in merged.items():
        for kind, rows in zip(KINDS, tables, strict=True):
            if rows:
                _write(out / f"{suite}{kind}.csv", rows)
        print(f"{out / suite}.csv: {len(tables.scores)} rows")
    for run in found:
        games, told = proofs.keep(run, out), "no receipts: its games are not kept"
        if games is not None:
            told = f"vcrl audit {games} plays the games behind its scores again"
        print(f"{run.path}: {told}")
    for row in (row for tables in read for row in tables.scores if row["not_finite_since"]):
        print(
            f"{row['task']}, {row['method']}, seed {row['seed']}: not finite since {row['not_finite_since']} "
            "agent steps; scored with its last finite weights, and marked"
        )


def page(results: Path = Path("results"), docs: Path = Path("docs")) -> None:
    """Write docs/results.md and its figures.

    Args:
        results: where the tables are
        docs: where results.md and images/ go, and results-notes.md is looked for
    """
    from vcrl.bench.page import write

    try:
        for path in write(results, docs):
            print(f"wrote {path}")
    except BAD as error:
        raise UserError(f"a table in {results} is damaged ({error}): restore it") from error


def _read_run(path: Path) -> Run:
    """A run whose suite can name a file: it may be a stranger's."""
    run = read_run(path)
    check_record(path, run.record)
    if not re.fullmatch("[A-Za-z0-9_-]+", suite := run.record["suite"]):
        raise UserError(f"{path} is of a suite that cannot name a table: '{suite[:60]}'")
    return run


def tables_of(run: Run) -> Tables:
    """The rows of one finished run; a run that is not finished or lacks an episode is refused."""
    found = final(run)
    scores, q_error = found.scores, list[Row]()
    for row in run.metrics():
        if errors := {name: row[name] for name in row if name.startswith("q_error/")}:
            for i, key in enumerate(scores):
                named = {name: key[name] for name in KEY} | {"agent_steps": str(row["agent_steps"])}
                q_error.append(named | {name: _number(errors[name][i]) for name in sorted(errors)})
    return Tables(scores, episode_rows(found), q_error)


def episode_rows(found: Final) -> list[Row]:
    """A row for every game of a final evaluation."""
    rows: list[Row] = []
    for score, mine in zip(found.scores, found.games, strict=True):
        named = {name: score[name] for name in KEY}
        for game in mine:
            told = {"episode": str(game.episode), "score": _number(game.score), "length": str(game.length)}
            rows.append(named | told)
    return rows


def final(run: Run) -> Final:
    """The scores of one finished run and the games behind them; its metrics are not read."""
    where, record, status = run.path, run.record, run.status
    if (state := status.get("state", "not started")) != "done":
        raise UserError(f"{where} is not finished ({state}): the same training command continues it")
    try:
        protocol, seeds = record["protocol"], [int(seed) for seed in record["seeds"]]
        budget, wanted = int(record.get("budget", protocol["budget"])), int(protocol["eval_episodes"])
        failed = dict(status["not_finite_since"])
        facts = record.get("facts") or {}
        common = {
            "suite": record["suite"],
            "task": record["task"],
            "method": record["method"],
            "episodes": str(wanted),
            "agent_steps": str(budget),
            "protocol": protocol["name"],
            "protocol_hash": record["protocol_hash"],
            "config_hash": digest(record["config"]),
            "commit": _commit(facts),
            "command": facts.get("command") or "",
            "seeds": seeds_text(seeds),
            "hardware": "; then ".join(map(str, status.get("hardware") or [hardware(facts)])),
            "wall_clock_s": f"{status['seconds']:.0f}",
            "finished": status.get("finished") or "",
        }
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{where} lacks or garbles {error}: it was not written by this version") from error
    evaluations, played = run.evaluations(), dict[int, list[Episode]]()
    for game in evaluations:
        if game.agent_steps == budget:
            played.setdefault(game.seed, []).append(game)
    scores: list[Row] = []
    games: list[list[Episode]] = []
    for seed in seeds:
        mine = sorted(played.get(seed, []), key=attrgetter("episode"))
        if len(mine) != wanted or [game.episode for game in mine] != list(range(wanted)):
            raise UserError(
                f"{where}: seed {seed} has {len(mine)} of {wanted} episodes of its final evaluation"
            )
        score = sum(game.score for game in mine) / wanted
        own = {
            "seed": str(seed),
            "score": _number(score),
            "normalised": _number(normalised(record["task"], score)),
            "not_finite_since": str(failed.get(str(seed), "")),
        }
        row = common | own
        scores.append({name: row[name] for name in SCORE_COLUMNS})
        games.append(mine)
    return Final(scores, games, evaluations)


def normalised(task: str, score: float) -> float:
    """Random play is 0; 1 is a human in Atari, the best possible where that is known. Otherwise nan."""
    known = registry.TASKS.get(task)
    if known is None or known.random_score is None or known.reference_score is None:
        return math.nan
    return registry.normalise(known, score)


def seeds_text(seeds: Sequence[int]) -> str:
    """As the command line takes them: 0:5 for a range, 0,3,7 for a list."""
    first, last = seeds[0], seeds[-1]
    if len(seeds) > 1 and list(seeds) == list(range(first, last + 1)):
        return f"{first}:{last + 1}"
    return ",".join(map(str, seeds))


def suites(folder: Path) -> list[str]:
    """The suites that have results."""
    names = sorted(path.stem for path in folder.glob("*.csv"))
    return [name for name in names if not name.endswith(KINDS[1:])]


def load(folder: Path, suite: str) -> Tables:
    """The tables of a suite as they are on disk; those that are missing are empty."""
    return Tables(*(_read(folder / f"{suite}{kind}.csv") for kind in KINDS))


def _read(path: Path) -> list[Row]:
    try:
        text = read_limited(path, LARGEST).decode()
        rows = list(csv.DictReader(io.StringIO(text, newline=""), restval="", strict=True))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror})") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} is damaged ({error}): restore it, or choose another folder") from error
    if number := next((i for i, row in enumerate(rows, start=2) if None in row), None):
        raise UserError(f"{path}, line {number} has more cells than columns: restore the file")
    wanted = {*KEY, *(SCORE_COLUMNS if not path.stem.endswith(KINDS[1:]) else ())}
    if rows and (missing := sorted(wanted - rows[0].keys())):
        raise UserError(f"{path} has no column '{missing[0]}': it was not written by this version")
    return rows


def _merge(old: Tables, new: Tables) -> Tables:
    """Old rows, except all those of a seed that is there anew."""
    anew = {key_of(row) for row in new.scores}
    kept = [[row for row in rows if key_of(row) not in anew] for rows in old]
    try:
        return Tables(*(sorted(a + b, key=_order) for a, b in zip(kept, new, strict=True)))
    except ValueError as error:
        suite = new.scores[0]["suite"]
        raise UserError(f"a table of {suite} counts with what is no number ({error}): restore it") from error


def _order(row: Row) -> tuple[str | int, ...]:
    return (*key_of(row)[:-1], *(int(row.get(name, 0)) for name in COUNTERS))


def key_of(row: Row) -> tuple[str, ...]:
    return tuple(row[name] for name in KEY)


def _one_protocol(path: Path, rows: list[Row]) -> None:
    found = sorted({f"{row['protocol']} [{row['protocol_hash']}]" for row in rows})
    if len(found) > 1:
        raise UserError(
            f"{path} would hold scores of different protocols, {' and '.join(found)}: choose another --out"
        )


def _write(path: Path, rows: list[Row]) -> None:
    found = list(
        dict.fromkeys(name for row in rows for name in row)
    )  # a method may measure more than another
    measured = sorted(name for name in found if name.startswith("q_error/"))
    columns = [name for name in found if name not in measured] + measured
    text = io.StringIO()
    table = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text.getvalue().encode())


def _commit(facts: dict[str, Any]) -> str:
    """Twelve digits name it, and a mark says that the code was not quite that of the commit."""
    return f"{(facts.get('commit') or '')[:12]}{'-dirty' if facts.get('dirty') else ''}"


def _number(value: float) -> str:
    """Enough digits for any score, and no more; what is not finite or not known is empty."""
    return f"{value:.8g}" if math.isfinite(value) else ""


def main(arguments: Sequence[str] | None = None) -> None:
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        tyro.extras.subcommand_cli_from_dict(
            {"add": add, "page": page}, prog="python -m vcrl.bench.results", args=words
        )
    except UserError as error:
        print(f"vcrl: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
