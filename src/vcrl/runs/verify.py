"""`vcrl verify`: everything in a run folder looked at again, without loading or changing any of it."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vcrl.core.errors import UserError
from vcrl.runs.checks import (
    FAILED,
    NOTE,
    OK,
    RESTORE,
    WARNING,
    Check,
    Fault,
    Seen,
    check_config,
    check_files,
    check_name,
    check_status,
)
from vcrl.runs.log_checks import (
    check_checkpoints,
    check_episodes,
    check_evaluations,
    check_metrics,
    check_receipts,
    check_scores,
)
from vcrl.runs.logs import Episode, read_episodes, read_rows
from vcrl.runs.reading import CONFIG, LOGS, STATUS, read_object, read_run, read_status
from vcrl.runs.strict import BAD

LONGEST = 300  # letters of what was found: some of them may be a stranger's


def verify(path: Path) -> list[Check]:
    """All checks of a run folder, in order; what fails is in the list, never raised."""
    if not os.path.lexists(path / CONFIG):
        read_run(path)  # says what is wrong, and what may have been meant
    checks = [_try("files", check_files, path)]
    record, status, rows = dict[str, Any](), dict[str, Any](), list[Episode]()

    def config() -> Check:
        record.update(read_object(path / CONFIG))
        return check_config(path, record)

    def state() -> Check:
        status.update(read_status(path))
        return check_status(Seen(path, record, status, rows))

    def evaluations() -> Check:
        rows.extend(read_episodes(path / LOGS["eval"]))
        return check_evaluations(Seen(path, record, status, rows))

    checks.append(_try(CONFIG, config))
    if checks[-1].state == FAILED:
        return [*checks, Check("the rest", WARNING, "not looked at: nothing says what it should be")]
    checks += [_try("name", check_name, path, record), _try(STATUS, state), _try(LOGS["eval"], evaluations)]
    seen = Seen(path, record, status, rows)
    later: dict[str, Callable[[Seen], Check]] = {
        "scores": check_scores,
        "receipts": check_receipts,
        LOGS["episodes"]: check_episodes,
        LOGS["metrics"]: check_metrics,
        LOGS["speed"]: lambda seen: Check("", OK, f"{len(read_rows(seen.path / LOGS['speed']))} rows"),
        "checkpoint": check_checkpoints,
    }
    return checks + [_try(name, look, seen) for name, look in later.items()]


def _try(name: str, look: Callable[..., Check], *arguments: Any) -> Check:
    """Whatever a damaged or hostile file does to a check is its result."""
    try:
        found = look(*arguments)
    except Fault as fault:
        found = Check(name, FAILED, fault.found, fault.todo)
    except UserError as error:
        found = Check(name, FAILED, str(error), "" if ": " in str(error) else RESTORE)
    except OSError as error:
        found = Check(name, FAILED, f"cannot be read ({error.strerror})", RESTORE)
    except BAD as error:
        found = Check(name, FAILED, f"is malformed ({type(error).__name__}: {error})", RESTORE)
    line = "".join(letter if letter.isprintable() else "?" for letter in found.found[:LONGEST])
    return found._replace(name=name, found=line)


def failed(checks: list[Check]) -> bool:
    return any(check.state == FAILED for check in checks)


def text(checks: list[Check]) -> str:
    """A line each, and a count."""
    width = max(len(check.name) for check in checks)
    lines = [
        f"{c.name:{width}}  {c.state:7}  {c.found}{': ' + c.todo if c.todo and c.state != OK else ''}"
        for c in checks
    ]
    counts = Counter(check.state for check in checks)
    told = ", ".join(f"{counts[state]} {state}" for state in (OK, NOTE, WARNING, FAILED) if counts[state])
    return "\n".join([*lines, f"{len(checks)} checks: {told}"])


def as_data(path: Path, checks: list[Check]) -> dict[str, Any]:
    return {"run": str(path), "whole": not failed(checks), "checks": [check._asdict() for check in checks]}
