"""One web page about many runs: `vcrl report RUNS... --out report/`.

What is read becomes benchmarks (`bench/gather.py`), and each of them a part of the page, with figures from
`bench/pictures.py`. HTML is made in `bench/web.py`.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vcrl.bench import aggregates, export, paper, power, scores, web
from vcrl.bench.aggregates import Aggregates
from vcrl.bench.gather import Benchmark, benchmarks, choose_banked
from vcrl.bench.listing import clock, flat
from vcrl.bench.page import Cell as Seeds
from vcrl.bench.page import verdict
from vcrl.bench.pictures import Picture, pictured
from vcrl.bench.scores import Found, Origin, Score
from vcrl.bench.stats import Interval, interval, iqm, mean
from vcrl.bench.tables import number_text
from vcrl.bench.web import Cell, Heading, Html
from vcrl.core.config import to_json
from vcrl.core.errors import UserError
from vcrl.methods import library
from vcrl.runs.files import write_atomic, writing

NAMES = {"iqm": "IQM", "median": "median", "mean": "mean", "optimality_gap": "optimality gap"}
FEW = 4  # seeds, as in `bench/page.py`, or methods
DASH = "-"
COMPARED = 30  # pairs of methods, above which a table of all of them is no longer read
ADVISED = 2  # pairs, where methods are few, for which the seeds needed are worked out; each takes seconds


def report(
    runs: Sequence[Path],
    out: Path,
    bank: Path | None = None,
    results: Path | None = None,
    methods: Sequence[str] | None = None,
    mixed: bool = False,
    files: bool = False,
) -> tuple[list[str], list[Path]]:
    """Write the page, and on request its figures and tables as files beside it.

    Gives the lines about what was left out, and what was written, the page first.
    """
    own = scores.join(
        scores.read_runs(runs), *([scores.read_results(results)] if results is not None else [])
    )
    if not own.rows and (runs or bank is None):
        first = f": {own.left_out[0]}" if own.left_out else ": name run folders, or folders of such"
        raise UserError(f"no finished run to report on{first}")
    found = own if bank is None else scores.join(own, choose_banked(scores.read_bank(bank), own, methods))
    if methods is not None:
        rows = scores.choose(found.rows, methods)
        made = {(row.source, row.method) for row in rows}
        origins = [origin for origin in found.origins if (origin.source, origin.method) in made]
        found = found._replace(rows=rows, origins=origins)
    parts = benchmarks(found, mixed)
    text = "\n".join(_page(found, parts))
    path = out / "index.html"
    with writing(path):
        out.mkdir(parents=True, exist_ok=True)
        write_atomic(path, web.page("vcrl report", [text]).encode())
    return found.left_out, [path, *(_files(out, found, parts) if files else [])]


def _files(out: Path, found: Found, parts: Sequence[Benchmark]) -> list[Path]:
    written: list[Path] = []
    held: list[tuple[Benchmark, Aggregates]] = []
    for part in parts:
        here, chances = _compared(part)
        held.append((part, here))
        written += export.write_tables(out, export.sheets_of(part, here, found))
        written += export.write_figures(out, part, pictured(part, here, chances))
    written += export.write_tables(out, export.control_sheet(held))
    return [*written, *export.write_tables(out, export.paper_sheets())]


def _compared(part: Benchmark) -> tuple[Aggregates, dict[tuple[str, str], Interval]]:
    """Aggregates of every method, and how likely one is better than another; nothing where no task is shared."""
    if not part.common:
        return {}, {}
    matrices = part.on_common()
    here = aggregates.aggregates(matrices, tuple(NAMES), tasks=part.common)
    return here, aggregates.improvements(matrices, _pairs(part, here))


def _page(found: Found, parts: Sequence[Benchmark]) -> list[str]:
    own = [row for row in found.rows if row.source in ("run", "results")]
    machines = list(dict.fromkeys(origin.hardware or "unknown hardware" for origin in found.origins))
    lines = ["<header>", "<h1>vcrl report</h1>"]
    links = [f'<li><a href="#{part.id}">{web.html(part.title)}</a></li>' for part in parts]
    links += ['<li><a href="#provenance">provenance</a></li>'] if found.origins else []
    links += ['<li><a href="#left-out">left out</a></li>']
    lines += [f'<nav aria-label="parts"><ul>{"".join(links)}</ul></nav>', "</header>", '<main id="main">']
    shown, what = (own, "trainings (seeds)") if own else (found.rows, "published runs")
    names = {name for part in parts for name in (part.own() if own else part.names)}
    lines += [
        web.cards(
            [
                (what, f"{len(shown):,}"),
                ("methods", str(len(names))),
                ("tasks", str(len({(row.suite, row.task) for row in shown}))),
                *_spent(own, _on_gpu(found.origins)),
                ("left out", str(len(found.left_out))),
            ]
        )
    ]
    if machines:
        lines.append(f'<p class="quiet">Trained on {web.html("; ".join(machines))}.</p>')
    for part in parts:
        lines += _part(part, found)
    lines += _provenance(found.origins)
    lines += ['<h2 id="left-out">Left out</h2>']
    lines.append(web.items(found.left_out) if found.left_out else "<p>Nothing was left out.</p>")
    return [*lines, "</main>"]


def _part(part: Benchmark, found: Found) -> list[str]:
    mark = " (mixed protocols)" if part.mixed else ""
    lines = [
        f'<section aria-labelledby="{part.id}">',
        f'<h2 id="{part.id}">{web.html(part.title + mark)}</h2>',
    ]
    if part.mixed:
        lines.append(
            f'<p class="warning">Mixed protocols: {web.html(part.mixed)}. '
            "These scores do not mean the same; every figure and table below mixes them.</p>"
        )
    lines += ["<h3>In short</h3>", web.items(_short(part))]
    here, chances = _compared(part)
    lines += _aggregates(part, here, mark)
    lines += _pictures(pictured(part, here, chances), mark)
    lines += _improvement(part, chances, mark)
    lines += _games(part, mark)
    lines += _against_paper(part, found)
    lines += _cost(part, found.origins)
    lines += _protocols(part, found)
    return [*lines, "</section>"]


def _short(part: Benchmark) -> list[str]:
    counts = [len(rows) for (_, name), rows in part.cells.items() if name in part.own()]
    seeds = (
        f"{min(counts)}"
        if counts and min(counts) == max(counts)
        else f"{min(counts, default=0)} to {max(counts, default=0)}"
    )
    lines = []
    if part.own():
        lines.append(
            f"Run here: {', '.join(part.own())}, on {_count(len(part.tasks), 'task')}, {seeds} seeds each."
        )
    others = [name for name in part.names if name not in part.own()]
    if others:
        lines.append(f"Published runs of others, never mixed with ours: {', '.join(others)}.")
    if part.common:
        points = {m: float(iqm(aggregates.present(x))) for m, x in part.on_common().items()}
        best = max(points, key=lambda name: points[name])
        lines.append(
            f"Highest IQM of normalised scores over {_count(len(part.common), 'task')}: {best} with {points[best]:.3f}."
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


def _aggregates(part: Benchmark, found: Aggregates, mark: str) -> list[str]:
    if not found:
        return []
    headings = [Heading("method"), Heading("runs a task", True), *(Heading(n, True) for n in NAMES.values())]
    rows = []
    for name, at in found.items():
        low, high = aggregates.runs_per_task(part.on_common()[name])
        runs = str(low) if low == high else f"{low} to {high}"
        cells = [Cell(_fraction(at[key], low), at[key].point) for key in NAMES]
        rows.append([Cell(name), Cell(runs, low), *cells])
    full = part.suite == "atari" and set(part.common) == set(paper.scores()["SPR"])
    for method, told in paper.aggregates().items() if full else ():
        runs = paper.RUNS.get(method)
        cells = [Cell(f"{told[key]:.3f}", told[key]) if key in told else Cell(DASH) for key in NAMES]
        rows.append([Cell(f"{method} (paper)"), Cell(str(runs or DASH), runs), *cells])
    printed = " What is marked (paper) is what the paper printed." if full else ""
    note = (
        f"Normalised scores over {_count(len(part.common), 'task')} that every method has, with 95% "
        "stratified-bootstrap intervals over seeds. Random play is 0; 1 is a human, or the best possible. A smaller "
        f"optimality gap is better.{printed}"
    )
    return [
        f"<h3>All tasks together{mark}</h3>",
        web.table(headings, rows, label="aggregate scores", sortable=True, name=f"aggregates-{part.id}"),
        f'<p class="quiet">{note}</p>',
    ]


def _pictures(pictures: Sequence[Picture], mark: str) -> list[str]:
    lines = []
    for title, alt, caption, draw in pictures:
        told = f"Mixed protocols. {caption}" if mark else caption
        lines += [f"<h3>{web.html(title + mark)}</h3>", web.figure(draw(), alt, told, f"figure: {title}")]
    return lines


def _pairs(part: Benchmark, found: Aggregates) -> list[tuple[str, str]]:
    """Every own method against every other, two of ours once; of very many methods only the highest against all."""
    own, pairs = part.own(), list[tuple[str, str]]()
    for i, first in enumerate(own):
        pairs += [(first, other) for other in [*own[:i], *(n for n in part.names if n not in own)]]
    if len(pairs) <= COMPARED:
        return pairs
    best = max(own, key=lambda name: found[name]["iqm"].point)
    return [(best, other) for other in part.names if other != best]


def _improvement(part: Benchmark, chances: Mapping[tuple[str, str], Interval], mark: str) -> list[str]:
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
                Cell(_fraction(chance, least), chance.point),
                Cell(_fraction(gap, least), gap.point),
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


def _games(part: Benchmark, mark: str) -> list[str]:
    name = f"games-{part.id}"
    told = {(row.task, row.method): row for row in scores.read_paper().rows if row.protocol == part.protocol}
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
    return Html(f"<details><summary>{_count(len(rows), 'seed')}</summary>{web.html(listed)}</details>")


def _against_paper(part: Benchmark, found: Found) -> list[str]:
    """What differs from the paper: scores, seeds, tasks, settings."""
    if not part.own():
        return []
    lines: list[str | Html] = []
    told = {row.task for row in scores.read_paper().rows if row.protocol == part.protocol}
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
    """Whether our means are such as the paper's could have been; see `bench/page.py::verdict`."""
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
        if here.get(path, "-") != usual.get(path, "-")
    ]
    shown = [*differing[:6], *([f"{len(differing) - 6} more"] if len(differing) > 6 else [])]
    return [f"{row.method} [{row.config_hash}]: {'; '.join(shown)}."] if differing else []


Where = tuple[str, str, str, str]  # what tells which run a score is of: place, task, method, config


def _on_gpu(origins: Sequence[Origin]) -> set[Where]:
    return {(o.where, o.task, o.method, o.config_hash) for o in origins if o.gpu}


def _spent(rows: Sequence[Score], gpu: set[Where]) -> list[tuple[str, str]]:
    """Hours on accelerators and on processors alone."""
    hours = {"GPU-hours": 0.0, "CPU-machine hours": 0.0}
    for row in rows:
        if math.isfinite(row.seconds):
            on = (row.where, row.task, row.method, row.config_hash) in gpu
            hours["GPU-hours" if on else "CPU-machine hours"] += row.seconds
    return [(name, _hours(seconds)) for name, seconds in hours.items() if seconds]


def _cost(part: Benchmark, origins: Sequence[Origin]) -> list[str]:
    rows, gpu = [], _on_gpu(origins)
    times = {t.method: t for t in reversed(paper.training_times().get(part.protocol, []))}
    for name in part.own():
        mine = [row for (_, n), cell in part.cells.items() if n == name for row in cell]
        mine = [row for row in mine if math.isfinite(row.seconds)]
        if not mine:
            continue
        total = sum(row.seconds for row in mine)
        known = times.get(paper.NAMES.get(mine[0].method, ""))
        spent = ", ".join(f"{hours.removesuffix(' h')} {kind}" for kind, hours in _spent(mine, gpu))
        rows.append(
            [
                Cell(name),
                Cell(str(len(mine)), len(mine)),
                Cell(spent, total),
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


def _protocols(part: Benchmark, found: Found) -> list[str]:
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


def _provenance(origins: Sequence[Origin]) -> list[str]:
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


def _fraction(value: Interval, seeds: int) -> str:
    """To the third digit, as papers give them; one seed has no interval."""
    return f"{value.point:z.3f}" + (f" [{value.low:z.3f}, {value.high:z.3f}]" if seeds > 1 else "")


def _field(value: Any) -> str:
    return "none" if value is None else f"{value:,}" if type(value) is int else str(value)


def _hours(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:,.0f} h" if hours >= 100 else f"{hours:.1f} h" if hours >= 1 else f"{hours:.2f} h"


def _count(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"
