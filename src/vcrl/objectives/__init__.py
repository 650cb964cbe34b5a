"""Losses as functions on arrays: no networks, no configuration, nothing of this package needed to use them."""

from vcrl.objectives.curl import info_nce
from vcrl.objectives.cycle import cycle_consistency
from vcrl.objectives.distance import cross_entropy, squared_error, unit_distance
from vcrl.objectives.ramp import gaussian_ramp
from vcrl.objectives.reward import reward_prediction
from vcrl.objectives.spr import self_prediction
from vcrl.objectives.td import NStep, categorical_target, double_q, huber, n_step, pick, project
from vcrl.objectives.vcr import value_consistency

__all__ = [
    "NStep",
    "categorical_target",
    "cross_entropy",
    "cycle_consistency",
    "double_q",
    "gaussian_ramp",
    "huber",
    "info_nce",
    "n_step",
    "pick",
    "project",
    "reward_prediction",
    "self_prediction",
    "squared_error",
    "unit_distance",
    "value_consistency",
]
