"""Figures and tables of a report as files, for a paper: `vcrl report RUNS... --files`.

Beside them stand the paper's own tables in the same forms, filled with what it printed.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from vcrl.bench import figures, forms, paper
from vcrl.bench.aggregates import Aggregates, published, runs_per_task
from vcrl.bench.gather import Benchmark
from vcrl.bench.latex import latex
from vcrl.bench.pictures import Picture
from vcrl.bench.scores import Origin
from vcrl.bench.tables import Sheet, sheet_markdown
from vcrl.envs.atari_scores import SCORES
from vcrl.runs.files import write_atomic, writing

KINDS = ("pdf", "svg", "png")
STATISTICS = ("iqm", "optimality_gap")


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


def sheets_of(part: Benchmark, found: Aggregates, origins: Sequence[Origin]) -> dict[str, Sheet]:
    """The paper's tables, filled with the numbers of a benchmark: those for which it has any."""
    mark = f" (mixed protocols: {part.mixed})" if part.mixed else ""
    held: dict[str, dict[str, forms.Measured]] = {name: {} for name in part.names}
    names = [name for (_, name), rows in part.cells.items() for _ in rows]
    rows = [row for mine in part.cells.values() for row in mine]
    held |= forms.measured(rows, names)
    foot = {
        title: {m: at[key].point for m, at in found.items()}
        for key, title in (("iqm", "IQM"), ("optimality_gap", "Optimality gap"))
        if found
    }
    sheets = {"tasks": forms.task_table(held, part.tasks, foot=foot, caption=f"Scores on {part.title}{mark}")}
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
    costs = _costs(part, origins)
    if costs:
        sheets["time"] = forms.time_table(costs)
    return {f"{part.id}-{name}": sheet for name, sheet in sheets.items()}


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


def _costs(part: Benchmark, origins: Sequence[Origin]) -> list[forms.Cost]:
    """The mean of what a training took, by method and hardware."""
    machines = {(o.where, o.task, o.method, o.config_hash): o.hardware or "not recorded" for o in origins}
    spent: dict[tuple[str, str], list[float]] = {}
    for (_, name), rows in part.cells.items():
        for row in rows:
            machine = machines.get((row.where, row.task, row.method, row.config_hash))
            if machine is not None and math.isfinite(row.seconds):
                spent.setdefault((name, machine), []).append(row.seconds)
    return [
        forms.Cost(
            part.protocol, name, None, sum(times) / len(times) / 3600, machine, f"{len(times)} trainings"
        )
        for (name, machine), times in spent.items()
    ]
