"""Replay of one seed, as arrays on the device: frames are stored once, stacks are rebuilt when sampled."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt8

from vcrl.core.spec import Box, EnvSpec
from vcrl.core.types import Clock, Row, Segment
from vcrl.objectives.td import n_step


class Replay(NamedTuple):
    """Row i of each array is one agent step. The write position is shared by all seeds and lives outside."""

    frame: UInt8[Array, "Cap H W C"]
    action: Array
    reward: Float[Array, " Cap"]
    terminal: Bool[Array, " Cap"]
    first: Bool[Array, " Cap"]
    pad: Bool[Array, " Cap"]
    priority: Float[Array, " Cap"]
    top: Float[Array, ""] | None = None  # the largest priority so far; None: new rows get 1, not that


class Sample(NamedTuple):
    """What an agent wants of each batch."""

    batch: int
    steps: int  # K: states t..t+K
    targets: int  # K': states that need an n-step target, t..t+K'-1
    n: int
    gamma: float
    stack: int
    prioritised: bool
    # Exponent of the importance weights, first and last, and the agent steps between which it moves linearly.
    correction: tuple[float, float] = (1.0, 1.0)
    span: tuple[int, int] = (0, 1)
    top: bool = False  # new rows get the largest priority so far
    fill: str = "zeros"  # what stands for frames before an episode's start: "zeros", or its "first" frame
    whole: bool = False  # only windows t..t+K in one episode, with the state behind their last action

    @property
    def window(self) -> int:
        """Rows a sample reads from its start on; newer starts than this are not drawn."""
        return self.steps + self.n + 1


def init(spec: EnvSpec, capacity: int, top: bool = False) -> Replay:
    shape, kind = (
        ((), jnp.int32) if not isinstance(spec.actions, Box) else ((spec.actions.size,), jnp.float32)
    )
    flag = jnp.zeros(capacity, bool)
    return Replay(
        frame=jnp.zeros((capacity, *spec.frame), jnp.uint8),
        action=jnp.zeros((capacity, *shape), kind),
        reward=jnp.zeros(capacity),
        terminal=flag,
        first=jnp.zeros_like(flag),
        pad=jnp.zeros_like(flag),
        priority=jnp.zeros(capacity),
        top=jnp.ones(()) if top else None,
    )


def insert(replay: Replay, row: Row, at: Int[Array, ""]) -> Replay:
    """Write row number `at` (counted from the start of the run) over the oldest one, at priority 1 or the top.

    A row of a number below 0 is none, and is not written.
    """
    slot = jnp.where(at < 0, len(replay.reward), at % len(replay.reward))
    arrays = (*steps_of(replay), replay.priority)
    values = (*row, jnp.ones(()) if replay.top is None else replay.top)
    written = (
        x.at[slot].set(jnp.asarray(v, x.dtype), mode="drop") for x, v in zip(arrays, values, strict=True)
    )
    return Replay(*written, top=replay.top)


def steps_of(replay: Replay) -> Row:
    """The agent steps themselves, without what the replay adds to them."""
    return Row(replay.frame, replay.action, replay.reward, replay.terminal, replay.first, replay.pad)


def rows(replay: Replay, start: Int[Array, ""], count: int) -> Row:
    """Row number `start` of the run and those that follow, `count` in all; without their priorities."""
    slot = (start + jnp.arange(count)) % replay.reward.shape[0]
    return Row(*(x[slot] for x in steps_of(replay)))


def fill(replay: Replay, row: Row, start: Int[Array, ""], count: Int[Array, ""]) -> Replay:
    """Write the first `count` of these rows where `rows` found them; priorities are left alone."""
    capacity, at = replay.reward.shape[0], jnp.arange(row.reward.shape[0])
    slot = jnp.where(at < count, (start + at) % capacity, capacity)  # beyond the end: dropped
    parts = (x.at[slot].set(r, mode="drop") for x, r in zip(steps_of(replay), row, strict=True))
    return Replay(*parts, priority=replay.priority, top=replay.top)


def sampleable(replay: Replay, at: Int[Array, ""], spec: Sample) -> Bool[Array, " Cap"]:
    """Starts whose window is written and whose stack is not yet overwritten, when `at` rows have been written.

    One row more than the window needs is left out: the row of this very agent step would be the newest, and
    learning does not wait for it.
    """
    capacity = replay.reward.shape[0]
    number = at - 1 - (at - 1 - jnp.arange(capacity)) % capacity  # which row of the run a slot holds
    oldest = jnp.where(at > capacity, at - capacity + spec.stack - 1, 0)
    free = (number >= oldest) & (number <= at - spec.window - 1) & ~replay.pad
    if spec.whole:
        for ahead in range(spec.steps + 1):
            free &= ~jnp.roll(replay.terminal, -ahead) & ~jnp.roll(replay.pad, -ahead - 1)
    return free


def correction(spec: Sample, clock: Clock) -> Float[Array, ""]:
    """The exponent beta of the importance weights at this moment."""
    (low, high), (start, end) = spec.correction, spec.span
    done = (clock.agent_steps.astype(jnp.float32) - start) / max(end - start, 1)
    return low + (high - low) * jnp.clip(done, 0.0, 1.0)


def sample(replay: Replay, at: Int[Array, ""], spec: Sample, clock: Clock, key: Array) -> Segment:
    """A batch of windows with replacement, in proportion to priority or uniformly, with importance weights."""
    mass = jnp.where(sampleable(replay, at, spec), replay.priority if spec.prioritised else 1.0, 0.0)
    slot = draw(mass, jax.random.uniform(key, (spec.batch,)))
    if spec.prioritised:
        # The reference divides by the stored priority itself, not by a probability; the batch maximum cancels both.
        weight = (1 / (mass[slot] + 1e-5)) ** correction(spec, clock)
        weight = weight / jnp.max(weight)
    else:
        weight = jnp.ones(spec.batch)
    return gather(replay, slot, spec)._replace(weight=weight)


def gather(replay: Replay, slot: Int[Array, " B"], spec: Sample) -> Segment:
    """The windows that start at the given slots, with unit weights."""
    capacity = replay.reward.shape[0]

    def rows(array: Array, offset: Array) -> Array:
        return array[(slot[None] + offset) % capacity]

    offset = jnp.arange(spec.window)[:, None]
    reward, terminal, pad = (rows(x, offset) for x in (replay.reward, replay.terminal, replay.pad))
    ahead = n_step(reward, terminal, pad, n=spec.n, gamma=spec.gamma)

    # A state t+k exists while nothing before it was terminal and it does not lie behind a pad row. The pad row's own
    # state can be bootstrapped from, but no action was taken on it, so it counts as not alive.
    gone = jnp.concatenate([jnp.zeros_like(terminal[:1]), (terminal | pad)[:-1]])
    exists = jnp.cumsum(gone.astype(jnp.int32), axis=0) == 0
    alive = exists & ~pad
    # The offset of the episode's last state within the window.
    last = jnp.sum(exists.astype(jnp.int32), axis=0)[None] - 1
    seen, targets = jnp.arange(spec.steps + 1)[:, None], jnp.arange(spec.targets)[:, None]
    lives = alive[: spec.targets]
    # The start and what follows it apart: who reads one of them alone, as most do, has the compiler join nothing.
    parts = (seen[:1], seen[1:]) if spec.steps else (seen,)
    return Segment(
        obs=jnp.concatenate(
            [stacks(replay, slot[None] + jnp.minimum(p, last), spec.stack, spec.fill) for p in parts]
        ),
        action=rows(replay.action, seen),
        reward=reward[: spec.steps + 1],
        terminal=terminal[: spec.steps + 1],
        alive=alive[: spec.steps + 1].astype(jnp.float32),
        returns=jnp.where(lives, ahead.returns[: spec.targets], 0.0),
        discount=jnp.where(lives, ahead.discount[: spec.targets], 0.0),
        boot_obs=stacks(
            replay,
            slot[None] + jnp.minimum(targets + ahead.steps[: spec.targets], last),
            spec.stack,
            spec.fill,
        ),
        weight=jnp.ones(slot.shape),
        slot=slot,
    )


def stacks(
    replay: Replay, slot: Int[Array, "T B"], stack: int, fill: str = "zeros"
) -> UInt8[Array, "T B H W C"]:
    """Frame stacks, oldest first; where a frame would belong to an earlier episode, zeros or the first of this one."""
    place, capacity = jnp.arange(stack), replay.reward.shape[0]
    starts = replay.first[jnp.add.outer(slot, place + 1 - stack) % capacity]
    # Where in the stack the newest episode starts; 0 where it does before it.
    begin = jnp.max(jnp.where(starts, place, 0), axis=-1, keepdims=True)
    shown = jnp.maximum(place, begin) if fill == "first" else jnp.broadcast_to(place, starts.shape)
    at = (slot[..., None] + shown + 1 - stack) % capacity

    keep = (place >= begin).astype(jnp.uint8) if fill == "zeros" else jnp.ones_like(at, jnp.uint8)
    if stack == 4 and replay.frame.shape[-1] == 1:
        # Four gray frames are one word a pixel, written at once.
        words = (replay.frame[at[..., i], ..., 0] * keep[..., i, None, None] for i in range(stack))
        word = sum(x.astype(jnp.uint32) << 8 * i for i, x in enumerate(words))
        return jax.lax.bitcast_convert_type(word, jnp.uint8)
    frames = jnp.moveaxis(replay.frame[at] * keep[..., None, None, None], -4, -2)  # T B H W stack C
    return frames.reshape(*frames.shape[:-2], -1)


def draw(mass: Float[Array, " Cap"], uniform: Float[Array, " B"], block: int = 256) -> Int[Array, " B"]:
    """Indices in proportion to mass, never one without mass (as long as any has some).

    In two levels, sums of blocks and then within the block: one float32 running sum over 100,000 rows is not
    monotone and now and then lands on a row of mass zero, and it is slower.
    """
    size = -(-mass.shape[0] // block) * block
    blocks = jnp.pad(mass, (0, size - mass.shape[0])).reshape(-1, block)
    sums = jnp.sum(blocks, axis=-1)

    def first_above(masses: Float[Array, "*n J"], level: Float[Array, "*n"]) -> tuple[Array, Array]:
        running = jnp.cumsum(masses, axis=-1)
        at = jnp.argmax(running > level[..., None], axis=-1)
        # Rounding may put the level above the last sum, or a step of the running sum below its neighbour.
        at = jnp.where(
            jnp.take_along_axis(masses, at[..., None], -1)[..., 0] > 0, at, jnp.argmax(masses, axis=-1)
        )
        before = jnp.take_along_axis(running - masses, at[..., None], -1)[..., 0]
        return at, level - before

    total = jnp.sum(sums)
    which, rest = first_above(jnp.broadcast_to(sums, (*uniform.shape, len(sums))), uniform * total)
    within, _ = first_above(blocks[which], rest)
    return which * block + within


def reprioritise(replay: Replay, slot: Int[Array, " B"], priority: Float[Array, " B"]) -> Replay:
    """Store new priorities. A slot drawn twice gets its first one: the order of a scatter is undefined on a GPU."""
    first = jnp.argmax(slot[:, None] == slot[None, :], axis=1)
    top = None if replay.top is None else jnp.maximum(replay.top, jnp.max(priority))
    return replay._replace(priority=replay.priority.at[slot].set(priority[first]), top=top)


def size_in_bytes(spec: EnvSpec, capacity: int) -> int:
    """What the replay of one seed takes, less the one number that the largest priority may need."""
    return sum(
        x.size * x.dtype.itemsize for x in jax.tree.leaves(jax.eval_shape(lambda: init(spec, capacity)))
    )
