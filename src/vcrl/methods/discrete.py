"""The methods over Rainbow, for discrete actions.

What concerns the environment (how frames are resized, how games begin) is the same for all of them, though the
references differ in it.
"""

from vcrl.core.protocol import Observation
from vcrl.methods.configs import (
    CODE,
    OURS,
    PAPER,
    SPR,
    VCR,
    Augment,
    Categorical,
    Contrast,
    Cycle,
    RainbowConfig,
    Reward,
    Scalar,
)
from vcrl.methods.family import Family

FAMILY = Family("rainbow", RainbowConfig())
method = FAMILY.method

# The base and the methods of the paper's Atari table.
method("rainbow", "Rainbow as the base of SPR has it, without augmentation or auxiliary losses")
method(
    "der",
    "data-efficient Rainbow as Dopamine has it; the runs in the table are of this one",
    of="rainbow",
    changes={
        "encoder": ("nature-same", CODE),
        "renormalise": (False, CODE),
        "init": ("xavier", CODE),
        "head": ("shared", CODE),
        "hidden": (512, CODE),
        "head_gradient": (1.0, CODE),
        "noise": (0.1, CODE),
        "epsilon_start": (0.0, CODE),
        "replay.priority.correction": ((0.5, 0.5), CODE),
        "replay.priority.of": ("loss", CODE),
        "replay.priority.new": ("max", CODE),
        "learn_start": (1600, CODE),
        "updates_per_step": (1, CODE),
        "target.every": (2000, CODE),
        "adam.clip": (None, CODE),
    },
)
method(
    "der-original",
    "data-efficient Rainbow as first released, with a smaller encoder; the base of CURL",
    of="rainbow",
    changes={
        "encoder": ("data-efficient", CODE),
        "renormalise": (False, CODE),
        "head_gradient": (1.0, CODE),
        "noise": (0.1, CODE),
        "epsilon_start": (0.0, CODE),
        "n_step": (20, CODE),
        "replay.priority.of": ("loss", CODE),
        "replay.priority.new": ("max", CODE),
        "learn_start": (1600, CODE),
        "updates_per_step": (1, CODE),
        "target.every": (2000, CODE),
    },
)
method(
    "otr",
    "overtrained Rainbow: C51 and prioritised replay alone, with eight updates a step",
    of="der",
    changes={
        "head": ("plain", CODE),
        "noise": (None, CODE),
        "epsilon_start": (1.0, CODE),
        "epsilon": (0.01, CODE),
        "epsilon_decay": (50_000, CODE),
        "double": (False, CODE),
        "n_step": (3, CODE),
        "learn_start": (20_000, CODE),
        "updates_per_step": (8, CODE),
        "target.every": (4000, CODE),
        "adam.rate": (6.25e-5, CODE),
    },
)
method(
    "curl",
    "contrastive learning: two crops of one image are alike",
    of="der-original",
    changes={"terms.contrast": (Contrast(), CODE), "replay.priority.of": ("total", CODE)},
)
method(
    "drq-eps",
    "double dueling DQN on augmented images; the column DrQ of the table is this one",
    of="der",
    changes={
        "value": (Scalar(), CODE),
        "noise": (None, CODE),
        "epsilon_start": (1.0, CODE),
        "epsilon": (0.01, CODE),
        "epsilon_decay": (5000, CODE),
        "augment": (Augment(shift=4, intensity=0.05), CODE),
        "replay.priority": (None, CODE),
        "target.every": (1, CODE),
    },
)
method(
    "drq",
    "the same as first released: more random actions, in evaluation too",
    of="drq-eps",
    changes={"epsilon": (0.1, CODE), "eval_epsilon": (0.05, CODE)},
)
method(
    "spr",
    "self-predictive representations: imagined states look like real ones",
    of="rainbow",
    changes={"terms.spr": (SPR(), PAPER), "augment": (Augment(shift=4, intensity=0.05), CODE)},
)
method(
    "playvirtual",
    "SPR, and along virtual actions there is a way back to the start",
    of="spr",
    changes={"noise": (0.1, CODE), "terms.spr.steps": (9, CODE), "terms.cycle": (Cycle(), CODE)},
)
method(
    "vcr",
    "value consistency: imagined states are worth what real ones are",
    of="spr",
    changes={"terms.vcr": (VCR(), PAPER)},
)

# The paper's ablations, and our own switches.
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
method(
    "vcr-k9",
    "nine imagined steps; SPR stays a sum over them, so it weighs 9/5 of what it does at five",
    of="vcr",
    changes={
        "terms.spr.steps": (9, PAPER),
        "terms.vcr.steps": (9, PAPER),
        "terms.spr.over": ("sum", OURS),
    },
)
method(
    "vcr-lambda-0",
    "lambda 0: SPR with VCR only measured",
    of="vcr",
    changes={"terms.vcr.weight": (0.0, PAPER)},
)
method("vcr-lambda-0.2", "lambda 0.2: VCR itself", of="vcr", changes={"terms.vcr.weight": (0.2, PAPER)})
method("vcr-lambda-1.0", "lambda 1.0", of="vcr", changes={"terms.vcr.weight": (1.0, PAPER)})
method(
    "vcr-no-noise",
    "VCR's readings and targets come from heads without noise; the RL loss keeps its own",
    of="vcr",
    changes={"terms.vcr.noise": (False, PAPER)},
)
method(
    "vcr-absorb",
    "states past a terminal count in VCR, with value 0; not in the paper, but perhaps in its code",
    of="vcr",
    changes={"terms.vcr.ends": ("absorb", OURS)},
)
method(
    "spr-reward",
    "imagined states tell the reward, too",
    of="spr",
    changes={"terms.reward": (Reward(), PAPER)},
)
method(
    "spr-l",
    "the RL loss on three real states of each window; which ones is our reading of the paper",
    of="spr",
    changes={"rl_stride": (2, OURS)},
)
method(
    "spr-xl",
    "the RL loss on all six real states of each window; our reading of the paper",
    of="spr",
    changes={"rl_stride": (1, OURS)},
)
method(
    "spr-no-prediction",
    "SPR compares projections, without a prediction head",
    of="spr",
    changes={"terms.spr.prediction": (False, PAPER)},
)

# What a suite asks of every method alike. A path of a part applies where the method has that part.
FAMILY.suites |= {
    "atari": {},  # what the defaults were made for
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
        "target.every": (100, "a budget of a few thousand updates"),
        "epsilon_decay": (500, "a budget of a few thousand steps"),
        "terms.spr.steps": (3, "episodes of 7 steps"),
        "terms.vcr.steps": (3, "episodes of 7 steps"),
        "terms.vcr.ramp": (1000, "half of the budget, as in the paper"),
        "terms.reward.steps": (3, "episodes of 7 steps"),
        "terms.cycle.steps": (3, "episodes of 7 steps"),
        "terms.cycle.ramp": (1000, "half of the budget, as at its usual length"),
        "terms.contrast.crop": (1, "a sixteenth of the picture, as 4 is a twentieth of 84"),
        "terms.contrast.hidden": (64, "two CPU cores"),
        "terms.contrast.slow.rate": (0.01, "a budget of a few thousand updates"),
    },
    "gym": {
        "learn_start": (1000, "a budget of tens of thousands of steps"),
        "epsilon_decay": (5000, "likewise"),
        "terms.vcr.ramp": (10_000, "half of the usual budget, as in the paper"),
        "terms.cycle.ramp": (10_000, "half of the usual budget"),
    },
}

# What a task changes besides, by suite and name: the exceptions that a reference makes for some games.
FAMILY.tasks |= {
    ("atari", game): {"terms.contrast.weight": (0.01, CODE)}
    for game in ("pong", "boxing", "private-eye", "freeway")
}


def lacks(config: RainbowConfig) -> dict[str, bool]:
    """Parts that a method does without, so that no suite brings them in."""
    return {
        "augment.": config.augment == Augment(),
        "noise": config.noise is None,
        "value": not isinstance(config.value, Categorical),
        "target.every": config.target.every == 1,
        "epsilon_decay": config.epsilon_decay == 0,
    }


FAMILY.lacks = lacks
