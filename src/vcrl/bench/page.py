"""The page of results: docs/results.md and its figures, made from the tables in results/ and from nothing else."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from vcrl.bench import figures, proofs
from vcrl.bench.figures import Known
from vcrl.bench.kept import IMAGINED, Suite, difference, errors_of, known_of, read, verdict, word
from vcrl.bench.page_tables import (
    aggregates,
    both_table,
    error_table,
    paper_table,
    plain_table,
    plural,
    provenance,
    runs_table,
)
from vcrl.bench.stats import iqm, mean
from vcrl.runs.files import write_atomic, writing
from vcrl.runs.reading import find_runs

NOTES = "results-notes.md"
Lines = list[str]


def write(folder: Path, docs: Path) -> list[Path]:
    """Write the page and its figures."""
    suites = read(folder)
    drawn = [path for suite in suites for path in _draw(suite, docs / "images")]
    out = docs / "results.md"
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(out, text(folder, docs, suites).encode())
    return [out, *drawn]


def text(folder: Path, docs: Path, suites: Sequence[Suite]) -> str:
    """The page, with the hand-written notes if there are any."""
    notes = docs / NOTES
    tables = os.path.relpath(folder, docs)
    lines = [
        "# Results",
        "",
        "<!-- Written by `python -m vcrl.bench.results page`: edit results-notes.md, not this page. -->",
        "",
        "A score is the mean raw score of a seed's final evaluation ([protocol.md](protocol.md)). No run is left",
        "out; a seed that two versions trained is two runs.",
        "Published numbers come from the VCR paper and from 100 runs a game of SPR, DER and CURL released with rliable",
        "(sources in `src/vcrl/bench/data`). Everything else on this page is computed from "
        + " and ".join(f"[{s.name}.csv]({tables}/{s.name}.csv)" for s in suites)
        + ".",
        "",
        *_proofs(folder),
    ]
    for suite in suites:
        lines += [f"## In short: {suite.name}", "", *_short(suite), ""]
    if notes.exists():
        lines += [notes.read_text().strip(), ""]
    for suite in suites:
        lines += _section(suite)
    return "\n".join(lines).rstrip() + "\n"


def _proofs(folder: Path) -> Lines:
    named = [f"- `vcrl audit {run.relative_to(folder.parent)}`" for run in find_runs(folder / proofs.FOLDER)]
    told = "Of these runs the games are kept, and can be played again on any computer, without an agent:"
    return [told, "", *named, ""] if named else []


def _draw(suite: Suite, images: Path) -> list[Path]:
    scores: dict[str, dict[str, np.ndarray]] = {}
    known: dict[str, dict[str, Known]] = {}
    for cell in suite.cells:
        scores.setdefault(cell.task, {})[cell.method] = cell.scores
        if (told := known_of(cell)) is not None:
            known.setdefault(cell.task, {})[cell.method] = told
    drawn = figures.save(figures.seed_scores(scores, known), images / _image(suite, "scores"), ["png"])
    kinds = {
        task: {
            m: {kind.removeprefix("q_error/"): c for kind, c in curves.items()}
            for m, curves in methods.items()
        }
        for task, methods in suite.curves.items()
    }
    if kinds:
        figure = figures.q_error_curves(kinds)
        drawn += figures.save(figure, images / _image(suite, "q-error"), ["png"])
    return drawn


def _image(suite: Suite, what: str) -> str:
    return f"results-{suite.name}-{what}"


def _short(suite: Suite) -> Lines:
    """The verdicts in sentences."""
    lines: Lines = []
    for method, cells in suite.told().items():
        words = {cell.task: verdict(cell) or "not judged" for cell in cells}
        what = "published runs of" if cells[0].published else "the paper's"
        lines += _matches(f"`{method}` against {what} {cells[0].name}", words)
    if both := suite.both():
        words = {v.task: word(difference(s.normalised, v.normalised, mean)) for s, v in both}
        lines += _sentence("VCR against SPR, both ours", "VCR's score is", words)
    if errors := errors_of(suite):
        words = {task: word(difference(s[IMAGINED], v[IMAGINED], iqm)) for task, (s, v) in errors.items()}
        lines += _sentence("Q error of imagined states at the end", "VCR's is", words)
    for method in dict.fromkeys(cell.method for cell in suite.cells):
        hashes = sorted({row["config_hash"] for cell in suite.of(method).values() for row in cell.rows})
        if len(hashes) > 1:
            lines += [f"- The settings of `{method}` are not the same in all tasks: {', '.join(hashes)}."]
    for cell in suite.cells:
        for row in cell.rows:
            if row["not_finite_since"]:
                lines += [
                    f"- {cell.task}, `{cell.method}`, seed {row['seed']}: not finite since agent step "
                    f"{int(row['not_finite_since']):,}; scored with its last finite weights and part of every mean."
                ]
    return lines or ["Nothing here has a published counterpart."]


def _matches(what: str, words: Mapping[str, str]) -> Lines:
    """First how many match and which, then those that do not."""
    hits = [task for task in words if words[task] == "inside"]
    count = f"matches (inside the range) in {len(hits)} of {len(words)} {plural('task', len(words))}"
    first = f"{count} ({', '.join(hits)})" if hits else count
    return [f"- {what}: {'; '.join([first, *_listed(words, _order(words, 'inside'))])}."]


def _sentence(what: str, verb: str, words: Mapping[str, str]) -> Lines:
    """Every verdict with the tasks that have it."""
    told = "; ".join(_listed(words, _order(words)))
    return [f"- {what}, {len(words)} {plural('task', len(words))}: {verb} {told}."]


def _listed(words: Mapping[str, str], chosen: Iterable[str]) -> Lines:
    return [f"{one} in {', '.join(task for task in words if words[task] == one)}" for one in chosen]


def _order(words: Mapping[str, str], but: str = "") -> Lines:
    known = ["inside", "below", "above", "lower", "higher", "undecided", "not judged"]
    return [one for one in known if one in words.values() and one != but]


def _section(suite: Suite) -> Lines:
    lines = [f"## {suite.name}", ""]
    others = [cell for cell in suite.cells if cell.told is None]
    for cells in suite.told().values():
        name = cells[0].name
        if cells[0].published:
            lines += [f"### {name} against published runs", "", runs_table(cells), "", RUNS_NOTE, ""]
        else:
            note = PAPER_NOTE.format(name=name, runs=cells[0].behind)
            lines += [f"### {name} against the paper", "", paper_table(cells), "", note, ""]
    if suite.both():
        lines += ["### VCR against SPR, both ours", "", both_table(suite.both()), "", BOTH_NOTE, ""]
    if others:
        lines += [
            "### Other scores" if len(others) < len(suite.cells) else "### Scores",
            "",
            plain_table(others),
            "",
        ]
    if any(row["not_finite_since"] for cell in suite.cells for row in cell.rows):
        lines += ["\\* with a seed that is no longer finite, scored with its last finite weights.", ""]
    lines += aggregates(suite)
    lines += ["### Every seed", "", f"![scores of every seed](images/{_image(suite, 'scores')}.png)", ""]
    if suite.curves:
        lines += ["### Q error", "", f"![Q error](images/{_image(suite, 'q-error')}.png)", ""]
        lines += [error_table(suite), "", ERROR_NOTE, ""]
    return [*lines, "### Where the numbers come from", "", provenance(suite), "", ORIGIN_NOTE, ""]


RUNS_NOTE = """\
Ours: mean ± standard deviation over runs; normalised: random play is 0, a human 1. Range: the central 95% of means of
as many published runs as we have, redrawn from 100 runs. Below or above means that fewer than 1 in 40 such means
is as low or as high; in 20 games one is expected outside by chance."""
PAPER_NOTE = """\
Single runs of {name} are not among the published ones. The range is where, judged by our runs, the mean of {runs}
further runs would lie in 95 of 100 cases (Student's t). Inside: the paper's mean of {runs} runs lies in it; otherwise
ours is below or above the paper's. Few runs make a wide range, so "inside" with few runs says little."""
BOTH_NOTE = """\
Difference of the means of normalised scores, with its 95% bootstrap interval over runs; undecided where the interval
holds 0. With fewer than four runs of either nothing is judged: so few lie apart by chance too often."""
ERROR_NOTE = """\
At the last measurement: interquartile mean over the runs that were measured with its 95% bootstrap interval, in the
units of the learner's reward. Real and imagined errors divide by different counts ([protocol.md](protocol.md)):
compare down a column, not across."""
ORIGIN_NOTE = """\
Wall clock is that of the whole run, all its seeds together. A commit marked dirty had changes that were not committed.
What is not known is a dash."""
