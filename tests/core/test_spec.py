"""Specs are values."""

import dataclasses

import pytest

from vcrl.core.config import from_json, to_json
from vcrl.core.spec import Box, Discrete, EnvSpec


@pytest.mark.parametrize("actions", [Discrete(4), Box(2)])
def test_round_trip(actions: Discrete | Box):
    spec = EnvSpec((84, 84, 1), actions, horizon=27_000)
    assert from_json(EnvSpec, to_json(spec)) == spec


def test_a_spec_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Discrete(4).n = 5  # pyright: ignore[reportAttributeAccessIssue]
