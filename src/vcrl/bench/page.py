"""The page of results: docs/results.md and its figures, made from the tables in results/ and from nothing else."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vcrl.bench import figures, paper, results
from vcrl.bench.figures import Curve, Known
from vcrl.bench.looks import looks
from vcrl.bench.results import Row
from vcrl.bench.stats import Interval, interval, iqm, mean, mean_of_more, median, optimality_gap
from vcrl.bench.tables import Column, interval_text, markdown, number_text, number_texts
from vcrl.core.errors import UserError
from vcrl.runs.files import write_atomic, writing

NOTES = "results-notes.md"
IMAGINED, REAL = "q_error/imagined", "q_error/real"
FEW = 4  # runs; three of one method lie all above three of another by chance in 1 of 10 cases, either way counted
Lines = list[str]


class Cell(NamedTuple):
    """One method on one task: a row for every run of a seed, in order."""

    task: str
    method: str
    rows: list[Row]

    @property
    def scores(self) -> np.ndarray:
        return np.array([float(row["score"]) for row in self.rows])

    @property
    def normalised(self) -> np.ndarray:
        return np.array([float(row["normalised"] or "nan") for row in self.rows])

    @property
    def told(self) -> float | None:
        """The paper's score of this method on this task."""
        name = paper.NAMES.get(self.method, "")
        control = paper.dmc().get(self.rows[0].get("protocol", ""), {}).get(name, {}).get(self.task)
        return paper.scores().get(name, {}).get(self.task) if control is None else control.mean


class Suite(NamedTuple):
    name: str
    cells: list[Cell]  # by task, the usual methods first
    curves: dict[str, dict[str, dict[str, Curve]]]  # Q-errors by task, method and column

    def of(self, method: str) -> dict[str, Cell]:
        return {cell.task: cell for cell in self.cells if cell.method == method}

    def both(self) -> list[tuple[Cell, Cell]]:
        """SPR and VCR on the tasks that have both."""
        spr, vcr = self.of("spr"), self.of("vcr")
        return [(spr[task], vcr[task]) for task in spr if task in vcr]


def write(folder: Path, docs: Path) -> list[Path]:
    """Write the page and its figures."""
    suites = read(folder)
    drawn = [path for suite in suites for path in _draw(suite, docs / "images")]
    out = docs / "results.md"
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(out, text(folder, docs, suites).encode())
    return [out, *drawn]


def read(folder: Path) -> list[Suite]:
    """The suites in a folder of results, checked: what stands in one table must be comparable."""
    names = results.suites(folder)
    if not names:
        raise UserError(
            f"no results in {folder}: put some there with python -m vcrl.bench.results add RUN..."
        )
    return [_suite(folder, name) for name in names]


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
    ]
    for suite in suites:
        lines += [f"## In short: {suite.name}", "", *_short(suite), ""]
    if notes.exists():
        lines += [notes.read_text().strip(), ""]
    for suite in suites:
        lines += _section(suite)
    return "\n".join(lines).rstrip() + "\n"


def verdict(cell: Cell) -> str | None:
    """Whether our mean is one that as many published runs could have had: inside, below or above.

    Where single runs were not published: whether the paper's mean is one that as many more of our runs could have had.
    None where nothing was published, or a single seed of ours cannot tell.
    """
    mean_score, name = float(cell.scores.mean()), paper.NAMES.get(cell.method, "")
    if cell.task in paper.published().get(name, {}):
        return paper.band(name, cell.task, len(cell.rows)).verdict(mean_score)
    if cell.told is None or len(cell.rows) < 2:
        return None
    _, low, high = mean_of_more(cell.scores, paper.RUNS[name])
    return "inside" if low <= cell.told <= high else "below" if mean_score < cell.told else "above"


def _suite(folder: Path, name: str) -> Suite:
    tables, path = results.load(folder, name), folder / f"{name}.csv"
    if len(found := {row["protocol_hash"] for row in tables.scores}) > 1:
        raise UserError(f"{path} has scores of protocols {' and '.join(sorted(found))}: keep those of one")
    grouped: dict[tuple[str, str], list[Row]] = {}
    for row in tables.scores:
        grouped.setdefault((row["task"], row["method"]), []).append(row)
    order = list(looks(row["method"] for row in tables.scores))
    cells = [Cell(t, m, grouped[t, m]) for t, m in sorted(grouped, key=lambda k: (k[0], order.index(k[1])))]
    for cell in cells:
        configs = sorted({row["config_hash"] for row in cell.rows})
        what = f"{path}: {cell.task}, {cell.method} has"
        if len(configs) > 1:
            raise UserError(f"{what} scores of configs {' and '.join(configs)}: keep those of one")
        # Trained anew by another version, a seed is another run wherever the two round differently; else it is one.
        same = Counter((row["seed"], row["score"]) for row in cell.rows)
        if twice := [seed for (seed, _), count in same.items() if count > 1]:
            raise UserError(f"{what} the same score of seed {twice[0]} by two commits: keep one of them")
    curves: dict[str, dict[str, dict[str, Curve]]] = {}
    measured: dict[tuple[str, ...], dict[int, Row]] = {}
    for row in tables.q_error:
        measured.setdefault(results.key_of(row), {})[int(row["agent_steps"])] = row
    for cell in cells:
        if found := _curves([measured.get(results.key_of(row), {}) for row in cell.rows]):
            curves.setdefault(cell.task, {})[cell.method] = found
    return Suite(name, cells, curves)


def _curves(seeds: Sequence[Mapping[int, Row]]) -> dict[str, Curve]:
    """Q-errors of one method on one task, at the steps at which all seeds were measured that were at all."""
    seeds = [at for at in seeds if at]
    steps = sorted(set.intersection(*map(set, seeds))) if seeds else []
    if not steps:
        return {}
    found = {}
    for name in (IMAGINED, REAL):
        values = np.array([[float(at[step].get(name) or "nan") for step in steps] for at in seeds])
        if np.isfinite(values).any():
            found[name] = Curve(np.array(steps), values)
    return found


def _draw(suite: Suite, images: Path) -> list[Path]:
    scores: dict[str, dict[str, np.ndarray]] = {}
    known: dict[str, dict[str, Known]] = {}
    for cell in suite.cells:
        scores.setdefault(cell.task, {})[cell.method] = cell.scores
        if (told := _known(cell)) is not None:
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


def _known(cell: Cell) -> Known | None:
    name = paper.NAMES.get(cell.method, "")
    found = paper.published().get(name, {}).get(cell.task)
    if found is not None:
        return Known(found.mean, (found.p5, found.p95), paper.band(name, cell.task, len(cell.rows)))
    return None if cell.told is None else Known(cell.told)


def _image(suite: Suite, what: str) -> str:
    return f"results-{suite.name}-{what}"


def _short(suite: Suite) -> Lines:
    """The verdicts in sentences."""
    lines: Lines = []
    for method, name in paper.NAMES.items():
        words = {t: verdict(c) or "not judged" for t, c in suite.of(method).items() if c.told is not None}
        what = "published runs of" if name in paper.published() else "the paper's"
        if words:
            lines += _matches(f"`{method}` against {what} {name}", words)
    if both := suite.both():
        words = {v.task: _word(_difference(s.normalised, v.normalised, mean)) for s, v in both}
        lines += _sentence("VCR against SPR, both ours", "VCR's score is", words)
    if errors := _errors(suite):
        words = {task: _word(_difference(s[IMAGINED], v[IMAGINED], iqm)) for task, (s, v) in errors.items()}
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
    count = f"matches (inside the range) in {len(hits)} of {len(words)} {_plural('task', len(words))}"
    first = f"{count} ({', '.join(hits)})" if hits else count
    return [f"- {what}: {'; '.join([first, *_listed(words, _order(words, 'inside'))])}."]


def _sentence(what: str, verb: str, words: Mapping[str, str]) -> Lines:
    """Every verdict with the tasks that have it."""
    told = "; ".join(_listed(words, _order(words)))
    return [f"- {what}, {len(words)} {_plural('task', len(words))}: {verb} {told}."]


def _listed(words: Mapping[str, str], chosen: Iterable[str]) -> Lines:
    return [f"{word} in {', '.join(task for task in words if words[task] == word)}" for word in chosen]


def _order(words: Mapping[str, str], but: str = "") -> Lines:
    known = ["inside", "below", "above", "lower", "higher", "undecided", "not judged"]
    return [word for word in known if word in words.values() and word != but]


def _plural(word: str, count: int) -> str:
    return word if count == 1 else word + "s"


def _section(suite: Suite) -> Lines:
    lines = [f"## {suite.name}", ""]
    others = [cell for cell in suite.cells if cell.told is None]
    for method, name in paper.NAMES.items():
        cells = [cell for cell in suite.of(method).values() if cell.told is not None]
        if cells and name in paper.published():
            lines += [f"### {name} against published runs", "", _runs_table(cells), "", RUNS_NOTE, ""]
        elif cells:
            note = PAPER_NOTE.format(name=name, runs=paper.RUNS[name])
            lines += [f"### {name} against the paper", "", _paper_table(cells), "", note, ""]
    if suite.both():
        lines += ["### VCR against SPR, both ours", "", _both_table(suite.both()), "", BOTH_NOTE, ""]
    if others:
        lines += [
            "### Other scores" if len(others) < len(suite.cells) else "### Scores",
            "",
            _plain_table(others),
            "",
        ]
    if any(row["not_finite_since"] for cell in suite.cells for row in cell.rows):
        lines += ["\\* with a seed that is no longer finite, scored with its last finite weights.", ""]
    lines += _aggregates(suite)
    lines += ["### Every seed", "", f"![scores of every seed](images/{_image(suite, 'scores')}.png)", ""]
    if suite.curves:
        lines += ["### Q error", "", f"![Q error](images/{_image(suite, 'q-error')}.png)", ""]
        lines += [_error_table(suite), "", ERROR_NOTE, ""]
    return [*lines, "### Where the numbers come from", "", _provenance(suite), "", ORIGIN_NOTE, ""]


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


def _runs_table(cells: Sequence[Cell]) -> str:
    name = paper.NAMES[cells[0].method]
    known = [paper.published()[name][cell.task] for cell in cells]
    ranges = [paper.band(name, cell.task, len(cell.rows)) for cell in cells]
    return markdown(
        [
            *_ours(cells),
            Column("paper", [_score(cell.told) for cell in cells], True),
            Column("published runs", [number_text(found.mean) for found in known], True),
            Column("range", [_range(*ends) for ends in ranges], True),
            Column("verdict", [verdict(cell) or "-" for cell in cells], False),
        ]
    )


def _paper_table(cells: Sequence[Cell]) -> str:
    runs = paper.RUNS[paper.NAMES[cells[0].method]]
    ranges = [mean_of_more(cell.scores, runs) for cell in cells]
    return markdown(
        [
            *_ours(cells),
            Column("paper", [_score(cell.told) for cell in cells], True),
            Column("range", [_range(r.low, r.high) if np.isfinite(r.low) else "-" for r in ranges], True),
            Column("verdict", [verdict(cell) or "-" for cell in cells], False),
        ]
    )


def _both_table(pairs: Sequence[tuple[Cell, Cell]]) -> str:
    found = [_difference(spr.normalised, vcr.normalised, mean) for spr, vcr in pairs]
    published = [
        "-"
        if spr.told is None or vcr.told is None
        else _signed(paper.normalise(vcr.task, vcr.told) - paper.normalise(spr.task, spr.told))
        for spr, vcr in pairs
    ]
    return markdown(
        [
            Column("task", [vcr.task for _, vcr in pairs], False),
            Column("SPR", [_score(float(spr.normalised.mean()), 2) for spr, _ in pairs], True),
            Column("VCR", [_score(float(vcr.normalised.mean()), 2) for _, vcr in pairs], True),
            Column("VCR - SPR", [_difference_text(value) for value in found], True),
            Column("the paper's", published, True),
            Column("VCR is", [_word(value) for value in found], False),
        ]
    )


def _plain_table(cells: Sequence[Cell]) -> str:
    columns = _ours(cells)
    columns.insert(1, Column("method", [cell.method for cell in cells], False))
    return markdown(columns)


def _ours(cells: Sequence[Cell]) -> list[Column]:
    """The columns every table of scores begins with."""
    spread = [_spread(cell.scores) for cell in cells]
    marked = [bool([row for row in cell.rows if row["not_finite_since"]]) for cell in cells]
    ours = [told + r" \*" * mark for told, mark in zip(spread, marked, strict=True)]
    return [
        Column("task", [cell.task for cell in cells], False),
        Column("runs", [str(len(cell.rows)) for cell in cells], True),
        Column("ours", ours, True),
        Column("normalised", [_score(float(cell.normalised.mean()), 2) for cell in cells], True),
    ]


def _aggregates(suite: Suite) -> Lines:
    """Over the games that SPR and VCR both have here, for a mean over other games is another number."""
    methods = [m for m in ("spr", "vcr") if suite.of(m)]
    tasks = [t for t in paper.scores()["SPR"] if methods and all(t in suite.of(m) for m in methods)]
    if not tasks:
        return []
    rows = {m: [suite.of(m)[t].normalised for t in tasks] for m in methods}
    least = min(len(scores) for mine in rows.values() for scores in mine)
    statistics = {"IQM": iqm, "mean": mean, "median": median, "optimality gap": optimality_gap}
    cells = {
        name: [interval_text(interval(mine, statistic), least) for mine in rows.values()]
        for name, statistic in statistics.items()
    }
    for method in methods:
        told = [np.array([paper.normalise(t, paper.scores()[paper.NAMES[method]][t])]) for t in tasks]
        whole = paper.aggregates()[paper.NAMES[method]] if len(tasks) == len(paper.scores()["SPR"]) else {}
        cells["IQM"].append(_score(whole.get("iqm"), 3))
        cells["mean"].append(_score(float(mean(told)), 3))
        cells["median"].append(_score(float(median(told)), 3))
        cells["optimality gap"].append(_score(whole.get("optimality_gap"), 3))
    names = [*methods, *(f"{m}, paper" for m in methods)]
    table = markdown([Column("method", names, False), *(Column(n, c, True) for n, c in cells.items())])
    note = (
        f"Human-normalised, over {len(tasks)} {_plural('game', len(tasks))} of 26, with 95% stratified-bootstrap "
        "intervals. The paper's rows are\nrecomputed from its means for the same games, so that like is compared with "
        "like; its IQM and optimality gap need single\nruns and are known for all 26 games only."
    )
    return [
        f"### All {len(tasks)} games together" if len(tasks) > 1 else "### Normalised",
        "",
        table,
        "",
        note,
        "",
    ]


def _errors(suite: Suite) -> dict[str, tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]:
    """The last Q-errors of SPR and VCR, a number a seed, on tasks where both have those of imagined states."""
    found = {}
    for task, methods in suite.curves.items():
        if all(IMAGINED in methods.get(m, {}) for m in ("spr", "vcr")):
            spr, vcr = ({k: c.values[:, -1] for k, c in methods[m].items()} for m in ("spr", "vcr"))
            found[task] = spr, vcr
    return found


def _error_table(suite: Suite) -> str:
    rows = [(task, m, kinds) for task, methods in suite.curves.items() for m, kinds in methods.items()]
    any_of = [next(iter(kinds.values())) for _, _, kinds in rows]
    return markdown(
        [
            Column("task", [task for task, _, _ in rows], False),
            Column("method", [method for _, method, _ in rows], False),
            Column("runs", [str(len(curve.values)) for curve in any_of], True),
            Column("agent steps", [f"{int(curve.steps[-1]):,}" for curve in any_of], True),
            Column("imagined", [_last(kinds.get(IMAGINED)) for _, _, kinds in rows], True),
            Column("real", [_last(kinds.get(REAL)) for _, _, kinds in rows], True),
        ]
    )


def _last(curve: Curve | None) -> str:
    if curve is None:
        return "-"
    values = curve.values[:, -1]
    return interval_text(interval([values], iqm), len(values)) if np.isfinite(values).all() else "not finite"


def _provenance(suite: Suite) -> str:
    names = ("commit", "config_hash", "seeds", "command", "hardware", "wall_clock_s", "finished")
    runs = list(
        dict.fromkeys(
            (c.task, c.method, *(row[name] for name in names)) for c in suite.cells for row in c.rows
        )
    )
    at = {name: [run[2 + i] or "-" for run in runs] for i, name in enumerate(names)}
    protocols = [f"`{row['protocol_hash']}`" for row in suite.cells[0].rows[:1]]
    return f"Protocol {suite.cells[0].rows[0]['protocol']}, hash {protocols[0]}.\n\n" + markdown(
        [
            Column("task", [run[0] for run in runs], False),
            Column("method", [run[1] for run in runs], False),
            Column("seeds", at["seeds"], False),
            Column("commit", [_commit(commit) for commit in at["commit"]], False),
            Column("config", at["config_hash"], False),
            Column("hardware", at["hardware"], False),
            Column("wall clock", [_clock(seconds) for seconds in at["wall_clock_s"]], True),
            Column("finished", at["finished"], False),
            Column("command", [f"`{c}`" if c != "-" else c for c in at["command"]], False),
        ]
    )


def _commit(text: str) -> str:
    commit, dirty, _ = text.partition("-dirty")
    return commit[:10] + (" (dirty)" if dirty else "")


def _clock(text: str) -> str:
    if text == "-":
        return text
    seconds = float(text)
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * 3600 else f"{seconds / 3600:.1f} h"


def _difference(first: np.ndarray, second: np.ndarray, statistic: Callable[..., object]) -> Interval | None:
    """Second less first; None where seeds are too few for an interval to be believed, or are not finite."""
    if min(len(first), len(second)) < FEW or not (np.isfinite(first).all() and np.isfinite(second).all()):
        return None
    return interval([first, second], lambda runs: statistic([runs[1]]) - statistic([runs[0]]))  # type: ignore


def _word(difference: Interval | None) -> str:
    if difference is None:
        return "not judged"
    return "higher" if difference.low > 0 else "lower" if difference.high < 0 else "undecided"


def _difference_text(value: Interval | None) -> str:
    return "-" if value is None else f"{_signed(value.point)} [{_signed(value.low)}, {_signed(value.high)}]"


def _signed(value: float) -> str:
    return f"{value:+z.2f}"  # z: no minus before a zero


def _spread(scores: np.ndarray) -> str:
    if len(scores) < 2:
        return number_text(float(scores.mean()))
    point, sd = number_texts([float(scores.mean()), float(scores.std(ddof=1))])
    return f"{point} ± {sd}"


def _range(low: float, high: float) -> str:
    return "[{}, {}]".format(*number_texts([low, high]))


def _score(value: float | None, decimals: int | None = None) -> str:
    if value is None or not np.isfinite(value):
        return "-"
    return number_text(value) if decimals is None else f"{value:z,.{decimals}f}"
