"""What an agent is, what a term may see, and how slow copies follow."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, UInt8

from vcrl.agents.values import Values
from vcrl.core.types import Clock, Metrics
from vcrl.methods.configs import Slow
from vcrl.replay import Sample

T = TypeVar("T")


class Update(NamedTuple):
    priority: Float[Array, " B"] | None  # what the replay should remember of each sample
    metrics: Metrics


class Along(NamedTuple):
    """Values along imagined states, by the two kinds of statistics that a batch norm has."""

    running: Float[Array, "K+1 P"]
    batch: Float[Array, "K+1 P"] | None  # None where there is no batch norm


class Agent(NamedTuple):
    """An agent of one seed: pure functions that make it, read-only ones to look inside, and its appetite.

    `rarely` is part of `update` where it is there, and `whole_update` puts them together.

    Randomness is never passed in as a stored key: each function computes its own from the seed and a counter.
    """

    init: Callable[[Array], Any]  # seed -> state
    # state, obs B, clock, seed, draw B 2, explore -> action B
    act: Callable[[Any, Array, Clock, Array, Array, bool], Array]
    # state, segment, clock, seed -> state, update: what is done at every update
    update: Callable[[Any, Any, Clock, Array], tuple[Any, Update]]
    # the same arguments -> gradient norm of every named loss on that segment
    gradient_norms: Callable[[Any, Any, Clock, Array], Metrics]
    # state, obs P, actions K+1 P -> Q K+1 P by both kinds of statistics
    values_along: Callable[[Any, Array, Array], Along]
    # state, obs P -> what the agent thinks the states are worth P, where an episode was cut off
    worth: Callable[[Any, Array], Array]
    # state -> the same with no more than acting, `values_along` and `worth` read
    bare: Callable[[Any], Any]
    sample: (
        Any  # what it learns from: a Sample, or a NamedTuple of some; `update` gets Segments in their place
    )
    learn_start: int
    updates_per_step: int
    alone: bool = False  # seeds learn one after the other
    # Hundreds of large images are seen in half precision, and a search for the best products pays.
    large: bool = False
    # The same arguments -> state: what is done behind every so many updates; told of in the state's `seldom`.
    rarely: tuple[int, Callable[[Any, Any, Clock, Array], Any]] | None = None

    @property
    def samples(self) -> list[Sample]:
        return jax.tree.leaves(self.sample, is_leaf=is_sample)

    @property
    def steps(self) -> int:
        """K, the most that it imagines."""
        return max(sample.steps for sample in self.samples)


def whole_update(agent: Agent, each: Callable[..., Any] = lambda function: function) -> Callable[..., Any]:
    """state, segment, clock, seed -> state, update: with the rare steps where they are due.

    `each` makes functions of one seed those of many. Whether steps are due is asked outside of it, once for all seeds:
    a GPU's host waits for the answer.
    """

    def update(state: Any, segment: Any, clock: Clock, seed: Any) -> tuple[Any, Update]:
        state, done = each(agent.update)(state, segment, clock, seed)
        if agent.rarely is None:
            return state, done
        every, rarely = agent.rarely
        due = (clock.updates + 1) % every == 0
        state = jax.lax.cond(due, each(rarely), lambda same, *_: same, state, segment, clock, seed)
        return state, done._replace(metrics=done.metrics | state.seldom)

    return update


def is_sample(x: Any) -> bool:
    return isinstance(x, Sample)


class View(NamedTuple):
    """All that a term may read, built once an update by the base. Index k of `imagined` is z^_{t+k}."""

    online: Any  # nets, differentiable
    target: Any  # nets, no gradient
    q: Any  # the online head with this update's noise
    q_target: Any  # the target head with its own noise
    momentum: Any  # the slow copy of the nets that CURL compares with, no gradient; None in other methods
    project: Callable[[Any, Array], Array]  # nets, state -> the vector SPR compares
    # encoder, key, stacks T B -> states under augmentations of their own; any function of images B H W C will do
    encode: Callable[[Any, Array, Array], Array]
    bellman: Callable[[Any, Any], Array]  # online and target head under any noise -> Bellman targets K' B E
    obs: UInt8[Array, "K+1 B h w c"]  # stacks as they were seen
    imagined: Float[Array, "K+1 B *s"]
    real: Float[Array, "K B *s"]  # states t+1..t+K, no gradient
    action: Array  # K+1 B, taken at t+k
    reward: Float[Array, "K+1 B"]  # of the transition taken at t+k
    terminal: Bool[Array, "K+1 B"]  # likewise
    alive: Float[Array, "K+1 B"]  # 1 while t+k is in the episode of t
    # Bellman target of the taken action under the noise of `q` and `q_target`; K' is 1 unless a term asks for more
    td_target: Float[Array, "K' B E"]
    values: Values
    actions: int  # how many there are, or how many numbers one has
    clock: Clock
    # What `q` reads off the imagined states, as many as are wanted, where the RL loss reads them too
    reading: Float[Array, "some B M E"] | None = None


def follow(online: T, copy: T | None, slow: Slow, clock: Clock) -> T | None:
    """One step of a slow copy after an update; `clock` already counts it.

    A copy at rate 1 after every update is the online weights at the start of the next: it is not kept at all.
    """
    if copy is None:
        return None
    due, rate = clock.updates % slow.every == 0, slow.rate
    return jax.tree.map(lambda new, old: jnp.where(due, (1 - rate) * old + rate * new, old), online, copy)


def needs_copy(slow: Slow) -> bool:
    return not (slow.rate == 1.0 and slow.every == 1)


def spread(state: Float[Array, "B ..."]) -> Float[Array, ""]:
    """The deviation of states over a batch, mean of all units; near 0 the encoder has collapsed: all looks alike."""
    return jax.lax.stop_gradient(jnp.mean(jnp.std(state, axis=0)))
