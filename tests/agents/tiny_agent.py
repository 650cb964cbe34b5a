"""A tiny agent, a hand-made batch, and the losses of that batch once more in NumPy."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vcrl.agents import greedy, rainbow
from vcrl.agents.base import Agent
from vcrl.core.keys import Stream, key
from vcrl.core.protocol import Observation, Protocol
from vcrl.core.spec import Discrete, EnvSpec
from vcrl.core.types import Clock, Segment
from vcrl.methods.configs import SPR, VCR, Adam, Categorical, RainbowConfig, ReplayConfig, Slow, Terms

STEPS, BATCH, ACTIONS, ATOMS, STACK = 2, 4, 3, 11, 2
SUPPORT = np.linspace(-2.0, 2.0, ATOMS)
SPEC = EnvSpec((16, 16, 1), Discrete(ACTIONS))
SPR2, VCR2 = SPR(steps=STEPS), VCR(steps=STEPS, ramp=1000)
D_MSE = VCR(steps=STEPS, ramp=1000, taken="real", others="none")
D_MSE_A = VCR(steps=STEPS, ramp=1000, taken="real", others="all", taken_weight=0.0, others_weight=1.0)
SEED, CLOCK = jnp.asarray(6), Clock(jnp.asarray(700), jnp.asarray(41))


def config(**changes: Any) -> RainbowConfig:
    small = {
        "observation": Observation(stack=STACK),
        "encoder": "small",
        "hidden": 16,
        "value": Categorical(ATOMS, -2.0, 2.0),
        "n_step": 2,
        "gamma": 0.9,
        "batch": BATCH,
        "learn_start": 10,
        "replay": ReplayConfig(capacity=40),
        "target": Slow(rate=0.5, every=2),
        "adam": Adam(rate=1e-2, epsilon=1e-3, clip=1.0),
        "terms": Terms(spr=SPR2, vcr=VCR2),
    }
    return RainbowConfig(**(small | changes))


def agent(config: RainbowConfig, eval_epsilon: float = 0.0) -> Agent:
    protocol = Protocol("tiny", 1000, 1, None, 1, eval_epsilon)
    return rainbow.make_rainbow(config, SPEC, protocol)


def setup(agent: Agent) -> greedy.Setup:
    """What the agent's functions are bound to."""
    return agent.update.args[0]  # type: ignore


def segment(seed: int = 0, targets: int = STEPS + 1, steps: int = STEPS) -> Segment:
    """Four windows: none ends; a terminal at t; a terminal at t+1; a truncation whose pad row is t+2."""
    rng, shape = np.random.default_rng(seed), (steps + 1, BATCH)
    terminal, alive = np.zeros(shape, bool), np.ones(shape, np.float32)
    terminal[0, 1] = True
    if steps:
        terminal[1, 2] = True
        alive[1:, 1] = alive[2:, 2] = alive[2:, 3] = 0
    discount = np.full((targets, BATCH), 0.81, np.float32)
    discount[0, 1] = discount[:2, 2] = 0
    image = (16, 16, STACK)
    return Segment(
        obs=jnp.asarray(rng.integers(0, 256, (*shape, *image), np.uint8)),
        action=jnp.asarray(rng.integers(0, ACTIONS, shape), jnp.int32),
        reward=jnp.asarray(rng.normal(size=shape), jnp.float32),
        terminal=jnp.asarray(terminal),
        alive=jnp.asarray(alive),
        returns=jnp.asarray(rng.normal(size=(targets, BATCH)) * alive[:targets], jnp.float32),
        discount=jnp.asarray(discount * alive[:targets]),
        boot_obs=jnp.asarray(rng.integers(0, 256, (targets, BATCH, *image), np.uint8)),
        weight=jnp.asarray(rng.uniform(0.2, 1, BATCH), jnp.float32),
        slot=jnp.arange(BATCH),
    )


def leaves(tree: Any) -> dict[str, np.ndarray]:
    """Arrays by the path to them, such as `.q_head.advantage[0].weight_sigma`."""
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): np.asarray(x) for path, x in flat}


def all_pulls():
    """The losses of the full agent and of its variants, and what each pulls at, in one program.

    The last argument is the target network, the one before the online weights where they serve as a target.
    """
    setups = {
        "": setup(agent(config())),
        "d_mse": setup(agent(config(terms=Terms(spr=SPR2, vcr=D_MSE)))),
        "d_mse_a": setup(agent(config(terms=Terms(spr=SPR2, vcr=D_MSE_A)))),
        "single": setup(agent(config(double=False))),
    }

    def losses(nets: tuple, state: greedy.RainbowState, segment: Segment, clock: Clock, seed: jax.Array):
        online, frozen, target = nets
        state = state._replace(online=frozen, target=target)
        named = {n: greedy.losses(s, online, state, segment, clock, seed)[0] for n, s in setups.items()}
        out = (
            named[""] | {n: named[n]["vcr"] for n in ("d_mse", "d_mse_a")} | {"single": named["single"]["rl"]}
        )
        return out, out

    def pulls(state: greedy.RainbowState, segment: Segment, clock: Clock, seed: jax.Array):
        nets = (state.online, state.online, state.target)
        jacobian, losses_ = jax.jacrev(losses, has_aux=True)(nets, state, segment, clock, seed)
        return losses_, {name: Pull(*parts) for name, parts in jacobian.items()}

    return pulls


class Pull(NamedTuple):
    """The gradient of one loss."""

    online: Any
    frozen: Any  # at the online weights where they serve as a target
    target: Any


def readings(
    state: greedy.RainbowState, segment: Segment, online_noise: jax.Array, target_noise: jax.Array
) -> dict[str, Any]:
    """What the nets say of a batch: plain calls, one after the other, without augmentation."""
    online, target = state.online, state.target
    q, q_target = online.q_head.draw(online_noise), target.q_head.draw(target_noise)

    def encode(nets, obs):
        images = obs.astype(jnp.float32).reshape(-1, *obs.shape[2:]) / 255
        return nets.encoder(images).reshape(*obs.shape[:2], 3, 3, 16)

    def project(nets, states):
        flat = states.reshape(*states.shape[:2], -1)
        layers = (nets.q_head.advantage[0], nets.q_head.value[0])
        return jnp.concatenate([flat @ layer.weight + layer.bias for layer in layers], axis=-1)

    z, stats = encode(online, segment.obs[:1])[0], state.stats
    imagined = [z]
    for action in segment.action[:-1]:
        z, stats = online.transition(z, action, stats, learning=True)
        imagined.append(z)
    imagined, real = jnp.stack(imagined), encode(target, segment.obs[1:])
    predicted = project(online, imagined[1:])
    return {
        "imagined": q(imagined),  # logits K+1 B A N
        "real": q_target(real),
        "chooser": q(encode(online, segment.boot_obs)),
        "worth": q_target(encode(target, segment.boot_obs)),
        "predicted": predicted @ online.prediction.weight + online.prediction.bias,
        "projected": project(target, real),
        "stats": stats,
    }


def noises(clock: Clock = CLOCK) -> tuple[jax.Array, jax.Array]:
    """Of the online head: this update's. Of the target head: what the last update left in the online one."""
    return key(SEED, Stream.NOISE, clock.updates + 1), key(SEED, Stream.NOISE, clock.updates)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64)
    logits = logits - logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def bellman(probs: np.ndarray, returns: float, discount: float) -> np.ndarray:
    """C51's projection atom by atom: mass that falls between two atoms is split by nearness."""
    out, spacing = np.zeros(ATOMS), SUPPORT[1] - SUPPORT[0]
    for mass, atom in zip(probs, SUPPORT, strict=True):
        place = (np.clip(returns + discount * atom, SUPPORT[0], SUPPORT[-1]) - SUPPORT[0]) / spacing
        low = min(int(np.floor(place)), ATOMS - 2)
        out[low] += mass * (low + 1 - place)
        out[low + 1] += mass * (place - low)
    return out


def targets(read: dict[str, Any], segment: Segment, double: bool = True) -> np.ndarray:
    """y_k of facts 1.2, for every k and sample."""
    worth = np.exp(log_softmax(np.asarray(read["worth"])))
    chooser = np.exp(log_softmax(np.asarray(read["chooser"]))) if double else worth
    out = np.zeros((*segment.returns.shape, ATOMS))
    for k, b in np.ndindex(*segment.returns.shape):
        best = max(range(ACTIONS), key=lambda a: chooser[k, b, a] @ SUPPORT)
        out[k, b] = bellman(worth[k, b, best], float(segment.returns[k, b]), float(segment.discount[k, b]))
    return out


def by_hand(read: dict[str, Any], segment: Segment) -> dict[str, np.ndarray]:
    """Every loss of every sample, unweighted, and the KL divergence of the RL term."""
    log_p, target_p = log_softmax(np.asarray(read["imagined"])), np.exp(log_softmax(np.asarray(read["real"])))
    y, single = targets(read, segment), targets(read, segment, double=False)
    action, alive = np.asarray(segment.action), np.asarray(segment.alive)
    names = ("rl", "spr", "vcr", "d_mse", "d_mse_a", "single", "kl")
    out = {name: np.zeros(BATCH) for name in names}
    for b in range(BATCH):
        taken = log_p[0, b, action[0, b]]
        out["rl"][b], out["single"][b] = -y[0, b] @ taken, -single[0, b] @ taken
        some = y[0, b] > 0
        out["kl"][b] = y[0, b, some] @ (np.log(y[0, b, some]) - taken[some])
        for k in range(1, STEPS + 1):
            a = action[k, b]
            distance = [-target_p[k - 1, b, i] @ log_p[k, b, i] for i in range(ACTIONS)]
            others = np.mean([distance[i] for i in range(ACTIONS) if i != a])
            out["vcr"][b] += alive[k, b] * (-y[k, b] @ log_p[k, b, a] + 0.1 * others)
            out["d_mse"][b] += alive[k, b] * distance[a]
            out["d_mse_a"][b] += alive[k, b] * np.mean(distance)
            one, two = (np.asarray(read[n][k - 1, b], np.float64) for n in ("predicted", "projected"))
            cosine = one @ two / np.linalg.norm(one) / np.linalg.norm(two)
            strict = alive[k, b] * (not np.asarray(segment.terminal)[: k + 1, b].any())
            out["spr"][b] += strict * (2 - 2 * cosine)
    return out
