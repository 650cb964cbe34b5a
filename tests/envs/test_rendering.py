"""Choosing a renderer, by real processes: some that render, some that crash, hang, or find no library."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from vcrl.core.errors import UserError
from vcrl.envs import rendering
from vcrl.envs.rendering import find

NO_LIBRARIES = """
import ctypes, ctypes.util
load, find = ctypes.CDLL.__init__, ctypes.util.find_library
def refuse(self, name=None, *args, **kwargs):
    if any(word in str(name) for word in ("GL", "OSMesa", "glfw")):
        raise OSError(f"{name}: cannot open shared object file: No such file or directory")
    load(self, name, *args, **kwargs)
ctypes.CDLL.__init__ = refuse
ctypes.util.find_library = lambda name: None if "GL" in name or "OSMesa" in name else find(name)
"""


@pytest.fixture(scope="module", autouse=True)
def renderer():
    """Chosen before anything imports MuJoCo; without one these tests fail, and say what to install."""
    return rendering.choose()


@pytest.fixture
def fake(tmp_path):
    """A probe that does by backend what a test says, and writes down what it was asked."""
    asked = tmp_path / "asked"

    def make(**does: str) -> tuple[str, ...]:
        program = tmp_path / "probe.py"
        program.write_text(
            "import json, os, signal, sys, time\n"
            "backend, device = os.environ['MUJOCO_GL'], os.environ.get('MUJOCO_EGL_DEVICE_ID')\n"
            f"open({str(asked)!r}, 'a').write(f'{{backend}} {{device}}\\n')\n"
            "def renders(device='Fast GPU'): print(json.dumps({'fps': 1234.5, 'device': device}))\n"
            + "".join(f"if backend == {name!r}:\n    {what}\n" for name, what in does.items())
        )
        return (sys.executable, str(program))

    make.asked = lambda: asked.read_text().splitlines()
    return make


def environ(**more: str) -> dict[str, str]:
    """The environment of this process as it was before any choice."""
    ours = ("MUJOCO_GL", "MUJOCO_EGL_DEVICE_ID", "PYOPENGL_PLATFORM", "LP_NUM_THREADS", "DISPLAY")
    kept = {k: v for k, v in os.environ.items() if k not in (*ours, "CUDA_VISIBLE_DEVICES")}
    return {**kept, **more}


def python(code: str, folder: Path | None = None, **more: str) -> subprocess.CompletedProcess:
    paths = [str(folder)] if folder else []
    env = environ(**more) | {"PYTHONPATH": os.pathsep.join([*paths, *filter(None, sys.path)])}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)


CHOICE = (
    "import os, sys\nfrom vcrl.envs.rendering import choose\nfrom vcrl.core.errors import UserError\n"
    "try:\n    print(choose().note)\nexcept UserError as error:\n    sys.exit(str(error))\n"
)


def test_what_is_chosen_is_set_before_anything_imports_mujoco():
    done = python(
        "import os, sys\nfrom vcrl.envs.rendering import choose\nchosen = choose()\n"
        "assert choose() is chosen and os.environ['MUJOCO_GL'] == chosen.backend\n"
        "assert not {'mujoco', 'OpenGL'} & sys.modules.keys()\nprint(chosen.fps, chosen.note)"
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    fps, note = done.stdout.strip().split(" ", 1)
    assert float(fps) > 0 and note.startswith("rendering by ") and note.endswith(" frames/s a process")


@pytest.mark.parametrize("more", [{}, {"MUJOCO_GL": "osmesa"}], ids=["any", "asked for"])
def test_without_libraries_one_line_says_what_to_install(more, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(NO_LIBRARIES)
    done = python(CHOICE, tmp_path, **more)
    assert done.returncode == 1 and done.stdout == "" and len(done.stderr.splitlines()) == 1
    assert "apt-get install libosmesa6, or libegl1" in done.stderr
    begin = "MUJOCO_GL=osmesa does not render here: unset it, or" if more else "nothing renders here: "
    assert (
        done.stderr.startswith(begin) and "osmesa: " in done.stderr and ("egl: " in done.stderr) != bool(more)
    )


def test_a_setting_that_cannot_work_is_named():
    for more in (
        {"MUJOCO_GL": "osmesa", "PYOPENGL_PLATFORM": "egl"},
        {"MUJOCO_GL": "vulkan"},
        {"MUJOCO_GL": "off"},
    ):
        with pytest.raises(UserError, match=f"^MUJOCO_GL={more['MUJOCO_GL']} does not render here: unset it"):
            find(environ(**more))


def test_the_best_that_works_is_taken(fake):
    command = fake(egl="renders('NVIDIA H200')", osmesa="renders()", glfw="renders()")
    found, settings = find(environ(), command)
    assert found == ("egl", 1234.5, "rendering by EGL (NVIDIA H200), 1,234 frames/s a process")
    assert settings == {"MUJOCO_GL": "egl", "LP_NUM_THREADS": "0"} and fake.asked() == ["egl None"]


@pytest.mark.parametrize(
    "wrong",
    [
        "os.kill(os.getpid(), signal.SIGSEGV)",
        "raise RuntimeError('no display')",
        "print('fine!')",
        "pass",
        "os._exit(0)",
        "sys.stderr.buffer.write(b'\\xff\\xfe'); os._exit(3)",
        "os.system('sleep 3600 &'); time.sleep(3600)",  # a grandchild holds the pipe
    ],
)
def test_a_child_that_crashes_or_hangs_costs_one_way_and_no_more(fake, wrong):
    command = fake(egl=wrong, osmesa="renders('llvmpipe')")
    found, _ = find(environ(), command, patience=1.5)
    assert found.backend == "osmesa" and "in software: slow" in found.note
    assert fake.asked() == ["egl None", "osmesa None"]


def test_why_nothing_worked_is_told(fake):
    command = fake(egl="time.sleep(3600)", osmesa="sys.exit('no such thing')", glfw="renders()")
    with pytest.raises(UserError) as caught:
        find(environ(), command, patience=1.5)
    assert str(caught.value) == (
        "nothing renders here: apt-get install libosmesa6, or libegl1 where there is a GPU "
        "(egl: no answer within 2 s; osmesa: no such thing)"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere windows are the only way")
def test_windows_are_tried_last_and_only_where_there_is_a_screen(fake):
    command = fake(egl="sys.exit(1)", osmesa="sys.exit(1)", glfw="renders()")
    assert find(environ(DISPLAY=":0"), command)[0].backend == "glfw"
    assert [line.split()[0] for line in fake.asked()] == ["egl", "osmesa", "glfw"]


def test_a_users_choice_is_the_only_one_tried(fake):
    command = fake(egl="renders()", osmesa="sys.exit('broken')", glfw="renders()")
    assert find(environ(MUJOCO_GL="glfw"), command)[0].backend == "glfw"
    with pytest.raises(UserError, match="MUJOCO_GL=osmesa does not render here"):
        find(environ(MUJOCO_GL="osmesa"), command)
    assert fake.asked() == ["glfw None", "osmesa None"]


@pytest.mark.parametrize(
    ("more", "asked", "pinned"),
    [
        ({"CUDA_VISIBLE_DEVICES": "2,0"}, ["egl 2"], "2"),
        ({"CUDA_VISIBLE_DEVICES": "3"}, ["egl 3", "egl None"], None),  # EGL sees fewer
        ({"CUDA_VISIBLE_DEVICES": "2", "MUJOCO_EGL_DEVICE_ID": "1"}, ["egl 1"], None),
        ({"CUDA_VISIBLE_DEVICES": ""}, ["egl None"], None),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8f9a", "LP_NUM_THREADS": "2"}, ["egl None"], None),
    ],
)
def test_the_gpu_of_the_training_is_the_one_that_renders(fake, more, asked, pinned):
    command = fake(egl="sys.exit('no such device') if device == '3' else renders()")
    found, settings = find(environ(**more), command)
    assert fake.asked() == asked and settings.get("MUJOCO_EGL_DEVICE_ID") == pinned
    assert ("EGL device 2" in found.note) == (pinned == "2")
    assert settings["LP_NUM_THREADS"] == more.get("LP_NUM_THREADS", "0")


def test_without_mujoco_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(UserError, match=r"pip install 'vcrl\[dmc\]'"):
        find(environ())


CAMERAS = """
import json, sys
from vcrl.envs import rendering
rendering.choose()
import mujoco, numpy as np
def scene(colour):
    model = mujoco.MjModel.from_xml_string(rendering.SCENE.replace("1 .1 .1 1", colour))
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return model, data
def shot(camera, world):
    picture = np.zeros((64, 64, 3), np.uint8)
    camera.take(*world, picture)
    return picture
red, blue = scene("1 .1 .1 1"), scene(".1 .1 1 1")
"""


def test_cameras_do_not_disturb_each_other(renderer):
    """What a camera frees is found by number in whatever context is current; another's pictures went black."""
    tried = 0
    for backend in dict.fromkeys((renderer.backend, "osmesa")):
        done = python(
            CAMERAS + "a, b = rendering.Camera(red[0], 64), rendering.Camera(red[0], 64)\n"
            "one, two = shot(a, red), shot(b, blue)\n"
            "a = rendering.Camera(red[0], 64)\n"  # and the first is gone
            "assert (shot(b, red) == one).all() and (shot(a, blue) == two).all()\n"
            "a.close(); a.close()\n"
            "assert (shot(b, blue) == two).all()\n"
            "middle = [one[32, 32].tolist(), two[32, 32].tolist(), one[0, 0].tolist(), one[63, 0].tolist()]\n"
            "print(json.dumps(middle))\n",  # b is left open: leaving must not be noisy
            MUJOCO_GL=backend,
        )
        if backend != renderer.backend and "does not render here" in done.stderr:
            continue
        assert done.returncode == 0 and done.stderr == "", done.stderr
        ball, other, top, floor = json.loads(done.stdout)
        assert ball[0] > 2 * ball[2] and other[2] > 2 * other[0], "red in one lane and blue in another"
        assert top != floor
        tried += 1
    assert tried


def test_mujoco_imported_too_early_is_an_error_and_no_black_picture(renderer):
    if renderer.backend == "glfw":
        pytest.fail("this test needs EGL or OSMesa: make gl")
    done = python(
        "import mujoco, os, sys\nfrom vcrl.envs import rendering\n"
        f"os.environ['MUJOCO_GL'] = {renderer.backend!r}\n"
        "model = mujoco.MjModel.from_xml_string(rendering.SCENE)\n"
        "try:\n    rendering.Camera(model, 64)\nexcept rendering.UserError as error:\n    print(error)\n"
    )
    assert f"set MUJOCO_GL={renderer.backend} before Python starts" in done.stdout, done.stderr
    assert done.stderr == ""


def test_the_module_itself_answers():
    done = subprocess.run(
        [sys.executable, "-m", "vcrl.envs.rendering"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and done.stdout.startswith("rendering by "), done.stderr
    assert np.isfinite(rendering.choose().fps)
