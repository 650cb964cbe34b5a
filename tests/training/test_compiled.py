"""Where compiled programs are kept."""

import jax
import pytest

from vcrl.training.engine import keep_compiled


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
