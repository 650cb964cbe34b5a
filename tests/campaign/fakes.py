"""A campaign in which nothing is learned: what is asked, what a scout would say, what was started."""

import sys
from pathlib import Path
from typing import Any

from vcrl.campaign.ask import Ask, make_ask
from vcrl.campaign.plan import Scouted

FAKE = (sys.executable, str(Path(__file__).parent / "fake_train.py"))
DIGEST = "0123abcd"


def scouts(ask: Ask) -> list[Scouted]:
    steps = ask.options.get("steps") or 100
    return [
        Scouted(method, task, "toy", DIGEST, steps, "p", 10**6, 10**6, 10**6, 5 * 10**5, 10)
        for task in ask.tasks
        for method in ask.methods
    ]


def asking(
    out: Path, methods: str = "spr,vcr", tasks: str | None = None, seeds: Any = range(4), **options: Any
) -> Ask:
    return make_ask("toy-2", methods, tasks, list(seeds), out, options, {})


def attempts(out: Path) -> list[str]:
    """What was started, in order."""
    return (out / "attempts").read_text().splitlines() if (out / "attempts").exists() else []
