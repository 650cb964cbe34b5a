"""What must agree before two scores may stand in one table."""

import dataclasses

import pytest

from vcrl.core.config import from_json, to_json
from vcrl.core.protocol import Protocol

ATARI = Protocol("atari-100k", 100_000, 4, 27_000, 100, 0.001)
CHANGED = {
    "name": "atari-200k",
    "budget": 200_000,
    "action_repeat": 1,
    "horizon": None,
    "eval_episodes": 10,
    "eval_epsilon": 0.0,
    "unit": "env steps",
    "sticky": 0.25,
    "rules": "none",
    "score": "best evaluation",
    "eval_seeds": "0",
}


def test_hash_is_pinned():
    """Results on disk carry it: a new one means that no old result can be compared any more."""
    assert ATARI.hash == "15440663"  # sha256sum of its JSON with sorted names and no spaces


def test_equal_protocols_have_one_hash():
    assert dataclasses.replace(ATARI).hash == ATARI.hash
    assert from_json(Protocol, to_json(ATARI)).hash == ATARI.hash


def test_no_field_is_forgotten_here():
    assert set(CHANGED) == {f.name for f in dataclasses.fields(Protocol)}


@pytest.mark.parametrize("field", CHANGED)
def test_hash_changes_with_each_field(field: str):
    assert dataclasses.replace(ATARI, **{field: CHANGED[field]}).hash != ATARI.hash


def test_all_changed_hashes_differ():
    hashes = {dataclasses.replace(ATARI, **{field: value}).hash for field, value in CHANGED.items()}
    assert len(hashes) == len(CHANGED)
