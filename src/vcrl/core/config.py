"""Frozen dataclasses to JSON and back, changed by dotted path, compared, hashed."""

import dataclasses
import hashlib
import json
import types
import typing
from typing import Any, TypeVar, cast

from vcrl.core.errors import UserError, unknown

T = TypeVar("T")


def to_json(value: Any) -> Any:
    """Plain JSON data. A dataclass carries its class name as `kind`, so that a union can be read back."""
    if dataclasses.is_dataclass(value):
        told = [f for f in dataclasses.fields(value) if not (_silent(f) and getattr(value, f.name) is None)]
        return {"kind": type(value).__name__, **{f.name: to_json(getattr(value, f.name)) for f in told}}
    if isinstance(value, tuple):
        return [to_json(v) for v in cast(tuple[Any, ...], value)]
    return value


def _silent(field: "dataclasses.Field[Any]") -> bool:
    """Whether a part that came later is left out where it is absent, so that older configs keep their digest."""
    return bool(field.metadata.get("silent"))


def from_json(cls: Any, data: Any, where: str = "config") -> Any:
    """The inverse of `to_json`. Unknown or missing names and wrong types raise; nothing is guessed."""
    if typing.get_origin(cls) in (types.UnionType, typing.Union):
        options = typing.get_args(cls)
        if data is None and type(None) in options:
            return None
        if isinstance(data, dict):
            named: dict[str, Any] = {type_name(o): o for o in options if dataclasses.is_dataclass(o)}
            kind = cast(dict[str, Any], data).get("kind")
            if kind not in named:
                raise UserError(f"{where}: kind {short(kind)} is none of {', '.join(named)}")
            return from_json(named[kind], data, where)
        simple = [o for o in options if o is not type(None) and not dataclasses.is_dataclass(o)]
        if not simple:
            raise UserError(f"{where}: expected {type_name(cls)}, found {short(data)}")
        return from_json(simple[0], data, where)
    if dataclasses.is_dataclass(cls):
        if not isinstance(data, dict):
            raise UserError(f"{where}: expected an object, found {short(data)}")
        kind = cast(dict[str, Any], data).get("kind", type_name(cls))
        if kind != type_name(cls):
            raise UserError(f"{where}: expected {type_name(cls)}, found kind {short(kind)}")
        given: dict[str, Any] = {k: v for k, v in cast(dict[str, Any], data).items() if k != "kind"}
        hints = typing.get_type_hints(cls)
        names = [f.name for f in dataclasses.fields(cls)]
        for name in given:
            if name not in names:
                raise unknown(f"field of {where}", name, names)
        given = {f.name: None for f in dataclasses.fields(cls) if _silent(f)} | given
        missing = [n for n in names if n not in given]
        if missing:
            raise UserError(f"{where}: missing {', '.join(missing)}")
        return cast(Any, cls)(**{n: from_json(hints[n], given[n], f"{where}.{n}") for n in names})
    if typing.get_origin(cls) is tuple:
        if not isinstance(data, list | tuple):
            raise UserError(f"{where}: expected a list, found {short(data)}")
        inner = typing.get_args(cls)
        items: list[Any] = list(cast(Any, data))
        kinds = [inner[0]] * len(items) if inner[-1] is Ellipsis else list(inner)
        if len(kinds) != len(items):
            raise UserError(f"{where}: expected {len(kinds)} items, found {len(items)}")
        return tuple(
            from_json(k, v, f"{where}[{i}]") for i, (k, v) in enumerate(zip(kinds, items, strict=True))
        )
    if cls is float and type(data) is int:
        if abs(data) > 2**1000:  # more than a float can hold
            raise UserError(f"{where}: expected float, found a number of {data.bit_length()} bits")
        return float(data)
    if cls is Any or type(data) is cls:
        return data
    raise UserError(f"{where}: expected {type_name(cls)}, found {short(data)}")


def short(value: Any) -> str:
    """Enough of a value to know it by."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def type_name(cls: Any) -> str:
    """A type as a reader would say it."""
    return " or ".join(type_name(o) for o in typing.get_args(cls)) or getattr(cls, "__name__", str(cls))


def paths(config: Any, prefix: str = "") -> dict[str, Any]:
    """Every leaf of a config by dotted path; an absent part is a leaf with the value None."""
    out: dict[str, Any] = {}
    for f in dataclasses.fields(config):
        value, path = getattr(config, f.name), prefix + f.name
        if dataclasses.is_dataclass(value):
            out |= paths(value, path + ".")
        else:
            out[path] = value
    return out


def change(config: T, path: str, value: Any) -> T:
    """A copy with one dotted path replaced. A value may be a whole part, such as a term."""
    return _change(config, path.split("."), value, path, paths(config))


def _change(config: T, names: list[str], value: Any, path: str, known: dict[str, Any]) -> T:
    name, *rest = names
    if name not in [f.name for f in dataclasses.fields(cast(Any, config))]:
        raise unknown("setting", path, known)
    if rest:
        part = getattr(config, name)
        if not dataclasses.is_dataclass(part):
            told = f"there is no {name}" if part is None else f"{name} is {part!r} and has no parts"
            raise UserError(f"setting '{path}' does not apply: {told}")
        value = _change(part, rest, value, path, known)
    else:
        # A part is checked as JSON is: the same kind, the same fields.
        value = from_json(typing.get_type_hints(type(config))[name], to_json(value), path)
    return dataclasses.replace(cast(Any, config), **{name: value})


def from_text(text: str) -> Any:
    """A value typed on a command line: JSON where it parses, else the bare word."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # no JSON, or a number or a nesting beyond measure
        return {"True": True, "False": False, "None": None, "none": None}.get(text, text)


def diff(a: Any, b: Any) -> dict[str, tuple[Any, Any]]:
    """Dotted paths on which two configs differ, with both values; a path one of them lacks reads '-'."""
    left, right = paths(a), paths(b)
    return {
        p: (left.get(p, "-"), right.get(p, "-")) for p in [*left, *(p for p in right if p not in left)]
        if left.get(p, "-") != right.get(p, "-")
    }  # fmt: skip


def digest(value: Any) -> str:
    """Eight hex digits that name a config; stable across processes and machines."""
    text = json.dumps(to_json(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:8]
