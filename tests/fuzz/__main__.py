"""`make fuzz MINUTES=10`: new random seeds until the time is over, then what was tried and what did not survive."""

import os
import random
import resource
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "runs"), str(HERE.parent / "training")]
os.environ.setdefault("JAX_PLATFORMS", "cpu")

from hypothesis import HealthCheck, Phase, given, seed, settings  # noqa: E402 (once the folder is known)
from hypothesis.strategies import tuples  # noqa: E402
from loaders import LOADERS  # noqa: E402
from test_files import PLACES, SEALED, SPOILED, spoil_and_load  # noqa: E402
from test_words import WORDS  # noqa: E402

MEMORY = 8 * 2**30  # addresses; whoever wants more is refused them, before the system ends us
ROUND = 20  # examples of one loader under one seed
SLOW_ROUND = 4  # of one that takes seconds


def main(minutes: float) -> int:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.RLIM_INFINITY))
    start = random.randrange(10**9)
    ends, number = time.monotonic() + 60 * minutes, start
    tried: Counter[str] = Counter()
    ended: Counter[tuple[str, str]] = Counter()
    bad: dict[str, str] = {}
    print(f"{minutes:g} minutes, seeds from {start} on", flush=True)
    while time.monotonic() < ends:
        for name in [*LOADERS, *WORDS]:
            number += 1
            try:
                run(name, number, tried, ended)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                where = traceback.extract_tb(error.__traceback__)
                ours = [f for f in where if "/src/vcrl/" in f.filename] or where[-1:]
                key = f"{name}: {type(error).__name__} in {Path(ours[-1].filename).name}:{ours[-1].lineno}"
                if key not in bad:
                    bad[key] = "".join(traceback.format_exception(error)[-12:])
                    print(f"\nseed {number}, {key}\n{bad[key]}", flush=True)
            if time.monotonic() > ends:
                break
    width = max(map(len, tried), default=0)
    for name, count in tried.items():
        how = ", ".join(f"{n:,} {word}" for (who, word), n in sorted(ended.items()) if who == name)
        print(f"{name:{width}}  {count:7,} tried: {how}")
    print(f"{sum(tried.values()):,} tried in {minutes:g} minutes, {len(bad)} kinds of failure")
    for key in bad:
        print(f"  {key}")
    return 1 if bad else 0


def run(name: str, number: int, tried: Counter[str], ended: Counter[tuple[str, str]]) -> None:
    quick = settings(
        max_examples=SLOW_ROUND if name in LOADERS and LOADERS[name].slow else ROUND,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )

    def once(drawn: tuple[Any, ...]) -> None:
        tried[name] += 1
        how = spoil_and_load(name, *drawn) if name in LOADERS else WORDS[name][1](*drawn)
        ended[name, how] += 1

    strategies = (SPOILED, PLACES, SEALED) if name in LOADERS else (WORDS[name][0],)
    seed(number)(quick(given(tuples(*strategies))(once)))()


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 10))
