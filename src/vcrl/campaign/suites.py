"""Suites: which tasks, by which protocol, how many seeds, and what stands for 0 and 1."""

from dataclasses import dataclass, replace

from vcrl.core.errors import UserError, unknown
from vcrl.envs import registry
from vcrl.envs.atari_scores import SCORES


@dataclass(frozen=True)
class Suite:
    name: str
    about: str
    room: str  # the suite of its tasks in the registry, and the folder their runs lie in
    tasks: tuple[str, ...]
    protocol: str
    seeds: tuple[int, ...]
    references: tuple[str, str]  # what is 0 and what is 1 on the normalised scale
    bounds: tuple[float, float] | None = None  # those two scores where they are the same for all tasks
    claim: bool = True  # whether a table of this suite may be called by the benchmark's name

    @property
    def missing(self) -> list[str]:
        """Tasks that nobody has built yet."""
        return [task for task in self.tasks if task not in registry.TASKS]

    def reference(self, task: str) -> tuple[float | None, float | None]:
        """Raw scores that stand for 0 and 1."""
        if self.bounds is not None:
            return self.bounds
        found = registry.TASKS[task]
        return found.random_score, found.reference_score


ATARI = Suite(
    "atari100k",
    "the 26 games, 100,000 agent steps",
    "atari",
    tuple(SCORES),
    "atari100k",
    tuple(range(10)),
    ("random play", "a human"),
)
CONTROL = Suite(
    "dmc100k",
    "six tasks of DeepMind Control, 100,000 environment steps",
    "dmc",
    ("finger-spin", "cartpole-swingup", "reacher-easy", "cheetah-run", "walker-walk", "ball_in_cup-catch"),
    "dmc100k",
    tuple(range(10)),
    ("nothing", "the most an episode can give"),
    bounds=(0.0, 1000.0),
)
TOY = Suite(
    "toy",
    "the built-in games with discrete actions",
    "toy",
    ("catch", "balloon", "snow"),
    "toy",
    tuple(range(5)),
    ("random play", "the best possible"),
)

SUITES: dict[str, Suite] = {
    suite.name: suite
    for suite in (
        ATARI,
        replace(
            ATARI,
            name="atari100k-3",
            about="three games for development, not a benchmark",
            tasks=("pong", "kung-fu-master", "up-n-down"),
            seeds=tuple(range(5)),
            claim=False,
        ),
        CONTROL,
        replace(
            CONTROL,
            name="dmc500k",
            about="the same six tasks, 500,000 environment steps",
            protocol="dmc500k",
        ),
        TOY,
        replace(
            TOY, name="toy-2", about="the two games of the demo", tasks=("catch", "balloon"), claim=False
        ),
    )
}


def find(name: str) -> Suite:
    if name not in SUITES:
        raise unknown("suite", name, SUITES)
    return SUITES[name]


def select(suite: Suite, names: list[str] | None) -> tuple[str, ...]:
    """Tasks of a suite, in its order; all of them if none are named. What cannot be trained is refused."""
    known = {name.lower().replace("_", "-"): name for name in suite.tasks}
    plain = (
        {known.get(n.lower().replace("_", "-"), n) for n in names} if names is not None else set(suite.tasks)
    )
    for name in sorted(plain - set(suite.tasks)):
        raise unknown(f"task of {suite.name}", name, suite.tasks)
    chosen = tuple(task for task in suite.tasks if task in plain)
    if not chosen:
        raise UserError(f"no tasks: give some of {', '.join(suite.tasks)}, or leave --tasks away for all")
    if absent := [task for task in chosen if task in suite.missing]:
        raise UserError(
            f"{suite.name} cannot be trained yet: {', '.join(absent)} {'is' if len(absent) == 1 else 'are'} not "
            "among the tasks (`vcrl tasks` lists them)"
        )
    return chosen
