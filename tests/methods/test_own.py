"""Names of losses of one's own: which are found, and what they make of a method."""

import importlib
import importlib.util
import json
import linecache
import sys
from typing import Any

import pytest

from vcrl.core.config import change, digest, from_json, to_json
from vcrl.core.errors import UserError
from vcrl.methods import library
from vcrl.methods.configs import Own, RainbowConfig
from vcrl.methods.own import bring_loss, code_of, found, known, with_loss
from vcrl.methods.show import source_of

SOURCE = """
import vcrl

@vcrl.loss
def still(view, key):
    return {value}

def nets(key, shape, actions):
    return key

@vcrl.loss(targets=True, nets=nets)
def deep(view, key):
    return 0

def plain(view, key):
    return 0
"""


@pytest.fixture
def ideas(tmp_path, monkeypatch):
    """The name of a module with two losses."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "some_ideas.py").write_text(SOURCE.format(value=1))
    yield "some_ideas"
    sys.modules.pop("some_ideas", None)


def test_a_name_has_a_method_and_a_loss():
    assert with_loss("spr+ideas.deep:still") == ("spr", "ideas.deep:still")
    assert with_loss("spr") == ("spr", None)


def test_a_marked_function_is_found_once_its_module_is_imported(ideas):
    bring_loss("spr+some_ideas:still")
    assert found("some_ideas:still")(None, None) == 1
    assert (found("some_ideas:still").nets, found("some_ideas:still").targets) == (None, False)
    assert found("some_ideas:deep").nets("key", (), 1) == "key" and found("some_ideas:deep").targets


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("spr+", "'' names no loss: write METHOD+module:function"),
        ("spr+some_ideas", "'some_ideas' names no loss"),
        (
            "spr+no_ideas:still",
            "cannot import 'no_ideas', which spr+no_ideas:still names: ModuleNotFoundError",
        ),
        ("spr+some_ideas:stil", "unknown loss in some_ideas 'stil': did you mean still?"),
        ("spr+some_ideas:plain", "some_ideas:plain is no loss: write @vcrl.loss above the function"),
        ("spr+json:loads", "json:loads is no loss: write @vcrl.loss above"),
        ("spr+json:load_all", "json:load_all is no loss: no function of json is marked with @vcrl.loss"),
    ],
)
def test_what_cannot_be_found_is_told_with_the_way_out(ideas, name, told):
    with pytest.raises(UserError, match=told.replace("+", r"\+").replace("?", r"\?")):
        bring_loss(name)


def test_a_file_cannot_have_code_imported(ideas):
    with pytest.raises(UserError, match=r"a file cannot have code imported.*--module some_ideas"):
        found("some_ideas:still")
    assert "some_ideas" not in sys.modules
    assert library.resolve("spr+some_ideas:still").terms.own == Own("some_ideas:still", "")
    assert "some_ideas" not in sys.modules


@pytest.mark.parametrize(
    ("method", "suite", "task", "steps"),
    [
        ("spr", "atari", "pong", 5),
        ("rainbow", "atari", "pong", 5),
        ("spr", "toy", "catch", 3),
        ("vcr", "dmc", None, 3),
    ],
)
def test_it_is_a_term_beside_the_methods_own_with_their_depth(ideas, method, suite, task, steps):
    bring_loss(f"{method}+some_ideas:still")
    alone = library.resolve(method, suite, task)
    config = library.resolve(f"{method}+some_ideas:still", suite, task)
    assert config.terms.own == Own("some_ideas:still", found("some_ideas:still").code, steps=steps)
    assert change(config, "terms.own", None) == alone
    assert from_json(type(config), json.loads(json.dumps(to_json(config)))) == config


def test_other_code_is_another_method(ideas, tmp_path):
    bring_loss("spr+some_ideas:still")
    one = library.resolve("spr+some_ideas:still")
    (tmp_path / "some_ideas.py").write_text(SOURCE.format(value=2))
    assert library.resolve("spr+some_ideas:still") == one, "what was imported is what is trained with"
    sys.modules.pop("some_ideas")
    importlib.invalidate_caches()
    bring_loss("spr+some_ideas:still")
    assert digest(library.resolve("spr+some_ideas:still")) != digest(one)


def test_a_function_without_a_file_is_known_by_what_it_does():
    def typed(value, file="<typed>"):
        scope: dict[str, Any] = {"__name__": "typed"}
        exec(compile(SOURCE.format(value=value), file, "exec"), scope)
        return scope["still"].code

    assert typed(3) == typed(3) != typed(4)

    # A notebook keeps the lines of its cells where tracebacks look for them.
    text = SOURCE.format(value=3)
    linecache.cache["<cell 1>"] = (len(text), None, text.splitlines(keepends=True), "<cell 1>")
    linecache.cache["<cell 2>"] = (len(text), None, text.splitlines(keepends=True), "<cell 2>")
    assert typed(3, "<cell 1>") == typed(3, "<cell 2>") != typed(3)


def test_methods_without_one_keep_the_names_they_always_had():
    """Of results that were kept before there were such losses."""
    assert digest(library.resolve("vcr", "atari", "kung-fu-master")) == "9a79f194"
    assert digest(library.resolve("vcr", "dmc", "cartpole-swingup")) == "f793f30a"
    assert "own" not in to_json(RainbowConfig())["terms"]


def test_where_its_numbers_come_from(ideas):
    config = library.resolve("spr+some_ideas:still", "toy")
    sources = source_of("spr+some_ideas:still", change(config, "terms.own.weight", 0.5), "toy")
    assert sources["terms.own.loss"] == "yours"
    assert sources["terms.own.weight"] == "changed for this run"
    assert sources["terms.spr.weight"] == source_of("spr", config, "toy")["terms.spr.weight"]


def test_a_wrapped_function_is_known_by_its_own_file(ideas, tmp_path):
    """And not by that of what it is wrapped in."""
    (tmp_path / "some_wrap.py").write_text(WRAP.format(value=1))
    (tmp_path / "wrapped_ideas.py").write_text(WRAPPED.format(value=1))
    bring_loss("spr+wrapped_ideas:still")
    one = found("wrapped_ideas:still").code
    for name, changed in (("some_wrap", False), ("wrapped_ideas", True)):
        source = {"some_wrap": WRAP, "wrapped_ideas": WRAPPED}[name]
        (tmp_path / f"{name}.py").write_text(source.format(value=2))
        for module in ("some_wrap", "wrapped_ideas"):
            sys.modules.pop(module, None)
        importlib.invalidate_caches()
        bring_loss("spr+wrapped_ideas:still")
        assert (found("wrapped_ideas:still").code != one) is changed
    for module in ("some_wrap", "wrapped_ideas"):
        del sys.modules[module]


WRAP = """
import functools

def wrap(function):
    @functools.wraps(function)
    def inner(*arguments):
        return {value} * function(*arguments)
    return inner
"""
WRAPPED = """
import vcrl
from some_wrap import wrap

@vcrl.loss
@wrap
def still(view, key):
    return {value} + 10
"""


def test_a_module_that_waits_to_be_imported_is_not_imported_by_a_name(tmp_path):
    """Some libraries register parts of themselves that are run when they are first asked for anything."""
    (tmp_path / "lazy_ideas.py").write_text("raise RuntimeError('it was run')")
    spec = importlib.util.spec_from_file_location("lazy_ideas", tmp_path / "lazy_ideas.py")
    assert spec is not None and spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = sys.modules["lazy_ideas"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        with pytest.raises(UserError, match="no function of lazy_ideas is marked"):
            found("lazy_ideas:still")
        with pytest.raises(RuntimeError, match="it was run"):
            module.anything  # noqa: B018, the control of the above
    finally:
        del sys.modules["lazy_ideas"]


def test_what_is_no_plain_function_is_known_by_the_file_that_marks_it(tmp_path, monkeypatch):
    """And not by what it is made of: numbers and wrappers stand in the file."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "some_parts.py").write_text("def base(view, key, scale=1):\n    return scale\n")
    codes = set()
    for scale in (2, 3):
        (tmp_path / "made_ideas.py").write_text(MADE.format(scale=scale))
        sys.modules.pop("made_ideas", None)
        importlib.invalidate_caches()
        bring_loss("spr+made_ideas:part")
        assert found("made_ideas:part")(None, None) == scale
        assert found("made_ideas:mine").code == found("made_ideas:part").code
        codes.add(found("made_ideas:part").code)
    assert len(codes) == 2
    for name in ("made_ideas", "some_parts"):
        del sys.modules[name]


MADE = """
import functools
import some_parts
import vcrl

part = vcrl.loss(functools.partial(some_parts.base, scale={scale}))

@vcrl.loss
@functools.wraps(some_parts.base)
def mine(view, key):
    return {scale} * some_parts.base(view, key)
"""


def test_code_that_cannot_be_seen_is_refused():
    scope: dict[str, Any] = {}
    source = "import functools, vcrl\nlater = lambda: vcrl.loss(functools.partial(max, 1))"
    exec(compile(source, "<typed>", "exec"), scope)
    with pytest.raises(UserError, match="cannot be seen: write the loss in a file"):
        scope["later"]()


def test_a_loss_of_other_code_is_not_the_one_that_is_meant(ideas):
    assert known("some_ideas:still", "0123abcd") is None and code_of("some_ideas:still") == ""
    bring_loss("spr+some_ideas:still")
    here = found("some_ideas:still").code
    assert (
        known("some_ideas:still", here) is found("some_ideas:still") and code_of("some_ideas:still") == here
    )
    assert known("some_ideas:still", "0123abcd") is None
    # What is not marked in an imported module is not there either, and resolving a name complains of nothing.
    assert known("some_ideas:plain", here) is None and code_of("some_ideas:plain") == ""
    assert library.resolve("spr+some_ideas:plain").terms.own == Own("some_ideas:plain", "")
