"""Pictures without a screen: which OpenGL works here, found out before MuJoCo is imported, and a camera.

MuJoCo settles on a way to render when it is imported, and a wrong one may crash or hang its process. So a child process
tries one way after the other, and what worked is written into the environment, for this process and those it starts.

    python -m vcrl.envs.rendering       says what works here, and how fast it is
"""

import atexit
import contextlib
import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from vcrl.core.errors import UserError

SIZE = 100  # pixels on a side of the pictures that are timed
PATIENCE = 60.0  # seconds until a child that does not answer is given up
PROBE = (sys.executable, "-m", "vcrl.envs.rendering", "--probe")
INSTALL = "apt-get install libosmesa6, or libegl1 where there is a GPU"
NAMES = {"egl": "EGL", "osmesa": "OSMesa", "glfw": "GLFW"}
SOFTWARE = ("llvmpipe", "softpipe", "swrast")  # what Mesa calls itself without a GPU

SCENE = """
<mujoco>
  <asset><texture name="floor" type="2d" builtin="checker" rgb1=".1 .2 .3" rgb2=".2 .3 .4" width="64" height="64"/>
    <material name="floor" texture="floor" texrepeat="4 4"/></asset>
  <worldbody><light pos="0 -1 3"/><camera pos="0 -2 2" xyaxes="1 0 0 0 1 1"/>
    <geom type="plane" size="3 3 .1" material="floor"/>
    <geom type="sphere" size=".5" pos="0 0 .1" rgba="1 .1 .1 1"/></worldbody>
</mujoco>
"""


class Rendering(NamedTuple):
    backend: str  # egl, osmesa or glfw
    fps: float  # frames a second of a small scene, in one process
    note: str  # one line for the console


@cache
def choose() -> Rendering:
    """Find what renders and set the environment by it; to be called before anything imports MuJoCo."""
    rendering, settings = find(os.environ)
    os.environ.update(settings)
    return rendering


def find(
    environ: Mapping[str, str], command: tuple[str, ...] = PROBE, patience: float = PATIENCE
) -> tuple[Rendering, dict[str, str]]:
    """The first way that renders, and the environment variables it takes."""
    if importlib.util.find_spec("mujoco") is None:
        raise UserError("rendering needs mujoco, which is not installed: pip install 'vcrl[dmc]'")
    failed: list[str] = []
    for settings in _ways(environ):
        said = _try({**environ, **settings}, command, patience)
        if isinstance(said, dict):
            return _told(settings, said), settings
        failed.append(f"{settings['MUJOCO_GL']}: {said}")
    why = "; ".join(dict.fromkeys(failed))
    if environ.get("MUJOCO_GL"):
        raise UserError(
            f"MUJOCO_GL={environ['MUJOCO_GL']} does not render here: unset it, or {INSTALL} ({why})"
        )
    raise UserError(f"nothing renders here: {INSTALL} ({why})")


def _ways(environ: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """What to try, best first; a user's own variables stay as they are."""
    # Mesa's own threads make so small a picture no faster, and crowd the processes of other lanes.
    common = {"LP_NUM_THREADS": environ.get("LP_NUM_THREADS", "0")}
    here = ["egl", "osmesa"] if sys.platform == "linux" else ["glfw"]
    if sys.platform == "linux" and environ.get("DISPLAY"):
        here.append("glfw")
    for backend in [environ["MUJOCO_GL"]] if environ.get("MUJOCO_GL") else here:
        way = {"MUJOCO_GL": backend, **common}
        gpu = environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
        if backend == "egl" and gpu.isdigit() and "MUJOCO_EGL_DEVICE_ID" not in environ:
            yield {**way, "MUJOCO_EGL_DEVICE_ID": gpu}
            # In a container EGL may see fewer devices than CUDA counts: then whichever there is.
        yield way


def _try(environ: Mapping[str, str], command: tuple[str, ...], patience: float) -> dict[str, Any] | str:
    """What a child says of its first pictures, or why there were none."""
    paths = os.pathsep.join(filter(None, sys.path))
    child = subprocess.Popen(
        command,
        env={**environ, "PYTHONPATH": paths},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        out, err = child.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        # One that hangs inside a driver cannot even be killed: then it is left behind.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=5)
        return f"no answer within {patience:.0f} s"
    if child.returncode == 0:
        with contextlib.suppress(ValueError, IndexError):
            return dict(json.loads(out.splitlines()[-1]))
    last = [line.strip() for line in err.splitlines() if line.strip()][-1:]
    return last[0][:120] if last else f"exit code {child.returncode}"


def _told(settings: Mapping[str, str], said: Mapping[str, Any]) -> Rendering:
    backend, fps, device = settings["MUJOCO_GL"], float(said["fps"]), str(said["device"])
    pinned = settings.get("MUJOCO_EGL_DEVICE_ID")
    where = f"{device}, EGL device {pinned}" if pinned else device
    slow = ", in software: slow" if any(name in device.lower() for name in SOFTWARE) else ""
    name = NAMES.get(backend, backend)
    return Rendering(backend, fps, f"rendering by {name} ({where}{slow}), {fps:,.0f} frames/s a process")


class Camera:
    """Camera 0 of a model, by an OpenGL context of its own that all lanes of a process share.

    A context takes 100 MB and half a second. Lanes differ in where things are, and in colours and sizes, all of which
    belong to a scene; the context holds what they have in common, meshes and textures.
    """

    def __init__(self, model: Any, size: int):
        mujoco = importlib.import_module("mujoco")
        self._gl: Any = None
        self._context: Any = None
        self._mujoco, self._rect = mujoco, mujoco.MjrRect(0, 0, size, size)
        self._upside_down = np.zeros((size, size, 3), np.uint8)
        self._scene, self._option = mujoco.MjvScene(model, 10_000), mujoco.MjvOption()
        self._option.flags[mujoco.mjtVisFlag.mjVIS_RANGEFINDER] = False  # as dm_control has it
        self._view, self._perturb = mujoco.MjvCamera(), mujoco.MjvPerturb()
        self._view.type, self._view.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, 0
        self._gl = _own_backend(mujoco)(size, size)
        self._gl.make_current()
        self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_150.value)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._context)
        # After the library's own, so that it is called before: the display must still be there.
        me = weakref.ref(self)
        atexit.register(lambda: (camera := me()) and camera.close())

    def take(self, model: Any, data: Any, out: np.ndarray) -> None:
        """A picture of one lane, into `out`."""
        mujoco, scene = self._mujoco, self._scene
        every = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(model, data, self._option, self._perturb, self._view, every, scene)
        self._gl.make_current()
        for field in range(model.nhfield):  # the one thing in the context that a task changes at a reset
            mujoco.mjr_uploadHField(model, self._context, field)
        mujoco.mjr_render(self._rect, scene, self._context)
        mujoco.mjr_readPixels(self._upside_down, None, self._rect, self._context)
        out[...] = self._upside_down[::-1]

    def close(self) -> None:
        """Give back the context; in its own, since what is freed is found by number in the current one."""
        if self._gl is not None and self._context is not None:
            self._gl.make_current()
            self._context.free()
        if self._gl is not None:
            self._gl.free()
        self._gl = self._context = None

    __del__ = close


def _own_backend(mujoco: Any) -> Any:
    """The context class of this process, which was settled when MuJoCo was imported."""
    wanted, found = os.environ.get("MUJOCO_GL", ""), getattr(mujoco, "GLContext", None)
    if found is None:
        raise UserError(f"MUJOCO_GL={wanted} tells MuJoCo not to render: unset it")
    if wanted in NAMES and not found.__module__.endswith(wanted):
        raise UserError(
            f"MuJoCo was imported before a way to render was chosen: set MUJOCO_GL={wanted} before Python starts"
        )
    return found


def _probe() -> None:
    """The child: take pictures, and say how fast and by which device."""
    mujoco = importlib.import_module("mujoco")
    model = mujoco.MjModel.from_xml_string(SCENE)
    data, picture = mujoco.MjData(model), np.zeros((SIZE, SIZE, 3), np.uint8)
    mujoco.mj_forward(model, data)
    camera = Camera(model, SIZE)
    camera.take(model, data, picture)
    red, green, _ = picture[SIZE // 2, SIZE // 2].tolist()
    if red < 2 * green or red < 50:
        raise RuntimeError("the picture is wrong: it does not show the red ball")
    GL = importlib.import_module("OpenGL.GL")
    device = GL.glGetString(GL.GL_RENDERER).decode().split("/")[0].split(" (")[0]
    taken, began = 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < 0.5:
        camera.take(model, data, picture)
        taken += 1
    camera.close()
    print(json.dumps({"fps": taken / spent, "device": device}))


if __name__ == "__main__":
    if "--probe" in sys.argv:
        _probe()
    else:
        try:
            print(choose().note)
        except UserError as error:
            sys.exit(str(error))
