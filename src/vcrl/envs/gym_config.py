"""The config of an environment as a TOML file: written with a reason beside each line, read as data alone."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from vcrl.core.errors import UserError, unknown
from vcrl.envs.gym_adapt import Fit
from vcrl.envs.gym_advice import Advice, Setting

TABLES = ("env", "train", "settings")
KINDS: dict[str, type] = {"id": str, "render": bool, "key": str, "size": list, "gray": bool, "limit": int}
LARGEST = 1_000_000  # bytes of a file that somebody may have written by hand


class Config(NamedTuple):
    name: str | None  # of the environment, as in `my_module:MyEnv-v0`; None where it is given from Python
    fit: Fit
    steps: int | None
    settings: dict[str, Any]  # of the method, by path


def write(name: str, advice: Advice, command: str) -> str:
    """The file's text; `command` trains with it."""
    lines = [
        f"# {name}, by random play. Train with: {command}",
        "# Every line can be changed. It is data only.",
        "",
    ]
    module = name.rpartition(":")[0]
    reason = (
        f"its module is imported only where you name it: --module {module}"
        if module
        else "of Gymnasium's registry"
    )
    lines += _table("env", {"id": (name, reason), **advice.env})
    lines += ["", *_table("train", advice.train)]
    lines += [
        "",
        "# Settings of the method, as `vcrl methods` has them; what a method does not have is left out.",
    ]
    lines += _table("settings", advice.settings)
    return "\n".join(lines) + "\n"


def _table(name: str, values: dict[str, Setting]) -> list[str]:
    rows = [(f"{key} = {_toml(value)}", " ".join(reason.split())) for key, (value, reason) in values.items()]
    width = max((len(row) for row, _ in rows), default=0)
    return [f"[{name}]", *(f"{row:{width}}  # {reason}" for row, reason in rows)]


def _toml(value: Any) -> str:
    # What JSON and TOML write alike: strings, true and false, numbers, lists of these.
    return json.dumps(value)


def read(path: Path) -> Config:
    """A config, which may be a stranger's: unknown names and wrong types are refused, nothing is imported."""
    data = _load(path)
    for name, part in data.items():
        if name not in TABLES:
            raise unknown(f"part of {path}", f"[{name}]", [f"[{t}]" for t in TABLES])
        if not isinstance(part, dict):
            raise UserError(f"{path}: {name} must be a table, [{name}] on a line of its own")
    env, train = data.get("env", {}), data.get("train", {})
    for key, value in env.items():
        if key not in KINDS:
            raise unknown(f"name in [env] of {path}", key, KINDS)
        if type(value) is not KINDS[key]:
            raise UserError(f"{path}: {key} = {_short(value)} must be of type {KINDS[key].__name__}")
    for key, value in train.items():
        if key != "steps":
            raise unknown(f"name in [train] of {path}", key, ["steps"])
        if type(value) is not int:
            raise UserError(f"{path}: steps = {_short(value)} must be a whole number")
    return Config(
        _name(path, env.get("id")), _fit(path, env), train.get("steps"), _flat(data.get("settings", {}))
    )


def _load(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            text = file.read(LARGEST + 1)
        if len(text) > LARGEST:
            raise UserError(f"{path} is larger than {LARGEST} bytes: that is no config")
        return tomllib.loads(text.decode())
    except FileNotFoundError:
        raise UserError(f"no config at {path}: `vcrl check-env NAME --out {path}` writes one") from None
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is no TOML file: {str(error)[:100]}") from error


def _name(path: Path, name: str | None) -> str | None:
    if name is not None and not re.fullmatch(r"[\w./:<>-]{1,200}", name):
        raise UserError(
            f"{path}: id = {_short(name)} is no name of an environment, such as MyEnv-v0 or my_module:MyEnv-v0"
        )
    return name


def _fit(path: Path, env: dict[str, Any]) -> Fit:
    size, limit, key = env.get("size"), env.get("limit"), env.get("key")
    if size is not None and (len(size) != 2 or any(type(n) is not int or not 0 < n < 10_000 for n in size)):
        raise UserError(f"{path}: size = {_short(size)} must be height and width, such as [84, 84]")
    if limit is not None and not 0 < limit < 10**9:
        raise UserError(f"{path}: limit = {limit} must be a positive number of steps")
    if key is not None and not re.fullmatch(r"[\w.-]{1,100}", key):
        raise UserError(f"{path}: key = {_short(key)} must be letters, digits, dots and dashes")
    pair = None if size is None else (size[0], size[1])
    return Fit(env.get("render", False), key, pair, env.get("gray", False), limit)


def _flat(part: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Tables within tables as dotted paths."""
    out: dict[str, Any] = {}
    for key, value in part.items():
        out |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return out


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
