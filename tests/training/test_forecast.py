"""A forecast where a training would take hours, and silence elsewhere."""

import jax
import jax.numpy as jnp

from vcrl.training import forecast as f
from vcrl.training.engine import engine_of
from vcrl.training.plan import make_plan


def test_hours_on_a_cpu_are_announced_with_what_to_do(monkeypatch):
    plan = make_plan("rainbow", "pong", seeds=[0])
    lifted = engine_of(plan).lifted
    monkeypatch.setattr(f, "speed", lambda: 100e9)
    counted = f.flop(plan, lifted)
    # 32 images with gradient, 64 without, at 2 x 7.7 million multiplications each, and three times that with gradient,
    # make 2.5 billion; the heads add some.
    assert 2.5e9 < counted < 4e9
    hours = 2 * 98_000 * counted / 60e9 / 3600
    told = f.forecast(plan, lifted)
    assert told is not None and "jax[cuda13]" in told and "vcrl demo" in told
    assert f"about {int(hours)}:" in told
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert f.forecast(plan, lifted) is None
    monkeypatch.setattr("vcrl.nets.kernels.triton", None)
    told = f.forecast(plan, lifted)
    assert told is not None and "without kernels" in told and "which JAX 0.11 has" in told


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


def test_short_trainings_and_small_games_are_not(monkeypatch):
    monkeypatch.setattr(f, "speed", lambda: 1.0)
    plan = make_plan("vcr", "catch", seeds=[0])
    assert f.forecast(plan, engine_of(plan).lifted) is None
    monkeypatch.setattr(f, "speed", lambda: 1e15)
    plan = make_plan("rainbow", "pong", seeds=[0])
    assert f.forecast(plan, engine_of(plan).lifted) is None
