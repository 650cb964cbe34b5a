"""What a training will need, said before it is taken."""

import jax
import numpy as np

from vcrl.core.errors import UserError
from vcrl.nets.encoders import LAYERS
from vcrl.replay import size_in_bytes
from vcrl.runs.facts import free_memory
from vcrl.training.engine import Engine
from vcrl.training.plan import Plan


def need_in_bytes(plan: Plan, engine: Engine) -> tuple[int, int, int]:
    """Bytes, of all seeds: replay; weights, with the copy that is kept for emergencies; what an update works on."""
    state = jax.eval_shape(engine.lifted.init, np.array(plan.seeds, np.int32))
    weights = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state))
    seeds = len(plan.seeds)
    return seeds * size_in_bytes(plan.task.spec, plan.capacity), 2 * weights, seeds * _working(plan, engine)


def _working(plan: Plan, engine: Engine) -> int:
    """About what one seed's update holds at its widest: the patches of the first layer, of every image it encodes.

    Ten seeds of VCR on Atari held 2.9 GB on a GPU; this says 2.4.
    """
    sample = engine.agent.sample
    images = sample.batch * (1 + 2 * sample.targets + sample.steps)
    channels, (_, size, stride, *_) = plan.config.observation.stack, LAYERS[plan.config.encoder][0]
    height, width, depth = plan.task.spec.frame
    return images * (height // stride) * (width // stride) * size * size * depth * channels * 4


def free_in_bytes() -> int | None:
    """Free memory where the replay will live, or None where nobody knows."""
    stats = jax.devices()[0].memory_stats()
    if stats:
        return stats["bytes_limit"] - stats["bytes_in_use"]
    return free_memory()


def check_memory(plan: Plan, engine: Engine) -> None:
    need, free = sum(need_in_bytes(plan, engine)), free_in_bytes()
    if free is not None and need > 0.9 * free:
        seed = need / len(plan.seeds)
        fits = int(0.9 * free / seed)
        less = f"use at most {fits} seeds at once, or" if fits else "use"
        raise UserError(
            f"replay, weights and work need {need / 1e9:.1f} GB ({seed / 1e9:.2f} GB a seed) and {free / 1e9:.1f} GB "
            f"are free: {less} a smaller --replay.capacity than {plan.capacity}"
        )
