"""What a run folder says it is, and whether its files and its name agree: the first half of `vcrl verify`."""

import fcntl
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from vcrl.core.config import digest, from_json
from vcrl.core.errors import UserError
from vcrl.core.protocol import Protocol
from vcrl.methods.configs import CONFIGS
from vcrl.runs import receipts
from vcrl.runs.files import is_temp
from vcrl.runs.folder import LOCK, run_path
from vcrl.runs.logs import Episode
from vcrl.runs.reading import CONFIG, LOGS, STATUS, check_record

OK, NOTE, WARNING, FAILED = "ok", "note", "warning", "FAILED"
STATES = ("running", "stopped", "done", "failed")
COUNTERS = ("agent_steps", "env_steps", "frames", "updates")
PLAIN_FILES = {CONFIG, STATUS, LOCK, *LOGS.values()}
IN_FOLDERS = {
    "checkpoint": r"[0-9]{9,18}\.(safetensors|json)|rows/[0-9]{9,18}-[0-9]{9,18}\.safetensors",
    receipts.FOLDER: r"[0-9]{9,18}\.receipt",
}
MOST_FILES = 100_000
RESTORE = "restore the file from a copy, or delete the run's folder and train again"


class Check(NamedTuple):
    """One line of the answer: what was looked at, how it is, what was found, what to do about it."""

    name: str
    state: str
    found: str
    todo: str = ""


class Fault(Exception):
    """What is wrong, and what to do."""

    def __init__(self, found: str, todo: str = RESTORE):
        super().__init__(found)
        self.found, self.todo = found, todo


class Seen(NamedTuple):
    """What the checks after the first can rely on."""

    path: Path
    record: dict[str, Any]
    status: dict[str, Any]
    rows: list[Episode]  # of eval.csv

    @property
    def seeds(self) -> list[int]:
        return self.record["seeds"]

    @property
    def done(self) -> bool:
        return self.status.get("state") == "done"


def need(good: bool, found: str, todo: str = RESTORE) -> None:
    if not good:
        raise Fault(found, todo)


def walk(folder: Path, depth: int = 3) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            yield entry
            if depth and entry.is_dir(follow_symlinks=False):
                yield from walk(Path(entry.path), depth - 1)


def check_files(path: Path) -> Check:
    """Plain files of known names; a link could lead anywhere."""
    odd: list[str] = []
    left: list[str] = []
    count = 0
    for entry in walk(path):
        count += 1
        need(count <= MOST_FILES, f"more than {MOST_FILES:,} files", "delete what does not belong there")
        name = str(Path(entry.path).relative_to(path))
        if entry.is_symlink():
            inside = Path(entry.path).resolve().is_relative_to(path.resolve())
            where = "" if inside else " out of the folder"
            raise Fault(f"{shown(name)} is a link{where}", "put what it leads to in its place, or delete it")
        mode = entry.stat(follow_symlinks=False).st_mode
        need(stat.S_ISREG(mode) or stat.S_ISDIR(mode), f"{shown(name)} is no plain file", "delete it")
        if is_temp(Path(name)):
            left.append(name)
        elif not _known(name, stat.S_ISDIR(mode)):
            odd.append(name)
    if odd:
        return Check("", WARNING, f"{len(odd)} that no run writes, {shown(odd[0])} first", "delete them")
    if left:
        return Check("", WARNING, f"{len(left)} half written by a process that was killed, harmless")
    if _locked(path / LOCK):
        return Check("", WARNING, "a process is writing this run: what changes meanwhile may look damaged")
    return Check("", OK, f"{count} of known names, no links")


def _known(name: str, folder: bool) -> bool:
    if folder:
        return name in (*IN_FOLDERS, "checkpoint/rows")
    top, _, rest = name.partition("/")
    return name in PLAIN_FILES if not rest else bool(re.fullmatch(IN_FOLDERS.get(top, "(?!)"), rest))


def _locked(lock: Path) -> bool:
    try:
        with open(lock) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def check_config(path: Path, record: dict[str, Any]) -> Check:
    check_record(path, record)
    seeds, protocol = record["seeds"], record["protocol"]
    need(len(set(seeds)) == len(seeds) and all(0 <= s < 2**31 for s in seeds), "seeds that cannot be")
    need(isinstance(record.get("config"), dict), f"config is {ascii(record.get('config'))[:40]}")
    told = record["protocol_hash"]
    try:
        rules: Protocol | None = from_json(Protocol, protocol, "protocol")
    except UserError:
        rules = None  # of another version; its hash can be checked all the same
    steps, most = record.get("budget", protocol["budget"]), protocol["budget"]
    exact = protocol.get("unit", "agent steps") == "agent steps"
    need(steps == most if exact else 0 < steps <= most, f"a budget of {steps} where the protocol has {most}")
    found = digest(protocol) if rules is None else rules.hash
    need(found == told, f"the protocol has the hash {found} and config.json says {told}: it was changed")
    what = f"{record['method']} on {record['task']}, {len(seeds)} seeds, protocol {told}"
    try:
        known = CONFIGS.get(record.get("base", ""))
        if rules is None or known is None:
            raise UserError("its protocol or its base is not known")
        from_json(known, record["config"])
    except UserError as error:
        made = ascii((record.get("facts") or {}).get("vcrl"))[:20]
        return Check("", WARNING, f"{what}; made by vcrl {made}, this version cannot load it ({error})")
    return Check("", OK, what)


def check_name(path: Path, record: dict[str, Any]) -> Check:
    """The folder is named after what is in it."""
    parts = [record[name] for name in ("method", "task", "config", "protocol", "schedule")]
    suite, method, task = (record[name] for name in ("suite", "method", "task"))
    wanted = run_path(Path(), suite, method, task, record["seeds"], digest(tuple(parts)))
    found = path.resolve()
    if found.name != wanted.name:
        ours = re.fullmatch(r"[0-9_-]+-[0-9a-f]{8}", found.name)
        need(
            not ours,
            f"the folder is named {found.name}, by its config.json it is {wanted.name}: it was changed",
        )
        return Check("", WARNING, f"the folder was renamed; it was {wanted.name}")
    if Path(*found.parts[-4:]) != wanted:
        return Check("", WARNING, f"the folder was moved; it was {wanted}")
    return Check("", OK, f"{wanted.name} agrees with config.json")


def check_status(seen: Seen) -> Check:
    status = seen.status
    if not status:
        return Check("", WARNING, "not there: the training has not begun")
    state = status.get("state")
    need(state in STATES, f"the state is {ascii(state)[:40]}")
    counters = {name: status.get(name) for name in COUNTERS if name in status or state != "failed"}
    for name, value in counters.items():
        need(type(value) is int and value >= 0, f"{name} is {ascii(value)[:40]}")
    lanes = status.get("lane_agent_steps", [0] * len(seen.seeds))
    need(len(lanes) == len(seen.seeds), f"{len(lanes)} lanes for {len(seen.seeds)} seeds")
    ill = {int(seed) for seed in status.get("not_finite_since", {})}
    need(ill <= set(seen.seeds), "names seeds that are not of this run")
    reached, budget = (
        status.get("agent_steps", 0),
        seen.record.get("budget", seen.record["protocol"]["budget"]),
    )
    good = reached == budget if seen.done else reached <= budget
    need(good, f"{state} after {reached} agent steps of {budget}")
    steps = f", {status['agent_steps']:,} agent steps" if "agent_steps" in status else ""
    if ill:
        return Check("", WARNING, f"{state}{steps}; not finite: seeds {', '.join(map(str, sorted(ill)))}")
    return Check("", OK, f"{state}{steps}")


def shown(name: str) -> str:
    return ascii(name)[1:-1][:80]
