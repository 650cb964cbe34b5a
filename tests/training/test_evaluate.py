"""Many games in one batch are the games played alone, whatever the batch does to save time."""

import itertools
from dataclasses import replace

import jax
import numpy as np
import pytest

from vcrl.core.spec import Discrete, EnvSpec
from vcrl.envs.again import play_again
from vcrl.envs.base import Step
from vcrl.envs.lanes import Lanes, game_seed
from vcrl.training import evaluate
from vcrl.training.engine import engine_of
from vcrl.training.evaluate import EVAL_SALT, NARROWEST, Batch, field, play, scores
from vcrl.training.lift import pushed
from vcrl.training.plan import make_plan

SPEC = EnvSpec((2, 2, 1), Discrete(3))
SEEDS = (3, 5)
NEW = np.zeros(len(SEEDS), int)  # all that is left of an agent's state: what it adds to its actions
REST = [(1, "zeros"), (1, "first"), (2, "first"), (4, "zeros")]  # of stacks; every one is compiled by itself


def length_of(seed):
    return 1 + int(seed) % 40


class Games:
    """Games of 1 to 40 steps by their seed; a life is lost every third step. What is seen and paid depends on all
    that was done. Whoever steps a game that is over is told so."""

    spec = SPEC

    def __init__(self, lanes, length=length_of):
        self.lanes, self.length_of = lanes, length
        self.seed, self.past = [0] * lanes, [list[int]() for _ in range(lanes)]
        self.active = list[np.ndarray]()
        self.closed = False

    def frame(self):
        faces = [
            [s % 251, s % 13, len(p), 1 + sum((i + 1) * a for i, a in enumerate(p))] for s, p in self.now()
        ]
        return (np.array(faces) % 256).astype(np.uint8).reshape(self.lanes, 2, 2, 1)

    def now(self):
        return zip(self.seed, self.past, strict=True)

    def reset(self, which, seeds):
        for lane in np.flatnonzero(which):
            self.seed[lane], self.past[lane] = int(seeds[lane]), []
        return self.frame()

    def step(self, actions, active):
        for lane in np.flatnonzero(active):
            assert len(self.past[lane]) < self.length_of(self.seed[lane]), "a game that is over"
            self.past[lane] = [*self.past[lane], int(actions[lane])]
        self.active.append(active.copy())
        over = np.array([len(p) >= self.length_of(s) for s, p in self.now()])
        lost = np.array([len(p) % 3 == 0 and len(p) > 0 for _, p in self.now()])
        reward = [(p[-1] - 1) * (len(p) + s % 7) if p else 0 for s, p in self.now()]
        # Of lanes that stand still something is said, too, and must not be heard.
        reward = np.where(active, reward, 1e6).astype(np.float32)
        return Step(self.frame(), reward, over | lost | ~active, over | lost, over | ~active)

    def save(self):
        return None

    def load(self, arrays):
        raise NotImplementedError

    def close(self):
        self.closed = True


class Player:
    """Acts by what it sees, by the draw and by its seed; remembers what it saw under the game's address."""

    def __init__(self, fill="zeros"):
        self.widths, self.shapes, self.fill = list[int](), list[tuple[int, int]](), fill
        self.seen, self.chosen = {}, {}

    def __call__(self, state, obs, frame, known, seeds):
        assert isinstance(obs, jax.Array) and obs.dtype == frame.dtype == np.uint8
        assert known.dtype == np.int32 and seeds.dtype == np.int32
        draw, pushed_on = known[..., :2], pushed(obs, frame, known[..., 2] > 0, self.fill)
        obs = np.asarray(pushed_on)
        self.widths.append(obs.shape[1])
        self.shapes.append(obs.shape[:2])
        flat = obs.reshape(*obs.shape[:2], -1).astype(np.int64)
        sums = (flat * np.arange(1, flat.shape[-1] + 1)).sum(axis=-1)
        action = (sums + 7 * draw[..., 0] + 5 * draw[..., 1] + seeds[:, None] + state[:, None]) % 3
        for s, lane in itertools.product(range(obs.shape[0]), range(obs.shape[1])):
            at = (int(seeds[s]), *draw[s, lane].tolist())
            self.seen[at], self.chosen[at] = obs[s, lane], int(action[s, lane])
        return pushed_on, jax.numpy.asarray(action, np.int32)


def planned(seeds=SEEDS, games=Games, stack=3, fill="zeros", **protocol):
    plan = make_plan(
        "rainbow", "catch", seeds, changes={"observation.stack": stack, "observation.fill": fill}
    )
    if games is not None:
        task = replace(plan.task, spec=SPEC, make=lambda lanes, protocol, training: games(lanes))
        plan = replace(plan, task=task)
    return replace(plan, protocol=replace(plan.protocol, **protocol))


def played(plan, episodes, state=0, **more):
    """The games of `episodes`, how they were played, and on what."""
    player = Player(plan.config.observation.fill)
    with field(plan, player, len(episodes)) as ground:
        games = play(ground, np.full(len(plan.seeds), state), episodes, **more)
    return games, player, ground.env


def flat(games):
    """By address; which lane it was is no part of a game."""
    return {(g.finished.seed, g.finished.episode): g.finished[3:] for mine in games for g in mine}


@pytest.mark.parametrize("games", [Games, None], ids=["games of many lengths", "catch"])
def test_together_is_as_alone(games):
    together, player, _ = played(planned(games=games), range(20))
    assert [[g.finished.seed for g in mine] for mine in together] == [[s] * 20 for s in SEEDS]
    assert [[g.finished.episode for g in mine] for mine in together] == [list(range(20))] * 2
    found = flat(together)
    for seed, episode in itertools.product(SEEDS, (0, 1, 7, 19)):
        (alone,), other, _ = played(planned((seed,), games), [episode])
        assert alone[0].finished[3:] == found[seed, episode]
        for at, action in other.chosen.items():
            assert player.chosen[at] == action
    assert len({score for score, _ in found.values()}) > 1


@pytest.mark.parametrize("task", ["catch", "balloon"])
def test_scores_are_those_of_lanes(task):
    """`Lanes` counts and stacks on its own; here it plays the same games one by one."""
    plan, player = make_plan("rainbow", task, SEEDS), Player()
    found = scores(plan, player, NEW, 6)
    for seed, mine in zip(SEEDS, found, strict=True):
        env = plan.task.make(1, plan.protocol, False)
        lanes, finished = Lanes(env, [seed], plan.config.observation.stack, EVAL_SALT), []
        while len(finished) < 6:
            episode, tick = int(lanes.episode[0]), int(lanes.length[0])
            if lanes.pad[0]:
                lanes.step(np.zeros(1, np.int32))
                continue
            np.testing.assert_array_equal(lanes.obs[0], player.seen[seed, episode, tick])
            finished += lanes.step(np.array([player.chosen[seed, episode, tick]])).finished
        assert [g[1:] for g in mine] == [g[1:] for g in finished]


def test_a_lane_stands_still_once_its_game_is_over():
    plan = planned()
    games, _, env = played(plan, range(9))
    active = np.array(env.active)
    lengths = [g.finished.length for mine in games for g in mine]
    assert active.sum(axis=0).tolist() == lengths == [length_of(s) for s in env.seed]
    assert (np.diff(active.astype(int), axis=0) <= 0).all()  # none comes back
    assert len(active) == max(lengths) and len(set(lengths)) > 5
    assert [len(p) for p in env.past] == lengths and env.closed


def test_each_game_is_the_one_of_its_address():
    _, _, env = played(planned(), [4, 0, 17])
    wanted = [game_seed(EVAL_SALT, s, e) for s in SEEDS for e in (4, 0, 17)]
    assert env.seed == [int(w) for w in wanted]


def test_a_narrower_batch_changes_nothing(monkeypatch):
    """64 games of each seed: 64, 32 and 16 are shown at last, and no game can tell."""
    plan = planned(eval_episodes=64)
    narrow, player, env = played(plan, range(64))
    assert (
        sorted(set(player.widths), reverse=True)
        == [64, 32, 16]
        == sorted({64 >> i for i in range(3)}, reverse=True)
    )
    assert player.widths == sorted(player.widths, reverse=True)
    for width, active in zip(player.widths, env.active, strict=True):
        assert active.reshape(2, 64).sum(axis=1).max() <= width
    monkeypatch.setattr(evaluate, "NARROWEST", 10**9)
    monkeypatch.setattr(evaluate, "WORTH", 1e99)
    wide, other, whole = played(plan, range(64))
    assert set(other.widths) == {64}
    assert [[g.finished for g in mine] for mine in narrow] == [[g.finished for g in mine] for mine in wide]
    assert env.past == whole.past  # every action of every game
    for mine in wide:
        for game in mine:
            for tick in range(game.finished.length):
                at = (game.finished.seed, game.finished.episode, tick)
                np.testing.assert_array_equal(player.seen[at], other.seen[at])
    assert len(player.seen) < len(other.seen)


def test_the_seed_with_most_games_left_decides(monkeypatch):
    """One seed's games end at once and the other's take long: nothing of the latter may be lost."""
    monkeypatch.setattr(evaluate, "WORTH", 0)
    long = {int(game_seed(EVAL_SALT, 5, e)): 5 + e // 8 for e in range(64)}
    plan = planned(games=lambda lanes: Games(lanes, lambda seed: long.get(seed, 1)))
    games, player, _ = played(plan, range(64))
    assert [g.finished.length for g in games[0]] == [1] * 64
    assert [g.finished.length for g in games[1]] == [5 + e // 8 for e in range(64)]
    # Half of the second seed's games are over after 8 steps and three quarters after 10.
    assert player.shapes == [(2, 64)] + [(1, 64)] * 7 + [(1, 32)] * 2 + [(1, 16)] * 2


@pytest.mark.parametrize("worth", [0, 1e9])
def test_seeds_whose_games_are_over_are_no_longer_shown(monkeypatch, worth):
    """Where that is worth it. Those that go on keep their own state, and nobody can tell."""
    monkeypatch.setattr(evaluate, "WORTH", worth)
    seeds = (3, 5, 6, 8, 9)
    long = {int(game_seed(EVAL_SALT, s, e)): n for s, n in ((5, 9), (8, 12), (9, 3)) for e in range(40)}
    plan, states = planned(seeds, lambda lanes: Games(lanes, lambda seed: long.get(seed, 1))), np.arange(5)
    player = Player()
    with field(plan, player, 40) as ground:
        found = play(ground, states, range(40))
    fewer = [(5, 40)] + [(3, 40)] * 2 + [(2, 40)] * 6 + [(1, 40)] * 3
    assert player.shapes == ([(5, 40)] * 12 if worth else fewer)
    for i, seed in enumerate(seeds):
        alone, other, _ = played(
            planned((seed,), lambda lanes: Games(lanes, lambda s: long.get(s, 1))), range(40), i
        )
        assert [g.finished[3:] for g in found[i]] == [g.finished[3:] for g in alone[0]]
        assert all(player.chosen[at] == action for at, action in other.chosen.items())


@pytest.mark.parametrize("width", [16, 31, 33, 64])
def test_a_batch_is_halved_rounding_up_and_never_below_the_narrowest(width):
    plan = planned()
    with field(plan, Player(), width) as ground:
        frame = ground.env.reset(np.ones(2 * width, bool), np.arange(2 * width, dtype=np.uint64))
        batch = Batch(ground, NEW, frame)
        active = np.zeros(2 * width, bool)
        active[[width - 1, width, 2 * width - 1]] = True
        batch.act(frame, ~active, np.zeros(2 * width, np.int64))
        widths = []
        for _ in range(4):
            before, shown = np.asarray(batch.obs), batch.lane
            batch.narrow(active)
            widths.append(batch.lane.shape[1])
            for row, (lanes, old) in enumerate(zip(batch.lane, shown, strict=True)):
                assert set(np.flatnonzero(active)) & set(old) <= set(lanes)  # whoever plays is still shown
                place = [old.tolist().index(lane) for lane in lanes]
                np.testing.assert_array_equal(np.asarray(batch.obs)[row], before[row, place])
    wanted = {16: [16] * 4, 31: [16] * 4, 33: [17] * 4, 64: [16] * 4}
    assert widths == wanted[width] and min(widths) >= NARROWEST


@pytest.mark.parametrize(
    ("stack", "fill"),
    [(2, "zeros"), (4, "first"), *(pytest.param(*rest, marks=pytest.mark.slow) for rest in REST)],
)
def test_stacks_on_the_device_are_those_of_lanes(stack, fill):
    """Over lost lives too, which start an episode of the learner within a game."""
    plan = planned(stack=stack, fill=fill)
    games, player, _ = played(plan, range(40))
    pairs = [(s, e) for s in SEEDS for e in range(40)]
    lanes = Lanes(Games(80), [s for s, _ in pairs], stack, EVAL_SALT, [e for _, e in pairs], fill)
    left = {pair: g.finished.length for pair, g in zip(pairs, itertools.chain(*games), strict=True)}
    lost = 0
    for tick in range(max(left.values())):
        here = [player.chosen.get((*pair, tick), 0) for pair in pairs]
        for lane, pair in enumerate(pairs):
            if tick < left[pair]:
                np.testing.assert_array_equal(lanes.obs[lane], player.seen[(*pair, tick)])
                lost += tick > 0 and bool(lanes.first[lane])
        lanes.step(np.array(here))
    assert lost > 50


def test_games_are_cut_at_the_horizon():
    whole, _, _ = played(planned(), range(12))
    cut, player, env = played(planned(horizon=5), range(12))
    longer = {at: n for at, (_, n) in flat(whole).items()}
    assert max(longer.values()) > 5 > min(longer.values())
    for at, (score, length) in flat(cut).items():
        assert length == min(longer[at], 5)
        seed = int(game_seed(EVAL_SALT, *at))
        actions = [player.chosen[(*at, tick)] for tick in range(length)]
        assert score == sum((a - 1) * (t + 1 + seed % 7) for t, a in enumerate(actions))
    assert len(env.active) == 5


def test_progress_goes_up_to_all_games():
    told: list[tuple[int, int]] = []
    _, _, env = played(planned(), range(15), progress=lambda done, games: told.append((done, games)))
    done = [d for d, _ in told]
    assert {games for _, games in told} == {30}
    assert done == sorted(set(done)) and done[0] > 0 and done[-1] == 30
    over = [30 - int(a.sum()) for a in env.active[1:]] + [30]
    assert done == sorted(set(over) - {0})


def test_scores_are_the_first_games_in_as_many_rounds_as_it_takes():
    """10 games of a seed at once; 25 are three rounds, of whose last five nobody hears."""
    plan, player = planned(eval_episodes=10), Player()
    found = scores(plan, player, NEW, 25)
    assert [[g.episode for g in mine] for mine in found] == [list(range(25))] * 2
    assert player.widths[0] == 10
    together, _, _ = played(planned(), range(25))
    assert [[g.finished[1:] for g in mine] for mine in together] == [[g[1:] for g in mine] for mine in found]
    assert [mine[:4] for mine in found] == [
        [g._replace(lane=w.lane) for g, w in zip(mine, wide, strict=False)][:4]
        for mine, wide in zip(scores(plan, Player(), NEW, 4), found, strict=True)
    ]


@pytest.mark.parametrize("teams", [2, 3, 7])
def test_teams_play_the_games_of_one(monkeypatch, teams):
    """Five games of a seed at once, in up to five teams of different sizes, for three rounds."""
    plan, told = planned(eval_episodes=5), list[tuple[int, int]]()
    alone = evaluate.games(plan, Player(), NEW, 13)
    monkeypatch.setattr(evaluate, "teams_of", lambda plan: teams)
    player = Player()
    found = evaluate.games(plan, player, NEW, 13, lambda *counts: told.append(counts))
    assert {5 // min(teams, 5), -(-5 // min(teams, 5))} == set(player.widths)
    assert [[g.finished.episode for g in mine] for mine in found] == [list(range(13))] * 2
    assert flat(found) == flat(alone)
    for mine, theirs in zip(itertools.chain(*found), itertools.chain(*alone), strict=True):
        np.testing.assert_array_equal(mine.actions, theirs.actions)
    assert [done for done, _ in told] == sorted(done for done, _ in told) and told[-1] == (30, 30)


def test_only_emulators_beside_a_gpu_play_in_teams(monkeypatch):
    def teams():
        return {name: evaluate.teams_of(make_plan(method, name, (0,))) for method, name in tasks}

    tasks = (("spr", "pong"), ("spr", "catch"), ("sac", "reach"), ("sac", "cartpole-swingup"))
    assert set(teams().values()) == {1}
    monkeypatch.setattr(evaluate.jax, "default_backend", lambda: "gpu")
    assert teams() == {"pong": 2, "catch": 1, "reach": 1, "cartpole-swingup": 1}


def test_what_was_built_is_closed_when_the_rest_cannot_be():
    made = list[Games]()

    def make(lanes):
        if made:
            raise ZeroDivisionError("one is enough")
        made.append(Games(lanes))
        return made[-1]

    with pytest.raises(ZeroDivisionError), evaluate.fields(planned(games=make), Player(), [2, 2]):
        raise AssertionError("nobody plays")
    assert [games.closed for games in made] == [True]


def test_nothing_is_made_narrower_once_all_games_are_over(monkeypatch):
    asked, narrow = [], Batch.narrow
    monkeypatch.setattr(
        Batch, "narrow", lambda batch, active: asked.append(active.sum()) or narrow(batch, active)
    )
    played(planned(), range(20))
    assert len(asked) > 3 and min(asked) > 0


def test_when_a_team_fails_the_others_stop_and_its_error_is_told(monkeypatch):
    """The games of one team never end, and it is the first that is asked for its result."""
    made, player = list[Games](), Player()

    def make(lanes):
        made.append(Games(lanes, lambda seed: 10**9))
        return made[-1]

    def fail(*arguments):
        if len(player.widths) > 20 and arguments[3][0, 0, 0] == 1:  # the second team has game 1
            raise ZeroDivisionError("not enough")
        return player(*arguments)

    monkeypatch.setattr(evaluate, "teams_of", lambda plan: 2)
    with pytest.raises(ZeroDivisionError, match="not enough"):
        evaluate.games(planned(games=make), fail, NEW, 4)
    assert len(made) == 2 and all(games.closed for games in made)


def test_the_field_is_closed_also_when_a_game_fails():
    plan = planned()
    with pytest.raises(ZeroDivisionError), field(plan, Player(), 2) as ground:
        raise ZeroDivisionError
    assert ground.env.closed


def test_lanes_can_be_used_again():
    """One field for round after round, as the Q-error uses it."""
    plan, player = planned(), Player()
    with field(plan, player, 6) as ground:
        first, second, again = (play(ground, NEW, range(a, a + 6)) for a in (0, 6, 0))
    assert flat(first) == flat(again) and flat(first).keys().isdisjoint(flat(second))
    assert flat(first) | flat(second) == flat(played(plan, range(12))[0])


@pytest.mark.parametrize("training", [True, False])
def test_the_rules_of_training_or_of_evaluation_are_asked_for(training):
    plan, asked = planned(), []

    def make(lanes, protocol, training):
        asked.append((lanes, protocol, training))
        return Games(lanes)

    plan = replace(plan, task=replace(plan.task, make=make))
    with field(plan, Player(), 7, training):
        pass
    assert asked == [(14, plan.protocol, training)]


@pytest.mark.parametrize("reward", ["raw", "sign"])
def test_a_recorded_game_is_what_the_learner_would_have_seen(reward):
    plan = planned(stack=2)
    config = replace(plan.config, observation=replace(plan.config.observation, reward=reward))
    plan = replace(plan, config=config)
    games, player, _ = played(plan, range(20), record=True)
    lost = 0
    for game in itertools.chain(*games):
        (_, seed, episode, score, length), path, _ = game
        assert path is not None and {len(part) for part in path[:-1]} == {length}
        ticks = [(seed, episode, tick) for tick in range(length)]
        assert path.action.tolist() == [player.chosen[t] for t in ticks]
        np.testing.assert_array_equal(path.frame[..., 0], [player.seen[t][..., 1] for t in ticks])
        # Every third step loses a life, and the next frame is a first one; so is the very first.
        over = np.arange(1, length + 1) == length
        np.testing.assert_array_equal(path.terminal, (np.arange(1, length + 1) % 3 == 0) | over)
        np.testing.assert_array_equal(path.first, np.arange(length) % 3 == 0)
        lost += int((path.terminal & ~over).sum())
        alone = game_seed(EVAL_SALT, seed, episode) % 7
        raw = (path.action - 1) * (np.arange(1, length + 1) + int(alone))
        np.testing.assert_array_equal(path.reward, np.sign(raw) if reward == "sign" else raw)
        assert score == raw.sum()  # scores are raw whatever the learner is given
    assert lost > 50
    assert all(g.trajectory is None for g in itertools.chain(*played(plan, range(3))[0]))


def test_the_actions_of_a_game_are_all_that_is_needed_to_play_it_again():
    """Recorded or not, they come along: narrow, one a step, and the game alone gives the same score by them."""
    games, player, _ = played(planned(horizon=30), range(40))
    for (_, seed, episode, score, length), _, actions in itertools.chain(*games):
        assert actions.dtype == np.uint8 and length <= 30
        assert actions.tolist() == [player.chosen[seed, episode, tick] for tick in range(length)]
        (again,) = play_again(Games(1), [game_seed(EVAL_SALT, seed, episode)], [actions], 30)
        assert again == (score, length, True)


def test_recording_changes_no_game():
    plan = planned()
    assert flat(played(plan, range(40), record=True)[0]) == flat(played(plan, range(40))[0])


@pytest.mark.parametrize("fill", ["zeros", "first"])
@pytest.mark.parametrize(("method", "task"), [("rainbow", "catch"), ("vcr", "reach")])
def test_agents_learn_from_the_stacks_they_act_on(method, task, fill):
    """Lanes and games are stacked by the plan, batches by what the agent asks of its replay."""
    plan = make_plan(method, task, SEEDS, changes={"observation.fill": fill, "observation.stack": 2})
    samples = engine_of(plan).agent.samples
    assert samples and {(sample.fill, sample.stack) for sample in samples} == {(fill, 2)}
