"""What a training will need, said before it is taken."""

import jax
import numpy as np

from vcrl.core.errors import UserError
from vcrl.replay import size_in_bytes
from vcrl.training.lift import Lifted
from vcrl.training.plan import Plan


def need_in_bytes(plan: Plan, lifted: Lifted) -> tuple[int, int]:
    """Bytes of all seeds' replay, and of all seeds' weights with the copy that is kept for emergencies."""
    state = jax.eval_shape(lifted.init, np.array(plan.seeds, np.int32))
    weights = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state))
    return len(plan.seeds) * size_in_bytes(plan.task.spec, plan.capacity), 2 * weights


def free_in_bytes() -> int | None:
    """Free memory where the replay will live, or None where nobody knows."""
    stats = jax.devices()[0].memory_stats()
    if stats:
        return stats["bytes_limit"] - stats["bytes_in_use"]
    try:
        with open("/proc/meminfo") as lines:
            available = next(line for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return None
    return int(available.split()[1]) * 1024


def check_memory(plan: Plan, lifted: Lifted) -> None:
    need, free = sum(need_in_bytes(plan, lifted)), free_in_bytes()
    if free is not None and need > 0.9 * free:
        seed = need / len(plan.seeds)
        fits = int(0.9 * free / seed)
        less = f"use at most {fits} seeds at once, or" if fits else "use"
        raise UserError(
            f"replay and weights need {need / 1e9:.1f} GB ({seed / 1e9:.2f} GB a seed) and {free / 1e9:.1f} GB are "
            f"free: {less} a smaller --replay.capacity than {plan.capacity}"
        )
