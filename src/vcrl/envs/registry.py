"""The tasks by name, with the scores that stand for 0 and 1."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from vcrl.core.errors import UserError, unknown
from vcrl.core.protocol import Protocol
from vcrl.core.spec import EnvSpec
from vcrl.envs import atari, gymnasium, toy
from vcrl.envs.atari_scores import SCORES
from vcrl.envs.base import VecEnv


@dataclass(frozen=True)
class Task:
    """Something to train on.

    `make` takes the number of lanes, the protocol, and whether it is for training: a protocol may end the learner's
    episodes earlier than the game. `random_score` and `reference_score` stand for 0 and 1.
    """

    name: str
    suite: str
    about: str
    spec: EnvSpec
    make: Callable[[int, Protocol, bool], VecEnv]
    random_score: float | None = None  # of uniformly random actions
    reference_score: float | None = None  # the best possible, or a human's


def _toy(name: str, about: str, game: type[toy.ToyGame]) -> Task:
    return Task(
        name, "toy", about, game.spec, lambda lanes, *_: game(lanes), game.random_score, game.optimal_score
    )


def _atari(game: str) -> Task:
    words = game.replace("-", " ").title()
    spec = atari.spec_of(atari.actions_of(game))
    scores = SCORES.get(game, (None, None))
    return Task(game, "atari", f"{words}, Atari 2600", spec, partial(_make_atari, game), *scores)


def _make_atari(game: str, lanes: int, protocol: Protocol, training: bool) -> VecEnv:
    return atari.make(lanes, game, protocol, training)


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _toy("catch", "a ball falls, be under it", toy.Catch),
        _toy(
            "balloon", "reach a height in gusts: the picture cannot be predicted, its value can", toy.Balloon
        ),
        _toy("snow", "catch in front of a distracting background", toy.Snow),
        _toy("reach", "push a point to a goal, continuous actions", toy.Reach),
        *map(_atari, SCORES),
    )
}


def find(name: str) -> Task:
    """A task by its name, in any usual spelling; `gym:...` names a user's own environment.

    Atari games beyond the 26 of Atari 100K are found too, if ALE has them; nobody knows a human's score in them.
    """
    if name.lower().startswith("gym:"):
        return _gym(name)
    known = {_plain(task): task for task in TASKS}
    if _plain(name) in known:
        return TASKS[known[_plain(name)]]
    game = atari.plain(name)
    if game is None:
        raise unknown("task", name, TASKS, "`vcrl tasks` lists them.")
    return TASKS[game] if game in TASKS else _atari(game)


def normalise(task: Task, score: float) -> float:
    """A score on the scale on which random play has 0 and the reference has 1."""
    if task.random_score is None or task.reference_score is None:
        raise UserError(f"task '{task.name}' has no reference scores: report its raw scores")
    return (score - task.random_score) / (task.reference_score - task.random_score)


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")


def _gym(task: str) -> Task:
    module, name = gymnasium.parse(task)
    make = partial(gymnasium.GymEnv, module=module, name=name)
    # What it looks like is known only by building one.
    one = make(1)
    one.close()
    return Task(task, "gym", f"{name} of Gymnasium", one.spec, lambda lanes, *_: make(lanes))
