"""What was published: all tables of the paper, and how far single runs of SPR, DER and CURL spread on Atari 100k.

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
# Those of its table of DMControl; and what banks call methods of either table, where a bank's DrQ on Atari is another.
CONTROL = {
    "sac-ae": "SAC+AE",
    "curl": "CURL",
    "drq": "DrQ",
    "spr": "SPR",
    "playvirtual": "PlayVirtual",
    "vcr": "VCR",
}
BANKED = {
    "atari": {"OTRainbow": "OTR", "DrQ_eps": "DrQ", "DrQ": ""},
    "dmc": {"CURL_rerun": ""},
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
    "SimPLe": 5,
}
DMC_RUNS = 10  # seeds behind the paper's own DMControl numbers; what it quotes may have others
DMC_BEST = 1000.0  # the most an episode of DMControl can score


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


class Spread(NamedTuple):
    """A mean and a standard deviation, as a table prints them."""

    mean: float
    std: float


class Aggregate(NamedTuple):
    """A row of a table of aggregates: Atari's human-normalised as fractions, DMControl's in points of 1000."""

    method: str
    iqm: float | None
    optimality_gap: float | None
    median: float | None
    source: str


class Time(NamedTuple):
    """Hours of one training, with the number of imagined steps K."""

    method: str
    steps: int
    hours: float
    hardware: str
    source: str


class Range(NamedTuple):
    low: float
    high: float

    def verdict(self, value: float) -> str:
        return "below" if value < self.low else "above" if value > self.high else "inside"


def normalise(task: str, score: float) -> float:
    """On the scale on which random play has 0 and a human 1."""
    return registry.normalise(registry.find(task), score)


def name_of(suite: str, method: str) -> str:
    """What the paper's table of a suite calls a method of ours or of a bank; empty where it has no such method."""
    ours = CONTROL if suite == "dmc" else NAMES
    printed = dmc()["dmc100k"] if suite == "dmc" else scores()
    found = ours.get(method, BANKED.get(suite, {}).get(method, method))
    return found if found in printed else ""


def order(name: str) -> int:
    """In which place the paper's tables have a method."""
    return list(dict.fromkeys((*NAMES.values(), *CONTROL.values()))).index(name)


@cache
def scores() -> dict[str, dict[str, float]]:
    """The paper's mean raw scores, by method and game; "VCR" is the one with K = 5."""
    rows = _rows("paper_scores.csv")
    return {m: {r["task"]: float(r[m]) for r in rows} for m in rows[0] if m != "task"}


@cache
def aggregates() -> dict[str, dict[str, float]]:
    """The paper's `iqm` and `optimality_gap` over all runs of the 26 games, as fractions; its ablations too."""
    found: dict[str, dict[str, float]] = {}
    for _, row in _aggregates("atari100k"):
        if row.iqm is not None and row.optimality_gap is not None:
            found[row.method] = {"iqm": row.iqm, "optimality_gap": row.optimality_gap}
    return found


@cache
def dmc() -> dict[str, dict[str, dict[str, Spread]]]:
    """DMControl scores by protocol ("dmc100k", "dmc500k"), method and task; SLAC has no score on two tasks."""
    found: dict[str, dict[str, dict[str, Spread]]] = {}
    for row in _rows("paper_dmc.csv"):
        at = found.setdefault(row["protocol"], {}).setdefault(row["method"], {})
        at[row["task"]] = Spread(float(row["mean"]), float(row["std"]))
    return found


@cache
def dmc_aggregates() -> dict[str, dict[str, Aggregate]]:
    """The last rows of the DMControl tables, by protocol and method."""
    protocols = ("dmc100k", "dmc500k")
    return {p: {row.method: row for name, row in _aggregates(p) if name == "DMControl"} for p in protocols}


@cache
def ablations() -> dict[str, dict[str, list[Aggregate]]]:
    """Ablations by protocol and what they change: weight, distance, reward, size, steps."""
    found: dict[str, dict[str, list[Aggregate]]] = {}
    for protocol in ("atari100k", "dmc100k"):
        for name, row in _aggregates(protocol):
            if name not in ("aggregates", "DMControl"):
                found.setdefault(protocol, {}).setdefault(name, []).append(row)
    return found


@cache
def small_ablations() -> dict[str, dict[str, dict[str, float]]]:
    """Human-normalised means by table ("prediction head", "noisy net"), variant and game."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for row in _rows("paper_small_ablations.csv"):
        found.setdefault(row["table"], {}).setdefault(row["variant"], {})[row["task"]] = float(
            row["normalised"]
        )
    return found


@cache
def training_times() -> dict[str, list[Time]]:
    """How long one training takes, by protocol."""
    found: dict[str, list[Time]] = {}
    for row in _rows("paper_training_time.csv"):
        time = Time(row["method"], int(row["steps"]), float(row["hours"]), row["hardware"], row["source"])
        found.setdefault(row["protocol"], []).append(time)
    return found


def imagined_steps() -> dict[str, dict[str, float]]:
    """VCR's raw scores with K = 5 and with K = 9, by game."""
    return {"K=5": scores()["VCR"], "K=9": scores()["VCR K=9"]}


def _aggregates(protocol: str) -> list[tuple[str, Aggregate]]:
    """Rows of a protocol, each with the name of its table; the files hold Atari's in percent."""
    scale = 100 if protocol == "atari100k" else 1
    found = []
    for row in _rows("paper_aggregates.csv"):
        if row["protocol"] == protocol:
            iqm, gap, median = (
                round(float(row[name]) / scale, 5) if row[name] else None
                for name in ("iqm", "optimality_gap", "median")
            )
            found.append((row["table"], Aggregate(row["method"], iqm, gap, median, row["source"])))
    return found


@cache
def published() -> dict[str, dict[str, Published]]:
    """Summaries of single runs, by method ("SPR", "DER", "CURL") and game."""
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
