"""What many runs on many tasks come to, for several methods at once, and how sure we are of it.

Scores are a matrix (runs x tasks) per method, the form of rliable. NaN is a run that is missing, and is left out; any
other score that is not finite is refused. Methods, and tasks of one method, may have different numbers of runs: mean,
median, optimality gap, profiles and probabilities of improvement weigh every task the same, the IQM pools the runs
there are. A task of which a method has no run at all is refused by name: `on_common_tasks` takes it from everybody.

Intervals are percentiles of a stratified bootstrap: runs are redrawn within each task.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from vcrl.bench import stats
from vcrl.bench.stats import Band, Interval, Statistic, ends, redraws, resample
from vcrl.core.errors import UserError, unknown

Matrices = Mapping[str, np.ndarray]
Aggregates = Mapping[str, Mapping[str, Interval]]  # by method and name of the statistic
STATISTICS = ("iqm", "optimality_gap", "median", "mean")
LESS_IS_BETTER = ("optimality_gap",)


class Common(NamedTuple):
    """Scores on the tasks that every method has, and those tasks; `left_out` has a line for each of the others."""

    scores: dict[str, np.ndarray]
    tasks: list[str]
    left_out: list[str]


def present(matrix: np.ndarray, where: str = "scores", tasks: Sequence[str] | None = None) -> list[np.ndarray]:
    """The runs that are there, an array per task."""
    matrix = np.asarray(matrix, dtype=float)
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise UserError(f"{where}: a score matrix is runs x tasks; this one has shape {matrix.shape}")
    if tasks is not None and len(tasks) != matrix.shape[1]:
        raise UserError(f"{where}: {matrix.shape[1]} columns of scores, but {len(tasks)} tasks")
    found = [column[~np.isnan(column)] for column in matrix.T]
    for index, runs in enumerate(found):
        name = tasks[index] if tasks is not None else f"task number {index}"
        if not len(runs):
            raise UserError(f"{where} has no run of {name}: leave the one or the other out")
        if not np.isfinite(runs).all():
            raise UserError(f"{where}: a score of {name} is not finite; mark a failed run as missing (NaN)")
    return found


def on_common_tasks(scores: Matrices, tasks: Sequence[str]) -> Common:
    """Without the tasks of which some method has no run, since averages over different tasks do not compare."""
    if not scores:
        raise UserError("no scores: at least one method is needed")
    there = {m: ~np.isnan(np.asarray(x, dtype=float)).all(axis=0) for m, x in scores.items()}
    kept = np.logical_and.reduce(list(there.values()))
    lines = [
        f"{task}: no run of {', '.join(m for m in scores if not there[m][i])}"
        for i, task in enumerate(tasks)
        if not kept[i]
    ]
    if not kept.any():
        raise UserError(f"no task has runs of all of {', '.join(scores)}: compare fewer methods")
    return Common(
        {m: np.asarray(x, dtype=float)[:, kept] for m, x in scores.items()},
        [task for i, task in enumerate(tasks) if kept[i]],
        lines,
    )


def runs_per_task(matrix: np.ndarray) -> tuple[int, int]:
    """The fewest and the most runs of any task."""
    counts = (~np.isnan(np.asarray(matrix, dtype=float))).sum(axis=0)
    return int(counts.min()), int(counts.max())


def aggregates(
    scores: Matrices,
    names: Sequence[str] = STATISTICS,
    *,
    tasks: Sequence[str] | None = None,
    threshold: float = 1.0,
    draws: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, dict[str, Interval]]:
    """Each statistic with its interval, by method; `threshold` is the score from which the optimality gap is zero."""
    found: dict[str, dict[str, Interval]] = {}
    chosen = _chosen(names, threshold)
    for method, matrix in scores.items():
        runs = present(matrix, method, tasks)
        redrawn = resample(runs, draws, np.random.default_rng(seed))
        found[method] = {
            name: Interval(float(statistic(runs)), *_percentiles(statistic(redrawn), level))
            for name, statistic in chosen.items()
        }
    return found


def difference(
    first: np.ndarray,
    second: np.ndarray,
    statistic: str = "iqm",
    *,
    threshold: float = 1.0,
    draws: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Statistic of the first minus that of the second; the two are redrawn independently."""
    runs = present(first, "the first method"), present(second, "the second method")
    (of,) = _chosen([statistic], threshold).values()
    rng = np.random.default_rng(seed)
    a, b = (of(resample(x, draws, rng)) for x in runs)
    return Interval(float(of(runs[0]) - of(runs[1])), *_percentiles(a - b, level))


def profiles(
    scores: Matrices,
    taus: np.ndarray,
    *,
    tasks: Sequence[str] | None = None,
    draws: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Band]:
    """Performance profile: the share of runs that score above each tau, with its interval, by method."""
    taus = np.asarray(taus, dtype=float)
    found: dict[str, Band] = {}
    for method, matrix in scores.items():
        rng, runs = np.random.default_rng(seed), present(matrix, method, tasks)
        point, drawn = np.zeros(len(taus)), np.zeros((draws, len(taus)))
        for task in runs:
            above = (task[:, None] > taus) / (len(task) * len(runs))
            point += above.sum(axis=0)
            drawn += redraws(rng, draws, len(task)) @ above
        low, high = np.quantile(drawn, ends(level), axis=0)
        found[method] = Band(point, low, high)
    return found


def improvement(
    first: np.ndarray,
    second: np.ndarray,
    *,
    tasks: Sequence[str] | None = None,
    draws: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Probability that a run of the first scores above one of the second on the same task, averaged over tasks.

    A tie counts half.
    """
    runs = [present(x, name, tasks) for x, name in ((first, "the first method"), (second, "the second method"))]
    if len(runs[0]) != len(runs[1]):
        raise UserError(f"the methods have {len(runs[0])} and {len(runs[1])} tasks: they must have the same")
    rng = np.random.default_rng(seed)
    point, drawn = 0.0, np.zeros(draws)
    for a, b in zip(*runs, strict=True):
        wins = (np.sign(a[:, None] - b) + 1) / (2 * a.size * b.size * len(runs[0]))
        point += float(wins.sum())
        drawn += ((redraws(rng, draws, a.size) @ wins) * redraws(rng, draws, b.size)).sum(axis=1)
    return Interval(point, *_percentiles(drawn, level))


def improvements(
    scores: Matrices, pairs: Sequence[tuple[str, str]] | None = None, **options: int | float
) -> dict[tuple[str, str], Interval]:
    """Probability of improvement of the first over the second for each pair: by default, of the last over the others."""
    names = list(scores)
    pairs = [(names[-1], other) for other in names[:-1]] if pairs is None else pairs
    for name in (name for pair in pairs for name in pair):
        if name not in scores:
            raise unknown("method", name, scores)
    return {(a, b): improvement(scores[a], scores[b], **options) for a, b in pairs}  # type: ignore[arg-type]


def _chosen(names: Sequence[str], threshold: float) -> dict[str, Statistic]:
    known: dict[str, Statistic] = {
        "iqm": stats.iqm,
        "optimality_gap": lambda tasks: stats.optimality_gap(tasks, threshold),
        "median": stats.median,
        "mean": stats.mean,
    }
    for name in names:
        if name not in known:
            raise unknown("statistic", name, known)
    return {name: known[name] for name in names}


def _percentiles(drawn: np.ndarray, level: float) -> tuple[float, float]:
    low, high = np.quantile(drawn, ends(level))
    return float(low), float(high)
