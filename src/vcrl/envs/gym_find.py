"""From a name, or something that can be called, to environments.

A file may be a stranger's: it can name an environment of Gymnasium's registry, or one of a module that is imported
already, and nothing else.
"""

import os
import sys
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, NamedTuple

from vcrl.core.errors import UserError, told
from vcrl.core.modules import bring, imported
from vcrl.envs.gym_adapt import Fit, parse_fit


class Source(NamedTuple):
    """Where environments come from; `build` makes one, to be rendered or not."""

    name: str  # without `gym:` and without what is done to it
    build: Callable[[bool], Any]


def split(task: str) -> tuple[str | None, str, Fit]:
    """`gym:module:Name-v0@84x84,gray` as the module, the name in it, and what is done to it; `gym:` may be left out."""
    whole, _, words = task.partition("@")
    module, _, name = (whole[4:] if whole.lower().startswith("gym:") else whole).rpartition(":")
    if not name:
        raise UserError(f"task '{task}' names no environment: write gym:Name-v0 or gym:module:Name-v0")
    return module or None, name, parse_fit(words)


def by_name(module: str | None, name: str, trusted: bool = True) -> Source:
    """A registered environment, or a class or function of the module that makes one."""
    library = gymnasium_itself()
    if module is not None and trusted:
        bring(module, f"which should have {name}")
    whole = f"{module}:{name}" if module else name
    if module is not None:
        imported(module, whole)
    if name in library.registry:
        return Source(whole, lambda render: _make(library, name, render))
    made = _part(sys.modules.get(module or ""), name)
    # Any callable of any module would be too much for a file to ask for.
    ours = isinstance(made, type) and issubclass(made, library.Env)
    if ours or (trusted and callable(made)):
        return Source(whole, lambda render: _call(made, whole, render))
    near = get_close_matches(name, list(library.registry), n=3, cutoff=0.5)
    meant = f"did you mean {' or '.join(near)}?" if near else "no registered name is near."
    how = "Write gym:module:Name-v0 with the module whose import registers it."
    if not trusted:
        how = "If it was given from Python, give it again: vcrl.load_run(folder, env=...)."
    raise UserError(f"unknown Gymnasium environment '{name}': {meant} {how}")


def by_call(make: Any, name: str | None = None) -> Source:
    """Environments that a class or function makes, named after it.

    A lambda has no name, so what it makes gives one. Two that differ only in arguments need names of their own: the
    name is all that tells their runs apart.
    """
    if not callable(make):
        raise UserError(f"env={make!r}: give a class or a function that makes environments, or a name")
    if name is None:
        named: Any = make
        if not hasattr(make, "__qualname__") or "<lambda>" in make.__qualname__:
            env = _call(make, "env", False)
            named = type(getattr(env, "unwrapped", env))
            env.close()
        name = f"{named.__module__}:{named.__qualname__}"
    if not name or "@" in name:
        raise UserError(
            f"name={name!r}: a name without @ is needed; what is done to pictures goes into fit=..."
        )
    return Source(name, lambda render: _call(make, name, render and isinstance(make, type)))


def gymnasium_itself() -> Any:
    try:
        import gymnasium
    except ImportError as error:
        raise UserError("Gymnasium is not installed: pip install 'vcrl[gym]'") from error
    if sys.platform == "linux" and not {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # else pygame complains that it has no screen
    return gymnasium


def _make(library: Any, name: str, render: bool) -> Any:
    try:
        # The checks are ours; the library's checker would repeat its own at every step.
        return library.make(
            name, disable_env_checker=True, **({"render_mode": "rgb_array"} if render else {})
        )
    except Exception as error:  # the constructor is a user's code
        raise UserError(
            f"cannot build {name}: {told(error)}; gymnasium.make('{name}') has to work"
        ) from error


def _call(make: Callable[..., Any], name: str, render: bool) -> Any:
    try:
        env = make(render_mode="rgb_array") if render else make()
    except Exception as error:
        raise UserError(f"cannot build {name}: {told(error)}; it has to work without arguments") from error
    missing = [
        part
        for part in ("reset", "step", "close", "action_space", "observation_space")
        if not hasattr(env, part)
    ]
    if missing:
        raise UserError(
            f"{name} made a {type(env).__name__} without {', '.join(missing)}: no Gymnasium environment"
        )
    return env


def _part(module: Any, name: str) -> Any:
    """What a module has under a name, dots included; None if nothing."""
    for word in name.split("."):
        module = getattr(module, word, None)
    return module
