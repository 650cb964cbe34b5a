"""Losses as functions on arrays: no networks, no configuration, nothing of this package needed to use them."""

from vcrl.objectives.distance import cross_entropy, squared_error, unit_distance
from vcrl.objectives.ramp import gaussian_ramp
from vcrl.objectives.spr import self_prediction
from vcrl.objectives.td import NStep, categorical_target, double_q, huber, n_step, pick, project
from vcrl.objectives.vcr import value_consistency

__all__ = [
    "NStep",
    "categorical_target",
    "cross_entropy",
    "double_q",
    "gaussian_ramp",
    "huber",
    "n_step",
    "pick",
    "project",
    "self_prediction",
    "squared_error",
    "unit_distance",
    "value_consistency",
]
