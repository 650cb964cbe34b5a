"""What the final games of a run of Atari have in common, and what playing them again takes the emulators.

    python benchmarks/recall.py runs/atari/vcr/pong/0-9-...               all games at once, as one team
    python benchmarks/recall.py runs/atari/vcr/pong/0-9-... --teams 2     in turns, as beside a GPU, one map for both
    python benchmarks/recall.py runs/atari/vcr/pong/0-9-... --seeds 0     those of one seed; --ticks 1000 of them

Actions come from the run's receipt, so no agent is needed, and seconds are those of the emulators, their processes and
the map. `played` is the share of agent steps that an emulator had to play: the others were known, or another game did
the same at the same time.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

import numpy as np
import tyro

from vcrl.envs.lanes import game_seed
from vcrl.envs.processes import cores
from vcrl.envs.protocols import PROTOCOLS
from vcrl.envs.recall import RecallingEnv
from vcrl.envs.registry import find
from vcrl.runs import receipts
from vcrl.runs.receipts import Game

MARKS = (500, 1000, 2000, 3000, 5000, 10_000, 15_000, 20_000, 27_001)


@dataclass
class Options:
    run: Annotated[Path, tyro.conf.Positional]
    seeds: tuple[int, ...] = ()  # all, if not given
    teams: int = 1
    ticks: int = MARKS[-1]  # at most


class Team:
    """Some of the games, and how far they are."""

    def __init__(self, env: RecallingEnv, games: list[Game], salt: int):
        self.env, self.length = env, np.array([len(game.actions) for game in games])
        self.actions = np.zeros((self.length.max(), len(games)), np.int32)
        for lane, game in enumerate(games):
            self.actions[: len(game.actions), lane] = game.actions
        seeds = [game_seed(salt, game.seed, game.episode) for game in games]
        env.reset(np.ones(len(games), bool), np.array(seeds, np.uint64))

    def step(self, tick: int) -> None:
        active = self.length > tick
        if active.any():
            self.env.step(self.actions[tick], active)


def main(options: Options) -> None:
    receipt = receipts.read(options.run, max(receipts.steps_in(options.run)))
    games = [game for game in receipt.games if not options.seeds or game.seed in options.seeds]
    hands, task = [games[which :: options.teams] for which in range(options.teams)], find(receipt.task)
    protocol = PROTOCOLS["atari100k"]
    if task.recall is None or receipt.protocol_hash != protocol.hash:
        sys.exit(f"only games of Atari by {protocol.name} recall")
    if len(games) < options.teams:
        sys.exit(f"{len(games)} games for {options.teams} teams: fewer teams, or seeds that the run has")
    began = time.perf_counter()
    envs = cast(Sequence[RecallingEnv], task.recall([len(hand) for hand in hands], protocol))
    teams = [Team(env, hand, receipt.salt) for env, hand in zip(envs, hands, strict=True)]
    print(f"{len(games)} games of {task.name}, {options.teams} teams, {cores()} cores; ", end="")
    print(f"to begin {time.perf_counter() - began:.1f} s")
    print("up to tick  games left     steps  played  seconds  ms a tick")
    until, steps, played, began = 0, 0, 0, time.perf_counter()
    for mark in (*(mark for mark in MARKS if mark < options.ticks), options.ticks):
        mark = min(mark, max(len(team.actions) for team in teams))
        if mark == until:
            break
        for tick in range(until, mark):
            for team in teams:
                team.step(tick)
        done = sum(team.env.steps for team in teams), sum(team.env.crew.played for team in teams)
        now = time.perf_counter()
        left, some = sum(int((team.length > mark).sum()) for team in teams), done[0] - steps
        share, each = (done[1] - played) / some, 1e3 * (now - began) / (mark - until)
        print(f"{mark:10d} {left:11d} {some:9d} {share:7.1%} {now - began:8.1f} {each:10.2f}", flush=True)
        until, (steps, played), began = mark, done, now
    print(f"in all {steps} steps, {played / steps:.1%} of them played")
    for env in envs:
        env.close()


if __name__ == "__main__":
    main(tyro.cli(Options))
