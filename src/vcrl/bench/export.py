"""Figures and tables of a report as files, for a paper: `vcrl report RUNS... --files`.

Beside them stand the paper's own tables in the same forms, filled with what it printed.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vcrl.bench import figures, forms, paper
from vcrl.bench.aggregates import Aggregates, published, runs_per_task
from vcrl.bench.gather import Benchmark
from vcrl.bench.latex import latex
from vcrl.bench.pictures import Picture
from vcrl.bench.scores import Found
from vcrl.bench.stats import Interval
from vcrl.bench.tables import Sheet, sheet_markdown
from vcrl.envs.atari_scores import SCORES
from vcrl.runs.files import write_atomic, writing

KINDS = ("pdf", "svg", "png")
STATISTICS = ("iqm", "optimality_gap")
ROOM = 8  # methods whose means and deviations fit on a page beside each other; of more, the means alone
# The paper's tables of normalised scores on a few games: a method and what it is without one part.
SMALL = {"noisy-net": ("vcr", "vcr-no-noise"), "prediction-head": ("spr", "spr-no-prediction")}


def write_figures(out: Path, part: Benchmark, pictures: Sequence[Picture]) -> list[Path]:
    """Every figure of a benchmark as PDF, SVG and PNG."""
    written: list[Path] = []
    for picture in pictures:
        name = f"{part.id}-{picture.title.lower().replace(' ', '-')}"
        written += figures.save(picture.draw(), out / "figures" / name, KINDS)
    return written


def write_tables(out: Path, sheets: Mapping[str, Sheet]) -> list[Path]:
    """Every sheet as Markdown and LaTeX."""
    written: list[Path] = []
    for name, sheet in sheets.items():
        for kind, text in (("md", sheet_markdown(sheet)), ("tex", latex(sheet, f"tab:{name}"))):
            path = out / "tables" / f"{name}.{kind}"
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(path, text.rstrip().encode() + b"\n")
            written.append(path)
    return written


def sheets_of(part: Benchmark, found: Aggregates, read: Found) -> dict[str, Sheet]:
    """The paper's tables, filled with the numbers of a benchmark: those for which it has any."""
    mark = f" (mixed protocols: {part.mixed})" if part.mixed else ""
    held = _held(part)
    shown = held
    if len(held) > ROOM:
        shown = {
            name: {task: forms.Measured(at.mean) for task, at in tasks.items()}
            for name, tasks in held.items()
        }
    foot = {
        title: {m: at[key].point for m, at in found.items()}
        for key, title in (("iqm", "IQM"), ("optimality_gap", "Optimality gap"))
        if found
    }
    sheets = {
        "tasks": forms.task_table(shown, part.tasks, foot=foot, caption=f"Scores on {part.title}{mark}")
    }
    if found:
        counts = {m: "{} to {}".format(*c) if c[0] != c[1] else str(c[0]) for m, c in _counts(part).items()}
        caption = f"Aggregates of {part.title} over {len(part.common)} tasks{mark}"
        sheets["aggregates"] = forms.aggregate_table(found, runs=counts, caption=caption)
        baseline = next((name for name in ("spr", "vcr") if name in found), None)
        if baseline is not None and len(found) > 1:
            caption = f"Differences to {baseline} on {part.title}{mark}"
            sheets["ablations"] = forms.ablation_table(found, baseline, STATISTICS, caption=caption)
    if {"vcr", "vcr-k9"} <= held.keys():
        both = {"K=5": held["vcr"], "K=9": held["vcr-k9"]}
        tasks = [task for task in part.tasks if all(task in scores for scores in both.values())]
        if tasks:
            sheets["steps"] = forms.steps_table(both, tasks, caption=f"Imagined steps of VCR{mark}")
    for title, pair in SMALL.items():
        if set(pair) <= held.keys():
            caption = f"{title.capitalize().replace('-', ' ')}, normalised scores{mark}"
            sheets[title] = forms.task_table(_normalised(part, pair), decimals=2, caption=caption)
    costs = _costs(part, read)
    if costs:
        sheets["time"] = forms.time_table(costs)
    return {f"{part.id}-{name}": sheet for name, sheet in sheets.items()}


def control_sheet(parts: Sequence[tuple[Benchmark, Aggregates]]) -> dict[str, Sheet]:
    """The paper's table of DMControl: all budgets that there are, aggregates in points of 1000 as it has them."""
    blocks: dict[str, dict[str, dict[str, forms.Measured]]] = {}
    foots: dict[str, dict[str, dict[str, float]]] = {}
    marks = []
    for part, found in parts:
        if part.suite == "dmc":
            name = part.protocol.removeprefix("dmc")
            blocks[name] = _held(part)
            foots[name] = {
                title: {method: paper.DMC_BEST * at[key].point for method, at in found.items()}
                for key, title in (("iqm", "IQM"), ("optimality_gap", "Optimality gap"), ("median", "Median"))
                if found
            }
            marks += [part.mixed] if part.mixed else []
    told = f" (mixed protocols: {'; '.join(marks)})" if marks else ""
    caption = f"DMControl, all budgets{told}"
    return {"dmcontrol": forms.dmc_table(blocks, foots=foots, caption=caption)} if blocks else {}


def paper_sheets() -> dict[str, Sheet]:
    """Every table of the paper, as it printed them."""
    told = {m: {k: published(v) for k, v in at.items()} for m, at in paper.aggregates().items()}
    compared = [method for method in paper.scores() if method != "VCR K=9"]
    references = {
        "Human": {task: human for task, (_, human) in SCORES.items()},
        "Random": {task: random for task, (random, _) in SCORES.items()},
    }
    foot = {
        title: {m: paper.aggregates()[m][key] for m in compared}
        for key, title in (("iqm", "IQM"), ("optimality_gap", "Optimality gap"))
    }
    sheets = {
        "games": forms.task_table(
            {m: paper.scores()[m] for m in compared},
            references=references,
            foot=foot,
            caption="Atari 100k, as printed in the VCR paper",
        ),
        "aggregates": forms.aggregate_table(
            {m: told[m] for m in compared},
            STATISTICS,
            percent=True,
            runs={m: str(paper.RUNS[m]) for m in compared},
            caption="Aggregates on Atari 100k, as printed in the VCR paper",
        ),
        "ablations": forms.ablation_table(
            {
                row.method: told[row.method]
                for rows in paper.ablations()["atari100k"].values()
                for row in rows
            },
            "SPR",
            STATISTICS,
            percent=True,
            caption="Ablations on Atari 100k, as printed in the VCR paper",
        ),
        "ablations-dmcontrol": forms.ablation_table(
            {row.method: _points(row) for rows in paper.ablations()["dmc100k"].values() for row in rows},
            "SPR",
            STATISTICS,
            caption="Ablations on DMControl 100k, in points of 1000, as printed in the VCR paper",
        ),
        "steps": forms.steps_table(
            paper.imagined_steps(), caption="VCR with K = 5 and K = 9, as printed in the VCR paper"
        ),
        "dmcontrol": forms.dmc_table(
            {name.removeprefix("dmc"): scores for name, scores in paper.dmc().items()},
            foots={name.removeprefix("dmc"): _dmc_foot(name) for name in paper.dmc()},
            caption="DMControl, as printed in the VCR paper",
        ),
        "time": forms.time_table(
            [
                forms.Cost(protocol, time.method, time.steps, time.hours, time.hardware, time.source)
                for protocol, times in paper.training_times().items()
                for time in times
            ],
            caption="Hours of one training, as printed in the VCR paper",
        ),
    }
    for name, variants in paper.small_ablations().items():
        caption = f"{name.capitalize()}, human-normalised, as printed in the VCR paper"
        sheets[name.replace(" ", "-")] = forms.task_table(variants, decimals=2, caption=caption)
    return {f"paper-{name}": sheet for name, sheet in sheets.items()}


def _points(row: paper.Aggregate) -> dict[str, Interval]:
    values = {key: getattr(row, key) for key in STATISTICS}
    return {key: published(value) for key, value in values.items() if value is not None}


def _held(part: Benchmark) -> dict[str, dict[str, forms.Measured]]:
    """Raw scores by method and task, both in the order of the benchmark."""
    pairs = [(task, name) for name in part.names for task in part.tasks if (task, name) in part.cells]
    rows = [row for pair in pairs for row in part.cells[pair]]
    return forms.measured(rows, [name for task, name in pairs for _ in part.cells[task, name]])


def _normalised(part: Benchmark, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Means of normalised scores by method and task, on the tasks that all of them have."""
    tasks = [task for task in part.tasks if all((task, name) in part.cells for name in names)]
    return {
        name: {
            task: sum(r.normalised for r in rows) / len(rows)
            for task in tasks
            if (rows := part.cells[task, name])
        }
        for name in names
    }


def _dmc_foot(protocol: str) -> dict[str, dict[str, float]]:
    rows = {"IQM": "iqm", "Optimality gap": "optimality_gap", "Median": "median"}
    found: dict[str, dict[str, float]] = {}
    for title, key in rows.items():
        for method, row in paper.dmc_aggregates()[protocol].items():
            if (value := getattr(row, key)) is not None:
                found.setdefault(title, {})[method] = value
    return found


def _counts(part: Benchmark) -> dict[str, tuple[int, int]]:
    return {name: runs_per_task(values) for name, values in part.on_common().items()}


def _costs(part: Benchmark, found: Found) -> list[forms.Cost]:
    """The mean of what a training took, by method, number of imagined steps and hardware."""
    machines = {
        (o.where, o.task, o.method, o.config_hash): o.hardware or "not recorded" for o in found.origins
    }
    spent: dict[tuple[str, int | None, str], list[float]] = {}
    for (_, name), rows in sorted(part.cells.items(), key=lambda cell: part.names.index(cell[0][1])):
        for row in rows:
            machine = machines.get((row.where, row.task, row.method, row.config_hash))
            if machine is not None and math.isfinite(row.seconds):
                steps = _imagined(found.configs.get(row.config_hash, {}))
                spent.setdefault((name, steps, machine), []).append(row.seconds)
    return [
        forms.Cost(
            part.protocol, name, steps, sum(times) / len(times) / 3600, machine, f"{len(times)} trainings"
        )
        for (name, steps, machine), times in spent.items()
    ]


def _imagined(config: Mapping[str, Any]) -> int | None:
    """K of a run: the most steps that any of its terms looks ahead."""
    terms = config.get("terms")
    parts = terms.values() if isinstance(terms, dict) else ()
    found = [one["steps"] for one in parts if isinstance(one, dict) and isinstance(one.get("steps"), int)]
    return max(found, default=None)
