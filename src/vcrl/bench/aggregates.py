"""What many runs on many tasks come to, for several methods at once, and how sure we are of it.

Scores are a matrix (runs x tasks) per method, the form of rliable. NaN is a run that is missing, and is left out; any
other score that is not finite is refused. Methods, and tasks of one method, may have different numbers of runs: mean,
median, optimality gap, profiles and probabilities of improvement weigh every task the same, the IQM pools the runs
there are. A task of which a method has no run at all is refused by name; `scores.shared` tells the others.

Intervals are percentiles of a stratified bootstrap: runs are redrawn within each task.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from vcrl.bench import stats
from vcrl.bench.stats import Band, Interval, Statistic, ends, redraws, resample
from vcrl.core.errors import UserError, unknown

Matrices = Mapping[str, np.ndarray]
Aggregates = Mapping[str, Mapping[str, Interval]]  # by method and name of the statistic
STATISTICS = ("iqm", "optimality_gap", "median", "mean")
LESS_IS_BETTER = ("optimality_gap",)


def present(
    matrix: np.ndarray, where: str = "scores", tasks: Sequence[str] | None = None
) -> list[np.ndarray]:
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


def published(point: float) -> Interval:
    """A number of which no interval is known."""
    return Interval(point, np.nan, np.nan)


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


def differences(
    scores: Matrices,
    pairs: Sequence[tuple[str, str]],
    statistic: str = "iqm",
    *,
    draws: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[tuple[str, str], Interval]:
    """The same for many pairs: each method is redrawn once, independently of all others."""
    (of,) = _chosen([statistic], 1.0).values()
    points: dict[str, float] = {}
    drawn: dict[str, np.ndarray] = {}
    for place, name in enumerate(dict.fromkeys(name for pair in pairs for name in pair)):
        runs = present(scores[name], name)
        points[name] = float(of(runs))
        drawn[name] = of(resample(runs, draws, np.random.default_rng((seed, place))))
    return {
        (a, b): Interval(points[a] - points[b], *_percentiles(drawn[a] - drawn[b], level)) for a, b in pairs
    }


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
        runs = present(matrix, method, tasks)
        point, drawn = np.zeros(len(taus)), np.zeros((draws, len(taus)))
        for task, counts in zip(runs, redraws(_sizes(runs), draws, seed), strict=True):
            above = (task[:, None] > taus).astype(np.float32)
            point += above.mean(axis=0)
            drawn += (counts @ above) / len(task)
        low, high = np.quantile(drawn / len(runs), ends(level), axis=0)
        found[method] = Band(point / len(runs), low, high)
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
    runs = [
        present(x, name, tasks) for x, name in ((first, "the first method"), (second, "the second method"))
    ]
    if len(runs[0]) != len(runs[1]):
        raise UserError(f"the methods have {len(runs[0])} and {len(runs[1])} tasks: they must have the same")
    counts = [redraws(_sizes(x), draws, (seed, i)) for i, x in enumerate(runs)]
    point, drawn = 0.0, np.zeros(draws)
    for a, b, first_counts, second_counts in zip(*runs, *counts, strict=True):
        wins = (np.sign(a[:, None] - b) + 1).astype(np.float32)  # 2, 1 or 0 for a win, a tie or a loss
        pairs = 2 * a.size * b.size
        point += float(wins.sum(dtype=float)) / pairs
        drawn += np.einsum("ij,ij->i", first_counts @ wins, second_counts) / pairs
    return Interval(point / len(runs[0]), *_percentiles(drawn / len(runs[0]), level))


def improvements(
    scores: Matrices, pairs: Sequence[tuple[str, str]] | None = None, **options: int | float
) -> dict[tuple[str, str], Interval]:
    """Probability of improvement of the first over the second, for each pair; by default, of the last over the rest."""
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


def _sizes(runs: list[np.ndarray]) -> tuple[int, ...]:
    return tuple(len(task) for task in runs)


def _percentiles(drawn: np.ndarray, level: float) -> tuple[float, float]:
    low, high = np.quantile(drawn, ends(level))
    return float(low), float(high)
