"""One seed becomes S seeds. The only file with a vmap over seeds, and with donation."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vcrl import replay as rp
from vcrl.agents.base import Agent, is_sample, whole_update
from vcrl.core.keys import Stream, key
from vcrl.core.spec import Box, EnvSpec
from vcrl.core.types import Clock, Metrics, Row

BLOCK = 1000  # rows of replay that travel to or from a checkpoint at once


class Lifted(NamedTuple):
    """Functions with a leading S on states, replays and everything per seed; `core.types.now` is shared.

    To `act` and `learn`, which are called at every step, a state may come as the list of its arrays, and so it goes
    back: taking a tree of modules apart, and putting it together again, takes the host 70 us and 25.
    """

    init: Callable[..., Any]  # seeds -> state
    empty: Callable[..., Any]  # seeds -> replay
    act: Callable[..., Any]  # state, obs S, now, seeds -> action S, now; exploring
    # state, stacks S B, newest frames S B, `told` S B 3, seeds -> stacks, action S B; not exploring; donates stacks
    play: Callable[..., Any]
    # state, replay, packed row S, now, seeds -> state, replay, metrics of each update made; donates the first two
    learn: Callable[..., Any]
    insert: Callable[..., Any]  # replay, packed row S, now -> replay; donates replay
    rows: Callable[..., Any]  # replay, start -> BLOCK rows S from row number start on
    fill: Callable[..., Any]  # replay, rows S, start, count -> replay; donates replay
    copy: Callable[..., Any]  # state, priorities -> the same, which no later call will take away
    probe: Callable[..., Any]  # state, replay, now, seeds -> gradient norm of every loss, S
    values_along: Callable[..., Any]  # state, obs S P, actions S K+1 P -> Q S K+1 P, by both statistics
    worth: Callable[..., Any]  # state, obs S P -> what those states are worth, S P
    guard: Callable[..., Any]  # state, good state -> finite S, newest good state; donates the good one
    trusted: Callable[..., Any]  # state, good state -> the state of finite seeds, the good one of the others
    bare: Callable[..., Any]  # state -> what plays and imagines, and no more
    # The same of several moments, one behind the other along S
    room: Callable[..., Any]  # state, count -> room for so many moments
    put: Callable[..., Any]  # room, state, start -> room, with a state from there on; donates room
    take: Callable[..., Any]  # room, start, seeds -> the state of so many seeds from there on


def lift(agent: Agent, spec: EnvSpec, capacity: int) -> Lifted:
    prioritised = any(sample.prioritised for sample in agent.samples)

    def drawn(replay: rp.Replay, at: Any, clock: Clock, k: Any) -> Any:
        keys = iter([k] if len(agent.samples) == 1 else jax.random.split(k, len(agent.samples)))
        return jax.tree.map(
            lambda sample: rp.sample(replay, at, sample, clock, next(keys)), agent.sample, is_leaf=is_sample
        )

    @cache
    def structure() -> Any:
        return jax.tree.structure(jax.eval_shape(agent.init, jax.ShapeDtypeStruct((), jnp.int32)))

    def whole(state: Any) -> Any:
        return jax.tree.unflatten(structure(), state) if isinstance(state, list) else state

    def updated(state: Any, replay: rp.Replay, at: Any, clock: Clock, seeds: Any):
        segment = batches(replay, at, clock, seeds, Stream.SAMPLE)
        state, update = whole_update(agent, partial(each, axes=(0, 0, None, 0)))(state, segment, clock, seeds)
        if prioritised:
            replay = jax.vmap(rp.reprioritise)(replay, segment.slot, update.priority)
        return state, replay, update.metrics

    def batches(replay: rp.Replay, at: Any, clock: Clock, seeds: Any, stream: Stream) -> Any:
        return jax.vmap(lambda r, seed: drawn(r, at, clock, key(seed, stream, clock.updates)))(replay, seeds)

    def each(function: Callable[..., Any], axes: tuple[int | None, ...]) -> Callable[..., Any]:
        """For every seed: all at once, or one after the other where an agent says `alone`.

        A replay never goes through here: a loop would copy it.
        """
        if not agent.alone:
            return jax.vmap(function, in_axes=axes)

        def mapped(*arguments: Any) -> Any:
            def one(mine: tuple[Any, ...]) -> Any:
                parts = iter(mine)
                return function(
                    *(x if axis is None else next(parts) for x, axis in zip(arguments, axes, strict=True))
                )

            return jax.lax.map(one, tuple(x for x, a in zip(arguments, axes, strict=True) if a is not None))

        return mapped

    # A GPU's host launches the kernels of a call as one graph, which takes it as long for two updates as for one. On a
    # CPU one update a call is faster, and half as much to compile.
    at_once = 2 if jax.default_backend() == "gpu" and agent.updates_per_step % 2 == 0 else 1

    @partial(jax.jit, donate_argnums=(0, 1), compiler_options=_options(agent))
    def learn(state: Any, replay: rp.Replay, row: Any, now: Any, seeds: Any):
        # The row of the step before comes with the call, if there is one: a call of its own would take longer.
        given, state = state, whole(state)
        replay, told = insert(replay, row, now), list[Metrics]()
        for i in range(at_once):
            # The clock is outside the vmap, so that it stays one number for all seeds.
            state, replay, metrics = updated(state, replay, now[2], Clock(now[0], now[1] + i), seeds)
            told.append(metrics)
        return jax.tree.leaves(state) if isinstance(given, list) else state, replay, told

    def probe(state: Any, replay: rp.Replay, now: Any, seeds: Any):
        clock = Clock(now[0], now[1])
        segment = batches(replay, now[2], clock, seeds, Stream.PROBE)
        return each(agent.gradient_norms, (0, 0, None, 0))(state, segment, clock, seeds)

    def guard(state: Any, good: Any):
        finite = jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(state)]).all()
        return finite, jax.tree.map(lambda now, then: jnp.where(finite, now, then), state, good)

    def seldom(function: Callable[..., Any], **more: Any) -> Callable[..., Any]:
        """Compiled for seldom use: on a CPU quickly rather than well."""
        quick = {"xla_backend_optimization_level": "0"} if jax.default_backend() == "cpu" else None
        return jax.jit(function, compiler_options=quick, **more)

    def once(function: Callable[..., Any], axes: Any = 0, **more: Any) -> Callable[..., Any]:
        return seldom(jax.vmap(function, in_axes=axes), **more)

    def act(state: Any, obs: Any, now: Any, seeds: Any) -> tuple[Any, Any]:
        """The moment comes back, since `learn` will be told it too: it need not travel to the device twice."""
        draw = jnp.broadcast_to(jnp.stack([jnp.zeros_like(now[0]), now[0]]), (len(obs), 1, 2))
        action = chosen(True)(whole(state), obs[:, None], Clock(now[0], now[1]), seeds, draw)
        return action[:, 0], now

    def play(state: Any, obs: Any, frame: Any, known: Any, seeds: Any) -> tuple[Any, Any]:
        obs = pushed(obs, frame, known[..., 2] > 0, agent.samples[0].fill)
        return obs, chosen(False)(state, obs, Clock.at(0, 0), seeds, known[..., :2])

    def chosen(explore: bool) -> Callable[..., Any]:
        """All seeds at once, also where they learn one after the other: a few images fill no accelerator."""
        return jax.vmap(partial(_call, agent.act, explore), in_axes=(0, 0, None, 0, 0))

    def insert(replay: rp.Replay, row: Any, now: Any) -> rp.Replay:
        number = jnp.where(now[3] > 0, now[2] - 1, -1)
        return jax.vmap(rp.insert, in_axes=(0, 0, None))(replay, _unpacked(replay, *row), number)

    bare = jax.vmap(agent.bare)

    def room(state: Any, count: int) -> Any:
        return jax.tree.map(lambda x: jnp.zeros((count * len(x), *x.shape[1:]), x.dtype), bare(state))

    def put(held: Any, state: Any, start: Any) -> Any:
        def into(all: Any, x: Any) -> Any:
            return jax.lax.dynamic_update_slice_in_dim(all, x, start, 0)

        return jax.tree.map(into, held, bare(state))

    def take(held: Any, start: Any, seeds: int) -> Any:
        return jax.tree.map(lambda all: jax.lax.dynamic_slice_in_dim(all, start, seeds), held)

    return Lifted(
        init=once(agent.init),
        empty=once(lambda seed: rp.init(spec, capacity, agent.samples[0].top)),
        act=jax.jit(act, compiler_options=_options(agent)),
        play=jax.jit(play, donate_argnums=1, compiler_options=_options(agent)),
        learn=learn,
        insert=jax.jit(insert, donate_argnums=0),
        rows=once(partial(_call, rp.rows, BLOCK), (0, None)),
        fill=once(rp.fill, (0, 0, None, None), donate_argnums=0),
        copy=once(lambda *tree: jax.tree.map(jnp.copy, tree)),
        probe=seldom(probe),
        values_along=jax.jit(each(agent.values_along, (0, 0, 0))),
        worth=seldom(each(agent.worth, (0, 0))),
        guard=once(guard, donate_argnums=1),
        trusted=once(lambda state, good: guard(state, good)[1]),
        bare=once(agent.bare),
        room=seldom(room, static_argnums=1),
        put=seldom(put, donate_argnums=0),
        take=seldom(take, static_argnums=2),
    )


def told(episode: np.ndarray, tick: int, first: np.ndarray) -> np.ndarray:
    """What `play` must know of every game besides its frame: which it is, how far, and whether an episode begins."""
    return np.stack([episode, np.full_like(episode, tick), first], axis=-1).astype(np.int32)


def pushed(obs: Any, frame: Any, first: Any, fill: str) -> Any:
    """Stacks with their newest frames; where an episode begins, with what stands before it."""
    past, first = obs[..., frame.shape[-1] :], first[..., None, None, None]
    before = jnp.tile(frame, past.shape[-1] // frame.shape[-1]) if fill == "first" else jnp.zeros_like(past)
    return jnp.concatenate([jnp.where(first, before, past), frame], axis=-1)


def no_row(spec: EnvSpec, seeds: int) -> tuple[np.ndarray, np.ndarray]:
    """In the place of a packed row, where there is none."""
    width = spec.actions.size if isinstance(spec.actions, Box) else 1
    return np.zeros((seeds, *spec.frame), np.uint8), np.zeros((seeds, width + 4), np.float32)


def packed(row: Row) -> tuple[np.ndarray, np.ndarray]:
    """A row of every seed as two arrays: frames, and all the rest as float32, which holds every action exactly."""
    seeds, (frame, action, *rest) = len(row.reward), row
    return frame, np.column_stack([np.reshape(action, (seeds, -1)), *rest]).astype(np.float32)


def _unpacked(replay: rp.Replay, frame: Any, rest: Any) -> Row:
    """As the replay keeps them."""
    action, (reward, *flags) = rest[:, :-4].reshape(-1, *replay.action.shape[2:]), rest[:, -4:].T
    terminal, first, pad = (flag > 0 for flag in flags)
    return Row(frame, action.astype(replay.action.dtype), reward, terminal, first, pad)


def _options(agent: Agent) -> dict[str, Any] | None:
    """How an update, or a choice, is compiled for a GPU; what is not said is as XLA has it.

    Kernels that do not wait for each other run side by side, which takes an H200 12% less for an update of one discrete
    agent, 6% for ten. The small products of several small nets come from the library, without the long search for
    better ones: which there would be for every shape that a batch of games comes to have.
    """
    if jax.default_backend() != "gpu":
        return None
    library = {} if agent.large else {"xla_gpu_enable_triton_gemm": False}
    return {"xla_gpu_command_buffer_scheduling_mode": "CONCURRENT", **library}


def _call(function: Callable[..., Any], last: Any, *arguments: Any) -> Any:
    """A static last argument bound where vmap cannot take it."""
    return function(*arguments, last)
