"""The nets of the discrete base and its losses: RL loss, Bellman targets of greedy actions, terms."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, UInt8

from vcrl.agents.base import View, spread
from vcrl.agents.terms import TERMS, steps_of, wants_reading, weight_at
from vcrl.agents.values import DiscreteValues
from vcrl.core.keys import Stream, key
from vcrl.core.protocol import Protocol
from vcrl.core.spec import EnvSpec
from vcrl.core.types import Clock, Metrics, Segment
from vcrl.methods.configs import RainbowConfig
from vcrl.nets.augment import as_it_is, augment, drawn_for
from vcrl.nets.encoders import Encoder
from vcrl.nets.heads import ContrastHead, QHead, RewardHead
from vcrl.nets.layers import Linear
from vcrl.nets.norms import Stats
from vcrl.nets.transition import Transition, imagine
from vcrl.objectives import double_q, pick

still = jax.lax.stop_gradient


class RainbowNets(eqx.Module):
    """A part a method does not use is None: no parameters, no optimiser state, no branch."""

    encoder: Encoder
    q_head: QHead
    transition: Transition | None
    prediction: Linear | None
    reward: RewardHead | None = None
    backward: Transition | None = None
    contrast: ContrastHead | None = None
    own: Any = None  # of a loss of one's own


class Momentum(NamedTuple):
    """The nets that CURL keeps a slow copy of."""

    encoder: Encoder
    contrast: ContrastHead


class RainbowState(NamedTuple):
    online: RainbowNets
    target: RainbowNets | None  # None: the online weights at the start of each update
    stats: Stats | None  # of the transition model's batch norm
    opt: optax.OptState
    momentum: Momentum | None = None


class Setup(NamedTuple):
    """What is fixed for a whole training."""

    config: RainbowConfig
    spec: EnvSpec
    protocol: Protocol
    actions: int
    terms: dict[str, Any]
    values: DiscreteValues
    steps: int  # K, the most any term imagines
    rl: slice  # which of the real states t..t+K the RL loss reads
    optimiser: Any  # of Optax, whose annotations do not admit modules


def losses(
    setup: Setup,
    online: RainbowNets,
    state: RainbowState,
    segment: Segment,
    clock: Clock,
    seed: Int[Array, ""],
) -> tuple[dict[str, Array], tuple[Stats | None, Array, Metrics]]:
    """Every named loss of one batch, unweighted; beside them new running statistics, surprise and metrics."""
    values, stats = setup.values, state.stats
    aug = jax.random.split(key(seed, Stream.AUGMENT, clock.updates))
    target = still(state.online if state.target is None else state.target)
    q = online.q_head.draw(key(seed, Stream.NOISE, clock.updates + 1))
    # The target head has the noise of the update before: in the reference it was copied with the weights.
    q_target = target.q_head.draw(key(seed, Stream.NOISE, clock.updates))

    chosen, worth, real = _look(setup, state, target, segment, aug[0])

    def bootstrap(q: QHead, q_target: QHead) -> Array:
        return _bootstrap(setup, still(q), chosen, q_target, worth)

    boot = bootstrap(q, q_target)
    td_target = _bellman(setup, boot, segment)
    states = _encode(setup, online.encoder, aug[1], segment.obs[setup.rl])
    imagined = states[:1]
    if online.transition is not None and stats is not None:
        imagined, stats = imagine(online.transition, imagined[0], segment.action[:-1], stats, learning=True)

    # Once for the RL loss and for terms: what is read twice goes back through the head twice, too.
    read_by = [steps_of(term) for term in setup.terms.values() if wants_reading(term)]
    reading = values.read(q, imagined[: max(read_by, default=0) + 1])
    taken = pick(reading[0], segment.action[0])
    rl = values.loss(taken, td_target[0])
    named = {"rl": rl if len(states) == 1 else _rl_loss(setup, q, states, td_target, segment)}
    # Beside the spread, the level: where one unit outgrows all others, min-max scaling makes both small.
    extra: Metrics = {"q": values.scalar(taken), "state/spread": spread(states[0])}
    extra["state/mean"] = still(jnp.mean(states[0]))
    if values.clipped is not None:
        extra["value/clipped"] = still(values.clipped(boot, segment.returns, segment.discount)[0])
    view = View(
        online=online, target=target, q=q, q_target=q_target, momentum=still(state.momentum), project=_project,
        encode=partial(_encode, setup), bellman=lambda *heads: _bellman(setup, bootstrap(*heads), segment),
        obs=segment.obs, imagined=imagined, real=real,
        action=segment.action, reward=segment.reward, terminal=segment.terminal, alive=segment.alive,
        td_target=td_target, values=values, actions=setup.actions, clock=clock, reading=reading,
    )  # fmt: skip
    for i, (name, term) in enumerate(setup.terms.items()):
        stream = jax.random.fold_in(key(seed, Stream.TERM, clock.updates), i)
        named[name], more = TERMS[type(term)](term, view, stream)
        extra |= more
    means = {name: jnp.mean(segment.weight * loss) for name, loss in named.items()}
    priority = setup.config.replay.priority
    surprise = {
        "divergence": lambda: values.surprise(taken, td_target[0]),
        "loss": lambda: rl,
        "total": lambda: sum((w * named[n] for n, w in weights(setup, clock).items()), jnp.zeros(())),
    }[priority.of if priority else "divergence"]()
    return means, (stats, surprise, {name: jnp.mean(x) for name, x in extra.items()})


def _look(
    setup: Setup, state: RainbowState, target: RainbowNets, segment: Segment, k: Array
) -> tuple[Array, Array, Array]:
    """States that carry no gradient: bootstrap ones by the online and by the target encoder, and the real ones.

    Where target and online weights are the same, one pass serves all three.
    """
    online, boot, real = still(state.online), segment.boot_obs, segment.obs[1:]
    if state.target is None:
        chosen, worth, seen = _seen(setup, online.encoder, k, boot, boot, real)
        return chosen, worth, seen
    one, two = jax.random.split(k)
    worth, seen = _seen(setup, target.encoder, one, boot, real)
    (chosen,) = _seen(setup, online.encoder, two, boot)
    return chosen, worth, seen


def _bellman(setup: Setup, boot: Float[Array, "P B E"], segment: Segment) -> Float[Array, "P B E"]:
    """Targets of the taken actions at t..t+K'-1, each from its own n-step return and its own bootstrap state."""
    return still(setup.values.bellman(boot, segment.returns, segment.discount))


def _bootstrap(setup: Setup, q: QHead, chosen: Array, q_target: QHead, worth: Array) -> Float[Array, "P B E"]:
    """Values of the bootstrap states' best actions.

    Double-Q: the online head chooses the action, with its current noise and an augmentation of its own.
    """
    values, raw = setup.values, q_target(worth)
    chooser = values.read(q, chosen) if setup.config.double else values.settle(raw)
    return values.settle(double_q(values.scalar(chooser), raw))  # of the best actions alone


def _rl_loss(
    setup: Setup, q: QHead, states: Float[Array, "P B H W C"], td_target: Array, segment: Segment
) -> Float[Array, " B"]:
    """The mean over several real states of a window, those that exist: as if each were a sample."""
    taken = setup.values.taken(q, states, segment.action[setup.rl])
    alive = segment.alive[setup.rl]
    each = setup.values.loss(taken, td_target[setup.rl])
    return jnp.sum(alive * each, axis=0) / jnp.maximum(jnp.sum(alive, axis=0), 1)


def _seen(setup: Setup, encoder: Encoder, k: Array, *stacks: UInt8[Array, "_ B H W C"]) -> list[Array]:
    """States of augmented stacks, of each array its own, where no gradient is wanted."""
    draws = drawn_for(k, stacks, shift=setup.config.augment.shift, intensity=setup.config.augment.intensity)
    found = encoder.look(draws)
    return [x.reshape(*obs.shape[:2], *x.shape[1:]) for x, obs in zip(found, stacks, strict=True)]


def plainly(encoder: Encoder, obs: UInt8[Array, "B H W C"]) -> Float[Array, "B h w c"]:
    """States of stacks as they are, where no gradient is wanted."""
    return encoder.look([as_it_is(obs)])[0]


def _encode(
    setup: Setup, encoder: Callable[[Array], Array], k: Array, obs: UInt8[Array, "T B H W C"]
) -> Float[Array, "T B h w c"]:
    """States of augmented stacks; every stack gets an augmentation of its own."""
    images = augment(k, obs, shift=setup.config.augment.shift, intensity=setup.config.augment.intensity)
    states = encoder(images.reshape(-1, *images.shape[2:]))
    return states.reshape(*obs.shape[:2], *states.shape[1:])


def _project(nets: RainbowNets, state: Float[Array, "*n H W C"]) -> Float[Array, "*n D"]:
    return nets.q_head.mean().project(state)


def weights(setup: Setup, clock: Clock) -> dict[str, Array]:
    """The weight of every named loss at this moment."""
    return {"rl": jnp.ones(()), **{name: weight_at(term, clock) for name, term in setup.terms.items()}}
