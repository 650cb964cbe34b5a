"""The methods over SAC, for continuous actions. They have the names of their kin over Rainbow."""

from vcrl.core.protocol import Observation
from vcrl.methods.configs import (
    CODE,
    PAPER,
    SPR,
    VCR,
    Augment,
    Auxiliary,
    Crops,
    Cycle,
    Reconstruction,
    SACConfig,
    Targets,
    Temperature,
)
from vcrl.methods.family import Family

FAMILY = Family("sac", SACConfig())
method = FAMILY.method
WHOLE = Observation(stack=3, fill="first", reward="raw", size=84)

method("sac", "SAC from random crops, as the base of SPR has it, without auxiliary losses")
method(
    "sac-ae",
    "SAC, and the image can be drawn again from its state; no crops",
    of="sac",
    changes={
        "observation": (WHOLE, CODE),
        "crop": (None, CODE),
        "encoder": ("control-32", CODE),
        "tanh": (True, CODE),
        "batch": (128, CODE),
        "replay.capacity": (1_000_000, CODE),
        "temperature.rate": (1e-4, CODE),
        "terms.reconstruction": (Reconstruction(), CODE),
        "auxiliary": (Auxiliary(batch=128, rest=1.0, clip=None), CODE),
    },
    keeps=("adam.rate", "temperature.rate"),
)
method(
    "curl",
    "contrastive learning: two crops of one image are alike",
    of="sac",
    changes={
        "encoder": ("control-32", CODE),
        "temperature.rate": (1e-4, CODE),
        "terms.crops": (Crops(), CODE),
        "auxiliary": (Auxiliary(batch=512, encoder=2.0, rest=1.0, clip=None), CODE),
    },
    keeps=("temperature.rate",),
)
method(
    "drq",
    "SAC with two shifts of each image: targets are a mean over them, losses a sum",
    of="sac",
    changes={
        "observation": (WHOLE, CODE),
        "crop": (None, CODE),
        "augment": (Augment(shift=4), CODE),
        "draws": (2, CODE),
        "encoder": ("control-32", CODE),
        "init": ("orthogonal", CODE),
        "tanh": (True, CODE),
        "target": (Targets(encoder=0.01), CODE),
        "temperature": (Temperature(rate=1e-3, momentum=0.9), CODE),
    },
    keeps=("adam.rate", "temperature.rate"),
)
method(
    "spr",
    "self-predictive representations: imagined states look like real ones",
    of="sac",
    changes={"terms.spr": (SPR(steps=3), PAPER), "augment": (Augment(intensity=0.05), CODE)},
)
method(
    "spr-k6",
    "SPR with the six steps that its reference code has",
    of="spr",
    changes={"terms.spr.steps": (6, CODE)},
)
method(
    "playvirtual",
    "SPR, and along virtual actions there is a way back to the start",
    of="spr-k6",
    changes={
        "projection": (100, CODE),
        "temperature.rate": (1e-4, CODE),
        "terms.cycle": (Cycle(steps=6, copies=10), CODE),
    },
    keeps=("temperature.rate",),
)
method(
    "vcr",
    "value consistency: imagined states are worth what real ones are",
    of="spr",
    changes={"terms.vcr": (VCR(weight=1.0, steps=3), PAPER)},
)
method(
    "vcr-lambda-0",
    "lambda 0: SPR with VCR only measured",
    of="vcr",
    changes={"terms.vcr.weight": (0.0, PAPER)},
)
method("vcr-lambda-0.2", "lambda 0.2", of="vcr", changes={"terms.vcr.weight": (0.2, PAPER)})
method("vcr-lambda-1.0", "lambda 1.0: VCR itself", of="vcr", changes={"terms.vcr.weight": (1.0, PAPER)})
method(
    "vcr-code",
    "VCR with what the code it builds on has where the paper's text differs: narrow heads, a slow temperature",
    of="vcr",
    changes={"projection": (100, CODE), "temperature.rate": (1e-4, CODE)},
    keeps=("temperature.rate",),
)
method(
    "spr-code",
    "SPR likewise",
    of="spr",
    changes={"projection": (100, CODE), "temperature.rate": (1e-4, CODE)},
    keeps=("temperature.rate",),
)

SMALL = "two CPU cores"
FAMILY.suites |= {
    "dmc": {},  # what the defaults were made for
    "toy": {
        "observation": (
            Observation(stack=2, fill="first", reward="raw", scale=20.0),
            "games of 16 pixels and 20 steps that give 1/20 at most",
        ),
        "crop": (None, "16 pixels"),
        "encoder": ("small", "16 pixels"),
        "augment.shift": (1, "a sixteenth of the picture, as 4 is a twentieth of 84"),
        "width": (32, SMALL),
        "hidden": (64, SMALL),
        "transition": (64, SMALL),
        "projection": (64, SMALL),
        "batch": (64, SMALL),
        "auxiliary.batch": (32, SMALL),
        "gamma": (0.9, "episodes of 20 steps"),
        "init": ("orthogonal", "layers of few channels"),
        "learn_start": (200, "a budget of a few thousand steps"),
        "updates_per_step": (2, "likewise"),
        "adam.rate": (2e-3, "a budget of a few thousand updates"),
        "terms.vcr.ramp": (1000, "half of the budget, as in the paper"),
        "terms.cycle.ramp": (1000, "half of the budget"),
        "terms.spr.steps": (3, "two CPU cores"),
        "terms.cycle.steps": (3, "two CPU cores"),
        "continuous.samples": (4, "two CPU cores"),
    },
    "gym": {
        "observation": (Observation(stack=3, fill="first", reward="raw"), "the environment's own size"),
        "crop": (None, "any size"),
        "augment.shift": (4, "in place of crops"),
        "terms.vcr.ramp": (10_000, "half of the usual budget, as in the paper"),
        "terms.cycle.ramp": (10_000, "half of the usual budget"),
    },
}

# The learning rates of one task.
FAMILY.tasks |= {
    ("dmc", "cheetah-run"): {"adam.rate": (2e-4, PAPER), "temperature.rate": (2e-4, PAPER)},
}


def lacks(config: SACConfig) -> dict[str, bool]:
    """Parts that a method does without. Every method here learns from crops or shifts, but one."""
    return {"augment.": config.terms.reconstruction is not None}


FAMILY.lacks = lacks
