"""vcrl: value-consistent representation learning for data-efficient agents from pixels."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vcrl import objectives
    from vcrl.envs.check_env import check_env
    from vcrl.methods.own import loss
    from vcrl.training.plan import Schedule
    from vcrl.training.run import Run, load_run, train

try:
    __version__ = version("vcrl")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+source"
__all__ = ["Run", "Schedule", "check_env", "load_run", "loss", "objectives", "train"]

_HOME = {
    "train": "vcrl.training.run",
    "load_run": "vcrl.training.run",
    "Run": "vcrl.training.run",
    "Schedule": "vcrl.training.plan",
    "check_env": "vcrl.envs.check_env",
    "loss": "vcrl.methods.own",
}


def __getattr__(name: str) -> Any:
    """Public names on first use: planning and reporting must not wait for JAX."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name == "objectives":
        return import_module("vcrl.objectives")
    raise AttributeError(f"module 'vcrl' has no attribute '{name}'")
