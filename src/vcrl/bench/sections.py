"""What was found, as sections of a report: in short, aggregates, figures, one method against another, every game."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from vcrl.bench import aggregates, paper, power, sources, web
from vcrl.bench.aggregates import Aggregates
from vcrl.bench.gather import Benchmark
from vcrl.bench.pictures import Picture
from vcrl.bench.scores import Score
from vcrl.bench.spread import spread
from vcrl.bench.stats import Interval, interval, iqm, mean
from vcrl.bench.tables import number_text
from vcrl.bench.web import Cell, Heading, Html

NAMES = {"iqm": "IQM", "median": "median", "mean": "mean", "optimality_gap": "optimality gap"}
FEW = 4  # seeds, as in `bench/kept.py`, or methods
DASH = "-"
ADVISED = 2  # pairs, where methods are few, for which the seeds needed are worked out; each takes seconds


def short(part: Benchmark) -> list[str]:
    counts = [len(rows) for (_, name), rows in part.cells.items() if name in part.own()]
    seeds = (
        f"{min(counts)}"
        if counts and min(counts) == max(counts)
        else f"{min(counts, default=0)} to {max(counts, default=0)}"
    )
    lines = []
    if part.own():
        lines.append(
            f"Run here: {', '.join(part.own())}, on {count(len(part.tasks), 'task')}, {seeds} seeds each."
        )
    others = [name for name in part.names if name not in part.own()]
    if others:
        lines.append(f"Published runs of others, never mixed with ours: {', '.join(others)}.")
    if part.common:
        points = {m: float(iqm(aggregates.present(x))) for m, x in part.on_common().items()}
        best = max(points, key=lambda name: points[name])
        lines.append(
            f"Highest IQM of normalised scores over {count(len(part.common), 'task')}: {best} with {points[best]:.3f}."
        )
    lines += _missing(part)
    uneven = [
        name
        for name in part.own()
        if len({len(rows) for (_, n), rows in part.cells.items() if n == name}) > 1
    ]
    if uneven:
        lines.append(
            f"Numbers of seeds differ between tasks for {', '.join(uneven)}; tasks weigh the same all the same."
        )
    if counts and max(counts) < FEW:
        lines.append(f"{max(counts)} seeds or fewer are too few for intervals to be believed.")
    return lines


def _missing(part: Benchmark) -> list[str]:
    """Tasks that some method lacks, and so are in no aggregate."""
    lines = []
    for task in part.tasks:
        if task not in part.common:
            lacking = [name for name in part.names if (task, name) not in part.cells]
            why = f"no run of {', '.join(lacking)}" if lacking else "no reference scores to normalise with"
            lines.append(f"{task} is in no aggregate: {why}.")
    return (
        lines
        if len(lines) <= 8
        else [*lines[:8], f"... and {len(lines) - 8} more tasks are in no aggregate."]
    )


def aggregated(part: Benchmark, found: Aggregates, mark: str) -> list[str]:
    if not found:
        return []
    headings = [Heading("method"), Heading("runs a task", True), *(Heading(n, True) for n in NAMES.values())]
    rows = []
    for name, at in found.items():
        low, high = aggregates.runs_per_task(part.on_common()[name])
        runs = str(low) if low == high else f"{low} to {high}"
        cells = [Cell(fraction(at[key], low), at[key].point) for key in NAMES]
        rows.append([Cell(name), Cell(runs, low), *cells])
    full = part.suite == "atari" and set(part.common) == set(paper.scores()["SPR"])
    for method, told in paper.aggregates().items() if full else ():
        runs = paper.RUNS.get(method)
        cells = [Cell(f"{told[key]:.3f}", told[key]) if key in told else Cell(DASH) for key in NAMES]
        rows.append([Cell(f"{method} (paper)"), Cell(str(runs or DASH), runs), *cells])
    printed = " What is marked (paper) is what the paper printed." if full else ""
    note = (
        f"Normalised scores over {count(len(part.common), 'task')} that every method has, with 95% "
        "stratified-bootstrap intervals over seeds. Random play is 0; 1 is a human, or the best possible. A smaller "
        f"optimality gap is better.{printed}"
    )
    return [
        f"<h3>All tasks together{mark}</h3>",
        web.table(headings, rows, label="aggregate scores", sortable=True, name=f"aggregates-{part.id}"),
        f'<p class="quiet">{note}</p>',
    ]


def shown(pictures: Sequence[Picture], mark: str) -> list[str]:
    def lines(picture: Picture) -> list[str]:
        title, alt, caption, draw = picture
        told = f"Mixed protocols. {caption}" if mark else caption
        return [f"<h3>{web.html(title + mark)}</h3>", web.figure(draw(), alt, told, f"figure: {title}")]

    return [line for drawn in spread(lines, pictures) for line in drawn]


def improvement(part: Benchmark, chances: Mapping[tuple[str, str], Interval], mark: str) -> list[str]:
    if not chances:
        return []
    matrices, own = part.on_common(), part.own()
    rows, advice = [], []
    gaps = aggregates.differences(matrices, list(chances))
    for (first, second), chance in chances.items():
        gap = gaps[first, second]
        least = min(aggregates.runs_per_task(matrices[name])[0] for name in (first, second))
        word = (
            "not judged"
            if least < FEW
            else "higher"
            if gap.low > 0
            else "lower"
            if gap.high < 0
            else "undecided"
        )
        kind = {"higher": "above", "lower": "below"}.get(word, "")
        rows.append(
            [
                Cell(first),
                Cell(second),
                Cell(fraction(chance, least), chance.point),
                Cell(fraction(gap, least), gap.point),
                Cell(word, kind=kind),
            ]
        )
        if word == "undecided" and second in own and len(own) <= FEW and len(advice) < ADVISED:
            advice.append(
                power.advice(power.seeds_needed(matrices[first], matrices[second], trials=100), first, second)
            )
    headings = [
        Heading("method"),
        Heading("against"),
        Heading("P(improvement)", True),
        Heading("difference of IQM", True),
        Heading("it is"),
    ]
    lines = [
        f"<h3>One method against another{mark}</h3>",
        web.table(headings, rows, label="probability of improvement", sortable=True),
    ]
    some = (
        "Of so many methods, the highest of ours against all others. "
        if len(own) > len({f for f, _ in chances}) + 1
        else ""
    )
    lines.append(
        f'<p class="quiet">{some}P(improvement): the probability that a run of it scores above one of the other. '
        "Undecided where the 95% interval of the difference of IQM holds 0; "
        f"with fewer than {FEW} seeds nothing is judged.</p>"
    )
    return [*lines, *([web.items(advice)] if advice else [])]


def games(part: Benchmark, mark: str) -> list[str]:
    name = f"games-{part.id}"
    told = {(row.task, row.method): row for row in sources.read_paper().rows if row.protocol == part.protocol}
    headings = [
        Heading("task"),
        Heading("method"),
        Heading("score", True),
        Heading("95% interval", True),
        Heading("normalised", True),
        Heading("the paper's", True),
        Heading("seeds", True),
        Heading("source"),
        Heading("every seed"),
    ]
    rows, filters = [], []
    for task in part.tasks:
        for method in part.names:
            mine = part.cells.get((task, method))
            if mine is None:
                continue
            values = np.array([row.score for row in mine])
            point = float(values.mean())
            spread = interval([values], mean) if len(values) > 1 else None
            normal = float(np.mean([row.normalised for row in mine]))
            known = told.get((task, paper.name_of(part.suite, mine[0].method)))
            rows.append(
                [
                    Cell(task),
                    Cell(method),
                    Cell(number_text(point), point),
                    Cell(f"[{number_text(spread.low)}, {number_text(spread.high)}]", spread.low)
                    if spread
                    else Cell(DASH),
                    Cell(f"{normal:z.3f}", normal) if math.isfinite(normal) else Cell(DASH),
                    Cell(number_text(known.score), known.score) if known else Cell(DASH),
                    Cell(str(len(mine)), len(mine)),
                    Cell(mine[0].source),
                    Cell(_every(mine), len(mine)),
                ]
            )
            filters.append((method, f"{task} {method} {mine[0].source}"))
    return [
        f"<h3>Every task{mark}</h3>",
        web.filters(name, part.names),
        web.table(headings, rows, label="scores of every task", name=name, sortable=True, filters=filters),
        '<p class="quiet">Score: mean over seeds of the mean raw score of the final evaluation, and its interval. '
        "The paper's numbers are means it printed, and are part of no figure.</p>",
    ]


def _every(rows: Sequence[Score]) -> Html:
    listed = ", ".join(f"{row.seed}: {number_text(row.score)}" for row in rows)
    return Html(f"<details><summary>{count(len(rows), 'seed')}</summary>{web.html(listed)}</details>")


def fraction(value: Interval, seeds: int) -> str:
    """To the third digit, as papers give them; one seed has no interval."""
    return f"{value.point:z.3f}" + (f" [{value.low:z.3f}, {value.high:z.3f}]" if seeds > 1 else "")


def count(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"
