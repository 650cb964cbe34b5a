"""Methods as people read them: what each is, every value with its source, how two differ."""

import dataclasses
from typing import Any

from rich.table import Table

from vcrl.core.config import diff, paths
from vcrl.methods import library
from vcrl.methods.configs import OURS


def methods_table() -> Table:
    table = _table("method", "of", "changes", "about")
    for m in library.METHODS.values():
        table.add_row(m.name, m.of or "", ", ".join(m.changes), m.about)
    return table


def method_table(name: str, config: Any, suite: str | None) -> Table:
    """Every value of a resolved config, and where it comes from."""
    sources = source_of(name, config, suite)
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


def source_of(name: str, config: Any, suite: str | None) -> dict[str, str]:
    """For every path: the default's source, unless the method, the suite or the user changed it."""
    out = _defaults(config)
    layers = [("", dict(library.lineage(name)))]
    if suite in library.SUITES:
        layers.append((f"{suite}: ", library.SUITES[suite]))
    for label, changes in layers:
        for changed, (_, source) in changes.items():
            if label and not library.applies(config, changed):
                continue
            for path in out:
                # A whole part put in by a method keeps the sources of its own fields.
                if path == changed or (label and path.startswith(changed + ".")):
                    out[path] = label + source
    resolved = paths(library.resolve(name, suite))
    return {p: s if resolved.get(p) == v else "changed by you" for (p, s), v in zip(out.items(), paths(config).values(), strict=True)}


def text(value: Any) -> str:
    return "none" if value is None else str(value)


def _defaults(config: Any, prefix: str = "") -> dict[str, str]:
    out: dict[str, str] = {}
    for f in dataclasses.fields(config):
        value = getattr(config, f.name)
        if dataclasses.is_dataclass(value):
            out |= _defaults(value, f"{prefix}{f.name}.")
        else:
            out[prefix + f.name] = f.metadata.get("source", OURS)
    return out


def _table(*columns: str) -> Table:
    return Table(*columns, box=None, pad_edge=False)
