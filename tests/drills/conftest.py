"""What drills share: a training that was never disturbed, and a way to say what was kept and what was told."""

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "training")]

# Every process of a drill compiles the same programs.
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

from toy import start  # noqa: E402 (once the folder is known)


@pytest.fixture
def tell(request, record_property):
    """Put a row into the table of drills: `tell(happened, kept, said)`."""

    def row(happened: str, kept: str, said: str) -> None:
        marker = request.node.get_closest_marker("drill")
        told = " ".join(said.split()).replace(str(request.getfixturevalue("tmp_path")), "OUT")
        record_property("row", [marker.args[0], happened, kept, told])

    return row


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """The run of each kind that nothing happened to."""
    found: dict[str, Path] = {}

    def get(kind: str) -> Path:
        if kind not in found:
            run = start(kind, tmp_path_factory.mktemp(kind))
            assert run.end() == 0, run.said()
            found[kind] = run.folder()
        return found[kind]

    return get
