"""The doctor answers in time whatever is broken, and says what mends it."""

import json
import os
import stat
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest

from vcrl import doctor, probes
from vcrl.cli import main
from vcrl.doctor import Answer, ask, examine
from vcrl.runs.checks import FAILED, OK, Check
from vcrl.training import engine

PATIENT = 120.0  # seconds: other work may keep this computer busy


def named(checks):
    return {check.name: check for check in checks}


def fake(folder: Path, name: str, body: str) -> None:
    """A library of that name which does this when it is imported."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(body)


def program(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_this_computer_is_healthy(tmp_path):
    checks = named(examine(tmp_path / "not" / "yet" / "there", PATIENT))
    for name in ("python", "vcrl", "jax", "atari", "gymnasium", "disk"):
        assert checks[name].state == OK, checks[name]
    assert f"{jax.__version__} on 1 x cpu" in checks["jax"].found
    assert all(check.todo for check in checks.values() if check.state == FAILED)
    assert list(tmp_path.iterdir()) == []  # nothing is left where it wrote


BROKEN = {
    "hangs when imported": ("import time; time.sleep(600)", "cannot be imported: no answer within", "pip install"),
    "crashes when imported": ("import os; os.abort()", "cannot be imported", "pip install"),
    "cannot be imported": ("raise ImportError('libcudart.so is missing')", "libcudart.so is missing", "pip install"),
    "hangs at its device": (
        "import time\n__version__ = '9'\ndef devices(): time.sleep(600)",
        "9 finds no device: no answer within",
        "unset JAX_PLATFORMS",
    ),
    "computes nothing": (
        "import types\n__version__ = '9'\njit = None\ndef devices():\n"
        "  return [types.SimpleNamespace(device_kind='Card', platform='gpu')]",
        "9 does not compute on Card",
        "JAX_PLATFORMS=cpu",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_jax(tmp_path, monkeypatch, name):
    body, told, todo = BROKEN[name]
    fake(tmp_path, "jax", body)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    seconds = {"hangs when imported": 0.5, "hangs at its device": 3.0}.get(name, PATIENT)
    answer = ask((sys.executable, "-P", "-m", "vcrl.probes", "jax"), {}, seconds)
    check = doctor._jax(answer, Answer({}, "none"))
    assert check.state == FAILED and told in check.found and todo in check.todo


def test_a_process_that_hangs_is_gone_afterwards(tmp_path):
    program(tmp_path, "hangs", f"echo $$ > {tmp_path}/pid; sleep 600 & wait")
    answer = ask((str(tmp_path / "hangs"),), {}, 1.0)
    assert answer.error == "no answer within 1 s"
    group = (tmp_path / "pid").read_text().strip()
    stats = [path.read_text().rpartition(")")[2].split() for path in Path("/proc").glob("[0-9]*/stat")]
    assert not [one for one in stats if one[2] == group and one[0] != "Z"]  # state, parent, group


def test_what_was_said_before_hanging_counts(tmp_path):
    program(tmp_path, "slow", "echo '{\"version\": \"1\"}'; echo noise; echo '[1]'; sleep 600")
    assert ask((str(tmp_path / "slow"),), {}, 1.0).said == {"version": "1"}


def test_a_gpu_that_jax_does_not_use(tmp_path, monkeypatch):
    program(tmp_path, "nvidia-smi", "echo 'Some Card, 40960, 81920'")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    gpu = ask(doctor.SMI, {}, PATIENT)
    assert doctor._gpu(gpu, Answer({})) == Check("gpu", OK, "Some Card, 40.0 of 80.0 GiB free")
    on_cpu = Answer({"version": "1", "device": "cpu", "platform": "cpu", "count": 1, "sum": 16.0})
    assert doctor._jax(on_cpu, gpu).state == "note"  # tests set JAX_PLATFORMS=cpu
    monkeypatch.delenv("JAX_PLATFORMS")
    check = doctor._jax(on_cpu, gpu)
    assert check.state == "warning" and "jax[cuda13]" in check.todo
    assert doctor._jax(on_cpu, Answer({}, "nvidia-smi: No such file or directory")).state == OK


def test_a_gpu_without_kernels():
    said = {"version": "1", "device": "Some Card", "platform": "gpu", "count": 1, "sum": 16.0}
    gpu = Answer({}, text="Some Card, 40960, 81920")
    assert doctor._jax(Answer({**said, "obstacle": None}), gpu) == Check("jax", OK, "1 on 1 x Some Card")
    check = doctor._jax(Answer({**said, "obstacle": "JAX 1 has no Triton"}), gpu)
    assert check.state == "note" and check.found.endswith("take longer: JAX 1 has no Triton")
    assert "==0.11" in check.todo
    check = doctor._jax(Answer({**said, "obstacle": "they need a newer GPU"}), gpu)
    assert check.state == "note" and not check.todo


def test_a_driver_that_does_not_work(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}")
    none = ask(doctor.SMI, {}, PATIENT)
    assert doctor._gpu(none, Answer({"platform": "cpu"})).found == "none found: the CPU will train"
    assert "JAX has one" in doctor._gpu(none, Answer({"platform": "gpu"})).found
    for body, told in (
        ("echo 'has failed'; exit 9", "has failed"),
        ("exec /bin/sleep 600", "no answer within"),
    ):
        program(tmp_path, "nvidia-smi", body)
        check = doctor._gpu(ask(doctor.SMI, {}, 1.0), Answer({}))
        assert check.state == "warning" and told in check.found and check.todo


def test_a_disk_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("in the way")
    where = tmp_path / "file" / "runs"
    answer = ask((sys.executable, "-P", "-m", "vcrl.probes", "disk", str(where)), {}, PATIENT)
    check = doctor._disk(answer, where)
    assert check.state == FAILED and "cannot be written" in check.found and "--out" in check.todo
    little = Answer({"rate": 1e9, "free": 10**6})
    assert doctor._disk(little, where).state == "warning"
    assert doctor._disk(Answer({"rate": 1e6, "free": 10**12}), where).state == "warning"


def test_optional_parts(tmp_path, monkeypatch):
    check = doctor._ale(Answer({"installed": False}))
    assert check.state == "note" and check.todo == "pip install 'vcrl[atari]'"
    fake(tmp_path, "ale_py", "raise ImportError('wrong GLIBC')")
    monkeypatch.syspath_prepend(str(tmp_path))
    check = doctor._ale(ask((sys.executable, "-P", "-m", "vcrl.probes", "ale"), {}, PATIENT))
    assert check.state == "warning" and "pip install --force-reinstall ale-py" in check.todo
    assert [c.state for c in doctor._mujoco({})] == ["note"]
    works, fails = Answer({"fps": 9.0, "device": "Card"}), Answer({}, "no libEGL.so")
    assert [c.state for c in doctor._mujoco({"egl": fails, "osmesa": works})] == ["note", OK]
    both = doctor._mujoco({"egl": fails, "osmesa": fails})
    assert [c.todo for c in both] == ["apt-get install libegl1", "apt-get install libosmesa6"]
    assert {c.state for c in both} == {"warning"}


def test_a_package_that_is_missing_or_too_old(monkeypatch):
    needed = ["numpy>=2.0", 'gymnasium>=1.0; extra == "gym"']
    monkeypatch.setattr(doctor, "requires", lambda name: needed)
    assert doctor._packages().state == OK
    needed[0] = "numpy>=99.1"
    assert (
        doctor._packages().state == FAILED
        and doctor._packages().todo == "pip install --upgrade 'numpy>=99.1'"
    )
    needed[0] = "no-such-thing>=1"
    assert "no-such-thing, which is not installed" in doctor._packages().found


def test_the_compile_cache_is_where_training_puts_it(tmp_path, monkeypatch):
    """Training asks JAX, which the doctor does not import; both must name one place."""
    chosen = {}
    config = SimpleNamespace(jax_compilation_cache_dir=None, update=chosen.__setitem__)
    monkeypatch.setattr(engine, "jax", SimpleNamespace(default_backend=lambda: "gpu", config=config))
    for home in (str(tmp_path), ""):
        monkeypatch.setenv("XDG_CACHE_HOME", home)
        engine.keep_compiled()
        place = probes.cache_folder({"XDG_CACHE_HOME": home})
        assert chosen == {"jax_compilation_cache_dir": str(place)}


def test_a_compile_cache(tmp_path):
    def cache(where):
        environ = {"JAX_COMPILATION_CACHE_DIR": str(where)}
        return doctor._cache(ask((sys.executable, "-P", "-m", "vcrl.probes", "cache"), environ, PATIENT))

    (tmp_path / "program").write_bytes(bytes(3_000_000))
    assert cache(tmp_path) == Check("compile cache", OK, f"{tmp_path}: 1 programs, 3 MB")
    assert cache(tmp_path / "new").state == OK and not (tmp_path / "new").exists()
    assert cache(tmp_path / "program" / "x").state == "warning"


def test_the_command(monkeypatch, capsys):
    checks = [Check("python", OK, "3"), Check("atari", "note", "not installed", "pip install x")]
    monkeypatch.setattr(doctor, "examine", lambda out: checks)
    main(["doctor"])
    assert capsys.readouterr().out.splitlines() == [
        "python  ok       3",
        "atari   note     not installed: pip install x",
        "2 checks: 1 ok, 1 note",
    ]
    checks.append(Check("jax", FAILED, "no", "pip install jax"))
    with pytest.raises(SystemExit) as stop:
        main(["doctor", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (
        stop.value.code == 1 and told["healthy"] is False and told["checks"][2]["todo"] == "pip install jax"
    )
