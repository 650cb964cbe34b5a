"""Spoiled files: every loader gives an answer, or one line that says what is wrong; `make fuzz` goes on for minutes."""

import pytest
from ground import copy
from guard import survives
from hypothesis import given, settings
from hypothesis import strategies as st
from loaders import LOADERS
from spoil import NUMBERS, SPOILS, seal, write

from vcrl.core.errors import UserError

SPOILED = st.lists(SPOILS, min_size=1, max_size=3)
# Those that take long are tried only in `make slow` and `make fuzz`.
NAMES = [pytest.param(n, marks=[pytest.mark.slow] if LOADERS[n].slow else []) for n in LOADERS]
PLACES = st.lists(NUMBERS, min_size=3, max_size=3)
SEALED = st.booleans()


def files(loader, root):
    return sorted(path for pattern in loader.files for path in root.glob(pattern))


def spoilable(path):
    """What has become a link, a folder or huge stays that."""
    return path.is_file() and not path.is_symlink() and path.stat().st_size < 10**7


def spoil_and_load(name, spoils, where, sealed):
    """Spoil some files of a loader; gives how it ended."""
    loader = LOADERS[name]
    with copy(loader.trained) as root:
        for spoil, at in zip(spoils, where, strict=False):
            there = [path for path in files(loader, root) if spoilable(path)]
            if there:
                path = there[at % len(there)]
                try:
                    spoil(path)
                except (ValueError, RecursionError, UnicodeError, KeyError, OverflowError):
                    write(path, b"{")  # spoiled beyond this kind of spoiling
        if sealed:
            for folder in root.glob("runs/*/*/*/*/checkpoint"):
                seal(folder)
        if loader.typed and any(path.is_symlink() or path.is_fifo() for path in root.iterdir()):
            return "left out"
        return survives(loader.load, root, loader.writes)


@pytest.mark.parametrize("name", NAMES)
def test_a_whole_folder_is_loaded(name):
    loader = LOADERS[name]
    with copy(loader.trained) as root:
        assert survives(loader.load, root, loader.writes) == "loaded"


@pytest.mark.parametrize("name", NAMES)
def test_spoiled(name):
    @settings(max_examples=6 if LOADERS[name].slow else 12)
    @given(SPOILED, PLACES, SEALED)
    def spoiled(spoils, where, sealed):
        spoil_and_load(name, spoils, where, sealed)

    spoiled()


def test_the_guard_sees_what_it_should():
    """A loader that leaks, raises, or reads elsewhere does not pass."""
    with copy() as root:
        secret = root.parent / "outside" / "secret.json"

        def leaks(root):
            raise UserError(f"found {'sword' + 'fish'}")

        for bad in (
            leaks,
            lambda root: secret.read_text(),
            lambda root: bytes(300 * 2**20),
            lambda root: (root / "new").write_text(""),
            lambda root: (_ for _ in ()).throw(UserError("word " * 1000)),
        ):
            with pytest.raises(AssertionError):
                survives(bad, root)
        with pytest.raises(ZeroDivisionError):
            survives(lambda root: 1 / 0, root)
        secret.write_text("{}")
        with pytest.raises(AssertionError):
            survives(lambda root: None, root)
