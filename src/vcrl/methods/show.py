"""Methods as people read them: what each is, every value with its source, how two differ."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Group
from rich.table import Table

from vcrl.core.config import diff, paths
from vcrl.methods import library
from vcrl.methods.configs import OURS
from vcrl.methods.family import Changes

KINDS = {"rainbow": "discrete", "sac": "continuous"}


def methods_table() -> Group:
    tables: list[Table] = []
    for family in library.FAMILIES.values():
        table = _table("method", "of", "changes", "about")
        table.title, table.title_justify = f"over {family.base}, for {KINDS[family.base]} actions", "left"
        for m in family.methods.values():
            table.add_row(m.name, m.of or "", ", ".join(m.changes), m.about)
        tables += [table]
    return Group(*tables)


def method_table(name: str, config: Any, suite: str | None, task: str | None = None) -> Table:
    """Every value of a resolved config, and where it comes from."""
    sources = source_of(name, config, suite, task)
    table = _table("setting", "value", "source")
    table.title, table.title_justify = f"{name}{f' on {suite}' if suite else ''}", "left"
    for path, value in paths(config).items():
        table.add_row(path, text(value), sources[path])
    return table


def diff_table(a: str, b: str, suite: str | None = None) -> Table:
    table = _table("setting", a, b)
    for path, (left, right) in diff(library.resolve(a, suite), library.resolve(b, suite)).items():
        table.add_row(path, text(left), text(right))
    return table


def source_of(name: str, config: Any, suite: str | None, task: str | None = None) -> dict[str, str]:
    """For every path: the default's source, unless the method, the suite, the task or the user changed it."""
    out = _defaults(config)
    family = next(f for f in library.FAMILIES.values() if type(f.config) is type(config))
    layers = [("", dict(family.lineage(name)))]
    layers += [(f"{where}: ", changes) for where, changes in family.surroundings(name, suite, task)]
    for label, changes in layers:
        for changed, (_, source) in changes.items():
            if label and not family.applies(config, changed):
                continue
            for path in out:
                # A whole part put in by a method keeps the sources of its own fields.
                if path == changed or (label and path.startswith(changed + ".")):
                    out[path] = label + source
    resolved = paths(family.resolve(name, suite, task))
    here = paths(config)
    return {p: source if resolved.get(p) == here[p] else "changed for this run" for p, source in out.items()}


def text(value: Any) -> str:
    return "none" if value is None else str(value)


def _defaults(config: Any, prefix: str = "", source: str = OURS) -> dict[str, str]:
    """A field's own source, or that of the part it belongs to."""
    out: dict[str, str] = {}
    for f in dataclasses.fields(config):
        value, mine = getattr(config, f.name), f.metadata.get("source", source)
        part = dataclasses.is_dataclass(value)
        out |= _defaults(value, f"{prefix}{f.name}.", mine) if part else {prefix + f.name: mine}
    return out


def _table(*columns: str) -> Table:
    return Table(*columns, box=None, pad_edge=False)


PREFACE = """\
<!-- Written by `make docs`: edit src/vcrl/methods, not this page. A test fails when the two differ. -->

A method is a named set of changes to another one, down to a base. Nothing else tells methods apart: they have no
code of their own. There are two bases, and a method's name means its member for the task's actions: `vcrl train vcr
pong` is over Rainbow, `vcrl train vcr cartpole-swingup` over SAC. On the command line a setting is changed by its
path, for example `vcrl train vcr catch --terms.vcr.weight 0.5`; `vcrl methods --diff spr vcr` prints how two of them
differ.

Sources: *paper* is the text or a table of the VCR paper, *reference code* the released code of the methods it
builds on or compares with, *our decision* a choice made here; [paper-map.md](paper-map.md) gives the reasons.
What concerns the environment is one protocol for all methods, also where a reference had its own way to resize
frames or to begin a game.

The page is written by `make docs` from `src/vcrl/methods`.""".splitlines()


def markdown() -> str:
    """The page docs/methods.md: what each method changes, the base they change, what a suite asks of all."""
    abouts: dict[str, str] = {}

    def leaves(value: Any, path: str, source: str, own: bool = True) -> Iterator[tuple[str, Any, str]]:
        """Path, value and source of every leaf: its own source, or that of the part it lies in."""
        if not dataclasses.is_dataclass(value):
            yield path, value, source
            return
        for f in dataclasses.fields(value):
            below = f"{path}.{f.name}".lstrip(".")
            abouts[below] = f.metadata.get("about", "")
            whence = f.metadata.get("source", source) if own else source
            yield from leaves(getattr(value, f.name), below, whence, own)

    def table(rows: Iterable[tuple[str, Any, str]], whence: str = "source") -> list[str]:
        lines = [f"| `{p}` | {text(v)} | {s} | {abouts[p]} |".replace("  ", " ") for p, v, s in rows]
        return ["", f"| setting | value | {whence} | about |", "|---|---|---|---|", *lines]

    def changed(changes: Changes, own: bool) -> Iterator[tuple[str, Any, str]]:
        return (leaf for path, (value, why) in changes.items() for leaf in leaves(value, path, why, own))

    out = ["# Methods", "", *PREFACE]
    for family in library.FAMILIES.values():
        out += ["", f"# Over {family.base}", "", f"For {KINDS[family.base]} actions."]
        for name, m in family.methods.items():
            whole = list(leaves(family.resolve(name), "", OURS))
            out += ["", f"## {name}, over {family.base}" if name != family.base else f"## {name}"]
            out += ["", f"{m.about[0].upper()}{m.about[1:]}."]
            if m.of is None:
                out += ["", "A base. All its settings; those of a term come with the term.", *table(whole)]
            else:
                link = m.of if m.of == family.base else f"{m.of}-over-{family.base}"
                out += ["", f"[{m.of}](#{link}) with these changes:", *table(changed(m.changes, True))]
        out += ["", f"## What a suite changes over {family.base}", ""]
        out += ["The same for every method; what concerns a part a method lacks is left out."]
        for suite, changes in family.suites.items():
            out += ["", f"### {suite} over {family.base}", *table(changed(changes, False), "reason")]
        out += ["", f"## What a task changes over {family.base}", ""]
        out += ["After the suite; what concerns a part a method lacks is left out."]
        for (suite, task), changes in family.tasks.items():
            out += ["", f"### {task} of {suite}", *table(changed(changes, False))]
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")
