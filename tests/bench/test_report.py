"""The report as a file: what it says, what it refuses, that it needs nothing but itself."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from vcrl.bench import export, report, results
from vcrl.cli import main

VOID = {"meta", "link", "img", "input", "br"}


class Page(HTMLParser):
    """Text, addresses and tables of a page; every element that is opened must be closed in order."""

    def __init__(self, text: str):
        super().__init__()
        self.open, self.text, self.addresses, self.ids = list[str](), "", list[str](), list[str]()
        self.rows: list[list[str]] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        held = dict(attrs)
        self.addresses += [held[name] for name in ("src", "href", "action", "data") if held.get(name)]
        self.ids += [held["id"]] if held.get("id") else []
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.text += data
            if {"td", "th"} & set(self.open):
                self.rows[-1][-1] += data

    def table(self, first: str) -> list[list[str]]:
        """Rows beneath the heading that begins so, up to the next heading."""
        start = next(i for i, row in enumerate(self.rows) if ",".join(row).startswith(first))
        width = len(self.rows[start])
        found = []
        for row in self.rows[start + 1 :]:
            if len(row) != width or row[0] in ("method", "task", "field", "suite"):
                break
            found.append(row)
        return found


@pytest.fixture
def written(tmp_path, capsys):
    """The page that a command line writes."""

    def write(*words) -> Page:
        main(["report", *map(str, words), "--out", str(tmp_path / "out")])
        assert f"wrote {tmp_path / 'out' / 'index.html'}" in capsys.readouterr().out
        return Page((tmp_path / "out" / "index.html").read_text())

    return write


@pytest.fixture
def refused(capsys, tmp_path):
    def refuse(*words) -> str:
        with pytest.raises(SystemExit) as caught:
            main(["report", *map(str, words), "--out", str(tmp_path / "out")])
        text = capsys.readouterr().err
        assert caught.value.code == 2 and text.startswith("vcrl: ") and text.count("\n") == 1
        assert not (tmp_path / "out").exists()
        return text

    return refuse


def test_the_whole_page(make_run, tmp_path, written):
    rng = np.random.default_rng(0)
    for task, random in (("pong", -20.7), ("boxing", 0.1)):
        for i, method in enumerate(("spr", "vcr")):
            make_run(f"{task}-{method}", task, method, tuple(random + i + rng.normal(size=5)))
    page = written(tmp_path / "runs")
    assert all(a.startswith(("data:", "#")) for a in page.addresses), "no address outside of the page"
    assert {a[1:] for a in page.addresses if a.startswith("#")} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert sum(a.startswith("data:image") for a in page.addresses) == 6
    for words in (
        "Run here: spr, vcr, on 2 tasks, 5 seeds each.",
        "Highest IQM of normalised scores over 2 tasks: vcr",
        "24 of the paper's 26 tasks were not run",
        "vcr against the paper's VCR: our means are",
        "Ours are of 5 seeds",
        "Some GPU, 8 CPU cores",
        "vcrl train vcr pong",
        "Nothing was left out.",
        "8.0 h",
    ):
        assert words in page.text, words
    games = page.table("task,method,score")
    assert [row[:2] + row[6:8] for row in games] == [
        ["boxing", "spr", "5", "run"],
        ["boxing", "vcr", "5", "run"],
        ["pong", "spr", "5", "run"],
        ["pong", "vcr", "5", "run"],
    ]
    assert games[3][5] == "0.90", "the paper's VCR on pong"
    assert games[0][8].startswith("5 seeds0: ")
    fields = dict(page.table("field,value"))
    assert fields["budget"] == "100" and fields["sticky"] == "0.0"
    (cost,) = [row for row in page.table("method,trainings") if row[0] == "vcr"]
    assert cost[1:4] == ["10", "4.0 GPU-hours", "24 min"]
    assert cost[4] == "6.4 h (1x A100 + 16 CPU cores)"
    (origin,) = [row for row in page.table("suite,task,method") if row[1:3] == ["pong", "vcr"]]
    assert origin[3] == "0:5" and origin[5] == "c" * 12
    aggregates = page.table("method,runs a task")
    assert [row[:2] for row in aggregates] == [["spr", "5"], ["vcr", "5"]]
    assert re.fullmatch(r"-?\d\.\d{3} \[-?\d\.\d{3}, -?\d\.\d{3}\]", aggregates[1][2])
    (pair,) = page.table("method,against")
    assert pair[:2] == ["vcr", "spr"]


def test_the_policy_of_the_page_names_its_own_script(make_run, tmp_path, written):
    """With a hash, a script that a hostile name smuggled in would not run."""
    written(make_run("a"))
    text = (tmp_path / "out" / "index.html").read_text()
    assert "default-src 'none'" in text and "script-src 'sha256-" in text and "unsafe" not in text
    assert "http:" not in text.replace("http-equiv", "") and "https:" not in text


def test_hostile_names_stay_text(make_run, tmp_path, written):
    evil = "<script>alert(1)</script>\"'&"
    path = make_run("a", task=evil, method=evil, suite=evil, scores=(1.0, 2.0, 3.0), facts={"command": evil})
    page = written(path)
    assert page.text.count(evil) > 3
    assert "<script>alert" not in (tmp_path / "out" / "index.html").read_text()


def test_a_task_without_reference_scores_is_shown_raw(make_run, written):
    page = written(make_run("a", task="gym:Some-v0", suite="gym"))
    assert "no reference scores to normalise with" in page.text and "All tasks together" not in page.text
    assert page.table("task,method,score")[0][2] == "5.00"


def test_unequal_seeds_and_a_missing_game_are_said(make_run, tmp_path, written):
    make_run("a", method="spr", scores=(1.0, 2.0, 3.0))
    make_run("b", scores=(1.0, 2.0))
    make_run("c", task="boxing", scores=(1.0, 2.0, 4.0))
    page = written(tmp_path / "runs")
    assert "boxing is in no aggregate: no run of spr." in page.text
    assert "Numbers of seeds differ between tasks for vcr" in page.text
    assert "over 1 task" in page.text and "not judged" in page.text


def test_what_was_left_out_is_listed_on_the_page_and_on_the_terminal(make_run, tmp_path, capsys):
    make_run("good")
    bad, going = make_run("bad", task="boxing"), make_run("going", task="alien", status={"state": "running"})
    (bad / "status.json").write_text("oops")
    main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "out")])
    told = capsys.readouterr().err
    assert told.count("vcrl: left out: ") == 2 == told.count("\n")
    page = Page((tmp_path / "out" / "index.html").read_text())
    assert f"{bad / 'status.json'} is damaged" in page.text and f"{going} is not finished" in page.text


def test_bad_input_is_one_line(make_run, tmp_path, refused):
    assert "name run folders" in refused()
    assert "no run folder at" in refused(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    assert "no runs in" in refused(tmp_path / "empty")
    going = make_run("going", status={"state": "running"})
    assert f"no finished run to report on: {going} is not finished" in refused(going)
    good = make_run("good")
    assert "unknown method 'vrc': did you mean vcr?" in refused(good, "--methods", "vrc")
    assert "no bank of runs at" in refused(good, "--bank", tmp_path / "empty")
    assert "no results in" in refused(good, "--results", tmp_path / "empty")
    assert "unknown flag '--mixd': did you mean --mixed" in refused(good, "--mixd")


def test_mixed_protocols_are_refused_and_where_allowed_every_title_says_so(make_run, refused, written):
    paths = [make_run("a"), make_run("b", method="spr", protocol={"sticky": 0.25})]
    assert "(sticky 0.0 and 0.25)" in refused(*paths)
    page = written(*paths, "--mixed")
    titles = (
        "Every task",
        "All tasks together",
        "Aggregates",
        "Performance profiles",
        "Scores of every task",
    )
    for title in titles:
        assert f"{title} (mixed protocols)" in page.text
    assert "sticky 0.0 and 0.25" in page.text


def test_protocols_of_other_names_stand_apart(make_run, written):
    page = written(make_run("a"), make_run("b", protocol={"name": "atari100k-sticky", "sticky": 0.25}))
    assert {"atari-atari100k", "atari-atari100k-sticky"} <= set(page.ids)
    assert page.text.count("Highest IQM") == 2


def test_a_bank_and_kept_results_stand_beside_our_runs(make_run, tmp_path, written):
    results.add((make_run("kept", method="spr"),), tmp_path / "results")
    bank = tmp_path / "bank" / "atari100k"
    bank.mkdir(parents=True)
    for name in ("SPR", "TWM"):
        (bank / f"{name}.json").write_text(json.dumps({"Pong": [1.0, 2.0, 3.0], "Alien": [5.0]}))
    words = (make_run("ours"), "--results", tmp_path / "results", "--bank", tmp_path / "bank")
    page = written(*words)
    assert [row[:2] + row[6:8] for row in page.table("task,method,score") if row[0] == "pong"] == [
        ["pong", "vcr", "2", "run"],
        ["pong", "spr (results)", "2", "results"],
        ["pong", "SPR (bank)", "3", "bank:atari100k"],
    ]
    assert "Published runs of others, never mixed with ours: SPR (bank)." in page.text
    assert "TWM" not in page.text, "only what the paper's tables show, unless it is asked for"
    assert "TWM (bank)" in written(*words, "--methods", "vcr,TWM").text


def test_a_bank_alone_needs_no_runs(tmp_path, written):
    bank = tmp_path / "atari100k"
    bank.mkdir()
    (bank / "SPR.json").write_text(json.dumps({"Pong": [1.0, 2.0, 3.0]}))
    (bank / "OTRainbow.json").write_text(json.dumps({"Pong": [1.0, 2.0]}))
    page = written("--bank", bank)
    assert "SPR (bank)" in page.text and "published runs5" in page.text
    paper_says = {row[1]: row[5] for row in page.table("task,method,score")}
    assert paper_says == {"SPR (bank)": "-5.40", "OTRainbow (bank)": "-2.50"}, "which the paper calls OTR"
    assert "settings" not in page.text, "nothing was set here"


def test_settings_that_are_not_the_methods_are_named(make_run, written):
    from vcrl.core.config import to_json
    from vcrl.methods import library

    usual = to_json(library.resolve("vcr", "atari", "pong"))
    page = written(make_run("a", config=usual | {"batch": 7}))
    assert "batch 7 instead of 32" in page.text


def test_the_same_runs_give_the_same_page(make_run, tmp_path):
    path = make_run("a", scores=(1.0, 2.0, 3.0))
    pages = [report.report([path], tmp_path / name)[1][0].read_bytes() for name in ("x", "y")]
    assert pages[0] == pages[1]


def test_figures_and_tables_as_files(make_run, tmp_path, written):
    for method in ("spr", "vcr", "vcr-k9"):
        make_run(method, method=method, scores=(1.0, 2.0, 3.0, 4.0))
    written(tmp_path / "runs", "--files")
    names = {path.name for path in (tmp_path / "out").rglob("*.*")}
    figures = (
        "aggregates",
        "performance-profiles",
        "probability-of-improvement",
        "scores-of-every-task",
        "q-error",
    )
    tables = ("aggregates", "tasks", "ablations", "steps", "time")
    told = (
        "games",
        "aggregates",
        "ablations",
        "ablations-dmcontrol",
        "steps",
        "dmcontrol",
        "time",
        "prediction-head",
        "noisy-net",
    )
    wanted = {f"atari-atari100k-{f}.{kind}" for f in figures for kind in ("pdf", "svg", "png")}
    wanted |= {f"{who}{t}.{kind}" for who, held in (("atari-atari100k-", tables), ("paper-", told))
               for t in held for kind in ("md", "tex")}  # fmt: skip
    assert wanted <= names
    games = (tmp_path / "out" / "tables" / "paper-games.md").read_text()
    (pong,) = [line for line in games.splitlines() if line.startswith("| pong ")]
    assert [cell.strip().strip("*") for cell in pong.split("|")[2:5]] == ["14.6", "-20.7", "12.8"]
    hours = (tmp_path / "out" / "tables" / "atari-atari100k-time.tex").read_text()
    assert r"\begin{tabular}" in hours and "Some GPU" in hours


@pytest.fixture
def one_kind(monkeypatch):
    """Figures as files of one kind: that there are three is told above, and most of the time goes into them."""
    return lambda kind: monkeypatch.setattr(export, "KINDS", (kind,))


def test_the_time_table_knows_how_far_methods_look_ahead(make_run, tmp_path, written, one_kind):
    one_kind("svg")
    terms = {"spr": {"steps": 5}, "vcr": {"steps": 9}, "cycle": None}
    written(make_run("a", config={"terms": terms}), make_run("b", method="rainbow"), "--files")
    table = _cells_of((tmp_path / "out" / "tables" / "atari-atari100k-time.md").read_text())
    assert [row[1:3] for row in table if row[0] == "atari100k"] == [["rainbow", "-"], ["vcr", "9"]]


def test_the_small_ablations_and_dmcontrol_as_the_paper_has_them(make_run, tmp_path, written, one_kind):
    one_kind("svg")
    for method, score in (("vcr", 14.6), ("vcr-no-noise", -20.7)):  # a human's on pong, and random play's
        make_run(f"pong-{method}", method=method, scores=(score, score))
    for budget, score in (("100k", 200.0), ("500k", 800.0)):
        rules = {"name": f"dmc{budget}"}
        make_run(budget, "walker-walk", suite="dmc", protocol=rules, scores=(score, score + 100))
    written(tmp_path / "runs", "--files")
    tables, figures = tmp_path / "out" / "tables", tmp_path / "out" / "figures"
    small = _cells(tables / "atari-atari100k-noisy-net.md")
    assert small["pong"] == ["**1.00**", "0.00"] and small["Task"] == ["vcr", "vcr-no-noise"]
    control = _cells(tables / "dmcontrol.md")
    assert control["100k"] == ["walker-walk", "250 \N{PLUS-MINUS SIGN} 71"]
    assert control["500k"] == ["walker-walk", "850 \N{PLUS-MINUS SIGN} 71"]
    assert control[""][:2] == ["IQM", "850"], "the last block's, in points of 1000"
    assert (figures / "atari-atari100k-ablations.svg").stat().st_size > 1000


def _cells_of(text):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line]


def _cells(path):
    """Rows of a Markdown table by their first cells; of rows without one, those of the last begin."""
    found = {}
    for row in _cells_of(path.read_text()):
        if row and (row[0] or row[1] == "IQM"):
            found[row[0]] = row[1:]
    return found


def test_mixed_protocols_are_said_in_the_tables_too(make_run, tmp_path, written, one_kind):
    one_kind("svg")
    written(make_run("a"), make_run("b", method="spr", protocol={"sticky": 0.25}), "--mixed", "--files")
    for image in (tmp_path / "out" / "figures").glob("*.svg"):
        assert "mixed protocols" in image.read_text(), "text is drawn as paths, each named in a comment"
    for name in ("tasks", "aggregates", "ablations"):
        text = (tmp_path / "out" / "tables" / f"atari-atari100k-{name}.md").read_text()
        assert "mixed protocols" in text and "sticky 0.0 and 0.25" in text


@pytest.mark.parametrize("score", [-20.7, -21.0, 14.6, 1e9])
def test_runs_that_all_score_the_same(make_run, tmp_path, written, score):
    for method in ("spr", "vcr"):
        make_run(method, method=method, scores=(score,) * 5)
    page = written(tmp_path / "runs")
    assert page.table("method,against")[0][4] == "undecided"
