"""Calls into somebody else's environment, with whatever goes wrong in it as a `Fault`."""

from typing import Any, NamedTuple

import numpy as np

from vcrl.core.errors import told
from vcrl.envs.deadline import Hang, deadline, patience
from vcrl.envs.gym_adapt import Fault, Pictures

MOST = float(np.finfo(np.float32).max)  # reward that a float32 can hold


class Came(NamedTuple):
    frame: np.ndarray
    reward: float
    terminated: bool
    truncated: bool


def reset(env: Any, see: Pictures, seed: int) -> np.ndarray:
    """The first frame of a game; Gymnasium takes 31 bits of the seed."""
    seen, _ = _call(env, 2, "reset", seed=seed % 2**31)
    return see(_call(env, None, "render") if see.fit.render else seen)


def step(env: Any, see: Pictures, action: Any) -> Came:
    seen, reward, terminated, truncated, _ = _call(env, 5, "step", action)
    if any(np.shape(part) != () for part in (reward, terminated, truncated)):
        raise Fault("reward, terminated and truncated must be single values, not arrays")
    if not isinstance(reward, int | float | np.number | np.bool_) or not abs(float(reward)) <= MOST:
        raise Fault(f"it gave the reward {reward!r:.40}: rewards must be finite numbers")
    frame = see(_call(env, None, "render") if see.fit.render else seen)
    return Came(frame, float(reward), bool(terminated), bool(truncated))


def close(env: Any) -> None:
    """As far as it lets itself be closed."""
    try:
        with deadline(patience()):
            env.close()
    except (Exception, Hang):
        pass


def _call(env: Any, parts: int | None, method: str, *args: Any, **kwargs: Any) -> Any:
    try:
        with deadline(patience()):
            came = getattr(env, method)(*args, **kwargs)
    except Exception as error:
        raise Fault(told(error)) from error
    except Hang as error:
        raise Fault(f"{method}: {error}") from error
    if parts is not None and (not isinstance(came, tuple) or len(came) != parts):
        raise Fault(
            f"{method} must return {parts} values, as Gymnasium 1.0 has it: frame and info from reset; frame, "
            "reward, terminated, truncated and info from step"
        )
    return came
