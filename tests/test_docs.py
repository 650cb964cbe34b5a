"""The pages in docs/ are true: their code runs and prints what they say, what they name exists."""

import ast
import contextlib
import io
import re
import sys
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import gymnasium
import jax
import pytest

from vcrl.cli import COMMANDS
from vcrl.core.config import paths
from vcrl.methods import library
from vcrl.methods.configs import Own
from vcrl.methods.show import markdown

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "vcrl"
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


class Block(NamedTuple):
    kind: str  # "python", "python slow" (a training, run by `make slow`), "text", ...
    body: str
    line: int


def blocks(page: Path) -> list[Block]:
    """The fenced parts of a page."""
    text = page.read_text()
    found = re.finditer(r"^```(.*)\n((?:.*\n)*?)```$", text, re.MULTILINE)
    return [Block(m[1], m[2], text.count("\n", 0, m.start()) + 2) for m in found]


def run(page: Path, kinds: set[str]) -> int:
    """Execute the blocks of some kinds in one namespace; what a block prints is the text block after it.

    A block that begins with a comment such as `# lights.py` is a file in the reader's folder. Returns the comparisons.
    """
    names: dict[str, Any] = {"__name__": "__main__"}
    compared, found = 0, blocks(page)
    for block, after in zip(found, [*found[1:], None], strict=True):
        if block.kind not in kinds:
            continue
        if file := re.match(r"# (\w+\.py)\n", block.body):
            Path(file[1]).write_text(block.body)
            continue
        printed = io.StringIO()
        # Blank lines in front, so that an error names the line of the page.
        code = compile("\n" * (block.line - 1) + block.body, str(page), "exec")
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        if after is not None and after.kind == "text":
            assert printed.getvalue() == after.body, f"{page.name}, line {after.line}"
            compared += 1
    return compared


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Somebody who tries things in an empty folder, and leaves no trace in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    known, registered = set(sys.modules), set(gymnasium.registry)
    before = jax.config.read("jax_disable_most_optimizations")
    yield
    jax.config.update("jax_disable_most_optimizations", before)
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
    for name in set(gymnasium.registry) - registered:
        del gymnasium.registry[name]


def test_the_walk_from_a_frame_to_a_gradient(reader: None):
    assert run(ROOT / "docs" / "reading.md", {"python"}) == 6


def test_own_environment(reader: None):
    assert run(ROOT / "docs" / "own-environment.md", {"python"}) == 2


def test_own_loss(reader: None):
    assert run(ROOT / "docs" / "own-loss.md", {"python"}) == 1


@pytest.mark.slow
def test_own_loss_with_its_training(reader: None):
    assert run(ROOT / "docs" / "own-loss.md", {"python", "python slow"}) == 2


@pytest.mark.slow
def test_own_environment_with_its_training(reader: None):
    assert run(ROOT / "docs" / "own-environment.md", {"python", "python slow"}) == 3


def test_the_page_of_methods_is_up_to_date():
    assert (ROOT / "docs" / "methods.md").read_text() == markdown(), "run `make docs`"


@cache
def defined(path: Path) -> set[str]:
    """Names at the top of a file, and those in its classes as `Class.name`."""

    def names(body: list[ast.stmt], prefix: str = "") -> set[str]:
        found: set[str] = set()
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(prefix + node.name)
            if isinstance(node, ast.ClassDef):
                found |= names(node.body, f"{prefix}{node.name}.")
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            found |= {prefix + n.id for t in targets if t for n in ast.walk(t) if isinstance(n, ast.Name)}
        return found

    return names(ast.parse(path.read_text()).body)


def words(page: Path) -> list[str]:
    """What stands in backquotes in the running text."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S))


@by_page
def test_what_a_page_names_exists(page: Path):
    """`objectives/vcr.py::value_consistency` is a name in a file, `nets/heads.py` a file."""
    missing: list[str] = []
    for word in words(page):
        if named := re.fullmatch(r"([\w/]+\.py)::([\w.]+)", word):
            file = SOURCE / named[1]
            good = file.exists() and named[2] in defined(file)
        elif re.fullmatch(r"[\w/.-]+\.py", word) and word not in ("lights.py", "my_ideas.py"):
            good = (ROOT / word).exists() or any(SOURCE.rglob(word))
        else:
            good = True
        missing += [] if good else [word]
    assert not missing


@by_page
def test_flags_exist(page: Path):
    """`--terms.vcr.weight` is a setting of some method, `--seeds` a flag of a command."""
    given = re.findall(r"(?<![\w-])--([a-z][\w.-]*\w)", page.read_text())
    known = {
        *(p for f in library.FAMILIES.values() for method in f.methods for p in paths(f.resolve(method))),
        *paths(Own(), "terms.own."),
        *(f.name for c in COMMANDS.values() for f in fields(cast(Any, c))),
    }
    assert not [flag for flag in given if flag.replace("-", "_") not in known]


@by_page
def test_links_lead_somewhere(page: Path):
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)(?:#[^)]*)?\)", page.read_text())
    assert not [link for link in links if not (page.parent / link).exists()]


def test_the_map_of_files_is_complete():
    """Every file of the package stands in the map of docs/architecture.md, and no other."""
    (tree,) = [b.body for b in blocks(ROOT / "docs" / "architecture.md") if b.body.startswith("src/vcrl/")]
    listed, folder = set[str](), ""
    for line in tree.splitlines()[1:]:
        name = line.split()[0]
        if name.endswith("/"):
            folder = name
        else:
            listed.add(name if re.match(r"  \w", line) else folder + name)
    assert listed == {str(p.relative_to(SOURCE)) for p in SOURCE.rglob("*.py") if p.name != "__init__.py"} | {
        "__init__.py",
        "objectives/__init__.py",
    }


def test_the_paper_map_points_into_the_code():
    """Not only are its references right: it has some for every part of the method."""
    references = {word.split("::")[0] for word in words(ROOT / "docs" / "paper-map.md") if "::" in word}
    assert {"objectives/vcr.py", "objectives/spr.py", "objectives/td.py", "replay.py"} <= references
