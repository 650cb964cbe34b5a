"""What commands have in common: reading what was typed, refusing what makes no sense, telling."""

import re
import sys
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from vcrl.commands.parsing import flags, usage
from vcrl.core import modules
from vcrl.core.config import from_text, paths
from vcrl.core.errors import UserError, unknown
from vcrl.methods import library
from vcrl.methods.configs import Own
from vcrl.methods.family import OF_ITS_NAME

# Settings as they are called in other projects.
ELSEWHERE = {"lr": "adam.rate", "learning-rate": "adam.rate", "batch-size": "batch"}
MOST_SEEDS = 10_000  # that anybody could mean


@runtime_checkable
class Command(Protocol):
    def run(self, rest: list[str]) -> None: ...


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
    leaves: dict[str, Any] = {}
    for family in library.FAMILIES.values():
        for name in family.methods:
            leaves |= paths(family.resolve(name))
    # The name of a method has its loss.
    leaves |= {p: value for p, value in paths(Own(), "terms.own.").items() if p not in OF_ITS_NAME}
    known = leaves.keys() | {p.rpartition(".")[0] for p in leaves}
    words = iter(rest)
    for word in words:
        if not word.startswith("--"):
            raise too_many(command, word)
        flag, equals, value = word.removeprefix("--").partition("=")
        path = flag.replace("-", "_")
        if flag in ELSEWHERE:
            raise UserError(f"unknown flag '--{flag}': did you mean --{ELSEWHERE[flag]}?")
        if path not in known:
            # Settings are too many to list them all.
            names = [f"--{name}" for name in flags(type(command)) + sorted(known - {""})]
            raise unknown(
                "flag", f"--{flag}", names, whole="`vcrl train --help` and `vcrl methods NAME` list them."
            )
        if not equals:
            value = next(words, None)
            if value is None:
                raise UserError(f"--{flag} needs a value")
        # Where words are wanted, none is a word like others.
        word_itself = value == "none" and isinstance(leaves.get(path), str)
        changes[path] = value if word_itself else from_text(value)
    return changes


def bring(module: str | None) -> None:
    if module is not None:
        modules.bring(module, "which --module names")


def refuse(command: Command, rest: list[str]) -> None:
    if rest and not rest[0].startswith("-"):
        raise too_many(command, rest[0])
    if rest:
        raise unknown("flag", rest[0], [f"--{name}" for name in [*flags(type(command)), "help"]])


def too_many(command: Command, word: str) -> UserError:
    lists = "; lists have commas and no spaces" if isinstance(getattr(command, "methods", None), str) else ""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(command).__name__).lower()
    what = f"vcrl {name} {usage(type(command))}"
    return UserError(f"'{word}' is one argument too many: {what.rstrip()}{lists}")


def warn(lines: Sequence[str]) -> None:
    for line in lines:
        print(f"vcrl: left out: {line}", file=sys.stderr)


def as_json(value: Any) -> str:
    import json

    return json.dumps(value, indent=2, allow_nan=False)
