"""A forecast where a training would take hours, and silence elsewhere."""

import jax
import jax.numpy as jnp

from vcrl.nets import kernels
from vcrl.runs import rates
from vcrl.training import forecast as f
from vcrl.training.engine import engine_of
from vcrl.training.plan import make_plan


def asked(method, task, out, always=False, behind=0, **changes):
    plan = make_plan(method, task, seeds=[0], changes=changes)
    return list(f.outlook(plan, engine_of(plan).lifted, out, always, behind))


def test_hours_on_a_cpu_are_announced_with_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(rates, "speed", lambda: rates.CORES_SPEED / 2)
    # By the table two seconds in a thousand steps, 30 ms for each of two updates a step, half a minute to start and
    # one for the games at the end: and twice that on a CPU half as fast.
    hours = 2 * (30 + 200 + 2 * 98_000 * 0.03 + 60) / 3600
    (told,) = asked("rainbow", "pong", tmp_path)
    assert f"no GPU found: about {hours:.1f} h, by two CPU cores and the speed of this CPU." in told
    assert "jax[cuda13]" in told and "vcrl demo" in told
    # Of what is left: half the steps, or nothing but the games.
    (told,) = asked("rainbow", "pong", tmp_path, behind=50_000)
    assert f"about {2 * (30 + 100 + 2 * 50_000 * 0.03 + 60) / 3600:.1f} h" in told
    assert asked("rainbow", "pong", tmp_path, always=True, behind=100_000)[0].startswith("about 3 min, by")


def test_other_settings_are_forecast_by_their_arithmetic(monkeypatch, tmp_path):
    plan = make_plan("rainbow", "pong", seeds=[0], changes={"hidden": 255})
    counted = f.flop(plan, engine_of(plan).lifted)
    # 32 images with gradient, 64 without, at 2 x 7.7 million multiplications each, and three times that with gradient,
    # make 2.5 billion; the heads add some.
    assert 2.5e9 < counted < 4e9
    monkeypatch.setattr(f, "speed", lambda: 100e9)
    (told,) = asked("rainbow", "pong", tmp_path, hidden=255)
    assert asked("rainbow", "pong", tmp_path, behind=100_000, hidden=255) == []
    assert f"about {2 * 98_000 * counted / 60e9 / 3600:.1f} h, by the arithmetic of learning" in told


def test_a_gpu_is_told_how_long_it_takes_and_what_it_lacks(monkeypatch, tmp_path):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr("vcrl.training.forecast.obstacle", lambda: None)
    seconds = rates.table_seconds("atari", "gpu", "vcr", "pong", 1, 100_000)
    assert asked("vcr", "pong", tmp_path) == [f"about {seconds / 60:.0f} min, by one H200"]
    assert asked("vcr", "pong", tmp_path, hidden=255) == []  # nobody has measured that
    monkeypatch.setattr("vcrl.training.forecast.obstacle", lambda: "it is old")
    for task in ("pong", "cartpole-swingup"):
        assert asked("vcr", task, tmp_path)[1:] == [
            "without kernels for convolutions an update takes longer: it is old"
        ]


def test_products_and_convolutions_are_counted_in_every_turn_of_a_loop():
    def program(x, image, kernel):
        y = jax.lax.map(lambda row: row @ x, jnp.stack([x] * 7))  # 7 products of 3x3 matrices: 2 x 27 each
        forms = ("NHWC", "HWIO", "NHWC")
        z = jax.lax.conv_general_dilated(image, kernel, (1, 1), "VALID", dimension_numbers=forms)
        # 2x2 places with 5 outputs of 3x3x4 products each; and of two branches the one that takes longer
        w = jax.lax.cond(x[0, 0] > 0, lambda x: x @ x @ x, lambda x: x, x)
        return y.sum() + z.sum() + w.sum()

    image, kernel = jnp.ones((1, 4, 4, 4)), jnp.ones((3, 3, 4, 5))
    jaxpr = jax.make_jaxpr(jax.jit(program))(jnp.ones((3, 3)), image, kernel).jaxpr
    assert f.products(jaxpr) == 7 * 54 + 2 * 4 * 5 * 36 + 2 * 54


def test_a_kernel_counts_at_every_point_of_its_grid():
    """256 places with 16 outputs of 3x3x16 products each, 64 places a program."""
    x, weight = jnp.zeros((4, 10, 10, 16), jnp.float16), jnp.zeros((3, 3, 16, 16))
    jaxpr = jax.make_jaxpr(lambda weight, x: kernels.convolve(1, weight, x))(weight, x)
    assert f.products(jaxpr) == 2 * 256 * 16 * 144


def test_short_trainings_are_forecast_where_one_asks(monkeypatch, tmp_path):
    monkeypatch.setattr(rates, "speed", lambda: rates.CORES_SPEED)
    assert asked("vcr", "catch", tmp_path) == []
    seconds = rates.table_seconds("toy", "cpu", "vcr", "catch", 1, 2000)
    assert asked("vcr", "catch", tmp_path, always=True) == [
        f"about {seconds:.0f} s, by two CPU cores and the speed of this CPU"
    ]
    assert asked("vcr", "catch", tmp_path, always=True, hidden=31) == []  # small pictures: no product decides
    monkeypatch.setattr(f, "speed", lambda: 1e15)
    assert asked("rainbow", "pong", tmp_path, hidden=255) == []
