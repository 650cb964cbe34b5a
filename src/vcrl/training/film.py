"""An animation of a trained agent."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vcrl.core.errors import UserError
from vcrl.training.animation import side_by_side, write_gif
from vcrl.training.engine import engine_of
from vcrl.training.evaluate import field, play

if TYPE_CHECKING:
    from vcrl.training.run import Run

MOST = 64  # games in one film


def film(run: "Run", out: Path, seeds: Sequence[int], episodes: int, fps: int = 6) -> Path:
    """The first evaluation games of the given seeds, side by side, one game after the other."""
    if not 1 <= episodes <= MOST:
        raise UserError(f"--episodes {episodes}: 1 to {MOST} games can be shown")
    if not seeds:
        raise UserError("no seeds to show: give for example --seeds 0:3")
    for seed in seeds:
        if seed not in run.plan.seeds:
            raise UserError(f"seed {seed} is not of this run: it has {', '.join(map(str, run.plan.seeds))}")
    with field(run.plan, engine_of(run.plan).lifted.play, episodes) as ground:
        games = play(ground, run.state, range(episodes), record=True)
    shown = [games[run.plan.seeds.index(seed)] for seed in seeds]
    frames: list[np.ndarray] = []
    captions: list[str] = []
    for episode in range(episodes):
        now = [mine[episode] for mine in shown]
        for t in range(max(game.finished.length for game in now)):
            pictures: list[np.ndarray] = []
            for game in now:
                assert game.trajectory is not None
                seen = game.trajectory.frame
                pictures.append(_picture(seen[min(t, len(seen) - 1)]))
            frames.append(side_by_side(pictures))
            captions.append(
                f"{run.plan.method} on {run.plan.task.name}, game {episode + 1}, seeds {_list(seeds)}"
            )
    return write_gif(out, frames, fps=fps, captions=captions)


def _picture(frame: np.ndarray) -> np.ndarray:
    return frame[..., 0] if frame.shape[-1] == 1 else frame


def _list(seeds: Sequence[int]) -> str:
    return " ".join(map(str, seeds))
