"""Large pages are asked for once, where the system has them for who asks, and by who trains."""

import os
import subprocess
import sys

import pytest

from vcrl import cli
from vcrl.core import pages

OFFERED = "always [madvise] never\n"


@pytest.fixture
def started(monkeypatch, tmp_path):
    """What is started in this program's place, by what the system offers and the environment says."""
    calls = []
    monkeypatch.setattr(os, "execv", lambda program, words: calls.append((program, words)))
    monkeypatch.setattr(sys, "orig_argv", ["python", "-X", "dev", "vcrl", "train", "vcr", "pong"])
    monkeypatch.setattr(pages, "OFFERED", tmp_path / "enabled")

    def once(offered: str | None, **environment: str):
        (tmp_path / "enabled").unlink(missing_ok=True)
        if offered is not None:
            (tmp_path / "enabled").write_text(offered)
        for name in ("GLIBC_TUNABLES", pages.ASKED):
            monkeypatch.setenv(name, environment.get(name, ""))  # so that it is put back behind the test
            if name not in environment:
                monkeypatch.delenv(name)
        pages.in_large_pages()
        return [calls.pop() for _ in list(calls)]

    return once


def test_the_same_command_is_started_again_once(started):
    ((program, words),) = started(OFFERED)
    assert (program, words) == (sys.executable, [sys.executable, "-X", "dev", "vcrl", "train", "vcr", "pong"])
    assert os.environ["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1"
    # Also where the C library has erased the setting.
    assert started(OFFERED, **{pages.ASKED: os.environ[pages.ASKED]}) == []


def test_what_was_said_before_stays(started):
    assert len(started(OFFERED, GLIBC_TUNABLES="glibc.malloc.arena_max=2")) == 1
    assert os.environ["GLIBC_TUNABLES"] == "glibc.malloc.arena_max=2:glibc.malloc.hugetlb=1"
    assert started(OFFERED, GLIBC_TUNABLES="glibc.malloc.hugetlb=0") == []
    assert started(OFFERED, **{pages.ASKED: "0"}) == []


@pytest.mark.parametrize("offered", ["[always] madvise never\n", "always madvise [never]\n", None])
def test_elsewhere_nothing_happens(started, offered):
    assert started(offered) == []


def test_a_program_that_cannot_be_started_goes_on_as_it_is(started, monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(os, "execv", refuse)
    assert started(OFFERED) == []


@pytest.mark.parametrize(("word", "asked"), [("train", True), ("methods", False)])
def test_who_trains_asks(monkeypatch, word, asked):
    calls = []
    monkeypatch.setattr(cli, "in_large_pages", lambda: calls.append("pages"))
    monkeypatch.setattr(cli, "main", lambda: calls.append("main"))
    monkeypatch.setattr(sys, "argv", ["vcrl", word])
    cli.command()
    assert calls == ["pages"] * asked + ["main"]


def test_the_answer_is_the_same_through_it():
    environment = {k: v for k, v in os.environ.items() if k not in ("GLIBC_TUNABLES", pages.ASKED)}
    wrong = subprocess.run(
        [sys.executable, "-m", "vcrl.cli", "train", "vrc", "catch"],
        capture_output=True, text=True, timeout=60, env=environment,
    )  # fmt: skip
    assert wrong.returncode == 2 and "vcr" in wrong.stderr and len(wrong.stderr.splitlines()) == 1
