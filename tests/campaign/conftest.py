"""Tests beside a helper import it by name."""

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parent))

from fakes import FAKE, scouts

from vcrl.campaign import run
from vcrl.campaign.ask import Ask


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """A campaign of fake trainings; gives its exit code and what it said."""
    monkeypatch.setattr(run, "scouted", scouts)
    monkeypatch.setattr(run, "PATIENCE", 0.3)
    monkeypatch.setenv("COLUMNS", "200")

    def quickly(ask: Ask, **more: Any) -> tuple[int, str]:
        said = io.StringIO()
        code = run.campaign(ask, gpus="none", log=Console(file=said), program=FAKE, **more)
        return code, said.getvalue()

    return quickly
