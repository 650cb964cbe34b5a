"""Real games against the protocol written out by hand, and everything an adapter must be able to do."""

import hashlib
import json
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from atari_reference import Game, shrink
from conformance import CHECKS

from vcrl.core.errors import UserError
from vcrl.envs import chance, emulator
from vcrl.envs.atari import ACTIONS, AtariEnv, plain
from vcrl.envs.emulator import HORIZON, NOOPS, POWER_UPS, REMEMBER, Emulator, Rules
from vcrl.envs.lanes import Lanes
from vcrl.envs.protocols import PROTOCOLS
from vcrl.envs.registry import TASKS, find, normalise
from vcrl.envs.workers import Workers

STEPS = 260
GOLDEN = "775cc20bc5e0b454"  # of a picture both arithmetics agree on


def start_of(rom: str, seed: int) -> tuple[int | None, int]:
    """The emulator's own seed and the number of no-ops that a game's seed stands for."""
    many = np.array([POWER_UPS if rom in REMEMBER else 1, NOOPS])
    variant, noops = chance.below(many, np.full(2, seed, np.uint64), np.zeros(2), np.arange(2))
    return (4753849 + int(variant) if variant else None), int(noops) + 1


# Every game by the rules of training or of evaluation, in turn; by the other ones, too, in `make slow`.
TURNS = [(game, training) for i, game in enumerate(ACTIONS) for training in (i % 2 == 0, i % 2 == 1)]


@pytest.mark.parametrize(
    ("game", "training"),
    [pytest.param(*turn, marks=[pytest.mark.slow] * (i % 2)) for i, turn in enumerate(TURNS)],
    ids=[f"{game}-{'training' if training else 'evaluation'}" for game, training in TURNS],
)
def test_a_lane_follows_the_protocol_to_the_byte(game, training):
    rom, rng = game.replace("-", "_"), np.random.default_rng(len(game))
    env = AtariEnv(1, game, Rules(lives=training))
    lanes = Lanes(env, [7], 4)
    found = theirs = None
    for _ in range(STEPS):
        if theirs is None:
            seed = int(lanes._game_seeds(np.ones(1, bool))[0])
            theirs = Game(rom, *start_of(rom, seed), training)
        np.testing.assert_array_equal(lanes.obs[0], np.stack(theirs.stack, axis=-1))
        action = int(rng.integers(env.spec.actions.n))
        wanted, before = theirs.step(action), lanes.length[0]
        found = lanes.step(np.array([action]))
        assert (found.row.reward[0], found.row.terminal[0], bool(found.finished)) == wanted
        if wanted[2]:
            assert found.finished[0].length == before + 1
            theirs = None
    assert found is not None


def test_lost_lives_bonus_lives_and_ends_took_place():
    """The comparison above would prove nothing of rules that never applied."""
    seen: dict[str, int] = {"lost": 0, "over": 0}
    for game in ("breakout", "qbert"):
        env = AtariEnv(1, game, Rules(lives=True))
        env.reset(np.ones(1, bool), np.array([3], np.uint64))
        rng = np.random.default_rng(0)
        for _ in range(STEPS * 2):
            came = env.step(rng.integers(env.spec.actions.n, size=1), np.ones(1, bool))
            seen["lost"] += bool(came.terminal[0] and not came.over[0])
            seen["over"] += bool(came.over[0])
            if came.over[0]:
                env.reset(np.ones(1, bool), np.array([4], np.uint64))
    assert seen["lost"] >= 4 and seen["over"] >= 1


def test_shrinking_is_the_same_arithmetic_on_every_computer():
    """Libraries choose their code by the processor; a picture of all gray levels settles whether it matters."""
    screen = (np.add.outer(np.arange(210) * 7, np.arange(160) * 13) % 256).astype(np.uint8)
    out = np.zeros((84, 84), np.uint8)
    emulator.shrink(screen, out)
    np.testing.assert_array_equal(out, shrink(screen))
    assert hashlib.sha256(out.tobytes()).hexdigest()[:16] == GOLDEN


@pytest.mark.parametrize("game", ["pong", "qbert", "assault"])
def test_start_states_equal_a_real_power_up(game):
    for seed in range(4):
        theirs, ours = Game(game, *start_of(game, seed), True), Emulator(game, Rules(True))
        frame = np.zeros((84, 84), np.uint8)
        ours.reset(np.uint64(seed), frame)
        np.testing.assert_array_equal(frame, theirs.stack[-1])
        np.testing.assert_array_equal(ours.ale.getRAM(), theirs.ale.getRAM())


@pytest.mark.parametrize(
    ("game", "steps"),
    [
        ("pong", 150),
        ("qbert", 600),
        *(pytest.param(g, 1500, marks=pytest.mark.slow) for g in sorted(ACTIONS)),
    ],
)
def test_emulators_that_take_turns_play_the_game_of_one(game, steps):
    """Each begins where the other one stands, the first time fresh, then with frames of its own behind it."""
    rom, rng = game.replace("-", "_"), np.random.default_rng(1)
    alone, *turns = (Emulator(rom, Rules(lives=False)) for _ in range(3))
    seen, other = np.zeros((84, 84), np.uint8), np.zeros((84, 84), np.uint8)
    for one in (alone, turns[0]):
        one.reset(np.uint64(0), seen)
    for step in range(steps):
        action = int(rng.integers(ACTIONS[game]))
        mine, next = turns[step % 2], turns[(step + 1) % 2]
        came = alone.step(action, seen)
        assert mine.step(action, other) == came
        np.testing.assert_array_equal(other, seen)
        if came.over:
            alone.reset(np.uint64(step), seen)
            next.reset(np.uint64(step), other)
            continue
        next.go(mine.ale.cloneState(include_rng=False).serialize())
        next.lives, next.steps = mine.lives, mine.steps


def test_games_differ_by_their_seed_alone():
    env = AtariEnv(8, "freeway", Rules(True))
    frames = env.reset(np.ones(8, bool), np.arange(8, dtype=np.uint64))
    again = env.reset(np.ones(8, bool), np.arange(8, dtype=np.uint64))
    np.testing.assert_array_equal(frames, again)
    assert len({f.tobytes() for f in frames}) > 3


def test_no_ops_are_spread_over_one_to_thirty():
    drawn = [start_of("pong", seed)[1] for seed in range(2000)]
    assert set(drawn) == set(range(1, 31))
    assert {start_of("assault", seed)[0] for seed in range(500)} == {
        None,
        *range(4753850, 4753849 + POWER_UPS),
    }


def test_the_horizon_is_a_terminal_end():
    env = AtariEnv(1, "pong", Rules(lives=True, horizon=5))
    env.reset(np.ones(1, bool), np.zeros(1, np.uint64))
    flags = [env.step(np.zeros(1, np.int32), np.ones(1, bool)) for _ in range(5)]
    assert [bool(f.over[0]) for f in flags] == [False] * 4 + [True]
    assert flags[-1].terminal[0] and flags[-1].last[0]
    assert Game("pong", None, 1, True).horizon + 1 == HORIZON


def test_sticky_actions_are_held_at_the_stated_rate_and_keyed_by_the_game():
    def played(sticky: float, seed: int) -> list[int]:
        one, out, held = Emulator("pong", Rules(True, sticky=sticky)), np.zeros((84, 84), np.uint8), []
        one.reset(np.uint64(seed), out)
        act = one.ale.act
        one.ale = Spy(one.ale, lambda a: (held.append(a), act(a))[1])
        for i in range(300):
            one.step(2 + i % 2, out)
        return held

    plain_play = played(0.0, 1)
    assert plain_play == [one for i in range(300) for one in [[3, 4][i % 2]] * 4]
    sticky = played(0.25, 1)
    assert sticky == played(0.25, 1) and sticky != played(0.25, 2)
    # An action differs from the one before at the first of four frames only; a quarter of these is held.
    first = np.array(sticky[4::4]) != np.array(plain_play[4::4])
    assert 0.17 < first.mean() < 0.33


class Spy:
    """An emulator whose actions are watched."""

    def __init__(self, ale, act):
        self._ale, self.act = ale, act

    def __getattr__(self, name):
        return getattr(self._ale, name)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_conformance(check):
    check(lambda lanes: AtariEnv(lanes, "assault", Rules(lives=True, horizon=60)))


@pytest.mark.parametrize("game", ["qbert", "seaquest"])
def test_saved_here_and_continued_in_another_process(game, tmp_path):
    lanes = Lanes(AtariEnv(2, game, Rules(True)), [1, 2], 4)
    rng = np.random.default_rng(5)
    actions = rng.integers(lanes.env.spec.actions.n, size=(160, 2))
    for row in actions[:80]:
        lanes.step(row)
    np.savez(tmp_path / "saved.npz", **lanes.save())
    np.save(tmp_path / "actions.npy", actions[80:])
    code = (
        "import sys, hashlib, json, numpy as np\n"
        "from vcrl.envs.atari import AtariEnv\nfrom vcrl.envs.emulator import Rules\n"
        "from vcrl.envs.lanes import Lanes\n"
        f"lanes = Lanes(AtariEnv(2, {game!r}, Rules(True)), [1, 2], 4)\n"
        "lanes.load(dict(np.load(sys.argv[1] + '/saved.npz')))\n"
        "seen = [lanes.step(row).row for row in np.load(sys.argv[1] + '/actions.npy')]\n"
        "print(json.dumps([hashlib.sha256(b''.join(x.tobytes() for x in row)).hexdigest() for row in seen]))\n"
    )
    there = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert there.returncode == 0, there.stderr
    here = [lanes.step(row).row for row in actions[80:]]
    assert json.loads(there.stdout) == [
        hashlib.sha256(b"".join(x.tobytes() for x in row)).hexdigest() for row in here
    ]


def test_states_of_another_emulator_version_are_refused(monkeypatch):
    env = AtariEnv(1, "pong", Rules(True))
    env.reset(np.ones(1, bool), np.zeros(1, np.uint64))
    saved = env.save()
    monkeypatch.setattr("vcrl.envs.atari.version", lambda: "9.9")
    with pytest.raises(UserError, match=r"pip install ale-py==\d"):
        env.load(saved)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("KungFuMaster", "kung-fu-master"),
        ("kung_fu_master", "kung-fu-master"),
        ("ALE/KungFuMaster-v5", "kung-fu-master"),
        ("KungFuMasterNoFrameskip-v4", "kung-fu-master"),
        ("PONG", "pong"),
        ("Qbert", "qbert"),
        ("JamesBond", "jamesbond"),
        ("UpNDown", "up-n-down"),
        ("ms pacman", "ms-pacman"),
    ],
)
def test_any_usual_spelling(spelling, name):
    assert plain(spelling) == name and find(spelling) is TASKS[name]


def test_a_misspelt_game_gets_the_nearest_names():
    with pytest.raises(UserError, match="did you mean kung-fu-master"):
        find("kungfumster")
    assert plain("catch") is None


def test_games_beyond_the_26_are_found_but_have_no_human_score():
    task = find("ALE/Tetris-v5")
    assert task.name == "tetris" and task.spec.actions.n == 5
    with pytest.raises(UserError, match="no reference scores"):
        normalise(task, 1.0)


def test_a_missing_rom_says_what_to_install(monkeypatch):
    with pytest.raises(UserError, match="reinstall ale-py"):
        emulator.rom_path("no_such_game")
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(UserError, match=r"pip install 'vcrl\[atari\]'"):
        emulator.ale_library()


def test_action_sets_are_as_listed():
    for game, count in ACTIONS.items():
        if game in ("freeway", "pong", "gopher", "kung-fu-master", "alien", "amidar"):
            assert len(emulator.minimal_actions(emulator.boot(game.replace("-", "_"), 0))) == count
    assert set(ACTIONS) == {name for name, task in TASKS.items() if task.suite == "atari"}


def test_the_task_builds_lanes_by_its_protocol():
    env = TASKS["breakout"].make(2, PROTOCOLS["atari100k-sticky"], True)
    assert isinstance(env, AtariEnv | Workers) and env.lanes == 2 and env.spec == TASKS["breakout"].spec
    env.close()
    assert PROTOCOLS["atari100k-sticky"].hash != PROTOCOLS["atari100k"].hash


make_workers = partial(AtariEnv, game="breakout", rules=Rules(lives=True, horizon=60))


def test_lanes_in_processes_equal_lanes_here():
    here = AtariEnv(5, "breakout", Rules(lives=True, horizon=60))
    there = Workers(make_workers, here.spec, 5, 2)
    rng, every, seeds = np.random.default_rng(0), np.ones(5, bool), np.arange(5, dtype=np.uint64)
    np.testing.assert_array_equal(here.reset(every, seeds), there.reset(every, seeds))
    for _ in range(40):
        actions, active = rng.integers(4, size=5).astype(np.int32), rng.random(5) < 0.8
        for one, two in zip(here.step(actions, active), there.step(actions, active), strict=True):
            np.testing.assert_array_equal(one[active], two[active])
    there.close()
