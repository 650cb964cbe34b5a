"""Where compiled programs are kept, and how many."""

import gc
import sys

import jax
import numpy as np
import pytest
from tiny import CHANGES

from vcrl.training import engine
from vcrl.training.engine import engine_of, keep_compiled
from vcrl.training.plan import make_plan


@pytest.fixture
def chosen(monkeypatch, tmp_path):
    """What would have been set, on a pretended GPU with nothing chosen yet."""
    before, places = jax.config.jax_compilation_cache_dir, dict[str, str]()
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with monkeypatch.context() as m:
        m.setattr(jax.config, "update", places.__setitem__)
        yield places
    jax.config.update("jax_compilation_cache_dir", before)


def test_programs_for_a_gpu_are_kept_in_the_users_cache(chosen, tmp_path):
    keep_compiled()
    assert chosen == {"jax_compilation_cache_dir": str(tmp_path / "vcrl" / "compiled")}


def test_nothing_is_kept_for_a_cpu(chosen, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    keep_compiled()
    assert chosen == {}


def plan_of(batch):
    return make_plan("vcr", "catch", (0,), 80, CHANGES | {"batch": batch})


def test_the_engines_used_last_are_kept(monkeypatch):
    monkeypatch.setattr(engine, "_engines", {})
    monkeypatch.setattr(engine, "KEPT", 8)
    first, second = engine_of(plan_of(1)), engine_of(plan_of(2))
    for batch in range(3, 10):
        engine_of(plan_of(batch))
        assert engine_of(plan_of(1)) is first
    assert len(engine._engines) == 8
    assert engine_of(plan_of(1)) is first and engine_of(plan_of(2)) is not second


@pytest.mark.slow
@pytest.mark.needs(sys.platform == "linux")
def test_many_configs_in_one_process_do_not_use_up_its_mappings(monkeypatch):
    """Linux ends a process that has 65,530 of them."""
    monkeypatch.setattr(engine, "_engines", {})
    monkeypatch.setattr(engine, "KEPT", 2)
    held: list[int] = []
    for hidden in range(4, 9):
        plan = make_plan("vcr", "catch", (0,), 80, CHANGES | {"hidden": hidden})
        engine_of(plan).lifted.init(np.array([0], np.int32))
        gc.collect()
        with open("/proc/self/maps") as file:
            held.append(len(file.readlines()))
    one = max(held[1] - held[0], 1)
    assert held[-1] - held[1] < 2 * one, held
