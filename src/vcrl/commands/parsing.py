"""What was typed as a command: tyro reads it, and its complaints, which are boxes, become one line."""

import contextlib
import io
import re
from collections.abc import Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, TypeVar, get_type_hints

import tyro

from vcrl.core.errors import UserError, unknown

C = TypeVar("C")
# What is given by its place.
METHOD = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="METHOD")]
TASK = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="TASK")]
SUITE = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SUITE")]
ENV = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
RUN = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
# Not a Path: tyro stumbles over the default of one next to a wrong flag.
FOLDER = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
RUNS = Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUNS...")]

SETTABLE = ("Train", "Campaign")  # commands that take settings of methods as flags
WANTED = {"int": "a whole number", "float": "a number", "tuple[str, str]": "two names"}
COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # of a terminal
FRAME = set("─│╭╮╰╯-+|")  # with and without Unicode


def parse(command: type[C], name: str, words: Sequence[str]) -> tuple[C, list[str]]:
    """The command, and the words that it does not know."""
    for word in words:
        flag, equals, value = word.partition("=")
        if equals and get_type_hints(command).get(field_of(flag)) is bool:
            raise UserError(f"{flag} is given or not, and has no value: not {flag}={value}")
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(
                command,
                prog=f"vcrl {name}",
                args=list(words),
                return_unknown_args=True,
                config=(tyro.conf.FlagCreatePairsOff,),
            )
    except SystemExit as stop:
        if not stop.code:  # it was asked for help
            raise
    told = complaint(command, name, words, COLOUR.sub("", said.getvalue()))
    raise UserError(f"{told}; vcrl {name} --help says more")


def complaint(command: type, name: str, words: Sequence[str], box: str) -> str:
    """What is wrong, without the frame."""
    text = " ".join(word for word in box.split() if set(word) - FRAME).partition(" For full helptext")[0]
    if found := re.search(r"parsing (--[\w-]+)", text):
        return f"{found[1]} {given(words, found[1])}".rstrip() + f": expected {wanted(command, found[1])}"
    if found := re.search(r"Missing value for argument '(--[\w-]+)'", text):
        return f"{found[1]} needs a value"
    # A flag it does not know takes the words behind it along.
    known = {f"--{flag}" for flag in flags(command)}
    for flag in (word.partition("=")[0] for word in words if word.startswith("--")):
        if flag not in known:
            behind = f"settings come behind {usage(command)}" if command.__name__ in SETTABLE else ""
            return str(unknown(f"flag before {usage(command)}", flag, known, whole=behind))
    if found := re.search(r"Missing value for argument '(\w+)'", text):
        missing = [positional(command).get(found[1], found[1])]
    else:
        _, _, entries = text.partition(f"Missing from vcrl {name}:")
        missing = [entry.split()[0] for entry in entries.split("(required)") if entry.split()]
    are = "is" if len(missing) == 1 else "are"
    return f"{' and '.join(missing)} {are} missing: vcrl {name} {usage(command)}" if missing else text


def given(words: Sequence[str], flag: str) -> str:
    """What was typed behind a flag."""
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word == flag or word.startswith(flag + "="):
            return after if word == flag else word.removeprefix(flag + "=")
    return ""


def field_of(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def wanted(command: type, flag: str) -> str:
    hint = str(get_type_hints(command).get(field_of(flag))).removeprefix("<class '")
    return next((told for kind, told in WANTED.items() if hint.startswith(kind)), "another value")


def positional(command: type) -> dict[str, str]:
    """What is given by its place, with the word for it in help."""
    out: dict[str, str] = {}
    for field, hint in get_type_hints(command, include_extras=True).items():
        notes = getattr(hint, "__metadata__", ())
        if tyro.conf.Positional in notes:
            out[field] = next((n.metavar for n in notes if getattr(n, "metavar", None)), field.upper())
    return out


def usage(command: type) -> str:
    """What has to be given, in order, and what may be given by its place."""
    by_place, out = positional(command), list[str]()
    for field in fields(command):
        needed = field.default is MISSING and field.default_factory is MISSING
        if word := by_place.get(field.name):
            out.append(word if needed else f"[{word}]")
        elif needed:
            out.append(f"--{field.name.replace('_', '-')} ...")
    return " ".join(out)


def flags(command: type) -> list[str]:
    """What can be given by name."""
    by_place = positional(command)
    return [f.name.replace("_", "-") for f in fields(command) if f.name not in by_place]
