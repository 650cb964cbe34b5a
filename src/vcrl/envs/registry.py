"""The tasks by name, with the scores that stand for 0 and 1."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from vcrl.core.errors import UserError, unknown
from vcrl.core.spec import EnvSpec
from vcrl.envs import gymnasium, toy
from vcrl.envs.base import VecEnv


@dataclass(frozen=True)
class Task:
    """Something to train on. `make` takes the number of lanes."""

    name: str
    suite: str
    about: str
    spec: EnvSpec
    make: Callable[[int], VecEnv]
    random_score: float | None = None  # of uniformly random actions
    optimal_score: float | None = None


def _toy(name: str, about: str, game: type[toy.ToyGame]) -> Task:
    return Task(name, "toy", about, game.spec, game, game.random_score, game.optimal_score)


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _toy("catch", "a ball falls, be under it", toy.Catch),
        _toy(
            "balloon", "reach a height in gusts: the picture cannot be predicted, its value can", toy.Balloon
        ),
        _toy("snow", "catch in front of a distracting background", toy.Snow),
        _toy("reach", "push a point to a goal, continuous actions", toy.Reach),
    )
}


def find(name: str) -> Task:
    """A task by its name, whatever the case and whether _ or -; `gym:...` names a user's own environment."""
    if name.lower().startswith("gym:"):
        return _gym(name)
    known = {_plain(task): task for task in TASKS}
    if _plain(name) not in known:
        raise unknown("task", name, TASKS, "`vcrl tasks` lists them.")
    return TASKS[known[_plain(name)]]


def normalise(task: Task, score: float) -> float:
    """A score on the scale on which random play has 0 and the best possible has 1."""
    if task.random_score is None or task.optimal_score is None:
        raise UserError(f"task '{task.name}' has no reference scores: report its raw scores")
    return (score - task.random_score) / (task.optimal_score - task.random_score)


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")


def _gym(task: str) -> Task:
    module, name = gymnasium.parse(task)
    make = partial(gymnasium.GymEnv, module=module, name=name)
    # What it looks like is known only by building one.
    one = make(1)
    one.close()
    return Task(task, "gym", f"{name} of Gymnasium", one.spec, make)
