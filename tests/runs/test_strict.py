"""Looking at the text first must not let anything through that a walk over the parts would refuse."""

import json
import math
import random

import pytest

from vcrl.runs.strict import DEEPEST, parse_object

EDGE = str(2**64)
NUMBERS = [
    "0", "-0", "-1.5", "0.1", "1e22", "1E+22", "5e-324", "1e308", "-1.7976931348623157e308", "1e00000000000005",
    str(2**64 - 1), EDGE, f"-{EDGE}", f"-{2**64 - 1}", f"{EDGE}.0", "1" * 19, "9" * 19, "1" * 20, "1" * 400,
    "1" * 400 + ".5", "1" * 400 + "e-300", "0." + "1" * 400, "0." + "0" * 400 + "1e400", "1" * 210 + "e99",
    "1e309", "-1e309", "1e999", "1E999", "1e+999", "1E+0999", "1e-999", "1e99", "9" * 19 + "e99",
    "NaN", "Infinity", "-Infinity", "01", "+1", "1e", "1_0", "true", "null", '"1e999"', '"11111111111111111111"',
]  # fmt: skip
WRAPPINGS = ['{"a":%s}', '{"a":[1,%s]}', '{"a":{"b":[{"c":%s}]}}', '{"a":%s,"a":1}', "%s", "[%s]", '{"a":%s']
ENCODINGS = ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-8-sig"]


def refuse(name):
    raise ValueError(name)


def walked(data):
    """By the book: every part of the parsed object is looked at."""

    def look(value, depth):
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError("not finite")
        if isinstance(value, int) and abs(value) >= 2**64:
            raise ValueError("beyond 64 bits")
        if isinstance(value, dict | list):
            if depth > DEEPEST:
                raise ValueError("deep")
            for part in value.values() if isinstance(value, dict) else value:
                look(part, depth + 1)

    value = json.loads(data, parse_constant=refuse)
    if not isinstance(value, dict):
        raise ValueError("no object")
    look(value, 1)
    return value


def outcome(parse, data):
    try:
        return repr(parse(data))
    except ValueError:
        return "refused"


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_hostile_numbers(encoding):
    found = set()
    for number in NUMBERS:
        for wrapping in WRAPPINGS:
            data = (wrapping % number).encode(encoding)
            found.add(told := outcome(parse_object, data))
            assert told == outcome(walked, data), data
    assert "refused" in found and len(found) > 40


def test_numbers_at_random():
    chance = random.Random(0)
    for _ in range(5000):
        text = "".join(chance.choices("0123456789", k=chance.choice([1, 5, 18, 19, 20, 21, 320])))
        text = chance.choice(["", "-"]) + (text.lstrip("0") or "0")
        text += chance.choice(["", "", f".{chance.randrange(10**6)}"])
        text += chance.choice(
            ["", "", f"{chance.choice('eE')}{chance.choice(['', '+', '-'])}{chance.randrange(400)}"]
        )
        data = (chance.choice(WRAPPINGS) % text).encode()
        assert outcome(parse_object, data) == outcome(walked, data), data


@pytest.mark.parametrize("depth", [1, 2, DEEPEST - 1, DEEPEST, DEEPEST + 1, DEEPEST + 2, 500])
def test_nesting(depth):
    for open_, close in (("[", "]"), ('{"a":', "}")):
        data = ('{"a":' + open_ * (depth - 1) + "1" + close * (depth - 1) + "}").encode()
        assert (outcome(parse_object, data) == "refused") == (depth > DEEPEST)
        assert outcome(walked, data) == outcome(parse_object, data)
    assert parse_object(b'{"a":[' + b"[1]," * 100 + b"[1]]}")["a"] == [[1]] * 101  # many brackets, none deep
