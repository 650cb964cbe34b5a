"""The continuous base: SAC from pixels with a latent transition model, on which SPR, VCR and the others are terms."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, UInt8

from vcrl.agents.base import Agent, Along, Update
from vcrl.agents.descent import Descent, descend, merged, parts_of
from vcrl.agents.soft import (
    SACNets,
    Setup,
    Slow,
    actor_loss,
    auxiliary_loss,
    critic_loss,
    images,
    temperature_loss,
    term_losses,
    term_weights,
)
from vcrl.agents.terms import own_nets, present, steps_of
from vcrl.agents.values import TwinValues
from vcrl.core.keys import Stream, key
from vcrl.core.protocol import Protocol
from vcrl.core.spec import Box, EnvSpec
from vcrl.core.types import Clock, Metrics
from vcrl.methods.configs import SACConfig
from vcrl.nets import tiles
from vcrl.nets.augment import centre
from vcrl.nets.control import Actor, Decoder, Likeness, Trunk, TwinQ, VectorEncoder
from vcrl.nets.encoders import LAYERS, Encoder, state_shape
from vcrl.nets.layers import MLP
from vcrl.nets.transition import VectorTransition, imagine
from vcrl.replay import Sample

SELDOM = ("loss/actor", "entropy", "loss/temperature", "alpha")


class SACState(NamedTuple):
    online: SACNets
    target: Slow
    opt: dict[str, optax.OptState]  # one for each gradient step
    seldom: Metrics  # of the steps that are not taken at every update, as they last were


class Batches(NamedTuple):
    """What one update learns from: single transitions, and windows for the terms where there are any."""

    rl: Any
    aux: Any


def make_sac(config: SACConfig, spec: EnvSpec, protocol: Protocol) -> Agent:
    assert isinstance(spec.actions, Box), "sac needs continuous actions"
    terms = present(config.terms)
    steps = max((steps_of(term) for term in terms.values()), default=0)
    values = TwinValues(spec.actions.size, config.continuous.samples, config.continuous.least)
    setup = Setup(
        config, spec, spec.actions.size, terms, values, steps, descents(config), protocol.eval_epsilon
    )
    common = {
        "n": config.n_step,
        "gamma": config.gamma,
        "stack": config.observation.stack,
        "prioritised": False,
        "fill": config.observation.fill,
    }
    aux = (
        Sample(config.auxiliary.batch, steps=steps, targets=steps + 1, whole=True, **common)
        if terms
        else None
    )
    return Agent(
        init=partial(init, setup),
        act=partial(act, setup),
        update=partial(update, setup),
        gradient_norms=partial(gradient_norms, setup),
        values_along=partial(values_along, setup),
        worth=partial(worth, setup),
        bare=bare,
        sample=Batches(Sample(config.batch, steps=0, targets=1, **common), aux),
        learn_start=config.learn_start,
        updates_per_step=config.updates_per_step,
        alone=alone(config),
        large=halves(config),
        rarely=(config.target.every, partial(rarely, setup)),
    )


def descents(config: SACConfig) -> dict[str, Descent]:
    """Which parts each gradient step moves, and how fast."""
    rate, epsilon, aux = config.adam.rate, config.adam.epsilon, config.auxiliary
    rest = ("transition", "projection", "prediction", "backward", "likeness", "decoder", "own")
    if aux.heads and (config.terms.vcr or config.terms.own):
        rest = ("q_head", *rest)
    clip = () if aux.clip is None else ((aux.clip, ("encoder",)), (aux.clip, ("encoder", *rest)))
    rates = {"encoder": aux.encoder * rate, **dict.fromkeys(rest, aux.rest * rate)}
    heat, limit = config.temperature, config.adam.clip

    def own(*names: str) -> tuple[tuple[float, tuple[str, ...]], ...]:
        return () if limit is None else ((limit, names),)

    return {
        "critic": Descent({"encoder": rate, "q_head": rate}, epsilon, clip=own("encoder", "q_head")),
        "auxiliary": Descent(rates, epsilon, clip=clip),
        "actor": Descent({"actor": rate}, epsilon, clip=own("actor")),
        "temperature": Descent({"log_alpha": heat.rate}, epsilon, momentum=heat.momentum),
    }


def halves(config: SACConfig) -> bool:
    """Whether images are seen in half precision: hundreds of 84 pixels with up to 64 filters, on a GPU."""
    return config.encoder != "small" and jax.default_backend() == "gpu"


def alone(config: SACConfig) -> bool:
    """Whether seeds learn one after the other: with large images, where the library's convolutions go back.

    That is what a decoder has, and a GPU without kernels. They are fast for one seed, which fills a GPU by itself, and
    20 times slower under a vmap.
    """
    return halves(config) and (config.terms.reconstruction is not None or not tiles.available())


def init(setup: Setup, seed: Int[Array, ""]) -> SACState:
    config, (height, width, channels) = setup.config, setup.spec.frame
    image = (config.crop or height, config.crop or width, channels * config.observation.stack)
    layers = LAYERS[config.encoder]
    shape = state_shape(image, layers)
    assert shape is not None, "the frame is too small for the encoder"
    inputs, terms, size = shape[0] * shape[1] * shape[2], config.terms, config.width
    k = jax.random.split(key(seed, Stream.INIT, 0), 11)
    heads = (size, config.projection, size)
    convs = Encoder.make(k[0], image[2], layers, False, config.init, halves=halves(config))
    online = SACNets(
        VectorEncoder(convs, Trunk.make(k[1], inputs, size, config.tanh)),
        TwinQ.make(k[2], size, setup.actions, config.hidden),
        Actor.make(k[3], inputs, size, setup.actions, config.hidden, config.tanh),
        jnp.asarray(math.log(config.temperature.start), jnp.float32),
        VectorTransition.make(k[4], size, setup.actions, config.transition) if setup.steps else None,
        MLP.make(k[5], heads) if terms.spr or terms.cycle else None,
        MLP.make(k[6], heads) if terms.spr or terms.cycle else None,
        VectorTransition.make(k[7], size, setup.actions, config.transition) if terms.cycle else None,
        Likeness(jax.random.uniform(k[8], (size, size))) if terms.crops else None,
        Decoder.make(k[9], size, image, layers) if terms.reconstruction else None,
        own_nets(terms.own, key(seed, Stream.INIT, 2), (size,), setup.actions),
    )
    # The target projection starts as a stranger to the online one, as in the reference.
    own = MLP.make(k[10], heads) if online.projection is not None else None
    opt = {
        name: step.init(online) for name, step in setup.descents.items() if setup.terms or name != "auxiliary"
    }
    return SACState(
        online, Slow(online.encoder, online.q_head, own), opt, {name: jnp.zeros(()) for name in SELDOM}
    )


def act(
    setup: Setup,
    state: SACState,
    obs: UInt8[Array, "B H W C"],
    clock: Clock,
    seed: Int[Array, ""],
    draw: Int[Array, "B 2"],
    explore: bool,
) -> Float[Array, "B A"]:
    """The mean action, or while exploring a drawn one, up to `learn_start` any; on the middle of the image.

    In evaluation any action at the protocol's small chance, which on DeepMind Control is none.
    """
    nets = state.online
    policy = nets.actor(nets.encoder.convs.glance(centre(obs, setup.config.crop)))
    stream = key(seed, Stream.ACT if explore else Stream.EVAL, 0)
    keys = jax.vmap(lambda d: jax.random.fold_in(jax.random.fold_in(stream, d[0]), d[1]))(draw)
    chance = jax.vmap(lambda k: jax.random.uniform(jax.random.fold_in(k, 1), (setup.actions + 1,)))(keys)
    if explore:
        action, _ = policy.draw(jax.vmap(lambda k: jax.random.normal(k, (setup.actions,)))(keys))
        anything = clock.agent_steps < setup.config.learn_start
    else:
        action, anything = policy.best(), chance[:, :1] < setup.eval_epsilon
    return jnp.where(anything, 2 * chance[:, 1:] - 1, action)


def update(
    setup: Setup, state: SACState, batches: Batches, clock: Clock, seed: Int[Array, ""]
) -> tuple[SACState, Update]:
    """Critics, then the terms on what that left."""
    online, target, opt, seldom = state
    aug, noise = streams(seed, clock)
    critic = partial(critic_loss, setup, target, batches.rl, aug[0], noise[0])
    online, opt, metrics = step(setup, "critic", online, opt, critic)
    if setup.terms:
        terms = partial(auxiliary_loss, setup, clock, target, batches.aux, seed, aug[1], noise[1])
        online, opt, more = step(setup, "auxiliary", online, opt, terms)
        metrics |= more
    return SACState(online, target, opt, seldom), Update(None, metrics)


def rarely(setup: Setup, state: SACState, batches: Batches, clock: Clock, seed: Int[Array, ""]) -> SACState:
    """Actor, temperature and slow copies, each on what the one before left."""
    online, target, opt, _ = state
    aug, noise = streams(seed, clock)
    image = images(setup, aug[2], batches.rl.obs)
    normal = jax.random.normal(noise[2], (len(image.obs), setup.actions))
    online, opt, actor = step(setup, "actor", online, opt, partial(actor_loss, image, normal))
    heat = partial(temperature_loss, setup.actions, actor["entropy"])
    online, opt, temperature = step(setup, "temperature", online, opt, heat)
    return SACState(online, follow(setup, online, target), opt, actor | temperature)


def streams(seed: Int[Array, ""], clock: Clock) -> list[Array]:
    """Keys of one update, for augmentation and for drawn actions: of critics, terms and actor each."""
    return [jax.random.split(key(seed, s, clock.updates), 3) for s in (Stream.AUGMENT, Stream.NOISE)]


def step(
    setup: Setup,
    name: str,
    online: SACNets,
    opt: dict[str, Any],
    loss: Callable[[SACNets], tuple[Array, Metrics]],
) -> tuple[SACNets, dict[str, Any], Metrics]:
    """One of the gradient steps."""
    moved, now, metrics = descend(setup.descents[name], loss, online, opt[name])
    return moved, opt | {name: now}, metrics


def follow(setup: Setup, online: SACNets, target: Slow) -> Slow:
    """The slow copies, one step nearer."""
    rates = setup.config.target

    def nearer(new: Any, old: Any, rate: float) -> Any:
        return jax.tree.map(lambda a, b: rate * a + (1 - rate) * b, new, old)

    return Slow(
        nearer(online.encoder, target.encoder, rates.encoder),
        nearer(online.q_head, target.q_head, rates.critics),
        nearer(online.projection, target.projection, rates.encoder),
    )


def gradient_norms(
    setup: Setup, state: SACState, batches: Batches, clock: Clock, seed: Int[Array, ""]
) -> Metrics:
    """The gradient norm of the critics' loss and of every weighted term, on the parts that their step moves."""
    aug, noise = streams(seed, clock)
    online, target = state.online, state.target
    mine = parts_of(online, setup.descents["critic"].rates)
    critic = partial(critic_loss, setup, target, batches.rl, aug[0], noise[0])
    rl, _ = jax.grad(lambda parts: critic(merged(online, parts)), has_aux=True)(mine)
    norms = {"grad_norm/rl": optax.tree.norm(rl)}
    if not setup.terms:
        return norms
    weight = term_weights(setup, clock)

    def stacked(parts: dict[str, Any]) -> Float[Array, " terms"]:
        named, _ = term_losses(
            setup, target, batches.aux, clock, seed, aug[1], noise[1], merged(online, parts)
        )
        return jnp.stack([weight[name] * named[name] for name in weight])

    _, pull = jax.vjp(stacked, parts_of(online, setup.descents["auxiliary"].rates))
    each = jax.vmap(lambda which: optax.tree.norm(pull(which)[0]))(jnp.eye(len(weight)))
    return norms | {f"grad_norm/{name}": each[i] for i, name in enumerate(weight)}


def values_along(
    setup: Setup, state: SACState, obs: UInt8[Array, "P H W C"], action: Float[Array, "k P A"]
) -> Along:
    """min_i Q_i(z^_{t+k}, a_{t+k}) without augmentation; only k = 0 where there is no transition model."""
    nets = state.online
    states = nets.encoder(centre(obs, setup.config.crop))[None]
    if nets.transition is not None:
        states, _ = imagine(nets.transition, states[0], action[:-1], (), learning=False)
    return Along(jnp.min(nets.q_head(states, action[: len(states)]), axis=-1), None)


def worth(setup: Setup, state: SACState, obs: UInt8[Array, "P H W C"]) -> Float[Array, " P"]:
    """min_i Q_i(z, a) of the mean action."""
    nets = state.online
    seen = nets.encoder.convs.without_gradient(centre(obs, setup.config.crop))
    return jnp.min(nets.q_head(nets.encoder.trunk(seen), nets.actor(seen).best()), axis=-1)


def bare(state: SACState) -> SACState:
    nets = state.online
    needed = SACNets(nets.encoder, nets.q_head, nets.actor, nets.log_alpha, nets.transition)
    return state._replace(online=needed, target=None, opt={}, seldom={})
