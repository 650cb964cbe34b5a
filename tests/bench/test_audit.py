"""A claimed score holds if its games, played again by the environment alone, give it; anything else is named."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from handmade import make

from vcrl.bench.audit import audit, text
from vcrl.cli import main
from vcrl.core.config import from_json, to_json
from vcrl.core.errors import UserError
from vcrl.core.protocol import Protocol
from vcrl.runs import receipts
from vcrl.runs.logs import episode_line, mean_scores, read_episodes
from vcrl.runs.verify import verify

OWN = """
import gymnasium, numpy as np
class Lights(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 255, (16, 16, 1), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)
    def look(self):
        return self.np_random.integers(0, 255, (16, 16, 1)).astype(np.uint8)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 5 + int(self.np_random.integers(0, 9))
        return self.look(), {}
    def step(self, action):
        self.left -= 1
        return self.look(), float(action) * self.np_random.random(), self.left == 0, False, {}
gymnasium.register("audit/Lights-v0", Lights)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make(tmp_path_factory.mktemp("made"), "reach")


@pytest.fixture
def run(made, tmp_path):
    """Continuous actions: every one of them shows in the score."""
    root = made.parents[3]
    shutil.copytree(root, tmp_path / "runs")
    return tmp_path / "runs" / made.relative_to(root)


def rewrite(run, alter, also_status=False):
    """Change rows of eval.csv, and the scores made of them if asked."""
    rows = [alter(row) for row in read_episodes(run / "eval.csv")]
    kept = [row for row in rows if row is not None]
    head = b"seed,agent_steps,episode,score,length\n"
    (run / "eval.csv").write_bytes(head + b"".join(episode_line(*row) for row in kept))
    if also_status:
        status = json.loads((run / "status.json").read_text())
        status["scores"] = {str(s): m for s, m in mean_scores(kept, 40).items()}
        (run / "status.json").write_text(json.dumps(status))


def reseal(run, at, alter):
    """A receipt changed by somebody who can compute checksums."""
    found = receipts.read(run, at)
    receipts.write(run, alter(found))


def better(row):
    return (
        row._replace(score=row.score + 1) if (row.agent_steps, row.seed, row.episode) == (40, 5, 1) else row
    )


def test_an_honest_run_holds(run):
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    verdict = audit(run)
    assert verdict.holds and (verdict.claims, verdict.repeated) == (12, 12) and "hold" in text(verdict)
    assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize(
    ("task", "rules"),
    [
        ("catch", {}),
        ("balloon", {}),
        ("pong", {"action_repeat": 4, "horizon": 25, "sticky": 0.25}),
        pytest.param("cartpole-swingup", {"horizon": 6}, marks=pytest.mark.slow),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_kind_of_task(tmp_path, task, rules):
    run = make(tmp_path, task, games=1, **rules)
    verdict = audit(run)
    assert verdict.holds and verdict.repeated == 4
    rewrite(run, lambda r: r._replace(score=r.score + 1) if r[:2] == (5, 40) else r, also_status=True)
    verdict = audit(run)
    assert [line.split(":")[0] for line in verdict.wrong] == ["seed 5, game 0 at 40 agent steps"]


def test_a_changed_score_is_found_even_where_the_mean_is_changed_with_it(run):
    rewrite(run, better)
    verdict = audit(run)
    assert [f for f in verdict.faults if "status.json has the score" in f and "seed 5" in f]
    rewrite(run, lambda row: row, also_status=True)
    verdict = audit(run)
    assert not verdict.holds and not verdict.faults and not verdict.unproven
    (told,) = verdict.wrong
    assert re.fullmatch(
        r"seed 5, game 1 at 40 agent steps: claimed \d\.\d+ in 20 steps, it gives 0\.\d+", told
    )


def test_a_changed_mean_is_found(run):
    status = json.loads((run / "status.json").read_text())
    status["scores"]["3"] += 1e-9
    (run / "status.json").write_text(json.dumps(status))
    (fault,) = audit(run).faults
    assert "seed 3" in fault


def test_a_changed_length_is_found(run):
    rewrite(run, lambda row: row._replace(length=row.length + 1) if row.episode == 0 else row)
    assert len(audit(run).wrong) == 4 and "its receipt has 20 actions" in audit(run).wrong[0]


def test_one_changed_action_is_found(run):
    """By its checksum; and by what it leads to where the checksum was made anew."""
    path = receipts.path_of(run, 40)
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    verdict = audit(run)
    assert "checksum differs" in verdict.faults[0] and len(verdict.unproven) == 6 and verdict.repeated == 6
    data[-20] ^= 1
    path.write_bytes(data)

    def nudge(found):
        found.games[4].actions[7, 0] = -found.games[4].actions[7, 0]
        return found

    reseal(run, 40, nudge)
    verdict = audit(run)
    assert not verdict.faults and [w.split(":")[0] for w in verdict.wrong] == [
        "seed 5, game 1 at 40 agent steps"
    ]


def test_too_few_and_too_many_actions_are_found(run):
    for alter, told in (
        (lambda a: a[:-1], "the game was not over by then"),
        (lambda a: np.concatenate([a, a[:1]]), "the game was over after 20"),
    ):
        game = receipts.read(run, 40).games[0]
        new = game._replace(actions=alter(game.actions))
        reseal(run, 40, lambda found, new=new: found._replace(games=[new, *found.games[1:]]))
        wanted = len(new.actions)
        rewrite(run, lambda r, n=wanted: r._replace(length=n) if r[:3] == (3, 40, 0) else r)
        (wrong,) = audit(run).wrong
        assert told in wrong
        new = game
        reseal(run, 40, lambda found, new=new: found._replace(games=[new, *found.games[1:]]))


def test_actions_nobody_could_take_are_refused(run):
    def push(found):
        found.games[0].actions[:] *= 3
        return found

    reseal(run, 40, push)
    verdict = audit(run)
    assert (
        "actions that reach does not know: seed 3, game 0" in verdict.faults[0] and len(verdict.unproven) == 6
    )


def test_a_changed_protocol_is_found(run):
    config = json.loads((run / "config.json").read_text())
    easier = replace(from_json(Protocol, config["protocol"]), sticky=0.5)
    (run / "config.json").write_text(json.dumps(config | {"protocol": to_json(easier)}))
    assert "the protocol in config.json was changed" in audit(run).faults[0]
    both = {"protocol": to_json(easier), "protocol_hash": easier.hash}
    (run / "config.json").write_text(json.dumps(config | both))
    verdict = audit(run)
    assert f"is for protocol {config['protocol_hash']}, the run for {easier.hash}" in verdict.faults[0]
    assert len(verdict.unproven) == 12 and not verdict.holds


def test_a_protocol_that_asks_for_more_games_than_memory_holds(run):
    config = json.loads((run / "config.json").read_text())
    endless = replace(from_json(Protocol, config["protocol"]), eval_episodes=2**40)
    both = {"protocol": to_json(endless), "protocol_hash": endless.hash}
    (run / "config.json").write_text(json.dumps(config | both))
    assert "has not the protocol's games: seed 3, game 3 first" in audit(run).faults[0]
    assert {c.name for c in verify(run) if c.state == "FAILED"} >= {"name", "eval.csv", "receipts"}


@pytest.mark.parametrize(("field", "value"), [("task", "catch"), ("salt", 0), ("protocol_hash", "00000000")])
def test_a_receipt_of_something_else_proves_nothing(run, field, value):
    reseal(run, 40, lambda found: found._replace(**{field: value}))
    verdict = audit(run)
    assert len(verdict.faults) == 1 and len(verdict.unproven) == 6


def test_missing_receipts_and_games_are_named(run):
    receipts.path_of(run, 20).unlink()
    reseal(run, 40, lambda found: found._replace(games=found.games[:-1]))
    verdict = audit(run)
    assert verdict.unproven[-1] == "seed 5, game 2 at 40 agent steps" and len(verdict.unproven) == 7
    assert "at 20 agent steps is missing" in verdict.faults[0]
    assert "7 games without a receipt" in text(verdict) and "DO NOT HOLD" in text(verdict)


def test_leaving_out_a_bad_game_is_found(run):
    rewrite(run, lambda row: None if row[:3] == (3, 40, 2) else row, also_status=True)
    (fault,) = audit(run).faults
    assert "has not the protocol's games: seed 3, game 2 first" in fault


def test_playing_a_luckier_game_instead_is_found(run):
    rewrite(run, lambda row: row._replace(episode=9) if row.episode == 2 else row)
    reseal(
        run, 40, lambda f: f._replace(games=[g._replace(episode=9) if g.episode == 2 else g for g in f.games])
    )
    assert any("has not the protocol's games" in fault for fault in audit(run).faults)


def test_leaving_out_the_final_evaluation_is_found(run):
    rewrite(run, lambda row: None if row.agent_steps == 40 else row)
    assert any("no evaluation at 40 agent steps" in fault for fault in audit(run).faults)


def test_part_of_a_run(run):
    rewrite(run, better, also_status=True)
    assert audit(run, seeds=[3]).holds and audit(run, seeds=[3]).repeated == 6
    assert audit(run, games=1).holds and audit(run, games=1).claims == 4
    assert audit(run, final=True).repeated == 6 and not audit(run, final=True).holds
    assert audit(run, tolerance=1.5).holds and not audit(run, tolerance=0.5).holds
    for wrong in ({"seeds": [4]}, {"games": 0}, {"tolerance": -1.0}, {"tolerance": float("nan")}):
        with pytest.raises(UserError):
            audit(run, **wrong)


def test_a_run_that_is_not_done_claims_what_it_has(run):
    status = json.loads((run / "status.json").read_text())
    (run / "status.json").write_text(json.dumps(status | {"state": "stopped", "scores": None}))
    rewrite(run, lambda row: None if row.agent_steps == 40 else row)
    verdict = audit(run)
    assert verdict.holds and verdict.repeated == 6 and "not done" in verdict.notes[0]
    rewrite(run, lambda row: None)
    with pytest.raises(UserError, match="claims nothing"):
        audit(run)


def test_damaged_folders_are_one_line(run, tmp_path):
    with pytest.raises(UserError, match="no run folder"):
        audit(tmp_path / "nowhere")
    (run / "status.json").write_text('{"state": "done", "scores": [1, 2]}')
    with pytest.raises(UserError, match="is damaged"):
        audit(run)


def test_own_environment_is_imported_only_if_named(tmp_path, monkeypatch):
    """A run folder may be a stranger's: it cannot have code imported."""
    (tmp_path / "audit_lights.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    run = make(tmp_path / "runs", "gym:audit_lights:audit/Lights-v0", games=2)
    import gymnasium

    del sys.modules["audit_lights"], gymnasium.registry["audit/Lights-v0"]
    with pytest.raises(UserError, match="audit_lights"):
        audit(run)
    assert "audit_lights" not in sys.modules
    assert audit(run, module="audit_lights").holds


def test_without_jax_in_a_process_of_its_own(run):
    """And with the answer in its exit code."""
    program = (
        "import sys\nsys.modules['jax'] = None\nfrom vcrl.cli import main\n"
        "main(['audit', sys.argv[1], '--json', *sys.argv[2:]])"
    )

    def command(*more):
        return subprocess.run(
            [sys.executable, "-c", program, str(run), *more], capture_output=True, text=True
        )

    good = command()
    assert good.returncode == 0 and json.loads(good.stdout)["holds"] is True, good.stderr
    rewrite(run, better, also_status=True)
    wrong = command()
    assert wrong.returncode == 1 and len(json.loads(wrong.stdout)["wrong"]) == 1


def test_the_command(run, capsys):
    main(["audit", str(run), "--seeds", "3", "--games", "2"])
    assert "4 of 4 claimed games were played again" in capsys.readouterr().out
    receipts.path_of(run, 20).unlink()
    with pytest.raises(SystemExit) as stop:
        main(["audit", str(run)])
    said = capsys.readouterr().out
    assert stop.value.code == 1 and "seed 3, game 0 at 20 agent steps" in said and "DO NOT HOLD" in said
