"""Aggregate scores of many runs, and how sure we are of them.

The statistics are those of Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical
precipice". Scores are a matrix (runs x tasks), or a list with one array per task where the numbers of runs
differ. The runs are the last axis of such an array; axes before it, if any, are bootstrap draws.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as student

from vcrl.core.errors import UserError

Scores = np.ndarray | Sequence[np.ndarray]
Statistic = Callable[[list[np.ndarray]], Any]  # maps arrays [..., runs], one per task, to an array [...]


class Interval(NamedTuple):
    """A statistic and the ends of its confidence interval."""

    point: float
    low: float
    high: float


class Band(NamedTuple):
    """An interval at every point of a curve, each an array over the points."""

    point: np.ndarray
    low: np.ndarray
    high: np.ndarray


def tasks_of(scores: Scores, names: Sequence[str] | None = None) -> list[np.ndarray]:
    """One float array per task, checked: an average over a missing run would look like a result."""
    if isinstance(scores, np.ndarray):
        if scores.ndim != 2:
            raise UserError(f"a score matrix is runs x tasks; this one has shape {scores.shape}")
        scores = list(scores.T)
    tasks = [np.asarray(task, dtype=float) for task in scores]
    if not tasks:
        raise UserError("no scores: at least one task is needed")
    for index, task in enumerate(tasks):
        name = repr(names[index]) if names else f"number {index}"
        if task.ndim == 0 or task.shape[-1] == 0:
            raise UserError(f"task {name} has no runs")
        if not np.isfinite(task).all():
            missing = int((~np.isfinite(task)).sum())
            raise UserError(f"task {name}: {missing} of {task.size} scores are not finite; leave those out")
    return tasks


def mean(scores: Scores) -> Any:
    """Mean over tasks of the mean over runs, so that every task weighs the same."""
    return _task_means(scores).mean(axis=0)


def median(scores: Scores) -> Any:
    """Median over tasks of the mean over runs."""
    return np.median(_task_means(scores), axis=0)


def iqm(scores: Scores) -> Any:
    """Interquartile mean: a quarter of the runs cut from either end, all tasks pooled, the rest averaged."""
    pooled = np.concatenate(tasks_of(scores), axis=-1)
    runs = pooled.shape[-1]
    first, last = runs // 4, runs - runs // 4
    return np.partition(pooled, (first, last - 1), axis=-1)[..., first:last].mean(axis=-1)


def optimality_gap(scores: Scores, threshold: float = 1.0) -> Any:
    """How far the scores fall short of `threshold`; exceeding it earns nothing."""
    short = [(threshold - np.minimum(task, threshold)).mean(axis=-1) for task in tasks_of(scores)]
    return np.stack(short).mean(axis=0)


def interval(
    scores: Scores,
    statistic: Statistic,
    *,
    draws: int = 2000,
    level: float = 0.95,
    seed: int = 0,
    names: Sequence[str] | None = None,
) -> Interval:
    """Percentile interval of a statistic by stratified bootstrap: runs are redrawn within each task.

    It answers "what if other seeds had been drawn", for these tasks. With one run per task it has no width.
    """
    tasks = tasks_of(scores, names)
    if any(task.ndim != 1 for task in tasks):
        raise UserError("one task's scores are one number per run; found an array with more axes")
    redrawn = resample(tasks, draws, np.random.default_rng(seed))
    low, high = np.quantile(statistic(redrawn), ends(level))
    return Interval(float(statistic(tasks)), float(low), float(high))


def mean_of_more(scores: np.ndarray, runs: int, level: float = 0.95) -> Interval:
    """Mean of one task's scores, and where the mean of so many further runs should lie if nothing else changes.

    A prediction interval by Student's t: it allows for the chance in both means, and takes the spread of the further
    runs to be that of these. A single run tells nothing of spread: its interval is infinite.
    """
    (task,) = tasks_of([scores])
    point, count = float(task.mean()), task.size
    if count < 2:
        return Interval(point, -np.inf, np.inf)
    quantile = float(student.ppf((1 + level) / 2, count - 1))
    reach = quantile * float(task.std(ddof=1)) * np.sqrt(1 / count + 1 / runs)
    return Interval(point, point - reach, point + reach)


def band(values: np.ndarray, *, draws: int = 2000, level: float = 0.95, seed: int = 0) -> Band:
    """IQM over runs, with its interval, at every point of curves [runs, points].

    Ranks are redrawn instead of runs: at each point that is the same bootstrap, and as the IQM of redrawn ranks weighs
    the sorted values by numbers that do not depend on them, all points are one product of matrices.
    """
    drawn = _rank_weights(len(values), draws, seed) @ np.sort(values, axis=0)
    low, high = np.quantile(drawn, ends(level), axis=0)
    return Band(iqm([values.T]), low, high)


@lru_cache(maxsize=4)  # a figure has many curves of as many runs
def _rank_weights(runs: int, draws: int, seed: int) -> np.ndarray:
    """What each rank weighs in the IQM of redrawn ranks [draws, runs]."""
    cut = runs // 4
    kept = np.sort(_picks(np.random.default_rng(seed), draws, runs), axis=1)[:, cut : runs - cut]
    return _counts(kept, runs) / kept.shape[1]


def resample(tasks: list[np.ndarray], draws: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Each task's runs redrawn so many times [draws, runs], as many as there are, with replacement."""
    return [task[_picks(rng, draws, len(task))] for task in tasks]


@lru_cache(maxsize=2)  # methods with as many runs can share their draws: each interval is about one of them
def redraws(sizes: tuple[int, ...], draws: int, seed: int | tuple[int, int]) -> list[np.ndarray]:
    """The same without the scores: how often each run was drawn, enough for what is a sum over runs.

    One array [draws, runs] per task, in single precision, in which such counts are exact.
    """
    rng = np.random.default_rng(seed)
    return [_counts(_picks(rng, draws, runs), runs).astype(np.float32) for runs in sizes]


def ends(level: float) -> tuple[float, float]:
    """The quantiles between which a share `level` of the draws lies."""
    return (1 - level) / 2, (1 + level) / 2


def _picks(rng: np.random.Generator, draws: int, runs: int) -> np.ndarray:
    return rng.integers(runs, size=(draws, runs))


def _counts(picks: np.ndarray, runs: int) -> np.ndarray:
    """How often each of so many runs is among the picks of a row."""
    draws = len(picks)
    places = picks + runs * np.arange(draws)[:, None]
    return np.bincount(places.ravel(), minlength=draws * runs).reshape(draws, runs)


def _task_means(scores: Scores) -> np.ndarray:
    return np.stack([task.mean(axis=-1) for task in tasks_of(scores)])
