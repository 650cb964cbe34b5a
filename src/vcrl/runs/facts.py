"""How and where a run was made: command, versions, commit, machine. Recorded, never compared; no host or user names."""

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1]


def facts(accelerator: str | None = None) -> dict[str, Any]:
    """`accelerator` is the name of what learns besides the CPU; only who has started JAX can tell."""
    commit, dirty = _commit()
    return {
        "command": _command(sys.argv),
        "vcrl": _version("vcrl"),
        "python": platform.python_version(),
        "numpy": _version("numpy"),
        "jax": _version("jax"),
        "platform": platform.platform(),
        "cpu": _cpu(),
        "cpus": os.cpu_count(),
        "accelerator": accelerator,
        "commit": commit,
        "dirty": dirty,
    }


def _command(words: Sequence[str]) -> str | None:
    """The command as typed, but for where things lie on this computer: that is nobody's business."""
    if not words or words[0] in ("", "-c"):
        return None
    program = Path(words[0]).name
    typed, rest = ["vcrl" if Path(words[0]) == PACKAGE / "cli.py" else program], iter(words[1:])
    for word in rest:
        if word == "--out":
            next(rest, None)
        elif not word.startswith("--out="):
            typed.append(word)
    return shlex.join(typed).replace(str(Path.home()), "~")


def _version(name: str) -> str | None:
    """From the package's metadata: importing JAX to ask would start it."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _cpu() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or None


def _commit() -> tuple[str | None, bool | None]:
    """The package's commit, and whether its files differ from it; VCRL_COMMIT speaks for a bare copy."""
    if told := os.environ.get("VCRL_COMMIT"):
        return told, None
    # A package installed inside somebody's checkout is not part of it: git must know our files.
    if not _git("ls-files", "--", "."):
        return None, None
    changes = _git("status", "--porcelain", "--", ".")
    return _git("rev-parse", "HEAD") or None, None if changes is None else bool(changes)


def _git(*arguments: str) -> str | None:
    command = ["git", "--no-optional-locks", "-C", str(PACKAGE), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def free_memory() -> int | None:
    """Bytes of memory that can be had now, or None where the system does not tell."""
    try:
        with open("/proc/meminfo") as lines:
            available = next(line for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return None
    return int(available.split()[1]) * 1024
