"""Result tables."""

import io

import pytest
from rich.console import Console

from vcrl.bench.stats import Interval
from vcrl.bench.tables import (
    Cell,
    Column,
    Sheet,
    Summary,
    interval_text,
    markdown,
    rich_table,
    sheet_markdown,
    summary_table,
)

ROWS = [
    Summary(
        "catch", "rainbow", 5, Interval(0.41, 0.3, 0.55), Interval(0.5, 0.4, 0.6), Interval(0.1, 0.1, 0.2), 0
    ),
    Summary("catch", "vcr", 5, Interval(0.93, 0.85, 0.99), Interval(0.14, 0.1, 0.2), None, 1),
    Summary("boxing", "vcr", 1, Interval(12.34, 12.34, 12.34), None, None, 0),
]


TEXT = """
| task   | method  | seeds |  score (IQM, 95%) |  Q error imagined |      Q error real | diverged |
| ------ | ------- | ----: | ----------------: | ----------------: | ----------------: | -------: |
| catch  | rainbow |     5 | 0.41 [0.30, 0.55] | 0.50 [0.40, 0.60] | 0.10 [0.10, 0.20] |        0 |
| catch  | vcr     |     5 | 0.93 [0.85, 0.99] | 0.14 [0.10, 0.20] |                 - |        1 |
| boxing | vcr     |     1 |              12.3 |                 - |                 - |        0 |
"""


def test_summary_is_markdown_with_aligned_columns():
    assert summary_table(ROWS) == TEXT.strip()


def test_columns_without_content_are_left_out():
    heading = summary_table(ROWS[2:]).splitlines()[0]
    assert "Q error" not in heading
    assert "diverged" not in heading


def test_rich_table_fits_eighty_columns_and_keeps_brackets():
    sink = io.StringIO()
    Console(file=sink, width=80).print(rich_table([ROWS[0], ROWS[1]._replace(diverged=0)]))
    text = sink.getvalue()
    assert "0.93 [0.85, 0.99]" in text and "0.50 [0.40, 0.60]" in text
    assert "…" not in text


def test_no_rows_give_a_heading():
    assert summary_table([]).startswith("| task | method | seeds |")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Interval(0.93, 0.85, 0.99), "0.93 [0.85, 0.99]"),
        (Interval(1234.5, 900.2, 1500.0), "1,234 [900, 1,500]"),
        (Interval(-20.6, -21.0, -3.0), "-20.6 [-21.0, -3.0]"),
        (Interval(0.0123, 0.01, 0.02), "0.012 [0.010, 0.020]"),
        (Interval(-0.001, -0.5, 0.5), "0.00 [-0.50, 0.50]"),
        (Interval(0.0, 0.0, 0.0), "0.00 [0.00, 0.00]"),
        (None, "-"),
    ],
)
def test_intervals_are_written_with_the_digits_they_deserve(value, text):
    assert interval_text(value) == text


SHEET = """
**Of 2 \\* games.**

| a\\|b  |       K |
| ----- | ------: |
| x\\<y  | **1.5** |
| d_MSE |       - |

A note.

Another.
"""


def test_a_sheet_is_markdown_with_the_best_bold_and_nothing_else_marked():
    rows = [[Cell("x<y"), Cell("1.5", best=True)], [Cell("d_MSE"), Cell("-")]]
    sheet = Sheet("Of 2 * games", ["a|b", "K"], [False, True], rows, notes=("A note", "Another"))
    assert sheet_markdown(sheet) == SHEET.strip()


def test_a_line_break_cannot_leave_its_cell():
    sheet = Sheet("c", ["a"], [False], [[Cell("x\n| y")]])
    assert sheet_markdown(sheet).splitlines()[-1] == r"| x \| y |"


def test_the_rule_of_a_narrow_column_is_a_rule():
    assert markdown([Column("K", ["5"], True)]).splitlines()[1] == "| -: |"
