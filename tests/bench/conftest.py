"""Run folders made by hand."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vcrl.core.config import digest
from vcrl.core.protocol import Protocol
from vcrl.runs.folder import RunFolder

sys.path.insert(0, str(Path(__file__).parents[1] / "runs"))  # for `handmade`

PROTOCOL: dict[str, Any] = {
    "kind": "Protocol",
    "name": "atari100k",
    "budget": 100,
    "action_repeat": 4,
    "eval_episodes": 2,
    "sticky": 0.0,
}
FACTS = {
    "command": "vcrl train vcr pong",
    "accelerator": "Some GPU",
    "cpus": 8,
    "commit": "c" * 40,
    "dirty": False,
}
assert PROTOCOL.keys() - {"kind"} <= Protocol.__dataclass_fields__.keys()


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """A finished run of two games a seed, one more and one less than the seed's score, with two measurements."""

    def make(
        name: str,
        task: str = "pong",
        method: str = "vcr",
        scores: tuple[float, ...] = (0.0, 10.0),
        *,
        first: int = 0,
        suite: str = "atari",
        protocol: dict[str, Any] | None = None,
        config: dict[str, Any] | None = None,
        status: dict[str, Any] | None = None,
        **record: Any,
    ) -> Path:
        seeds = list(range(first, first + len(scores)))
        rules = PROTOCOL | (protocol or {})
        record = {
            "method": method,
            "task": task,
            "suite": suite,
            "seeds": seeds,
            "config": {"kind": "Config", "rate": 0.1, "method": method, **(config or {})},
            "protocol": rules,
            "protocol_hash": digest(rules),
            "facts": FACTS,
        } | record
        path = tmp_path / "runs" / name
        with RunFolder.open(path, record) as run:
            for step in (50, 100):
                errors = {
                    "q_error/real": [1.0 + s for s in seeds],
                    "q_error/imagined": [2.0 + s for s in seeds],
                }
                run.metrics({"agent_steps": step, **errors})
                for seed, score in zip(seeds, scores, strict=True):
                    for episode, off in ((0, 1.0), (1, -1.0)):
                        run.evaluation(seed, step, episode, score + off, 7)
            done = {"state": "done", "agent_steps": 100, "not_finite_since": {}, "seconds": 7200.0}
            run.status({**done, "finished": "2024-05-06", **(status or {})})
        return path

    return make
