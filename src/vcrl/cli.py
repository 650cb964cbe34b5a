"""The command line. Each command is a dataclass of its arguments; heavy imports wait until one is chosen."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Protocol, runtime_checkable

import tyro

from vcrl.core.config import from_text, paths
from vcrl.core.errors import UserError, unknown
from vcrl.core.pages import in_large_pages
from vcrl.methods import library
from vcrl.methods.show import diff_table, method_table, methods_table

MOST_SEEDS = 10_000  # that anybody could mean


@runtime_checkable
class Command(Protocol):
    def run(self, rest: list[str]) -> None: ...


@dataclass
class Train:
    """Train a method on a task, all seeds at once; the same command continues a stopped run.

    A task is a name of `vcrl tasks`, or a config that `vcrl check-env` wrote.
    Any setting of the method can be changed by its path, after METHOD and TASK, for example --terms.vcr.weight 0.5
    or --batch 16; `vcrl methods NAME` lists them.
    """

    method: tyro.conf.Positional[str]
    task: tyro.conf.Positional[str]
    seeds: str = "0:5"
    """0:5 for 0 to 4, or a list such as 0,3,7"""
    steps: int | None = None
    """agent steps; the task's protocol decides if not given"""
    protocol: str | None = None
    """another protocol than the task's usual one, such as atari100k-sticky"""
    out: Path = Path("runs")
    """where run folders are made"""
    evaluate_every: int = 0
    """agent steps between evaluations besides the final one; 0 is none"""
    q_error_every: int = 1000
    """agent steps between measurements of the Q-error of imagined states; 0 is none"""
    gradients_every: int = 1000
    """agent steps between measurements of every loss's gradient norm; 0 is none"""
    log_every: int = 100
    """agent steps between rows of metrics"""
    resume: str = "auto"
    """auto continues what is there; never insists on a new run, must on one that can be continued"""
    module: str | None = None
    """import this first, for an environment that a config names: a config itself cannot"""
    dry_run: bool = False
    """show the settings, memory, and how long it may take; start nothing"""

    def run(self, rest: list[str]) -> None:
        seeds, changes = parse_seeds(self.seeds), parse_changes(self, rest)
        from rich.console import Console

        from vcrl.training.config_file import asked
        from vcrl.training.plan import Schedule, make_plan
        from vcrl.training.run import preview, train_plan

        log = Console()
        schedule = Schedule(self.log_every, self.evaluate_every, self.gradients_every, self.q_error_every)
        task, steps, changes = asked(self.method, self.task, self.steps, changes, self.module)
        plan = make_plan(self.method, task, seeds, steps, changes, schedule, self.protocol)
        log.print(method_table(self.method, plan.config, plan.task.suite, plan.task.name))
        if self.dry_run:
            for line in preview(plan, self.out, self.resume):
                log.print(line, soft_wrap=True, markup=False, highlight=False)
            return
        run = train_plan(plan, self.out, log, resume=self.resume)
        if run.folder.status["state"] == "stopped":
            raise SystemExit(130)
        log.print(scores_table(run, run.scores(), plan.protocol.eval_episodes))
        log.print(f"run folder: {run.path}", soft_wrap=True)


@dataclass
class Eval:
    """Score a run: whole games without exploration, every seed."""

    folder: tyro.conf.Positional[Path]
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

    folder: tyro.conf.Positional[Path]
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
class Methods:
    """List the methods, show one in full with the source of every number, or how two differ."""

    name: tyro.conf.Positional[str | None] = None
    diff: tuple[str, str] | None = None
    """two methods to compare"""
    suite: str | None = None
    """show values as a suite sets them, for example toy"""

    def run(self, rest: list[str]) -> None:
        refuse(self, rest)
        from rich.console import Console

        if self.suite is not None and self.suite not in library.SUITES:
            raise unknown("suite", self.suite, library.SUITES)
        if self.diff is not None:
            table = diff_table(*self.diff, suite=self.suite)
        elif self.name is not None:
            table = method_table(self.name, library.resolve(self.name, self.suite), self.suite)
        else:
            table = methods_table()
        Console().print(table)


@dataclass
class Tasks:
    """List the tasks."""

    def run(self, rest: list[str]) -> None:
        refuse(self, rest)
        from rich.console import Console
        from rich.table import Table

        from vcrl.core.spec import Discrete
        from vcrl.envs.registry import TASKS

        table = Table(
            "task", "suite", "actions", "frame", "random", "reference", "about", box=None, pad_edge=False
        )
        for t in TASKS.values():
            kind = t.spec.actions
            actions = f"{kind.n} discrete" if isinstance(kind, Discrete) else f"{kind.size} continuous"
            frame = "x".join(map(str, t.spec.frame))
            table.add_row(
                t.name, t.suite, actions, frame, f"{t.random_score:.2f}", f"{t.reference_score:.2f}", t.about
            )
        table.add_row(
            "gym:MODULE:NAME", "gym", "either", "any", "", "", "yours, of Gymnasium; see vcrl check-env"
        )
        Console().print(table)


@dataclass
class CheckEnv:
    """Look at a Gymnasium environment by random play and write a config to train with, with reasons."""

    env: tyro.conf.Positional[str]
    """my_module:MyEnv-v0, my_module:MyClass, or a name that Gymnasium knows, such as CartPole-v1"""
    out: Path | None = None
    """where the config is written; named after the environment if not given"""
    steps: int = 500
    """random steps to play"""
    seed: int = 0
    """of the first game; the next one has the next seed"""
    module: str | None = None
    """import this first"""
    overwrite: bool = False
    """replace a config that is there"""

    def run(self, rest: list[str]) -> None:
        refuse(self, rest)
        bring(self.module)
        from vcrl.envs.check_env import check_env
        from vcrl.runs.facts import free_memory

        check_env(self.env, self.out, self.steps, self.seed, self.overwrite, free_memory())


@dataclass
class Demo:
    """Train a base, spr and vcr on built-in games and compare them: table, figures, animation."""

    out: Path = Path("demo")
    seeds: str = "0:5"
    steps: int | None = None
    games: Annotated[tuple[str, ...], tyro.conf.arg(metavar="GAME...")] = ("catch", "balloon")
    methods: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="METHOD...")] = None
    """the base for a game's actions (rainbow or sac), spr and vcr if not given"""

    def run(self, rest: list[str]) -> None:
        refuse(self, rest)
        from vcrl.demo import demo

        demo(self.out, parse_seeds(self.seeds), self.steps, self.games, self.methods)


@dataclass
class Ls:
    """List the runs in a folder: what they are, how far they are, what they scored."""

    folder: tyro.conf.Positional[str] = (
        "runs"  # not a Path: tyro stumbles over its default next to a wrong flag
    )
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

    folder: tyro.conf.Positional[Path]
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

    first: tyro.conf.Positional[Path]
    second: tyro.conf.Positional[Path]
    mixed: bool = False
    """compare scores of different protocols nevertheless"""

    def run(self, rest: list[str]) -> None:
        refuse(self, rest)
        from vcrl.bench.compare import compare

        print(compare(self.first, self.second, self.mixed))


@dataclass
class Report:
    """Write one web page about many runs: figures, tables, protocol, cost; it opens from disk."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUNS...")] = ()
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
class Campaign:
    """Train methods on a whole suite: what is missing is done, what is finished is left, what crashed is tried again.

    Settings of the methods can be changed by their paths, as in train, for all methods alike.
    """

    suite: tyro.conf.Positional[str]
    methods: str
    """a list such as spr,vcr"""
    seeds: str | None = None
    """0:10 for 0 to 9, or a list such as 0,3,7; the suite decides if not given"""
    tasks: str | None = None
    """a list of the suite's tasks; all of them if not given"""
    steps: int | None = None
    """agent steps; the suite's protocol decides if not given"""
    group: int | None = None
    """seeds trained together in one run; as many as fit and keep all GPUs busy if not given"""
    dry_run: bool = False
    """show the runs and the forecast, start nothing"""
    out: Path = Path("runs")
    """where run folders are made"""
    gpus: str | None = None
    """a list such as 0,1, or none for the CPU; all there are if not given"""
    gpu_memory: float | None = None
    """GB of each GPU, where it cannot be asked"""
    retries: int = 2
    """how often a run that crashed is tried again"""
    engine: str = "local"
    """local, ray or slurm"""
    print: bool = False
    """with --engine slurm: print the array script"""
    protocol: str | None = None
    """another protocol than the suite's, such as atari100k-sticky"""
    evaluate_every: int = 0
    """as in train"""
    q_error_every: int = 1000
    """as in train"""
    gradients_every: int = 1000
    """as in train"""
    log_every: int = 100
    """as in train"""

    def run(self, rest: list[str]) -> None:
        changes = parse_changes(self, rest)
        seeds = None if self.seeds is None else parse_seeds(self.seeds)
        from vcrl.campaign.ask import make_ask
        from vcrl.campaign.run import campaign

        names = ("steps", "protocol", "evaluate_every", "q_error_every", "gradients_every", "log_every")
        options = {name: getattr(self, name) for name in names}
        ask = make_ask(self.suite, self.methods, self.tasks, seeds, self.out, options, changes)
        code = campaign(
            ask, self.group, self.gpus, self.gpu_memory, self.retries, self.engine, self.dry_run, self.print
        )
        if code:
            raise SystemExit(code)


@dataclass
class Verify:
    """Check every file of a run: sizes, checksums, order, counts, names; nothing is loaded or changed."""

    folder: tyro.conf.Positional[Path]
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

    folder: tyro.conf.Positional[Path]
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


@dataclass
class Doctor:
    """Look whether everything is there to train with, and say which command mends what is not."""

    out: Path = Path("runs")
    """where run folders would be made"""
    json: bool = False
    """as JSON, for programs"""

    def run(self, rest: list[str]) -> None:
        refuse(self, rest)
        from vcrl.doctor import examine
        from vcrl.runs.verify import failed, text

        checks = examine(self.out)
        told = {"healthy": not failed(checks), "checks": [check._asdict() for check in checks]}
        print(as_json(told) if self.json else text(checks))
        if failed(checks):
            raise SystemExit(1)


COMMANDS: dict[str, type[Command]] = {
    "train": Train,
    "eval": Eval,
    "watch": Watch,
    "methods": Methods,
    "tasks": Tasks,
    "check-env": CheckEnv,
    "demo": Demo,
    "campaign": Campaign,
    "ls": Ls,
    "show": Show,
    "compare": Compare,
    "report": Report,
    "verify": Verify,
    "audit": Audit,
    "doctor": Doctor,
}


def command() -> None:
    """What the shell calls."""
    if sys.argv[1:2] == ["train"]:
        in_large_pages()
    main()


def main(arguments: Sequence[str] | None = None) -> None:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(usage())
        return
    try:
        if words[0] in ("-V", "--version"):
            import vcrl

            print(f"vcrl {vcrl.__version__}")
            return
        if words[0] not in COMMANDS:
            raise unknown("command", words[0], COMMANDS, "`vcrl --help` lists them.")
        # A user's own environment is usually a module in the folder they stand in.
        sys.path.insert(0, "")
        command, rest = tyro.cli(
            COMMANDS[words[0]], prog=f"vcrl {words[0]}", args=words[1:], return_unknown_args=True
        )
        command.run(rest)
    except UserError as error:
        print(f"vcrl: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except BrokenPipeError:  # `vcrl ls | head` has what it wants
        sys.stderr.close()
        raise SystemExit(0) from None
    except KeyboardInterrupt:
        print("vcrl: interrupted; the same command continues from the last checkpoint", file=sys.stderr)
        raise SystemExit(130) from None


def usage() -> str:
    lines = [
        f"  vcrl {name:8s} {(command.__doc__ or '').splitlines()[0]}" for name, command in COMMANDS.items()
    ]
    return "\n".join(
        [
            "value-consistent representation learning from pixels",
            "",
            *lines,
            "",
            "vcrl COMMAND --help says more",
        ]
    )


def parse_seeds(text: str) -> list[int]:
    """0:5 -> 0, 1, 2, 3, 4; 0,3,7 -> those."""
    try:
        if ":" in text:
            start, stop = text.split(":")
            found = range(int(start or 0), int(stop))
        else:
            found = [int(part) for part in text.split(",")]
        if 0 < len(found) <= MOST_SEEDS:
            return list(found)
        what = " has too many" if found else " has no seeds"
    except (ValueError, OverflowError):
        what = ""
    raise UserError(f"--seeds {text[:80]}{what}: give a range such as 0:5 or a list such as 0,3,7")


def parse_changes(command: Command, rest: list[str]) -> dict[str, Any]:
    """Flags tyro does not know are settings of the method, by dotted path."""
    changes: dict[str, Any] = {}
    words = iter(rest)
    for word in words:
        if not word.startswith("--"):
            raise UserError(f"'{word}' is one argument too many: vcrl train METHOD TASK --flag value")
        flag, equals, value = word.removeprefix("--").partition("=")
        path = flag.replace("-", "_")
        families = library.FAMILIES.values()
        leaves = {p for family in families for name in family.methods for p in paths(family.resolve(name))}
        known = leaves | {p.rpartition(".")[0] for p in leaves}
        if path not in known:
            # Settings are too many to list them all.
            names = [f"--{name}" for name in flags(command) + sorted(known - {""})]
            raise unknown(
                "flag", f"--{flag}", names, whole="`vcrl train --help` and `vcrl methods NAME` list them."
            )
        if not equals:
            value = next(words, None)
            if value is None:
                raise UserError(f"--{flag} needs a value")
        changes[path] = from_text(value)
    return changes


def bring(module: str | None) -> None:
    if module is not None:
        from vcrl.envs.gym_find import bring

        bring(module, "which --module names")


def refuse(command: Command, rest: list[str]) -> None:
    if rest:
        raise unknown("flag", rest[0], [f"--{name}" for name in [*flags(command), "help"]])


def warn(lines: Sequence[str]) -> None:
    for line in lines:
        print(f"vcrl: left out: {line}", file=sys.stderr)


def as_json(value: Any) -> str:
    import json

    return json.dumps(value, indent=2, allow_nan=False)


def flags(command: Any) -> list[str]:
    return [f.name.replace("_", "-") for f in fields(command)]


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


if __name__ == "__main__":
    command()
