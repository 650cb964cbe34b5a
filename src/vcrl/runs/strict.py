"""JSON that anybody may have written: parsed as far as anybody could mean it."""

import json
import math
from typing import Any, NoReturn

DEEPEST = 32  # levels of nesting
LARGEST = 16 * 2**20  # bytes of a JSON file
# What data of the wrong shape can raise in code that expects the right one.
BAD = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, MemoryError)

# Digits all alike, and out what may stand between them: signs, and the zero bytes of UTF-16, which is JSON too.
_ALIKE, _BETWEEN = bytes.maketrans(b"123456789E", b"000000000e"), b"+-\0"


def parse_object(data: bytes) -> dict[str, Any]:
    """A JSON object; anything else, a number that is not finite or beyond 64 bits, or deep nesting is a ValueError."""
    try:
        value = _DECODER.decode(data.decode(json.detect_encoding(data), "surrogatepass"))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("no JSON object")
    if not _tame(data):
        _walk(value)
    return value


def _tame(data: bytes) -> bool:
    """Whether a look at the text is enough: no number of 20 digits or an exponent of three, few brackets.

    Logs have millions of numbers, and a walk takes longer than parsing them. What is not tame may still be sound.
    """
    if data.count(b"[") + data.count(b"{") > DEEPEST:
        return False
    alike = data.translate(_ALIKE, _BETWEEN)
    return b"0" * 20 not in alike and b"e000" not in alike


def _walk(value: dict[str, Any]) -> None:
    """Refuse numbers beyond measure and deep nesting, looking at every part."""
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        inside = [x for part in level for x in (part.values() if isinstance(part, dict) else part)]
        for x in inside:
            # Written out as 1e999 a number is infinite without being called so.
            if (isinstance(x, float) and not math.isfinite(x)) or (isinstance(x, int) and abs(x) >= 2**64):
                raise ValueError("a number beyond measure")
        level = [x for x in inside if isinstance(x, dict | list)]
        if not level:
            return
    raise ValueError("nested too deeply")


def printable(text: str) -> str:
    """One line that a terminal can show, whoever wrote it."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)  # `json.loads` would make one for every line of a log
