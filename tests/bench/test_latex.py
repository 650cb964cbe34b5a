"""Tables as LaTeX."""

import re
import shutil
import subprocess

import pytest

from vcrl.bench.export import paper_sheets
from vcrl.bench.latex import SPECIAL, escape, latex
from vcrl.bench.tables import Cell, Sheet
from vcrl.core.errors import UserError

NASTY = r"50% of $5 & #1_x {a} ~b^c \end{table} <|> `" + '"quoted"'
# What a table is laid out with: LaTeX's own words and those of booktabs.
LAYOUT = {
    "begin", "end", "centering", "caption", "label", "small", "scriptsize", "footnotesize", "setlength", "tabcolsep",
    "toprule", "midrule", "bottomrule", "textbf", "par", "smallskip",
}  # fmt: skip
SHEET = Sheet(
    "Scores of spr_x & vcr",
    ["Game", "spr_x", "100%"],
    [False, True, True],
    [
        [Cell("Pong"), Cell("-20.6 ± 0.1"), Cell("1.5", best=True)],
        [Cell("[odd]"), Cell(NASTY), Cell("-")],
        [Cell("IQM"), Cell("0.3"), Cell("0.4")],
    ],
    (0, 2),
    ("A note, 95%",),
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a_b", r"a\_b"),
        ("50%", r"50\%"),
        ("\\", r"\textbackslash{}"),
        ("{$&#}", r"\{\$\&\#\}"),
        ("-3.5 to -.5", "$-$3.5 to $-$.5"),
        ("100-200, d_MSE-A, K-5", r"100-200, d\_MSE-A, K-5"),
        ("[-0.1, 2]", "[$-$0.1, 2]"),
        ("795 ± 157", r"795 $\pm$ 157"),
        ("λ = 1 \u00d7 ε", r"$\lambda$ = 1 $\times$ $\epsilon$"),
        ("名", "[U+540D]"),
        ("a\n\n b\x00\x1b", "a b"),
    ],
)
def test_text_is_escaped(text, told):
    assert escape(text) == told


def test_a_table_has_rules_where_they_belong():
    assert latex(SHEET._replace(rows=[SHEET.rows[0], SHEET.rows[2]], rules=(0, 1)), "tab:a") == (
        "\\begin{table}[t]\n\\centering\n"
        "\\caption{Scores of spr\\_x \\& vcr.}\\label{tab:a}\n"
        "\\small\n"
        "\\begin{tabular}{@{}lrr@{}}\n"
        "\\toprule\n"
        "Game & spr\\_x & 100\\% \\\\\n"
        "\\midrule\n"
        "Pong & $-$20.6 $\\pm$ 0.1 & \\textbf{1.5} \\\\\n"
        "\\midrule\n"
        "IQM & 0.3 & 0.4 \\\\\n"
        "\\bottomrule\n\\end{tabular}\n"
        "\\par\\smallskip{\\footnotesize A note, 95\\%.\\par}\n"
        "\\end{table}\n"
    )


def test_whatever_the_cells_say_the_structure_stays():
    text = latex(SHEET)
    assert text.isascii()
    body = text[text.index("\\toprule") : text.index("\\bottomrule")]
    rows = [row for row in body.splitlines() if row.endswith("\\\\")]
    assert [len(re.findall(r"(?<!\\)&", row)) for row in rows] == [2, 2, 2, 2]
    assert "\n{}[odd]" in text  # otherwise the \\ before it takes it for a length
    for name in ("table", "tabular"):
        assert text.count(f"\\begin{{{name}}}") == text.count(f"\\end{{{name}}}") == 1
    bare = re.sub(r"\\[{}]", "", text)
    assert bare.count("{") == bare.count("}")
    assert len(re.findall(r"(?<!\\)\$", text)) % 2 == 0


@pytest.mark.parametrize("sheet", [SHEET, *paper_sheets().values()], ids=lambda sheet: sheet.caption[:20])
def test_a_table_is_latex_with_booktabs_and_nothing_else(sheet):
    text = latex(sheet, "tab:a")
    words = set(re.findall(r"\\([A-Za-z]+)", text))
    escapes = {word for put in SPECIAL.values() for word in re.findall(r"\\([A-Za-z]+)", put)}
    assert words <= LAYOUT | escapes, words - LAYOUT - escapes
    (columns,) = re.findall(r"\\begin\{tabular\}\{@\{\}([lr]+)@\{\}\}", text)
    rows = [line for line in text.splitlines() if line.endswith("\\\\")]
    assert len(rows) == 1 + len(sheet.rows)
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(columns) - 1}
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", text.replace("\\\\", "")):
        depth += 1 if brace == "{" else -1
        assert depth >= 0
    assert depth == 0
    assert not re.search(r"(?<!\\)[#%^~_]", text), "these mean something else there"


def test_a_label_is_checked():
    with pytest.raises(UserError, match="no label"):
        latex(SHEET, "a}b")


@pytest.mark.slow
@pytest.mark.needs(shutil.which("pdflatex") is not None)
def test_pdflatex_sets_it(tmp_path):
    page = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n" + latex(SHEET, "tab:a")
    (tmp_path / "page.tex").write_text(page + "\\end{document}\n")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert found.returncode == 0, found.stdout[-2000:]
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF-")
