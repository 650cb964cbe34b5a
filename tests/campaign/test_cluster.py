"""On a real Ray instance of this computer: the same plan, a worker killed on the way, a stop."""

import io
import os
import re
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes import asking, attempts
from rich.console import Console
from test_local import states, wait_for

from vcrl.campaign import run as command
from vcrl.campaign.ask import make_ask
from vcrl.runs.reading import find_runs, read_run, read_status

Quick = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    # Read by the processes of workers, which inherit it now. Long enough for a stop to arrive on a busy computer.
    os.environ["FAKE_SECONDS"] = "8"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ray

        ray.init(num_cpus=2, num_gpus=0, log_to_driver=False, include_dashboard=False)
        yield ray
        ray.shutdown()
    del os.environ["FAKE_SECONDS"]


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_worker_killed_on_the_way(tmp_path: Path, quick: Quick, ray: Any):
    """The run is told by the death of its parent, saves, and goes on from there in another worker."""
    killed: list[int] = []

    def kill() -> None:
        wait_for(lambda: states(tmp_path) == ["running"])
        time.sleep(0.7)
        run = int((find_runs(tmp_path)[0] / "lock").read_text())
        killed.append(parent(parent(run)))  # between them stands the one that passes the news on
        os.kill(killed[0], signal.SIGKILL)
        wait_for(lambda: "stopped" in states(tmp_path))
        killed.append(run)

    thread = threading.Thread(target=kill)
    thread.start()
    code, said = quick(asking(tmp_path, methods="vcr"), engine="ray")
    thread.join()
    assert code == 0 and states(tmp_path) == ["done"] * 2 and len(killed) == 2
    assert "crashed (WorkerCrashedError" in said and "will be tried again, 1 of 2" in said
    tried = [line.split()[1] for line in attempts(tmp_path)]
    assert sorted(tried) == ["balloon", "catch", "catch"]
    # It continued: no step was made twice.
    steps = (tmp_path / "toy/vcr/catch/0-3-0123abcd/metrics.jsonl").read_text().splitlines()
    assert len(steps) <= 11


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_stopped_on_a_cluster(tmp_path: Path, quick: Quick, ray: Any):
    def stop() -> None:
        wait_for(lambda: states(tmp_path) == ["running"])
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=stop)
    thread.start()
    code, said = quick(asking(tmp_path, methods="vcr"), engine="ray")
    thread.join()
    assert code == 130 and states(tmp_path) == ["stopped"] and "the same command continues" in said
    assert quick(asking(tmp_path, methods="vcr"), engine="ray")[0] == 0 and states(tmp_path) == ["done"] * 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_real_training_continues_from_its_checkpoint(tmp_path: Path, ray: Any):
    """The worker dies; the training saves, is started again by another worker, and is one training in the end."""
    changes = {"batch": 4, "hidden": 8, "learn_start": 30}
    options = {"steps": 3000, "log_every": 20, "q_error_every": 0, "gradients_every": 0}
    ask = make_ask("toy-2", "rainbow", "catch", [0, 1], tmp_path, options, changes)

    def kill() -> None:
        wait_for(
            lambda: bool(find_runs(tmp_path)) and len(read_run(find_runs(tmp_path)[0]).metrics()) > 5, 90
        )
        os.kill(parent(parent(int((find_runs(tmp_path)[0] / "lock").read_text()))), signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    said = io.StringIO()
    code = command.campaign(ask, gpus="none", engine="ray", log=Console(file=said))
    thread.join()
    assert code == 0 and "will be tried again, 1 of 2" in said.getvalue()
    (path,) = find_runs(tmp_path)
    log = next(ask.folder.glob("*.log")).read_text()
    found = re.findall(r"continuing at ([\d,]+) agent steps", log)
    assert len(found) == 1, log
    assert int(found[0].replace(",", "")) >= 120 and read_status(path)["state"] == "done"
    steps = [row["agent_steps"] for row in read_run(path).metrics()]
    assert steps == sorted(set(steps)) and steps[-1] == 3000
