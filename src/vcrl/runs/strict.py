"""JSON that anybody may have written: parsed as far as anybody could mean it."""

import json
import math
from typing import Any, NoReturn

DEEPEST = 32  # levels of nesting
LARGEST = 16 * 2**20  # bytes of a JSON file
# What data of the wrong shape can raise in code that expects the right one.
BAD = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, MemoryError)


def parse_object(data: bytes) -> dict[str, Any]:
    """A JSON object; anything else, a number that is not finite or beyond 64 bits, or deep nesting is a ValueError."""
    try:
        value = json.loads(data, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("no JSON object")
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        inside = [x for part in level for x in (part.values() if isinstance(part, dict) else part)]
        for x in inside:
            # Written out as 1e999 a number is infinite without being called so.
            if (isinstance(x, float) and not math.isfinite(x)) or (isinstance(x, int) and abs(x) >= 2**64):
                raise ValueError("a number beyond measure")
        level = [x for x in inside if isinstance(x, dict | list)]
        if not level:
            return value
    raise ValueError("nested too deeply")


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
