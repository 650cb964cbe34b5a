"""`vcrl campaign` as it is typed."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from test_local import states, wait_for

from vcrl.cli import main
from vcrl.runs.reading import find_runs, read_run

BAD = {
    "campaign toyy --methods vcr": "did you mean toy",
    "campaign toy --methods vrc": "did you mean vcr",
    "campaign toy --methods ,": "no methods",
    "campaign toy --methods vcr --tasks cath": "did you mean catch",
    "campaign toy --methods vcr --tasks ,": "no tasks",
    "campaign toy --methods vcr --seeds 3:3": "no seeds",
    "campaign toy --methods vcr --seeds all": "give a range such as 0:5",
    "campaign toy --methods vcr --seeds 1,1": "each seed once",
    "campaign toy --methods vcr --group 0": "--group 0",
    "campaign toy --methods vcr --retries -1": "--retries -1",
    "campaign toy --methods vcr --gpus 99": "--gpus 99",
    "campaign toy --methods vcr --engine rai": "did you mean ray",
    "campaign toy --methods vcr --engine slurm": "--print",
    "campaign toy --methods vcr --print": "--engine slurm",
    "campaign toy --methods vcr --gpu-memory 0": "--gpu-memory",
    "campaign toy --methods vcr --steps 100": "vcr on catch: --steps 100 ends before learning starts at 200",
    "campaign toy --methods spr --terms.vcr.weight 1": "does not apply",
    "campaign toy --methods vcr --grup 3": "did you mean --group",
    "campaign toy --methods vcr --protocol atari100k": "--protocol atari100k",
    "campaign toy --methods vcr --gpus none --steps 100000000 --replay.capacity 100000000": "--replay.capacity",
}


@pytest.mark.parametrize("line", BAD)
def test_bad_input_is_one_clear_line(
    line: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(line.split())
    said = capsys.readouterr().err
    assert stop.value.code == 2 and said.startswith("vcrl: ") and said.count("\n") == 1
    assert BAD[line] in said
    assert not list(tmp_path.iterdir()), "nothing is written before the input is known to be good"


def test_planning_does_not_import_jax(tmp_path: Path):
    program = (
        "import sys; from vcrl.cli import main; "
        "main('campaign toy-2 --methods spr,vcr --seeds 0:10 --group 5 --dry-run'.split()); "
        "assert 'jax' not in sys.modules and 'ray' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "8 runs, 0 done, 8 to do, up to 5 seeds a run" in done.stdout
    assert not list(tmp_path.iterdir())


TINY = "--steps 60 --log-every 20 --q-error-every 0 --gradients-every 0 --batch 4 --hidden 8 --learn-start 30"


def test_a_real_run_and_its_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    line = f"campaign toy-2 --methods rainbow --tasks catch --seeds 0:2 --gpus none --out {tmp_path} {TINY}"
    main(line.split())
    (path,) = find_runs(tmp_path)
    run = read_run(path)
    assert run.status["state"] == "done" and run.record["config"]["batch"] == 4
    assert run.record["facts"]["command"].startswith("vcrl train rainbow catch --seeds=0:2")
    main(line.split())
    assert "1 run, 1 done, 0 to do" in capsys.readouterr().out
    (body,) = [json.loads(p.read_text()) for p in (tmp_path / "campaign").glob("*/campaign.json")]
    assert body["runs"][0]["folder"] == str(path.relative_to(tmp_path))


@pytest.mark.slow
def test_two_real_methods_on_two_tasks_stopped_and_finished(tmp_path: Path):
    words = f"campaign toy-2 --methods rainbow,spr --seeds 0:2 --gpus none --out {tmp_path} {TINY}".split()
    words[words.index("60")] = "400"
    command = [sys.executable, "-m", "vcrl.cli", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    wait_for(lambda: bool(find_runs(tmp_path)) and bool(read_run(find_runs(tmp_path)[0]).metrics()), 120)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and "the same command continues" in said
    before = states(tmp_path)
    assert "stopped" in before and len(before) < 4
    subprocess.run(command, check=True, timeout=240, stdout=subprocess.DEVNULL)
    assert states(tmp_path) == ["done"] * 4
    for path in find_runs(tmp_path):
        steps = [row["agent_steps"] for row in read_run(path).metrics()]
        assert steps == sorted(set(steps)) and steps[-1] == 400, "nothing was done twice"
