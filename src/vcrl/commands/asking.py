"""Commands that say what there is: methods, tasks, an environment of one's own, this computer."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from vcrl.commands.parsing import ENV
from vcrl.commands.words import as_json, bring, refuse
from vcrl.core.errors import unknown
from vcrl.methods import library
from vcrl.methods.own import bring_loss
from vcrl.methods.show import diff_table, method_table, methods_table


@dataclass
class Methods:
    """List the methods, show one in full with the source of every number, or how two differ."""

    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="METHOD")] = None
    diff: tuple[str, str] | None = None
    """two methods to compare"""
    suite: str | None = None
    """show values as a suite sets them, for example toy"""

    def run(self, rest: list[str]) -> None:
        refuse(self, rest)
        from rich.console import Console

        if self.suite is not None and self.suite not in library.SUITES:
            raise unknown("suite", self.suite, library.SUITES)
        for name in self.diff or (self.name or "",):
            bring_loss(name)
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

    env: ENV
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
