"""Suites say what the rest of the package says, and refuse what does not exist."""

from pathlib import Path

import pytest

from vcrl.campaign import suites
from vcrl.campaign.ask import make_ask
from vcrl.core.errors import UserError
from vcrl.envs.protocols import OF_SUITE, PROTOCOLS
from vcrl.envs.registry import TASKS
from vcrl.training.plan import make_plan


@pytest.mark.parametrize("suite", suites.SUITES.values(), ids=lambda suite: suite.name)
def test_a_suite_agrees_with_protocols_and_tasks(suite: suites.Suite):
    assert len(set(suite.tasks)) == len(suite.tasks) and suite.seeds
    for task in suite.tasks:
        if task in TASKS:
            assert TASKS[task].suite == suite.room
            low, high = suite.reference(task)
            assert low is not None and high is not None and low < high
    assert suite.protocol in OF_SUITE[suite.room]


@pytest.mark.parametrize("suite", suites.SUITES.values(), ids=lambda suite: suite.name)
def test_a_campaign_trains_by_the_protocol_of_its_suite(suite: suites.Suite, tmp_path: Path):
    ask = make_ask(suite.name, "vcr", suite.tasks[0], [0], tmp_path, {}, {})
    plan = make_plan("vcr", suite.tasks[0], [0], protocol=ask.options["protocol"])
    assert plan.protocol == PROTOCOLS[suite.protocol]
    other = make_ask("dmc500k", "vcr", "walker-walk", [0], tmp_path, {"protocol": "dmc100k"}, {})
    assert "--protocol=dmc100k" in other.words("vcr", "walker-walk", [0], "0123abcd"), "what is said counts"


def test_sizes():
    assert len(suites.find("atari100k").tasks) == 26
    assert {len(suites.find(name).tasks) for name in ("dmc100k", "dmc500k")} == {6}
    assert suites.find("dmc500k").reference("walker-walk") == (0.0, 1000.0)


def test_tasks_come_in_the_suites_order_and_any_usual_spelling():
    assert suites.select(suites.find("atari100k"), ["up_n_down", "Pong"]) == ("pong", "up-n-down")


@pytest.mark.parametrize(
    "suite, tasks, told",
    [
        ("atari100k", ["pongg"], "did you mean pong"),
        ("toy", [], "no tasks"),
        ("toy", ["pong"], "unknown task of toy"),
    ],
)
def test_bad_tasks(suite: str, tasks: list[str], told: str):
    with pytest.raises(UserError, match=told):
        suites.select(suites.find(suite), tasks)


def test_what_nobody_built_is_refused_in_one_line():
    lacking = [suite for suite in suites.SUITES.values() if suite.missing]
    for suite in lacking:
        with pytest.raises(UserError, match="cannot be trained yet") as error:
            suites.select(suite, None)
        assert "\n" not in str(error.value)
