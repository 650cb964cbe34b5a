"""`vcrl doctor`: is everything there to train with, and if not, which one command mends it.

Every question is put to a process of its own, all at once: a driver that crashes or hangs takes only that one along.
"""

import contextlib
import importlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from vcrl.runs.checks import FAILED, NOTE, OK, WARNING, Check
from vcrl.runs.facts import free_memory

SECONDS = 8.0  # that a process has to answer
SLOW_DISK = 20e6  # bytes a second
LITTLE_DISK = 2e9  # bytes
LITTLE_MEMORY = 2e9
BACKENDS = {"egl": "libegl1", "osmesa": "libosmesa6"}  # and Debian's package of each
SMI = ("nvidia-smi", "--query-gpu=name,memory.free,memory.total", "--format=csv,noheader,nounits")


class Answer(NamedTuple):
    """What a process said before it ended, and how it failed, if it did."""

    said: dict[str, Any]
    error: str = ""
    text: str = ""


def examine(out: Path = Path("runs"), seconds: float = SECONDS) -> list[Check]:
    """All checks, in order; the slowest decides how long it takes, and none may take longer than `seconds`."""
    me = (sys.executable, "-P", "-m", "vcrl.probes")
    questions: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
        "jax": ((*me, "jax"), {}),
        "gpu": (SMI, {}),
        "ale": ((*me, "ale"), {}),
        "disk": ((*me, "disk", str(out.absolute())), {}),
        "cache": ((*me, "cache"), {}),
    }
    if render := _render_command():
        questions |= {backend: (render, {"MUJOCO_GL": backend}) for backend in BACKENDS}
    with ThreadPoolExecutor(len(questions)) as pool:
        asked = {name: pool.submit(ask, *question, seconds) for name, question in questions.items()}
        found = {name: answer.result() for name, answer in asked.items()}
    return [
        _python(),
        _packages(),
        _jax(found["jax"], found["gpu"]),
        _gpu(found["gpu"], found["jax"]),
        _memory(free_memory()),
        _ale(found["ale"]),
        *_mujoco({name: found[name] for name in BACKENDS if name in found}),
        _gymnasium(),
        _disk(found["disk"], out),
        _cache(found["cache"]),
    ]


def ask(command: tuple[str, ...], more: Mapping[str, str], seconds: float) -> Answer:
    """Start a process and wait for its lines of JSON; what it said before it was cut off counts."""
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # only to look, not to take three quarters of a GPU
        **more,
    }
    try:
        child = subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        return Answer({}, f"{command[0]}: {error.strerror}")
    error = ""
    try:
        out, told = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        error, out, told = f"no answer within {seconds:g} s", "", ""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        # One that hangs inside a driver cannot even be killed: then it is left behind.
        with contextlib.suppress(subprocess.TimeoutExpired):
            out, told = child.communicate(timeout=1)
    if not error and child.returncode:
        lines = [line.strip() for line in told.splitlines() if line.strip()]
        error = lines[-1][:160] if lines else f"exit code {child.returncode}"
    said: dict[str, Any] = {}
    for line in out.splitlines():
        with contextlib.suppress(ValueError, TypeError):
            said |= json.loads(line)
    return Answer(said, error, out)


def _python() -> Check:
    return Check("python", OK, f"{platform.python_version()}, {platform.system()} {platform.machine()}")


def _packages() -> Check:
    """What vcrl cannot do without, by the lower bounds it states."""
    try:
        needed, mine = requires("vcrl") or [], version("vcrl")
    except PackageNotFoundError:
        return Check("vcrl", FAILED, "is not installed, only its files are here", "pip install -e .")
    for line in (one for one in needed if "extra ==" not in one):
        bound = re.match(r"([\w.-]+)(?:.*?>=\s*([\d.]+))?", line)
        name, least = (bound[1], bound[2]) if bound else (line, None)
        try:
            found = version(name)
        except PackageNotFoundError:
            return Check("vcrl", FAILED, f"{mine} needs {name}, which is not installed", _pip(line))
        if least is not None and _numbers(found) < _numbers(least):
            return Check("vcrl", FAILED, f"{mine} needs {line}, and {found} is installed", _pip(line))
    return Check("vcrl", OK, f"{mine}, all it needs is installed")


def _pip(requirement: str) -> str:
    return f"pip install --upgrade '{requirement.split(';')[0].strip()}'"


def _numbers(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", text)[:3]]


def _jax(answer: Answer, gpu: Answer) -> Check:
    said = answer.said
    if "version" not in said:
        return Check(
            "jax",
            FAILED,
            f"cannot be imported: {answer.error}",
            "pip install --upgrade --force-reinstall jax",
        )
    if "device" not in said:
        told = f"{said['version']} finds no device: {answer.error}"
        chosen = os.environ.get("JAX_PLATFORMS")
        todo = "unset JAX_PLATFORMS" if chosen else "JAX_PLATFORMS=cpu vcrl doctor"
        return Check("jax", FAILED, told, todo)
    if "sum" not in said:
        return Check(
            "jax",
            FAILED,
            f"{said['version']} does not compute on {said['device']}: {answer.error}",
            "JAX_PLATFORMS=cpu vcrl doctor",
        )
    found = f"{said['version']} on {said['count']} x {said['device']}"
    if said["platform"] == "cpu" and not gpu.error and gpu.text.strip():
        if os.environ.get("JAX_PLATFORMS") == "cpu":
            return Check("jax", NOTE, f"{found}; there is a GPU, and JAX_PLATFORMS=cpu leaves it aside")
        return Check(
            "jax",
            WARNING,
            f"{found}; there is a GPU, and it is not used",
            "pip install --upgrade 'jax[cuda13]'",
        )
    if why := said.get("obstacle"):
        todo = "pip install 'jax[cuda13]==0.11.*'" if "Triton" in why else ""
        return Check("jax", NOTE, f"{found}; no kernels for convolutions, which take longer: {why}", todo)
    return Check("jax", OK, found)


def _gpu(answer: Answer, jax: Answer) -> Check:
    lines = [line.split(",") for line in answer.text.splitlines() if line.count(",") == 2]
    if lines and not answer.error:
        cards = [f"{name.strip()}, {_gib(free)} of {_gib(total)} GiB free" for name, free, total in lines]
        return Check("gpu", OK, "; ".join(cards))
    if answer.error and SMI[0] not in answer.error:  # it is there and does not work
        told = next(iter(answer.text.splitlines()), answer.error)
        return Check(
            "gpu", WARNING, f"nvidia-smi: {told}", "restart the computer, or install the driver again"
        )
    if jax.said.get("platform", "cpu") != "cpu":
        return Check("gpu", NOTE, "JAX has one, and without nvidia-smi its free memory cannot be asked for")
    return Check("gpu", NOTE, "none found: the CPU will train")


def _gib(text: str) -> str:
    return f"{int(text) / 1024:.1f}" if text.strip().isdigit() else "?"


def _memory(free: int | None) -> Check:
    if free is None:
        return Check("memory", NOTE, "the system does not tell how much is free")
    found = f"{free / 2**30:.1f} GiB free"
    if free < LITTLE_MEMORY:
        return Check("memory", WARNING, found, "end other programs, or train fewer seeds at once")
    return Check("memory", OK, found)


def _ale(answer: Answer) -> Check:
    if answer.said.get("installed") is False:
        return Check("atari", NOTE, "not installed", "pip install 'vcrl[atari]'")
    if "frame" not in answer.said:
        return Check(
            "atari", WARNING, answer.error, "pip install --force-reinstall ale-py opencv-python-headless"
        )
    return Check("atari", OK, f"ale-py {answer.said['version']}, a picture of pong")


def _mujoco(answers: dict[str, Answer]) -> list[Check]:
    """A picture by each way of rendering; one that works is enough."""
    if not answers:
        return [Check("mujoco", NOTE, "not installed", "pip install 'vcrl[dmc]'")]
    works = any("fps" in answer.said for answer in answers.values())
    found: list[Check] = []
    for name, answer in answers.items():
        if "fps" in answer.said:
            found.append(Check(f"mujoco {name}", OK, f"a picture by {answer.said['device']}"))
        else:
            state = NOTE if works else WARNING
            found.append(Check(f"mujoco {name}", state, answer.error, f"apt-get install {BACKENDS[name]}"))
    return found


def _gymnasium() -> Check:
    if find_spec("gymnasium") is None:
        return Check("gymnasium", NOTE, "not installed", "pip install 'vcrl[gym]'")
    return Check("gymnasium", OK, version("gymnasium"))


def _disk(answer: Answer, out: Path) -> Check:
    said, elsewhere = answer.said, f"vcrl doctor --out DIRECTORY, where {out} can be written"
    if "rate" not in said:
        return Check("disk", FAILED, f"{out} cannot be written: {answer.error}", elsewhere)
    found = f"{out}: {said['free'] / 2**30:,.1f} GiB free, {said['rate'] / 1e6:,.0f} MB/s"
    if said["free"] < LITTLE_DISK:
        return Check("disk", WARNING, found, f"df -h {out}")
    if said["rate"] < SLOW_DISK:
        return Check("disk", WARNING, f"{found}: checkpoints will be slow", elsewhere)
    return Check("disk", OK, found)


def _cache(answer: Answer) -> Check:
    said = answer.said
    if "path" not in said:
        return Check("compile cache", WARNING, answer.error, "export JAX_COMPILATION_CACHE_DIR=DIRECTORY")
    found = f"{said['path']}: {said['files']} programs, {said['bytes'] / 1e6:,.0f} MB"
    if not said.get("writable"):
        return Check(
            "compile cache",
            WARNING,
            f"{found}, cannot be written: every start compiles anew",
            "export JAX_COMPILATION_CACHE_DIR=DIRECTORY",
        )
    return Check("compile cache", OK, found)


def _render_command() -> tuple[str, ...] | None:
    """The program that takes a picture by the way MUJOCO_GL names; none where MuJoCo is not installed."""
    if find_spec("mujoco") is None:
        return None
    try:
        return importlib.import_module("vcrl.envs.rendering").PROBE
    except ImportError:
        return None
