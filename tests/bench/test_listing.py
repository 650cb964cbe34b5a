"""`vcrl ls`, `vcrl show` and `vcrl compare` over run folders made by hand."""

import json
import os

import pytest

from vcrl.bench.listing import list_runs
from vcrl.cli import main


def refused(capsys, *words) -> str:
    """The one line with which a command ends."""
    with pytest.raises(SystemExit) as caught:
        main([str(word) for word in words])
    assert caught.value.code == 2
    text = capsys.readouterr().err
    assert text.splitlines()[-1].startswith("vcrl: ")
    return text


def said(capsys, *words) -> str:
    main([str(word) for word in words])
    return capsys.readouterr().out


def test_ls(make_run, tmp_path, capsys):
    make_run("atari/vcr/pong/0-1")
    make_run("atari/spr/pong/3-4", method="spr", first=3, scores=(5000.0, 6000.0))
    make_run(
        "atari/spr/boxing/0-1", method="spr", task="boxing", status={"state": "failed", "agent_steps": 40}
    )
    text = said(capsys, "ls", tmp_path / "runs")
    lines = [line.split() for line in text.splitlines()]
    assert lines[0] == [
        "suite",
        "method",
        "task",
        "seeds",
        "state",
        "agent",
        "steps",
        "score",
        "when",
        "folder",
    ]
    assert lines[1][:8] == ["atari", "spr", "boxing", "0:2", "failed", "40/100", "-", "2024-05-06"]
    assert lines[2][:8] == ["atari", "spr", "pong", "3:5", "done", "100", "5,500", "2024-05-06"]
    assert lines[3][:8] == ["atari", "vcr", "pong", "0:2", "done", "100", "5", "2024-05-06"]
    assert text.splitlines()[-1] == "3 runs: 1 failed, 2 done"


def test_ls_as_json(make_run, tmp_path, capsys):
    path = make_run("a")
    (line,) = json.loads(said(capsys, "ls", tmp_path / "runs", "--json"))
    assert line == {
        "suite": "atari",
        "method": "vcr",
        "task": "pong",
        "seeds": "0:2",
        "state": "done",
        "agent_steps": 100,
        "budget": 100,
        "score": 5.0,
        "when": "2024-05-06",
        "seconds": 7200.0,
        "path": str(path),
    }


def test_ls_believes_a_score_in_the_status_and_then_reads_no_log(make_run, tmp_path):
    path = make_run("a", status={"scores": {"0": 3.0, "1": 5.0}})
    (path / "eval.csv").unlink()
    assert list_runs(tmp_path / "runs").lines[0].score == 4.0


def test_a_run_that_died_is_not_called_running(make_run, tmp_path):
    path = make_run("a", status={"state": "running", "finished": None})
    assert list_runs(tmp_path / "runs").lines[0].state == "running"
    os.utime(path / "status.json", (0, 0))
    assert list_runs(tmp_path / "runs").lines[0].state.startswith("silent ")


def test_a_run_without_status_has_not_started(make_run, tmp_path):
    (make_run("a") / "status.json").unlink()
    line = list_runs(tmp_path / "runs").lines[0]
    assert (line.state, line.agent_steps, line.when) == ("not started", None, "-")


@pytest.mark.parametrize(
    "text", ["", "[]", '{"suite": 3}', '{"suite": "a", "method": "b", "task": "c\\n"}', "{}"]
)
def test_ls_names_damaged_runs_and_lists_the_others(make_run, tmp_path, capsys, text):
    make_run("good")
    bad = make_run("bad")
    (bad / "config.json").write_text(text)
    main(["ls", str(tmp_path / "runs")])
    told = capsys.readouterr()
    assert told.err.count("\n") == 1 and f"left out: {bad}" in told.err and "damaged" in told.err
    assert "1 run: 1 done" in told.out
    (tmp_path / "runs" / "good" / "config.json").write_text(text)
    assert "none of the 2 runs" in refused(capsys, "ls", tmp_path / "runs")


def test_no_runs_is_one_line(tmp_path, capsys):
    for command in ("ls", "show", "report"):
        assert refused(capsys, command, tmp_path / "nowhere").count("\n") == 1
    assert "no runs in" in refused(capsys, "ls", tmp_path)


def test_show(make_run, capsys):
    path = make_run("a", config={"deep": {"kind": "Part", "width": 3, "none": None}})
    text = said(capsys, "show", path)
    for words in (
        "vcr on pong (atari), seeds 0:2",
        str(path),
        "state             done",
        "wall clock        2.0 h",
        "   0      0       0.586",
        "mean      5",
        "protocol [",
        "action_repeat  4",
        "deep.width  3",
        "accelerator  Some GPU",
        "q_error/imagined  2, 3",
        "eval.csv",
    ):
        assert words in text, words


def test_show_as_json(make_run, capsys):
    told = json.loads(said(capsys, "show", make_run("a"), "--json"))
    assert told["scores"] == {"0": 0.0, "1": 10.0}
    assert told["protocol"]["budget"] == 100 and told["config"]["rate"] == 0.1
    assert told["facts"]["command"] == "vcrl train vcr pong"


def test_show_says_what_it_could_not_read(make_run, capsys):
    path = make_run("a")
    (path / "eval.csv").write_text("nonsense\n")
    (path / "metrics.jsonl").write_text('{"loss": [NaN]}\n')
    text = said(capsys, "show", path)
    assert text.count("warning: ") == 2 and "eval.csv, line 1" in text


def test_compare(make_run, capsys):
    scores = (1.0, 2.0, 3.0, 4.0, 5.0)
    a = make_run("a", method="spr", scores=scores)
    b = make_run("b", scores=tuple(10 + s for s in scores), config={"rate": 0.3})
    text = said(capsys, "compare", a, b)
    assert "A  spr on pong" in text and "B  vcr on pong" in text
    assert ["rate", "0.1", "0.3"] in [line.split() for line in text.splitlines()]
    assert "protocol\n  the same" in text
    assert "A  IQM 3.00 [" in text and "5 seeds: 1.00, 2.00" in text
    assert "B - A  10.0 [" in text and "B is higher" in text
    assert "probability 1.00 [1.00, 1.00]" in text


def test_compare_refuses_what_does_not_compare(make_run, capsys):
    a, other = make_run("a"), make_run("b", task="boxing")
    assert "not compared: pong and boxing are different tasks" in said(capsys, "compare", a, other)
    sticky = make_run("c", protocol={"sticky": 0.25})
    text = said(capsys, "compare", a, sticky)
    assert ["sticky", "0.0", "0.25"] in [line.split() for line in text.splitlines()]
    assert "not compared: the protocols differ in sticky" in text and "B - A" not in text
    text = said(capsys, "compare", a, sticky, "--mixed")
    assert "MIXED PROTOCOLS, which differ in sticky" in text and "B - A" in text
    assert "2 seeds are too few to judge" in text
    going = make_run("d", status={"state": "running"})
    assert "not compared" in said(capsys, "compare", a, going)
    assert "no run folder at" in refused(capsys, "compare", a, a.with_name("e"))


def test_one_seed_has_no_interval(make_run, capsys):
    a, b = make_run("a", scores=(1.0,)), make_run("b", method="spr", scores=(3.0,))
    assert "one seed has no interval: B - A is 2.00" in said(capsys, "compare", a, b)


def test_names_that_would_steer_a_terminal_are_not_printed(make_run, capsys):
    """A stranger's keys are printed as well as their values."""
    steers = "\x1b[2J\x00"
    odd = make_run("odd", config={steers: 1}, protocol_hash=steers, status={"finished": steers})
    for words in (["show", str(odd)], ["ls", str(odd.parent)], ["compare", str(odd), str(make_run("b"))]):
        main(words)
        said = capsys.readouterr().out
        assert said.replace("\n", "").isprintable(), words
        assert "?[2J?" in said, words
