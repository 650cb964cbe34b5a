"""The objectives can be taken into any agent without the rest of the package."""

import subprocess
import sys

PROGRAM = """
from vcrl.objectives import value_consistency
import sys
import jax.numpy as jnp
from vcrl.objectives import squared_error

one, none = jnp.ones((1, 1, 2)), jnp.zeros((1, 1, 0, 2))
loss, _ = value_consistency(one, 3 * one, none, none, none[..., 0], one[..., 0], distance=squared_error)
print(float(loss[0]))
print(*sorted(m for m in sys.modules if m.split(".")[0] == "vcrl"))
"""


def test_value_consistency_brings_nothing_else_along():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    value, modules = done.stdout.splitlines()
    assert float(value) == 8.0  # (1-3)^2 for both critics
    ours = {m for m in modules.split() if not m.startswith("vcrl.objectives.")}
    assert ours == {"vcrl", "vcrl.objectives"}
