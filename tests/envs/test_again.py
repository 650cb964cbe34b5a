"""A game played again is the game that was played, whoever plays beside it."""

import numpy as np
import pytest

from vcrl.core.spec import Box, Discrete, EnvSpec
from vcrl.envs.again import Again, play_again, possible
from vcrl.envs.base import Step

SPEC = EnvSpec((2, 2, 1), Discrete(5))


class Games:
    """A game lasts 1 + seed % 9 steps and pays (a + 1) * 10^t for action a at step t: its score tells what was done."""

    spec = SPEC

    def __init__(self, lanes):
        self.lanes, self.seed, self.past = lanes, [0] * lanes, [list[int]() for _ in range(lanes)]
        self.resets = 0

    def reset(self, which, seeds):
        for lane in np.flatnonzero(which):
            self.seed[lane], self.past[lane] = int(seeds[lane]), []
            self.resets += 1
        return np.zeros((self.lanes, 2, 2, 1), np.uint8)

    def step(self, actions, active):
        reward, over = np.full(self.lanes, 1e9, np.float32), np.ones(self.lanes, bool)
        for lane in np.flatnonzero(active):
            assert len(self.past[lane]) <= self.seed[lane] % 9, "a game that is over"
            reward[lane] = (actions[lane] + 1) * 10 ** len(self.past[lane])
            self.past[lane].append(int(actions[lane]))
            over[lane] = len(self.past[lane]) > self.seed[lane] % 9
        return Step(np.zeros((self.lanes, 2, 2, 1), np.uint8), reward, over.copy(), over.copy(), over)

    def save(self):
        return None

    def load(self, arrays):
        raise NotImplementedError

    def close(self):
        pass


def worth(actions):
    return float(sum((int(a) + 1) * 10**t for t, a in enumerate(actions)))


@pytest.mark.parametrize("lanes", [1, 3, 40])
def test_every_game_by_its_own_actions(lanes):
    chance = np.random.default_rng(0)
    seeds = [np.uint64(s) for s in chance.integers(0, 5, 25)]  # up to 5 digits: float32 holds them
    actions = [chance.integers(0, 5, 1 + int(s) % 9).astype(np.uint8) for s in seeds]
    env, seen = Games(lanes), list[int]()
    found = play_again(env, seeds, actions, None, seen.append)
    assert found == [Again(worth(a), len(a), True) for a in actions]
    assert env.resets == 25 and sum(seen) == sum(map(len, actions)) and max(seen) <= lanes


def test_actions_that_do_not_fit_their_game():
    few, many = np.array([1, 2], np.uint8), np.array([1, 2, 3, 4, 0, 0], np.uint8)
    found = play_again(Games(2), [np.uint64(3)] * 2, [few, many], None)
    assert found == [Again(worth([1, 2]), 2, False), Again(worth([1, 2, 3, 4]), 4, True)]


def test_the_horizon_is_an_end():
    three, five = np.zeros(3, np.uint8), np.zeros(5, np.uint8)
    found = play_again(Games(1), [np.uint64(8)] * 2, [three, five], 3)
    assert found == [Again(111.0, 3, True)] * 2


def test_nothing_to_play():
    assert play_again(Games(2), [], [], None) == []


def test_possible_actions():
    assert possible(Discrete(5), np.array([0, 4], np.uint8)) and not possible(
        Discrete(4), np.array([4], np.uint8)
    )
    assert not possible(Discrete(5), np.array([-1], np.int32))
    assert not possible(Discrete(5), np.array([1.0], np.float32))
    assert not possible(Discrete(5), np.array([[1]], np.uint8))
    good = np.array([[-1.0, 1.0], [0.5, 0.0]], np.float32)
    assert possible(Box(2), good) and not possible(Box(3), good) and not possible(Discrete(5), good)
    assert not possible(Box(2), 3 * good) and not possible(Box(2), np.array([[0, np.inf]], np.float32))
    assert not possible(Box(2), np.array([[0, 1]], np.uint8))
