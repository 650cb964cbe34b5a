"""What is kept in results/, by method and task, and what can be said of it: matches, does not, cannot be told."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vcrl.bench import paper, results
from vcrl.bench.figures import Curve, Known
from vcrl.bench.looks import looks
from vcrl.bench.paper import Published
from vcrl.bench.results import Row
from vcrl.bench.stats import Interval, interval, mean_of_more
from vcrl.core.errors import UserError

IMAGINED, REAL = "q_error/imagined", "q_error/real"
FEW = 4  # runs; three of one method lie all above three of another by chance in 1 of 10 cases, either way counted
Lines = list[str]


class Cell(NamedTuple):
    """One method on one task: a row for every run of a seed, in order."""

    task: str
    method: str
    rows: list[Row]

    @property
    def scores(self) -> np.ndarray:
        return np.array([float(row["score"]) for row in self.rows])

    @property
    def normalised(self) -> np.ndarray:
        return np.array([float(row["normalised"] or "nan") for row in self.rows])

    @property
    def name(self) -> str:
        """What the paper's table of this suite calls the method; empty where it has no such method."""
        return paper.name_of(self.rows[0].get("suite", ""), self.method)

    @property
    def told(self) -> float | None:
        """The paper's score of this method on this task."""
        control = paper.dmc().get(self.rows[0].get("protocol", ""), {}).get(self.name, {}).get(self.task)
        return paper.scores().get(self.name, {}).get(self.task) if control is None else control.mean

    @property
    def behind(self) -> int:
        """How many runs are behind what is told."""
        return paper.DMC_RUNS if self.rows[0].get("suite") == "dmc" else paper.RUNS[self.name]

    @property
    def published(self) -> Published | None:
        """Single runs of this method on this task that were published: of Atari."""
        return paper.published().get(self.name, {}).get(self.task)


class Suite(NamedTuple):
    name: str
    cells: list[Cell]  # by task, the usual methods first
    curves: dict[str, dict[str, dict[str, Curve]]]  # Q-errors by task, method and column

    def of(self, method: str) -> dict[str, Cell]:
        return {cell.task: cell for cell in self.cells if cell.method == method}

    def told(self) -> dict[str, list[Cell]]:
        """By method, what the paper has a score of."""
        found: dict[str, list[Cell]] = {}
        for cell in sorted((c for c in self.cells if c.told is not None), key=lambda c: paper.order(c.name)):
            found.setdefault(cell.method, []).append(cell)
        return found

    def both(self) -> list[tuple[Cell, Cell]]:
        """SPR and VCR on the tasks that have both."""
        spr, vcr = self.of("spr"), self.of("vcr")
        return [(spr[task], vcr[task]) for task in spr if task in vcr]


def read(folder: Path) -> list[Suite]:
    """The suites in a folder of results, checked: what stands in one table must be comparable."""
    names = results.suites(folder)
    if not names:
        raise UserError(
            f"no results in {folder}: put some there with python -m vcrl.bench.results add RUN..."
        )
    return [_suite(folder, name) for name in names]


def _suite(folder: Path, name: str) -> Suite:
    tables, path = results.load(folder, name), folder / f"{name}.csv"
    if len(found := {row["protocol_hash"] for row in tables.scores}) > 1:
        raise UserError(f"{path} has scores of protocols {' and '.join(sorted(found))}: keep those of one")
    grouped: dict[tuple[str, str], list[Row]] = {}
    for row in tables.scores:
        grouped.setdefault((row["task"], row["method"]), []).append(row)
    order = list(looks(row["method"] for row in tables.scores))
    cells = [Cell(t, m, grouped[t, m]) for t, m in sorted(grouped, key=lambda k: (k[0], order.index(k[1])))]
    for cell in cells:
        configs = sorted({row["config_hash"] for row in cell.rows})
        what = f"{path}: {cell.task}, {cell.method} has"
        if len(configs) > 1:
            raise UserError(f"{what} scores of configs {' and '.join(configs)}: keep those of one")
        # Trained anew by another version, a seed is another run wherever the two round differently; else it is one.
        same = Counter((row["seed"], row["score"]) for row in cell.rows)
        if twice := [seed for (seed, _), count in same.items() if count > 1]:
            raise UserError(f"{what} the same score of seed {twice[0]} by two commits: keep one of them")
    curves: dict[str, dict[str, dict[str, Curve]]] = {}
    measured: dict[tuple[str, ...], dict[int, Row]] = {}
    for row in tables.q_error:
        measured.setdefault(results.key_of(row), {})[int(row["agent_steps"])] = row
    for cell in cells:
        if found := _curves([measured.get(results.key_of(row), {}) for row in cell.rows]):
            curves.setdefault(cell.task, {})[cell.method] = found
    return Suite(name, cells, curves)


def _curves(seeds: Sequence[Mapping[int, Row]]) -> dict[str, Curve]:
    """Q-errors of one method on one task, at the steps at which all seeds were measured that were at all."""
    seeds = [at for at in seeds if at]
    steps = sorted(set.intersection(*map(set, seeds))) if seeds else []
    if not steps:
        return {}
    found = {}
    for name in (IMAGINED, REAL):
        values = np.array([[float(at[step].get(name) or "nan") for step in steps] for at in seeds])
        if np.isfinite(values).any():
            found[name] = Curve(np.array(steps), values)
    return found


def verdict(cell: Cell) -> str | None:
    """Whether our mean is one that as many published runs could have had: inside, below or above.

    Where single runs were not published: whether the paper's mean is one that as many more of our runs could have had.
    None where nothing was published, or a single seed of ours cannot tell.
    """
    mean_score = float(cell.scores.mean())
    if cell.published is not None:
        return paper.band(cell.name, cell.task, len(cell.rows)).verdict(mean_score)
    if cell.told is None or len(cell.rows) < 2:
        return None
    _, low, high = mean_of_more(cell.scores, cell.behind)
    return "inside" if low <= cell.told <= high else "below" if mean_score < cell.told else "above"


def known_of(cell: Cell) -> Known | None:
    if (found := cell.published) is not None:
        return Known(found.mean, (found.p5, found.p95), paper.band(cell.name, cell.task, len(cell.rows)))
    return None if cell.told is None else Known(cell.told)


def errors_of(suite: Suite) -> dict[str, tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]:
    """The last Q-errors of SPR and VCR, a number a seed, on tasks where both have those of imagined states."""
    found = {}
    for task, methods in suite.curves.items():
        if all(IMAGINED in methods.get(m, {}) for m in ("spr", "vcr")):
            spr, vcr = ({k: c.values[:, -1] for k, c in methods[m].items()} for m in ("spr", "vcr"))
            found[task] = spr, vcr
    return found


def difference(first: np.ndarray, second: np.ndarray, statistic: Callable[..., object]) -> Interval | None:
    """Second less first; None where seeds are too few for an interval to be believed, or are not finite."""
    if min(len(first), len(second)) < FEW or not (np.isfinite(first).all() and np.isfinite(second).all()):
        return None
    return interval([first, second], lambda runs: statistic([runs[1]]) - statistic([runs[0]]))  # type: ignore


def word(apart: Interval | None) -> str:
    if apart is None:
        return "not judged"
    return "higher" if apart.low > 0 else "lower" if apart.high < 0 else "undecided"
