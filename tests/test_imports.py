"""Arrows point down only: who may import whom, read off the import statements."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
# Imports that bring JAX along; `jaxtyping` does once an array type is named.
JAX = {"jax", "jaxlib", "jaxtyping", "equinox", "optax"}
WITHOUT_JAX = [
    "core.config",
    "core.errors",
    "core.protocol",
    "core.spec",
    "methods",
    "envs",
    "runs",
    "bench",
    "campaign",
]

PROGRAMS = ["campaign.scout"]  # processes of their own, for those who do without JAX
TOP = [
    "__main__",
    "cli",
    "commands",
    "demo",
]  # the command line, its commands, and one too long to stand among them


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name_of(path): path for path in sorted((SOURCE / "vcrl").rglob("*.py"))}


def statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """All import statements, those in functions included, those for type checkers alone not."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for other in node.orelse:
                yield from statements(ast.Module([other], []))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        else:
            yield from statements(node)


def named(source: str, module: str, package: bool = False) -> set[str]:
    """Modules a source imports by name. `from a import b` may mean the module a.b: both are given."""
    found: set[str] = set()
    for node in statements(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            here = module.split(".")[: None if package else -1]
            base = here[: len(here) - node.level + 1] if node.level else []
            whole = ".".join([*base, *([node.module] if node.module else [])])
            found |= {whole, *(f"{whole}.{alias.name}" for alias in node.names)}
    return found


@cache
def imports(module: str) -> frozenset[str]:
    """What a module of ours imports: our modules with the packages they lie in, others by their top name."""
    path, found = FILES[module], set[str]()
    for name in named(path.read_text(), module, path.name == "__init__.py"):
        if name.split(".")[0] != "vcrl":
            found.add(name.split(".")[0])
            continue
        parts = name.split(".")
        found |= {p for i in range(len(parts)) if (p := ".".join(parts[: i + 1])) in FILES}
    return frozenset(found)


def reached(module: str) -> dict[str, str]:
    """Everything that importing a module brings in, each with the way there."""
    ways, queue = {module: module}, [module]
    while queue:
        here = queue.pop(0)
        for name in sorted(imports(here) - ways.keys()):
            ways[name] = f"{ways[here]} -> {name}"
            if name in FILES:
                queue.append(name)
    return ways


def within(module: str, *rooms: str) -> bool:
    return any(module == f"vcrl.{room}" or module.startswith(f"vcrl.{room}.") for room in rooms)


def ours(module: str) -> set[str]:
    return {name for name in imports(module) if name in FILES and name != "vcrl"}


def test_the_reader_of_imports_sees_what_it_should():
    assert {"vcrl.objectives", "vcrl.nets", "vcrl.core", "vcrl.methods.configs"} <= FILES.keys()
    assert "jax" in imports("vcrl.objectives.td")
    assert ours("vcrl.objectives.spr") == {"vcrl.objectives", "vcrl.objectives.distance"}
    assert "vcrl.core.config" in reached("vcrl.methods.configs")
    source = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import a
else:
    import b
def f():
    import c.d
    from . import e
try:
    from ..g import h
except ImportError:
    pass
"""
    found = named(source, "vcrl.x.y")
    assert found == {"typing", "typing.TYPE_CHECKING", "b", "c.d", "vcrl.x", "vcrl.x.e", "vcrl.g", "vcrl.g.h"}
    assert named("from . import e", "vcrl.x", package=True) == {"vcrl.x", "vcrl.x.e"}


@pytest.mark.parametrize("module", [m for m in FILES if within(m, "objectives")])
def test_objectives_know_nothing_else_of_ours(module: str):
    allowed = {"vcrl.core", "vcrl.core.types"}
    assert {m for m in ours(module) if not within(m, "objectives")} <= allowed


@pytest.mark.parametrize("module", [m for m in FILES if within(m, *WITHOUT_JAX) and not within(m, *PROGRAMS)])
def test_planning_and_reporting_work_without_jax(module: str):
    ways = reached(module)
    assert not [ways[name] for name in JAX & ways.keys()]


@pytest.mark.parametrize("module", [m for m in FILES if within(m, "nets", "objectives")])
def test_nets_and_objectives_do_not_import_each_other(module: str):
    other = "objectives" if within(module, "nets") else "nets"
    assert not [m for m in ours(module) if within(m, other)]


@pytest.mark.parametrize(
    "module", [m for m in FILES if not within(m, "training", *TOP, *PROGRAMS) and m != "vcrl"]
)
def test_nobody_imports_the_training_from_below(module: str):
    assert not [m for m in ours(module) if within(m, "training")]


@pytest.mark.parametrize("module", FILES)
def test_nobody_imports_the_command_line(module: str):
    below = [room for room in TOP[1:] if within(module, *TOP[: TOP.index(room) + 1])]
    assert not [m for m in ours(module) if within(m, *TOP) and not within(m, *below)]


@pytest.mark.parametrize("module", FILES)
def test_nobody_imports_a_program(module: str):
    assert not [m for m in ours(module) if within(m, *PROGRAMS)]


def test_the_package_itself_imports_nothing_of_ours_before_it_is_asked():
    assert ours("vcrl") == set()


def test_no_jax_in_the_process_either():
    """The statements may be right and a library may still bring it in."""
    modules = [m for m in FILES if within(m, *WITHOUT_JAX) and not within(m, *PROGRAMS)]
    program = f"import sys, {', '.join(modules)}; print(*sorted({JAX!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
