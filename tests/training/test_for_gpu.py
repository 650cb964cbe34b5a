"""What a GPU would be given, as far as a CPU can tell: every family's learning is lowered for one, kernels included."""

import jax
import numpy as np
import pytest

from vcrl.nets import tiles
from vcrl.training import engine
from vcrl.training.lift import no_row
from vcrl.training.plan import make_plan


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "task"),
    [
        *((m, "pong") for m in ("rainbow", "der", "otr", "curl", "drq", "playvirtual", "spr-reward", "vcr")),
        *((m, "catch") for m in ("rainbow", "vcr")),
        *((m, "reach") for m in ("sac", "vcr")),
    ],
)
def test_learning_is_lowered_with_kernels_and_no_convolution_of_the_library(
    monkeypatch, lowered, method, task
):
    text = learning(monkeypatch, lowered, method, task)
    assert text.count("xla.gpu.triton") > 3
    assert "stablehlo.convolution" not in text


@pytest.mark.slow
def test_large_images_are_seen_and_learned_from_by_kernels(monkeypatch, lowered):
    """Of all seeds at once: seven looks by four layers and a trunk, two of them with a gradient; the actor's trunk."""
    text = learning(monkeypatch, lowered, "vcr", "cartpole-swingup")
    # Back, to every weight and to what it was seen with: to images too, which nobody reads and the compiler may drop.
    assert text.count("xla.gpu.triton") == 7 * (4 + 1) + 2 * (4 + 4) + 1
    assert "stablehlo.convolution" not in text and "stablehlo.while" not in text
    products = [line for line in text.splitlines() if "stablehlo.dot_general" in line]
    assert not any("x78400xf16>, tensor<2x78400x50xf16>)" in line for line in products)
    assert any("(tensor<2x512x50xf16>, tensor<2x78400x50xf16>)" in line for line in products)
    # What is kept of a crop is bytes; where no gradient is wanted, the first layer reads those of the whole image.
    barriers = [line for line in text.splitlines() if "stablehlo.optimization_barrier" in line]
    assert any("<2x512x84x84x9xui8>" in line for line in barriers)
    assert any("<2x512x100x100x9xui8>" in line for line in barriers)


@pytest.mark.slow
def test_large_images_are_learned_from_by_the_library_where_there_are_no_kernels(monkeypatch, lowered):
    """One seed after the other: back through four layers, whose first has no images to send a gradient to."""
    monkeypatch.setattr(tiles, "obstacle", lambda: "it is old")
    text = learning(monkeypatch, lowered, "vcr", "cartpole-swingup")
    assert "xla.gpu.triton" not in text and "stablehlo.while" in text
    assert text.count("stablehlo.convolution") == 7 * 4 + 2 * (4 + 3)
    products = [line for line in text.splitlines() if "stablehlo.dot_general" in line]
    assert any("<512x78400xf16>, tensor<78400x50xf16>)" in line for line in products)


def learning(monkeypatch, lowered, method, task):
    """The program of an update, as a GPU would be given it."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(tiles, "interpreted", lambda: False)
    monkeypatch.setattr(engine, "keep_compiled", lambda: None)
    monkeypatch.setattr(engine, "_engines", {})
    plan = make_plan(method, task, range(2), None, {"replay.capacity": 500})
    lifted, seeds = engine.engine_of(plan).lifted, np.arange(2, dtype=np.int32)
    state, replay = jax.eval_shape(lifted.init, seeds), jax.eval_shape(lifted.empty, seeds)
    return lowered(lifted.learn, state, replay, no_row(plan.task.spec, 2), np.zeros(4, np.int32), seeds)
