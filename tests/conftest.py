"""Strict for every test: annotations are checked at run time, warnings are errors, nothing runs on a GPU."""

import os
import warnings
from pathlib import Path
from typing import Any

import hypothesis
import jaxtyping
import pytest

ROOT = Path(__file__).parents[1]

# Environment variables, not `jax.config`: the processes that some tests start see them too.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".jax-cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")

SOURCES = [p.relative_to(ROOT / "src").with_suffix("") for p in (ROOT / "src" / "vcrl").rglob("*.py")]
MODULES = {".".join(p.parts) for p in SOURCES if p.name != "__init__"}

# An int is welcome where a float is asked for, as everywhere in Python.
CHECKER = "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))"
jaxtyping.install_import_hook(sorted(MODULES), CHECKER)

# The same examples every time, and no time limit on one: the first call of a function compiles it.
hypothesis.settings.register_profile("vcrl", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("vcrl")


CI = os.environ.get("CI") == "true"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("filterwarnings", "error")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test of something that need not be there is not even collected where it is not.

    Files with long tests come first: whichever process is done early then finds short ones left.
    """
    left_out = [item for item in items if not all(mark.args[0] for mark in item.iter_markers("needs"))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=lambda item: not {"training", "agents", "campaign"} & set(item.path.parts))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    """In CI everything a test asks for is installed: one that is skipped has failed."""
    return _no_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector):
    return _no_skip((yield))


def _no_skip(report):
    if CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome, report.longrepr = "failed", f"skipped, which is a failure in CI: {report.longrepr}"
    return report


@pytest.fixture(scope="session", autouse=True)
def keep_engines(request):
    """The default tests train few, small configs again and again; only the slow ones have many large ones."""
    from vcrl.training import engine

    if request.config.getoption("markexpr") != "slow":
        engine.KEPT = 64


@pytest.fixture(scope="session", autouse=True)
def checkpoints_by_no_clock():
    """Only where a test asks for it: on a slow computer a minute goes by in the middle of any test."""
    from vcrl.training import watch

    watch.CHECKPOINT_SECONDS = watch.COMPILE_SECONDS = float("inf")


@pytest.fixture
def lowered():
    """The text of what a GPU would be given, from a computer that has none: of a jitted function and its arguments."""
    from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

    there = AbstractMesh((1,), ("seed",), abstract_device=AbstractDevice("NVIDIA H200", None, "gpu"))

    def lowered(function: Any, *arguments: Any) -> str:
        with use_abstract_mesh(there), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The Pallas Triton backend", DeprecationWarning)  # JAX 0.11
            return function.trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()

    return lowered


@pytest.fixture(scope="module")
def quick_compiles():
    """For tests whose time is nearly all compiling: without optimisation it is half."""
    import jax

    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
