"""Who may have code imported.

A module is imported because the person at the keyboard named it, on a command line or in Python. A file, be it a config
or a run folder, may name what is imported already, and nothing else.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

from vcrl.core.errors import UserError, told


def bring(module: str, why: str) -> None:
    """Import a module that the user named."""
    try:
        importlib.import_module(module)
    except Exception as error:  # a user's module may fail in any way while it is imported
        absent = error.name if isinstance(error, ModuleNotFoundError) else None
        what_to_do = f"install {absent} or add its folder to PYTHONPATH" if absent else "mend it"
        raise UserError(f"cannot import '{module}', {why}: {told(error)}; {what_to_do}") from error


def imported(module: str, whole: str) -> ModuleType:
    """A module that `whole` is of, and that has to be imported already."""
    if module not in sys.modules:
        raise UserError(
            f"{whole} is of the module '{module}', and a file cannot have code imported: if you trust it, name it "
            f"yourself, with --module {module}, or by importing it first in Python"
        )
    return sys.modules[module]


def names_in(module: ModuleType) -> dict[str, Any]:
    """What it has, without asking it: of one that imports itself only when it is asked, nothing yet."""
    return object.__getattribute__(module, "__dict__")
