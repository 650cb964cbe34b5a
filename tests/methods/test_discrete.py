"""The methods as values: every one resolves, survives JSON, and differs from its parent in what it says."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vcrl.agents.rainbow import make_rainbow
from vcrl.core.config import change, diff, from_json, paths, to_json
from vcrl.core.protocol import Protocol
from vcrl.core.spec import Discrete, EnvSpec
from vcrl.core.types import Clock, Segment
from vcrl.methods.configs import CODE, OURS, PAPER, Augment, Categorical, RainbowConfig, Scalar, Slow
from vcrl.methods.discrete import FAMILY
from vcrl.methods.show import source_of

METHODS, SUITES, TASKS = FAMILY.methods, FAMILY.suites, FAMILY.tasks
lineage, resolve = FAMILY.lineage, FAMILY.resolve

TABLE = ["rainbow", "der", "der-original", "otr", "curl", "drq", "drq-eps", "spr", "playvirtual", "vcr"]
ABLATIONS = [
    "vcr-mse", "vcr-mse-a", "vcr-k9", "vcr-lambda-0", "vcr-lambda-0.2", "vcr-lambda-1.0", "vcr-no-noise",
    "vcr-absorb", "spr-reward", "spr-l", "spr-xl", "spr-no-prediction",
]  # fmt: skip
by_method = pytest.mark.parametrize("name", METHODS)


def test_all_methods_of_the_table_and_all_ablations_are_there():
    assert set(METHODS) == {*TABLE, *ABLATIONS}


@by_method
@pytest.mark.parametrize("suite", [None, *SUITES])
def test_a_config_survives_json(name: str, suite: str | None):
    config = resolve(name, suite)
    assert from_json(RainbowConfig, to_json(config)) == config


@by_method
def test_a_change_changes_something_and_says_where_it_comes_from(name: str):
    m = METHODS[name]
    config = resolve(m.of) if m.of else RainbowConfig()
    for path, (value, source) in m.changes.items():
        assert source in (PAPER, CODE, OURS)
        after = change(config, path, value)
        # Some ablations name a number that their parent has already.
        assert after != config or (name, path) in {
            ("vcr-lambda-0.2", "terms.vcr.weight"),
            ("vcr-k9", "terms.spr.over"),
        }
        config = after
    assert config == resolve(name)
    assert m.about and not m.about.endswith(".")


@by_method
@pytest.mark.parametrize("suite", [None, *SUITES])
def test_every_value_has_a_source(name: str, suite: str | None):
    config = resolve(name, suite)
    sources = source_of(name, config, suite)
    assert sources.keys() == paths(config).keys()
    assert "changed for this run" not in sources.values()
    for path, (_, source) in dict(lineage(name)).items():
        if path in sources and suite is None:
            assert sources[path] == source


# The numbers of the table, as a reader of the references would check them.
NUMBERS: dict[str, dict[str, Any]] = {
    "der": {
        "encoder": "nature-same", "renormalise": False, "init": "xavier", "head": "shared", "hidden": 512,
        "noise": 0.1, "n_step": 10, "learn_start": 1600, "updates_per_step": 1, "target": Slow(1.0, 2000),
        "epsilon_start": 0.0, "epsilon": 0.0, "double": True, "augment": Augment(), "value": Categorical(),
    },
    "der-original": {
        "encoder": "data-efficient", "renormalise": False, "init": "torch", "head": "streams", "hidden": 256,
        "head_gradient": 1.0, "noise": 0.1, "n_step": 20, "learn_start": 1600, "updates_per_step": 1,
        "target": Slow(1.0, 2000), "epsilon_start": 0.0,
    },
    "otr": {
        "head": "plain", "noise": None, "double": False, "n_step": 3, "learn_start": 20_000, "updates_per_step": 8,
        "target": Slow(1.0, 4000), "epsilon_start": 1.0, "epsilon": 0.01, "epsilon_decay": 50_000,
        "value": Categorical(),
    },
    "curl": {"encoder": "data-efficient", "n_step": 20, "augment": Augment()},
    "drq-eps": {
        "head": "shared", "noise": None, "double": True, "n_step": 10, "value": Scalar(), "target": Slow(),
        "epsilon": 0.01, "epsilon_decay": 5000, "eval_epsilon": None, "augment": Augment(4, 0.05), "learn_start": 1600,
    },
    "drq": {"epsilon": 0.1, "eval_epsilon": 0.05, "epsilon_decay": 5000},
    "playvirtual": {"noise": 0.1, "n_step": 10, "updates_per_step": 2, "augment": Augment(4, 0.05)},
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_the_numbers_of_the_references(name: str):
    config = resolve(name)
    assert {path: getattr(config, path) for path in NUMBERS[name]} == NUMBERS[name]


def test_replay_and_clipping_of_the_references():
    def told(name: str) -> tuple[Any, ...]:
        p, clip = resolve(name).replay.priority, resolve(name).adam.clip
        return (clip, *(() if p is None else (p.exponent, p.correction, p.of, p.new)))

    assert told("rainbow") == told("playvirtual") == (10.0, 0.5, (0.4, 1.0), "divergence", "one")
    assert told("der") == told("otr") == (None, 0.5, (0.5, 0.5), "loss", "max")
    assert told("der-original") == (10.0, 0.5, (0.4, 1.0), "loss", "max")
    assert told("curl") == (10.0, 0.5, (0.4, 1.0), "total", "max")
    assert told("drq") == told("drq-eps") == (None,)


def test_the_defaults_of_old_methods_have_not_moved():
    """Every knob added since stands where it leaves the base of SPR as it was."""
    assert {k: v for k, v in paths(resolve("rainbow")).items() if k in (
        "renormalise", "init", "head", "head_gradient", "epsilon_start", "epsilon_decay", "eval_epsilon", "rl_stride",
    )} == {
        "renormalise": True, "init": "torch", "head": "streams", "head_gradient": 2**-0.5, "epsilon_start": 1.0,
        "epsilon_decay": 0, "eval_epsilon": None, "rl_stride": None,
    }  # fmt: skip
    assert set(diff(resolve("spr"), resolve("vcr"))) == {
        *(f"terms.vcr.{f}" for f in vars(resolve("vcr").terms.vcr)), "terms.vcr",
    }  # fmt: skip


def test_the_sweep_over_lambda_meets_spr_and_vcr():
    assert resolve("vcr-lambda-0.2") == resolve("vcr")
    assert resolve("vcr-lambda-0").terms.spr == resolve("spr").terms.spr
    vcr = [resolve(f"vcr-lambda-{x}").terms.vcr for x in ("0", "0.2", "1.0")]
    assert [v.weight for v in vcr if v] == [0.0, 0.2, 1.0]


def test_k9_is_a_sum_and_can_be_five_times_the_mean():
    config = resolve("vcr-k9")
    assert config.terms.spr and config.terms.vcr
    assert (config.terms.spr.steps, config.terms.vcr.steps, config.terms.spr.over) == (9, 9, "sum")
    change(change(config, "terms.spr.over", "mean"), "terms.spr.weight", 5.0)


# Suites and tasks


def test_curl_weighs_less_in_four_games():
    for game in ("pong", "boxing", "private-eye", "freeway"):
        config = resolve("curl", "atari", game)
        assert diff(resolve("curl", "atari"), config) == {"terms.contrast.weight": (1.0, 0.01)}
        assert source_of("curl", config, "atari", game)["terms.contrast.weight"] == f"{game}: {CODE}"
        assert resolve("vcr", "atari", game) == resolve("vcr", "atari")
    assert resolve("curl", "atari", "breakout") == resolve("curl", "atari")
    assert resolve("curl", "gym", "pong") == resolve("curl", "gym")
    assert {suite for suite, _ in TASKS} == {"atari"}


@by_method
def test_a_suite_brings_in_no_part_that_a_method_lacks(name: str):
    plain, toy = resolve(name), resolve(name, "toy")
    assert (toy.noise is None) == (plain.noise is None)
    assert type(toy.value) is type(plain.value)
    assert (toy.target.every == 1) == (plain.target.every == 1)
    assert (toy.epsilon_decay == 0) == (plain.epsilon_decay == 0)
    assert (toy.augment == Augment()) == (plain.augment == Augment())
    assert [n for n, t in vars(toy.terms).items() if t] == [n for n, t in vars(plain.terms).items() if t]
    assert all(getattr(t, "steps", 3) == 3 for t in vars(toy.terms).values() if t)
    assert toy.target.every <= 100 and toy.epsilon_decay <= 500


# Agents

ATARI, SMALL = EnvSpec((84, 84, 1), Discrete(18)), EnvSpec((16, 16, 1), Discrete(3))
PROTOCOL = Protocol("tiny", 1000, 1, None, 1, 0.0)


def segment(spec: EnvSpec, steps: int, targets: int, stack: int, batch: int) -> Segment:
    rng, (height, width, channels) = np.random.default_rng(0), spec.frame
    terminal = np.zeros((steps + 1, batch), bool)
    terminal[0, 1] = True
    alive = np.cumsum(np.concatenate([0 * terminal[:1], terminal[:-1]]), axis=0) == 0

    def images(n: int) -> jax.Array:
        return jnp.asarray(rng.integers(0, 256, (n, batch, height, width, stack * channels), np.uint8))

    assert isinstance(spec.actions, Discrete)
    return Segment(
        obs=images(steps + 1),
        action=jnp.asarray(rng.integers(0, spec.actions.n, (steps + 1, batch)), jnp.int32),
        reward=jnp.asarray(rng.integers(-1, 2, (steps + 1, batch)), jnp.float32),
        terminal=jnp.asarray(terminal),
        alive=jnp.asarray(alive, jnp.float32),
        returns=jnp.zeros((targets, batch)),
        discount=jnp.full((targets, batch), 0.5) * alive[:targets],
        boot_obs=images(targets),
        weight=jnp.ones(batch),
        slot=jnp.arange(batch),
    )


@by_method
def test_parameters_at_the_size_of_the_paper(name: str):
    """Nothing is computed: the shapes alone say whether the parts fit together."""
    agent = make_rainbow(resolve(name), ATARI, PROTOCOL)
    state = jax.eval_shape(agent.init, jnp.asarray(0))
    encoder = sum(x.size for x in jax.tree.leaves(state.online.encoder))
    expected = {"data-efficient": 32 * 101 + 64 * 801}.get(resolve(name).encoder, 77_984)
    assert encoder == expected
    sizes = {
        part: sum(x.size for x in jax.tree.leaves(getattr(state.online, part)))
        for part in ("transition", "prediction", "reward", "backward", "contrast")
    }
    model, contrast = 82 * 9 * 64 + 64 + 128 + 64 * 9 * 64 + 64, 577 * 256 + 257 * 128 + 128 * 128
    reward = 65 + 2 + 50 * 256 + 257 * 3
    has = {"spr": model, "vcr": model, "playvirtual": model}
    assert sizes == {
        "transition": has.get(name.split("-")[0], 0),
        "prediction": 513 * 512 if name.split("-")[0] in has and name != "spr-no-prediction" else 0,
        "reward": reward if name == "spr-reward" else 0,
        "backward": model if name == "playvirtual" else 0,
        "contrast": contrast if name == "curl" else 0,
    }


# One of each kind of net, head and value; tests/agents has the terms one by one.
@pytest.mark.parametrize("name", ["der", "otr", "drq", "playvirtual", "spr-reward"])
def test_an_update_on_small_frames_is_finite_and_moves_the_weights(name: str, quick_compiles: None):
    config = resolve(name, "toy")
    for path, value in {"batch": 3, "hidden": 8, "target.every": 2, "value.atoms": 5}.items():
        if path in paths(config) and FAMILY.applies(config, path):
            config = change(config, path, value)
    for term in ("spr", "reward", "cycle"):
        if f"terms.{term}.steps" in paths(config):
            config = change(config, f"terms.{term}.steps", 1)
    agent = make_rainbow(config, SMALL, PROTOCOL)
    window = segment(SMALL, agent.sample.steps, agent.sample.targets, config.observation.stack, config.batch)
    before = jax.jit(agent.init)(jnp.asarray(0))
    after, update = jax.jit(agent.update)(before, window, Clock.at(300, 1), jnp.asarray(0))
    for x in jax.tree.leaves((after, update)):
        assert np.isfinite(np.asarray(x)).all()
    assert (np.asarray(update.priority) > 0).all()
    for part, old in vars(before.online).items():
        new = getattr(after.online, part)
        moved = [
            np.any(np.asarray(a) != np.asarray(b))
            for a, b in zip(*map(jax.tree.leaves, (old, new)), strict=True)
        ]
        assert not moved or any(moved), part
