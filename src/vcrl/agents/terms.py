"""The auxiliary objectives: each reads a `View` and returns one loss a sample.

A term's numbers are a frozen dataclass in `methods.configs`; what it computes is here, bound to it by `TERMS`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from vcrl.agents.base import View
from vcrl.core.errors import UserError
from vcrl.core.types import Clock, Metrics
from vcrl.methods.configs import (
    SPR,
    VCR,
    Contrast,
    ControlTerms,
    Crops,
    Cycle,
    Own,
    Reconstruction,
    Reward,
    Terms,
)
from vcrl.methods.own import found, known
from vcrl.nets.augment import crop_and_pad
from vcrl.nets.transition import imagine
from vcrl.objectives import (
    cycle_consistency,
    gaussian_ramp,
    info_nce,
    reward_prediction,
    self_prediction,
    value_consistency,
)

ALONG = ("obs", "imagined", "action", "reward", "terminal", "alive")
Loss = tuple[Float[Array, " B"], Metrics]


def spr(term: SPR, view: View, key: Array) -> Loss:
    """L_SPR: the predicted projection of imagined states against the target projection of the real ones."""
    ahead = slice(1, term.steps + 1)
    predicted = view.project(view.online, view.imagined[ahead])
    if term.prediction:
        predicted = view.online.prediction(predicted)
    target = view.project(view.target, view.real[: term.steps])
    # The reference drops the last state of an episode too: no terminal may occur at t..t+k, both ends included.
    ended = jnp.cumsum(view.terminal.astype(jnp.float32), axis=0)[ahead] > 0
    loss = self_prediction(predicted, target, view.alive[ahead] * (1 - ended.astype(jnp.float32)))
    return loss / (term.steps if term.over == "mean" else 1), {}


def vcr(term: VCR, view: View, key: Array) -> Loss:
    """L_VCR: the Q head on imagined states against a Bellman target (action taken) and Q_T on real ones (others)."""
    ahead = slice(1, term.steps + 1)
    values, imagined, real, action = (
        view.values,
        view.imagined[ahead],
        view.real[: term.steps],
        view.action[ahead],
    )
    q, q_target, known = view.q, view.q_target, view.reading
    if not term.noise:
        q, q_target, known = view.online.q_head.mean(), view.target.q_head.mean(), None
    reading = values.reading(q, imagined, action, key) if known is None else known[ahead]
    taken, others, keep = values.parted(reading, action)
    # A clone of the key: the same actions are drawn on both sides on purpose.
    reading = values.reading(q_target, real, action, jax.random.clone(key))
    same, others_target = (values.as_target(x) for x in values.parted(reading, action)[:2])
    taken_target = {
        "n-step": lambda: (view.td_target if term.noise else view.bellman(q, q_target))[ahead],
        "real": lambda: same,
    }[term.taken]()
    keep = {"others": keep, "all": jnp.ones_like(keep), "none": jnp.zeros_like(keep)}[term.others]
    loss, parts = value_consistency(
        taken, taken_target, others, others_target, keep, _counted(term, view)[ahead],
        distance=values.distance, taken_weight=term.taken_weight, others_weight=term.others_weight,
        summed=term.over == "sum",
    )  # fmt: skip
    return loss, {f"vcr/{name}": part for name, part in parts.items()}


def _counted(term: VCR, view: View) -> Float[Array, "T B"]:
    """1 at states that count. Absorbing, that is also those behind a terminal: their target is 0, their image the last.

    Behind a cut by the time limit nothing is known, so nothing counts there either way.
    """
    if term.ends == "mask":
        return view.alive
    over = jnp.cumsum(view.alive * view.terminal.astype(jnp.float32), axis=0)
    return view.alive + jnp.concatenate([jnp.zeros_like(over[:1]), over[:-1]])


def reward(term: Reward, view: View, key: Array) -> Loss:
    """The sign of r_{t+k-1} told from the imagined state t+k, the reward of a terminal transition included."""
    # A batch norm sees one step at a time, as in the transition model.
    logits = jax.vmap(view.online.reward)(view.imagined[1 : term.steps + 1])
    return reward_prediction(logits, view.reward[: term.steps], view.alive[: term.steps]), {}


def cycle(term: Cycle, view: View, key: Array) -> Loss:
    """PlayVirtual: K steps along random actions, K steps back along the same; the start against a real look at it.

    Running statistics are not touched: they describe the states along real actions.
    """
    nets, start, obs = view.online, view.imagined[0], view.obs[0]
    forward, backward = nets.transition, nets.backward
    copies, (virtual, fresh) = term.copies * forward.variety, jax.random.split(key)
    actions = forward.draw(virtual, (term.steps, copies * len(start)))
    many = jnp.broadcast_to(start, (copies, *start.shape)).reshape(-1, *start.shape[1:])
    there, _ = imagine(forward, many, actions, forward.stats(), learning=True)
    back, _ = imagine(backward, there[-1], actions[::-1], backward.stats(), learning=True)
    returned = nets.prediction(view.project(nets, back[-1].reshape(copies, *start.shape)))
    looks = view.encode(
        view.target.encoder.without_gradient, fresh, jnp.broadcast_to(obs, (copies, *obs.shape))
    )
    going = 1 - view.terminal[0].astype(jnp.float32)
    return cycle_consistency(returned, view.project(view.target, looks), going), {}


def contrast(term: Contrast, view: View, key: Array) -> Loss:
    """CURL: each crop seen by the online nets has to find the other crop of its image, seen by their slow copy."""
    one, two = (crop_and_pad(k, view.obs[0], term.crop) for k in jax.random.split(key))
    anchor = view.online.contrast(view.online.encoder(one))
    other = view.momentum.contrast(view.momentum.encoder(two))
    loss = info_nce(anchor, other, view.online.contrast.bilinear, term.scale)
    # The reference adds the mean over the batch to the loss of every sample, so that priorities share it.
    return jnp.broadcast_to(jnp.mean(loss), loss.shape), {}


def crops(term: Crops, view: View, key: Array) -> Loss:
    """CURL where states are vectors: they are compared as they are, with those of the target encoder."""
    one, two = jax.random.split(key)
    anchor = view.encode(view.online.encoder, one, view.obs[:1])[0]
    other = view.encode(view.target.encoder.without_gradient, two, view.obs[:1])[0]
    return info_nce(anchor, other, view.online.likeness.bilinear), {}


def reconstruction(term: Reconstruction, view: View, key: Array) -> Loss:
    """SAC+AE: the stack drawn again from its state, against its first bits with noise in place of the rest."""
    obs, state, decoder = view.obs[0], view.imagined[0], view.online.decoder
    levels = 2**term.bits
    kept = jnp.floor(obs.astype(jnp.float32) / 2 ** (8 - term.bits))
    target = (kept + jax.random.uniform(key, obs.shape)) / levels - 0.5
    error = jnp.mean(jnp.square(decoder(state) - target), axis=(-3, -2, -1))
    size = 0.5 * jnp.sum(jnp.square(state), axis=-1)
    weights = 0.5 * optax.tree.norm(decoder, squared=True)
    return error + term.small * size + term.decay * weights, {"reconstruction/error": error}


def own(term: Own, view: View, key: Array) -> Loss:
    """What the user's function says of as many steps as it wants, checked."""
    loss, ahead = found(term.loss), slice(term.steps + 1)
    bellman, reading = view.bellman, view.reading
    view = view._replace(
        real=view.real[: term.steps],
        td_target=view.td_target[ahead if loss.targets else slice(0)],
        bellman=lambda *heads: bellman(*heads)[ahead],
        reading=None if reading is None else reading[ahead],
        **{name: getattr(view, name)[ahead] for name in ALONG},
    )
    if loss.nets is not None:
        # The state has their arrays alone; what else there is in them, such as activations, is made anew.
        whole = eqx.filter_eval_shape(loss.nets, key, view.imagined.shape[2:], view.actions)
        rest = eqx.filter(whole, lambda leaf: not isinstance(leaf, jax.ShapeDtypeStruct))
        nets = {"online": view.online, "target": view.target}
        there = {name: each for name, each in nets.items() if getattr(each, "own", None) is not None}
        view = view._replace(
            **{
                name: dataclasses.replace(each, own=eqx.combine(each.own, rest))
                for name, each in there.items()
            }
        )
    said = loss(view, key, **dict(term.numbers))
    value, metrics = said if isinstance(said, tuple) else (said, {})
    samples = view.alive.shape[1:]
    if jnp.shape(value) != samples:
        raise UserError(
            f"the loss {term.loss} gave numbers of shape {jnp.shape(value)}: one a sample is needed, {samples}"
        )
    return value, {f"own/{name}": number for name, number in metrics.items()}


def own_nets(term: Own | None, key: Array, shape: tuple[int, ...], actions: int) -> Any:
    """The arrays that a loss of one's own learns besides the agent's nets; a state has this shape.

    None if there are none, and where the loss is not imported: to play it is not needed.
    """
    loss = None if term is None else known(term.loss, term.code)
    if term is None or loss is None or loss.nets is None:
        return None
    arrays, rest = eqx.partition(loss.nets(key, shape, actions), eqx.is_inexact_array)
    for leaf in filter(eqx.is_array, jax.tree.leaves(rest)):
        raise UserError(f"the nets of {term.loss} have an array of {leaf.dtype}: only floats can be learned")
    return arrays


TERMS: dict[type, Callable[[Any, View, Array], Loss]] = {
    SPR: spr,
    VCR: vcr,
    Reward: reward,
    Cycle: cycle,
    Contrast: contrast,
    Crops: crops,
    Reconstruction: reconstruction,
    Own: own,
}


def present(terms: Terms | ControlTerms) -> dict[str, Any]:
    """The terms a method has, by name."""
    return {name: term for name, term in vars(terms).items() if term is not None}


def weight_at(term: Any, clock: Clock, repeat: int = 1) -> Float[Array, ""]:
    """A term's weight at this moment, its ramp included, which counts env steps."""
    return term.weight * gaussian_ramp(repeat * clock.agent_steps, getattr(term, "ramp", 0))


def steps_of(term: Any) -> int:
    """How many states a term imagines."""
    return getattr(term, "steps", 0)


def wants_reading(term: Any) -> bool:
    """Whether a term needs the values of imagined states under the noise of the RL loss."""
    return isinstance(term, VCR) and term.noise


def wants_targets(term: Any) -> bool:
    """Whether a term needs Bellman targets at imagined steps, and not only at the real one."""
    if isinstance(term, Own):
        loss = known(term.loss, term.code)
        return loss is not None and loss.targets
    return isinstance(term, VCR) and term.taken == "n-step"
