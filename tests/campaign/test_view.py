"""What is seen of a campaign while it runs."""

import io
import json
from pathlib import Path

import pytest
from fakes import asking, scouts
from rich.console import Console

from vcrl.campaign.machine import Machine
from vcrl.campaign.plan import Job, make_campaign
from vcrl.campaign.progress import look
from vcrl.campaign.view import PLAIN_SECONDS, Speed, View, duration
from vcrl.campaign.work import Work
from vcrl.runs import rates


@pytest.fixture
def job(tmp_path: Path) -> Job:
    ask = asking(tmp_path, methods="vcr", tasks="catch", steps=1000)
    plan = make_campaign(ask, scouts(ask), Machine((), 1e9, 2), None, rates.Clock(tmp_path, "cpu"))
    return plan.jobs[0]


def write(job: Job, steps: int, state: str = "running") -> None:
    job.path.mkdir(parents=True, exist_ok=True)
    (job.path / "config.json").write_text("{}")
    (job.path / "status.json").write_text(json.dumps({"state": state, "agent_steps": 0}))
    (job.path / "metrics.jsonl").write_text(f'{{"agent_steps":{steps}}}\n{{"agent_st')
    games = [f"{seed},{at},{at},{seed + at / 1000},7" for at in range(40) for seed in (0, 1)]
    (job.path / "episodes.csv").write_text("\n".join(["seed,agent_steps,episode,score,length", *games, ""]))


def test_progress_is_read_while_it_is_written(job: Job):
    assert look(job) == ("", 0, None, False)
    write(job, 300)
    seen = look(job)
    assert (seen.state, seen.agent_steps, seen.final) == ("running", 300, False)
    assert seen.score == pytest.approx(0.5 + 29.5 / 1000), "the newest twenty games of each seed"


@pytest.mark.parametrize("text", ["", "[", "[]\n", "nonsense\n", "\0\xff\n", '{"agent_steps": "many"}\n'])
def test_hostile_files_are_no_news(job: Job, text: str):
    write(job, 300)
    for name in ("metrics.jsonl", "episodes.csv", "status.json", "eval.csv"):
        (job.path / name).write_text(text)
    assert look(job).agent_steps == 0


def test_the_score_at_the_end_is_the_protocols(job: Job):
    write(job, 1000, "done")
    header = "seed,agent_steps,episode,score,length\n"
    (job.path / "eval.csv").write_text(header + "0,500,0,9.0,7\n0,1000,0,1.0,7\n1,1000,0,2.0,7\n")
    assert look(job).score == 1.5 and look(job).final


def test_plain_lines(job: Job):
    now, said = [0.0], io.StringIO()
    work = Work(job, "running", news=["started on the CPU"])
    write(job, 0)
    with View([work], Console(file=said, width=200), clock=lambda: now[0]) as view:
        view.show()
        write(job, 300)
        now[0] = PLAIN_SECONDS
        view.show()
    assert said.getvalue().splitlines() == [
        "vcr catch 0-3   started on the CPU",
        "vcr catch 0-3  running  300/1,000  10 steps/s  left 1:10  0.53 so far",
    ]


def test_the_table_shows_first_what_one_looks_for(job: Job, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    works = [Work(job, "done") for _ in range(20)] + [
        Work(job, "failed", reason="no luck"),
        Work(job, "running"),
    ]
    said = io.StringIO()
    log = Console(file=said, width=120, height=12, force_terminal=True, color_system=None)
    with View(works, log) as view:
        view.show()
    shown = said.getvalue()
    assert (
        "no luck" in shown and "running" in shown and "1 running, 1 failed, 20 done   (14 not shown)" in shown
    )


def test_speed_survives_a_crash():
    speed = Speed()
    for now, at in ((0.0, 0), (10.0, 500), (11.0, 100), (21.0, 200)):
        speed.add(now, at)
    assert speed.rate() == 10
    assert duration(6) == "0:06" and duration(11_100) == "3:05:00"
