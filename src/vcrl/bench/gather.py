"""What stands in one table or figure: scores of one suite and protocol, by task and method."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vcrl.bench import scores
from vcrl.bench.looks import looks
from vcrl.bench.scores import Found, Means, Score
from vcrl.core.config import digest

# Of a bank only what the paper's tables show, unless others are asked for.
BANKED = {
    "atari": ("DER", "OTRainbow", "CURL", "DrQ_eps", "SPR", "PlayVirtual"),
    "dmc": ("DrQ", "CURL_rerun"),
}


class Benchmark(NamedTuple):
    """Everything of one suite and protocol."""

    suite: str
    protocol: str
    rows: list[Score]  # our own and those of a bank
    tasks: list[str]
    names: list[str]  # of the methods, as `scores.labels` has them
    cells: dict[tuple[str, str], list[Score]]  # by task and name
    matrix: dict[str, np.ndarray]  # normalised, on all tasks
    common: list[str]  # tasks that every method has
    mixed: str  # in what the protocols differ, if they do
    evaluated: dict[str, Means]  # by run folder

    @property
    def title(self) -> str:
        return f"{self.suite}, {self.protocol}" if self.suite != self.protocol else self.suite

    @property
    def id(self) -> str:
        """A name for anchors and files; where a strange one had to be changed, with a mark that keeps it its own."""
        name = self.suite if self.suite == self.protocol else f"{self.suite}-{self.protocol}"
        plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in name.lower())[:80]
        return plain if plain == name else f"{plain}-{digest([self.suite, self.protocol])}"

    def on_common(self) -> dict[str, np.ndarray]:
        columns = [self.tasks.index(task) for task in self.common]
        return {name: values[:, columns] for name, values in self.matrix.items()}

    def own(self) -> list[str]:
        """Methods that were run here."""
        return [name for name in self.names if any(self._first(name).source == s for s in ("run", "results"))]

    def _first(self, name: str) -> Score:
        return next(rows[0] for (_, n), rows in self.cells.items() if n == name)


def benchmarks(found: Found, mixed: bool = False) -> list[Benchmark]:
    """Rows by suite and protocol; those of one protocol's name that differ in its fields are refused."""
    grouped: dict[tuple[str, str], list[Score]] = {}
    for row in found.rows:
        grouped.setdefault((row.suite, row.protocol), []).append(row)
    return [_benchmark(suite, protocol, rows, found, mixed) for (suite, protocol), rows in grouped.items()]


def _benchmark(suite: str, protocol: str, rows: list[Score], found: Found, mixed: bool) -> Benchmark:
    told = scores.mixture(rows, found.protocols)
    if told and not mixed:
        scores.refuse_mixed(rows, found.protocols)
    tasks, labels = scores.tasks_in(rows), scores.labels(rows)
    names = list(looks(labels))
    cells: dict[tuple[str, str], list[Score]] = {}
    for name, row in zip(labels, rows, strict=True):
        cells.setdefault((row.task, name), []).append(row)
    values = scores.matrix(rows, tasks, mixed=True)  # refused above, where the fields can be named
    matrix = {name: values[name] for name in names}
    common = scores.shared(matrix, tasks)
    return Benchmark(suite, protocol, rows, tasks, names, cells, matrix, common, told, found.evaluated)


def choose_banked(found: Found, own: Found, methods: Sequence[str] | None) -> Found:
    """What is comparable with our own runs, or all if there are none; known methods unless others are named."""
    keys = {(row.suite, row.protocol) for row in own.rows}
    rows = [row for row in found.rows if not keys or (row.suite, row.protocol) in keys]
    if methods is None:
        rows = [row for row in rows if row.method in BANKED[row.suite]]
    return found._replace(rows=rows)
