"""The tasks by name, with the scores that stand for 0 and 1."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from typing import Any

from vcrl.core.errors import UserError, unknown
from vcrl.core.protocol import Protocol
from vcrl.core.spec import EnvSpec
from vcrl.envs import atari, dmc, toy
from vcrl.envs.atari_scores import SCORES
from vcrl.envs.base import VecEnv
from vcrl.envs.gym_adapt import Fit, Pictures, parse_fit
from vcrl.envs.gym_find import Source, by_call, by_name, split
from vcrl.envs.gymnasium import GymEnv


@dataclass(frozen=True)
class Task:
    """Something to train on.

    `make` takes the number of lanes, the protocol, and whether it is for training: a protocol may end the learner's
    episodes earlier than the game. `recall`, where it is there, makes the lanes of an evaluation's teams, which give
    what those of `make` would, with less work, or None. `random_score` and `reference_score` stand for 0 and 1. Where
    pictures are rendered for the purpose, `sized` gives the same task with pictures of another size.
    """

    name: str
    suite: str
    about: str
    spec: EnvSpec
    make: Callable[[int, Protocol, bool], VecEnv]
    random_score: float | None = None  # of uniformly random actions
    reference_score: float | None = None  # the best possible, or a human's
    sized: Callable[[int], "Task"] | None = None
    recall: Callable[[Sequence[int], Protocol], Sequence[VecEnv] | None] | None = None
    see: Pictures | None = None  # what makes a frame of the environment's own observation


def _toy(name: str, about: str, game: type[toy.ToyGame]) -> Task:
    return Task(
        name, "toy", about, game.spec, lambda lanes, *_: game(lanes), game.random_score, game.optimal_score
    )


def _atari(game: str) -> Task:
    words = game.replace("-", " ").title()
    spec = atari.spec_of(atari.actions_of(game))
    scores = SCORES.get(game, (None, None))
    make, recall = partial(_make_atari, game), partial(_recall_atari, game)
    return Task(game, "atari", f"{words}, Atari 2600", spec, make, *scores, recall=recall)


def _make_atari(game: str, lanes: int, protocol: Protocol, training: bool) -> VecEnv:
    return atari.make(lanes, game, protocol, training)


def _recall_atari(game: str, teams: Sequence[int], protocol: Protocol) -> Sequence[VecEnv] | None:
    return atari.make_recalling(teams, game, protocol)


def _dmc(task: str, size: int = 100) -> Task:
    words = " ".join(task.replace("-", "_").split("_")).capitalize()
    spec = dmc.spec_of(task, size, dmc.repeat_of(task))
    # At most one a step; what random play scores differs between tasks, and nobody normalises by it.
    scores = (0.0, float(dmc.STEPS)) if task in dmc.REPEATS else (None, None)
    make, sized = partial(_make_dmc, task, size), partial(_dmc, task)
    return Task(task, "dmc", f"{words}, DeepMind Control", spec, make, *scores, sized=sized)


def _make_dmc(task: str, size: int, lanes: int, protocol: Protocol, training: bool) -> VecEnv:
    return dmc.make(lanes, task, size, dmc.repeat_of(task))


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
        *map(_dmc, dmc.REPEATS),
    )
}


OWN: dict[str, Task] = {}  # what a user of this process gave as a class or a function


def find(name: str, trusted: bool = True) -> Task:
    """A task by its name, in any usual spelling; `gym:...` names a user's own environment.

    Atari games beyond the 26 of Atari 100K are found too, if ALE has them; nobody knows a human's score in them. So
    are the tasks of DeepMind Control beyond the six of its benchmark.
    A name that was not typed but read from a file is not trusted: no module is imported for it.
    """
    if name in OWN:
        return OWN[name]
    if name.lower().startswith("gym:"):
        module, own_name, fit = split(name)
        return _gym(by_name(module, own_name, trusted), fit)
    known = {_plain(task): task for task in TASKS}
    if _plain(name) in known:
        return TASKS[known[_plain(name)]]
    control = dmc.plain(name)
    if control is not None:
        return TASKS[control] if control in TASKS else _dmc(control)
    game = atari.plain(name)
    if game is None and re.fullmatch(r"[\w./-]+-v\d+", name):
        near = get_close_matches(_plain(name).rpartition("-v")[0], TASKS, n=2, cutoff=0.6)
        raise UserError(
            f"unknown task '{name}': did you mean {' or '.join([*near, f'gym:{name}'])}? "
            f"For one of Gymnasium `vcrl check-env {name}` writes a config."
        )
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


def own(make: Any, name: str | None = None, fit: str = "") -> Task:
    """A task of environments that a class or function makes; `find` knows it from now on."""
    task = _gym(by_call(make, name), parse_fit(fit))
    OWN[task.name] = task
    return task


def _gym(source: Source, fit: Fit) -> Task:
    # What it looks like is known only by building one.
    one = GymEnv(1, source, fit)
    one.close()
    name = f"gym:{source.name}" + (f"@{fit}" if str(fit) else "")
    make = partial(_make_gym, source, fit)
    return Task(name, "gym", f"{source.name} of Gymnasium", one.spec, make, see=one.see)


def _make_gym(source: Source, fit: Fit, lanes: int, protocol: Protocol, training: bool) -> VecEnv:
    return GymEnv(lanes, source, fit, training)
