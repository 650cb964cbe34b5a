"""What must agree before two scores may stand in one table."""

from dataclasses import dataclass

from vcrl.core.config import digest


@dataclass(frozen=True)
class Protocol:
    """Hashed into every result. A field belongs here if changing it makes a score mean something else."""

    name: str
    budget: int  # of training, in `unit`
    action_repeat: int  # frames an action is held
    horizon: int | None  # agent steps after which an evaluation episode is cut
    eval_episodes: int
    eval_epsilon: float
    unit: str = "agent steps"  # or "env steps": of those a task may take several for one action
    sticky: float = 0.0  # chance, at every frame, that the simulator repeats the action before
    rules: str = "as the environment has them"  # in words; other rules must have other words
    score: str = "mean raw score of the final evaluation"
    eval_seeds: str = "evaluation episodes 0, 1, 2, ... of each training seed"

    @property
    def hash(self) -> str:
        return digest(self)


@dataclass(frozen=True)
class Observation:
    """How a method looks at the game. Recorded, and free to differ between the methods of one table."""

    stack: int = 4  # frames an agent sees at once, oldest first
    fill: str = "zeros"  # in place of frames before an episode: "zeros", or "first", its first frame again
    size: int | None = None  # pixels a side, where a task lets one choose; none: as the task has it
    reward: str = "sign"  # what the learner is given: "sign" or "raw"; scores are always raw
    scale: float = 1.0  # factor on that
