"""Names to environments, and what a file of a stranger cannot have imported."""

import sys

import gymnasium
import pytest
from own_games import Slide, Walk, register

from vcrl.core.errors import UserError
from vcrl.envs import registry
from vcrl.envs.gym_adapt import Fit
from vcrl.envs.gym_find import by_call, by_name, split

WALK = register("Walk", limit=12)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of modules that can be imported, forgotten afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def refusal(make) -> str:
    with pytest.raises(UserError) as caught:
        make()
    told = str(caught.value)
    assert "\n" not in told and len(told) < 320
    return told


def test_names_are_taken_apart():
    assert split("gym:Pong-v5") == split("Pong-v5") == (None, "Pong-v5", Fit())
    assert split("gym:a.b:ALE/Pong-v5@gray") == ("a.b", "ALE/Pong-v5", Fit(gray=True))
    assert "write gym:Name-v0 or gym:module:Name-v0" in refusal(lambda: split("gym:"))


def test_a_module_is_imported_first(folder):
    (folder / "my_games.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('MyWalk-v3', entry_point=lambda: gymnasium.make('vcrltest/Walk-v0').unwrapped)\n"
    )
    source = by_name("my_games", "MyWalk-v3")
    assert source.name == "my_games:MyWalk-v3" and isinstance(source.build(False).unwrapped, Walk)
    del gymnasium.registry["MyWalk-v3"]


def test_a_class_or_function_of_a_module_needs_no_registration(folder):
    (folder / "more_games.py").write_text(
        "from own_games import Slide\nclass Inner:\n    Game = Slide\ndef make():\n    return Slide()\n"
    )
    for name in ("Slide", "Inner.Game", "make"):
        assert isinstance(by_name("more_games", name).build(False), Slide)
    assert "no registered name is near" in refusal(lambda: by_name("more_games", "Slode.Game.Over.And.Out"))


def test_what_is_wrong_with_a_name_is_said(folder, monkeypatch):
    assert "cannot import 'no_such_games'" in refusal(lambda: by_name("no_such_games", "X-v0"))
    (folder / "bad_games.py").write_text("raise RuntimeError('not today')")
    told = refusal(lambda: by_name("bad_games", "X-v0"))
    assert "RuntimeError: not today; mend it" in told
    assert f"did you mean {WALK}" in refusal(lambda: by_name(None, "vcrltest/Wlak-v0"))
    name = register("Odd", no_such_argument=1)
    assert "cannot build vcrltest/Odd-v0: TypeError" in refusal(lambda: by_name(None, name).build(False))
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    assert refusal(lambda: by_name(None, WALK)) == "Gymnasium is not installed: pip install 'vcrl[gym]'"


def test_for_a_file_nothing_is_imported(folder):
    (folder / "evil_games.py").write_text("raise SystemExit('the code of a stranger ran')")
    (folder / "good_games.py").write_text(
        "from own_games import Slide\nmake = Slide\ndef other(): return Slide()\n"
    )
    told = refusal(lambda: by_name("evil_games", "X-v0", trusted=False))
    assert "a file cannot have code imported" in told and "--module evil_games" in told
    assert "evil_games" not in sys.modules
    refusal(lambda: registry.find("gym:evil_games:X-v0@gray", trusted=False))
    assert "evil_games" not in sys.modules
    refusal(lambda: by_name("good_games", "make", trusted=False))
    import good_games  # type: ignore  # noqa: F401

    assert isinstance(by_name("good_games", "make", trusted=False).build(False), Slide)
    assert by_name(None, WALK, trusted=False).name == WALK, "what is registered is known"
    # Of modules that are imported already, only environments; calling anything else could do anything.
    for module, name in (
        ("good_games", "other"),
        ("os", "getcwd"),
        ("sys", "exit"),
        ("builtins", "breakpoint"),
    ):
        assert "unknown Gymnasium environment" in refusal(
            lambda m=module, n=name: by_name(m, n, trusted=False)
        )


def test_a_callable_is_named_after_itself_or_what_it_makes():
    assert by_call(Slide).name == "own_games:Slide"
    assert by_call(lambda: Slide()).name == "own_games:Slide"
    limited = by_call(lambda: gymnasium.wrappers.TimeLimit(Slide(), 5))
    assert limited.name == "own_games:Slide" and limited.build(False).spec is None
    assert by_call(lambda: Slide(), "easy").name == "easy"

    def make():
        return Slide()

    assert (
        by_call(make).name
        == f"{__name__}:test_a_callable_is_named_after_itself_or_what_it_makes.<locals>.make"
    )
    assert "no Gymnasium environment" in refusal(lambda: by_call(lambda: 7))
    assert "give a class or a function" in refusal(lambda: by_call(Slide()))  # type: ignore
    assert "a name without @" in refusal(lambda: by_call(Slide, "a@b"))
    assert "ZeroDivisionError" in refusal(lambda: by_call(lambda: 1 // 0))


def test_a_task_of_ones_own_is_found_by_its_name():
    task = registry.own(Slide, "slippery", "48x48,gray,limit=9")
    assert task.name == "gym:slippery@48x48,gray,limit=9" and task.suite == "gym"
    assert registry.find(task.name, trusted=False) is task
    assert task.spec.frame == (48, 48, 1) and task.spec.horizon == 9
    assert task.see is not None and task.see(Slide().reset(seed=1)[0]).shape == (48, 48, 1)


def test_the_words_behind_a_name_have_one_order():
    assert registry.find(f"gym:{WALK}@gray,32x32").name == f"gym:{WALK}@32x32,gray"
