"""Losses as a user would write them, in a module of their own."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp

import vcrl
from vcrl.objectives import self_prediction


@vcrl.loss
def likeness(view, key):
    """SPR without its prediction head."""
    ended = jnp.cumsum(view.terminal.astype(jnp.float32), axis=0)[1:] > 0
    predicted = view.project(view.online, view.imagined[1:])
    target = view.project(view.target, view.real)
    return self_prediction(predicted, target, view.alive[1:] * (1 - ended))


@vcrl.loss(targets=True)
def taken(view, key):
    """The half of value consistency that looks at the actions taken."""
    reading = view.values.reading(view.q, view.imagined[1:], view.action[1:], key)
    said, _, _ = view.values.parted(reading, view.action[1:])
    return (view.alive[1:] * view.values.distance(said, view.td_target[1:])).sum(0), {"seen": view.alive[1:]}


def guesser(key, shape, actions):
    return eqx.nn.Linear(math.prod(shape), actions, key=key)


@vcrl.loss(nets=guesser)
def ending(view, key, scale=1.0):
    """Whether a game ends at an imagined state, told by a net of its own."""
    flat = view.imagined.reshape(*view.imagined.shape[:2], -1)
    said = jax.vmap(jax.vmap(view.online.own))(flat)[..., 0]
    wrong = jnp.logaddexp(0, said) - said * view.terminal
    return scale * (view.alive * wrong).sum(0)


def deep(key, shape, actions):
    """Layers with an activation between them, which is no array."""
    return eqx.nn.MLP(math.prod(shape), 1, 4, 1, key=key)


@vcrl.loss(nets=deep)
def layered(view, key):
    flat = view.imagined.reshape(*view.imagined.shape[:2], -1)
    return jax.vmap(jax.vmap(view.online.own))(flat)[..., 0].sum(0)


def counting(key, shape, actions):
    return jnp.arange(actions)


@vcrl.loss(nets=counting)
def counted(view, key):
    return view.alive[0] * view.online.own.sum()


@vcrl.loss(targets=True)
def target(view, key):
    """Not a loss to learn from: the target of the very first action."""
    return view.td_target[0].mean(axis=-1)


class Seen(Exception):
    """What a loss was shown."""


@vcrl.loss
def shapes(view, key):
    names = ("obs", "imagined", "real", "action", "reward", "terminal", "alive", "td_target", "reading")
    found = {name: getattr(view, name) for name in names} | {"bellman": view.bellman(view.q, view.q_target)}
    raise Seen({name: x.shape for name, x in found.items() if x is not None})


@vcrl.loss
def whole(view, key):
    """One number where one a sample is wanted."""
    return jnp.mean(view.imagined)


def unmarked(view, key):
    return view.alive[0]
