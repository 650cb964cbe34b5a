"""Whole trainings: every kind of method learns, well above random play."""

import io

import numpy as np
import pytest
from rich.console import Console

from vcrl.envs.registry import normalise
from vcrl.training.plan import Schedule
from vcrl.training.run import train

SEEDS = (0, 1, 2)
# One of every kind that learns in half a minute. PlayVirtual takes longer, ablations differ from these by a number or
# a switch, and all of them train on real frames in `test_atari_training.py`.
KINDS = ("rainbow", "otr", "curl", "drq-eps", "spr", "vcr")


@pytest.mark.slow
@pytest.mark.parametrize("method", KINDS)
def test_every_kind_of_method_learns_catch(method, tmp_path):
    schedule = Schedule(log=500, gradients=0, q_error=2000)
    run = train(method, "catch", SEEDS, None, None, schedule, tmp_path, Console(file=io.StringIO()))
    scores = np.array([normalise(run.plan.task, score) for score in run.scores().values()])
    print(method, scores.round(2))
    # Random play is 0 by definition; 100 games put its standard error at 0.04.
    assert scores.mean() > 0.4 and scores.min() > 0.15
    errors = run.folder.metrics()[-1]
    assert (
        np.mean(errors["q_error/real"]) < 0.75
    )  # guessing 0 everywhere is wrong by the size of a return, near 1
