"""What was published on Atari 100k: the paper's tables, and how far single runs of SPR and DER spread.

The numbers are in data/, with their sources in data/README.md.
"""

import csv
from functools import cache
from pathlib import Path
from typing import NamedTuple

from vcrl.core.errors import UserError, unknown
from vcrl.envs import registry

DATA = Path(__file__).parent / "data"
# Our methods that the paper's table of games has, by its names for them.
NAMES = {
    "der": "DER",
    "otr": "OTR",
    "curl": "CURL",
    "drq-eps": "DrQ",
    "spr": "SPR",
    "playvirtual": "PlayVirtual",
    "vcr": "VCR",
    "vcr-k9": "VCR K=9",
}
# Behind each of the paper's numbers; its text gives ten for VCR, and we take K = 9 to be no different.
RUNS = {
    "DER": 100,
    "OTR": 100,
    "CURL": 100,
    "DrQ": 100,
    "SPR": 100,
    "PlayVirtual": 15,
    "VCR": 10,
    "VCR K=9": 10,
}


class Published(NamedTuple):
    """Single runs of a method on one game, summarised; raw scores."""

    runs: int
    mean: float
    sd: float
    median: float
    p5: float
    p25: float
    p75: float
    p95: float


class Range(NamedTuple):
    low: float
    high: float

    def verdict(self, value: float) -> str:
        return "below" if value < self.low else "above" if value > self.high else "inside"


def normalise(task: str, score: float) -> float:
    """On the scale on which random play has 0 and a human 1."""
    return registry.normalise(registry.find(task), score)


@cache
def scores() -> dict[str, dict[str, float]]:
    """The paper's mean raw scores, by method and game; "VCR" is the one with K = 5."""
    rows = _rows("paper_scores.csv")
    return {m: {r["task"]: float(r[m]) for r in rows} for m in rows[0] if m != "task"}


@cache
def aggregates() -> dict[str, dict[str, float]]:
    """The paper's `iqm` and `optimality_gap` over all runs of the 26 games, as fractions."""
    return {
        row["method"]: {name: round(float(row[name]) / 100, 5) for name in ("iqm", "optimality_gap")}
        for row in _rows("paper_aggregates.csv")
    }


@cache
def published() -> dict[str, dict[str, Published]]:
    """Summaries of single runs, by method ("SPR", "DER") and game."""
    found: dict[str, dict[str, Published]] = {}
    for row in _rows("published_runs.csv"):
        numbers = [float(row[name]) for name in Published._fields[1:]]
        found.setdefault(row["method"], {})[row["task"]] = Published(int(row["runs"]), *numbers)
    return found


def band(method: str, task: str, seeds: int) -> Range:
    """Where 95% of means of that many published runs lie; of more than 20 seeds, that of 20, which is wider."""
    if seeds < 1:
        raise UserError(f"a mean of {seeds} runs has no band: at least one is needed")
    known = _bands()
    if (method, task) not in known:
        raise unknown("published runs", f"{method}, {task}", [f"{m}, {t}" for m, t in known])
    at = known[method, task]
    return at[min(seeds, max(at))]


@cache
def _bands() -> dict[tuple[str, str], dict[int, Range]]:
    found: dict[tuple[str, str], dict[int, Range]] = {}
    for row in _rows("published_bands.csv"):
        at = found.setdefault((row["method"], row["task"]), {})
        at[int(row["seeds"])] = Range(float(row["low"]), float(row["high"]))
    return found


def _rows(name: str) -> list[dict[str, str]]:
    with open(DATA / name, newline="") as file:
        return list(csv.DictReader(file))
