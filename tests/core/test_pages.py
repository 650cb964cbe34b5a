"""Large pages are asked for once, where the system has them for who asks, and by who trains."""

import os
import subprocess
import sys

import pytest

from vcrl.core import pages


@pytest.fixture
def started(monkeypatch, tmp_path):
    """What is started in this program's place; what the system offers, and what was said before."""
    calls = []
    monkeypatch.setattr(os, "execv", lambda program, words: calls.append((program, words)))
    monkeypatch.setattr(sys, "orig_argv", ["python", "-X", "dev", "vcrl", "train", "vcr", "pong"])

    def once(offered: str | None, told: str | None = None):
        monkeypatch.setattr(pages, "OFFERED", tmp_path / "enabled")
        (tmp_path / "enabled").unlink(missing_ok=True)
        if offered is not None:
            (tmp_path / "enabled").write_text(offered)
        monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
        if told is not None:
            monkeypatch.setenv("GLIBC_TUNABLES", told)
        pages.in_large_pages()
        return [calls.pop() for _ in list(calls)]

    return once


def test_the_same_command_is_started_again_once(started):
    ((program, words),) = started("always [madvise] never\n")
    assert (program, words) == (sys.executable, [sys.executable, "-X", "dev", "vcrl", "train", "vcr", "pong"])
    told = os.environ["GLIBC_TUNABLES"]
    assert told == "glibc.malloc.hugetlb=1"
    assert started("always [madvise] never\n", told) == []


def test_what_was_said_before_stays(started):
    assert len(started("always [madvise] never\n", "glibc.malloc.arena_max=2")) == 1
    assert os.environ["GLIBC_TUNABLES"] == "glibc.malloc.arena_max=2:glibc.malloc.hugetlb=1"
    assert started("always [madvise] never\n", "glibc.malloc.hugetlb=0") == []


@pytest.mark.parametrize("offered", ["[always] madvise never\n", "always madvise [never]\n", None])
def test_elsewhere_nothing_happens(started, offered):
    assert started(offered) == []


def test_who_trains_gets_the_same_answer_through_it():
    wrong = subprocess.run(
        [sys.executable, "-m", "vcrl.cli", "train", "vrc", "catch"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert wrong.returncode == 2 and "vcr" in wrong.stderr and len(wrong.stderr.splitlines()) == 1
