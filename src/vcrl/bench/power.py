"""How many seeds a claim needs, judged by the spread of the runs at hand."""

from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from vcrl.bench import stats
from vcrl.bench.aggregates import difference, present, runs_per_task
from vcrl.bench.stats import Interval, Statistic, ends, resample
from vcrl.core.errors import UserError, unknown

NUMBERS = (3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100)  # of seeds a task, that are tried
STATISTICS: dict[str, Statistic] = {"iqm": stats.iqm, "mean": stats.mean}
WORDS = {"iqm": "IQM", "mean": "mean"}


class Spread(NamedTuple):
    """Where a statistic of so many seeds falls: mean and standard deviation, and the ends of its middle 95%."""

    mean: float
    sd: float
    low: float
    high: float


class Power(NamedTuple):
    """`difference` is that at hand; `chances` are those of seeing it with so many seeds a task, where computed.

    `needed` is the smallest number tried whose chance is enough, None if none is.
    """

    statistic: str
    runs: int
    difference: Interval
    chances: dict[int, float]
    wanted: float
    needed: int | None


def spread(
    matrix: np.ndarray, seeds: int, statistic: str = "iqm", *, draws: int = 2000, seed: int = 0
) -> Spread:
    """How a statistic varies from one set of so many seeds a task to another."""
    sets = _sets(present(matrix), seeds, draws, np.random.default_rng(seed))
    found = _statistic(statistic)(list(np.moveaxis(sets, 1, 0)))
    low, high = np.quantile(found, ends(0.95))
    return Spread(float(found.mean()), float(found.std(ddof=1)), float(low), float(high))


def seeds_needed(
    first: np.ndarray,
    second: np.ndarray,
    statistic: str = "iqm",
    *,
    chance: float = 0.8,
    level: float = 0.95,
    most: int = NUMBERS[-1],
    trials: int = 200,
    draws: int = 60,
    seed: int = 0,
) -> Power:
    """The smallest number of seeds a task with which the interval of the difference would exclude zero, mostly.

    An experiment with n seeds is imagined `trials` times by redrawing n runs of each task, for both methods; its
    interval is 1.96 standard deviations of its own `draws` redraws to either side, for a `level` of 95%. This takes the
    runs at hand for the whole truth: the fewer they are, the rougher the answer. Bootstrap intervals of fewer than
    about five seeds are too narrow, so that an answer below that is a hope.
    """
    of = _statistic(statistic)
    runs = [present(x, name) for x, name in ((first, "the first method"), (second, "the second method"))]
    if len(runs[0]) != len(runs[1]):
        raise UserError(f"the methods have {len(runs[0])} and {len(runs[1])} tasks: they must have the same")
    fewest = min(runs_per_task(first)[0], runs_per_task(second)[0])
    if fewest < 2:
        raise UserError(
            "one run of a task tells nothing of its spread: at least two of every task are needed"
        )
    chances: dict[int, float] = {}

    def enough(number: int) -> bool:
        if number not in chances:
            chances[number] = _chance(runs, number, of, level, trials, draws, seed)
        return chances[number] >= chance

    enough(fewest)
    numbers = sorted({fewest, *(n for n in NUMBERS if n <= most)})
    low, high = 0, len(numbers)  # the answer is in numbers[low : high + 1], past the end if nothing is enough
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(numbers[middle]) else (middle + 1, high)
    now = difference(first, second, statistic, level=level, seed=seed)
    needed = numbers[low] if low < len(numbers) else None
    return Power(statistic, fewest, now, dict(sorted(chances.items())), chance, needed)


def advice(power: Power, first: str, second: str) -> str:
    """One sentence, to stand below a comparison."""
    point, low, high = power.difference
    seen = f"{first} - {second} is {point:+.3f} in {WORDS[power.statistic]} [{low:+.3f}, {high:+.3f}]"
    seen += f" with {power.runs} seeds a task"
    many, now = max(power.chances), power.chances[power.runs]
    if power.needed is None:
        more = f"even {many} seeds a task would show it in only {power.chances[many]:.0%} of repeats"
    elif power.needed <= power.runs:
        more = f"a repeat with as many would show a difference in {now:.0%} of cases"
        if power.needed < power.runs:
            more += f", and about {power.needed} seeds would do for {power.wanted:.0%}"
    else:
        more = f"about {power.needed} seeds a task would show it in {power.wanted:.0%} of repeats"
        more += f", {power.runs} in {now:.0%}"
    return f"{seen}; if that is the truth, {more}."


def _chance(
    runs: list[list[np.ndarray]], number: int, of: Statistic, level: float, trials: int, draws: int, seed: int
) -> float:
    """Share of imagined experiments whose interval lies wholly on one side of zero, that of the difference at hand."""
    rng = np.random.default_rng((seed, number))
    sign = np.sign(of(runs[0]) - of(runs[1]))
    sets = [_sets(tasks, number, trials, rng) for tasks in runs]
    reach = NormalDist().inv_cdf(ends(level)[1])
    hits = 0
    for trial in zip(*sets, strict=True):
        found = of(list(trial[0])) - of(list(trial[1]))
        first, second = (of(resample(list(tasks), draws, rng)) for tasks in trial)
        hits += int(sign * found > reach * (first - second).std(ddof=1))
    return hits / trials


def _sets(tasks: list[np.ndarray], seeds: int, draws: int, rng: np.random.Generator) -> np.ndarray:
    """So many runs of every task, redrawn from those at hand [draws, tasks, seeds].

    What is redrawn from n runs varies less than new runs would, by (n - 1) / n in variance: widened by that.
    """
    found = []
    for task in tasks:
        middle, wider = task.mean(), np.sqrt(len(task) / max(len(task) - 1, 1))
        found.append((middle + wider * (task - middle))[rng.integers(len(task), size=(draws, seeds))])
    return np.stack(found, axis=1)


def _statistic(name: str) -> Statistic:
    if name not in STATISTICS:
        raise unknown("statistic", name, STATISTICS)
    return STATISTICS[name]
