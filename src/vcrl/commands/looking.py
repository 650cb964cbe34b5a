"""Commands that look at runs."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vcrl.commands.parsing import FOLDER, RUN, RUNS
from vcrl.commands.words import as_json, bring, parse_seeds, refuse, warn
from vcrl.core.errors import UserError


@dataclass
class Eval:
    """Score a run: whole games without exploration, every seed."""

    folder: RUN
    episodes: int | None = None
    """games of each seed; the protocol decides if not given"""
    module: str | None = None
    """import this first, for an environment of one's own: a run folder itself cannot"""

    def run(self, rest: list[str]) -> None:
        refuse(self, rest)
        bring(self.module)
        from rich.console import Console

        from vcrl.training.run import load_run

        run = load_run(self.folder)
        games = run.evaluate(self.episodes)
        means = {seed: sum(g.score for g in mine) / len(mine) for seed, mine in games.items()}
        Console().print(scores_table(run, means, len(next(iter(games.values())))))


@dataclass
class Watch:
    """Write an animation of a trained agent, several seeds side by side."""

    folder: RUN
    out: Path = Path("play.gif")
    episodes: int = 5
    seeds: str | None = None
    """which seeds to show, as in train; all of them, up to five, if not given"""
    module: str | None = None
    """import this first, for an environment of one's own: a run folder itself cannot"""

    def run(self, rest: list[str]) -> None:
        refuse(self, rest)
        bring(self.module)
        from vcrl.training.film import film
        from vcrl.training.run import load_run

        run = load_run(self.folder)
        seeds = parse_seeds(self.seeds) if self.seeds else list(run.plan.seeds[:5])
        print(f"wrote {film(run, self.out, seeds, self.episodes)}")


@dataclass
class Ls:
    """List the runs in a folder: what they are, how far they are, what they scored."""

    folder: FOLDER = "runs"
    """where to look"""
    json: bool = False
    """as JSON, for programs"""

    def run(self, rest: list[str]) -> None:
        refuse(self, rest)
        from vcrl.bench.listing import list_runs, listing_text

        found = list_runs(Path(self.folder))
        warn(found.left_out)
        if not found.lines:
            raise UserError(f"none of the {len(found.left_out)} runs in {self.folder} could be read")
        print(as_json([line._asdict() for line in found.lines]) if self.json else listing_text(found.lines))


@dataclass
class Show:
    """Show everything about one run: state, scores, protocol, settings, how it was made."""

    folder: RUN
    json: bool = False
    """as JSON, for programs"""

    def run(self, rest: list[str]) -> None:
        refuse(self, rest)
        from vcrl.bench.listing import describe, description_text

        told = describe(self.folder)
        print(as_json(told) if self.json else description_text(told))


@dataclass
class Compare:
    """Compare two runs: settings, protocol, scores."""

    first: RUN
    second: RUN
    mixed: bool = False
    """compare scores of different protocols nevertheless"""

    def run(self, rest: list[str]) -> None:
        refuse(self, rest)
        from vcrl.bench.compare import compare

        print(compare(self.first, self.second, self.mixed))


@dataclass
class Report:
    """Write one web page about many runs: figures, tables, protocol, cost; it opens from disk."""

    runs: RUNS = ()
    """run folders, or folders of such"""
    out: Path = Path("report")
    """where index.html is written"""
    bank: Path | None = None
    """a folder of single runs that others published, to compare with"""
    results: Path | None = None
    """a folder of kept results, to compare with"""
    methods: str | None = None
    """which methods to show, such as spr,vcr; all if not given, of a bank those in the paper's table"""
    mixed: bool = False
    """put scores of different protocols into one figure; it says so"""
    files: bool = False
    """also write figures (PDF, SVG, PNG) and tables (Markdown, LaTeX), ours and the paper's"""

    def run(self, rest: list[str]) -> None:
        refuse(self, rest)
        # Many small products of matrices are slower in threads, and a process with threads cannot be forked.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        from vcrl.bench.report import report

        chosen = None if self.methods is None else [m.strip() for m in self.methods.split(",") if m.strip()]
        left_out, written = report(
            self.runs, self.out, self.bank, self.results, chosen, self.mixed, self.files
        )
        warn(left_out)
        print(f"wrote {written[0]}" + (f" and {len(written) - 1} files beside it" if written[1:] else ""))


@dataclass
class Verify:
    """Check every file of a run: sizes, checksums, order, counts, names; nothing is loaded or changed."""

    folder: RUN
    json: bool = False
    """as JSON, for programs"""

    def run(self, rest: list[str]) -> None:
        refuse(self, rest)
        from vcrl.runs.verify import as_data, failed, text, verify

        checks = verify(self.folder)
        print(as_json(as_data(self.folder, checks)) if self.json else text(checks))
        if failed(checks):
            raise SystemExit(1)


@dataclass
class Audit:
    """Play the games behind a run's scores again, from its receipts, and say whether the scores hold."""

    folder: RUN
    seeds: str | None = None
    """of these seeds only, as in train"""
    games: int | None = None
    """of each evaluation the first games of every seed only"""
    final: bool = False
    """the final evaluation only"""
    tolerance: float = 0.0
    """how far a score may be off; physics differ by a little between processors"""
    module: str | None = None
    """the module a run's own environment comes from: it is imported"""
    json: bool = False
    """as JSON, for programs"""

    def run(self, rest: list[str]) -> None:
        refuse(self, rest)
        from vcrl.bench.audit import as_data, audit, progress_line, text

        seeds = None if self.seeds is None else parse_seeds(self.seeds)
        with progress_line() as progress:
            verdict = audit(self.folder, seeds, self.games, self.final, self.tolerance, self.module, progress)
        print(as_json(as_data(verdict)) if self.json else text(verdict))
        if not verdict.holds:
            raise SystemExit(1)


def scores_table(run: Any, means: dict[int, float], episodes: int) -> Any:
    """Per seed the mean raw score, and on the scale of random play 0 and the best possible 1 where it is known."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from vcrl.envs.registry import normalise

    known = run.plan.task.random_score is not None
    table = Table("seed", "score", *(["normalised"] if known else []), box=None, pad_edge=False)
    for seed, mean in means.items():
        table.add_row(str(seed), f"{mean:.3f}", *([f"{normalise(run.plan.task, mean):.3f}"] if known else []))
    average = sum(means.values()) / len(means)
    table.add_row("mean", f"{average:.3f}", *([f"{normalise(run.plan.task, average):.3f}"] if known else []))
    return Group(table, Text(f"{run.plan.method} on {run.plan.task.name}, {episodes} games a seed"))
