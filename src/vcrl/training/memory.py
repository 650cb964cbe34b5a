"""What a training will need, said before it is taken."""

from typing import Any, cast

import jax
import numpy as np

from vcrl.core.errors import UserError
from vcrl.nets.encoders import LAYERS
from vcrl.replay import size_in_bytes
from vcrl.runs.facts import free_memory
from vcrl.training.engine import Engine
from vcrl.training.moments import together
from vcrl.training.plan import Plan


def need_in_bytes(plan: Plan, engine: Engine, gpu: bool | None = None) -> tuple[int, int, int]:
    """Bytes, of all seeds: replay; weights, with the copy that is kept for emergencies; work.

    Work is what an update works on, and the nets that wait for their Q-error, as many as here, or as on a GPU.
    """
    state = jax.eval_shape(engine.lifted.init, np.array(plan.seeds, np.int32))
    moments = together(plan, gpu) if plan.schedule.q_error else 0
    waiting = size_of(cast(Any, engine.lifted.room).eval_shape(state, moments))
    seeds = len(plan.seeds)
    batches, widest = _working(plan, engine)
    work = seeds * batches + (widest if engine.agent.alone else seeds * widest) + waiting
    return seeds * size_in_bytes(plan.task.spec, plan.capacity), 2 * size_of(state), work


def size_of(tree: Any) -> int:
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


def _working(plan: Plan, engine: Engine) -> tuple[int, int]:
    """About what one seed's batches take, and its update at its widest: patches of the first layer, of all images.

    Ten seeds of VCR on Atari held 2.9 GB on a GPU in an earlier version; this says 2.4. Kernels write no patches, and a
    CPU does not of images without gradient: they hold less.
    """
    samples = engine.agent.samples
    stacks = sum(s.batch * (1 + s.steps + s.targets) for s in samples)
    images = sum(s.batch * (1 + 2 * s.targets + s.steps) for s in samples)
    channels, (_, size, stride, *_) = plan.config.observation.stack, LAYERS[plan.config.encoder][0]
    height, width, depth = plan.task.spec.frame
    widest = images * (height // stride) * (width // stride) * size * size * depth * channels * 4
    return stacks * height * width * depth * channels, widest


def free_in_bytes() -> int | None:
    """Free memory where the replay will live, or None where nobody knows."""
    stats = jax.devices()[0].memory_stats()
    if stats:
        return stats["bytes_limit"] - stats["bytes_in_use"]
    return free_memory()


def peak_in_bytes() -> int | None:
    """The most that this process ever held on the accelerator; None where nobody counts."""
    stats = jax.devices()[0].memory_stats()
    return stats.get("peak_bytes_in_use") if stats else None


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


def out_of_memory(error: BaseException) -> UserError | None:
    """What to do about memory that could not be had after all; None for any other error."""
    # JAX has an error of its own for it, and a plain ValueError where a compiled function is called again.
    kinds = (jax.errors.JaxRuntimeError, ValueError)
    refused = isinstance(error, kinds) and "RESOURCE_EXHAUSTED" in str(error)
    if not refused and not isinstance(error, MemoryError):
        return None
    return UserError(
        "out of memory: what was saved is kept; use fewer --seeds at once or a smaller --replay.capacity, "
        "or close what else uses the memory and run the same command again"
    )
