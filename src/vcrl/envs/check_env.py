"""`vcrl check-env`: play an environment at random, say what it is like, write a config to train with."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vcrl.core.errors import UserError
from vcrl.envs.gym_advice import Advice, advise
from vcrl.envs.gym_check import inspect
from vcrl.envs.gym_config import write
from vcrl.envs.gym_find import by_call, by_name, split


def check_env(
    env: Any,
    out: str | Path | None = None,
    steps: int = 500,
    seed: int = 0,
    overwrite: bool = False,
    free: int | None = None,
    say: Callable[[str], None] = print,
) -> Advice:
    """Inspect an environment, by its name or as what makes it, and write a config beside where one stands.

    What keeps it from being trained on is a `UserError` at the end, and nothing is written. `free` is the memory that
    replays may take, in bytes.
    """
    if steps < 100:
        raise UserError(f"--steps {steps}: at least 100 are needed to say anything")
    if isinstance(env, str):
        module, name, fit = split(env)
        if str(fit):
            raise UserError(f"'{env}': leave @{fit} out, it is what this command finds out")
        source = by_name(module, name)
    else:
        module, source = None, by_call(env)
    target = Path(out) if out is not None else Path(default_name(source.name))
    if target.exists() and not overwrite:
        raise UserError(f"{target} exists: give another --out, or --overwrite it")
    advice = advise(inspect(source, steps, seed), free)
    say(report(source.name, steps, advice))
    if advice.failures:
        raise UserError(
            f"{source.name} cannot be trained on yet, so no config was written: {advice.failures[0]}"
        )
    command = f"vcrl train vcr {target}" + (f" --module {module}" if module else "")
    if not isinstance(env, str):
        command = f'vcrl.train("vcr", "{target}", env=...)'
    try:
        target.write_text(write(source.name, advice, command))
    except OSError as error:
        raise UserError(f"cannot write {target} ({error.strerror}): give another --out") from error
    say(f"wrote {target}; next: {command}")
    return advice


def default_name(name: str) -> str:
    """`my_module:games/MyEnv-v0` -> `myenv.toml`"""
    last = re.split(r"[:/]", name)[-1]
    plain = re.sub(r"[^a-z0-9]+", "-", re.sub(r"-v\d+$", "", last.lower())).strip("-")
    return f"{plain or 'environment'}.toml"


def report(name: str, steps: int, advice: Advice) -> str:
    """The table, and a line for each thing to mend."""
    topic, found = (max(len(row[i]) for row in advice.table) for i in (0, 1))
    lines = [f"{name}, {steps} random steps"]
    for row in advice.table:
        lines.append(f"{row[0]:{topic}}  {row[1]:{found}}  {'-> ' + row[2] if row[2] else ''}".rstrip())
    lines += [f"{'FAIL':{topic}}  {text}" for text in advice.failures]
    lines += [f"{'WARN':{topic}}  {text}" for text in advice.warnings]
    return "\n".join(lines)
