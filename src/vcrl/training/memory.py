"""What a training will need, said before it is taken."""

import math
from typing import Any, cast

import jax
import numpy as np

from vcrl.core.errors import UserError
from vcrl.nets.encoders import LAYERS, state_shape
from vcrl.replay import size_in_bytes
from vcrl.runs.facts import free_memory
from vcrl.training.engine import Engine
from vcrl.training.moments import together
from vcrl.training.plan import Plan


def need_in_bytes(plan: Plan, engine: Engine, gpu: bool | None = None) -> tuple[int, int, int]:
    """Bytes, of all seeds: replay; weights, with the copy that is kept for emergencies; work.

    Work is what an update works on or, if that is more, a Q-error; and the nets that wait for theirs, as many as here,
    or as on a GPU.
    """
    state = jax.eval_shape(engine.lifted.init, np.array(plan.seeds, np.int32))
    moments = together(plan, gpu) if plan.schedule.q_error else 0
    waiting = size_of(cast(Any, engine.lifted.room).eval_shape(state, moments))
    seeds = len(plan.seeds)
    at_once = 1 if engine.agent.alone else seeds
    work = max(
        seeds * stacks + at_once * wide for stacks, wide in (_working(plan, engine), _measuring(plan, engine))
    )
    return seeds * size_in_bytes(plan.task.spec, plan.capacity), 2 * size_of(state), work + waiting


def kept_in_bytes(plan: Plan, engine: Engine) -> int:
    """Bytes on disk of what a finished run keeps of its nets."""
    state = jax.eval_shape(engine.lifted.init, np.array(plan.seeds, np.int32))
    return size_of(jax.eval_shape(engine.lifted.bare, state))


def size_of(tree: Any) -> int:
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


def _working(plan: Plan, engine: Engine) -> tuple[int, int]:
    """About what one seed's batches take, and its update at its widest.

    That is patches of the first layer, of all images. Ten seeds of VCR on Atari held 2.9 GB on a GPU in an earlier
    version; this says 2.4. Kernels write no patches, and a CPU does not of images without gradient: they hold less.

    Where hundreds of large images are seen by kernels it is the halves between the layers: of images with gradient all
    of them and most of what comes back, of the targets' as much as all of them. For the continuous agent on 84 pixels
    the compiler asks for 1.07 GB a seed with `sac`, 1.41 with `vcr`; this says 1.06 and 1.61.
    """
    samples, layers = engine.agent.samples, LAYERS[plan.config.encoder]
    stacks = sum(s.batch * (1 + s.steps + s.targets) for s in samples)
    channels, (_, size, stride, *_) = plan.config.observation.stack, layers[0]
    height, width, depth = plan.task.spec.frame
    if engine.agent.large and not engine.agent.alone:
        crop = getattr(plan.config, "crop", None)
        image = (crop or height, crop or width, depth * channels)
        shapes = [state_shape(image, layers[: i + 1]) for i in range(len(layers))]
        each = 2 * sum(math.prod(shape) for shape in shapes if shape)
        widest = int(each * sum(s.batch * (1.8 + s.targets) for s in samples))
    else:
        images = sum(s.batch * (1 + 2 * s.targets + s.steps) for s in samples)
        widest = images * (height // stride) * (width // stride) * size * size * depth * channels * 4
    return stacks * height * width * depth * channels, widest


def _measuring(plan: Plan, engine: Engine) -> tuple[int, int]:
    """About what a Q-error takes of one seed: stacks of positions; their first layer, and states imagined from them.

    For ten seeds on Atari the compiler asks for 2.1 GB on a GPU, besides 0.3 of stacks; this says 2.8 and 0.3.
    """
    config, (height, width, depth) = plan.config, plan.task.spec.frame
    positions = plan.schedule.q_error_positions if plan.schedule.q_error else 0
    channels, layers = depth * config.observation.stack, LAYERS[config.encoder]
    crop = getattr(config, "crop", None)
    image = (crop or height, crop or width, channels)
    first, last = state_shape(image, layers[:1]), state_shape(image, layers)
    assert first is not None and last is not None, "the frame is too small for the encoder"
    state = getattr(config, "width", math.prod(last))
    # Two layers' halves, and of each imagined state what it is made of, by both kinds of statistics.
    wide = 2 * 2 * math.prod(first) + 3 * 4 * (engine.agent.steps + 1) * state
    return positions * height * width * channels, positions * wide


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
