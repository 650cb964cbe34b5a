"""All methods by name: two families, for discrete and for continuous actions, in which kin have the same name."""

from typing import Any

from vcrl.core.errors import UserError, unknown
from vcrl.core.spec import Box, Discrete
from vcrl.methods import continuous, discrete
from vcrl.methods.family import Family
from vcrl.methods.own import with_loss

FAMILIES: dict[str, Family] = {f.base: f for f in (discrete.FAMILY, continuous.FAMILY)}
NAMES = list(dict.fromkeys(name for family in FAMILIES.values() for name in family.methods))
SUITES = list(dict.fromkeys(suite for family in FAMILIES.values() for suite in family.suites))
CONTINUOUS = {("dmc", None), ("toy", "reach")}  # suites, and single tasks of others


def find(
    name: str, suite: str | None = None, task: str | None = None, actions: Discrete | Box | None = None
) -> Family:
    """The family to take a method from: the one for these actions, or those that the suite or the task has.

    Where nobody says which, the discrete one, if it has the name.
    """
    name, _ = with_loss(name)
    if name not in NAMES:
        raise unknown("method", name, NAMES, "`vcrl methods` lists them.")
    if actions is not None:
        base = "sac" if isinstance(actions, Box) else "rainbow"
    elif (suite, None) in CONTINUOUS or (suite, task) in CONTINUOUS:
        base = "sac"
    else:
        base = next(f.base for f in FAMILIES.values() if name in f.methods)
    if name not in FAMILIES[base].methods:
        kind = "continuous" if base == "sac" else "discrete"
        known = ", ".join(FAMILIES[base].methods)
        raise UserError(
            f"{name} is not made for {kind} actions, which {task or suite} has; there are {known}"
        )
    return FAMILIES[base]


def resolve(
    name: str, suite: str | None = None, task: str | None = None, actions: Discrete | Box | None = None
) -> Any:
    """The whole config of a method, on a suite and on a task of it if they are named."""
    return find(name, suite, task, actions).resolve(name, suite, task)
