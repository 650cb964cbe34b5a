"""Every command and every line of Python in the README runs as it stands there."""

import re
from pathlib import Path

import pytest

from vcrl.cli import main

README = (Path(__file__).parents[1] / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_figures_are_there():
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", README)
    assert len(pictures) == 4
    for name in pictures:
        start = b"GIF8" if name.endswith(".gif") else b"\x89PNG"
        assert (Path(__file__).parents[1] / name).read_bytes().startswith(start)


@pytest.mark.slow
def test_every_command_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    commands = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("vcrl ")]
    assert len(commands) == 5
    for command in commands:
        main(command.split()[1:])
    assert (tmp_path / "play.gif").exists() and "200 games a seed" in capsys.readouterr().out


@pytest.mark.slow
def test_the_python_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space: dict = {}
    for block in blocks("python"):
        exec(block, space)
    assert (
        space["action"] in (0, 1, 2) and len(space["games"][0]) == 10 and callable(space["value_consistency"])
    )
