from functools import partial
from hashlib import blake2b

import numpy as np
import pytest
from conformance import some_actions

from vcrl.core.errors import UserError
from vcrl.core.spec import Box, Discrete, EnvSpec
from vcrl.envs import toy
from vcrl.envs.base import Step
from vcrl.envs.lanes import Finished, LaneRow, Lanes, game_seed

SEEDS, SALT = [4, 0, 31, 4], 7  # two alike: a seed decides its lane
LIFE, OVER, CUT, LOST = range(4)  # a life lost, the end, a time limit, a simulator that had to be restarted


class Fake:
    """Ends in every way, as a hash of seed and actions decides; idle lanes answer with rubbish."""

    def __init__(self, lanes: int, saves: bool = True, rare: int = 12, size: int | None = None):
        self.lanes, self.saves, self.rare = lanes, saves, rare
        self.spec = EnvSpec((3, 2, 2), Discrete(5) if size is None else Box(size))
        self.memory = np.zeros(lanes, np.uint64)

    def _picture(self, lane: int) -> np.ndarray:
        return np.frombuffer(blake2b(self.memory[lane].tobytes(), digest_size=12).digest(), np.uint8).reshape(
            3, 2, 2
        )

    def reset(self, which, seeds):
        self.memory[which] = seeds[which]
        frames = np.full((self.lanes, 3, 2, 2), 255, np.uint8)
        for lane in np.flatnonzero(which):
            frames[lane] = self._picture(lane)
        return frames

    def step(self, actions, active):
        frames, reward = np.full((self.lanes, 3, 2, 2), 255, np.uint8), np.full(self.lanes, 99, np.float32)
        terminal, last, over = (np.ones(self.lanes, bool) for _ in range(3))
        for lane in np.flatnonzero(active):
            told = self.memory[lane].tobytes() + actions[lane].tobytes()
            self.memory[lane] = np.frombuffer(blake2b(told, digest_size=8).digest(), np.uint64)[0]
            number = int(self.memory[lane])
            event, reward[lane] = number % self.rare, number // self.rare % 7 - 3.5
            terminal[lane], over[lane] = event in (LIFE, OVER), event in (OVER, CUT)
            last[lane] = event in (LIFE, OVER, CUT, LOST)
            frames[lane] = self._picture(lane)
        return Step(frames, reward, terminal, last, over)

    def close(self):
        self.closed = True

    def save(self):
        return {"memory": self.memory.copy()} if self.saves else None

    def load(self, arrays):
        self.memory[:] = arrays["memory"]


def reference(env, seed: int, actions: np.ndarray, stack: int, episode: int = 0, fill: str = "zeros"):
    """One lane told slowly, an episode as a list of frames: what was seen, the rows, the finished games."""
    on, black = np.array([True]), np.zeros(env.spec.frame, np.uint8)

    def opening():
        address = np.random.SeedSequence([SALT, seed, episode])
        return [env.reset(on, address.generate_state(1, np.uint64))[0]]

    seen, rows, games = [], [], []
    frames, rewards, truncated = opening(), [], False
    for action in actions:
        before = frames[0] if fill == "first" else black
        seen.append(np.concatenate(([before] * stack + frames)[-stack:], axis=-1))
        start = len(frames) == 1
        if truncated:
            rows.append(LaneRow(frames[-1], np.zeros_like(action), 0, False, False, True))
            episode += 1
            frames, rewards, truncated = opening(), [], False
            continue
        frame, reward, terminal, last, over = (x[0] for x in env.step(action[None], on))
        rows.append(LaneRow(frames[-1], action, reward, terminal, start, False))
        rewards.append(float(reward))
        if over:
            games.append((seed, episode, sum(rewards), len(rewards)))
        if terminal and over:
            episode += 1
            frames, rewards = opening(), []
        elif terminal:
            frames = [frame]
        else:
            frames.append(frame)
            truncated = bool(last)
    return seen, rows, games


KINDS = {
    "lives and cuts": Fake,
    "long games": partial(Fake, rare=250),
    "vectors": partial(Fake, size=3),
    "not saved": partial(Fake, saves=False),
    "not saved, long": partial(Fake, saves=False, rare=250),
    "catch": toy.Catch,
    "reach": toy.Reach,
}


@pytest.mark.parametrize(("stack", "fill"), [(1, "zeros"), (3, "zeros"), (3, "first"), (1, "first")])
@pytest.mark.parametrize("kind", KINDS)
def test_against_a_slow_reference(kind, stack, fill):
    env, episodes = KINDS[kind](4), [0, 5, 0, 9]
    lanes = Lanes(env, SEEDS, stack, SALT, episodes, fill)
    actions = some_actions(env, 300, 4)
    stories = [
        reference(KINDS[kind](1), s, actions[:, i], stack, episodes[i], fill) for i, s in enumerate(SEEDS)
    ]
    finished: list[Finished] = []
    for t, action in enumerate(actions):
        obs = lanes.obs
        tick = lanes.step(action)
        finished += tick.finished
        for lane, (seen, rows, _) in enumerate(stories):
            assert np.array_equal(obs[lane], seen[t])
            for name, ours, theirs in zip(LaneRow._fields, tick.row, rows[t], strict=True):
                assert np.array_equal(ours[lane], theirs), (t, lane, name)
    for lane, (_, rows, games) in enumerate(stories):
        assert [tuple(f[1:]) for f in finished if f.lane == lane] == games
        assert lanes.agent_steps[lane] == sum(not row.pad for row in rows)
    assert finished


def test_every_ending_happens():
    # Or the comparison above would prove little.
    env = Fake(4)
    lanes = Lanes(env, SEEDS, 2, SALT)
    ticks = [lanes.step(action) for action in some_actions(env, 300, 4)]
    starts = np.sum([t.row.first for t in ticks])
    pads, terminals = np.sum([t.row.pad for t in ticks]), np.sum([t.row.terminal for t in ticks])
    finished = sum(len(t.finished) for t in ticks)
    scored_cuts = finished - (lanes.episode.sum() - pads)
    assert pads > 30 and terminals > 60 and scored_cuts > 10 and pads - scored_cuts > 10
    assert starts > lanes.episode.sum() + 30, "lost lives start an episode without a new game"
    assert max(f.length for t in ticks for f in t.finished) > 20


def test_types():
    for make, action in ((Fake, np.int32), (partial(Fake, size=3), np.float32)):
        lanes = Lanes(make(4), SEEDS, 3)
        assert lanes.obs.shape == (4, 3, 2, 6) and lanes.obs.dtype == np.uint8
        row = lanes.step(some_actions(lanes.env, 1, 4)[0].astype(float)).row
        assert [a.dtype for a in row] == [np.uint8, action, np.float32, bool, bool, bool]
        assert all(isinstance(a, np.ndarray) and len(a) == 4 for a in row)


def test_arrays_given_out_are_never_written_again():
    env = Fake(4)
    lanes = Lanes(env, SEEDS, 1, SALT)
    given, copies = [], []
    for action in some_actions(env, 60, 4):
        given += [lanes.obs, lanes.first, lanes.pad, lanes.score, lanes.agent_steps]
        copies += [a.copy() for a in given[-5:]]
        given += lanes.step(action).row
        copies += [a.copy() for a in given[-6:]]
    assert len(given) == 60 * 11
    assert all(np.array_equal(a, b) for a, b in zip(given, copies, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_resume(kind):
    actions = some_actions(KINDS[kind](4), 260, 4)
    cuts, pads = (0, 1, 19, 20, 40, 77, 151, 200), 0
    for cut in cuts:
        lanes = Lanes(KINDS[kind](4), SEEDS, 3, SALT)
        for action in actions[:cut]:
            lanes.step(action)
        saved = lanes.save()
        for array in saved.values():
            array.setflags(write=False)  # as arrays out of a file may be
        pads += lanes.pad.sum()
        other = Lanes(KINDS[kind](4), SEEDS, 3, SALT)
        other.load(saved)
        for action in actions[cut : cut + 60]:
            assert np.array_equal(lanes.obs, other.obs)
            a, b = lanes.step(action), other.step(action)
            assert a.finished == b.finished
            assert all(np.array_equal(x, y) for x, y in zip(a.row, b.row, strict=True))
        ours, theirs = lanes.save(), other.save()
        assert ours.keys() == theirs.keys()
        assert all(np.array_equal(ours[k], theirs[k]) and ours[k].dtype == theirs[k].dtype for k in ours)
    assert pads > 0 or kind in ("catch", "long games", "not saved, long"), "also saved where a pad is due"


def test_resume_with_stacks_filled_by_the_first_frame():
    actions = some_actions(Fake(4), 120, 4)
    lanes = Lanes(Fake(4), SEEDS, 3, SALT, fill="first")
    for action in actions[:77]:
        lanes.step(action)
    other = Lanes(Fake(4), SEEDS, 3, SALT, fill="first")
    other.load(lanes.save())
    for action in actions[77:]:
        assert np.array_equal(lanes.obs, other.obs)
        lanes.step(action)
        other.step(action)


def test_all_lanes_at_their_limit_turn_to_the_next_game_at_no_cost_of_a_step():
    """What `turn` writes is what a step would, whatever was to be done in it."""
    one, two = (Lanes(toy.Reach(4), SEEDS, 2, SALT, fill="first") for _ in range(2))
    actions = some_actions(one.env, 60, 4)
    for action in actions[:20]:
        one.step(action)
        two.step(action)
    assert one.pad.all() and not one.first.any()
    turned, stepped = one.turn(), two.step(actions[20])
    assert stepped.finished == []
    for name, a, b in zip(LaneRow._fields, turned, stepped.row, strict=True):
        assert np.array_equal(a, b), name
    assert turned.pad.all() and not (turned.action.any() or turned.reward.any() or turned.terminal.any())
    assert (
        one.first.all() and not one.pad.any() and (one.agent_steps == 20).all() and (one.episode == 1).all()
    )
    for action in actions[20:]:
        assert np.array_equal(one.obs, two.obs)
        a, b = one.step(action), two.step(action)
        assert all(np.array_equal(x, y) for x, y in zip(a.row, b.row, strict=True))


def test_no_lane_is_turned_while_another_plays():
    lanes = Lanes(toy.Reach(4), SEEDS, 2, SALT)
    with pytest.raises(AssertionError, match="still playing"):
        lanes.turn()


def test_saved_names_say_whose_they_are():
    assert {n.split("/")[0] for n in Lanes(Fake(4), SEEDS, 2).save()} == {"lanes", "env"}
    assert {n.split("/")[0] for n in Lanes(Fake(4, saves=False), SEEDS, 2).save()} == {"lanes"}


def test_open_game_keeps_its_actions():
    env = Fake(1, rare=10**9)
    lanes, actions = Lanes(env, [0], 1), some_actions(env, 200, 1)
    for action in actions:
        lanes.step(action)
    assert np.array_equal(lanes.actions(0), actions[:, 0])


def test_other_seeds_or_salt_are_refused():
    saved = Lanes(Fake(4), SEEDS, 2, SALT).save()
    for seeds, salt in (([4, 0, 31, 5], SALT), (SEEDS, SALT + 1)):
        with pytest.raises(UserError, match="resume with the seeds of the run"):
            Lanes(Fake(4), seeds, 2, salt).load(saved)


def test_wrong_numbers_of_lanes_are_refused():
    with pytest.raises(ValueError, match="4 lanes, 3 seeds"):
        Lanes(Fake(4), [1, 2, 3], 2)
    with pytest.raises(ValueError, match="one of each per lane"):
        Lanes(Fake(4), SEEDS, 2, episodes=[1])
    with pytest.raises(ValueError, match="actions of shape"):
        Lanes(Fake(4), SEEDS, 2).step(np.zeros((4, 1), np.int32))


def test_games_have_addresses_of_their_own():
    addresses = [(salt, seed, episode) for salt in range(3) for seed in range(10) for episode in range(10)]
    assert len({int(game_seed(*a)) for a in addresses}) == 300


def test_closing_reaches_the_environment():
    env = Fake(1)
    Lanes(env, [1], 1).close()
    assert env.closed
