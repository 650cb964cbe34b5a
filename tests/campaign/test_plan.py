"""Every asked seed is in exactly one run; what exists is used, what fits is packed, what it costs is forecast."""

import json
from pathlib import Path
from typing import Any

import pytest
from fakes import DIGEST, asking, scouts

from vcrl.campaign.machine import Gpu, Machine, machine
from vcrl.campaign.plan import Campaign, _split, make_campaign, makespan, scouted
from vcrl.core.errors import UserError
from vcrl.runs import rates

CPU = Machine((), 8e9, 2)


def cards(count: int, memory: float = 80e9) -> Machine:
    return Machine(tuple(Gpu(str(i), "H200", memory) for i in range(count)), 8e9, 16)


def planned(out: Path, where: Machine = CPU, group: int | None = None, **more: Any) -> Campaign:
    ask = asking(out, **more)
    return make_campaign(ask, scouts(ask), where, group, rates.Clock(out, "cpu"))


def existing(out: Path, method: str, task: str, seeds: list[int], state: str, steps: int = 50) -> Path:
    name = f"{seeds[0]}-{seeds[-1]}" if len(seeds) > 1 else str(seeds[0])
    path = out / "toy" / method / task / f"{name}-{DIGEST}"
    path.mkdir(parents=True)
    record = {"method": method, "task": task, "seeds": seeds, "facts": {"accelerator": None}}
    (path / "config.json").write_text(json.dumps(record))
    (path / "status.json").write_text(json.dumps({"state": state, "agent_steps": steps, "seconds": 100.0}))
    return path


def test_every_method_task_and_seed_once(tmp_path: Path):
    plan = planned(tmp_path, group=3)
    found = [(j.what.method, j.what.task, s) for j in plan.jobs for s in j.seeds]
    wanted = {(m, t, s) for m in ("spr", "vcr") for t in ("catch", "balloon") for s in range(4)}
    assert len(found) == len(wanted) == 16 and set(found) == wanted
    assert {len(job.seeds) for job in plan.jobs} == {2}, "4 seeds in groups of at most 3 are two and two"
    assert not list(tmp_path.iterdir()), "planning writes nothing"


def test_what_exists_is_used_whatever_its_group(tmp_path: Path):
    existing(tmp_path, "spr", "catch", [0, 1, 2, 3], "done", 100)
    existing(tmp_path, "vcr", "catch", [1, 2], "stopped")
    existing(tmp_path, "vcr", "balloon", [3, 4, 5], "stopped")  # has seeds that were not asked for
    existing(tmp_path, "spr", "balloon", [2, 3, 4], "done", 100)  # has too, but they cost nothing
    plan = planned(tmp_path, group=4)
    seen = {(j.what.method, j.what.task, j.seeds): (j.done, j.agent_steps) for j in plan.jobs}
    assert seen == {
        ("spr", "catch", (0, 1, 2, 3)): (True, 100),
        ("vcr", "catch", (0, 3)): (False, 0),
        ("vcr", "catch", (1, 2)): (False, 50),
        ("spr", "balloon", (0, 1)): (False, 0),
        ("spr", "balloon", (2, 3, 4)): (True, 100),
        ("vcr", "balloon", (0, 1, 2, 3)): (False, 0),
    }


def test_a_damaged_run_is_not_mistaken_for_a_finished_one(tmp_path: Path):
    path = existing(tmp_path, "spr", "catch", [0, 1, 2, 3], "done")
    for text in ("{", "[]", '{"method": "spr"}', '{"method": "spr", "task": "catch", "seeds": 7}'):
        (path / "config.json").write_text(text)
        assert not any(job.done for job in planned(tmp_path).jobs)


def test_groups_fit_and_keep_all_gpus_busy(tmp_path: Path):
    assert planned(tmp_path).group == 4, "one slot: all seeds together"
    assert planned(tmp_path, cards(2)).group == 4, "four runs for two GPUs"
    assert planned(tmp_path, cards(8)).group == 2, "eight GPUs: eight runs"
    assert planned(tmp_path, cards(100)).group == 1
    assert planned(tmp_path, cards(1, memory=2 * 3e6 * 1.25 / 0.9 / 0.75 + 1)).group == 2, "two seeds fit"


def test_what_runs_held_says_how_many_fit(tmp_path: Path):
    """They held half of what was forecast, so that twice as many fit, but for 5 % and one seed cut off."""
    memory = 2 * 3e6 * 1.25 / 0.9 / 0.75 + 1
    assert planned(tmp_path, cards(1, memory), methods="spr", seeds=range(6)).group == 2
    path = existing(tmp_path, "spr", "snow", [7, 8], "running")
    record = json.loads((path / "config.json").read_text()) | {"facts": {"accelerator": None}}
    (path / "config.json").write_text(json.dumps(record))
    held = {"state": "running", "updates": 5, "peak_bytes": 3 * 10**9, "forecast_bytes": 6 * 10**9}
    for status, fits in (
        ({**held, "peak_bytes": None}, 2),
        ({**held, "updates": 0}, 2),
        ({**held, "forecast_bytes": "many"}, 2),
        (held, 3),  # 4.76 would fit; 6 seeds are two runs of three then
        ({**held, "peak_bytes": 12 * 10**9}, 1),
        ({**held, "peak_bytes": 9 * 10**8, "forecast_bytes": 10**7}, 2),  # mostly what any run takes
    ):
        (path / "status.json").write_text(json.dumps(status))
        plan = planned(tmp_path, cards(1, memory), methods="spr", seeds=range(6))
        assert plan.group == fits, status
    (path / "status.json").write_text(json.dumps(held))
    plan = planned(tmp_path, cards(1, memory), methods="spr", seeds=range(6))
    assert all(job.memory == len(job.seeds) * 3e6 / 2 for job in plan.jobs if not job.done)


def test_seeds_that_do_not_fit_are_refused(tmp_path: Path):
    small = cards(1, memory=2 * 3e6 / 0.9 / 0.75 + 1)
    with pytest.raises(UserError, match="--group 2 fits"):
        planned(tmp_path, small, group=4)
    with pytest.raises(UserError, match=r"smaller --replay\.capacity"):
        planned(tmp_path, small._replace(gpus=(Gpu("0", "old", 1e6),)))
    with pytest.raises(UserError, match="--group 0"):
        planned(tmp_path, group=0)


def test_splits_are_even():
    assert [len(g) for g in _split(range(10), 4)] == [3, 4, 3]
    assert _split([], 4) == []
    assert makespan([3, 3, 2, 2, 2], 2) == 7 and makespan([], 3) == 0


def test_finished_runs_correct_the_forecast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rates, "speed", lambda: rates.CORES_SPEED / 2)
    clock = rates.Clock(tmp_path, "cpu")
    table = clock.forecast("toy", "vcr", "catch", 2, 2000)
    path = existing(tmp_path, "vcr", "catch", [0, 1], "done", 2000)
    known = rates.table_seconds("toy", "cpu", "vcr", "catch", 2, 2000)
    (path / "status.json").write_text(
        json.dumps({"state": "done", "agent_steps": 2000, "seconds": 3 * known})
    )
    measured = rates.Clock(tmp_path, "cpu").forecast("toy", "vcr", "balloon", 2, 2000)
    # A CPU half as fast as the one that was measured, until it has shown how fast it is.
    assert table.seconds == pytest.approx(2 * known) and "speed of this CPU" in table.source
    assert measured.seconds == pytest.approx(3 * known) and measured.source == "1 finished run here"
    assert rates.Clock(tmp_path, "gpu").forecast("toy", "vcr", "catch", 2, 2000).source == "a guess"


def test_heavier_methods_and_more_seeds_take_longer():
    def seconds(method: str, seeds: int) -> float:
        return rates.table_seconds("atari", "gpu", method, "pong", seeds, 100_000)

    assert seconds("rainbow", 10) < seconds("spr", 10) < seconds("vcr", 10)
    # Without a GPU the size of the encoder decides: five seeds took 65 minutes, of which ten are games.
    small, usual = (
        rates.table_seconds("atari", "cpu", m, "pong", 5, 100_000) for m in ("der-original", "der")
    )
    assert 3600 < small < 5400 and usual > 3 * small
    assert seconds("vcr", 1) < seconds("vcr", 10) < 10 * seconds("vcr", 1)


def test_a_machine_shares_its_cores_and_names_what_it_lacks():
    two = cards(2)
    assert set(two.share("0")) & set(two.share("1")) == set() or len(two.share("0")) == 1
    assert two.environment("1")["CUDA_VISIBLE_DEVICES"] == "1" and machine("none").slots == ("cpu",)
    with pytest.raises(UserError, match="--gpus 7"):
        machine("7")


def test_the_scout_names_the_folder_that_training_makes(tmp_path: Path):
    from vcrl.training.plan import make_plan

    (found,) = scouted(asking(tmp_path, methods="vcr", tasks="catch", steps=300, evaluate_every=100))
    from vcrl.training.plan import Schedule

    plan = make_plan("vcr", "catch", range(4), 300, {}, Schedule(evaluate=100))
    assert (found.digest, found.budget, found.protocol_hash) == (plan.digest, 300, plan.protocol.hash)
    assert found.replay > 300 * 16 * 16 and found.working > 0
    # The weights are in memory twice, with Adam's two numbers a weight.
    assert 0 < found.kept < found.weights / 6
    with pytest.raises(UserError, match=r"vcr on catch: --steps 50 ends before"):
        scouted(asking(tmp_path, methods="vcr", tasks="catch", steps=50))
