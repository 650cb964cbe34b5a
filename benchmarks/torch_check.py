"""Is the update in `torch_agent.py` that of the JAX agent? Run by `python benchmarks/eager.py --check`.

The JAX agent is made by its own `init`; its weights are copied into the PyTorch modules. Then both make two updates,
each from the same rows of the same replay with the same noise and the same augmented images, all drawn on the JAX
side. Compared are the gathered windows, the augmentation, every named loss, every gradient of every loss, the
priorities, the running statistics, and the weights' steps behind clipping and Adam.

All in float64. In float32, on such frames of noise, gradients of the transition model differ by up to a tenth though
the losses agree to 1e-6: rounding alone, as float64 shows, presumably of the few ReLUs that lie next to zero.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
import torch_agent as ta
from eager import SHAPES
from torch import Tensor

from vcrl import replay as rp
from vcrl.agents.greedy import RainbowNets, Setup, losses
from vcrl.agents.rainbow import make_rainbow
from vcrl.core.config import change
from vcrl.core.keys import Stream, key
from vcrl.core.protocol import Protocol
from vcrl.core.spec import EnvSpec
from vcrl.core.types import Clock, Segment
from vcrl.methods.configs import RainbowConfig
from vcrl.methods.library import resolve
from vcrl.nets.augment import augment
from vcrl.nets.encoders import LAYERS, state_shape

LIMIT = 1e-3
ROWS = 300
SEED = 3
UPDATES = 2  # the second shows Adam's averages, and noise and statistics that were kept


class Differences:
    """The largest relative difference of each kind of thing: largest error over largest value, array by array."""

    def __init__(self) -> None:
        self.worst: dict[str, tuple[float, str]] = {}

    def add(self, kind: str, name: str, torch_value: Any, jax_value: Any) -> None:
        ours, theirs = numpy_of(torch_value), numpy_of(jax_value)
        assert ours.shape == theirs.shape, f"{kind} {name}: shapes {ours.shape} and {theirs.shape}"
        error, size = np.max(np.abs(ours - theirs), initial=0.0), np.max(np.abs(theirs), initial=0.0)
        # Not a number is a difference too, and so is anything where there should be nothing.
        difference = 0.0 if error == 0 else float(error / size) if size > 0 else np.inf
        difference = np.inf if np.isnan(difference) else difference
        if difference >= self.worst.get(kind, (-1.0, ""))[0]:
            self.worst[kind] = (difference, name)


def numpy_of(value: Any) -> np.ndarray:
    return np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value, np.float64)


def check(methods: list[str], shape: str, device: str) -> bool:
    """Compare and print; whether all is within the limit."""
    print(f"relative differences, JAX on {jax.devices()[0].device_kind}, PyTorch on {device}, {shape} frames")
    fine = True
    for method in methods:
        with jax.enable_x64(True):
            found = compare(method, shape, device)
        for kind, (difference, name) in found.worst.items():
            verdict = "" if difference <= LIMIT else f"  MORE THAN {LIMIT:g}"
            print(f"{method:10s} {kind:22s} {difference:9.2e}  at {name}{verdict}", flush=True)
            fine &= difference <= LIMIT
    return fine


def compare(method: str, shape: str, device: str) -> Differences:
    spec, suite = SHAPES[shape]
    # So low that clipping acts.
    config = change(resolve(method, suite), "adam.clip", 0.05)
    agent = make_rainbow(config, spec, Protocol("check", 100_000, 4, None, 1, 0.0))
    setup: Setup = agent.update.args[0]  # bound there by make_rainbow
    found, state = Differences(), in_float64(jax.jit(agent.init)(jnp.int32(SEED)))
    nets = ta.Nets(config, spec.frame, spec.actions.n).double().to(device)
    latent = state_shape(spec.frame, LAYERS[config.encoder])
    copy_weights(nets, arranged(state.online, latent))
    optimiser = ta.optimiser_of(nets, config)
    replay = some_replay(spec)
    run = quick(lambda state, segment, clock: jax_update(setup, agent, state, segment, clock))

    for i in range(UPDATES):
        clock = Clock.at(config.learn_start + 5000, 7 + i)
        segment = in_float64(
            rp.sample(replay, jnp.int32(ROWS), agent.sample, clock, key(SEED, Stream.SAMPLE, clock.updates))
        )
        windows, images = torch_segment(segment, device), torch_images(segment, config, clock, device, found)
        compare_windows(found, replay, segment, windows, config, device)
        weight = ta.importance(
            tensor(replay.priority[segment.slot], device), float(rp.correction(agent.sample, clock))
        )
        found.add("importance weights", f"update {i}", weight, segment.weight)
        noise = ta.Noise(
            torch_noise(state.online, clock.updates + 1, latent, device),
            torch_noise(state.online, clock.updates, latent, device),
        )
        named, surprise = ta.losses(nets, images, noise, windows, config)
        new, named_jax, gradients, priority = run(state, segment, clock)

        parameters = dict(nets.named_parameters())
        assert named.keys() == named_jax.keys()
        for name in named:
            found.add(f"loss {name}", f"update {i}", named[name], named_jax[name])
            pulls = torch.autograd.grad(
                named[name], list(parameters.values()), retain_graph=True, allow_unused=True
            )
            for (path, p), pull in zip(parameters.items(), pulls, strict=True):
                theirs = arranged(gradients[name], latent)[path]
                found.add(f"gradient of {name}", path, torch.zeros_like(p) if pull is None else pull, theirs)
        found.add("priority", f"update {i}", ta.priorities(surprise, config), priority)

        before = {path: p.detach().clone() for path, p in parameters.items()}
        ta.descend(nets, optimiser, named, ta.weights(config, int(clock.agent_steps)), config.adam.clip)
        old_jax, new_jax = arranged(state.online, latent), arranged(new.online, latent)
        for path, p in parameters.items():
            found.add("clipped Adam step", path, p - before[path], new_jax[path] - old_jax[path])
        if nets.transition is not None:
            found.add("running statistics", "mean", nets.transition.norm.running_mean, new.stats.mean)
            found.add("running statistics", "variance", nets.transition.norm.running_var, new.stats.var)
        state = new
    return found


def in_float64(tree: Any) -> Any:
    return jax.tree.map(lambda x: x.astype(jnp.float64) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree)


def quick(function: Any) -> Any:
    """Compiled fast rather than well: it runs twice."""
    cpu = jax.default_backend() == "cpu"
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": "0"} if cpu else None)


def jax_update(setup: Setup, agent: Any, state: Any, segment: Segment, clock: Clock) -> tuple[Any, ...]:
    """New state, named losses, the gradient of each, priorities."""

    def named_of(online: RainbowNets) -> dict[str, Any]:
        return losses(setup, online, state, segment, clock, jnp.int32(SEED))[0]

    named, pull = jax.vjp(named_of, state.online)
    gradients = {name: pull({other: jnp.float64(other == name) for other in named})[0] for name in named}
    new, update = agent.update(state, segment, clock, jnp.int32(SEED))
    return new, named, gradients, update.priority


def arranged(nets: RainbowNets, latent: tuple[int, int, int]) -> dict[str, np.ndarray]:
    """Weights, or anything of their shape, under the names and in the layouts of the PyTorch modules."""
    out: dict[str, Any] = {}

    def conv(name: str, layer: Any) -> None:
        out.update({f"{name}.weight": layer.weight.transpose(3, 2, 0, 1), f"{name}.bias": layer.bias})

    for i, layer in enumerate(nets.encoder.convs):
        conv(f"encoder.convs.{i}", layer)
    for stream in ("advantage", "value"):
        for i, layer in enumerate(getattr(nets.q_head, stream)):
            for name in ("weight", "weight_sigma"):
                matrix = getattr(layer, name)
                out[f"head.{stream}.{i}.{name}"] = (channels_first(matrix, latent) if i == 0 else matrix).T
            for name in ("bias", "bias_sigma"):
                out[f"head.{stream}.{i}.{name}"] = getattr(layer, name)
    if nets.transition is not None:
        conv("transition.conv1", nets.transition.conv1)
        conv("transition.conv2", nets.transition.conv2)
        out |= {
            "transition.norm.weight": nets.transition.norm.scale,
            "transition.norm.bias": nets.transition.norm.bias,
        }
    if nets.prediction is not None:
        out |= {"prediction.weight": nets.prediction.weight.T, "prediction.bias": nets.prediction.bias}
    return {name: np.asarray(value) for name, value in out.items()}


def channels_first(rows: Any, latent: tuple[int, int, int]) -> Any:
    """An array whose first axis is a flattened state, from the order height, width, channel to PyTorch's."""
    return jnp.moveaxis(rows.reshape(*latent, -1), 2, 0).reshape(rows.shape)


def copy_weights(nets: ta.Nets, values: dict[str, np.ndarray]) -> None:
    parameters = dict(nets.named_parameters())
    assert parameters.keys() == values.keys(), parameters.keys() ^ values.keys()
    with torch.no_grad():
        for name, p in parameters.items():
            p.copy_(torch.from_numpy(values[name].copy()))


def torch_noise(nets: RainbowNets, counter: Any, latent: tuple[int, int, int], device: str) -> ta.HeadNoise:
    """The noise the JAX agent draws for the head at this counter."""
    layers = (*nets.q_head.advantage, *nets.q_head.value)
    normal = jax.random.normal(key(SEED, Stream.NOISE, counter), (sum(sum(x.weight.shape) for x in layers),))
    out: ta.HeadNoise = []
    for i, layer in enumerate(layers):
        inputs, outputs = layer.weight.shape
        into, of, normal = normal[:inputs], normal[inputs : inputs + outputs], normal[inputs + outputs :]
        into = channels_first(into, latent) if i % 2 == 0 else into
        out.append((ta.squashed(tensor(into, device)), ta.squashed(tensor(of, device))))
    return out


def torch_images(
    segment: Segment, config: RainbowConfig, clock: Clock, device: str, found: Differences
) -> ta.Images:
    """What the JAX agent's augmentation makes of the windows; beside it, whether ours makes the same."""
    boot, real, now = segment.boot_obs, segment.obs[1:], segment.obs[:1]
    keys = jax.random.split(key(SEED, Stream.AUGMENT, clock.updates))
    shift, intensity = config.augment.shift, config.augment.intensity
    out = []
    for k, obs in zip(keys, (jnp.concatenate([boot, boot, real]), now), strict=True):
        images = tensor(augment(k, obs, shift=shift, intensity=intensity), device).movedim(-1, -3)
        flat = tensor(obs, device).movedim(-1, -3).flatten(0, 1)
        # The same draws as in `augment`.
        chance = jax.random.uniform(k, (3, len(flat)), minval=1e-7, maxval=1.0)
        corner = tensor(jnp.floor(chance[:2].T * (2 * shift + 1)), device).long()
        brightness = tensor(1 + intensity * jnp.clip(jax.scipy.special.ndtri(chance[2]), -2, 2), device)
        found.add("augmentation", "images", ta.augment(flat, corner, brightness, shift), images.flatten(0, 1))
        out.append(images)
    choose, worth, real = out[0].split([len(boot), len(boot), len(real)])
    return ta.Images(out[1][0], choose, worth, real)


def torch_segment(segment: Segment, device: str) -> ta.Segment:
    values = {name: tensor(getattr(segment, name), device) for name in ta.Segment._fields}
    for name in ("obs", "boot_obs"):
        values[name] = values[name].movedim(-1, -3)
    return ta.Segment(**values | {name: values[name].long() for name in ("action", "slot")})


def compare_windows(
    found: Differences,
    replay: rp.Replay,
    segment: Segment,
    windows: ta.Segment,
    config: RainbowConfig,
    device: str,
) -> None:
    rows = {name: tensor(getattr(replay, name), device) for name in ta.Replay._fields}
    rows |= {"frame": rows["frame"].movedim(-1, -3), "action": rows["action"].long()}
    gathered = ta.gather(ta.Replay(**rows), tensor(segment.slot, device).long(), config)
    for name in ta.Segment._fields:
        if name != "weight":
            found.add("windows", name, getattr(gathered, name), getattr(windows, name))


def tensor(value: Any, device: str) -> Tensor:
    out = torch.from_numpy(np.array(value)).to(device)
    return out.double() if out.is_floating_point() else out


def some_replay(spec: EnvSpec) -> rp.Replay:
    """Short episodes, some cut off, with priorities as they come."""
    rng, number = np.random.default_rng(0), np.arange(ROWS)
    first = number % 20 == 0
    last = number % 20 == 19
    pad = last & (number // 20 % 3 == 0)  # every third episode is truncated
    return rp.init(spec, ROWS)._replace(
        frame=jnp.asarray(rng.integers(0, 256, (ROWS, *spec.frame), dtype=np.uint8)),
        action=jnp.asarray(rng.integers(0, spec.actions.n, ROWS).astype(np.int32)),
        reward=jnp.asarray(rng.integers(-1, 2, ROWS).astype(np.float32)),
        terminal=jnp.asarray(last & ~pad),
        first=jnp.asarray(first),
        pad=jnp.asarray(pad),
        priority=jnp.asarray(rng.uniform(0.1, 2.0, ROWS).astype(np.float32)),
    )
