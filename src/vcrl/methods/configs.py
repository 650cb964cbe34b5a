"""The knobs of the bases and of the terms. Every default says where it comes from."""

from dataclasses import dataclass, field
from typing import Any

from vcrl.core.protocol import Observation

PAPER, CODE, OURS, YOURS = "paper", "reference code", "our decision", "yours"


def knob(default: Any, source: str, about: str = "", **more: Any) -> Any:
    """A field with a default, where the number comes from, and a word on what it is."""
    return field(default=default, metadata={"source": source, "about": about, **more})


@dataclass(frozen=True)
class Categorical:
    """C51: a value is a distribution over evenly spaced atoms."""

    atoms: int = knob(51, PAPER)
    low: float = knob(-10.0, CODE, "smallest return the support can hold")
    high: float = knob(10.0, CODE, "largest")


@dataclass(frozen=True)
class Scalar:
    """A value is one number, learned with the Huber loss."""

    huber: float = knob(1.0, CODE, "error beyond which the loss is linear")


@dataclass(frozen=True)
class Augment:
    shift: int = knob(0, CODE, "pixels")
    intensity: float = knob(0.0, CODE, "deviation of the brightness factor")


@dataclass(frozen=True)
class Priority:
    exponent: float = knob(0.5, PAPER)
    correction: tuple[float, float] = knob(
        (0.4, 1.0), PAPER, "exponent of the importance weights, first and last"
    )
    of: str = knob(
        "divergence",
        CODE,
        "'divergence' (KL, or |Q - y|), 'loss' (RL) or 'total' (the weighted sum of all losses)",
    )
    new: str = knob("one", CODE, "priority of a new row: 'one', or 'max', the largest so far")


@dataclass(frozen=True)
class ReplayConfig:
    capacity: int = knob(100_000, PAPER, "agent steps")
    priority: Priority | None = knob(Priority(), PAPER, "none: uniform")


@dataclass(frozen=True)
class Slow:
    """How a slow copy follows the online weights: every `every` updates, a step of size `rate` towards them."""

    rate: float = knob(1.0, PAPER)
    every: int = knob(1, PAPER, "updates")


@dataclass(frozen=True)
class Adam:
    rate: float = knob(1e-4, PAPER)
    epsilon: float = knob(1.5e-4, CODE)
    clip: float | None = knob(
        10.0, PAPER, "norm; encoder and head together, a transition model on its own; none: no clipping"
    )


@dataclass(frozen=True)
class SPR:
    """Self-predictive representations."""

    weight: float = knob(1.0, PAPER, "of the sum over k of 2 - 2 cos")
    steps: int = knob(5, PAPER, "K")
    over: str = knob("sum", PAPER, "steps are taken as a 'sum' or a 'mean'")
    prediction: bool = knob(True, PAPER, "a prediction head on the imagined states' side")


@dataclass(frozen=True)
class VCR:
    """Value consistency."""

    weight: float = knob(0.2, PAPER, "lambda_VCR")
    steps: int = knob(5, PAPER, "K")
    ramp: int = knob(50_000, CODE, "env steps of Gaussian warm-up")
    taken_weight: float = knob(1.0, OURS, "of the taken action; the paper's L_VCR1")
    others_weight: float = knob(0.1, PAPER, "of the mean over the other actions; the paper's L_VCR2")
    taken: str = knob("n-step", PAPER, "target of the taken action: 'n-step' (Bellman) or 'real' (d_MSE)")
    others: str = knob("others", PAPER, "'others', 'all' (d_MSE-A) or 'none'")
    over: str = knob("mean", OURS, "other actions are taken as a 'mean' or a 'sum'")
    noise: bool = knob(True, PAPER, "whether the heads keep their noise when this term reads them")
    ends: str = knob(
        "mask", OURS, "states past a terminal: 'mask' leaves them out, 'absorb' holds them at value 0"
    )


@dataclass(frozen=True)
class Reward:
    """Prediction of the reward's sign on arriving at an imagined state."""

    weight: float = knob(1.0, CODE, "of the mean over k; the paper gives none")
    steps: int = knob(5, PAPER, "K")


@dataclass(frozen=True)
class Cycle:
    """PlayVirtual: forward along random actions and back again to the start."""

    weight: float = knob(1.0, CODE)
    steps: int = knob(9, CODE, "K, forward and as many back")
    ramp: int = knob(50_000, CODE, "env steps of Gaussian warm-up")
    copies: int = knob(
        2, CODE, "virtual trajectories a sample, times the number of actions where those are discrete"
    )


@dataclass(frozen=True)
class Contrast:
    """CURL: two crops of one image are more alike than crops of two."""

    weight: float = knob(1.0, CODE)
    crop: int = knob(4, CODE, "pixels cropped away and padded back")
    hidden: int = knob(256, CODE)
    size: int = knob(128, CODE, "of the vectors compared")
    scale: float = knob(0.1, CODE, "factor on the likeness of two vectors")
    slow: Slow = knob(Slow(rate=0.001), CODE, "the copy that sees the second crop")


@dataclass(frozen=True)
class Own:
    """A loss of one's own, in a user's module; `methods/own.py` finds it."""

    loss: str = knob("", YOURS, "module:name")
    code: str = knob("", YOURS, "digest of the file it is in: with other code it is another method")
    weight: float = knob(1.0, YOURS)
    steps: int = knob(5, YOURS, "K, or 0 if it looks at no imagined state; the method's own K if it has one")
    ramp: int = knob(0, YOURS, "env steps of Gaussian warm-up; 0: none")
    numbers: tuple[tuple[str, float], ...] = knob((), YOURS, "what the loss is given by name besides")


@dataclass(frozen=True)
class Terms:
    """The auxiliary objectives; None is absent."""

    spr: SPR | None = knob(None, OURS)
    vcr: VCR | None = knob(None, OURS)
    reward: Reward | None = knob(None, OURS)
    cycle: Cycle | None = knob(None, OURS)
    contrast: Contrast | None = knob(None, OURS)
    # Not told of where it is absent, so that methods without it have the names they always had.
    own: Own | None = knob(None, OURS, "a loss of one's own, METHOD+module:function", silent=True)


@dataclass(frozen=True)
class RainbowConfig:
    """The discrete base: Rainbow as the data-efficient methods use it on Atari 100K."""

    observation: Observation = knob(Observation(), PAPER)
    encoder: str = knob(
        "nature", PAPER, "'nature', 'nature-same', 'data-efficient' (84 pixels) or 'small' (16 to 40 pixels)"
    )
    renormalise: bool = knob(True, CODE, "every state scaled to [0, 1]")
    init: str = knob("torch", CODE, "first weights of layers without noise: 'torch' (by fan-in) or 'xavier'")
    head: str = knob(
        "streams",
        CODE,
        "'streams' (dueling, a hidden layer each), 'shared' (one for both) or 'plain' (no dueling)",
    )
    hidden: int = knob(256, PAPER, "units of each hidden layer of the Q head")
    head_gradient: float = knob(2**-0.5, CODE, "factor on the gradient from the Q head into a state")
    noise: float | None = knob(0.5, PAPER, "initial sigma of the noisy layers; none: a plain head")
    epsilon: float = knob(0.0, CODE, "chance of a random action once learning has started")
    epsilon_start: float = knob(1.0, CODE, "the same before that")
    epsilon_decay: int = knob(0, CODE, "agent steps from the one to the other, in a line; 0: at once")
    eval_epsilon: float | None = knob(
        None, OURS, "chance of a random action in evaluation; none: the protocol's"
    )
    value: Categorical | Scalar = knob(Categorical(), PAPER)
    double: bool = knob(True, PAPER)
    n_step: int = knob(10, PAPER)
    rl_stride: int | None = knob(
        None,
        PAPER,
        "none: the RL loss at t alone; j: its mean over the real states t, t+j, t+2j, ... up to t+K",
    )
    gamma: float = knob(0.99, PAPER)
    augment: Augment = knob(Augment(), CODE)
    replay: ReplayConfig = knob(ReplayConfig(), PAPER)
    batch: int = knob(32, PAPER)
    learn_start: int = knob(2000, PAPER, "agent steps of random play before learning")
    updates_per_step: int = knob(2, PAPER)
    target: Slow = knob(Slow(), PAPER, "value and representation target")
    adam: Adam = knob(Adam(), PAPER)
    terms: Terms = knob(Terms(), OURS)


@dataclass(frozen=True)
class Crops:
    """CURL where states are vectors: two crops of one image are more alike than crops of two."""

    weight: float = knob(1.0, CODE)


@dataclass(frozen=True)
class Reconstruction:
    """SAC+AE: the image can be drawn again from its state."""

    weight: float = knob(1.0, CODE)
    bits: int = knob(5, CODE, "of each pixel that have to be told")
    small: float = knob(1e-6, CODE, "weight of half the squared length of a state")
    decay: float = knob(1e-7, CODE, "weight of half the squared length of the decoder's weights")


@dataclass(frozen=True)
class Continuous:
    """How value consistency reads continuous actions."""

    samples: int = knob(10, OURS, "M, random actions that stand for all the others")
    least: bool = knob(
        False, OURS, "their target is the lesser of the two critics, not each critic's own copy"
    )


@dataclass(frozen=True)
class ControlTerms:
    """The auxiliary objectives of the continuous base; None is absent."""

    spr: SPR | None = knob(None, OURS)
    vcr: VCR | None = knob(None, OURS)
    cycle: Cycle | None = knob(None, OURS)
    crops: Crops | None = knob(None, OURS)
    reconstruction: Reconstruction | None = knob(None, OURS)
    own: Own | None = knob(None, OURS, "a loss of one's own, METHOD+module:function", silent=True)


@dataclass(frozen=True)
class Auxiliary:
    """The gradient step of all auxiliary objectives together."""

    batch: int = knob(128, PAPER, "windows")
    encoder: float = knob(1.0, CODE, "factor on the learning rate, for the encoder")
    rest: float = knob(0.5, CODE, "the same for everything else it moves")
    heads: bool = knob(True, OURS, "whether value consistency moves the critics, too")
    clip: float | None = knob(
        10.0, CODE, "norm, of the encoder's gradient and then of all; none: no clipping"
    )


@dataclass(frozen=True)
class Temperature:
    """How much the policy's randomness is worth."""

    start: float = knob(0.1, PAPER)
    rate: float = knob(1e-3, PAPER, "the reference code has 1e-4")
    momentum: float = knob(0.5, PAPER, "beta_1 of its Adam")


@dataclass(frozen=True)
class Targets:
    """How the slow copies follow, both at the same moments."""

    encoder: float = knob(0.05, PAPER, "rate, of encoder and projection")
    critics: float = knob(0.01, PAPER, "rate")
    every: int = knob(2, PAPER, "updates; the actor and the temperature learn at these moments, too")


@dataclass(frozen=True)
class SACConfig:
    """The continuous base: soft actor-critic from pixels as the data-efficient methods use it on DMControl."""

    observation: Observation = knob(Observation(stack=3, fill="first", reward="raw", size=100), PAPER)
    encoder: str = knob("control", CODE, "'control' (64 filters), 'control-32', or 'small' (16 to 40 pixels)")
    init: str = knob(
        "delta", CODE, "first weights of convolutions: 'delta' (orthogonal centre) or 'orthogonal'"
    )
    width: int = knob(50, PAPER, "of a state")
    tanh: bool = knob(False, CODE, "whether states are squashed")
    hidden: int = knob(1024, PAPER, "units of each hidden layer of actor and critics")
    transition: int = knob(512, CODE, "hidden units of the transition model")
    projection: int = knob(
        1024, PAPER, "hidden units of projection and prediction; the reference code has 100"
    )
    crop: int | None = knob(84, PAPER, "pixels a side of random crops; none: the whole image")
    augment: Augment = knob(Augment(), PAPER, "on top of the crop; brightness for the auxiliary step alone")
    draws: int = knob(
        1, CODE, "augmentations of an image: critics' targets are a mean over them, losses a sum"
    )
    n_step: int = knob(1, PAPER)
    gamma: float = knob(0.99, PAPER)
    replay: ReplayConfig = knob(ReplayConfig(priority=None), PAPER)
    batch: int = knob(512, PAPER)
    learn_start: int = knob(1000, PAPER, "agent steps of random play before learning")
    updates_per_step: int = knob(1, PAPER)
    target: Targets = knob(Targets(), PAPER)
    adam: Adam = knob(Adam(rate=1e-3, epsilon=1e-8, clip=None), PAPER, "of critics and actor")
    auxiliary: Auxiliary = knob(Auxiliary(), CODE)
    temperature: Temperature = knob(Temperature(), PAPER)
    continuous: Continuous = knob(Continuous(), OURS)
    terms: ControlTerms = knob(ControlTerms(), OURS)


Config = RainbowConfig | SACConfig
CONFIGS: dict[str, type[RainbowConfig] | type[SACConfig]] = {"rainbow": RainbowConfig, "sac": SACConfig}
