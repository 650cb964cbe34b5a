"""Rainbow, SPR and VCR on Atari in eager PyTorch: the mathematics of `vcrl.agents.rainbow`, for one seed.

Written as a researcher would write it, with modules, autograd and torch.optim, and without anything compiled or
captured. Where there is a choice the cheaper one is taken: replay and sampling are on the device, nothing within an
update waits for it, and as target weights are the online weights at the start of an update there is no copy of them,
and one pass without gradient encodes all states that need none.

Randomness stays outside `losses`, so that it can be given what the JAX agent drew.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vcrl.methods.configs import RainbowConfig

# (channels, kernel, stride) of each layer
LAYERS = {"nature": ((32, 8, 4), (64, 4, 2), (64, 3, 1)), "small": ((16, 4, 2), (16, 3, 2))}

LayerNoise = tuple[Tensor, Tensor]  # of a noisy layer's inputs and outputs
HeadNoise = list[LayerNoise]  # advantage 1, advantage 2, value 1, value 2


class Segment(NamedTuple):
    """`vcrl.core.types.Segment` with channels before height and width, less what no loss reads."""

    obs: Tensor  # uint8 K+1 B C H W
    action: Tensor  # K+1 B
    terminal: Tensor  # K+1 B
    alive: Tensor  # K+1 B
    returns: Tensor  # K' B
    discount: Tensor  # K' B
    boot_obs: Tensor  # uint8 K' B C H W
    weight: Tensor  # B
    slot: Tensor  # B


class Images(NamedTuple):
    """Augmented stacks, each with a draw of its own."""

    now: Tensor  # B C H W
    choose: Tensor  # K' B C H W, bootstrap states as the chooser of double-Q sees them
    worth: Tensor  # K' B C H W, as the target network sees them
    real: Tensor  # K B C H W


class Noise(NamedTuple):
    online: HeadNoise
    target: HeadNoise


class NoisyLinear(nn.Module):
    def __init__(self, inputs: int, outputs: int, sigma: float):
        super().__init__()
        bound = inputs**-0.5
        self.weight = nn.Parameter(torch.empty(outputs, inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((outputs, inputs), sigma * bound))
        self.bias_sigma = nn.Parameter(torch.full((outputs,), sigma * outputs**-0.5))

    def forward(self, x: Tensor, noise: LayerNoise | None = None) -> Tensor:
        if noise is None:
            return F.linear(x, self.weight, self.bias)
        into, out = noise
        weight = self.weight + self.weight_sigma * torch.outer(out, into)
        return F.linear(x, weight, self.bias + self.bias_sigma * out)

    def draw(self) -> LayerNoise:
        outputs, inputs = self.weight.shape
        normal = torch.randn(inputs + outputs, device=self.weight.device)
        return squashed(normal[:inputs]), squashed(normal[inputs:])


def squashed(normal: Tensor) -> Tensor:
    """f(x) = sign(x) sqrt|x| of factorised noise."""
    return normal.sign() * normal.abs().sqrt()


def renormalise(state: Tensor) -> Tensor:
    """Each sample's state to [0, 1]. Unlike min and max, amin and amax share the gradient among ties."""
    low, high = state.amin((-3, -2, -1), keepdim=True), state.amax((-3, -2, -1), keepdim=True)
    return (state - low) / (high - low + 1e-5)


class Encoder(nn.Module):
    def __init__(self, channels: int, layers: tuple[tuple[int, int, int], ...]):
        super().__init__()
        self.convs = nn.ModuleList()
        for outputs, size, stride in layers:
            self.convs.append(nn.Conv2d(channels, outputs, size, stride))
            channels = outputs

    def forward(self, x: Tensor) -> Tensor:
        for conv in self.convs:
            x = F.relu(conv(x))
        return renormalise(x)


class Head(nn.Module):
    """Dueling, noisy, distributional."""

    def __init__(self, inputs: int, hidden: int, actions: int, atoms: int, sigma: float):
        super().__init__()
        self.actions, self.atoms = actions, atoms
        self.advantage = nn.ModuleList(
            [NoisyLinear(inputs, hidden, sigma), NoisyLinear(hidden, actions * atoms, sigma)]
        )
        self.value = nn.ModuleList([NoisyLinear(inputs, hidden, sigma), NoisyLinear(hidden, atoms, sigma)])

    def forward(self, state: Tensor, noise: HeadNoise) -> Tensor:
        """Logits of every action's atoms: *n A N."""
        flat = state.flatten(-3)
        if flat.requires_grad:
            # Two streams push back into one state: 1/sqrt 2 keeps their joint gradient at the size of one.
            flat.register_hook(lambda gradient: gradient * 2**-0.5)
        advantage = self.advantage[1](F.relu(self.advantage[0](flat, noise[0])), noise[1])
        value = self.value[1](F.relu(self.value[0](flat, noise[2])), noise[3])
        advantage = advantage.unflatten(-1, (self.actions, self.atoms))
        return value.unsqueeze(-2) + advantage - advantage.mean(-2, keepdim=True)

    def project(self, state: Tensor) -> Tensor:
        """SPR's projection: the first layers without noise, ReLU or scaled gradient."""
        flat = state.flatten(-3)
        return torch.cat([self.advantage[0](flat), self.value[0](flat)], -1)

    def draw(self) -> HeadNoise:
        return [layer.draw() for layer in (*self.advantage, *self.value)]


class Transition(nn.Module):
    def __init__(self, channels: int, actions: int):
        super().__init__()
        self.actions = actions
        self.conv1 = nn.Conv2d(channels + actions, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        planes = F.one_hot(action, self.actions).to(state.dtype)[:, :, None, None]
        planes = planes.expand(-1, -1, *state.shape[2:])
        hidden = self.norm(F.relu(self.conv1(torch.cat([state, planes], 1))))
        return renormalise(F.relu(self.conv2(hidden)))


class Nets(nn.Module):
    """What a method has no use for is None."""

    def __init__(self, config: RainbowConfig, frame: tuple[int, int, int], actions: int):
        super().__init__()
        value = config.value
        height, width, channels = frame
        self.encoder = Encoder(channels * config.observation.stack, LAYERS[config.encoder])
        with torch.no_grad():
            shape = self.encoder(torch.zeros(1, channels * config.observation.stack, height, width)).shape
        self.head = Head(math.prod(shape), config.hidden, actions, value.atoms, config.noise)
        self.transition = Transition(shape[1], actions) if imagined_steps(config) else None
        self.prediction = nn.Linear(2 * config.hidden, 2 * config.hidden) if config.terms.spr else None
        self.register_buffer("support", torch.linspace(value.low, value.high, value.atoms), persistent=False)


def imagined_steps(config: RainbowConfig) -> int:
    return max((term.steps for term in (config.terms.spr, config.terms.vcr) if term), default=0)


def losses(
    nets: Nets, images: Images, noise: Noise, segment: Segment, config: RainbowConfig
) -> tuple[dict[str, Tensor], Tensor]:
    """Every named loss of one batch, unweighted, and the surprise of each sample."""
    with torch.no_grad():
        choose, worth, real = encoded(nets, images.choose, images.worth, images.real)
        best = (nets.head(choose, noise.online).softmax(-1) @ nets.support).argmax(-1)
        reading = nets.head(torch.cat([worth, real]), noise.target).softmax(-1)
        worth_of, real_of = reading[: len(worth)], reading[len(worth) :]
        target = bellman(pick(worth_of, best), segment.returns, segment.discount, nets.support)

    states = [nets.encoder(images.now)]
    for k in range(imagined_steps(config)):
        states.append(nets.transition(states[-1], segment.action[k]))
    imagined = torch.stack(states)

    # Without VCR the head reads the real state only.
    read = imagined if config.terms.vcr else imagined[:1]
    log_prob = nets.head(read, noise.online).log_softmax(-1)
    taken = pick(log_prob, segment.action[: len(read)])
    rl = cross_entropy(taken[0], target[0])
    named = {"rl": rl}
    if config.terms.spr:
        steps = config.terms.spr.steps
        named["spr"] = self_prediction(nets, imagined[1 : steps + 1], real[:steps], segment)
    if config.terms.vcr:
        vcr, ahead = config.terms.vcr, slice(1, config.terms.vcr.steps + 1)
        first = cross_entropy(taken[ahead], target[ahead])
        each = cross_entropy(log_prob[ahead], real_of[: vcr.steps])
        # The mean over the actions not taken.
        second = (each.sum(-1) - pick(each[..., None], segment.action[ahead])[..., 0]) / (each.shape[-1] - 1)
        named["vcr"] = (segment.alive[ahead] * (vcr.taken_weight * first + vcr.others_weight * second)).sum(0)

    with torch.no_grad():
        surprise = rl - cross_entropy(target[0].clamp_min(1e-30).log(), target[0])
    return {name: (segment.weight * loss).mean() for name, loss in named.items()}, surprise


def encoded(nets: Nets, *images: Tensor) -> tuple[Tensor, ...]:
    """States of several sequences of images in one pass."""
    counts = [len(i) for i in images]
    joint = torch.cat(images)
    return nets.encoder(joint.flatten(0, 1)).unflatten(0, joint.shape[:2]).split(counts)


def self_prediction(nets: Nets, imagined: Tensor, real: Tensor, segment: Segment) -> Tensor:
    """SPR: sum over k of 2 - 2 cos, where nothing ended at t..t+k."""
    ahead = slice(1, len(imagined) + 1)
    predicted = nets.prediction(nets.head.project(imagined))
    with torch.no_grad():
        target = nets.head.project(real)
    distance = (F.normalize(predicted, dim=-1, eps=1e-3) - F.normalize(target, dim=-1, eps=1e-3)).square()
    going = segment.terminal.cumsum(0)[ahead] == 0
    return (segment.alive[ahead] * going * distance.sum(-1)).sum(0)


def cross_entropy(log_prob: Tensor, target: Tensor) -> Tensor:
    return -(target * log_prob).sum(-1)


def pick(values: Tensor, action: Tensor) -> Tensor:
    """*n A E, *n -> *n E"""
    index = action[..., None, None].expand(*action.shape, 1, values.shape[-1])
    return values.gather(-2, index).squeeze(-2)


def bellman(probs: Tensor, returns: Tensor, discount: Tensor, support: Tensor) -> Tensor:
    """The distribution of return + discount * Z, projected back onto the support."""
    low, high, spacing = support[0], support[-1], support[1] - support[0]
    values = (returns[..., None] + discount[..., None] * support).clamp(low, high)
    share = (1 - (values[..., None] - support).abs() / spacing).clamp(0, 1)
    return (share * probs[..., None]).sum(-2)


def weights(config: RainbowConfig, agent_steps: int) -> dict[str, float]:
    """The weight of every named loss at this moment."""
    out = {"rl": 1.0}
    if config.terms.spr:
        out["spr"] = config.terms.spr.weight
    if config.terms.vcr:
        ramp = config.terms.vcr.ramp
        left = min(max(1 - (agent_steps + 1) / ramp, 0.0), 1.0) if ramp else 0.0
        out["vcr"] = config.terms.vcr.weight * math.exp(-5 * left**2)
    return out


def optimiser_of(nets: Nets, config: RainbowConfig) -> torch.optim.Adam:
    return torch.optim.Adam(nets.parameters(), lr=config.adam.rate, eps=config.adam.epsilon)


def descend(
    nets: Nets,
    optimiser: torch.optim.Optimizer,
    named: dict[str, Tensor],
    weight: dict[str, float],
    clip: float,
) -> None:
    """One step down the weighted sum; encoder and head are clipped together, the transition model by itself."""
    optimiser.zero_grad()
    sum(weight[name] * loss for name, loss in named.items()).backward()
    nn.utils.clip_grad_norm_([*nets.encoder.parameters(), *nets.head.parameters()], clip)
    if nets.transition is not None:
        nn.utils.clip_grad_norm_(nets.transition.parameters(), clip)
    optimiser.step()


def priorities(surprise: Tensor, config: RainbowConfig) -> Tensor:
    return surprise.clamp(1e-6, 1e6) ** config.replay.priority.exponent


def augment(obs: Tensor, corner: Tensor, brightness: Tensor, shift: int) -> Tensor:
    """Pad each stack with its edge, crop it at its corner, and scale its brightness: N C H W, N 2, N."""
    images = obs.float() / 255
    if shift:
        height, width = images.shape[-2:]
        padded = F.pad(images, (shift,) * 4, mode="replicate")
        crops = padded.unfold(2, height, 1).unfold(3, width, 1)  # N C y x H W, a view
        images = crops[torch.arange(len(obs), device=obs.device), :, corner[:, 0], corner[:, 1]]
    return images * brightness[:, None, None, None]


def draw_images(segment: Segment, config: RainbowConfig) -> Images:
    """All stacks of an update, augmented."""
    boot, real, now = segment.boot_obs, segment.obs[1:], segment.obs[:1]
    joint = torch.cat([boot, boot, real, now])
    flat, device, shift = joint.flatten(0, 1), joint.device, config.augment.shift
    corner = torch.randint(0, 2 * shift + 1, (len(flat), 2), device=device)
    brightness = 1 + config.augment.intensity * torch.randn(len(flat), device=device).clamp(-2, 2)
    images = augment(flat, corner, brightness, shift).unflatten(0, joint.shape[:2])
    choose, worth, real, now = images.split([len(boot), len(boot), len(real), 1])
    return Images(now[0], choose, worth, real)


class Replay(NamedTuple):
    """Single frames and what belongs to them, all on the device."""

    frame: Tensor  # uint8 Cap C H W
    action: Tensor
    reward: Tensor
    terminal: Tensor
    first: Tensor
    pad: Tensor
    priority: Tensor


def random_replay(capacity: int, frame: tuple[int, int, int], actions: int, device: str) -> Replay:
    """A full one: the arithmetic does not depend on what is in it."""
    height, width, channels = frame
    number = torch.arange(capacity, device=device)
    return Replay(
        frame=torch.randint(0, 256, (capacity, channels, height, width), dtype=torch.uint8, device=device),
        action=torch.randint(0, actions, (capacity,), device=device),
        reward=torch.randint(-1, 2, (capacity,), device=device).float(),
        terminal=number % 50 == 49,
        first=number % 50 == 0,
        pad=torch.zeros(capacity, dtype=torch.bool, device=device),
        priority=torch.ones(capacity, device=device),
    )


def sample(replay: Replay, at: int, config: RainbowConfig, beta: float) -> Segment:
    """A batch in proportion to priority, when `at` rows have been written; `beta` corrects the importance."""
    capacity, window = len(replay.reward), imagined_steps(config) + config.n_step + 1
    mass = torch.where(replay.pad, 0, replay.priority)
    # The newest rows, whose windows are not written yet, and the oldest, whose stacks are overwritten.
    newest = torch.arange(at - window, at + config.observation.stack - 1, device=mass.device)
    mass[newest % capacity] = 0
    slot = torch.multinomial(mass, config.batch, replacement=True)
    return gather(replay, slot, config)._replace(weight=importance(mass[slot], beta))


def importance(priority: Tensor, beta: float) -> Tensor:
    weight = (1 / (priority + 1e-5)) ** beta
    return weight / weight.max()


def gather(replay: Replay, slot: Tensor, config: RainbowConfig) -> Segment:
    """The windows that start at the given slots, with unit weights."""
    capacity, device = len(replay.reward), slot.device
    steps, n = imagined_steps(config), config.n_step
    targets = steps + 1 if config.terms.vcr else 1
    offset = torch.arange(steps + n + 1, device=device)[:, None]
    rows = (slot + offset) % capacity
    reward, terminal, pad = replay.reward[rows], replay.terminal[rows], replay.pad[rows]

    # n-step returns: a sum runs until a terminal, which counts, or a pad row, which does not.
    reward_to, terminal_to, pad_to = (x.unfold(0, n, 1)[:targets] for x in (reward, terminal, pad))  # K' B n
    over = F.pad(terminal_to[..., :-1], (1, 0)) | pad_to
    going = over.cumsum(-1) == 0
    gamma = config.gamma ** torch.arange(n, device=device)
    returns, taken = (going * gamma * reward_to).sum(-1), going.sum(-1)
    discount = config.gamma**taken * ~(going & terminal_to).any(-1)

    exists = F.pad((terminal | pad)[:-1], (0, 0, 1, 0)).cumsum(0) == 0
    alive = (exists & ~pad).float()
    last = exists.sum(0) - 1  # the offset of the episode's last state
    seen = offset[: steps + 1]
    return Segment(
        obs=stacks(replay, slot + torch.minimum(seen, last), config.observation.stack),
        action=replay.action[rows[: steps + 1]],
        terminal=terminal[: steps + 1],
        alive=alive[: steps + 1],
        returns=alive[:targets] * returns,
        discount=alive[:targets] * discount,
        boot_obs=stacks(
            replay, slot + torch.minimum(offset[:targets] + taken, last), config.observation.stack
        ),
        weight=torch.ones(len(slot), device=device),
        slot=slot,
    )


def stacks(replay: Replay, slot: Tensor, stack: int) -> Tensor:
    """Frame stacks, oldest first, zero before an episode's start: T B C H W."""
    slots = (slot[..., None] + torch.arange(1 - stack, 1, device=slot.device)) % len(replay.reward)
    starts = replay.first[slots].long()
    shown = starts.flip(-1).cumsum(-1).flip(-1) - starts == 0
    return (replay.frame[slots] * shown[..., None, None, None]).flatten(2, 3)


class TorchAgent:
    """An agent in the middle of its training, its replay full of noise."""

    def __init__(
        self, config: RainbowConfig, frame: tuple[int, int, int], actions: int, capacity: int, device: str
    ):
        self.config, self.at, self.agent_steps = config, capacity, 50_000
        self.nets = Nets(config, frame, actions).to(device)
        self.optimiser = optimiser_of(self.nets, config)
        self.replay = random_replay(capacity, frame, actions, device)
        self.noise = self.nets.head.draw()

    def update(self) -> None:
        config = self.config
        segment = sample(self.replay, self.at, config, beta=0.7)
        # The target head keeps the noise of the update before.
        noise = Noise(online=self.nets.head.draw(), target=self.noise)
        self.noise = noise.online
        named, surprise = losses(self.nets, draw_images(segment, config), noise, segment, config)
        descend(self.nets, self.optimiser, named, weights(config, self.agent_steps), config.adam.clip)
        # A slot drawn twice gets its first priority: the order of a scatter is undefined on a GPU.
        first = (segment.slot[:, None] == segment.slot).int().argmax(1)
        self.replay.priority[segment.slot] = priorities(surprise.detach(), config)[first]
