"""Facts name versions, commit and machine, and nothing that identifies a person."""

import getpass
import json
import platform
import subprocess
import sys

import numpy as np
import pytest

from vcrl.runs import facts as module
from vcrl.runs.facts import facts


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository of its own with a committed file in it."""
    monkeypatch.delenv("VCRL_COMMIT", raising=False)
    package = tmp_path / "src" / "vcrl"
    package.mkdir(parents=True)
    (package / "a.py").write_text("1\n")
    (tmp_path / ".gitignore").write_text("ignored/\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    git(tmp_path, *who, "commit", "-q", "--no-gpg-sign", "--no-verify", "-m", "first")
    monkeypatch.setattr(module, "PACKAGE", package)
    return tmp_path


def git(folder, *arguments):
    return subprocess.run(
        ["git", *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_versions_and_machine():
    found = facts()
    assert found["numpy"] == np.__version__ and found["python"] == platform.python_version()
    assert found["jax"] and found["vcrl"] and found["cpus"] >= 1
    assert json.loads(json.dumps(found)) == found


def test_no_names_of_people_or_hosts():
    words = json.dumps(facts()).split('"')
    assert platform.node() not in words and getpass.getuser() not in words


def test_the_accelerator_is_told_by_who_knows():
    assert facts()["accelerator"] is None
    assert facts("Some GPU")["accelerator"] == "Some GPU"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["/opt/env/bin/vcrl", "train", "vcr", "pong"], "vcrl train vcr pong"),
        ([str(module.PACKAGE / "cli.py"), "train", "vcr", "pong"], "vcrl train vcr pong"),
        ([str(module.PACKAGE / "__main__.py"), "train", "vcr", "pong"], "vcrl train vcr pong"),
        (["vcrl", "train", "--out", "/data/me", "--seeds", "0:5"], "vcrl train --seeds 0:5"),
        (["vcrl", "train", "--out=/data/me", "--note", "two words"], "vcrl train --note 'two words'"),
        (["my/sweep.py", "--games", "pong"], "sweep.py --games pong"),
        (["-c"], None),
        ([""], None),
        ([], None),
    ],
)
def test_the_command_as_typed_without_places(words, told):
    assert module._command(words) == told


def test_the_command_where_the_package_is_named_from_where_one_stands(monkeypatch):
    monkeypatch.chdir(module.PACKAGE.parent)
    assert module._command(["vcrl/cli.py", "ls"]) == "vcrl ls"


def test_the_home_folder_is_not_named(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "somebody"))
    words = ["kernel.py", "-f", str(tmp_path / "somebody" / "x.json")]
    assert module._command(words) == "kernel.py -f ~/x.json"


def test_the_commit_of_a_clean_checkout(checkout):
    assert module._commit() == (git(checkout, "rev-parse", "HEAD"), False)


@pytest.mark.parametrize("name", ["a.py", "new.py"])
def test_changed_or_new_code_is_dirty(checkout, name):
    (checkout / "src" / "vcrl" / name).write_text("2\n")
    assert module._commit() == (git(checkout, "rev-parse", "HEAD"), True)


def test_files_outside_the_package_do_not_make_it_dirty(checkout):
    (checkout / "notes.txt").write_text("")
    assert module._commit()[1] is False


def test_installed_inside_somebody_elses_checkout(checkout, monkeypatch):
    package = checkout / "ignored" / "vcrl"
    package.mkdir(parents=True)
    (package / "a.py").write_text("1\n")
    monkeypatch.setattr(module, "PACKAGE", package)
    assert module._commit() == (None, None)


def test_no_checkout_and_no_git(tmp_path, monkeypatch):
    monkeypatch.delenv("VCRL_COMMIT", raising=False)
    monkeypatch.setattr(module, "PACKAGE", tmp_path)
    assert module._commit() == (None, None)
    monkeypatch.setenv("PATH", "")
    assert module._commit() == (None, None)


def test_a_slow_git_is_not_waited_for(checkout, monkeypatch):
    def slow(command, **options):
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(subprocess, "run", slow)
    assert module._commit() == (None, None)


def test_the_environment_speaks_for_a_bare_copy(checkout, monkeypatch):
    monkeypatch.setenv("VCRL_COMMIT", "abc123")
    found = facts()
    assert (found["commit"], found["dirty"]) == ("abc123", None)


def test_a_package_that_is_absent_has_no_version():
    assert module._version("no-such-package-anywhere") is None


def test_free_memory_is_the_least_that_anything_leaves(monkeypatch):
    monkeypatch.setattr(module, "_unused", lambda: 900)
    monkeypatch.setattr(module, "_room_in_limit", lambda: None)
    monkeypatch.setattr(module, "_room_in_groups", lambda: [])
    assert module.free_memory() == 900
    monkeypatch.setattr(module, "_room_in_groups", lambda: [5000, 300])
    assert module.free_memory() == 300
    monkeypatch.setattr(module, "_room_in_limit", lambda: -7)
    assert module.free_memory() == 0
    for name in ("_unused", "_room_in_limit"):
        monkeypatch.setattr(module, name, lambda: None)
    monkeypatch.setattr(module, "_room_in_groups", lambda: [])
    assert module.free_memory() is None


def group(folder, **numbers):
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in numbers.items():
        (folder / name.replace("__", ".")).write_text(f"{value}\n")


def test_control_groups_of_both_versions(tmp_path):
    """A job in a container: the limit of any group above it counts, and what files take of it can be had back."""
    system, mine = tmp_path / "groups", tmp_path / "mine"
    mine.write_text("5:cpu,cpuacct:/\n0::/pod/job\n")
    group(system, cgroup__procs=1)  # the root has no limit
    group(system / "pod", memory__max=1000, memory__current=400, memory__stat="anon 300\ninactive_file 100")
    group(system / "pod" / "job", memory__max="max", memory__current=200, memory__stat="inactive_file 5")
    assert module._room_in_groups(system, mine) == [700]
    mine.write_text("4:memory:/task\n0::/\n")
    at = system / "memory" / "task"
    group(
        at, memory__limit_in_bytes=5000, memory__usage_in_bytes=4500, memory__stat="total_inactive_file 250"
    )
    assert module._room_in_groups(system, mine) == [750]
    assert module._room_in_groups(system, tmp_path / "none") == []
    mine.write_text("nonsense\n")
    assert module._room_in_groups(system, mine) == []


def test_a_limit_on_addresses_counts():
    """In a process of its own, for it cannot be raised again."""
    code = "import resource; from vcrl.runs.facts import free_memory; n = 2 * 10**9; "
    code += "resource.setrlimit(resource.RLIMIT_AS, (n, n)); print(free_memory())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 10**9 < int(done.stdout) < 2 * 10**9
