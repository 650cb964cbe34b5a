"""`make drills`: every drill, then a table of what happened, what was kept and what was said."""

import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

HEADS = ("drill", "what happened", "what was kept", "what was said", "survived")
WIDTHS = (16, 38, 44, 60, 8)


class Table:
    """Listens to the tests, of which each tells a row."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, ...]] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            told = [value for name, value in report.user_properties if name == "row"]
            for row in told or [[report.nodeid.rpartition("::")[2], "", "", ""]]:
                self.rows.append((*row, "yes" if report.outcome == "passed" else "NO"))

    def text(self) -> str:
        line = "  ".join("-" * width for width in WIDTHS)
        return "\n".join([*wrapped(HEADS), line, *(text for row in self.rows for text in wrapped(row))])

    def markdown(self) -> str:
        """As it stands in docs/drills.md."""
        lines = [HEADS, ("---",) * len(HEADS), *self.rows]
        return "\n".join("| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in lines)


def wrapped(row: tuple[str, ...]) -> list[str]:
    cells = [textwrap.wrap(cell, width) or [""] for cell, width in zip(row, WIDTHS, strict=True)]
    height = max(map(len, cells))
    padded = [cell + [""] * (height - len(cell)) for cell in cells]
    return [
        "  ".join(part.ljust(width) for part, width in zip(parts, WIDTHS, strict=True)).rstrip()
        for parts in zip(*padded, strict=True)
    ]


def main(arguments: list[str]) -> int:
    table, began = Table(), time.monotonic()
    markdown = "--markdown" in arguments
    more = [word for word in arguments if word != "--markdown"]
    code = pytest.main([str(Path(__file__).parent), "-m", "drill", *more], plugins=[table])
    print(table.markdown() if markdown else table.text())
    bad = sum(row[-1] != "yes" for row in table.rows)
    print(
        f"\n{len(table.rows) - bad} of {len(table.rows)} survived, in {time.monotonic() - began:.0f} seconds"
    )
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
