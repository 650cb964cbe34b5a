"""How long a training will take, said before it begins."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxprs_in_params

from vcrl.core.types import now
from vcrl.methods import library
from vcrl.nets.tiles import obstacle
from vcrl.runs.rates import SUITES, Clock, Forecast, speed
from vcrl.training.lift import Lifted, no_row
from vcrl.training.plan import Plan

SHARE = 0.6  # of the speed of a plain matrix product that an update reaches on a CPU; 0.4 to 0.95 was seen
LONG = 3600.0  # seconds below which nobody needs a warning


def outlook(plan: Plan, lifted: Lifted, out: Path, always: bool = False, behind: int = 0) -> Iterator[str]:
    """How long it will take, or what is left of it behind so many agent steps; and what would make it shorter.

    Said where that is long, a GPU's, or asked for.
    """
    told, cpu = forecast(plan, lifted, out, behind), jax.default_backend() == "cpu"
    if told is not None and cpu and told.seconds > LONG:
        yield (
            f'no GPU found: {told}. With an NVIDIA GPU: pip install "jax[cuda13]". '
            "`vcrl demo` shows the methods in minutes on small games."
        )
    elif told is not None and (always or not cpu):
        yield str(told)
    if not cpu and (why := obstacle()):
        yield f"without kernels for convolutions an update takes longer: {why}"


def forecast(plan: Plan, lifted: Lifted, out: Path, behind: int = 0) -> Forecast | None:
    """By finished runs of the method in `out`, else by what was measured elsewhere; None where nobody knows.

    With other settings than the method's, or in an environment of the user's, from the products in an update and the
    speed of this CPU.
    """
    device, suite = "cpu" if jax.default_backend() == "cpu" else "gpu", plan.task.suite
    if suite in SUITES and plan.config == library.resolve(plan.method, suite, plan.task.name):
        return Clock(out, device).forecast(
            suite, plan.method, plan.task.name, len(plan.seeds), plan.budget, behind
        )
    # With small pictures products are not what takes the time.
    if device == "gpu" or plan.task.spec.frame[0] * plan.task.spec.frame[1] < 64 * 64:
        return None
    updates = max(0, plan.budget - max(behind, plan.config.learn_start)) * plan.config.updates_per_step
    return Forecast(updates * flop(plan, lifted) / (SHARE * speed()), "the arithmetic of learning")


def flop(plan: Plan, lifted: Lifted) -> float:
    """Floating-point operations of one update of all seeds."""
    traced = traced_learning(plan, lifted)
    return products(traced.jaxpr.jaxpr) / len(traced.out_info[2])  # a call may make several


def traced_learning(plan: Plan, lifted: Lifted) -> Any:
    """The program of a call that learns, which nothing was computed or compiled for."""
    seeds = jax.ShapeDtypeStruct((len(plan.seeds),), jnp.int32)
    state, replay = jax.eval_shape(lifted.init, seeds), jax.eval_shape(lifted.empty, seeds)
    row = no_row(plan.task.spec, len(plan.seeds))
    given = (jax.tree.leaves(state), replay, row, now(0, 0, 0), np.array(plan.seeds, np.int32))
    return lifted.learn.trace(*given)  # type: ignore


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
            # A branch is one of several, a kernel runs all over its grid, and a loop of unknown length counts once.
            grid = step.params["grid_mapping"].grid if name == "pallas_call" else ()
            times = step.params.get("length", 1) * math.prod(grid)
            count += max(inside, default=0.0) if name == "cond" else times * sum(inside)
    return count
