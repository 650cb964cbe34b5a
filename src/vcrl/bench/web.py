"""Pieces of a web page that needs nothing but itself: text escaped, style and script inside, no address anywhere."""

import base64
import hashlib
import io
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from vcrl.bench.looks import PLAIN, STYLE

ASSETS = Path(__file__).parent / "assets"
HEAVY, PANELS = 6000, 12  # points and panels from which a figure is smaller, and quicker to show, as pixels

LONG = 40  # rows from which a table scrolls beneath its headings


class Html(NamedTuple):
    """Text that is HTML already; anything else is escaped."""

    text: str


class Cell(NamedTuple):
    """A cell of a table: what it shows, and by what it sorts."""

    shown: "str | Html"
    value: float | str | None = None
    kind: str = ""  # a class of its own, such as `above`


class Heading(NamedTuple):
    text: str
    numeric: bool = False
    wrap: bool = False


def html(value: "str | Html") -> str:
    return value.text if isinstance(value, Html) else escape(str(value))


def page(title: str, body: Sequence[str]) -> str:
    """A whole page. Its policy allows this very script and style and images inside the page, and nothing else."""
    style, script = ((ASSETS / f"report.{kind}").read_text() for kind in ("css", "js"))
    policy = f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}"
    head = [
        "<!doctype html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        '<link rel="icon" href="data:,">',
        f"<title>{escape(title)}</title>",
        f"<style>{style}</style>",
        "</head>",
        "<body>",
        '<a class="skip" href="#main">to the content</a>',
    ]
    return "\n".join([*head, *body, f"<script>{script}</script>", "</body>", "</html>", ""])


def table(
    headings: Sequence[Heading],
    rows: Sequence[Sequence[Cell]],
    *,
    label: str,
    name: str = "",
    sortable: bool = False,
    filters: Sequence[tuple[str, str]] = (),
) -> str:
    """A table in a box that scrolls by itself, so that the page does not; `filters` is (method, text) of every row."""
    head = []
    for heading in headings:
        inner = f'<button type="button">{escape(heading.text)}</button>' if sortable else escape(heading.text)
        sort = ' aria-sort="none"' if sortable else ""
        head.append(f'<th scope="col"{_class(heading)}{sort}>{inner}</th>')
    body = []
    for i, row in enumerate(rows):
        data = ""
        if filters:
            data = f' data-method="{escape(filters[i][0])}" data-text="{escape(filters[i][1])}"'
        cells = [_cell(cell, heading) for cell, heading in zip(row, headings, strict=True)]
        body.append(f"<tr{data}>{''.join(cells)}</tr>")
    named = f' id="{escape(name)}"' if name else ""
    kind = ' class="sortable"' if sortable else ""
    box = "scroll tall" if len(rows) > LONG else "scroll"
    return "\n".join(
        [
            f'<div class="{box}" tabindex="0" role="region" aria-label="{escape(label)}">',
            f"<table{named}{kind}>",
            f"<thead><tr>{''.join(head)}</tr></thead>",
            "<tbody>",
            *body,
            "</tbody></table></div>",
        ]
    )


def filters(name: str, methods: Iterable[str]) -> str:
    """What filters the table of that name."""
    options = "".join(f'<option value="{escape(m)}">{escape(m)}</option>' for m in methods)
    return (
        f'<form class="filter" data-table="{escape(name)}" role="search">'
        '<label>filter<input type="search" name="words" placeholder="game, method, source" autocomplete="off"></label>'
        f'<label>method<select name="method"><option value="">all</option>{options}</select></label>'
        '<output aria-live="polite"></output></form>'
    )


def figure(drawn: Figure, alt: str, caption: str, label: str) -> str:
    """A figure inside the page; a wide one scrolls in its own box on a narrow screen instead of shrinking to dust."""
    inches = drawn.get_size_inches()[0]
    kind = ' class="huge"' if inches > 9 else ' class="wide"' if inches > 5.5 else ""
    box = f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}">'
    width = round(
        120 * drawn.get_size_inches()[0]
    )  # pixels of a screen; a style of its own the policy would refuse
    image = f'<img{kind} width="{width}" src="{_uri(drawn)}" alt="{escape(alt)}">'
    return f"<figure>{box}{image}</div><figcaption>{escape(caption)}</figcaption></figure>"


def items(lines: Iterable["str | Html"]) -> str:
    return "<ul>" + "".join(f"<li>{html(line)}</li>" for line in lines) + "</ul>"


def cards(pairs: Iterable[tuple[str, str]]) -> str:
    inner = "".join(f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in pairs)
    return f'<dl class="cards">{inner}</dl>'


def _cell(cell: Cell, heading: Heading) -> str:
    value = "" if cell.value is None else f' data-value="{escape(str(cell.value))}"'
    return f"<td{_class(heading, cell.kind)}{value}>{html(cell.shown)}</td>"


def _class(heading: Heading, more: str = "") -> str:
    words = [
        word for word in ("number" if heading.numeric else "", "wrap" if heading.wrap else "", more) if word
    ]
    return f' class="{escape(" ".join(words))}"' if words else ""


def _uri(drawn: Figure) -> str:
    points = sum(len(np.asarray(line.get_xydata())) for axis in drawn.axes for line in axis.lines)
    kind, name = ("png", "png") if points > HEAVY or len(drawn.axes) > PANELS else ("svg", "svg+xml")
    image = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        drawn.savefig(image, format=kind, dpi=150, metadata=PLAIN[kind])
    return f"data:image/{name};base64,{base64.b64encode(image.getvalue()).decode()}"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
