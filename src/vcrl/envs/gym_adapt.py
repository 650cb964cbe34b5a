"""How somebody else's environment is made to fit: its pictures, their size and colour, its actions."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vcrl.core.errors import UserError, told, unknown
from vcrl.core.spec import Box, Discrete
from vcrl.envs.pixels import gray, resize

SMALLEST, LARGEST = 16, 128  # pixels on a side that the encoders are made for


class Fault(Exception):
    """An environment did something in play that it must not do; the message says what."""


@dataclass(frozen=True)
class Fit:
    """What an adapter does to an environment; written behind its name, as in `gym:CartPole-v1@render,84x84,gray`."""

    render: bool = False  # the pictures are what it renders, not what it observes
    key: str | None = None  # which entry of a Dict observation is the picture
    size: tuple[int, int] | None = None  # height and width to resize to; none: as it is
    gray: bool = False
    limit: int | None = None  # agent steps after which a game is cut, besides a limit of its own

    def __str__(self) -> str:
        words = ["render"] if self.render else []
        words += [f"key={self.key}"] if self.key else []
        words += [f"{self.size[0]}x{self.size[1]}"] if self.size else []
        words += ["gray"] if self.gray else []
        words += [f"limit={self.limit}"] if self.limit else []
        return ",".join(words)


def parse_fit(text: str) -> Fit:
    """The inverse of `str`, in any order of the words."""
    found: dict[str, Any] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = word.partition("=")
        height, cross, width = word.partition("x")
        if word in ("render", "gray"):
            found[word] = True
        elif name == "key" and value:
            found["key"] = value
        elif name == "limit" and _count(value):
            found["limit"] = int(value)
        elif cross and _count(height) and _count(width):
            found["size"] = (int(height), int(width))
        elif equals:
            raise UserError(f"'{word:.40}' is not understood: write limit=500 or key=NAME")
        else:
            raise unknown("word behind @", word[:40], ["render", "gray", "84x84", "limit=500", "key=NAME"])
    return Fit(**found)


class Pictures:
    """From what an environment shows to a uint8 frame H W C; what breaks the promise of its space is a `Fault`."""

    def __init__(self, name: str, shape: tuple[int, ...], dtype: Any, low: float, high: float, fit: Fit):
        self.shape, self.dtype, self.low, self.high = shape, np.dtype(dtype), low, high
        self.layout, self.fit = layout(shape), fit
        if self.layout is None or not self._scalable():
            raise UserError(not_a_picture(name, shape, self.dtype, low, high))
        height, width, channels = self._ordered(np.zeros(shape, np.uint8)).shape
        height, width = fit.size or (height, width)
        self.frame = (height, width, 1 if fit.gray else channels)

    def __call__(self, seen: Any) -> np.ndarray:
        """One frame."""
        image = np.asarray(seen[self.fit.key] if self.fit.key and isinstance(seen, dict) else seen)
        whole = np.issubdtype(self.dtype, np.integer)
        alike = image.dtype == self.dtype if whole else np.issubdtype(image.dtype, np.floating)
        if image.shape != self.shape or not alike:
            raise Fault(
                f"it showed {image.dtype} {image.shape}, not the {self.dtype} {self.shape} that it promises"
            )
        if not whole and not np.isfinite(image).all():
            raise Fault("it showed a picture with values that are not finite")
        if self.dtype != np.uint8:
            scaled = (image.astype(np.float64) - self.low) * (255 / (self.high - self.low))
            image = np.rint(np.clip(scaled, 0, 255)).astype(np.uint8)
        image = self._ordered(image)
        if self.fit.size is not None:
            image = resize(image, self.fit.size)
        return gray(image) if self.fit.gray else np.ascontiguousarray(image)

    def _ordered(self, image: np.ndarray) -> np.ndarray:
        if self.layout == "flat":
            return image[..., None]
        return np.moveaxis(image, 0, -1) if self.layout == "first" else image

    def _scalable(self) -> bool:
        return self.dtype == np.uint8 or bool(np.isfinite(self.high - self.low) and self.high > self.low)


def layout(shape: tuple[int, ...]) -> str | None:
    """Where the channels of a picture are: 'last', 'first', or 'flat' without any; None if it is no picture."""
    if len(shape) == 2:
        return "flat"
    if len(shape) == 3 and min(shape) > 0:
        return "last" if shape[2] in (1, 3) else "first" if shape[0] in (1, 3) else None
    return None


def not_a_picture(name: str, shape: tuple[int, ...], dtype: np.dtype, low: float, high: float) -> str:
    """Why, and what to do."""
    told = f"observations of {name} are {dtype} {shape}"
    if layout(shape) is not None:
        return (
            f"{told} between {low} and {high}: declare finite bounds, such as 0 and 1, in observation_space"
        )
    if len(shape) in (3, 4):
        return f"{told}: pictures have 1 or 3 channels. Is it a stack of frames? Leave that out, vcrl stacks itself"
    return f"{told} and no picture: train on what it renders, gym:{name}@render,84x84"


def pictures(name: str, env: Any, space: Any, fit: Fit) -> Pictures:
    """For a built environment; one that is to be rendered is reset and rendered once."""
    if fit.render:
        return rendered(name, env, fit)
    if hasattr(space, "spaces") and isinstance(space.spaces, dict):
        images = [key for key, part in space.spaces.items() if layout(getattr(part, "shape", None) or ())]
        if fit.key not in images:
            known = " or ".join(f"gym:{name}@key={key}" for key in images) or f"gym:{name}@render,84x84"
            raise UserError(f"observations of {name} are a Dict: say which entry is the picture, {known}")
        space = space.spaces[fit.key]
    elif fit.key is not None:
        raise UserError(f"observations of {name} are no Dict: leave key={fit.key} out")
    if not hasattr(space, "low") or space.shape is None:
        raise UserError(
            f"observations of {name} are {space_words(space)} and no picture: train on what it renders, "
            f"gym:{name}@render,84x84"
        )
    return Pictures(
        name, tuple(space.shape), space.dtype, float(space.low.min()), float(space.high.max()), fit
    )


def rendered(name: str, env: Any, fit: Fit) -> Pictures:
    mode = getattr(env, "render_mode", None)
    if mode != "rgb_array":
        raise UserError(f"{name} renders as {mode}: build it with render_mode='rgb_array'")
    try:
        env.reset(seed=0)
        image = np.asarray(env.render())
    except Exception as error:
        raise UserError(f"{name} cannot be rendered: {told(error)}") from error
    if image.dtype != np.uint8 or layout(image.shape) is None:
        raise UserError(f"{name} renders {image.dtype} {image.shape}, not uint8 pictures: mend its render()")
    return Pictures(name, image.shape, np.uint8, 0, 255, fit)


def check_size(name: str, frame: tuple[int, int, int], fit: Fit) -> None:
    """The encoders are made for small pictures."""
    if max(frame[:2]) > LARGEST or min(frame[:2]) < SMALLEST:
        raise UserError(
            f"pictures of {name} are {frame[0]}x{frame[1]}, sides must be {SMALLEST} to {LARGEST} pixels: resize them, "
            f"gym:{name}@{replace(fit, size=(84, 84))}, or let `vcrl check-env {name}` write a config"
        )


def actions(name: str, space: Any) -> tuple[Discrete | Box, Callable[[Any], Any]]:
    """The actions as agents know them, and what makes one of them the environment's own."""
    kind = type(space).__name__
    if kind == "Discrete":
        start = int(space.start)
        return Discrete(int(space.n)), lambda action: int(action) + start
    if kind != "Box":
        flat = "with a Discrete space of all combinations" if kind.startswith("Multi") else "with a Box"
        raise UserError(
            f"actions of {name} are {space_words(space)}, and agents have Discrete or Box: wrap it in "
            f"gymnasium.wrappers.TransformAction {flat}"
        )
    if not np.issubdtype(space.dtype, np.floating) or not np.isfinite(space.high - space.low).all():
        raise UserError(
            f"actions of {name} are {space_words(space)} from {space.low.min()} to {space.high.max()}, and agents need "
            "floats between finite bounds: wrap it in gymnasium.wrappers.TransformAction with such a Box"
        )
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)

    def own(action: Any) -> np.ndarray:
        share = (np.clip(np.asarray(action, np.float64), -1, 1).reshape(low.shape) + 1) / 2
        return np.clip((low + share * (high - low)).astype(space.dtype), space.low, space.high)

    return Box(int(np.prod(space.shape))), own


def space_words(space: Any) -> str:
    """A space in a few words: printing a Box prints its bounds, over several lines."""
    return f"{type(space).__name__} of {space.dtype} {space.shape}"


def _count(text: str) -> bool:
    return text.isdecimal() and len(text) < 10 and int(text) > 0
