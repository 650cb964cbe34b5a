"""The actions of open games: how they are kept, and what is refused before memory is taken for it."""

import numpy as np
import pytest

from vcrl.core.errors import UserError
from vcrl.core.spec import Box, Discrete
from vcrl.envs.actions import ActionLog, stored_type


@pytest.mark.parametrize(
    ("n", "kind"), [(2, np.uint8), (256, np.uint8), (257, np.uint16), (65536, np.uint16), (65537, np.int32)]
)
def test_the_narrowest_type_holds_every_action(n, kind):
    assert stored_type(Discrete(n)) is kind and kind(n - 1) == n - 1


def test_continuous_actions_are_kept_to_the_bit():
    assert stored_type(Box(3)) is np.float32


def test_lengths_of_a_strangers_file_are_looked_at_first():
    log = ActionLog(2, Discrete(3))
    for length in ([2**40, 0], [-1, 3], [1, 2, 0], [4, 0]):
        with pytest.raises(UserError, match="damaged"):
            log.load(np.zeros(3, np.int32), np.array(length))
    log.load(np.array([1, 2, 0], np.int32), np.array([1, 2]))
    assert [log.of(lane).tolist() for lane in (0, 1)] == [[1], [2, 0]]
