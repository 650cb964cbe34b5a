"""What an evaluation costs: all games of all seeds at once.

    python benchmarks/evaluation.py                                       100 games of one seed, 200 steps each
    python benchmarks/evaluation.py --seeds 10 --task pong --limit 1000   as a table of ten seeds is scored
    python benchmarks/evaluation.py --run runs/atari/vcr/pong/0-9-...     with the nets that a run has saved
    python benchmarks/evaluation.py --again results/games/atari/...       the final games of a run, without its nets

Without `--run` the agent is untrained and may play for ever, so `--limit` cuts every game at that many agent steps.
With `--again` untrained nets are asked at every step as the trained ones were, and then a receipt says what is done:
the same games in the same time, without a training, and what each team of them waits for.

Otherwise games of Atari that recall where others have been (`envs/recall.py`) are compared with games that are played
in full, and must be the same. Time is taken inside the project's own `evaluate.play`: in the emulators' `step`; in the
policy and its stacks, once its input is ready; in transfer, which is the rest of choosing actions: frames to the
device, actions back. What is left is resetting and counting.
"""

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jax
import numpy as np
import tyro

from vcrl.envs.processes import cores
from vcrl.envs.recall import RecallingEnv
from vcrl.runs import receipts
from vcrl.training import evaluate
from vcrl.training.engine import engine_of
from vcrl.training.plan import Plan, make_plan
from vcrl.training.run import load_run


@dataclass
class Options:
    seeds: int = 1
    games: int = 100
    task: str = "breakout"
    method: str = "vcr"
    limit: int = 200
    run: Path | None = None  # whose nets play, each game to its end; instead of method, task and limit
    again: Path | None = None  # whose games are played, likewise; all of its seeds and games


class Stopwatch(defaultdict[str, float]):
    """Seconds inside the functions it wraps."""

    def around(self, name: str, function: Callable[..., Any], wait: bool = False) -> Callable[..., Any]:
        ready = jax.block_until_ready if wait else lambda tree: tree

        def timed(*arguments: Any) -> Any:
            ready(arguments)
            began = time.perf_counter()
            out = ready(function(*arguments))
            self[name] += time.perf_counter() - began
            return out

        return timed


def main(options: Options) -> None:
    if options.again is not None:
        again(options.again)
        return
    if options.run is not None:
        run = load_run(options.run)
        plan = replace(run.plan, seeds=run.plan.seeds[: options.seeds])
        state = jax.tree.map(lambda x: x[: options.seeds], run.state)
    else:
        plan = make_plan(options.method, options.task, seeds=range(options.seeds))
        plan = replace(plan, protocol=replace(plan.protocol, horizon=options.limit))
        state = engine_of(plan).lifted.init(np.array(plan.seeds, np.int32))
    told = f"{plan.method} on {plan.task.name}, {len(plan.seeds)} seeds x {options.games} games"
    print(f"{told}; {jax.devices()[0].device_kind}, {cores()} cores")
    ways = (False, True) if plan.task.recall else (False,)
    found = [measured(plan, state, options.games, recall) for recall in ways]
    games = [[(g.finished, g.actions.tobytes()) for mine in played for g in mine] for played in found]
    if len(ways) > 1:
        print("the same games" if games[0] == games[1] else "THE GAMES DIFFER")


def again(path: Path) -> None:
    plan, receipt = load_run(path).plan, receipts.read(path, max(receipts.steps_in(path)))
    if plan.task.recall is None:
        raise SystemExit(f"{path} has no games of Atari")
    actions = {(plan.seeds.index(game.seed), game.episode): game.actions for game in receipt.games}
    length = np.zeros((len(plan.seeds), plan.protocol.eval_episodes), int)
    for at, game in actions.items():
        length[at] = len(game)
    table = np.zeros((*length.shape, length.max()), receipt.games[0].actions.dtype)
    for at, game in actions.items():
        table[at][: len(game)] = game
    lifted, rows, watch = engine_of(plan).lifted, dict[int, tuple[Any, np.ndarray]](), Stopwatch(float)
    state = lifted.bare(lifted.init(np.array(plan.seeds, np.int32)))

    def told(state: Any, obs: Any, frame: Any, moment: np.ndarray, seeds: Any) -> tuple[Any, np.ndarray]:
        """As the agent is asked, and told afterwards what to do; where a game is over, anything."""
        began = time.perf_counter()
        obs, chosen = lifted.play(state, obs, frame, moment, seeds)
        np.asarray(chosen)
        watch[f"{threading.current_thread().name} choosing"] += time.perf_counter() - began
        if id(seeds) not in rows:  # they travel when they change, as ever
            rows[id(seeds)] = seeds, np.array([plan.seeds.index(int(seed)) for seed in seeds])[:, None]
        where = rows[id(seeds)][1], moment[..., 0]
        return obs, table[(*where, np.minimum(moment[..., 1], length[where] - 1))]

    def stepped(env: Any, *arguments: Any) -> Any:
        began = time.perf_counter()
        came = step(env, *arguments)
        watch[f"{threading.current_thread().name} emulators"] += time.perf_counter() - began
        return came

    began, over, step = time.perf_counter(), list[tuple[float, int]](), RecallingEnv.step
    with patch.object(RecallingEnv, "step", stepped):
        played = evaluate.games(
            plan, told, state, plan.protocol.eval_episodes,
            progress=lambda done, _: over.append((time.perf_counter() - began, done)),
        )  # fmt: skip
    seconds, steps = time.perf_counter() - began, int(length.sum())
    print(
        f"{plan.method} on {plan.task.name}, {length.size} games; {jax.devices()[0].device_kind}, {cores()} cores"
    )
    print(
        f"{seconds:.1f} s for {steps} agent steps, {steps / seconds:,.0f} a second; compiling and building included"
    )
    for share in (0.1, 0.5, 0.9, 0.95, 0.98):
        print(
            f"  {share:4.0%} over after {next(at for at, done in over if done >= share * length.size):6.1f} s"
        )
    for what in sorted(watch):
        print(f"  {what:26s} {watch[what]:6.1f} s")
    found = ((game.finished, game.actions) for mine in played for game in mine)
    same = all(np.array_equal(actions[plan.seeds.index(end.seed), end.episode], done) for end, done in found)
    print("the same games" if same else "THE GAMES DIFFER")


def measured(plan: Plan, state: Any, games: int, recall: bool) -> list[list[evaluate.Played]]:
    lifted, watch, began = engine_of(plan).lifted, Stopwatch(float), time.perf_counter()
    if not recall:
        plan = replace(plan, task=replace(plan.task, recall=None))
    with evaluate.field(plan, lifted.play, games) as ground:
        built, began = time.perf_counter() - began, time.perf_counter()
        compile_all(ground, state)
        compiled = time.perf_counter() - began
        policy = watch.around("policy", ground.act, wait=True)
        ground = ground._replace(act=lambda *arguments: policy(*jax.device_put(arguments)))
        step = watch.around("emulator", ground.env.step)
        choose = watch.around("choosing", evaluate.Batch.act)
        with patch.object(ground.env, "step", step), patch.object(evaluate.Batch, "act", choose):
            began = time.perf_counter()
            played = evaluate.play(ground, state, range(games))
            seconds = time.perf_counter() - began
        where = "worker processes" if cores() > 2 else "this process"
    lengths = [game.finished.length for mine in played for game in mine]
    ticks = max(lengths)
    print(f"{'recalled' if recall else 'played in full'}, lanes in {where}")
    print(f"  before it: lanes {built:.1f} s, compiling {compiled:.1f} s")
    print(
        f"  {seconds:.2f} s in all, {ticks} ticks, {sum(lengths)} agent steps, {seconds / ticks * 1e3:.2f} ms a tick"
    )
    parts = {name: watch[name] for name in ("emulator", "policy")}
    parts["transfer"] = watch["choosing"] - parts["policy"]
    parts["rest"] = seconds - sum(parts.values())
    for name, spent in parts.items():
        print(f"    {name:9s} {spent:8.2f} s {spent / seconds:6.1%}")
    return played


def compile_all(ground: evaluate.Field, state: Any) -> None:
    """One look at every shape that the batch may have."""
    every = np.ones(ground.env.lanes, bool)
    frame = np.zeros((len(every), *ground.env.spec.frame), np.uint8)
    lane = np.arange(len(every)).reshape(len(ground.plan.seeds), -1)
    for seeds, width in itertools.product(*map(halves, lane.shape)):
        batch = evaluate.Batch(ground, state, frame)
        batch.narrow(np.isin(np.arange(len(every)), lane[:seeds, :width]))
        batch.act(frame, every, np.zeros(len(every), np.int64))


def halves(count: int) -> list[int]:
    return [count] if count == 1 else [count, *halves(evaluate.half(count))]


if __name__ == "__main__":
    main(tyro.cli(Options))
