"""How and where a run was made: command, versions, commit, machine. Recorded, never compared; no host or user names."""

import os
import platform
import resource
import shlex
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1]
# Control groups of version 2 and 1: where they are; the files with limit and use, and the line of caches.
GROUPS = {
    "": ("", "memory.max", "memory.current", "inactive_file"),
    "memory": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


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


def hardware(facts: dict[str, Any]) -> str:
    """What learned, and with how many cores beside it: `NVIDIA H200, 16 CPU cores`."""
    what, cores = facts.get("accelerator") or facts.get("cpu"), facts.get("cpus")
    return ", ".join([*([what] if what else []), *([f"{cores} CPU cores"] if cores else [])])


def _command(words: Sequence[str]) -> str | None:
    """The command as typed, but for where things lie on this computer: that is nobody's business."""
    if not words or words[0] in ("", "-c"):
        return None
    program = Path(words[0]).name
    ours = Path(words[0]).resolve() in (PACKAGE / "cli.py", PACKAGE / "__main__.py")
    typed, rest = ["vcrl" if ours else program], iter(words[1:])
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
    """Bytes of memory that this process can have now, or None where the system does not tell."""
    known = [n for n in (_unused(), *_room_in_groups(), _room_in_limit()) if n is not None]
    return max(0, min(known)) if known else None


def _unused() -> int | None:
    found = _number(Path("/proc/meminfo"), "MemAvailable:")
    return None if found is None else found * 1024


def _room_in_groups(
    system: Path = Path("/sys/fs/cgroup"), mine: Path = Path("/proc/self/cgroup")
) -> list[int]:
    """What the control groups leave, in which a container or a cluster's job runs; file caches make room."""
    try:
        member = {line.split(":")[1]: line.split(":", 2)[2] for line in mine.read_text().splitlines()}
    except (OSError, IndexError):
        return []
    room: list[int] = []
    for kind, (folder, most, used, cache) in GROUPS.items():
        for group in Path(member.get(kind, "/"), "x").parents:  # a limit of any of them counts
            at = system / folder / str(group).lstrip("/")
            limit, taken = _number(at / most), _number(at / used)
            if limit is not None and taken is not None:
                room.append(limit - taken + (_number(at / "memory.stat", cache) or 0))
    return room


def _room_in_limit() -> int | None:
    """What `ulimit -v` leaves."""
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    used = _number(Path("/proc/self/status"), "VmSize:")
    return None if most == resource.RLIM_INFINITY or used is None else most - 1024 * used


def _number(path: Path, name: str | None = None) -> int | None:
    """The number in a file, or in its line that begins with a name; None where there is none."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return None
    found = (line[-1 if name is None else 1] for line in lines if line and name in (None, line[0]))
    text = next(found, "")
    return int(text) if text.isdigit() else None
