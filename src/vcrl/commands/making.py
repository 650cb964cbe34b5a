"""Commands that train."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from vcrl.commands.looking import scores_table
from vcrl.commands.parsing import METHOD, SUITE, TASK
from vcrl.commands.words import parse_changes, parse_seeds, refuse
from vcrl.core.errors import UserError
from vcrl.methods.show import method_table


@dataclass
class Train:
    """Train a method on a task, all seeds at once; the same command continues a stopped run.

    A task is a name of `vcrl tasks`, or a config that `vcrl check-env` wrote.
    Any setting of the method can be changed by its path, after METHOD and TASK, for example --terms.vcr.weight 0.5
    or --batch 16; `vcrl methods NAME` lists them.
    """

    method: METHOD
    task: TASK
    seeds: str = "0:5"
    """0:5 is seeds 0 to 4; 0,3,7 is those; 5 is seed 5 alone"""
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
    expect: str | None = None
    """train the run of this digest or none: what a campaign has planned"""

    def run(self, rest: list[str]) -> None:
        seeds, changes = parse_seeds(self.seeds), parse_changes(self, rest)
        from rich.console import Console

        from vcrl.training.config_file import asked
        from vcrl.training.plan import Schedule, make_plan
        from vcrl.training.run import check_word, preview, train_plan

        log = Console()
        check_word(self.resume)
        schedule = Schedule(self.log_every, self.evaluate_every, self.gradients_every, self.q_error_every)
        task, steps, changes = asked(self.method, self.task, self.steps, changes, self.module)
        plan = make_plan(self.method, task, seeds, steps, changes, schedule, self.protocol)
        if self.expect not in (None, plan.digest):
            raise UserError(
                f"{self.method} on {plan.task.name} was {self.expect} when it was planned and is {plan.digest} now: "
                "settings, this program or the file of its loss have changed; start the campaign again"
            )
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
class Campaign:
    """Train methods on a whole suite: what is missing is done, what is finished is left, what crashed is tried again.

    Settings of the methods can be changed by their paths, as in train, for all methods alike.
    """

    suite: SUITE
    """toy, toy-2, atari100k, atari100k-3, dmc100k or dmc500k"""
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
