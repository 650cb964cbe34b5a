"""Which piece of an update every operation of a compiled program belongs to."""

import re
from pathlib import Path
from typing import NamedTuple

# The first rule that fits the stack of an operation names its piece: a file and a function, either may be empty.
RULES = (
    ("augment.py", "", "gather, shift, convert"),
    ("replay.py", "gather", "gather, shift, convert"),
    ("replay.py", "", "draw"),
    ("greedy.py", "_look", "encoder, images without gradient"),
    ("transition.py", "", "imagination"),
    ("soft.py", "soft_target", "targets"),
    ("long_sums.py", "", "trunks"),
    ("encoders.py", "", "encoder, images with gradient"),
    ("half.py", "", "encoder, images with gradient"),
    ("control.py", "Trunk", "trunks"),
    ("heads.py", "", "heads"),
    ("layers.py", "", "heads"),
    ("values.py", "", "values, targets, losses"),
    ("greedy.py", "", "values, targets, losses"),
    ("rainbow.py", "", "optimiser"),
    ("descent.py", "descend", "optimiser"),
    ("sac.py", "follow", "optimiser"),
    ("soft.py", "", "values, targets, losses"),
)
REST = "other"


class Frame(NamedTuple):
    file: str
    function: str
    line: int


class Program:
    """The text of a compiled program: which stack of Python calls each of its operations comes from."""

    def __init__(self, text: str):
        tables = {name: self._table(text, name) for name in ("FileNames", "FunctionNames", "FileLocations")}
        self.files, self.functions, self.places = tables.values()
        self.frames = self._table(text, "StackFrames")
        found = re.findall(r"^\s+(?:ROOT )?%?([\w.\-]+) = .*?metadata=\{(.*)\}", text, re.MULTILINE)
        self.operations = dict(found)

    @staticmethod
    def _table(text: str, name: str) -> dict[int, str]:
        body = re.search(rf"^{name}\n((?:\d+ .*\n)+)", text, re.MULTILINE)
        lines = body.group(1).splitlines() if body else []
        return {int(number): rest for number, rest in (line.split(" ", 1) for line in lines)}

    def stack(self, operation: str) -> list[Frame]:
        """Innermost call first; empty where the compiler made the operation up."""
        at, frames = _number(self.operations.get(operation, ""), "stack_frame_id"), []
        while at > 0:
            place = self.places[_number(self.frames[at], "file_location_id")]
            file = Path(self.files[_number(place, "file_name_id")].strip('"')).name
            function = self.functions[_number(place, "function_name_id")].strip('"')
            frames.append(Frame(file, function, _number(place, "line")))
            at = _number(self.frames[at], "parent_frame_id") - 1  # counted from one, none is one
        return frames

    def piece(self, operation: str) -> str:
        frames = self.stack(operation)
        for file, function, piece in RULES:
            if any((not file or f.file == file) and f.function.startswith(function) for f in frames):
                backward = "transpose(" in self.operations[operation]
                return f"{piece}, backward" if backward else piece
        return REST


def _number(text: str, name: str) -> int:
    found = re.search(rf"{name}=(\d+)", text)
    return int(found.group(1)) if found else 0
