"""The losses of the continuous base: critics, terms, actor, temperature. Each is a function of the nets it moves."""

import operator
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt8

from vcrl.agents.base import View, spread
from vcrl.agents.descent import Descent
from vcrl.agents.terms import TERMS, wants_targets, weight_at
from vcrl.agents.values import TwinValues
from vcrl.core.keys import Stream, key
from vcrl.core.spec import EnvSpec
from vcrl.core.types import Clock, Metrics, Segment
from vcrl.methods.configs import Own, SACConfig
from vcrl.nets.augment import Drawn, drawn_for, picture
from vcrl.nets.control import Actor, Decoder, Likeness, TwinQ, VectorEncoder
from vcrl.nets.layers import MLP
from vcrl.nets.transition import VectorTransition, imagine
from vcrl.objectives import squared_error

still = jax.lax.stop_gradient


class SACNets(eqx.Module):
    """A part a method does not use is None. The convolutions belong to the critics; the actor only reads them."""

    encoder: VectorEncoder
    q_head: TwinQ
    actor: Actor
    log_alpha: Float[Array, ""]
    transition: VectorTransition | None = None
    projection: MLP | None = None
    prediction: MLP | None = None
    backward: VectorTransition | None = None
    likeness: Likeness | None = None
    decoder: Decoder | None = None
    own: Any = None  # of a loss of one's own


class Slow(NamedTuple):
    """The parts of which a slow copy is kept."""

    encoder: VectorEncoder
    q_head: TwinQ
    projection: MLP | None


class Setup(NamedTuple):
    """What is fixed for a whole training."""

    config: SACConfig
    spec: EnvSpec
    actions: int
    terms: dict[str, Any]
    values: TwinValues
    steps: int  # K, the most any term imagines
    descents: dict[str, Descent]
    eval_epsilon: float


def critic_loss(
    setup: Setup, target: Slow, segment: Segment, aug: Array, noise: Array, online: SACNets
) -> tuple[Array, Metrics]:
    """Both critics against one soft target; over several augmentations, targets as a mean and losses as a sum."""
    draws = setup.config.draws
    looks, noises = jax.random.split(aug, (draws, 2)), jax.random.split(noise, draws)
    before = still(online)
    ahead = [images(setup, looks[i, 1], segment.boot_obs) for i in range(draws)]
    targets = [
        soft_target(before, target, image, target.encoder.without_gradient(image)[None], noise, segment)
        for image, noise in zip(ahead, noises, strict=True)
    ]
    y = jnp.mean(jnp.stack(targets), axis=0)[0]
    states = [online.encoder(images(setup, looks[i, 0], segment.obs)) for i in range(draws)]
    values = [online.q_head(state, segment.action[0]) for state in states]
    loss = sum((jnp.mean(squared_error(value, y)) for value in values), jnp.zeros(()))
    return loss, {"loss/rl": loss, "q": jnp.mean(values[0]), "state/spread": spread(states[0])}


def soft_target(
    online: SACNets,
    target: Slow,
    image: Float[Array, "PB H W C"] | Drawn,
    state: Float[Array, "P B D"],
    noise: Array,
    segment: Segment,
) -> Float[Array, "P B 2"]:
    """y = R + gamma^n (min_i Q_T,i(z~, a') - alpha log pi(a')), a' drawn anew; one y for both critics.

    Of the last P places of the window: these are the images of the states to bootstrap from, for the actor, and those
    states by the target encoder.
    """
    places = slice(len(segment.returns) - len(state), None)
    policy = online.actor(online.encoder.convs.without_gradient(image))
    action, log_prob = policy.draw(jax.random.normal(noise, policy.mean.shape))
    value = jnp.min(target.q_head(state.reshape(len(action), -1), action), axis=-1)
    soft = (value - jnp.exp(online.log_alpha) * log_prob).reshape(state.shape[:2])
    y = segment.returns[places] + segment.discount[places] * soft
    return still(jnp.broadcast_to(y[..., None], (*y.shape, 2)))


def term_losses(
    setup: Setup,
    target: Slow,
    segment: Segment,
    clock: Clock,
    seed: Int[Array, ""],
    aug: Array,
    noise: Array,
    online: SACNets,
) -> tuple[dict[str, Array], Metrics]:
    """Every auxiliary loss of one batch of windows, unweighted, and what there is to tell of them."""
    first, second = jax.random.split(aug)
    imagined = encode(setup, online.encoder, first, segment.obs[:1])
    if online.transition is not None:
        imagined, _ = imagine(online.transition, imagined[0], segment.action[:-1], (), learning=True)
    real, td_target = look_ahead(setup, still(online), target, segment, second, noise)
    view = View(
        online=online, target=target, q=online.q_head, q_target=target.q_head, momentum=target, project=project,
        encode=partial(encode, setup), bellman=lambda q, q_target: td_target, obs=segment.obs, imagined=imagined,
        real=real, action=segment.action, reward=segment.reward, terminal=segment.terminal, alive=segment.alive,
        td_target=td_target, values=setup.values, actions=setup.actions, clock=clock,
    )  # fmt: skip
    named: dict[str, Array] = {}
    extra: Metrics = {}
    for i, (name, term) in enumerate(setup.terms.items()):
        stream = jax.random.fold_in(key(seed, Stream.TERM, clock.updates), i)
        named[name], more = TERMS[type(term)](term, view, stream)
        extra |= more
    means = {name: jnp.mean(loss) for name, loss in named.items()}
    return means, {name: jnp.mean(x) for name, x in extra.items()}


def look_ahead(
    setup: Setup, online: SACNets, target: Slow, segment: Segment, aug: Array, noise: Array
) -> tuple[Float[Array, "K B D"], Float[Array, "P B 2"]]:
    """The real states t+1..t+K by the target encoder, and the soft targets of the actions taken at them.

    With one-step returns the state to bootstrap from is the next real one: one augmented look serves as both.
    """
    steps, wanted = setup.steps, any(wants_targets(term) for term in setup.terms.values())
    nothing = jnp.zeros((0, segment.weight.shape[0], 2))
    if not steps:
        return jnp.zeros((0, segment.weight.shape[0], setup.config.width)), nothing
    if not wanted:
        return encode(setup, target.encoder.without_gradient, aug, segment.obs[1:]), nothing
    one, two = jax.random.split(aug)
    shared = setup.config.n_step == 1
    # The first place is no imagined one: no term of ours reads its target, a user's may.
    first = any(isinstance(term, Own) and wants_targets(term) for term in setup.terms.values())
    ahead = segment.boot_obs if shared or first else segment.boot_obs[1:]
    image = images(setup, one, ahead, setup.config.augment.intensity)
    batch, states = ahead.shape[1], states_of(target.encoder.without_gradient, image, len(ahead))
    last, begin = (
        jax.tree.map(operator.itemgetter(part), image) for part in (slice(-steps * batch, None), slice(batch))
    )
    y = soft_target(online, target, last, states[-steps:], noise, segment)
    start = jnp.zeros_like(y[:1])
    if first:
        now = segment._replace(returns=segment.returns[:1], discount=segment.discount[:1])
        start = soft_target(online, target, begin, states[:1], jax.random.fold_in(noise, 1), now)
    y = jnp.concatenate([start, y])
    return states[:-1] if shared else encode(setup, target.encoder.without_gradient, two, segment.obs[1:]), y


def term_weights(setup: Setup, clock: Clock) -> dict[str, Array]:
    return {name: weight_at(term, clock, setup.spec.repeat) for name, term in setup.terms.items()}


def auxiliary_loss(setup: Setup, clock: Clock, *rest: Any) -> tuple[Array, Metrics]:
    """The weighted sum of all terms."""
    target, segment, seed, aug, noise, online = rest
    named, extra = term_losses(setup, target, segment, clock, seed, aug, noise, online)
    weight = term_weights(setup, clock)
    assert named.keys() == weight.keys(), f"losses {list(named)} but weights {list(weight)}"
    total = sum((weight[name] * named[name] for name in named), jnp.zeros(()))
    return total, extra | {f"loss/{name}": loss for name, loss in named.items()}


def actor_loss(
    image: Float[Array, "B H W C"] | Drawn, normal: Float[Array, "B A"], online: SACNets
) -> tuple[Array, Metrics]:
    """alpha log pi(a) - min_i Q_i(z, a) for an a drawn from the policy. Only the actor's own layers are to move."""
    seen = online.encoder.convs.without_gradient(image)
    action, log_prob = online.actor(seen).draw(normal)
    value = jnp.min(online.q_head(online.encoder.trunk(seen), action), axis=-1)
    loss = jnp.mean(still(jnp.exp(online.log_alpha)) * log_prob - value)
    return loss, {"loss/actor": loss, "entropy": -jnp.mean(log_prob)}


def temperature_loss(actions: int, entropy: Float[Array, ""], online: SACNets) -> tuple[Array, Metrics]:
    """alpha (H - H_target), H_target = -|a|: too random a policy lowers alpha."""
    alpha = jnp.exp(online.log_alpha)
    loss = alpha * (still(entropy) + actions)
    return loss, {"loss/temperature": loss, "alpha": alpha}


def images(setup: Setup, k: Array, obs: UInt8[Array, "T B H W C"], intensity: float = 0.0) -> Drawn:
    """All stacks in one row, under augmentations of their own."""
    config = setup.config
    (drawn,) = drawn_for(k, [obs], shift=config.augment.shift, intensity=intensity, crop=config.crop)
    return drawn


def encode(
    setup: Setup, encoder: Callable[[Any], Array], k: Array, obs: UInt8[Array, "T B H W C"]
) -> Float[Array, "T B D"]:
    """States of augmented stacks, as the terms see them. An encoder that is not ours is given images."""
    image = images(setup, k, obs, setup.config.augment.intensity)
    ours = isinstance(getattr(encoder, "__self__", encoder), VectorEncoder)
    return states_of(encoder, image if ours else picture(image), len(obs))


def states_of(encoder: Callable[[Any], Array], image: Any, steps: int) -> Float[Array, "T B D"]:
    states = encoder(image)
    return states.reshape(steps, -1, states.shape[-1])


def project(nets: SACNets | Slow, state: Float[Array, "*n D"]) -> Float[Array, "*n D"]:
    assert nets.projection is not None, "no projection without a term that uses it"
    return nets.projection(state)
