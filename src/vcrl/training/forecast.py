"""How long a training will take where there is no accelerator, said before it begins."""

import math
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxprs_in_params

from vcrl.core.types import now
from vcrl.nets.kernels import obstacle
from vcrl.training.console import duration
from vcrl.training.lift import Lifted, no_row
from vcrl.training.plan import Plan

SHARE = 0.6  # of the speed of a plain matrix product that an update reaches on a CPU; 0.4 to 0.95 was seen
LONG = 3600.0  # seconds below which nobody needs a warning


def forecast(plan: Plan, lifted: Lifted) -> str | None:
    """A line for who is about to wait for hours without a GPU, or with one that could do more; else None.

    From the products in an update, and the speed of one matrix product here.
    """
    if jax.default_backend() != "cpu":
        why = obstacle() if plan.base == "rainbow" else None
        return f"without kernels for convolutions an update takes longer: {why}" if why else None
    # Tracing takes a second or two, so small pictures are not even looked at.
    if plan.task.spec.frame[0] * plan.task.spec.frame[1] < 64 * 64:
        return None
    updates = max(0, plan.budget - plan.config.learn_start) * plan.config.updates_per_step
    seconds = updates * flop(plan, lifted) / (SHARE * speed())
    if seconds < LONG:
        return None
    return (
        f"no GPU found: about {duration(seconds)} (hours:minutes:seconds) of learning on this CPU. "
        'With an NVIDIA GPU: pip install "jax[cuda13]". `vcrl demo` shows the methods in minutes on small games.'
    )


def flop(plan: Plan, lifted: Lifted) -> float:
    """Floating-point operations of one update of all seeds."""
    seeds = jax.ShapeDtypeStruct((len(plan.seeds),), jnp.int32)
    state, replay = jax.eval_shape(lifted.init, seeds), jax.eval_shape(lifted.empty, seeds)
    row = no_row(plan.task.spec, len(plan.seeds))
    traced = lifted.learn.trace(state, replay, row, now(0, 0, 0), np.array(plan.seeds, np.int32))  # type: ignore
    return products(traced.jaxpr.jaxpr) / len(traced.out_info[2])  # a call may make several


def products(program: Any) -> float:
    """Operations of all matrix products and convolutions in a program; XLA's own count takes a loop for one turn."""
    count = 0.0
    for step in program.eqns:
        name = step.primitive.name
        if name == "dot_general":
            (contracted, _), _ = step.params["dimension_numbers"]
            each = math.prod(step.invars[0].aval.shape[i] for i in contracted)
            count += 2 * each * step.outvars[0].aval.size
        elif name == "conv_general_dilated":
            kernel, forms = step.invars[1].aval, step.params["dimension_numbers"]
            each = kernel.size / kernel.shape[forms.rhs_spec[0]]
            count += 2 * each * step.outvars[0].aval.size
        else:
            inside = [products(part) for part in jaxprs_in_params(step.params)]
            # A branch is one of several, and a loop of unknown length counts once.
            count += (
                max(inside, default=0.0) if name == "cond" else step.params.get("length", 1) * sum(inside)
            )
    return count


def speed(size: int = 1024, times: int = 5) -> float:
    """Operations a second of a matrix product."""
    square = jnp.ones((size, size))
    product = jax.jit(jnp.matmul)
    product(square, square).block_until_ready()
    start = time.perf_counter()
    for _ in range(times):
        square = product(square, square) / size
    square.block_until_ready()
    return times * 2 * size**3 / (time.perf_counter() - start)
