"""Time to aggregate and draw a whole campaign: 26 games, 10 methods, 100 runs each, invented scores.

    python benchmarks/aggregate.py [--out FOLDER] [--runs N] [--kinds png svg pdf]

Statistics, all figures, written as files, and all tables.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from vcrl.bench import aggregates, charts, figures, forms, latex, power, stats, tables
from vcrl.bench.figures import Curve

GAMES, METHODS = 26, ("der", "otr", "curl", "drq-eps", "playvirtual", "spr", "vcr", "vcr-k9", "mine", "yours")
EVALUATIONS, Q_ERRORS = 10, 100  # points of a curve: a score every 10,000 steps, a Q error every 1,000


def main() -> None:
    parser = argparse.ArgumentParser(description="Time to aggregate and draw a whole campaign.")
    parser.add_argument("--out", type=Path, help="keep the files here")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--kinds", nargs="+", default=["svg"])
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    games = [f"game-{i}" for i in range(GAMES)]
    scale = rng.gamma(1.0, 0.7, GAMES)
    scores = {
        method: rng.gamma(2.0, 0.5, (options.runs, GAMES)) * scale * (1 + 0.1 * i)
        for i, method in enumerate(METHODS)
    }
    with tempfile.TemporaryDirectory() as folder:
        run(scores, games, options.out or Path(folder), options.kinds)


def run(scores: dict[str, np.ndarray], games: list[str], out: Path, kinds: list[str]) -> None:
    runs = len(scores["vcr"])
    print(f"{len(games)} games, {len(scores)} methods, {runs} runs; {os.cpu_count()} cores; files: {kinds}")
    print("   wall       CPU")  # of both cores; on a busy machine the second tells more
    spent = worked = 0.0

    def timed(what: str, make: Callable[[], Any], counts: bool = True) -> Any:
        nonlocal spent, worked
        start, busy = time.perf_counter(), time.process_time()
        found = make()
        took, busy = time.perf_counter() - start, time.process_time() - busy
        spent, worked = spent + took * counts, worked + busy * counts
        print(f"{took:7.2f} s {busy:7.2f} s  {what}", flush=True)
        return found

    def drawn(name: str, make: Callable[[], Any]) -> None:
        timed(name, lambda: figures.save(make(), out / name, kinds))

    one = scores["vcr"]
    timed(
        f"(one IQM interval, 2,000 draws of {runs} x {len(games)})",
        lambda: stats.interval(one, stats.iqm),
        False,
    )
    found = timed("aggregates", lambda: aggregates.aggregates(scores, tasks=games))
    better = timed("probabilities of improvement", lambda: aggregates.improvements(scores))
    drawn("aggregate-bars", lambda: charts.aggregate_bars(found, aggregates.STATISTICS))
    drawn("profiles", lambda: charts.performance_profiles(scores))
    drawn("improvement", lambda: charts.improvement_bars(better))
    drawn("ablations", lambda: charts.ablation_bars(found, "spr"))
    by_game = {g: {m: x[:, i] for m, x in scores.items()} for i, g in enumerate(games)}
    drawn("games", lambda: figures.interval_bars(by_game))
    steps = np.arange(1, EVALUATIONS + 1) * 10_000
    grow = np.linspace(0.1, 1, EVALUATIONS)
    curves = {g: {m: Curve(steps, x[:, None] * grow) for m, x in at.items()} for g, at in by_game.items()}
    drawn("learning-curves", lambda: figures.learning_curves(curves))
    steps, fall = np.arange(1, Q_ERRORS + 1) * 1000, np.linspace(1, 0.1, Q_ERRORS)
    errors = {
        g: {m: {"imagined": Curve(steps, at[m][:, None] * fall)} for m in ("spr", "vcr")}
        for g, at in by_game.items()
    }
    drawn("q-error", lambda: figures.q_error_curves(errors))
    timed("tables", lambda: write_tables(scores, games, found))
    print(f"{spent:7.2f} s {worked:7.2f} s  in all")
    timed("(power advice for one pair)", lambda: power.seeds_needed(scores["vcr"], scores["spr"]), False)


def write_tables(scores: dict[str, np.ndarray], games: list[str], found: aggregates.Aggregates) -> int:
    cells = {
        m: {
            g: forms.Measured(float(x[:, i].mean()), float(x[:, i].std()), len(x))
            for i, g in enumerate(games)
        }
        for m, x in scores.items()
    }
    two = {"K=5": cells["vcr"], "K=9": cells["vcr-k9"]}
    sheets = [
        forms.aggregate_table(found),
        forms.ablation_table(found, "spr"),
        forms.task_table(cells, games),
        forms.steps_table(two, games),
        forms.dmc_table({"100k": cells, "500k": cells}),
        forms.time_table([forms.Cost("atari100k", m, 5, 5.0 + i, "one GPU") for i, m in enumerate(scores)]),
    ]
    return sum(len(tables.sheet_markdown(sheet)) + len(latex.latex(sheet)) for sheet in sheets)


if __name__ == "__main__":
    main()
