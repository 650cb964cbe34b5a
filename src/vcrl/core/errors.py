"""The one exception a user is meant to see: a single line that says what is wrong and what to do next."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """Bad input. The command line prints it as one line and exits with 2; in Python it is an ordinary exception."""

    def __init__(self, text: str):
        # Part of it may be somebody else's: neither lines of their own nor what a terminal would obey.
        super().__init__("".join(letter if letter.isprintable() else " " for letter in text))


def told(error: BaseException) -> str:
    """An exception on one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def unknown(kind: str, name: str, known: Iterable[str], hint: str = "", whole: str = "") -> UserError:
    """An error that names the nearest known names, or where nothing is near all of them, or `whole`: where they are."""
    names = sorted(known)
    # Neither capitals nor the dashes before a flag make two names alike or different.
    plain: dict[str, list[str]] = {}
    for one in reversed(names):
        plain.setdefault(one.lstrip("-").casefold(), []).append(one)
    found = get_close_matches(name.lstrip("-").casefold(), plain, n=3, cutoff=0.6)
    near = [one for match in found for one in plain[match]]
    meant = f"did you mean {' or '.join(near)}?" if near else whole or f"known: {', '.join(names)}."
    return UserError(f"unknown {kind} '{name}': {meant}{' ' + hint if hint else ''}")
