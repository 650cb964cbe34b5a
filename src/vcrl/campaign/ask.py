"""What a campaign was asked to do, and the words in which a single training is told."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vcrl.campaign import suites
from vcrl.core.config import digest, from_text
from vcrl.core.errors import UserError
from vcrl.envs.protocols import OF_SUITE
from vcrl.methods import library
from vcrl.methods.own import with_loss


@dataclass(frozen=True)
class Ask:
    """Checked as far as it can be without JAX; the rest is the scout's."""

    suite: str
    methods: tuple[str, ...]
    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    out: Path
    options: dict[str, Any] = field(default_factory=dict)  # flags of `vcrl train` by name; None is not given
    changes: dict[str, Any] = field(default_factory=dict)  # settings of the methods by dotted path

    @property
    def name(self) -> str:
        """The campaign's folder: the same ask is the same campaign."""
        asked = (
            self.suite,
            self.methods,
            self.tasks,
            self.seeds,
            list(self.given),
            list(self.changes.items()),
        )
        return f"{self.suite}-{digest(asked)}"

    @property
    def folder(self) -> Path:
        return self.out / "campaign" / self.name

    @property
    def given(self) -> list[tuple[str, Any]]:
        return [(name, value) for name, value in self.options.items() if value is not None]

    def words(self, method: str, task: str, seeds: Sequence[int], digest: str) -> list[str]:
        """The arguments of the `vcrl` that trains one run.

        The file of a loss of the user's may change meanwhile: with other code it would be another run.
        """
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in self.given]
        if with_loss(method)[1] is not None:
            flags.append(f"--expect={digest}")
        settings = [f"--{path}={to_text(value)}" for path, value in self.changes.items()]
        return ["train", method, task, f"--seeds={seeds_text(seeds)}", *flags, *settings, f"--out={self.out}"]


def make_ask(
    suite: str,
    methods: str,
    tasks: str | None,
    seeds: Sequence[int] | None,
    out: Path,
    options: dict[str, Any],
    changes: dict[str, Any],
) -> Ask:
    """Names resolved and counted; what is unknown or empty raises a `UserError` here."""
    found = suites.find(suite)
    chosen = tuple(dict.fromkeys(split(methods)))
    if not chosen:
        raise UserError("no methods: give for example --methods spr,vcr")
    for method in chosen:
        library.find(method, found.room)
    which = suites.select(found, split(tasks) if tasks is not None else None)
    wanted = found.seeds if seeds is None else tuple(seeds)
    if not wanted:
        raise UserError("no seeds: give for example --seeds 0:10 or --seeds 0,3,7")
    if min(wanted) < 0 or len(set(wanted)) < len(wanted):
        raise UserError(f"--seeds {','.join(map(str, wanted))}: each seed once, counted from 0")
    # A training would take the usual protocol of its task, which is not that of every suite.
    own = None if found.protocol == OF_SUITE[found.room][0] else found.protocol
    options = {**options, "protocol": options.get("protocol") or own}
    return Ask(found.name, chosen, which, tuple(sorted(wanted)), out.absolute(), options, changes)


def split(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def seeds_text(seeds: Sequence[int]) -> str:
    """0:5 for a range, 0,3,7 for a list, as the command line takes them."""
    if len(seeds) > 1 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]}:{seeds[-1] + 1}"
    return ",".join(map(str, seeds))


def to_text(value: Any) -> str:
    """What `from_text` reads back as the same value, a bare word where that will do."""
    if isinstance(value, str) and from_text(value) == value:
        return value
    return json.dumps(value)
