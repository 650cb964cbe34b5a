"""A seed whose weights are no longer numbers; the others do not notice."""

import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console
from tiny import tiny

from vcrl.runs import checkpoint
from vcrl.training import loop


@pytest.mark.drill("a seed diverges")
def test_a_seed_diverges(tmp_path, monkeypatch, tell):
    clean, said = tiny(tmp_path / "clean"), io.StringIO()
    tick = loop.tick

    def poisoned(plan, engine, training):
        came = tick(plan, engine, training)
        if training.tick == 55:
            training.state = jax.tree.map(
                lambda x: x.at[0].set(jnp.nan) if x.dtype == jnp.float32 else x, training.state
            )
        return came

    monkeypatch.setattr(loop, "tick", poisoned)
    # Stopped and resumed in between: what was good is in the checkpoint.
    halted = tiny(tmp_path / "ill", log=Console(file=said, width=300), halt=lambda now: now == 65)
    found = checkpoint.load(halted.path / "checkpoint", pytest.fail)
    assert found is not None
    assert any(not np.isfinite(a[0]).all() for n, a in found.arrays.items() if n.startswith("state"))
    assert all(np.isfinite(a[0]).all() for n, a in found.arrays.items() if n.startswith("good"))
    ill = tiny(tmp_path / "ill")
    assert ill.folder.status["state"] == "done"
    assert (
        ill.folder.status["not_finite_since"] == {"3": 60} and clean.folder.status["not_finite_since"] == {}
    )
    one, two = (checkpoint.load(run.path / "checkpoint", pytest.fail) for run in (clean, ill))
    for name, array in one.arrays.items():
        if name.startswith("state"):
            np.testing.assert_array_equal(array[1], two.arrays[name][1], err_msg=name)
    assert all(np.isfinite(a[0]).all() for n, a in two.arrays.items() if n.startswith("state"))
    mine, theirs = ([g for g in run.folder.evaluations() if g.seed == 5] for run in (clean, ill))
    assert mine == theirs and len({g.seed for g in ill.folder.evaluations() if g.agent_steps == 80}) == 2
    line = next(line for line in said.getvalue().splitlines() if "no longer finite" in line)
    tell(
        "all weights of one seed become NaN",
        "its last finite weights, which are scored and marked; the other seed is bit for bit the same",
        line,
    )
