"""One web page about many runs: `vcrl report RUNS... --out report/`.

What is read becomes benchmarks (`bench/gather.py`), and each of them a part of the page, with figures from
`bench/pictures.py` and sections from `bench/sections.py` and `bench/origins.py`. HTML is made in `bench/web.py`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from vcrl.bench import aggregates, export, scores, sources, web
from vcrl.bench.aggregates import Aggregates
from vcrl.bench.gather import Benchmark, benchmarks, choose_banked
from vcrl.bench.origins import against_paper, cost, on_gpu, protocols, provenance, spent
from vcrl.bench.pictures import pictured
from vcrl.bench.scores import Found
from vcrl.bench.sections import NAMES, aggregated, games, improvement, short, shown
from vcrl.bench.stats import Interval
from vcrl.core.errors import UserError
from vcrl.runs.files import write_atomic, writing

COMPARED = 30  # pairs of methods, above which a table of all of them is no longer read


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
        sources.read_runs(runs), *([sources.read_results(results)] if results is not None else [])
    )
    if not own.rows and (runs or bank is None):
        first = f": {own.left_out[0]}" if own.left_out else ": name run folders, or folders of such"
        raise UserError(f"no finished run to report on{first}")
    found = own if bank is None else scores.join(own, choose_banked(sources.read_bank(bank), own, methods))
    if methods is not None:
        rows = scores.choose(found.rows, methods)
        made = {(row.source, row.method) for row in rows}
        origins = [origin for origin in found.origins if (origin.source, origin.method) in made]
        found = found._replace(rows=rows, origins=origins)
    parts = benchmarks(found, mixed)
    compared = [compare(part) for part in parts]
    text = "\n".join(_page(found, compared))
    path = out / "index.html"
    with writing(path):
        out.mkdir(parents=True, exist_ok=True)
        write_atomic(path, web.page("vcrl report", [text]).encode())
    return found.left_out, [path, *(_files(out, found, compared) if files else [])]


class Compared(NamedTuple):
    """A benchmark, and what takes time to work out of it; empty where no task is shared."""

    part: Benchmark
    aggregates: Aggregates  # of every method
    chances: dict[tuple[str, str], Interval]  # that one method is better than another


def compare(part: Benchmark) -> Compared:
    if not part.common:
        return Compared(part, {}, {})
    matrices = part.on_common()
    here = aggregates.aggregates(matrices, tuple(NAMES), tasks=part.common)
    return Compared(part, here, aggregates.improvements(matrices, _pairs(part, here)))


def _files(out: Path, found: Found, compared: Sequence[Compared]) -> list[Path]:
    written: list[Path] = []
    for part, here, chances in compared:
        written += export.write_tables(out, export.sheets_of(part, here, found))
        written += export.write_figures(out, part, pictured(part, here, chances))
    written += export.write_tables(out, export.control_sheet([(part, here) for part, here, _ in compared]))
    return [*written, *export.write_tables(out, export.paper_sheets())]


def _page(found: Found, compared: Sequence[Compared]) -> list[str]:
    parts = [one.part for one in compared]
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
                *spent(own, on_gpu(found.origins)),
                ("left out", str(len(found.left_out))),
            ]
        )
    ]
    if machines:
        lines.append(f'<p class="quiet">Trained on {web.html("; ".join(machines))}.</p>')
    for one in compared:
        lines += _part(one, found)
    lines += provenance(found.origins)
    lines += ['<h2 id="left-out">Left out</h2>']
    lines.append(web.items(found.left_out) if found.left_out else "<p>Nothing was left out.</p>")
    return [*lines, "</main>"]


def _part(compared: Compared, found: Found) -> list[str]:
    part, here, chances = compared
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
    lines += ["<h3>In short</h3>", web.items(short(part))]
    lines += aggregated(part, here, mark)
    lines += shown(pictured(part, here, chances), mark)
    lines += improvement(part, chances, mark)
    lines += games(part, mark)
    lines += against_paper(part, found)
    lines += cost(part, found.origins)
    lines += protocols(part, found)
    return [*lines, "</section>"]


def _pairs(part: Benchmark, found: Aggregates) -> list[tuple[str, str]]:
    """Every own method against every other, two of ours once; of very many methods only the highest against all."""
    own, pairs = part.own(), list[tuple[str, str]]()
    for i, first in enumerate(own):
        pairs += [(first, other) for other in [*own[:i], *(n for n in part.names if n not in own)]]
    if len(pairs) <= COMPARED:
        return pairs
    best = max(own, key=lambda name: found[name]["iqm"].point)
    return [(best, other) for other in part.names if other != best]
