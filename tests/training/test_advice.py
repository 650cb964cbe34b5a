"""Values that C51 cannot hold are logged, and said once, with what to do about it."""

import io
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from tiny import tiny

from vcrl.training import advice
from vcrl.training.advice import Advice
from vcrl.training.plan import make_plan

pytestmark = pytest.mark.usefixtures("quick_compiles")


def made(events=(), **changes: Any) -> Advice:
    return Advice(make_plan("rainbow", "catch", changes=changes), list(events))


def rows(*shares):
    return [{"value/clipped": list(share)} for share in shares]


def said(advice: Advice, given):
    return [line for row in given for line in advice.after(row)]


def test_it_is_the_mean_of_five_rows_and_of_all_seeds_that_counts():
    assert said(made(), rows(*[(0.04, 0.06)] * 9)) == []  # just 5 %
    assert said(made(), rows((1.0, 1.0), *[(0, 0)] * 3)) == []  # four rows
    assert said(made(), rows((0.24, 0), *[(0, 0)] * 9)) == []
    (line,) = said(made(), rows(*[(0, 0)] * 7, (0.2, 0.2), (0.3, 0.3)))  # 0.5 / 5
    assert line.startswith("10% of the values learned from lie beyond -1.25 to 1.25, the range of C51")
    assert "--value.low and --value.high" in line


def test_it_is_said_once_in_a_run():
    twice = rows(*[(0.5,)] * 20)
    one = made()
    (line,) = said(one, twice)
    assert said(made([{"agent_steps": 500, "event": line}]), twice) == []  # resumed


def test_a_raw_reward_has_another_remedy():
    sign, raw = (made(**{"observation.reward": reward}) for reward in ("sign", "raw"))
    assert "--observation.reward" not in said(sign, rows(*[(0.5,)] * 5))[0]
    assert "--observation.reward sign" in said(raw, rows(*[(0.5,)] * 5))[0]


def test_seeds_that_are_not_finite_do_not_count():
    assert said(made(), rows(*[(None, 0.0)] * 9)) == []
    assert said(made(), rows(*[(None, None)] * 9)) == []
    assert len(said(made(), rows(*[(None, 0.5)] * 9))) == 1


def test_a_value_that_is_one_number_has_no_range():
    assert said(Advice(make_plan("drq", "catch"), []), rows(*[(0.5,)] * 9)) == []


def test_a_training_logs_it_says_it_and_keeps_it(tmp_path, monkeypatch):
    monkeypatch.setattr(advice, "MUCH", -1.0)
    out = io.StringIO()
    run = tiny(tmp_path, "rainbow", log=Console(file=out, width=300))
    assert all(row["value/clipped"] == [0, 0] for row in run.folder.metrics() if "value/clipped" in row)
    assert [row["agent_steps"] for row in run.folder.metrics() if "value/clipped" in row] == [
        40,
        50,
        60,
        70,
        80,
    ]
    (event,) = run.folder.status["events"]
    assert event["agent_steps"] == 80 and "0% of the values learned from lie beyond" in event["event"]
    assert out.getvalue().count("the range of C51") == 1


@pytest.mark.slow
def test_rewards_that_are_too_large_for_the_range_are_noticed(tmp_path):
    """Catch pays 1; a range of 0.2 cannot hold it."""
    run = tiny(tmp_path, changes={"value.low": -0.2, "value.high": 0.2})
    shares = np.array([row["value/clipped"] for row in run.folder.metrics() if "value/clipped" in row])
    # Two of seven steps of a game look ahead to its end, and prioritised ones more often.
    assert 0.1 < shares.mean() < 1
    (event,) = run.folder.status["events"]
    assert "lie beyond -0.2 to 0.2, the range of C51" in event["event"]
