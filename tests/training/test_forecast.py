"""A forecast where a training would take hours, and silence elsewhere."""

import jax

from vcrl.training import forecast as f
from vcrl.training.engine import engine_of
from vcrl.training.plan import make_plan


def test_hours_on_a_cpu_are_announced_with_what_to_do(monkeypatch):
    plan = make_plan("rainbow", "pong", seeds=[0])
    lifted = engine_of(plan).lifted
    monkeypatch.setattr(f, "speed", lambda: 100e9)
    counted = f.flop(plan, lifted)
    # 32 images with gradient, 64 without, at 2 x 8.3 million multiplications each, and three times that with gradient,
    # make 2.7 billion; the heads add some.
    assert 2e9 < counted < 6e9
    hours = 2 * 98_000 * counted / 60e9 / 3600
    told = f.forecast(plan, lifted)
    assert told is not None and "jax[cuda13]" in told and "vcrl demo" in told
    assert f"about {int(hours)}:" in told
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert f.forecast(plan, lifted) is None


def test_short_trainings_and_small_games_are_not(monkeypatch):
    monkeypatch.setattr(f, "speed", lambda: 1.0)
    plan = make_plan("vcr", "catch", seeds=[0])
    assert f.forecast(plan, engine_of(plan).lifted) is None
    monkeypatch.setattr(f, "speed", lambda: 1e15)
    plan = make_plan("rainbow", "pong", seeds=[0])
    assert f.forecast(plan, engine_of(plan).lifted) is None
