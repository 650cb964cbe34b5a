"""Scores in results/ come with the games behind them, and these can be played again by whoever doubts them."""

import json
from pathlib import Path

import pytest
from handmade import make

from vcrl.bench import results
from vcrl.bench.audit import audit
from vcrl.runs import receipts
from vcrl.runs.logs import episode_line, read_episodes
from vcrl.runs.reading import find_runs

KEPT = Path(__file__).parents[2] / "results"


@pytest.fixture
def added(tmp_path):
    """A run of `reach` in the tables, and what was kept of its games."""
    run = make(tmp_path / "runs", "reach")
    config, status = run / "config.json", run / "status.json"
    facts = {"commit": "c" * 40, "cpus": 2, "platform": "Some-Kernel", "command": "vcrl train vcr reach"}
    config.write_text(json.dumps(json.loads(config.read_text()) | {"facts": facts}))
    told = {"state": "done", "not_finite_since": {}, "seconds": 1.0, "finished": "2024-05-06"}
    status.write_text(json.dumps(json.loads(status.read_text()) | told))
    results.main(["add", str(run), "--out", str(tmp_path / "results")])
    (kept,) = find_runs(tmp_path / "results" / "games")
    return run, kept


def test_kept_games_prove_the_scores_without_the_run(added, tmp_path):
    run, kept = added
    assert kept.relative_to(tmp_path / "results").parts[:-1] == ("games", "toy", "vcr", "reach")
    assert kept.name.endswith("-cccccccccc")
    files = {str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file()}
    assert files == {
        "config.json",
        "status.json",
        "eval.csv",
        *(f"receipts/{at:09d}.receipt" for at in (20, 40)),
    }
    assert (kept / "eval.csv").read_bytes() == (run / "eval.csv").read_bytes()
    record = json.loads((kept / "config.json").read_text())
    assert record["facts"] == {"command": "vcrl train vcr reach", "cpus": 2, "commit": "c" * 40}
    verdict = audit(kept)
    assert verdict.holds and verdict.repeated == verdict.claims == len(read_episodes(kept / "eval.csv"))


def test_a_score_that_was_changed_in_them_is_found_out(added):
    _, kept = added
    first, *others = read_episodes(kept / "eval.csv")
    rows = [first._replace(score=first.score + 1), *others]
    lines = b"".join(episode_line(*row) for row in rows)
    (kept / "eval.csv").write_bytes(b"seed,agent_steps,episode,score,length\n" + lines)
    verdict = audit(kept)
    assert not verdict.holds and len(verdict.wrong) == 1


def test_without_a_receipt_of_every_evaluation_nothing_is_kept(added, tmp_path):
    run, _ = added
    receipts.path_of(run, 20).unlink()
    results.main(["add", str(run), "--out", str(tmp_path / "other")])
    assert (tmp_path / "other" / "toy.csv").exists() and not (tmp_path / "other" / "games").exists()


@pytest.mark.parametrize(
    "kept", find_runs(KEPT / "games"), ids=lambda kept: f"{kept.parent.name}-{kept.name}"
)
def test_games_in_results_are_those_of_the_tables(kept):
    """Every score, and of the first game of the first seed that it can be played again."""
    record = json.loads((kept / "config.json").read_text())
    commit = record["facts"]["commit"][:12]
    rows = results.load(KEPT, record["suite"]).episodes
    mine = [
        r for r in rows if (r["task"], r["method"], r["commit"]) == (record["task"], record["method"], commit)
    ]
    told = {(int(r["seed"]), int(r["episode"])): (float(r["score"]), int(r["length"])) for r in mine}
    games = {
        (g.seed, g.episode): (float(f"{g.score:.8g}"), g.length) for g in read_episodes(kept / "eval.csv")
    }
    assert games and games == {at: told[at] for at in games}
    verdict = audit(kept, seeds=record["seeds"][:1], games=1)
    assert verdict.holds and verdict.repeated == 1
