"""What somebody types: seeds, settings by their paths, commands; an answer, or one line."""

import contextlib
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spoil import TEXTS, VALUES

from vcrl.cli import COMMANDS, main
from vcrl.commands.making import Train
from vcrl.commands.words import parse_changes, parse_seeds
from vcrl.core.config import change, from_json, from_text, paths, to_json
from vcrl.core.errors import UserError
from vcrl.methods import library
from vcrl.methods.configs import RainbowConfig
from vcrl.training.plan import make_plan

LEAVES = sorted(paths(library.resolve("vcr")))
TYPED = st.one_of(
    st.text(max_size=12),
    st.sampled_from([text.decode("latin-1")[:6000] for text in TEXTS]),
    st.sampled_from([str(value) for value in VALUES]),
    st.integers(-(10**20), 10**20).map(str),
    st.floats().map(str),
)
NUMBERS = st.text("0123456789:,- _.e\u0663", max_size=16)


def outcome(function, *arguments):
    """loaded or refused; a refusal is one line."""
    try:
        function(*arguments)
    except UserError as error:
        assert str(error) and "\n" not in str(error) and len(str(error)) < 8000
        return "refused"
    return "loaded"


def seeds(text):
    found = []
    how = outcome(lambda: found.extend(parse_seeds(text)))
    assert how == "refused" or (
        found and all(isinstance(seed, int) for seed in found) and len(found) <= 10**4
    )
    return how


def flags(words):
    return outcome(parse_changes, Train("vcr", "catch"), words)


def plan(words):
    """A setting changed to whatever was typed: the plan is made, and whole, or refused."""
    changes = {path: from_text(text) for path, text in words}
    return outcome(make_plan, "vcr", "catch", (0, 1), None, changes)


def value(pair):
    """A part of a config as JSON, with something else in its place."""
    path, new = pair
    data = to_json(library.resolve("vcr"))
    at = data
    *before, last = path.split(".")
    for name in before:
        at = at[name]
    at[last] = new
    how = outcome(from_json, RainbowConfig, data)
    assert how == outcome(change, library.resolve("vcr"), path, new) or isinstance(new, dict | tuple)
    return how


def typeable(word):
    """What a shell can pass on."""
    return word.replace("\0", "").encode("utf-8", "ignore").decode()


def command(words):
    """The whole program, in commands that do nothing but look."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as told:
        try:
            main(words)
        except SystemExit as end:
            assert end.code in (0, 2, None), (words, end.code)
            if end.code == 2 and told.getvalue().startswith("vcrl: "):
                assert told.getvalue().count("\n") == 1, told.getvalue()
            return "refused" if end.code else "loaded"
    return "loaded"


LOOKING = ["methods", "tasks", "ls", "show", "compare", "verify", "audit", "eval", "watch"]
WORDS = {
    "seeds": (st.one_of(TYPED, NUMBERS), seeds),
    "flags": (
        st.lists(st.one_of(TYPED, st.sampled_from(LEAVES).map("--{}".format), st.just("--")), max_size=6),
        flags,
    ),
    "settings": (st.lists(st.tuples(st.sampled_from(LEAVES), TYPED), min_size=1, max_size=2), plan),
    "config as JSON": (st.tuples(st.sampled_from(LEAVES), st.sampled_from(VALUES)), value),
    "commands": (
        st.tuples(
            st.sampled_from([*LOOKING, *COMMANDS]).filter(LOOKING.__contains__), st.lists(TYPED, max_size=3)
        ).map(lambda pair: [pair[0], *(typeable(word) for word in pair[1])]),
        command,
    ),
}


@pytest.mark.parametrize("name", WORDS)
def test_typed(name):
    strategy, check = WORDS[name]

    @settings(max_examples=40)
    @given(strategy)
    def typed(words):
        check(words)

    typed()


def test_good_words_are_understood():
    assert seeds("0:5") == seeds("3") == seeds("1,2") == "loaded" and seeds("x") == "refused"
    assert flags(["--batch", "16"]) == "loaded" and flags(["--batsch", "16"]) == "refused"
    assert plan([("batch", "16")]) == "loaded" and plan([("batch", "many")]) == "refused"
    assert value(("batch", 16)) == "loaded" and value(("batch", "x")) == "refused"
    assert command(["methods"]) == "loaded" and command(["methods", "nothing"]) == "refused"
