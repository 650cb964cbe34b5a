"""One name, two families: which one is meant follows from the task."""

import pytest

from vcrl.core.errors import UserError
from vcrl.core.spec import Box, Discrete
from vcrl.methods.configs import RainbowConfig, SACConfig
from vcrl.methods.library import FAMILIES, NAMES, SUITES, find, resolve


@pytest.mark.parametrize(
    ("suite", "task", "actions", "base"),
    [
        ("atari", "pong", None, "rainbow"),
        ("dmc", "walker-walk", None, "sac"),
        ("toy", "catch", None, "rainbow"),
        ("toy", "reach", None, "sac"),
        ("gym", "gym:Mine-v0", Box(3), "sac"),
        ("gym", "gym:Mine-v0", Discrete(3), "rainbow"),
        (None, None, None, "rainbow"),
    ],
)
def test_the_task_decides_which_vcr_is_meant(suite, task, actions, base):
    assert find("vcr", suite, task, actions).base == base
    kind = {"rainbow": RainbowConfig, "sac": SACConfig}[base]
    assert isinstance(resolve("vcr", suite, task, actions), kind)


def test_a_name_of_one_family_alone_is_found_there():
    assert find("sac-ae").base == "sac" and find("der").base == "rainbow"


@pytest.mark.parametrize(
    ("name", "suite", "task", "told"),
    [
        ("der", "dmc", "walker-walk", "der is not made for continuous actions, which walker-walk has"),
        ("sac", "atari", "pong", "unknown|not made for discrete actions"),
        ("vcr-sac", "dmc", "walker-walk", "did you mean"),
    ],
)
def test_a_method_for_other_actions_is_refused(name, suite, task, told):
    with pytest.raises(UserError, match=told):
        find(name, suite, task, Discrete(3) if suite == "atari" else None)


def test_kin_have_the_same_name():
    both = [name for name in NAMES if all(name in family.methods for family in FAMILIES.values())]
    assert {"curl", "drq", "spr", "playvirtual", "vcr", "vcr-lambda-0"} <= set(both)
    assert set(SUITES) == {"atari", "toy", "gym", "dmc"}


def test_only_those_tasks_learn_slower_whose_reference_does():
    assert resolve("vcr", "dmc", "cheetah-run").adam.rate == 2e-4
    assert resolve("vcr", "dmc", "cheetah-run").temperature.rate == 2e-4
    assert resolve("vcr", "dmc", "walker-walk").adam.rate == 1e-3
    assert resolve("drq", "dmc", "cheetah-run").adam.rate == 1e-3
    assert resolve("playvirtual", "dmc", "cheetah-run").temperature.rate == 1e-4
