"""The discrete base: Rainbow with a latent transition model, on which SPR, VCR and the others are terms."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, UInt8

from vcrl.agents.base import Agent, Along, Update, follow, needs_copy
from vcrl.agents.descent import norm
from vcrl.agents.greedy import Momentum, RainbowNets, RainbowState, Setup, losses, plainly, weights
from vcrl.agents.terms import own_nets, present, steps_of, wants_targets
from vcrl.agents.values import make_values
from vcrl.core.keys import Stream, key
from vcrl.core.protocol import Protocol
from vcrl.core.spec import Discrete, EnvSpec
from vcrl.core.types import Clock, Metrics, Segment
from vcrl.methods.configs import RainbowConfig
from vcrl.nets.encoders import LAYERS, Encoder, state_shape
from vcrl.nets.heads import ContrastHead, QHead, RewardHead, prediction_head
from vcrl.nets.norms import Stats
from vcrl.nets.transition import Transition, imagine
from vcrl.replay import Sample


def make_rainbow(config: RainbowConfig, spec: EnvSpec, protocol: Protocol) -> Agent:
    assert isinstance(spec.actions, Discrete), "rainbow needs discrete actions"
    terms = present(config.terms)
    steps = max((steps_of(term) for term in terms.values()), default=0)
    rl = slice(0, 1) if config.rl_stride is None else slice(0, steps + 1, config.rl_stride)
    setup = Setup(
        config, spec, protocol, spec.actions.n, terms, make_values(config.value), steps, rl,
        optax.adam(config.adam.rate, eps=config.adam.epsilon),
    )  # fmt: skip
    priority = config.replay.priority
    everywhere = any(wants_targets(term) for term in terms.values())
    sample = Sample(
        batch=config.batch,
        steps=steps,
        targets=steps + 1 if everywhere else range(steps + 1)[rl][-1] + 1,
        n=config.n_step,
        gamma=config.gamma,
        stack=config.observation.stack,
        prioritised=priority is not None,
        correction=priority.correction if priority else (1.0, 1.0),
        span=(config.learn_start, protocol.budget),
        top=priority is not None and priority.new == "max",
        fill=config.observation.fill,
    )
    return Agent(
        init=partial(init, setup),
        act=partial(act, setup),
        update=partial(update, setup),
        gradient_norms=partial(gradient_norms, setup),
        values_along=partial(values_along, setup),
        worth=partial(worth, setup),
        bare=bare,
        sample=sample,
        learn_start=config.learn_start,
        updates_per_step=config.updates_per_step,
    )


def init(setup: Setup, seed: Int[Array, ""]) -> RainbowState:
    config, (_, _, channels) = setup.config, setup.spec.frame
    shape = state_shape(setup.spec.frame, LAYERS[config.encoder])
    assert shape is not None, "the frame is too small for the encoder"
    k = jax.random.split(key(seed, Stream.INIT, 0), 4)
    more = jax.random.split(key(seed, Stream.INIT, 1), 3)
    width, terms = shape[0] * shape[1] * shape[2], config.terms
    predicts = (terms.spr is not None and terms.spr.prediction) or terms.cycle is not None
    online = RainbowNets(
        Encoder.make(
            k[0], channels * config.observation.stack, LAYERS[config.encoder], config.renormalise, config.init
        ),
        QHead.make(
            k[1], width, config.hidden, setup.actions, setup.values.size, config.noise,
            config.head, config.head_gradient, config.init,
        ),
        Transition.make(k[2], shape[2], setup.actions) if setup.steps else None,
        prediction_head(k[3], config.hidden) if predicts else None,
        RewardHead.make(more[0], shape) if terms.reward else None,
        Transition.make(more[1], shape[2], setup.actions) if terms.cycle else None,
        ContrastHead.make(more[2], width, terms.contrast.hidden, terms.contrast.size) if terms.contrast else None,
        own_nets(terms.own, key(seed, Stream.INIT, 2), shape, setup.actions),
    )  # fmt: skip
    return RainbowState(
        online,
        online if needs_copy(config.target) else None,
        online.transition.stats() if online.transition else None,
        setup.optimiser.init(online),
        momentum_of(online),
    )


def momentum_of(nets: RainbowNets) -> Momentum | None:
    """What of the nets CURL copies; None in other methods."""
    return None if nets.contrast is None else Momentum(nets.encoder, nets.contrast)


def act(
    setup: Setup,
    state: RainbowState,
    obs: UInt8[Array, "B H W C"],
    clock: Clock,
    seed: Int[Array, ""],
    draw: Int[Array, "B 2"],
    explore: bool,
) -> Int[Array, " B"]:
    """Greedy, with the noise the last update left while exploring, and without any while not.

    `draw` names each row's random choice by (episode, tick), so that it depends on no other row.
    """
    nets, values, config = state.online, setup.values, setup.config
    if explore:
        head, stream = nets.q_head.draw(key(seed, Stream.NOISE, clock.updates)), key(seed, Stream.ACT, 0)
        epsilon = exploration(config, clock)
    else:
        head, stream = nets.q_head.mean(), key(seed, Stream.EVAL, 0)
        epsilon = setup.protocol.eval_epsilon if config.eval_epsilon is None else config.eval_epsilon
    greedy = jnp.argmax(values.scalar(values.read(head, plainly(nets.encoder, obs))), axis=-1)
    keys = jax.vmap(lambda d: jax.random.fold_in(jax.random.fold_in(stream, d[0]), d[1]))(draw)
    chance = jax.vmap(lambda k: jax.random.uniform(k, (2,)))(keys)
    random = jnp.floor(chance[:, 1] * setup.actions).astype(greedy.dtype)
    return jnp.where(chance[:, 0] < epsilon, random, greedy).astype(jnp.int32)


def exploration(config: RainbowConfig, clock: Clock) -> Float[Array, ""]:
    """The chance of a random action: one number up to `learn_start`, another after it, a line between them."""
    first, last = config.epsilon_start, config.epsilon
    since = clock.agent_steps - config.learn_start
    if config.epsilon_decay == 0:
        return jnp.where(since <= 0, first, last)
    return first + (last - first) * jnp.clip(since.astype(jnp.float32) / config.epsilon_decay, 0, 1)


def update(
    setup: Setup, state: RainbowState, segment: Segment, clock: Clock, seed: Int[Array, ""]
) -> tuple[RainbowState, Update]:
    config, weight = setup.config, weights(setup, clock)

    def total(
        online: RainbowNets,
    ) -> tuple[Array, tuple[dict[str, Array], tuple[Stats | None, Array, Metrics]]]:
        named, rest = losses(setup, online, state, segment, clock, seed)
        assert named.keys() == weight.keys(), f"losses {list(named)} but weights {list(weight)}"
        return sum((weight[name] * named[name] for name in named), jnp.zeros(())), (named, rest)

    gradient, (named, (stats, surprise, metrics)) = jax.grad(total, has_aux=True)(state.online)
    step, opt = setup.optimiser.update(clipped(gradient, config.adam.clip), state.opt)
    online = jax.tree.map(jnp.add, state.online, step)
    after, contrast = clock._replace(updates=clock.updates + 1), config.terms.contrast
    target = follow(online, state.target, config.target, after)
    momentum = follow(momentum_of(online), state.momentum, contrast.slow, after) if contrast else None
    metrics |= {f"loss/{name}": loss for name, loss in named.items()}
    metrics |= {"grad_norm": norm(gradient)}
    exponent = config.replay.priority.exponent if config.replay.priority else 1.0
    priority = jnp.clip(surprise, 1e-6, 1e6) ** exponent
    return RainbowState(online, target, stats, opt, momentum), Update(priority, metrics)


def clipped(gradient: RainbowNets, limit: float | None) -> RainbowNets:
    """Encoder and heads together to `limit`, each transition model on its own, the prediction head not at all.

    The reward head belongs to the transition model, as in the reference; nets of a loss of one's own to nobody.
    """
    if limit is None:
        return gradient

    def scaled(part: Any, size: Array) -> Any:
        return jax.tree.map(lambda g: g * jnp.minimum(1.0, limit / jnp.maximum(size, 1e-9)), part)

    joint = norm((gradient.encoder, gradient.q_head, gradient.contrast))
    forward = norm((gradient.transition, gradient.reward))
    return RainbowNets(
        scaled(gradient.encoder, joint),
        scaled(gradient.q_head, joint),
        scaled(gradient.transition, forward),
        gradient.prediction,
        scaled(gradient.reward, forward),
        scaled(gradient.backward, norm(gradient.backward)),
        scaled(gradient.contrast, joint),
        scaled(gradient.own, norm(gradient.own)),
    )


def gradient_norms(
    setup: Setup, state: RainbowState, segment: Segment, clock: Clock, seed: Int[Array, ""]
) -> Metrics:
    """How hard each weighted loss pulls on the weights, on one batch."""
    weight = weights(setup, clock)

    def stacked(online: RainbowNets) -> Float[Array, " terms"]:
        named, _ = losses(setup, online, state, segment, clock, seed)
        return jnp.stack([weight[name] * named[name] for name in weight])

    _, pull = jax.vjp(stacked, state.online)
    # One backward pass for all of them, batched over which loss is asked about.
    norms = jax.vmap(lambda which: optax.tree.norm(pull(which)[0]))(jnp.eye(len(weight)))
    return {f"grad_norm/{name}": norms[i] for i, name in enumerate(weight)}


def values_along(
    setup: Setup, state: RainbowState, obs: UInt8[Array, "P H W C"], action: Int[Array, "k P"]
) -> Along:
    """Q(z^_{t+k}, a_{t+k}) without noise or augmentation; only k = 0 where there is no transition model."""
    nets, head = state.online, state.online.q_head.mean()
    start = plainly(nets.encoder, obs)

    def values(states: Float[Array, "j P H W C"]) -> Float[Array, "j P"]:
        return setup.values.scalar(setup.values.taken(head, states, action[: len(states)]))

    if nets.transition is None or state.stats is None:
        return Along(values(start[None]), None)
    running, batch = (
        values(imagine(nets.transition, start, action[:-1], state.stats, learning=learning)[0])
        for learning in (False, True)
    )
    return Along(running, batch)


def worth(setup: Setup, state: RainbowState, obs: UInt8[Array, "P H W C"]) -> Float[Array, " P"]:
    """Q of the best action, without noise or augmentation."""
    nets, values = state.online, setup.values
    return jnp.max(values.scalar(values.read(nets.q_head.mean(), plainly(nets.encoder, obs))), axis=-1)


def bare(state: RainbowState) -> RainbowState:
    nets = state.online
    return RainbowState(RainbowNets(nets.encoder, nets.q_head, nets.transition, None), None, state.stats, ())
