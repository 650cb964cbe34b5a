"""A family of methods: one base, and named sets of changes to it. No method has code of its own.

`spr+my_ideas:smooth` is a method with a loss of one's own beside its terms.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from vcrl.core.config import change, paths
from vcrl.core.errors import unknown
from vcrl.methods.configs import Config, Own
from vcrl.methods.own import code_of, with_loss

OF_ITS_NAME = ("terms.own.loss", "terms.own.code")  # what no setting changes

Changes = dict[str, tuple[Any, str]]  # dotted path -> value, where it comes from


class Method(NamedTuple):
    name: str
    of: str | None
    about: str
    changes: Changes
    keeps: tuple[str, ...] = ()  # what no task changes, since its reference has one value for all


@dataclass
class Family:
    """`suites` is what a suite asks of every method alike, `tasks` what a task changes besides, by suite and name."""

    base: str
    config: Config
    methods: dict[str, Method] = field(default_factory=dict)
    suites: dict[str, Changes] = field(default_factory=dict)
    tasks: dict[tuple[str, str], Changes] = field(default_factory=dict)
    lacks: Callable[[Any], dict[str, bool]] = lambda config: {}

    def method(
        self,
        name: str,
        about: str,
        of: str | None = None,
        changes: Changes | None = None,
        keeps: tuple[str, ...] = (),
    ) -> None:
        self.methods[name] = Method(name, of, about, changes or {}, keeps)

    def find(self, name: str) -> Method:
        known, _ = with_loss(name)
        if known not in self.methods:
            raise unknown("method", known, self.methods, "`vcrl methods` lists them.")
        return self.methods[known]

    def lineage(self, name: str) -> list[tuple[str, tuple[Any, str]]]:
        """All changes from the base to the method, in order."""
        here = self.find(name)
        return [*(self.lineage(here.of) if here.of else []), *here.changes.items()]

    def surroundings(self, name: str, suite: str | None, task: str | None) -> list[tuple[str, Changes]]:
        """What the suite changes, then what the task does, each with its name."""
        keeps, asked = self.find(name).keeps, self.tasks.get((suite or "", task or ""))
        found = [(suite or "", self.suites.get(suite or "")), (task or "", asked)]
        return [
            (where, {path: new for path, new in changes.items() if where != task or path not in keeps})
            for where, changes in found
            if changes is not None
        ]

    def resolve(self, name: str, suite: str | None = None, task: str | None = None) -> Any:
        """The whole config of a method, on a suite and on a task of it if they are named."""
        config = self.config
        for path, (value, _) in self.lineage(name):
            config = change(config, path, value)
        for _, changes in self.surroundings(name, suite, task):
            for path, (value, _) in changes.items():
                if self.applies(config, path):
                    config = change(config, path, value)
        _, loss = with_loss(name)
        if loss is not None:
            depths = [term.steps for term in vars(config.terms).values() if hasattr(term, "steps")]
            own = Own(loss, code_of(loss), steps=max(depths, default=Own.steps))
            config = change(config, "terms.own", own)
        return config

    def applies(self, config: Any, path: str) -> bool:
        """Whether a suite's change concerns this method: it does not bring in a part that the method does without."""
        if any(absent and path.startswith(part) for part, absent in self.lacks(config).items()):
            return False
        return path in paths(config) or not path.startswith("terms.")
