"""The continuous agent's nets and losses once more, in NumPy and double precision, from their weights alone.

Modules are read and never called. Whatever carries no gradient is an argument of its own: a target, or `held` nets.
"""

from typing import Any

import jax
import numpy as np
from scipy.special import log_softmax
from scipy.stats import norm

from vcrl.core.types import Segment


def numbers(tree: Any) -> Any:
    """The same tree in double precision. Its modules are read, never called."""
    return jax.tree.map(lambda x: np.asarray(x, np.float64), tree)


def image(obs: Any) -> np.ndarray:
    return np.asarray(obs, np.float64) / 255


def relu(x: np.ndarray) -> np.ndarray:
    return x * (x > 0)


def linear(layer: Any, x: np.ndarray) -> np.ndarray:
    return x @ layer.weight + layer.bias


def layer_norm(layer: Any, x: np.ndarray) -> np.ndarray:
    mean, var = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(var + 1e-5) * layer.scale + layer.bias


def mlp(net: Any, x: np.ndarray) -> np.ndarray:
    for i, layer in enumerate(net.layers):
        x = linear(layer, relu(x) if i else x)
    return x


def convolved(encoder: Any, x: np.ndarray) -> np.ndarray:
    for conv in encoder.convs:
        size, stride = conv.weight.shape[0], conv.stride
        rows = (x.shape[1] - size) // stride + 1
        out = np.zeros((len(x), rows, rows, conv.weight.shape[-1])) + conv.bias
        for i, j in np.ndindex(size, size):
            out += x[:, i : i + stride * rows : stride, j : j + stride * rows : stride] @ conv.weight[i, j]
        x = relu(out)
    return x


def trunk(net: Any, seen: np.ndarray) -> np.ndarray:
    out = layer_norm(net.norm, linear(net.linear, seen.reshape(len(seen), -1)))
    return np.tanh(out) if net.tanh else out


def encoded(encoder: Any, image: np.ndarray) -> np.ndarray:
    """States of images with any leading axes."""
    flat = image.reshape(-1, *image.shape[-3:])
    out = trunk(encoder.trunk, convolved(encoder.convs, flat))
    return out.reshape(*image.shape[:-3], -1)


def critics(head: Any, state: np.ndarray, action: np.ndarray) -> np.ndarray:
    both = np.concatenate([state, action], axis=-1)
    return np.concatenate([mlp(head.one, both), mlp(head.two, both)], axis=-1)


def spread(actor: Any, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation before tanh, where the convolutions see this."""
    out = mlp(actor.layers, trunk(actor.trunk, seen))
    mean, log_std = np.split(out, 2, axis=-1)
    return mean, np.exp(-10 + 6 * (np.tanh(log_std) + 1))


def squashed(mean: np.ndarray, deviation: np.ndarray, normal: Any) -> tuple[np.ndarray, np.ndarray]:
    """Actions and the log of their density, by the change of variables."""
    before = mean + deviation * np.asarray(normal, np.float64)
    action = np.tanh(before)
    return action, np.sum(norm.logpdf(before, mean, deviation) - np.log(1 - action**2 + 1e-6), axis=-1)


def drawn(nets: Any, image: np.ndarray, normal: Any) -> tuple[np.ndarray, np.ndarray]:
    """The actor reads the critics' convolutions."""
    return squashed(*spread(nets.actor, convolved(nets.encoder.convs, image)), normal)


def moved(model: Any, state: np.ndarray, action: np.ndarray) -> np.ndarray:
    hidden = layer_norm(model.norm, linear(model.hidden, np.concatenate([state, action], axis=-1)))
    return linear(model.out, relu(hidden))


def rolled(model: Any, state: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """The states that follow, without the first."""
    states = [state]
    for action in actions:
        states.append(moved(model, states[-1], action))
    return np.stack(states[1:])


def decoded(decoder: Any, state: np.ndarray) -> np.ndarray:
    """Every input pixel puts its kernel, turned by half a circle, onto the picture."""
    x = relu(linear(decoder.linear, state)).reshape(len(state), *decoder.seen)
    for n, (weight, bias) in enumerate(zip(decoder.weights, decoder.biases, strict=True)):
        size, stride, x = weight.shape[0], decoder.strides[n], relu(x)
        shape = [(x.shape[1 + a] - 1) * stride + size + decoder.extra[n][a] for a in (0, 1)]
        out = np.zeros((len(x), *shape, weight.shape[-1])) + bias
        rows, columns = x.shape[1:3]
        for i, j in np.ndindex(size, size):
            down, right = size - 1 - i, size - 1 - j
            place = (
                slice(down, down + stride * rows, stride),
                slice(right, right + stride * columns, stride),
            )
            out[:, place[0], place[1]] += x @ weight[i, j]
        x = out
    return x


def apart(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """2 - 2 cos."""
    dot = np.sum(a * b, axis=-1)
    return 2 - 2 * dot / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)


# The losses


def soft_target(
    held: Any, target: Any, images: np.ndarray, normal: Any, returns: Any, discount: Any
) -> np.ndarray:
    """y of every image, whose leading axes are those of the returns."""
    flat = images.reshape(-1, *images.shape[-3:])
    action, log_prob = drawn(held, flat, normal)
    value = critics(target.q_head, encoded(target.encoder, flat), action).min(axis=-1)
    soft = (value - np.exp(held.log_alpha) * log_prob).reshape(returns.shape)
    return np.asarray(returns, np.float64) + np.asarray(discount, np.float64) * soft


def critic_loss(nets: Any, image: np.ndarray, action: Any, y: np.ndarray) -> float:
    q = critics(nets.q_head, encoded(nets.encoder, image), np.asarray(action, np.float64))
    return np.mean((q[:, 0] - y) ** 2) + np.mean((q[:, 1] - y) ** 2)


def actor_loss(nets: Any, held: Any, image: np.ndarray, normal: Any) -> float:
    """The convolutions and alpha are held."""
    seen = convolved(held.encoder.convs, image)
    action, log_prob = squashed(*spread(nets.actor, seen), normal)
    value = critics(nets.q_head, trunk(nets.encoder.trunk, seen), action).min(axis=-1)
    return np.mean(np.exp(held.log_alpha) * log_prob - value)


def term_losses(
    nets: Any, target: Any, segment: Segment, y: np.ndarray, chance: dict[str, Any]
) -> dict[str, float]:
    """Every term's mean over the batch. y is K B, and chance what each of them has drawn."""
    look, action = image(segment.obs), np.asarray(segment.action, np.float64)
    start, real = encoded(nets.encoder, look[0]), encoded(target.encoder, look[1:])
    imagined = rolled(nets.transition, start, action[:-1])
    out = {"spr": apart(predicted(nets, imagined), mlp(target.projection, real)).sum(axis=0)}
    taken, vcr = critics(nets.q_head, imagined, action[1:]), 0
    for k in range(len(imagined)):
        vcr = vcr + (taken[k, :, 0] - y[k]) ** 2 + (taken[k, :, 1] - y[k]) ** 2
        for a in np.moveaxis(np.asarray(chance["vcr"][k], np.float64), 1, 0):
            apart_ = critics(nets.q_head, imagined[k], a) - critics(target.q_head, real[k], a)
            vcr = vcr + 0.1 * np.sum(apart_**2, axis=-1) / chance["vcr"].shape[2]
    out["vcr"] = vcr
    cycle, known = [], mlp(target.projection, encoded(target.encoder, look[0]))
    for actions in np.moveaxis(np.asarray(chance["cycle"], np.float64), 1, 0):
        there = rolled(nets.transition, start, actions)[-1]
        cycle.append(apart(predicted(nets, rolled(nets.backward, there, actions[::-1])[-1]), known))
    out["cycle"] = np.mean(cycle, axis=0)
    likeness = start @ nets.likeness.bilinear @ encoded(target.encoder, look[0]).T
    out["crops"] = -np.diagonal(log_softmax(likeness, axis=1))
    out["reconstruction"] = redrawn(nets, segment.obs[0], start, chance["reconstruction"])
    return {name: float(np.mean(loss)) for name, loss in out.items()}


def predicted(nets: Any, state: np.ndarray) -> np.ndarray:
    return mlp(nets.prediction, mlp(nets.projection, state))


def redrawn(
    nets: Any, obs: Any, state: np.ndarray, uniform: Any, small: float = 0.01, decay: float = 0.02
) -> Any:
    """5 bits of each pixel and noise below them, in [-0.5, 0.5); a small state; a decoder of small weights."""
    target = (np.asarray(obs) // 8 + np.asarray(uniform, np.float64)) / 32 - 0.5
    error = np.mean((decoded(nets.decoder, state) - target) ** 2, axis=(1, 2, 3))
    weights = sum(np.sum(x**2) for x in jax.tree.leaves(nets.decoder))
    return error + small * 0.5 * np.sum(state**2, axis=-1) + decay * 0.5 * weights
