"""What an environment looks like from outside."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Discrete:
    n: int


@dataclass(frozen=True)
class Box:
    """Continuous actions in [-1, 1]^size; an adapter rescales to its own range."""

    size: int


@dataclass(frozen=True)
class EnvSpec:
    frame: tuple[int, int, int]  # height, width, channels of one uint8 image
    actions: Discrete | Box
    horizon: int | None = None  # the most agent steps one episode can have, where that is known
    repeat: int = 1  # env steps that an agent step takes
    fixed: bool = False  # every episode is ended by its time limit, and by nothing else
