import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from vcrl.core.errors import UserError
from vcrl.envs.protocols import PROTOCOLS
from vcrl.envs.registry import TASKS, Task, find, normalise


class Blank(gymnasium.Env):
    observation_space = Box(0, 255, (32, 32), np.uint8)
    action_space = Discrete(2)


def test_the_built_in_games_are_there():
    assert list(TASKS)[:4] == ["catch", "balloon", "snow", "reach"] and len(TASKS) == 4 + 26 + 6
    for name, task in TASKS.items():
        if task.suite in ("atari", "dmc"):
            continue
        env = task.make(3, PROTOCOLS["toy"], True)
        assert task.name == name and task.suite == "toy" and task.about
        assert env.lanes == 3 and env.spec == task.spec


def test_find_forgives_case_and_dashes(monkeypatch):
    assert find("catch") is find("Catch") is TASKS["catch"]
    odd = Task("Ball_In-cup", "x", "", TASKS["catch"].spec, TASKS["catch"].make)
    monkeypatch.setitem(TASKS, odd.name, odd)
    assert find("ball-in_CUP") is odd


def test_find_suggests():
    with pytest.raises(UserError) as caught:
        find("ballon")
    assert str(caught.value) == "unknown task 'ballon': did you mean balloon? `vcrl tasks` lists them."


def test_find_builds_gymnasium_tasks():
    gymnasium.register("vcrltest/Blank-v0", entry_point=Blank, max_episode_steps=50)
    task = find("gym:vcrltest/Blank-v0")
    assert task.suite == "gym" and task.name == "gym:vcrltest/Blank-v0"
    assert task.spec.frame == (32, 32, 1) and task.spec.horizon == 50
    assert task.make(2, PROTOCOLS["gym"], True).lanes == 2
    with pytest.raises(UserError, match="no reference scores"):
        normalise(task, 1.0)
    with pytest.raises(UserError, match="did you mean vcrltest/Blank-v0"):
        find("gym:vcrltest/Blonk-v0")


def test_normalise():
    for task in TASKS.values():
        assert normalise(task, task.random_score) == 0 and normalise(task, task.reference_score) == 1
    assert normalise(TASKS["catch"], 0.125) == 0.5
