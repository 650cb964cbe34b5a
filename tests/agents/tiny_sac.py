"""A tiny continuous agent, hand-made batches, and one program that shows all its losses and what they pull at."""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vcrl.agents import sac
from vcrl.agents.base import Agent
from vcrl.agents.soft import Setup, actor_loss, critic_loss, images, temperature_loss, term_losses
from vcrl.core.keys import Stream, key
from vcrl.core.protocol import Observation, Protocol
from vcrl.core.spec import Box, EnvSpec
from vcrl.core.types import Clock, Segment
from vcrl.methods.configs import (
    SPR,
    VCR,
    Adam,
    Auxiliary,
    Continuous,
    ControlTerms,
    Crops,
    Cycle,
    Reconstruction,
    ReplayConfig,
    SACConfig,
    Targets,
    Temperature,
)

STEPS, BATCH, WINDOWS, ACTIONS, STACK, SIDE = 2, 4, 3, 2, 2, 16
SAMPLES, COPIES, REPEAT, GAMMA = 4, 3, 4, 0.9
SPEC = EnvSpec((SIDE, SIDE, 1), Box(ACTIONS), repeat=REPEAT)
ALL = ControlTerms(
    spr=SPR(weight=0.8, steps=STEPS),
    vcr=VCR(weight=0.7, steps=STEPS, ramp=4000),
    cycle=Cycle(weight=0.6, steps=STEPS, ramp=3000, copies=COPIES),
    crops=Crops(weight=0.5),
    reconstruction=Reconstruction(weight=0.4, small=0.01, decay=0.02),
)
SEED, CLOCK = jnp.asarray(6), Clock(jnp.asarray(700), jnp.asarray(40))


def config(**changes: Any) -> SACConfig:
    """All terms, nothing augmented, and every rate another."""
    small = {
        "observation": Observation(stack=STACK, fill="first", reward="raw"),
        "encoder": "small",
        "crop": None,
        "width": 5,
        "hidden": 7,
        "transition": 6,
        "projection": 4,
        "gamma": GAMMA,
        "batch": BATCH,
        "learn_start": 10,
        "replay": ReplayConfig(capacity=40, priority=None),
        "target": Targets(encoder=0.25, critics=0.125, every=2),
        "adam": Adam(rate=1e-2, epsilon=1e-3, clip=None),
        "auxiliary": Auxiliary(batch=WINDOWS, encoder=2.0, rest=0.5, clip=1.5),
        "temperature": Temperature(start=0.3, rate=3e-2, momentum=0.5),
        "continuous": Continuous(samples=SAMPLES),
        "terms": ALL,
    }
    return SACConfig(**(small | changes))


def agent(config: SACConfig, spec: EnvSpec = SPEC) -> Agent:
    return sac.make_sac(config, spec, Protocol("tiny", 1000, 1, None, 1, 0.0))


def setup(agent: Agent) -> Setup:
    """What the agent's functions are bound to."""
    return agent.update.args[0]  # type: ignore


def state(agent: Agent, seed: int = 0) -> sac.SACState:
    """Weights of no particular start, so that nothing is compiled to make them; the target's are others."""
    rng = np.random.default_rng(seed)

    def fill(path: Any, x: Any) -> jax.Array:
        name, draw = jax.tree_util.keystr(path), rng.normal(size=x.shape)
        if name.startswith((".opt", ".seldom")):
            draw = np.zeros(x.shape)
        elif name.endswith("log_alpha"):
            draw = np.log(0.3)
        elif ".actor.layers.layers[2]" in name:
            draw = 0.5 + 0.3 * draw if "bias" in name else 0.3 * draw  # far from where tanh saturates
        elif name.endswith(".scale"):
            draw = 1 + 0.2 * draw
        elif "bias" in name:
            draw = 0.2 * draw
        else:
            draw = draw * 1.5 / np.sqrt(np.prod(x.shape[:-1]))
        return jnp.asarray(draw, x.dtype)

    return jax.tree_util.tree_map_with_path(fill, jax.eval_shape(agent.init, jnp.asarray(0)))


def segment(steps: int, targets: int, batch: int, seed: int = 0) -> Segment:
    """Windows inside an episode: the state to bootstrap from is the next one."""
    rng, image = np.random.default_rng(seed), (SIDE, SIDE, STACK)
    seen = rng.integers(0, 256, (max(steps, targets) + 1, batch, *image), np.uint8)
    reward = rng.normal(size=(max(steps + 1, targets), batch)).astype(np.float32)
    return Segment(
        obs=jnp.asarray(seen[: steps + 1]),
        action=jnp.asarray(rng.uniform(-1, 1, (steps + 1, batch, ACTIONS)), jnp.float32),
        reward=jnp.asarray(reward[: steps + 1]),
        terminal=jnp.zeros((steps + 1, batch), bool),
        alive=jnp.ones((steps + 1, batch)),
        returns=jnp.asarray(reward[:targets]),
        discount=jnp.full((targets, batch), GAMMA),
        boot_obs=jnp.asarray(seen[1 : targets + 1]),
        weight=jnp.ones(batch),
        slot=jnp.arange(batch),
    )


def batches(agent: Agent, seed: int = 0) -> sac.Batches:
    """Of single transitions the second was terminal: nothing is to be bootstrapped there."""
    rl, aux = agent.sample
    single = segment(0, 1, rl.batch, seed)
    ended = jnp.arange(rl.batch) == 1
    single = single._replace(terminal=ended[None], discount=jnp.where(ended, 0.0, single.discount))
    windows = None if aux is None else segment(aux.steps, aux.targets, aux.batch, seed + 1)
    return sac.Batches(single, windows)


def leaves(tree: Any) -> dict[str, np.ndarray]:
    """Arrays by the path to them, such as `.encoder.trunk.linear.weight`."""
    return {
        jax.tree_util.keystr(path): np.asarray(x) for path, x in jax.tree_util.tree_flatten_with_path(tree)[0]
    }


def streams(clock: Clock, seed: jax.Array = SEED) -> tuple[jax.Array, jax.Array]:
    """The keys of an update, of critics, terms and actor each: for augmentation and for drawn actions."""
    aug, noise = (jax.random.split(key(seed, s, clock.updates), 3) for s in (Stream.AUGMENT, Stream.NOISE))
    return aug, noise


def term_key(name: str, clock: Clock, terms: ControlTerms = ALL) -> jax.Array:
    present = [n for n, term in vars(terms).items() if term is not None]
    return jax.random.fold_in(key(SEED, Stream.TERM, clock.updates), present.index(name))


def look(setup: Setup):
    """Every loss of one update at given nets, its gradient there, and what it tells: name -> value, pull, metrics."""

    def pulled(loss: Any, online: Any) -> tuple[Any, ...]:
        (value, metrics), gradient = jax.value_and_grad(loss, has_aux=True)(online)
        return value, gradient, metrics

    def look(state: sac.SACState, batches: sac.Batches, clock: Clock) -> dict[str, tuple[Any, ...]]:
        online, target = state.online, state.target
        aug, noise = streams(clock)
        picture = images(setup, aug[2], batches.rl.obs)
        normal = jax.random.normal(noise[2], (len(picture.obs), ACTIONS))

        def terms(online: Any) -> tuple[Any, Any]:
            named, more = term_losses(setup, target, batches.aux, clock, SEED, aug[1], noise[1], online)
            return named, (named, more)

        pulls, (named, more) = jax.jacrev(terms, has_aux=True)(online)
        actor = pulled(lambda nets: actor_loss(picture, normal, nets), online)
        return {
            "critic": pulled(
                lambda nets: critic_loss(setup, target, batches.rl, aug[0], noise[0], nets), online
            ),
            "actor": actor,
            "temperature": pulled(lambda nets: temperature_loss(ACTIONS, actor[2]["entropy"], nets), online),
        } | {name: (named[name], pulls[name], more) for name in named}

    return jax.jit(look)


@cache
def full() -> Agent:
    """All terms at once."""
    return agent(config())


@cache
def look_at_full():
    """Compiled once, whichever tests ask."""
    return look(setup(full()))
