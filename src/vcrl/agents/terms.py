"""The auxiliary objectives: each reads a `View` and returns one loss a sample.

A term's numbers are a frozen dataclass in `methods.configs`; what it computes is here, bound to it by `TERMS`.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from vcrl.agents.base import View
from vcrl.core.types import Clock, Metrics
from vcrl.methods.configs import SPR, VCR, Terms
from vcrl.objectives import gaussian_ramp, self_prediction, value_consistency

Loss = tuple[Float[Array, " B"], Metrics]


def spr(term: SPR, view: View, key: Array) -> Loss:
    """L_SPR: the predicted projection of imagined states against the target projection of the real ones."""
    ahead = slice(1, term.steps + 1)
    predicted = view.online.prediction(view.project(view.online, view.imagined[ahead]))
    target = view.project(view.target, view.real[: term.steps])
    # The reference drops the last state of an episode too: no terminal may occur at t..t+k, both ends included.
    ended = jnp.cumsum(view.terminal.astype(jnp.float32), axis=0)[ahead] > 0
    return self_prediction(predicted, target, view.alive[ahead] * (1 - ended.astype(jnp.float32))), {}


def vcr(term: VCR, view: View, key: Array) -> Loss:
    """L_VCR: the Q head on imagined states against a Bellman target (action taken) and Q_T on real ones (others)."""
    ahead = slice(1, term.steps + 1)
    values, imagined, real, action = (
        view.values,
        view.imagined[ahead],
        view.real[: term.steps],
        view.action[ahead],
    )
    taken = values.taken(view.q, imagined, action)
    taken_target = {
        "n-step": lambda: view.td_target[ahead],
        "real": lambda: values.as_target(values.taken(view.q_target, real, action)),
    }[term.taken]()
    others, keep = values.others(view.q, imagined, action, key)
    others_target = values.as_target(values.others(view.q_target, real, action, key)[0])
    keep = {"others": keep, "all": jnp.ones_like(keep), "none": jnp.zeros_like(keep)}[term.others]
    loss, parts = value_consistency(
        taken, taken_target, others, others_target, keep, view.alive[ahead],
        distance=values.distance, taken_weight=term.taken_weight, others_weight=term.others_weight,
    )  # fmt: skip
    return loss, {f"vcr/{name}": part for name, part in parts.items()}


TERMS: dict[type, Callable[[Any, View, Array], Loss]] = {SPR: spr, VCR: vcr}


def present(terms: Terms) -> dict[str, Any]:
    """The terms a method has, by name."""
    return {name: term for name, term in vars(terms).items() if term is not None}


def weight_at(term: Any, clock: Clock) -> Float[Array, ""]:
    """A term's weight at this moment, its ramp included."""
    return term.weight * gaussian_ramp(clock.agent_steps, getattr(term, "ramp", 0))


def wants_targets(term: Any) -> bool:
    """Whether a term needs Bellman targets at imagined steps, and not only at the real one."""
    return isinstance(term, VCR) and term.taken == "n-step"
