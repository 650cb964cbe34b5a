"""The methods, each a named set of changes to another, down to one of the bases. No method has code of its own."""

from typing import Any, NamedTuple

from vcrl.core.config import change, paths
from vcrl.core.errors import unknown
from vcrl.core.protocol import Observation
from vcrl.methods.configs import CODE, OURS, PAPER, SPR, VCR, Augment, Categorical, RainbowConfig

Changes = dict[str, tuple[Any, str]]  # dotted path -> value, where it comes from


class Method(NamedTuple):
    name: str
    of: str | None
    about: str
    changes: Changes


METHODS: dict[str, Method] = {}


def method(name: str, about: str, of: str | None = None, changes: Changes | None = None) -> None:
    METHODS[name] = Method(name, of, about, changes or {})


method("rainbow", "Rainbow as the base of SPR has it, without augmentation or auxiliary losses")
method(
    "spr",
    "self-predictive representations: imagined states look like real ones",
    of="rainbow",
    changes={"terms.spr": (SPR(), PAPER), "augment": (Augment(shift=4, intensity=0.05), CODE)},
)
method(
    "vcr",
    "value consistency: imagined states are worth what real ones are",
    of="spr",
    changes={"terms.vcr": (VCR(), PAPER)},
)
method(
    "vcr-mse",
    "the paper's d_MSE: the taken action against the real state's value",
    of="vcr",
    changes={"terms.vcr.taken": ("real", PAPER), "terms.vcr.others": ("none", PAPER)},
)
method(
    "vcr-mse-a",
    "the paper's d_MSE-A: every action against the real state's value",
    of="vcr",
    changes={
        "terms.vcr.others": ("all", PAPER),
        "terms.vcr.taken_weight": (0.0, PAPER),
        "terms.vcr.others_weight": (1.0, PAPER),
        "terms.vcr.taken": ("real", OURS),
    },
)

# What a suite asks of every method alike. A path of a term applies where the method has that term.
SUITES: dict[str, Changes] = {
    "toy": {
        "observation": (Observation(stack=2, reward="raw"), "games of 16 pixels and rewards within 1"),
        "encoder": ("small", "16 pixels"),
        "hidden": (64, "two CPU cores"),
        "value": (Categorical(atoms=21, low=-1.25, high=1.25), "returns lie within 1"),
        "n_step": (3, "episodes of 7 steps"),
        "learn_start": (200, "a budget of a few thousand steps"),
        "updates_per_step": (1, "two CPU cores"),
        "adam.rate": (2e-3, "a budget of a few thousand updates"),
        "noise": (0.1, "likewise: heads that settle sooner; a value the reference code had, too"),
        "augment.shift": (1, "a sixteenth of the picture, as 4 is a twentieth of 84"),
        "terms.spr.steps": (3, "episodes of 7 steps"),
        "terms.vcr.steps": (3, "episodes of 7 steps"),
        "terms.vcr.ramp": (1000, "half of the budget, as in the paper"),
    },
    "gym": {
        "learn_start": (1000, "a budget of tens of thousands of steps"),
        "terms.vcr.ramp": (10_000, "half of the usual budget, as in the paper"),
    },
}


def find(name: str) -> Method:
    if name not in METHODS:
        raise unknown("method", name, METHODS, "`vcrl methods` lists them.")
    return METHODS[name]


def resolve(name: str, suite: str | None = None) -> RainbowConfig:
    """The whole config of a method, on a suite if one is named."""
    config = RainbowConfig()
    for path, (value, _) in lineage(name):
        config = change(config, path, value)
    for path, (value, _) in SUITES.get(suite or "", {}).items():
        if applies(config, path):
            config = change(config, path, value)
    return config


def lineage(name: str) -> list[tuple[str, tuple[Any, str]]]:
    """All changes from the base to the method, in order."""
    here = find(name)
    return [*(lineage(here.of) if here.of else []), *here.changes.items()]


def applies(config: RainbowConfig, path: str) -> bool:
    """Whether a suite's change concerns this method: not a term it lacks, not augmentation it does without."""
    if path.startswith("augment.") and config.augment == Augment():
        return False
    return path in paths(config) or not path.startswith("terms.")
