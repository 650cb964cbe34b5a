"""The forms of the paper's tables."""

from types import SimpleNamespace

import pytest

from vcrl.bench import forms, paper
from vcrl.bench.aggregates import published
from vcrl.bench.forms import Cost, Measured
from vcrl.bench.latex import latex
from vcrl.bench.stats import Interval
from vcrl.bench.tables import sheet_markdown
from vcrl.core.errors import UserError

FOUND = {
    "spr": {"iqm": Interval(0.337, 0.326, 0.347), "optimality_gap": Interval(0.577, 0.571, 0.584)},
    "VCR (paper)": {"iqm": published(0.397), "optimality_gap": published(0.544)},
    "mine": {"iqm": Interval(0.1, 0.1, 0.1)},
}


def texts(sheet):
    return [[cell.text for cell in row] for row in sheet.rows]


def bold(sheet):
    return [[cell.text for cell in row if cell.best] for row in sheet.rows]


def test_aggregates_with_their_intervals_and_runs():
    sheet = forms.aggregate_table(FOUND, ["iqm", "optimality_gap"], runs={"spr": "100"})
    assert sheet.headings == ["Method", "Runs", "IQM", "Optimality gap"]
    assert texts(sheet) == [
        ["spr", "100", "0.337 [0.326, 0.347]", "0.577 [0.571, 0.584]"],
        ["VCR (paper)", "-", "0.397", "0.544"],
        ["mine", "-", "0.100", "-"],  # one run has no interval
    ]
    assert bold(sheet) == [[], ["0.397", "0.544"], []]  # more is better, and less
    assert sheet.notes == ("Brackets: 95% stratified-bootstrap intervals, where runs are known",)
    percent = forms.aggregate_table(FOUND, ["iqm"], percent=True)
    assert percent.headings == ["Method", "IQM (%)"]
    assert texts(percent)[0] == ["spr", "33.7 [32.6, 34.7]"]


def test_what_is_equal_in_print_is_equally_bold():
    found = {"a": {"iqm": published(0.3971)}, "b": {"iqm": published(0.3969)}, "c": {"iqm": published(0.39)}}
    assert bold(forms.aggregate_table(found, ["iqm"])) == [["0.397"], ["0.397"], []]
    assert bold(forms.aggregate_table({"a": found["a"]}, ["iqm"])) == [[]]  # best of one is nothing


def test_ablations_have_their_difference_to_the_baseline():
    sheet = forms.ablation_table(FOUND, "spr", percent=True)
    assert sheet.headings == ["Variant", "IQM (%)", "to spr", "Optimality gap (%)", "to spr"]
    assert texts(sheet)[1] == ["VCR (paper)", "39.7", "+6.0", "54.4", "-3.3"]
    assert texts(sheet)[0][2] == texts(sheet)[2][3] == texts(sheet)[2][4] == "-"
    points = {m: {"iqm": published(x)} for m, x in (("spr", 700.0), ("vcr", 707.0), ("der", 699.8))}
    assert [row[2] for row in texts(forms.ablation_table(points, "spr", ["iqm"]))] == ["-", "+7", "+0"]
    with pytest.raises(UserError, match="did you mean spr"):
        forms.ablation_table(FOUND, "sqr")
    with pytest.raises(UserError, match="unknown statistic"):
        forms.ablation_table(FOUND, "spr", ["mode"])


def test_the_papers_ablations_fill_their_form():
    rows = [row for kind in paper.ablations()["atari100k"].values() for row in kind]
    found = {r.method: {"iqm": published(r.iqm), "optimality_gap": published(r.optimality_gap)} for r in rows}
    sheet = forms.ablation_table(found, next(iter(found)), percent=True)
    assert len(sheet.rows) == len(found) >= 7
    assert not sheet.notes  # the paper gives no intervals


def test_games_with_references_counts_and_aggregates():
    scores = {
        "spr": {"alien": 841.9, "pong": Measured(-5.4, 10.25, 10), "qbert": 10.0},
        "vcr": {"alien": 822.4, "pong": Measured(-3.0, 2.0, 10), "qbert": 10.04},
    }
    sheet = forms.task_table(
        scores,
        references={"human": {"alien": 7127.7, "pong": 14.6}},
        foot={"IQM": {"spr": 0.337, "vcr": 0.397}, "Optimality gap": {"spr": 0.577, "vcr": 0.544}},
        titles={"alien": "Alien"},
    )
    assert sheet.headings == ["Task", "human", "spr", "vcr"]
    assert texts(sheet) == [
        ["Alien", "7,127.7", "841.9", "822.4"],
        ["pong", "14.6", "-5.4 ± 10.2", "-3.0 ± 2.0"],
        ["qbert", "-", "10.0", "10.0"],
        ["Best on", "", "2", "2"],
        ["IQM", "", "0.337", "0.397"],
        ["Optimality gap", "", "0.577", "0.544"],
    ]
    assert bold(sheet) == [["841.9"], ["-3.0 ± 2.0"], ["10.0", "10.0"], [], ["0.397"], ["0.544"]]
    assert sheet.rules == (3,)
    assert sheet.notes == ("Mean ± standard deviation over runs",)


def test_the_papers_games_say_how_often_vcr_is_best():
    scores = {name: column for name, column in paper.scores().items() if name != "VCR K=9"}
    sheet = forms.task_table(scores)
    assert len(sheet.rows) == 27
    best = dict(zip(sheet.headings, texts(sheet)[-1], strict=True))
    assert (best["VCR"], best["PlayVirtual"]) == ("6", "8")  # as its text says, and as counted by others


def test_five_and_nine_imagined_steps():
    sheet = forms.steps_table(paper.imagined_steps(), foot={"IQM": {"K=5": 0.397, "K=9": 0.397}})
    assert sheet.headings == ["Task", "K=5", "K=9", "Change"]
    changes = {row[0]: row[3] for row in texts(sheet)}
    # Named in the paper's text; Pong's score is positive with K = 5 and negative with K = 9.
    assert [changes[t] for t in ("breakout", "demon-attack", "qbert")] == ["+51%", "+110%", "+327%"]
    assert [changes[t] for t in ("bank-heist", "crazy-climber", "boxing")] == ["-37%", "-42%", "-43%"]
    assert changes["pong"] == changes["IQM"] == "-"
    with pytest.raises(UserError, match="two settings"):
        forms.steps_table({"K=5": {"pong": 1.0}})


def test_dmcontrol_is_a_block_per_budget():
    sheet = forms.dmc_table(
        {"100k": paper.dmc()["dmc100k"], "500k": paper.dmc()["dmc500k"]},
        foots={"100k": {"Optimality gap": {"SPR": 335.0, "VCR": 283.0}}, "500k": {"Median": {"VCR": 934.0}}},
    )
    told = {(row[1], i): dict(zip(sheet.headings, row, strict=True)) for i, row in enumerate(texts(sheet))}
    assert len(told) == 14 and sheet.rules == (0, 7)
    assert [row[0] for row in texts(sheet)] == ["100k", *[""] * 6, "500k", *[""] * 6]
    assert told["finger-spin", 0]["VCR"] == "795 ± 157"
    assert told["cartpole-swingup", 1]["SLAC"] == "-"
    assert [cell.text for cell in sheet.rows[1] if cell.best] == ["815 ± 48", "815 ± 47"]  # equal means
    assert [cell.text for cell in sheet.rows[6] if cell.best] == ["283"]
    assert [cell.text for cell in sheet.rows[13] if cell.best] == []


def test_times_are_compared_on_the_same_hardware():
    costs = [
        Cost("atari100k", "SPR", 5, 5.6, "A100", "paper"),
        Cost("atari100k", "VCR", 5, 6.4, "A100", "paper"),
        Cost("atari100k", "vcr", 5, 0.31, "H200", "runs"),
        Cost("dmc100k", "sac", None, 3.0, "A100"),
    ]
    sheet = forms.time_table(costs)
    assert [row[3] for row in texts(sheet)] == ["5.6", "6.4", "0.31", "3.0"]
    assert bold(sheet) == [["5.6"], [], [], []]
    assert sheet.rules == (3,)
    assert texts(sheet)[3] == ["dmc100k", "sac", "-", "3.0", "A100", ""]
    assert forms.time_table(costs[3:]).headings[-1] == "Hardware"  # nothing has a source


def test_tidy_rows_become_means_and_spreads():
    def row(task, seed, score, runs=1):
        return SimpleNamespace(task=task, seed=seed, score=score, runs=runs)

    rows = [row("pong", 0, 1.0), row("pong", 1, 3.0), row("pong", None, 5.0, 100), row("alien", 0, 7.0)]
    found = forms.measured(rows, ["spr", "spr", "SPR (paper)", "spr"])
    assert found == {
        "spr": {"pong": Measured(2.0, pytest.approx(2**0.5), 2), "alien": Measured(7.0, None, 1)},
        "SPR (paper)": {"pong": Measured(5.0, None, 100)},
    }
    assert texts(forms.task_table(found))[0] == ["pong", "2.0 ± 1.4", "5.0"]


def test_every_form_is_both_markdown_and_latex():
    sheets = [
        forms.aggregate_table(FOUND, ["iqm"]),
        forms.ablation_table(FOUND, "spr"),
        forms.task_table(paper.scores()),
        forms.steps_table(paper.imagined_steps()),
        forms.dmc_table(paper.dmc()),
        forms.time_table([Cost(s, *row) for s, rows in paper.training_times().items() for row in rows]),
    ]
    for sheet in sheets:
        lines = [line for line in sheet_markdown(sheet).splitlines() if line.startswith("|")]
        assert len(lines) == len(sheet.rows) + 2
        assert {line.count("|") for line in lines} == {len(sheet.headings) + 1}
        assert latex(sheet).count("\\\\\n") == len(sheet.rows) + 1
        assert (latex(sheet).count("\\textbf{"), True) == (sum(map(len, bold(sheet))), latex(sheet).isascii())


def test_a_table_of_nothing_is_refused():
    with pytest.raises(UserError, match="at least one method"):
        forms.aggregate_table({})
