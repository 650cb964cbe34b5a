"""A run is a folder: what it is, what happened, where it stands; one writer at a time, many readers."""

import fcntl
import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from vcrl.core.errors import UserError
from vcrl.runs import receipts
from vcrl.runs.files import odd_in, temp_of, write_atomic, writing
from vcrl.runs.logs import HEADER, Float, Int, Log, episode_line, json_line, plain, steps_told
from vcrl.runs.reading import CONFIG, LOGS, STATUS, Run, read_object, read_run, read_status
from vcrl.runs.receipts import Game, Receipt

LOCK = "lock"
COUNTED = ("metrics", "episodes", "eval")  # not speed: the clock does not run backwards when a run is resumed
HEADERS = {"metrics": b"", "episodes": HEADER, "eval": HEADER, "speed": b""}


class RunFolder:
    """The one writer of a run folder; obtained by `open`."""

    def __init__(self, path: Path, record: dict[str, Any], logs: dict[str, Log], held: ExitStack):
        self.path = path
        self.record = record
        self._logs = logs
        self._held = held
        self.mended: list[str] = []  # what was damaged and could be made anew

    @classmethod
    def open(cls, path: Path, record: dict[str, Any]) -> "RunFolder":
        """Create the folder of a run, or continue it if everything but its "facts" is the same."""
        text = json.dumps(record, indent=2, allow_nan=False)
        with ExitStack() as stack:
            with writing(path):
                path.mkdir(parents=True, exist_ok=True)
                _refuse_odd(path)
                _refuse_strangers(path)
                stack.enter_context(_locked(path))
                if (path / CONFIG).exists():
                    _refuse_other(path, read_object(path / CONFIG), json.loads(text))
            logs: dict[str, Log] = {}
            for name in LOGS:
                logs[name] = Log(path / LOGS[name], HEADERS[name])
                stack.callback(logs[name].close)
            if not (path / CONFIG).exists():
                with writing(path):  # last of all: who sees it may rely on the rest
                    write_atomic(path / CONFIG, text.encode() + b"\n")
            mended = _mend_status(path)
            folder = cls(path, read_object(path / CONFIG), logs, stack.pop_all())
            folder.mended += mended
            return folder

    @staticmethod
    def read(path: Path) -> Run:
        """Look at a run, finished or not, without taking part in it."""
        return read_run(path)

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    def metrics(self, row: dict[str, Any]) -> None:
        """Numbers of training, per seed; a number that is not finite is written as null and read as nan."""
        self._logs["metrics"].append(json_line(row))

    def episode(self, seed: Int, agent_steps: Int, episode: Int, score: Float, length: Int) -> None:
        """A finished episode of training."""
        self._logs["episodes"].append(episode_line(seed, agent_steps, episode, score, length))

    def evaluation(self, seed: Int, agent_steps: Int, episode: Int, score: Float, length: Int) -> None:
        """A finished episode of the protocol's evaluation."""
        self._logs["eval"].append(episode_line(seed, agent_steps, episode, score, length))

    def receipt(self, agent_steps: int, salt: int, games: Sequence[Game]) -> None:
        """What was done in the games of an evaluation, on disk when this returns."""
        task, protocol_hash = self.record["task"], self.record["protocol_hash"]
        with writing(self.path / receipts.FOLDER):
            receipts.write(self.path, Receipt(agent_steps, task, protocol_hash, salt, list(games)))

    def speed(self, row: dict[str, Any]) -> None:
        """Anything measured by the clock; kept apart because no two runs agree on it."""
        self._logs["speed"].append(json_line(row))

    def flush(self) -> None:
        for log in self._logs.values():
            log.flush()

    def positions(self) -> dict[str, int]:
        """Byte lengths of the logs that a checkpoint counts, after everything written so far is on disk."""
        return {name: self._logs[name].position() for name in COUNTED}

    def digests(self, positions: dict[str, int]) -> dict[str, str]:
        """A checksum of every counted log up to its position."""
        return {name: self._logs[name].digest(position) for name, position in positions.items()}

    def changed(self, positions: dict[str, int], digests: dict[str, str]) -> list[str]:
        """Files of counted logs that are no longer what a checksum was taken of."""
        return [
            LOGS[name]
            for name in COUNTED
            if name in digests and self._logs[name].digest(positions[name]) != digests[name]
        ]

    def truncate(self, positions: dict[str, int] | None = None) -> None:
        """Cut the logs back to where a checkpoint left them; without positions, to their headers."""
        if positions is not None and not _counts(positions):
            raise UserError(
                f"the checkpoint in {self.path} counts other logs: delete {self.checkpoint} to start again"
            )
        wanted = {name: None if positions is None else positions[name] for name in COUNTED}
        for name, position in wanted.items():  # all of them before any is cut
            self._logs[name].check(position)
        for name, position in wanted.items():
            self._logs[name].truncate(position)
        with writing(self.path / receipts.FOLDER):
            receipts.keep(self.path, steps_told(self.path / LOGS["eval"]))

    def status(self, changes: dict[str, Any]) -> None:
        """Merge into status.json."""
        text = json.dumps({**self.read_status(), **plain(changes)}, indent=2, allow_nan=False)
        with writing(self.path):
            write_atomic(self.path / STATUS, text.encode() + b"\n")

    def ran_on(self, hardware: str) -> None:
        """Remember where it goes on: one run may be trained on a GPU and play its games elsewhere."""
        known = self.read_status().get("hardware")
        known = known if isinstance(known, list) else []
        if known[-1:] != [hardware]:
            self.status({"hardware": [*known, hardware]})

    def read_status(self) -> dict[str, Any]:
        return read_status(self.path)

    def close(self) -> None:
        """Write what is buffered and let others write."""
        self._held.close()

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def run_path(root: Path, suite: str, method: str, task: str, seeds: Sequence[int], digest: str) -> Path:
    """root/suite/method/task/<seeds>-<digest>; config.json tells apart two tasks that share a safe name."""
    return root / safe(suite) / safe(method) / safe(task) / f"{seeds_name(seeds)}-{safe(digest)}"


def seeds_name(seeds: Sequence[int]) -> str:
    """0-4 for a range, 0_3_7 for a list, first-last-count for a list too long to read."""
    if not seeds:
        raise UserError("a run needs at least one seed")
    first, last = seeds[0], seeds[-1]
    if len(seeds) > 1 and list(seeds) == list(range(first, last + 1)):
        return f"{first}-{last}"
    return "_".join(map(str, seeds)) if len(seeds) <= 12 else f"{first}-{last}-{len(seeds)}"


def safe(name: str) -> str:
    """Letters, digits and a few marks; no leading dot, so neither hidden nor a way out of the folder."""
    return re.sub(r"^\.+|[^A-Za-z0-9._-]+", "_", name)[:120] or "_"


def _refuse_strangers(path: Path) -> None:
    """A folder with somebody's files is not ours to fill; what a run leaves when killed at birth is."""
    if (path / CONFIG).exists():
        return
    empty = {LOGS[name]: len(HEADERS[name]) for name in LOGS}
    for entry in sorted(path.iterdir()):
        newborn = entry.name in (LOCK, temp_of(Path(CONFIG)).name) or (
            entry.name in empty and entry.stat().st_size <= empty[entry.name]
        )
        if not newborn:
            raise UserError(
                f"{path} is not a run folder ({entry.name} but no {CONFIG}): "
                "choose another --out or delete the folder"
            )


def _counts(positions: Any) -> bool:
    """Whether what a manifest has are lengths of the logs."""
    return (
        isinstance(positions, dict)
        and positions.keys() == set(COUNTED)
        and all(type(n) is int for n in positions.values())
    )


def _mend_status(path: Path) -> list[str]:
    """A damaged status.json is begun anew: everything in it that matters to a training is in its checkpoint, too."""
    try:
        read_status(path)
        return []
    except UserError:
        with writing(path):
            (path / STATUS).unlink()
        return [f"{path / STATUS} was damaged: it is begun anew; earlier events and times are lost"]


def _refuse_odd(path: Path) -> None:
    """What is written here must land here: through a link, a folder from elsewhere could overwrite any file."""
    for odd in odd_in(path):
        if odd.is_symlink():
            raise UserError(
                f"{odd} is a link, and a run writes into its own folder alone: "
                "put what it leads to in its place, or delete it"
            )
        raise UserError(f"{odd} is no plain file: delete it")


def _refuse_other(path: Path, stored: dict[str, Any], asked: dict[str, Any]) -> None:
    found = _difference({**stored, "facts": None}, {**asked, "facts": None})
    if found:
        where, there, here = found
        raise UserError(
            f"{path} holds another run: {where} is {there} there and {here} here; "
            "choose another --out or delete the folder"
        )


def _difference(stored: Any, asked: Any, where: str = "") -> tuple[str, str, str] | None:
    """The first dotted path on which two records differ, with both values; where one lacks it, '-'."""
    if isinstance(stored, dict) and isinstance(asked, dict):
        for key in [*asked, *(k for k in stored if k not in asked)]:
            path = f"{where}.{key}" if where else key
            if key not in stored or key not in asked:
                return path, _shown(stored, key), _shown(asked, key)
            if found := _difference(stored[key], asked[key], path):
                return found
        return None
    there, here = json.dumps(stored, sort_keys=True), json.dumps(asked, sort_keys=True)
    return None if there == here else (where, _short(there), _short(here))


def _shown(record: dict[str, Any], key: str) -> str:
    return _short(json.dumps(record[key])) if key in record else "-"


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Held by the system while this process lives, so that a killed run leaves nothing to clean up."""
    with open(folder / LOCK, "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            pid = file.read(20).strip() or "unknown"
            raise UserError(
                f"another process (pid {pid}) is writing this run: "
                f"wait for it or choose another --out ({folder})"
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        try:
            yield
        finally:
            # Said aloud, because a forked child may still hold the file open.
            fcntl.flock(file, fcntl.LOCK_UN)
