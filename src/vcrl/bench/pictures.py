"""The figures of a report, each with its words, drawn from what there is."""

import operator
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from vcrl.bench import charts, figures
from vcrl.bench.aggregates import Aggregates
from vcrl.bench.folders import BAD
from vcrl.bench.gather import Benchmark
from vcrl.bench.spread import spread
from vcrl.bench.stats import Interval
from vcrl.core.errors import UserError
from vcrl.runs.reading import Run, read_run

MANY = 20  # curves, from which reading their logs is shared
PANELS = 30  # tasks, above which a figure with a panel for each is no longer looked at


class Picture(NamedTuple):
    title: str
    alt: str  # what it shows, for who cannot see it
    caption: str
    draw: Callable[[], Figure]


def pictured(
    part: Benchmark, found: Aggregates, chances: Mapping[tuple[str, str], Interval]
) -> list[Picture]:
    """The figures of a benchmark, as far as there is something to draw."""
    own, pictures = part.own(), list[Picture]()
    if found:
        listed = "; ".join(f"{name} {at['iqm'].point:.3f}" for name, at in found.items())
        pictures.append(
            Picture(
                "Aggregates",
                f"Interquartile mean and optimality gap of every method with intervals. IQM: {listed}.",
                f"Over {', '.join(part.common)}; bars are 95% stratified-bootstrap intervals.",
                lambda: charts.aggregate_bars(found),
            )
        )
        if _varied(part):
            pictures.append(
                Picture(
                    "Performance profiles",
                    f"For every normalised score the share of runs above it, for {', '.join(found)}.",
                    "Share of runs that score above a value, every task with the same weight. Higher is better.",
                    lambda: charts.performance_profiles(part.on_common(), tasks=part.common),
                )
            )
    base = next((name for name in ("spr", "vcr") if name in found), None)
    variants = [name for name in found if base is not None and name.startswith(("spr-", "vcr-"))]
    if base is not None and variants:
        chosen = {name: at for name, at in found.items() if name in ("spr", "vcr", *variants)}
        pictures.append(
            Picture(
                "Ablations",
                f"Interquartile mean and optimality gap of {', '.join(chosen)} beside those of {base}.",
                f"Variants of spr and vcr; the dashed line is {base}, whiskers are 95% intervals.",
                lambda: charts.ablation_bars(chosen, base),
            )
        )
    if chances:
        pictures.append(
            Picture(
                "Probability of improvement",
                "Probability that a run of the one is better than one of the other: "
                + "; ".join(f"{a} over {b} {value.point:.2f}" for (a, b), value in chances.items()),
                "How likely a run of the one scores above a run of the other on the same task.",
                lambda: charts.improvement_bars(chances),
            )
        )
    if len(part.tasks) <= PANELS:
        raw: dict[str, dict[str, np.ndarray]] = {}
        for task in part.tasks:
            for name in part.names:
                if mine := part.cells.get((task, name)):
                    raw.setdefault(task, {})[name] = np.array([row.score for row in mine])
        pictures.append(
            Picture(
                "Scores of every task",
                f"Interquartile means with intervals of {', '.join(part.names)} on {', '.join(part.tasks)}; "
                "the numbers are in the table below.",
                "Raw scores: IQM over seeds with its 95% bootstrap interval; markers are single seeds.",
                lambda: figures.interval_bars(raw),
            )
        )
    curves = _curves(part, own)
    if curves.scores:
        pictures.append(
            Picture(
                "Learning curves",
                f"Evaluation scores along training of {', '.join(own)}.",
                "Evaluations on the way: IQM over seeds with its 95% interval.",
                lambda: figures.learning_curves(curves.scores),
            )
        )
    if curves.errors:
        pictures.append(
            Picture(
                "Q error",
                f"Q error on imagined and on real states along training of {', '.join(own)}.",
                "Difference between values of states and observed returns, as docs/protocol.md defines it.",
                lambda: figures.q_error_curves(curves.errors),
            )
        )
    return [picture._replace(draw=_marked(picture.draw)) for picture in pictures] if part.mixed else pictures


def _varied(part: Benchmark) -> bool:
    """Whether there is a range of scores over which to draw shares of runs."""
    pooled = np.concatenate([values[np.isfinite(values)] for values in part.on_common().values()])
    low, high = np.quantile(pooled, (0.025, 0.975))
    return bool(high > min(low, 0.0) and pooled.max() > pooled.min())


def _marked(draw: Callable[[], Figure]) -> Callable[[], Figure]:
    """The figure itself must say it: it may end up elsewhere than on its page."""

    def drawn() -> Figure:
        figure = draw()
        figure.suptitle("mixed protocols: these scores do not mean the same", fontsize=8, color="#a3321a")
        return figure

    return drawn


class Curves(NamedTuple):
    scores: dict[str, dict[str, figures.Curve]]
    errors: dict[str, dict[str, dict[str, figures.Curve]]]


def _curves(part: Benchmark, own: Sequence[str]) -> Curves:
    """Curves from the logs of run folders, at the steps that all seeds of a method have; damaged logs have none."""
    found = Curves({}, {})
    cells = [
        cell
        for cell in ((task, name) for task in part.tasks for name in part.names if name in own)
        if cell in part.cells and all(row.source == "run" for row in part.cells[cell])
    ]
    read = spread(lambda cell: _read_curves(part, cell), cells, least=MANY)
    for (task, name), drawn in zip(cells, read, strict=True):
        if (curve := drawn["score"]) is not None and len(curve.steps) > 1:
            found.scores.setdefault(task, {})[name] = curve
        kinds = {k: c for k in ("imagined", "real") if (c := drawn[k]) is not None}
        if any(len(c.steps) > 1 for c in kinds.values()):
            found.errors.setdefault(task, {})[name] = kinds
    return found


def _read_curves(part: Benchmark, cell: tuple[str, str]) -> dict[str, figures.Curve | None]:
    """All curves of a method on a task."""
    rows = part.cells[cell]
    points: dict[str, dict[int, dict[int, float]]] = {"score": {}, "imagined": {}, "real": {}}
    for where in dict.fromkeys(row.where for row in rows):
        try:
            run = read_run(Path(where))
            for (step, seed), score in part.evaluated[where].items():
                points["score"].setdefault(step, {})[seed] = score
            _measured(run, points)
        except (UserError, *BAD):
            continue
    seeds = [row.seed for row in rows]
    return {kind: _curve(at, seeds) for kind, at in points.items()}


def _measured(run: Run, points: dict[str, dict[int, dict[int, float]]]) -> None:
    seeds = [int(seed) for seed in run.record["seeds"]]
    for row in run.metrics():
        for kind in ("imagined", "real"):
            values = row.get(f"q_error/{kind}")
            if isinstance(values, list) and len(values) == len(seeds):
                at = points[kind].setdefault(int(row["agent_steps"]), {})
                at.update(dict(zip(seeds, map(float, values), strict=True)))


def _curve(points: dict[int, dict[int, float]], seeds: Sequence[int | None]) -> figures.Curve | None:
    steps = sorted(step for step, at in points.items() if at.keys() >= set(seeds))
    if not steps:
        return None
    of_seeds = operator.itemgetter(*seeds, seeds[0])  # one more, for of a single key it gives no tuple
    values = np.ascontiguousarray(np.array([of_seeds(points[step])[:-1] for step in steps]).T)
    return figures.Curve(np.array(steps), values) if np.isfinite(values).all(axis=1).any() else None
