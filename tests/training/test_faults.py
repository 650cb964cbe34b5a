"""A seed that diverges is marked and kept; the others do not notice."""

import io
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console as Rich
from tiny import CHANGES, SCHEDULE

from vcrl.runs.folder import RunFolder
from vcrl.training import loop
from vcrl.training.console import Console
from vcrl.training.engine import Training, engine_of
from vcrl.training.memory import out_of_memory
from vcrl.training.plan import make_plan
from vcrl.training.watch import Watch

pytestmark = pytest.mark.usefixtures("quick_compiles")


def run(tmp_path, poison_at: int | None):
    plan = make_plan("vcr", "catch", (3, 5), 80, CHANGES, SCHEDULE)
    engine, said = engine_of(plan), io.StringIO()
    training = Training(plan, engine)
    with (
        RunFolder.open(tmp_path, plan.identity) as folder,
        Console("x", plan.seeds, 80, Rich(file=said, width=300)) as console,
    ):
        watch = Watch(plan, engine, folder, console)
        while training.tick < 80:
            watch.after(training, *loop.tick(plan, engine, training))
            if training.tick == poison_at:
                training.state = jax.tree.map(
                    lambda x: x.at[0].set(jnp.nan) if x.dtype == jnp.float32 else x, training.state
                )
        watch.finish(training)
    return training, said.getvalue(), RunFolder.read(tmp_path)


def test_a_seed_that_is_no_longer_finite_is_marked_kept_and_scored(tmp_path):
    clean, _, before = run(tmp_path / "clean", None)
    ill, said, after = run(tmp_path / "ill", 55)
    assert after.status["not_finite_since"] == {"3": 60} and before.status["not_finite_since"] == {}
    assert said.count("seed 3 is no longer finite at 60 agent steps") == 1

    def lane(tree, i):
        return [np.asarray(x)[i] for x in jax.tree.leaves(tree)]

    for a, b in zip(lane(ill.state, 1), lane(clean.state, 1), strict=True):
        np.testing.assert_array_equal(a, b)  # the other seed: bit for bit
    assert not all(np.isfinite(x).all() for x in lane(ill.state, 0))
    assert all(np.isfinite(x).all() for x in lane(ill.good, 0))
    for a, b in zip(lane(ill.trusted(), 0), lane(ill.good, 0), strict=True):
        np.testing.assert_array_equal(a, b)
    scored = {row.seed for row in after.evaluations() if row.agent_steps == 80}
    assert scored == {3, 5}  # no seed is dropped
    healthy = [r for r in after.evaluations() if r.seed == 5]
    assert healthy == [r for r in before.evaluations() if r.seed == 5]
    last = after.metrics()[-1]
    assert np.isnan(last["loss/rl"][0]) and np.isfinite(last["loss/rl"][1])


HUGE = 2**46  # bytes, which no computer has


@pytest.mark.parametrize(
    "ask",
    [
        lambda: jnp.zeros(HUGE, jnp.uint8),
        lambda: jax.jit(lambda x: jnp.full(HUGE, x))(np.uint8(1)),
        lambda: np.ones(HUGE, np.uint8),
    ],
    ids=["an array", "a compiled function", "numpy"],
)
def test_memory_that_is_refused_is_told_as_that(ask):
    with pytest.raises(Exception) as caught:
        ask()
    assert "out of memory: what was saved is kept" in str(out_of_memory(caught.value))
    assert out_of_memory(ValueError("something else")) is None


AGAIN = """
import resource
import jax, jax.numpy as jnp
from vcrl.training.memory import out_of_memory

fill, one = jax.jit(lambda x: jnp.broadcast_to(x, 2**27)), jnp.uint8(1)
fill(one).block_until_ready()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**24, resource.RLIM_INFINITY))
try:
    fill(one)
except Exception as error:
    print(out_of_memory(error))
"""


@pytest.mark.needs(sys.platform == "linux")
def test_memory_that_is_refused_to_a_function_that_had_it_before():
    done = subprocess.run([sys.executable, "-c", AGAIN], capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith("out of memory: what was saved is kept"), done
