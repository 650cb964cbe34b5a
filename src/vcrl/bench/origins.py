"""Where a report's numbers come from: what differs from the paper, cost, protocols, provenance."""

import math
from collections.abc import Sequence
from typing import Any

from vcrl.bench import paper, sources, web
from vcrl.bench.gather import Benchmark
from vcrl.bench.kept import Cell as Seeds
from vcrl.bench.kept import verdict
from vcrl.bench.listing import clock, flat
from vcrl.bench.scores import Found, Origin, Score
from vcrl.bench.sections import DASH
from vcrl.bench.web import Cell, Heading, Html
from vcrl.core.config import to_json
from vcrl.core.errors import UserError
from vcrl.methods import library
from vcrl.methods.family import OF_ITS_NAME


def against_paper(part: Benchmark, found: Found) -> list[str]:
    """What differs from the paper: scores, seeds, tasks, settings."""
    if not part.own():
        return []
    lines: list[str | Html] = []
    told = {row.task for row in sources.read_paper().rows if row.protocol == part.protocol}
    if told:
        missing = sorted(told - set(part.tasks))
        if missing:
            lines.append(
                f"{len(missing)} of the paper's {len(told)} tasks were not run: {', '.join(missing)}."
            )
        for name in part.own():
            lines += _verdicts(part, name)
    else:
        lines.append(f"The paper has no numbers for {part.title}.")
    changed: dict[str, None] = {}
    alike = {(row.config_hash, row.method, row.task): row for row in part.rows if row.source == "run"}
    for row in alike.values():
        config = found.configs.get(row.config_hash)
        if config is not None:
            changed.update(dict.fromkeys(_changes(row, config)))
    lines += changed or [
        Html(
            "All settings are those of the methods as this version has them (<code>vcrl methods NAME</code>)."
        )
    ]
    return [
        "<h3>What differs from the paper</h3>",
        web.items(lines),
        '<p class="quiet">Where the methods themselves depart from the paper, and why, is in docs/paper-map.md.</p>',
    ]


def _verdicts(part: Benchmark, name: str) -> list[str]:
    """Whether our means are such as the paper's could have been; see `bench/kept.py::verdict`."""
    words: dict[str, list[str]] = {}
    method = ""
    counts = []
    for task in part.tasks:
        rows = part.cells.get((task, name))
        if rows:
            method = rows[0].method
            cell = Seeds(task, method, [{"score": repr(row.score)} for row in rows])
            if cell.told is not None and part.suite == "atari":
                words.setdefault(verdict(cell) or "not judged", []).append(task)
                counts.append(len(rows))
    if not words:
        return []
    theirs = paper.NAMES[method]
    order = [w for w in ("inside", "below", "above", "not judged") if w in words]
    listed = "; ".join(f"{w} in {len(words[w])} ({', '.join(words[w])})" for w in order)
    seeds = str(counts[0]) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    return [
        f"{name} against the paper's {theirs}: our means are {listed} the range of what its "
        f"{paper.RUNS[theirs]} runs a task make likely. Ours are of {seeds} seeds."
    ]


def _changes(row: Score, config: dict[str, Any]) -> list[str]:
    """Settings of a run that are not those of its method."""
    try:
        usual = flat(to_json(library.resolve(row.method, row.suite, row.task)))
    except UserError:
        return [f"{row.method} is no method of this version: its settings cannot be compared."]
    here = flat(config)
    differing = [
        f"{path} {here.get(path, '-')} instead of {usual.get(path, '-')}"
        for path in [*here, *(p for p in usual if p not in here)]
        if here.get(path, "-") != usual.get(path, "-") and path not in OF_ITS_NAME
    ]
    shown = [*differing[:6], *([f"{len(differing) - 6} more"] if len(differing) > 6 else [])]
    return [f"{row.method} [{row.config_hash}]: {'; '.join(shown)}."] if differing else []


Where = tuple[str, str, str, str]  # what tells which run a score is of: place, task, method, config


def on_gpu(origins: Sequence[Origin]) -> set[Where]:
    return {(o.where, o.task, o.method, o.config_hash) for o in origins if o.gpu}


def spent(rows: Sequence[Score], gpu: set[Where]) -> list[tuple[str, str]]:
    """Hours on accelerators and on processors alone."""
    hours = {"GPU-hours": 0.0, "CPU-machine hours": 0.0}
    for row in rows:
        if math.isfinite(row.seconds):
            on = (row.where, row.task, row.method, row.config_hash) in gpu
            hours["GPU-hours" if on else "CPU-machine hours"] += row.seconds
    return [(name, _hours(seconds)) for name, seconds in hours.items() if seconds]


def cost(part: Benchmark, origins: Sequence[Origin]) -> list[str]:
    rows, gpu = [], on_gpu(origins)
    times = {t.method: t for t in reversed(paper.training_times().get(part.protocol, []))}
    for name in part.own():
        mine = [row for (_, n), cell in part.cells.items() if n == name for row in cell]
        mine = [row for row in mine if math.isfinite(row.seconds)]
        if not mine:
            continue
        total = sum(row.seconds for row in mine)
        known = times.get(paper.NAMES.get(mine[0].method, ""))
        words = ", ".join(f"{hours.removesuffix(' h')} {kind}" for kind, hours in spent(mine, gpu))
        rows.append(
            [
                Cell(name),
                Cell(str(len(mine)), len(mine)),
                Cell(words, total),
                Cell(clock(total / len(mine)), total / len(mine)),
                Cell(f"{known.hours:g} h ({known.hardware})", known.hours) if known else Cell(DASH),
            ]
        )
    if not rows:
        return []
    headings = [
        Heading("method"),
        Heading("trainings", True),
        Heading("cost", True),
        Heading("a training", True),
        Heading("a training in the paper", True),
    ]
    note = "Wall clock of a run, shared among the seeds that were trained at once on the same machine."
    return [
        "<h3>Cost</h3>",
        web.table(headings, rows, label="cost", sortable=True),
        f'<p class="quiet">{note}</p>',
    ]


def protocols(part: Benchmark, found: Found) -> list[str]:
    lines = ["<h3>Protocol</h3>"]
    for key in dict.fromkeys(row.protocol_hash for row in part.rows if row.protocol_hash):
        fields = found.protocols.get(key)
        lines.append(f"<p>{web.html(part.protocol)}, hash <code>{web.html(key)}</code></p>")
        if fields is not None:
            rows = [[Cell(name), Cell(_field(value))] for name, value in fields.items() if name != "kind"]
            headings = [Heading("field"), Heading("value", wrap=True)]
            lines.append(web.table(headings, rows, label=f"protocol {key}"))
        else:
            lines.append('<p class="quiet">Its fields are in run folders that were not given.</p>')
    if any(not row.protocol_hash for row in part.rows):
        lines.append(
            '<p class="quiet">Published runs of others carry no hash: they are known by name alone.</p>'
        )
    return lines


def provenance(origins: Sequence[Origin]) -> list[str]:
    if not origins:
        return []
    headings = [
        *map(
            Heading,
            ("suite", "task", "method", "seeds", "source", "commit", "config", "protocol", "hardware"),
        ),
        Heading("wall clock", True),
        Heading("finished"),
        Heading("folder"),
        Heading("command"),
    ]
    rows = [
        [
            Cell(o.suite),
            Cell(o.task),
            Cell(o.method),
            Cell(o.seeds),
            Cell(o.source),
            Cell(o.commit or DASH),
            Cell(o.config_hash),
            Cell(o.protocol_hash),
            Cell(o.hardware or DASH),
            Cell(clock(o.seconds), o.seconds) if math.isfinite(o.seconds) else Cell(DASH),
            Cell(o.finished or DASH),
            Cell(o.where),
            Cell(o.command or DASH),
        ]
        for o in origins
    ]
    name = "provenance-table"
    filters = [(o.method, " ".join(map(str, o[:6]))) for o in origins]
    return [
        '<h2 id="provenance">Provenance</h2>',
        web.filters(name, dict.fromkeys(o.method for o in origins)),
        web.table(headings, rows, label="provenance", name=name, sortable=True, filters=filters),
        '<p class="quiet">A commit marked dirty had changes that were not committed.</p>',
    ]


def _field(value: Any) -> str:
    return "none" if value is None else f"{value:,}" if type(value) is int else str(value)


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:,.0f} h" if hours >= 100 else f"{hours:.1f} h" if hours >= 1 else f"{hours:.2f} h"
