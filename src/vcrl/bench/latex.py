"""Tables as LaTeX. They need the package booktabs and no other, and are pure ASCII."""

import re

from vcrl.bench.tables import Cell, Sheet
from vcrl.core.errors import UserError

SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "`": r"\textasciigrave{}",
    "\N{PLUS-MINUS SIGN}": r"$\pm$",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    "\N{MINUS SIGN}": "$-$",
    "\N{EN DASH}": "--",
    "\N{GREEK SMALL LETTER LAMDA}": r"$\lambda$",
    "\N{GREEK SMALL LETTER EPSILON}": r"$\epsilon$",
    "\N{GREEK SMALL LETTER GAMMA}": r"$\gamma$",
    "\N{GREEK SMALL LETTER TAU}": r"$\tau$",
    "\N{GREEK CAPITAL LETTER DELTA}": r"$\Delta$",
}


def latex(sheet: Sheet, label: str = "") -> str:
    """A table environment with its caption, and its notes below."""
    if label and not re.fullmatch(r"[A-Za-z0-9:.-]+", label):
        raise UserError(f"'{label}' is no label for a table: letters, digits and : . - only")
    wide = len(sheet.headings) > 7
    lines = [
        r"\begin{table}[t]",
        r"\centering",
        f"\\caption{{{escape(sheet.caption)}.}}" + (f"\\label{{{label}}}" if label else ""),
        *([r"\scriptsize\setlength{\tabcolsep}{3pt}"] if wide else [r"\small"]),
        f"\\begin{{tabular}}{{@{{}}{''.join('r' if right else 'l' for right in sheet.numeric)}@{{}}}}",
        r"\toprule",
        _line([Cell(heading) for heading in sheet.headings]),
        r"\midrule",
    ]
    for index, row in enumerate(sheet.rows):
        if index in sheet.rules and index:
            lines.append(r"\midrule")
        lines.append(_line(row))
    lines += [r"\bottomrule", r"\end{tabular}"]
    if sheet.notes:
        lines.append(rf"\par\smallskip{{\footnotesize {' '.join(f'{escape(n)}.' for n in sheet.notes)}\par}}")
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def escape(text: str) -> str:
    """Text that LaTeX sets as it is; a character that plain LaTeX lacks is named by its number."""
    told = "".join(
        SPECIAL.get(c) or (c if c.isascii() else f"[U+{ord(c):04X}]") for c in " ".join(text.split())
    )
    told = "".join(c for c in told if c.isprintable())
    return re.sub(r"(?<![\w-])-(?=[\d.])", "$-$", told)  # a minus, not a hyphen


def _line(row: list[Cell]) -> str:
    cells = [rf"\textbf{{{escape(c.text)}}}" if c.best else escape(c.text) for c in row]
    if cells and cells[0].startswith(("[", "*")):  # which the \\ before it would take for its argument
        cells[0] = "{}" + cells[0]
    return " & ".join(cells) + r" \\"
