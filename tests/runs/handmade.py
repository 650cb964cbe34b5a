"""A finished run made without an agent: random games in the real environment, and all that a run writes besides."""

from pathlib import Path
from typing import Any

import numpy as np

from vcrl.core.config import digest, to_json
from vcrl.core.protocol import Protocol
from vcrl.envs.actions import stored_type
from vcrl.envs.lanes import game_seed
from vcrl.envs.registry import find
from vcrl.methods.library import resolve
from vcrl.runs import checkpoint
from vcrl.runs.folder import RunFolder, run_path
from vcrl.runs.receipts import Game

SCHEDULE = {
    "kind": "Schedule",
    "log": 10,
    "evaluate": 20,
    "gradients": 0,
    "q_error": 0,
    "q_error_positions": 9,
}


def play(env: Any, protocol: Protocol, seed: int, episode: int, chance: Any) -> tuple[float, np.ndarray]:
    """One game alone, written down as plainly as possible."""
    on = np.ones(1, bool)
    env.reset(on, np.array([game_seed(1, seed, episode)], np.uint64))
    kind, score, done = env.spec.actions, 0.0, []
    while True:
        action = (
            chance.integers(0, kind.n, 1) if hasattr(kind, "n") else chance.uniform(-1, 1, (1, kind.size))
        )
        done.append(action[0].astype(stored_type(kind)))
        came = env.step(np.array([done[-1]], np.int32 if hasattr(kind, "n") else np.float32), on)
        score += float(came.reward[0])
        if came.over[0] or len(done) == protocol.horizon:
            return score, np.array(done)


def make(
    root: Path, name: str = "catch", seeds: tuple[int, ...] = (3, 5), games: int = 3, **rules: Any
) -> Path:
    task, chance = find(name), np.random.default_rng(0)
    settings: dict[str, Any] = {"action_repeat": 1, "horizon": None, "eval_epsilon": 0.001, **rules}
    protocol = Protocol("test", budget=40, eval_episodes=games, **settings)
    config = to_json(resolve("vcr", task.suite, task.name, task.spec.actions))
    base = "rainbow" if hasattr(task.spec.actions, "n") else "sac"
    identity = ("vcr", task.name, config, protocol, SCHEDULE)
    record = {
        "method": "vcr",
        "base": base,
        "task": task.name,
        "suite": task.suite,
        "seeds": list(seeds),
        "config": config,
        "protocol": to_json(protocol),
        "protocol_hash": protocol.hash,
        "budget": 40,
        "schedule": SCHEDULE,
        "facts": {"vcrl": "0"},
    }
    env = task.make(1, protocol, False)
    path = run_path(root, task.suite, "vcr", task.name, seeds, digest(identity))
    with RunFolder.open(path, record) as run:
        scores: dict[str, float] = {}
        for now in (10, 20, 30, 40):
            steps = {"agent_steps": now, "env_steps": now, "frames": now, "updates": now}
            run.metrics({**steps, "loss/rl": [0.5 for _ in seeds]})
            for seed in seeds:
                run.episode(seed, now, now // 10, 1.0, 7)
            if now in (20, 40):
                found = [(s, e, *play(env, protocol, s, e, chance)) for s in seeds for e in range(games)]
                if now == 40:
                    save(run, now)
                run.receipt(now, 1, [Game(s, e, actions) for s, e, _, actions in found])
                for seed, episode, score, actions in found:
                    run.evaluation(seed, now, episode, score, len(actions))
                scores = {str(s): float(np.mean([x[2] for x in found if x[0] == s])) for s in seeds}
        run.speed({"agent_steps": 40, "seconds": 1.0})
        run.status({"state": "done", "scores": scores, "lane_agent_steps": [40 for _ in seeds], **steps})
    env.close()
    return path


def save(run: RunFolder, now: int) -> None:
    logs = run.positions()
    extra = {"logs": logs, "counters": {"tick": now, "updates": now}, "sha256": run.digests(logs)}
    arrays = {"weight": np.arange(12, dtype=np.float32).reshape(3, 4), "on": np.array([True])}
    rows = checkpoint.Rows(0, now, {"frame": np.zeros((2, now, 4, 4, 1), np.uint8)})
    checkpoint.save(run.checkpoint, now, arrays, extra, rows)
