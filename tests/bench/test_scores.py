"""One table from four kinds of source, which never mix."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from vcrl.bench import results, scores
from vcrl.bench.aggregates import aggregates
from vcrl.bench.scores import labels, matrix, mixture, tasks_in
from vcrl.bench.sources import read_bank, read_paper, read_results, read_runs
from vcrl.core.errors import UserError

REFERENCE = Path(__file__).parents[3] / "shared" / "reference" / "runs"


def bank_of(folder: Path, **methods) -> Path:
    folder.mkdir(parents=True)
    for method, held in methods.items():
        (folder / f"{method}.json").write_text(held if isinstance(held, str) else json.dumps(held))
    return folder


def test_a_run_is_a_row_a_seed(make_run):
    path = make_run("a")
    found = read_runs([path])
    assert not found.left_out
    assert [(row.seed, row.score) for row in found.rows] == [(0, 0.0), (1, 10.0)]
    row = found.rows[1]
    assert (row.suite, row.task, row.method, row.name, row.source) == ("atari", "pong", "vcr", "vcr", "run")
    assert row.normalised == pytest.approx(30.7 / 35.3)
    assert row.where == str(path) and row.protocol == "atari100k" and row.agent_steps == 100
    assert row.seconds == 3600, "two hours, shared by two seeds"
    (origin,) = found.origins
    assert origin.command == "vcrl train vcr pong" and origin.gpu and origin.commit == "c" * 12
    assert found.protocols[row.protocol_hash]["budget"] == 100
    assert found.configs[row.config_hash]["rate"] == 0.1


def test_runs_are_found_beneath_a_folder_and_counted_once(make_run, tmp_path):
    make_run("atari/vcr/pong/0-1")
    path = make_run("atari/vcr/boxing/0-1", task="boxing")
    found = read_runs([tmp_path / "runs", path])
    assert tasks_in(found.rows) == ["boxing", "pong"] and len(found.rows) == 4


def test_results_and_runs_are_the_same_numbers_under_different_names(make_run, tmp_path):
    path = make_run("a")
    results.add((path,), tmp_path / "results")
    ran, kept = read_runs([path]).rows, read_results(tmp_path / "results")
    assert [row.source for row in kept.rows] == ["results"] * 2
    assert [row._replace(source="run", where=str(path)) for row in kept.rows] == ran
    assert labels([*ran, *kept.rows]) == ["vcr", "vcr", "vcr (results)", "vcr (results)"]
    assert {name: m.shape for name, m in matrix([*ran, *kept.rows], ["pong"]).items()} == {
        "vcr": (2, 1),
        "vcr (results)": (2, 1),
    }
    assert kept.origins[0].gpu


def test_the_paper_is_a_source_of_its_own(make_run):
    told = [row for row in read_paper().rows if row.protocol == "atari100k" and row.method == "VCR"]
    assert len(told) == 26 and all(row.seed is None and row.runs == 10 for row in told)
    found = matrix([*read_runs([make_run("a")]).rows, *told], ["pong", "alien"])
    assert found.keys() == {"vcr", "VCR (paper)"}
    np.testing.assert_allclose(found["VCR (paper)"], [[(0.9 + 20.7) / 35.3, (822.4 - 227.8) / 6899.9]])
    assert np.isnan(found["vcr"][:, 1]).all(), "no run of alien"


def test_dmcontrol_is_normalised_by_the_best_possible():
    rows = [row for row in read_paper().rows if (row.protocol, row.method) == ("dmc100k", "VCR")]
    assert {row.task: row.normalised for row in rows}["walker-walk"] == 0.65


def test_a_bank(tmp_path):
    bank_of(tmp_path / "bank" / "atari100k", SPR={"Pong": [1.0, 2.0], "KungFuMaster": [3.0]})
    bank_of(
        tmp_path / "bank" / "dmc_pixels",
        DrQ={"100000": {"walker-walk": [500]}, "500000": {"walker-walk": [900]}},
    )
    found = read_bank(tmp_path / "bank")
    assert not found.left_out
    assert [(r.suite, r.protocol, r.task, r.seed, r.score, r.source) for r in found.rows] == [
        ("atari", "atari100k", "pong", 0, 1.0, "bank:atari100k"),
        ("atari", "atari100k", "pong", 1, 2.0, "bank:atari100k"),
        ("atari", "atari100k", "kung-fu-master", 0, 3.0, "bank:atari100k"),
        ("dmc", "dmc100k", "walker-walk", 0, 500.0, "bank:dmc_pixels"),
        ("dmc", "dmc500k", "walker-walk", 0, 900.0, "bank:dmc_pixels"),
    ]
    values = matrix(found.rows[:3], ["pong", "kung-fu-master"])["SPR (bank)"]
    assert np.isnan(values[1, 1]) and np.isfinite(values).sum() == 3, "unequal runs leave a gap"


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ("[1, 2]", "no JSON object"),
        ('{"Pong": [', "damaged"),
        ("[" * 100_000, "damaged"),
        ('{"Pong": [1, NaN, 2]}', "1 of 3 scores are not finite numbers"),
        ('{"Pong": [1, "2", true]}', "2 of 3 scores"),
        ('{"Pong": 3}', "no list of scores"),
        ('{"Pongo": [3]}', "no game 'Pongo'"),
        ('{"100000": {"walker-walk": [1]}, "x": {"walker-walk": [1]}}', "damaged"),
        ('{"100000": {"walker-walk": [1]}, "200000": 3}', "damaged"),
    ],
)
def test_what_is_wrong_in_a_bank_is_named_and_left_out(tmp_path, held, said):
    bank_of(tmp_path / "atari100k", SPR={"Pong": [1.0]}, Bad=held)
    found = read_bank(tmp_path)
    assert any(said in line and "Bad.json" in line for line in found.left_out)
    assert all(math.isfinite(row.score) for row in found.rows)


def test_no_bank_is_refused(tmp_path):
    with pytest.raises(UserError, match="no bank of runs"):
        read_bank(tmp_path / "nowhere")
    bank_of(tmp_path / "atari100k", SPR="{}")
    with pytest.raises(UserError, match=r"SPR\.json"):
        read_bank(tmp_path)


@pytest.mark.needs(REFERENCE.exists())  # the released runs of others, beside the project
def test_published_aggregates_come_out_of_the_released_runs():
    rows = [row for row in read_bank(REFERENCE).rows if row.source == "bank:atari100k"]
    rows = [row for row in rows if row.protocol == "atari100k"]
    found = aggregates(matrix(rows, tasks_in(rows)), ["iqm"], draws=2)
    iqm = {name.removesuffix(" (bank)"): round(at["iqm"].point, 3) for name, at in found.items()}
    wanted = {
        "DER": 0.183,
        "OTRainbow": 0.117,
        "CURL": 0.113,
        "DrQ_eps": 0.280,
        "SPR": 0.337,
        "PlayVirtual": 0.374,
    }
    assert {name: iqm[name] for name in wanted} == wanted


def test_different_protocols_are_refused_with_the_fields_that_differ(make_run):
    paths = [make_run("a"), make_run("b", task="boxing", protocol={"budget": 50_000, "sticky": 0.25})]
    for path in paths[1:]:  # the final evaluation must be at the budget
        text = (path / "eval.csv").read_text().replace(",100,", ",50000,")
        (path / "eval.csv").write_text(text)
    rows = read_runs(paths).rows
    assert len(rows) == 4
    with pytest.raises(UserError, match=r"budget 100 and 50,000; sticky 0\.0 and 0\.25.*--mixed"):
        matrix(rows, ["pong", "boxing"])
    assert matrix(rows, ["pong", "boxing"], mixed=True)["vcr"].shape == (2, 2)
    assert mixture(rows[:2]) == ""
    with pytest.raises(UserError, match="name atari100k and dmc100k"):
        matrix([*rows[:2], *[r for r in read_paper().rows if r.protocol == "dmc100k"]], ["pong"])


def test_two_configs_of_a_method_get_two_names(make_run):
    rows = read_runs([make_run("a"), make_run("b", config={"rate": 0.2})]).rows
    names = list(matrix(rows, ["pong"]))
    assert len(names) == 2 and all(name.startswith("vcr [") for name in names)
    across = read_runs([make_run("a"), make_run("c", task="boxing", config={"rate": 0.2})]).rows
    assert list(matrix(across, ["pong", "boxing"])) == ["vcr"], "a setting of a task is no other method"


def test_the_same_seed_twice_counts_once(make_run):
    found = read_runs([make_run("a"), make_run("b", schedule={"log": 7})])
    assert len(found.rows) == 2 and len(found.left_out) == 2
    assert "seed 0 is there twice" in found.left_out[0]


def test_choosing_methods(make_run):
    rows = [*read_runs([make_run("a"), make_run("b", method="spr")]).rows, *read_paper().rows]
    assert {row.name for row in scores.choose(rows, ["vcr", "SPR (paper)"])} == {"vcr", "SPR (paper)"}
    with pytest.raises(UserError, match="unknown method 'vrc': did you mean vcr"):
        scores.choose(rows, ["vrc"])


def damage_config(path):
    (path / "config.json").write_text('{"method": ')


def damage_deep(path):
    (path / "config.json").write_text("[" * 100_000)


def damage_name(path):
    record = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(record | {"task": ["pong"]}))


def damage_seeds(path):
    record = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(record | {"seeds": []}))


def damage_budget(path):
    text = (path / "config.json").read_text().replace('"eval_episodes": 2', '"eval_episodes": 1000000000000')
    (path / "config.json").write_text(text)


def damage_infinite(path):
    text = (path / "config.json").read_text().replace('"budget": 100', '"budget": 1e999')
    (path / "config.json").write_text(text)


def damage_status(path):
    (path / "status.json").write_text("[]")


def damage_state(path):
    (path / "status.json").write_text('{"state": "done"}')


def damage_rows(path):
    (path / "eval.csv").write_text("seed,agent_steps,episode,score,length\n0,100,0,x,1\n")


def damage_games(path):
    lines = (path / "eval.csv").read_text().splitlines(keepends=True)
    (path / "eval.csv").write_text("".join(lines[:-1]))


def damage_score(path):
    text = (path / "eval.csv").read_text()
    (path / "eval.csv").write_text(text.replace("1,100,0,11.0", "1,100,0,nan"))


def damage_unfinished(path):
    status = json.loads((path / "status.json").read_text())
    (path / "status.json").write_text(json.dumps(status | {"state": "running"}))


DAMAGES = [value for name, value in list(globals().items()) if name.startswith("damage_")]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda f: f.__name__)
def test_a_damaged_run_is_named_and_left_out(make_run, damage):
    good, bad = make_run("good"), make_run("bad", task="boxing")
    damage(bad)
    found = read_runs([good, bad])
    kept = 1 if damage is damage_score else 0  # of two seeds the other is good
    assert len(found.rows) == 2 + kept and len(found.left_out) == 1
    assert str(bad) in found.left_out[0] and "\n" not in found.left_out[0]


def test_a_folder_that_is_no_run_is_refused(tmp_path, make_run):
    with pytest.raises(UserError, match="no run folder at"):
        read_runs([tmp_path / "nowhere"])
    (tmp_path / "other").mkdir()
    with pytest.raises(UserError, match="no runs in"):
        read_runs([tmp_path / "other"])


def test_hostile_results_are_named_line_by_line(make_run, tmp_path):
    folder = tmp_path / "results"
    results.add((make_run("a"),), folder)
    text = (folder / "atari.csv").read_text()
    (folder / "atari.csv").write_text(
        text.replace("pong,vcr,1,10,", "pong,vcr,1,inf,").replace("vcr,0,0,", "vcr,zero,0,")
    )
    found = read_results(folder)
    assert not found.rows and len(found.left_out) == 2
    assert "line 2" in found.left_out[0] and "line 3" in found.left_out[1]


def test_a_loss_of_ones_own_is_another_method_where_its_code_is_another(make_run):
    """Also where it was used on other tasks, which one config hash would not tell apart."""

    def made(name, task, code):
        config = {"terms": {"own": {"loss": "ideas:smooth", "code": code}}}
        return make_run(name, task, "spr+ideas:smooth", config=config)

    same = read_runs([made("a", "pong", "0123abcd"), made("b", "qbert", "0123abcd")])
    assert {row.method for row in same.rows} == {"spr+ideas:smooth"}
    found = read_runs(
        [made("c", "pong", "0123abcd"), made("d", "qbert", "4567cdef"), make_run("e", method="spr")]
    )
    names = {"spr+ideas:smooth (0123abcd)", "spr+ideas:smooth (4567cdef)"}
    assert (
        {row.method for row in found.rows} == {origin.method for origin in found.origins} == names | {"spr"}
    )
    assert {row.method for row in scores.choose(found.rows, ["spr+ideas:smooth"])} == names
    # A published variant with a bracket in its name is a method of its own.
    both = [found.rows[0]._replace(method="DrQ", source="bank:x"), found.rows[0]._replace(method="DrQ (eps)")]
    assert [row.method for row in scores.choose(both, ["DrQ"])] == ["DrQ"]
    # A folder may be anybody's.
    odd = read_runs(
        [make_run("f", config={"terms": {"own": 3}}), make_run("g", "qbert", config={"terms": None})]
    )
    assert {row.method for row in odd.rows} == {"vcr"} and not odd.left_out
