"""What a training will do, decided and checked in full before anything is allocated."""

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vcrl.core.config import change, digest, paths, to_json
from vcrl.core.errors import UserError
from vcrl.core.protocol import Protocol
from vcrl.envs.protocols import OF_SUITE, PROTOCOLS
from vcrl.envs.registry import Task
from vcrl.envs.registry import find as find_task
from vcrl.methods import library
from vcrl.methods.configs import CONFIGS, Categorical, Config, RainbowConfig, SACConfig
from vcrl.methods.family import OF_ITS_NAME
from vcrl.methods.own import bring_loss, found, with_loss
from vcrl.nets.encoders import LAYERS, state_shape

# What words can be.
CHOICES = {
    "observation.reward": ("sign", "raw"),
    "observation.fill": ("zeros", "first"),
    "head": ("streams", "shared", "plain"),
    "replay.priority.of": ("divergence", "loss", "total"),
    "replay.priority.new": ("one", "max"),
    "terms.spr.over": ("sum", "mean"),
    "terms.vcr.taken": ("n-step", "real"),
    "terms.vcr.others": ("others", "all", "none"),
    "terms.vcr.over": ("mean", "sum"),
    "terms.vcr.ends": ("mask", "absorb"),
}

# What numbers can be; beyond these a training would run and mean nothing.
RANGES = {
    "value.atoms": (2, 1001),
    "gamma": (0.0, 1.0),
    "noise": (0.0, 100.0),
    "head_gradient": (0.0, 1.0),
    "epsilon": (0.0, 1.0),
    "epsilon_start": (0.0, 1.0),
    "epsilon_decay": (0, 2**31),
    "eval_epsilon": (0.0, 1.0),
    "target.rate": (1e-9, 1.0),
    "augment.shift": (0, 64),
    "augment.intensity": (0.0, 0.49),
    "replay.priority.exponent": (0.0, 10.0),
    "adam.rate": (0.0, 1.0),
    "adam.epsilon": (1e-12, 1.0),
    "adam.clip": (1e-9, 1e9),
    "terms.vcr.ramp": (0, 2**31),
    "terms.cycle.ramp": (0, 2**31),
    "terms.own.ramp": (0, 2**31),
    "terms.own.steps": (0, 1000),
    "terms.contrast.slow.rate": (1e-9, 1.0),
    "terms.reconstruction.bits": (1, 8),
    "target.encoder": (1e-9, 1.0),
    "target.critics": (1e-9, 1.0),
    "temperature.start": (1e-9, 1e3),
    "temperature.rate": (0.0, 1.0),
    "temperature.momentum": (0.0, 0.999),
    "auxiliary.clip": (1e-9, 1e9),
    "auxiliary.encoder": (0.0, 100.0),
    "auxiliary.rest": (0.0, 100.0),
}


# What must be at least 1.
COUNTS = (
    "batch", "n_step", "hidden", "updates_per_step", "observation.stack", "observation.size", "target.every",
    "replay.capacity", "rl_stride", "terms.cycle.copies", "terms.contrast.hidden", "terms.contrast.size",
    "terms.contrast.slow.every", "width", "transition", "projection", "draws", "auxiliary.batch",
    "continuous.samples",
)  # fmt: skip

# Which bases an encoder is made for.
OF_ENCODER: dict[str, tuple[str, ...]] = {
    name: ("sac",) if name.startswith("control") else ("rainbow",) for name in LAYERS
}
INITS = {"rainbow": ("torch", "xavier"), "sac": ("delta", "orthogonal")}
OF_ENCODER["small"] = ("rainbow", "sac")


@dataclass(frozen=True)
class Schedule:
    """When to look at a training. It does not touch what is learned. In agent steps; 0 is never."""

    log: int = 100
    evaluate: int = 0  # besides the final evaluation
    gradients: int = 1000  # gradient norm of every loss
    q_error: int = 1000
    q_error_positions: int = 1000


@dataclass(frozen=True)
class Plan:
    method: str
    task: Task
    seeds: tuple[int, ...]
    config: Config
    protocol: Protocol
    schedule: Schedule

    @property
    def base(self) -> str:
        """Which agent it is."""
        return next(name for name, kind in CONFIGS.items() if isinstance(self.config, kind))

    @property
    def budget(self) -> int:
        """Agent steps of training."""
        return self.protocol.budget // (self.task.spec.repeat if self.protocol.unit == "env steps" else 1)

    @property
    def capacity(self) -> int:
        """Rows of replay that can ever be used: one for each agent step, one more for each end of an episode."""
        spec = self.task.spec
        ends = self.budget // spec.horizon if spec.fixed and spec.horizon else 0
        return min(self.config.replay.capacity, self.budget + ends)

    @property
    def identity(self) -> dict[str, Any]:
        """What makes this run this run: with any of it different it would be another folder."""
        return {
            "method": self.method,
            "base": self.base,
            "task": self.task.name,
            "suite": self.task.suite,
            "seeds": list(self.seeds),
            "config": to_json(self.config),
            "protocol": to_json(self.protocol),
            "protocol_hash": self.protocol.hash,
            "budget": self.budget,
            "schedule": to_json(self.schedule),
        }

    @property
    def digest(self) -> str:
        # Not the seeds: they are in the folder's name, and seeds of one plan belong together.
        return digest((self.method, self.task.name, self.config, self.protocol, self.schedule))


def make_plan(
    method: str,
    task: str,
    seeds: Sequence[int] = (0,),
    steps: int | None = None,
    changes: Mapping[str, Any] | None = None,
    schedule: Schedule | None = None,
    protocol: str | None = None,
) -> Plan:
    """Resolve names and numbers; anything that cannot work raises a `UserError` here.

    A method with a loss of one's own has its module imported: whoever gives its name wants it.
    """
    library.find(method)
    bring_loss(method)
    what = find_task(task)
    config = library.resolve(method, what.suite, what.name, what.spec.actions)
    if what.suite == "gym" and state_shape(what.spec.frame, LAYERS[config.encoder]) is None:
        config = change(config, "encoder", "small")
    for path, value in (changes or {}).items():
        if path in ("terms.own", *OF_ITS_NAME):
            raise UserError(
                f"--{path}: a loss of one's own is part of the name, {with_loss(method)[0]}+module:function"
            )
        config = change(config, path, value)
    what = at_size(what, config)
    agreed = _protocol(what, protocol)
    if steps is not None:
        agreed = replace(agreed, budget=steps * (what.spec.repeat if agreed.unit == "env steps" else 1))
    plan = Plan(
        method, what, tuple(operator.index(seed) for seed in seeds), config, agreed, schedule or Schedule()
    )
    check(plan)
    return plan


def at_size(task: Task, config: Config) -> Task:
    """The task as the method wants to see it."""
    if config.observation.size is None or task.sized is None:
        return task
    return task.sized(config.observation.size)


def _protocol(task: Task, name: str | None) -> Protocol:
    known = OF_SUITE[task.suite]
    if name is not None and name not in known:
        raise UserError(f"--protocol {name}: those of {task.name} are {' and '.join(known)}")
    return PROTOCOLS[name or known[0]]


def check(plan: Plan) -> None:
    """Refuse what cannot work, in one line that says what to change."""
    _check_seeds(plan.seeds)
    config, budget = plan.config, plan.budget
    if budget < 1:
        raise UserError(f"--steps {budget}: a training needs at least one agent step")
    if budget * config.updates_per_step >= 2**28:
        raise UserError(f"--steps {budget}: at most {2**28 // config.updates_per_step - 1} can be counted")
    if budget <= config.learn_start:
        raise UserError(
            f"--steps {budget} ends before learning starts at {config.learn_start}: give more, or less --learn-start"
        )
    _check_choice("init", config.init, INITS[plan.base])
    known = [name for name, bases in OF_ENCODER.items() if plan.base in bases]
    _check_choice("encoder", config.encoder, known)
    _check_frame(plan)
    for path, value in paths(config).items():
        if path in CHOICES:
            _check_choice(path, value, CHOICES[path])
    _check_parts(plan)
    _check_positive(config)
    _check_schedule(plan.schedule)
    _check_steps(plan)


def _check_seeds(seeds: Sequence[int]) -> None:
    if not seeds:
        raise UserError("no seeds: give for example --seeds 0:5 or --seeds 0,3,7")
    if min(seeds) < 0:
        raise UserError(f"seed {min(seeds)} is negative: seeds count from 0")
    if len(set(seeds)) < len(seeds):
        twice = next(s for s in seeds if list(seeds).count(s) > 1)
        raise UserError(f"seed {twice} is given twice: two lanes of one seed would be the same run")
    if max(seeds) >= 2**31:
        raise UserError(f"seed {max(seeds)} is too large: seeds are below 2147483648")


def _check_choice(path: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise UserError(f"--{path} {value}: known are {', '.join(known)}")


def _check_parts(plan: Plan) -> None:
    """What terms ask of the nets and of the frame."""
    config, frame = plan.config, plan.task.spec.frame
    own = config.terms.own
    if own is not None and own.steps < 1 and found(own.loss).targets:
        raise UserError(f"--terms.own.steps {own.steps}: {own.loss} wants targets at imagined steps")
    if not isinstance(config, RainbowConfig):
        if config.crop is not None and config.terms.reconstruction:
            raise UserError(f"--crop {config.crop}: what is drawn again is the whole image; give --crop none")
        if config.crop is not None and config.augment.shift:
            raise UserError(
                f"--augment.shift {config.augment.shift}: a crop shifts already; give --crop none"
            )
        return
    terms = config.terms
    if config.head != "streams" and (terms.spr or terms.cycle):
        raise UserError(f"--head {config.head}: SPR projects with the two streams of a head of 'streams'")
    if terms.contrast and not 0 <= terms.contrast.crop < min(frame[:2]):
        raise UserError(
            f"--terms.contrast.crop {terms.contrast.crop}: a frame has {frame[0]}x{frame[1]} pixels"
        )


def _check_frame(plan: Plan) -> None:
    config, (height, width, channels) = plan.config, plan.task.spec.frame
    crop = config.crop if isinstance(config, SACConfig) else None
    if crop is not None and not 1 <= crop <= min(height, width):
        raise UserError(f"--crop {crop}: a frame of {plan.task.name} has {height}x{width} pixels")
    if state_shape((crop or height, crop or width, channels), LAYERS[config.encoder]) is None:
        raise UserError(
            f"frames of {crop or height}x{crop or width} are too small for the '{config.encoder}' encoder"
        )


def _check_positive(config: Config) -> None:
    for path, value in paths(config).items():
        if path in COUNTS and value is not None and value < 1:
            raise UserError(f"--{path} {value}: must be at least 1")
    for path, value in paths(config).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"--{path} {value}: must be a finite number")
        low, high = RANGES.get(path, (-math.inf, math.inf))
        if isinstance(value, int | float) and not low <= value <= high:
            raise UserError(f"--{path} {value}: must lie between {low} and {high}")
    value = getattr(config, "value", None)
    if isinstance(value, Categorical) and value.low >= value.high:
        raise UserError(f"--value.low {value.low}: must be below --value.high {value.high}")


def _check_schedule(schedule: Schedule) -> None:
    for name in ("evaluate", "gradients", "q_error"):
        if getattr(schedule, name) < 0:
            raise UserError(
                f"--{name.replace('_', '-')}-every {getattr(schedule, name)}: 0 is never, else agent steps"
            )
    if schedule.log < 1 or schedule.q_error_positions < 1:
        raise UserError(
            f"--log-every {schedule.log}: must be at least 1, as must the positions of the Q-error"
        )


def _check_steps(plan: Plan) -> None:
    config, horizon = plan.config, plan.task.spec.horizon
    terms = {name: term for name, term in vars(config.terms).items() if hasattr(term, "steps")}
    for name, term in terms.items():
        if term.steps < 1 and name != "own":
            raise UserError(f"--terms.{name}.steps {term.steps}: a term imagines at least one step")
        # Over SAC a window ends before its episode does.
        most = None if horizon is None else horizon - (1 if plan.base == "rainbow" else 2)
        if most is not None and term.steps > most:
            raise UserError(
                f"--terms.{name}.steps {term.steps}: an episode of {plan.task.name} has {horizon} steps, so at most "
                f"{most} can be imagined"
            )
    window = max((term.steps for term in terms.values()), default=0) + config.n_step + 1
    if config.learn_start < window + config.observation.stack:
        raise UserError(
            f"--learn_start {config.learn_start}: a sample spans {window} steps, so learning can start at "
            f"{window + config.observation.stack} at the earliest"
        )
    if plan.capacity < window + config.observation.stack + 1:
        raise UserError(
            f"--replay.capacity {plan.capacity}: a sample spans {window} steps; "
            f"at least {window + config.observation.stack + 1} rows are needed"
        )
