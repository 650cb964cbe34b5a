"""From run folders made by hand to tables, and from tables to the page."""

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vcrl.bench import kept, page, paper, results, sources, stats
from vcrl.core.config import digest
from vcrl.core.errors import UserError
from vcrl.runs.folder import RunFolder

ROOT = Path(__file__).parents[2]
FACTS = {
    "command": "vcrl train vcr pong",
    "accelerator": "Some GPU",
    "cpus": 8,
    "commit": "c" * 40,
    "dirty": False,
}


def make_run(path, task="pong", method="vcr", seeds=(0, 1), mean=None, suite="atari", status=None, **changes):
    """A finished run of two episodes a seed; seed s scores `mean[s]` by default 10 s, one more and one less."""
    record = {
        "method": method,
        "task": task,
        "suite": suite,
        "seeds": list(seeds),
        "config": {"kind": "Config", "rate": 0.1, "method": method},
        "protocol": {"name": "atari100k", "budget": 100, "eval_episodes": 2},
        "protocol_hash": "aaaa1111",
        "facts": FACTS,
    } | changes
    means = dict(zip(seeds, [10.0 * s for s in seeds] if mean is None else mean, strict=True))
    with RunFolder.open(path, record) as run:
        for step in (50, 100):
            errors = {"q_error/real": [float(s + step) for s in seeds]}
            if method != "rainbow":
                scale = {"spr": 2.0}.get(method, 1.0)
                errors |= {"q_error/imagined": [scale * (1 + 0.1 * s) for s in seeds]}
            run.metrics({"agent_steps": step, "loss/rl": [0.0] * len(seeds), **errors})
        run.metrics({"agent_steps": 100, "loss/rl": [0.0] * len(seeds)})
        for seed in seeds:
            run.evaluation(seed, 50, 0, -99.0, 3)  # on the way, and no part of the score
            for episode, off in ((0, 1.0), (1, -1.0)):
                run.evaluation(seed, 100, episode, means[seed] + off, 7)
        done = {"state": "done", "agent_steps": 100, "not_finite_since": {}, "seconds": 61.4}
        run.status({**done, "finished": "2024-05-06", **(status or {})})
    return path


def table(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def add(out, *runs):
    results.main(["add", *map(str, runs), "--out", str(out)])


def refused(capsys, *words):
    """The one line with which a command ends."""
    with pytest.raises(SystemExit) as caught:
        results.main([str(word) for word in words])
    assert caught.value.code == 2
    text = capsys.readouterr().err
    assert text.startswith("vcrl: ") and text.count("\n") == 1
    return text


def test_a_run_becomes_a_row_a_seed(tmp_path):
    add(tmp_path / "results", make_run(tmp_path / "run"))
    rows = table(tmp_path / "results" / "atari.csv")
    assert [row["score"] for row in rows] == ["0", "10"]
    assert rows[1] == {
        "suite": "atari",
        "task": "pong",
        "method": "vcr",
        "seed": "1",
        "score": "10",
        "normalised": f"{30.7 / 35.3:.8g}",
        "episodes": "2",
        "agent_steps": "100",
        "protocol": "atari100k",
        "protocol_hash": "aaaa1111",
        "config_hash": digest({"kind": "Config", "rate": 0.1, "method": "vcr"}),
        "commit": "c" * 12,
        "command": "vcrl train vcr pong",
        "seeds": "0:2",
        "hardware": "Some GPU, 8 CPU cores",
        "wall_clock_s": "61",
        "finished": "2024-05-06",
        "not_finite_since": "",
    }


def test_every_episode_and_every_q_error_is_kept(tmp_path):
    add(tmp_path, make_run(tmp_path / "run"))
    episodes = table(tmp_path / "atari_episodes.csv")
    assert [(r["seed"], r["episode"], r["score"], r["length"]) for r in episodes] == [
        ("0", "0", "1", "7"),
        ("0", "1", "-1", "7"),
        ("1", "0", "11", "7"),
        ("1", "1", "9", "7"),
    ]
    errors = table(tmp_path / "atari_q_error.csv")
    assert [(r["seed"], r["agent_steps"], r["q_error/real"], r["q_error/imagined"]) for r in errors] == [
        ("0", "50", "50", "1"),
        ("0", "100", "100", "1"),
        ("1", "50", "51", "1.1"),
        ("1", "100", "101", "1.1"),
    ]


def test_adding_again_replaces_and_the_order_of_adding_does_not_matter(tmp_path):
    runs = [
        make_run(tmp_path / "a", seeds=(9, 10)),
        make_run(tmp_path / "b", method="rainbow"),
        make_run(tmp_path / "c", task="boxing", method="spr"),
    ]
    add(tmp_path / "x", *runs)
    for run in reversed(runs):
        add(tmp_path / "y", run)
    add(tmp_path / "y", runs[1])
    names = {path.name for path in (tmp_path / "x").iterdir()}
    assert names == {"atari.csv", "atari_episodes.csv", "atari_q_error.csv"}
    for name in names:
        assert (tmp_path / "x" / name).read_bytes() == (tmp_path / "y" / name).read_bytes()
    rows = table(tmp_path / "x" / "atari.csv")
    assert [(r["task"], r["method"], r["seed"]) for r in rows] == [
        ("boxing", "spr", "0"),
        ("boxing", "spr", "1"),
        ("pong", "rainbow", "0"),
        ("pong", "rainbow", "1"),
        ("pong", "vcr", "9"),
        ("pong", "vcr", "10"),
    ]
    add(tmp_path / "x", make_run(tmp_path / "d", seeds=(10, 11), mean=[5.0, 6.0]))
    rows = table(tmp_path / "x" / "atari.csv")
    assert [(r["seed"], r["score"]) for r in rows if r["method"] == "vcr"] == [
        ("9", "90"),
        ("10", "5"),
        ("11", "6"),
    ]


def test_another_commit_is_another_row_and_a_dirty_one_says_so(tmp_path):
    facts = {"commit": "d" * 40, "dirty": True, "cpu": "Some CPU", "cpus": 2}
    add(tmp_path, make_run(tmp_path / "a"), make_run(tmp_path / "b", facts=facts))
    rows = table(tmp_path / "atari.csv")
    assert len(rows) == 4
    assert rows[-1]["commit"] == "d" * 12 + "-dirty"
    assert rows[-1]["hardware"] == "Some CPU, 2 CPU cores" and rows[-1]["command"] == ""


def test_suites_have_tables_of_their_own(tmp_path):
    catch = make_run(tmp_path / "a", task="catch", suite="toy", mean=[1.0, -0.75])
    other = make_run(tmp_path / "b", task="gym:mine:Game-v0", suite="gym")
    add(tmp_path / "out", catch, other)
    assert [r["normalised"] for r in table(tmp_path / "out" / "toy.csv")] == ["1", "0"]
    assert [r["normalised"] for r in table(tmp_path / "out" / "gym.csv")] == ["", ""]
    assert results.suites(tmp_path / "out") == ["gym", "toy"]


def test_a_seed_that_is_not_finite_is_marked_and_kept(tmp_path, capsys):
    add(tmp_path, make_run(tmp_path / "run", status={"not_finite_since": {"1": 60}}))
    assert "pong, vcr, seed 1: not finite since 60" in capsys.readouterr().out
    assert [r["not_finite_since"] for r in table(tmp_path / "atari.csv")] == ["", "60"]


@pytest.mark.parametrize("state", ["running", "stopped", "failed"])
def test_a_run_that_is_not_finished_is_refused(tmp_path, capsys, state):
    good = make_run(tmp_path / "good")
    bad = make_run(tmp_path / "bad", status={"state": state})
    text = refused(capsys, "add", good, bad, "--out", tmp_path / "out")
    assert f"{bad} is not finished ({state})" in text
    assert not (tmp_path / "out").exists()  # nothing of the good one either


def test_a_status_that_makes_no_sense_is_refused(tmp_path, capsys):
    run = make_run(tmp_path / "run", status={"not_finite_since": 1e308})
    assert "garbles" in refused(capsys, "add", run, "--out", tmp_path / "out")


def test_a_seed_without_all_its_episodes_is_refused(tmp_path, capsys):
    run = make_run(tmp_path / "run")
    lines = (run / "eval.csv").read_text().splitlines(keepends=True)
    (run / "eval.csv").write_text("".join(lines[:-1]))
    assert "seed 1 has 1 of 2 episodes" in refused(capsys, "add", run, "--out", tmp_path / "out")


def test_what_is_no_run_is_refused(tmp_path, capsys):
    assert "no run folder" in refused(capsys, "add", tmp_path / "nowhere")
    run = make_run(tmp_path / "run")
    record = json.loads((run / "config.json").read_text())
    del record["suite"]
    (run / "config.json").write_text(json.dumps(record))
    assert "config.json is damaged (suite is None)" in refused(capsys, "add", run)


def test_scores_of_two_protocols_do_not_meet(tmp_path, capsys):
    add(tmp_path / "out", make_run(tmp_path / "a"))
    before = (tmp_path / "out" / "atari.csv").read_bytes()
    other = make_run(tmp_path / "b", task="boxing", protocol_hash="bbbb2222")
    text = refused(capsys, "add", other, "--out", tmp_path / "out")
    assert "atari100k [aaaa1111] and atari100k [bbbb2222]" in text
    assert (tmp_path / "out" / "atari.csv").read_bytes() == before


@pytest.mark.parametrize(
    ("seeds", "text"), [([0, 1, 2], "0:3"), ([5], "5"), ([0, 3, 7], "0,3,7"), ([3, 4], "3:5")]
)
def test_seeds_as_they_are_typed(seeds, text):
    assert results.seeds_text(seeds) == text


# The page


@pytest.fixture
def folder(tmp_path):
    """Three games with spr and vcr; spr matches on pong, is below on krull and above on boxing."""
    out = tmp_path / "results"
    runs = [
        make_run(tmp_path / "1", "pong", "spr", range(4), [-6.0, -4.0, -8.0, -6.0]),
        make_run(tmp_path / "2", "krull", "spr", range(3), [1000.0, 1100.0, 1050.0]),
        make_run(tmp_path / "3", "boxing", "spr", range(4), [99.0, 100.0, 98.0, 99.0]),
        make_run(tmp_path / "4", "pong", "vcr", range(4), [0.0, 3.0, 1.0, -2.0]),
        make_run(tmp_path / "5", "krull", "vcr", range(2), [4000.0, 4400.0]),
        make_run(tmp_path / "6", "boxing", "vcr", range(4), [10.0, 11.0, 12.0, 11.0]),
        make_run(tmp_path / "7", "pong", "rainbow", range(2), [-20.0, -19.0]),
        make_run(tmp_path / "8", "qbert", "vcr", (0,), [700.0]),
    ]
    add(out, *runs)
    return out


def sections(text):
    """The page by its headings."""
    parts = text.split("\n#")
    return {part.split("\n", 1)[0].lstrip("# "): part for part in parts}


def cells(section):
    """The rows of a section's first table, by their first cell."""
    lines = [line for line in section.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: dict(zip(rows[0], row, strict=True)) for row in rows[2:]}


def build(folder):
    docs = folder.parent / "docs"
    results.main(["page", "--results", str(folder), "--docs", str(docs)])
    return sections((docs / "results.md").read_text())


def test_verdicts_on_spr_are_by_the_band_of_as_many_runs(folder):
    found = cells(build(folder)["SPR against published runs"])
    assert {task: row["verdict"] for task, row in found.items()} == {
        "boxing": "above",
        "krull": "below",
        "pong": "inside",
    }
    low, high = paper.band("SPR", "pong", 4)
    assert found["pong"] == {
        "task": "pong",
        "runs": "4",
        "ours": "-6.00 ± 1.63",
        "normalised": "0.42",
        "paper": "-5.40",
        "published runs": "-5.41",
        "range": f"[{low:.1f}, {high:.1f}]",
        "verdict": "inside",
    }


def test_verdicts_on_vcr_are_by_ten_more_runs_like_ours(folder):
    found = cells(build(folder)["VCR against the paper"])
    assert {task: row["verdict"] for task, row in found.items()} == {
        "boxing": "below",
        "krull": "inside",
        "pong": "inside",
        "qbert": "-",  # one seed tells nothing of spread
    }
    expected = stats.mean_of_more(np.array([10.0, 11.0, 12.0, 11.0]), 10)
    assert found["boxing"]["range"] == f"[{expected.low:.1f}, {expected.high:.1f}]"


def test_the_text_says_which_games_match_and_which_do_not(folder):
    text = build(folder)["In short: atari"]
    spr, vcr = "`spr` against published runs of SPR: ", "`vcr` against the paper's VCR: "
    assert f"{spr}matches (inside the range) in 1 of 3 tasks (pong); below in krull; above in boxing." in text
    assert (
        f"{vcr}matches (inside the range) in 2 of 4 tasks (krull, pong); below in boxing; not judged" in text
    )
    assert "VCR's score is lower in boxing; higher in pong; not judged in krull." in text
    assert "VCR's is lower in boxing, pong; not judged in krull." in text


def test_vcr_and_spr_are_compared_on_the_games_both_have(folder):
    found = cells(build(folder)["VCR against SPR, both ours"])
    assert list(found) == ["boxing", "krull", "pong"]
    assert found["krull"]["the paper's"] == "+0.48"  # (4199.2 - 3681.6) / 1067.5
    together = cells(build(folder)["All 3 games together"])
    assert together["vcr, paper"]["mean"] == f"{(42.4 / 12 + 2601.2 / 1067.5 + 21.6 / 35.3) / 3:.3f}"
    assert together["vcr, paper"]["IQM"] == "-"


def test_the_page_has_the_origin_of_every_run(folder):
    text = build(folder)["Where the numbers come from"]
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    assert len(rows) == 8
    for word in ("`vcrl train vcr pong`", "cccccccccc", "Some GPU, 8 CPU cores", "61 s", "0:4", "2024-05-06"):
        assert word in rows[0]
    assert "aaaa1111" in text


def test_figures_are_written_and_not_empty(folder):
    found = build(folder)
    images = folder.parent / "docs" / "images"
    assert {p.name for p in images.iterdir()} == {"results-atari-scores.png", "results-atari-q-error.png"}
    for path in images.iterdir():
        pixels = np.asarray(Image.open(path).convert("L"), dtype=float)
        assert pixels.var() > 100
        assert pixels[0].min() == 255 and pixels[-1].min() == 255
    assert "images/results-atari-scores.png" in found["Every seed"]
    assert "images/results-atari-q-error.png" in found["Q error"]


def test_the_same_tables_give_the_same_page(folder):
    docs = folder.parent / "docs"
    first = {path.name: path.read_bytes() for path in page.write(folder, docs)}
    assert {path.name: path.read_bytes() for path in page.write(folder, docs)} == first


def test_notes_by_hand_are_part_of_the_page(folder):
    docs = folder.parent / "docs"
    docs.mkdir()
    (docs / "results-notes.md").write_text("## What we make of it\n\nNot much.\n")
    assert "Not much." in build(folder)["What we make of it"]


@pytest.mark.parametrize(
    ("method", "heading"),
    [("der", "DER against published runs"), ("vcr-k9", "VCR K=9 against the paper")],
)
def test_other_methods_of_the_papers_table(tmp_path, method, heading):
    add(tmp_path / "results", make_run(tmp_path / "run", method=method, mean=[-9.0, -8.0]))
    found = build(tmp_path / "results")
    told = paper.scores()[paper.NAMES[method]]["pong"]
    assert float(cells(found[heading])["pong"]["paper"]) == told
    assert "Other scores" not in found and "Scores" not in found


@pytest.mark.parametrize(
    ("method", "name", "told"),
    [("spr", "SPR", 815), pytest.param("curl", "CURL", 582, marks=pytest.mark.slow), ("drq", "DrQ", 759)],
)
def test_methods_of_the_papers_table_of_continuous_control(tmp_path, method, name, told):
    """They bear names of Atari's, of which single runs were published, or have another there; here none were."""
    protocol = {"name": "dmc100k", "budget": 100, "eval_episodes": 2}
    ours = [780.0, 800.0, 820.0]
    run = make_run(tmp_path / "run", "cartpole-swingup", method, range(3), ours, "dmc", protocol=protocol)
    add(tmp_path / "results", run)
    found = build(tmp_path / "results")
    row, expected = (
        cells(found[f"{name} against the paper"])["cartpole-swingup"],
        stats.mean_of_more(np.array(ours), 10),
    )
    assert (row["paper"], row["verdict"]) == (str(told), "inside" if told > 600 else "above")
    assert row["range"] == f"[{expected.low:.0f}, {expected.high:,.0f}]"
    assert f"`{method}` against the paper's {name}: matches" in found["In short: dmc"]
    assert "the mean of 10\nfurther runs" in found[f"{name} against the paper"]


@pytest.mark.parametrize("method", ["spr", "vcr", "rainbow"])
def test_one_method_alone(tmp_path, method):
    add(tmp_path / "results", make_run(tmp_path / "run", method=method, seeds=(0,), mean=[1.0]))
    found = build(tmp_path / "results")
    assert "VCR against SPR, both ours" not in found
    assert "Every seed" in found and "Where the numbers come from" in found
    if method == "rainbow":
        assert "Nothing here has a published counterpart" in found["In short: atari"]
        assert cells(found["Scores"])["pong"]["normalised"] == "0.61"


def test_games_nobody_published(tmp_path):
    runs = [make_run(tmp_path / m, "catch", m, suite="toy", mean=[0.5, 1.0]) for m in ("spr", "vcr")]
    add(tmp_path / "results", *runs)
    found = build(tmp_path / "results")
    assert cells(found["VCR against SPR, both ours"])["catch"]["the paper's"] == "-"
    assert "All" not in " ".join(found) and "catch" in cells(found["Scores"])


def test_a_seed_that_is_not_finite_is_told_on_the_page(tmp_path):
    run = make_run(tmp_path / "run", status={"not_finite_since": {"1": 60}})
    add(tmp_path / "results", run)
    found = build(tmp_path / "results")
    assert "seed 1: not finite since agent step 60" in found["In short: atari"]
    assert cells(found["VCR against the paper"])["pong"]["ours"].endswith(r"\*")


def test_without_q_errors_there_is_no_figure_of_them(tmp_path):
    add(tmp_path / "results", make_run(tmp_path / "run"))
    (tmp_path / "results" / "atari_q_error.csv").unlink()
    found = build(tmp_path / "results")
    assert "Q error" not in found
    assert not (tmp_path / "docs" / "images" / "results-atari-q-error.png").exists()


def test_what_a_run_did_not_tell_is_a_dash_and_the_other_seeds_have_their_q_errors(tmp_path):
    """As of a run of which only its scores are left, seeds 2 and 3."""
    out = tmp_path / "results"
    add(out, make_run(tmp_path / "1", seeds=(0, 1)), make_run(tmp_path / "2", seeds=(2, 3)))
    keep = [row for row in table(out / "atari_q_error.csv") if row["seed"] < "2"]
    results._write(out / "atari_q_error.csv", keep)
    rows = [row | {"wall_clock_s": ""} if row["seed"] > "1" else row for row in table(out / "atari.csv")]
    results._write(out / "atari.csv", rows)
    found = build(out)
    assert cells(found["Q error"])["pong"]["runs"] == "2"
    origins = [
        line for line in found["Where the numbers come from"].splitlines() if line.startswith("| pong")
    ]
    assert sorted(line.split("|")[7].strip() for line in origins) == ["-", "61 s"]
    read = sources.read_results(out)
    assert [row.seconds for row in read.rows[:2]] == [30.5, 30.5]
    assert all(math.isnan(row.seconds) for row in read.rows[2:])
    assert [origin.seeds for origin in read.origins] == ["0:2", "2:4"]


def test_pages_of_what_cannot_be_compared_are_refused(tmp_path, capsys):
    assert "no results in" in refused(capsys, "page", "--results", tmp_path / "none")
    facts = FACTS | {"commit": "d" * 40}
    a, b = make_run(tmp_path / "a"), make_run(tmp_path / "b", facts=facts)
    add(tmp_path / "out", a, b)
    assert "the same score of seed 0 by two commits" in refused(capsys, "page", "--results", tmp_path / "out")
    add(tmp_path / "two", a, make_run(tmp_path / "c", seeds=(5,), config={"kind": "Config", "rate": 0.2}))
    assert "scores of configs" in refused(capsys, "page", "--results", tmp_path / "two")


def test_a_seed_that_two_versions_trained_is_two_runs(tmp_path):
    """So that nobody can choose the version that scored better."""
    later = make_run(tmp_path / "b", mean=[4.0, 6.0], facts=FACTS | {"commit": "d" * 40})
    add(tmp_path / "results", make_run(tmp_path / "a"), later)
    found = build(tmp_path / "results")
    row = cells(found["VCR against the paper"])["pong"]
    assert row["runs"] == "4" and row["ours"].startswith("5.00 ± 4.16")  # of 0, 10, 4 and 6
    assert cells(found["Q error"])["pong"]["runs"] == "4"


def test_the_page_in_docs_is_that_of_the_results():
    folder, docs = ROOT / "results", ROOT / "docs"
    assert (docs / "results.md").exists() == bool(results.suites(folder))
    if results.suites(folder):
        wanted = page.text(folder, docs, kept.read(folder))
        assert (docs / "results.md").read_text() == wanted, "run `python -m vcrl.bench.results page`"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"\xff\xfe", "is damaged"),
        (b'a,b\n"1', "is damaged"),
        (b"task,method\n1,2,3\n", "line 2 has more cells than columns"),
        (b"task,method\n1,2\n", "has no column"),
    ],
)
def test_a_damaged_table_is_refused_in_one_line(tmp_path, data, told):
    (tmp_path / "atari.csv").write_bytes(data)
    with pytest.raises(UserError, match=told):
        results.load(tmp_path, "atari")


@pytest.mark.parametrize("suite", ["../outside", "/tmp/outside", "", 7, ["atari"], "a\nb"])
def test_a_suite_that_would_lead_elsewhere_is_refused(tmp_path, suite):
    run = make_run(tmp_path / "run")
    record = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(record | {"suite": suite}))
    with pytest.raises(UserError, match="suite"):
        results.add((run,), tmp_path / "results")
    assert {path.name for path in tmp_path.iterdir()} == {"run"}


def test_nothing_is_added_to_a_table_that_counts_with_words(tmp_path):
    run = make_run(tmp_path / "run")
    results.add((run,), tmp_path)
    table = tmp_path / "atari.csv"
    table.write_text(table.read_text() * 2)  # with its head once more in the middle
    before = table.read_bytes()
    with pytest.raises(UserError, match=r"a table of atari counts with what is no number .*'seed'"):
        results.add((run,), tmp_path)
    assert table.read_bytes() == before
