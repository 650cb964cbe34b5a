"""A config file as the arguments of a training."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from vcrl.core.config import paths
from vcrl.core.errors import UserError, unknown
from vcrl.core.modules import bring
from vcrl.envs import gym_config, registry
from vcrl.envs.registry import Task
from vcrl.methods import library
from vcrl.methods.configs import Own
from vcrl.methods.family import OF_ITS_NAME


class Asked(NamedTuple):
    """What to train on, in the words of `make_plan`."""

    task: str
    steps: int | None
    changes: dict[str, Any]


def asked(
    method: str,
    task: str | None,
    steps: int | None,
    changes: Mapping[str, Any] | None,
    module: str | None = None,
    env: Any = None,
    name: str | None = None,
    fit: str = "",
) -> Asked:
    """A task by its name, a config file, or an environment; what is said here goes before what a file says."""
    changes = dict(changes or {})
    if module is not None:
        bring(module, "which --module names")
    if task is not None and task.lower().endswith(".toml"):
        file = from_file(method, Path(task), env, name, fit)
        return Asked(file.task, file.steps if steps is None else steps, {**file.changes, **changes})
    if env is not None and task is not None:
        raise UserError(
            f"both task={task!r} and env are given: one of them is enough, unless the task is a .toml file"
        )
    if env is not None:
        return Asked(own_task(env, name, fit).name, steps, changes)
    if task is None:
        raise UserError("nothing to train on: give a task, such as 'catch', or env=MyEnv")
    return Asked(task, steps, changes)


def own_task(env: Any, name: str | None = None, fit: str = "") -> Task:
    """A task that was given as an environment: by name, or as a class or function that makes it."""
    if not isinstance(env, str):
        return registry.own(env, name, fit)
    if name is not None:
        raise UserError(
            f"name={name!r} is for an env that is a class or a function; '{env}' is a name already"
        )
    task = env if env.lower().startswith("gym:") else f"gym:{env}"
    return registry.find(f"{task}@{fit}" if fit else task)


def from_file(
    method: str,
    path: Path,
    env: Any = None,
    name: str | None = None,
    fit: str = "",
) -> Asked:
    """What a config asks for; it cannot import anything.

    An `env` takes the place of the one that the config names. Settings that the method does not have are left out, so
    that one config serves all methods; those that no method has are refused.
    """
    config = gym_config.read(path)
    known = {p for f in library.FAMILIES.values() for name in f.methods for p in paths(f.resolve(name))}
    known |= paths(Own(), "terms.own.").keys() - set(OF_ITS_NAME)
    for setting in config.settings:
        if setting not in known:
            raise unknown(f"setting in {path}", setting, known)
    fit = fit or str(config.fit)
    if env is not None:
        task = own_task(env, name, fit)
    elif config.name is None:
        raise UserError(f'{path} names no environment: write id = "MyEnv-v0" in its [env]')
    else:
        task = registry.find(f"gym:{config.name}" + (f"@{fit}" if fit else ""), trusted=False)
    has = paths(library.resolve(method, task.suite, task.name, task.spec.actions))
    return Asked(task.name, config.steps, {p: v for p, v in config.settings.items() if p in has})
