"""The methods over SAC: their numbers, their nets at the sizes of the references, and what their steps move."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from vcrl.agents.sac import descents, make_sac
from vcrl.core.config import change, diff, from_json, paths, to_json
from vcrl.core.protocol import Observation, Protocol
from vcrl.core.spec import Box, EnvSpec
from vcrl.methods.configs import (
    CODE,
    OURS,
    PAPER,
    SPR,
    VCR,
    Adam,
    Augment,
    Auxiliary,
    Crops,
    Cycle,
    Reconstruction,
    ReplayConfig,
    SACConfig,
    Targets,
    Temperature,
)
from vcrl.methods.continuous import FAMILY
from vcrl.methods.show import source_of

METHODS, resolve = FAMILY.methods, FAMILY.resolve
SUITES = [None, "dmc", "toy", "gym"]
LAMBDAS = ["vcr-lambda-0", "vcr-lambda-0.2", "vcr-lambda-1.0"]
by_method = pytest.mark.parametrize("name", METHODS)
by_suite = pytest.mark.parametrize("suite", SUITES)
ACTIONS = 6
PROTOCOL = Protocol("tiny", 1000, 1, None, 1, 0.0)


def test_all_methods_are_there():
    table = {"sac", "sac-ae", "curl", "drq", "spr", "spr-k6", "playvirtual", "vcr"}
    assert set(METHODS) == {*table, *LAMBDAS, "vcr-code", "spr-code"}
    assert set(FAMILY.suites) == {"dmc", "toy", "gym"}


@by_method
@by_suite
def test_a_config_survives_json(name: str, suite: str | None):
    config = resolve(name, suite)
    assert from_json(SACConfig, to_json(config)) == config


@by_method
def test_a_change_changes_something_and_says_where_it_comes_from(name: str):
    m = METHODS[name]
    config = resolve(m.of) if m.of else SACConfig()
    for path, (value, source) in m.changes.items():
        assert source in (PAPER, CODE, OURS)
        after = change(config, path, value)
        assert after != config or name == "vcr-lambda-1.0"
        config = after
    assert config == resolve(name)
    assert m.about and not m.about.endswith(".")


@by_method
@by_suite
def test_every_value_has_a_source(name: str, suite: str | None):
    config = resolve(name, suite)
    sources = source_of(name, config, suite)
    assert sources.keys() == paths(config).keys()
    assert "changed for this run" not in sources.values()


# The numbers of the tables, as a reader of the references would check them.
LARGE, SMALL = (Observation(stack=3, fill="first", reward="raw", size=side) for side in (100, 84))
BASE: dict[str, Any] = {
    "observation": LARGE, "crop": 84, "encoder": "control", "init": "delta", "width": 50, "tanh": False,
    "hidden": 1024, "transition": 512, "projection": 1024, "augment": Augment(), "draws": 1, "n_step": 1,
    "gamma": 0.99, "batch": 512, "learn_start": 1000, "updates_per_step": 1,
    "target": Targets(encoder=0.05, critics=0.01, every=2), "adam": Adam(rate=1e-3, epsilon=1e-8, clip=None),
    "auxiliary": Auxiliary(batch=128, encoder=1.0, rest=0.5, heads=True, clip=10.0),
    "temperature": Temperature(start=0.1, rate=1e-3, momentum=0.5),
    "replay": ReplayConfig(capacity=100_000, priority=None),
}  # fmt: skip
SLOW, BRIGHT = Temperature(start=0.1, rate=1e-4, momentum=0.5), Augment(shift=0, intensity=0.05)
NUMBERS: dict[str, dict[str, Any]] = {
    "sac": {},
    "sac-ae": {
        "observation": SMALL, "crop": None, "encoder": "control-32", "tanh": True, "batch": 128, "temperature": SLOW,
        "auxiliary": Auxiliary(batch=128, encoder=1.0, rest=1.0, clip=None),
        "replay": ReplayConfig(capacity=1_000_000, priority=None),
    },
    "curl": {
        "encoder": "control-32", "temperature": SLOW,
        "auxiliary": Auxiliary(batch=512, encoder=2.0, rest=1.0, clip=None),
    },
    "drq": {
        "observation": SMALL, "crop": None, "encoder": "control-32", "init": "orthogonal", "tanh": True, "draws": 2,
        "augment": Augment(shift=4), "target": Targets(encoder=0.01, critics=0.01, every=2),
        "temperature": Temperature(start=0.1, rate=1e-3, momentum=0.9),
    },
    "spr": {"augment": BRIGHT},
    "spr-k6": {"augment": BRIGHT},
    "playvirtual": {"augment": BRIGHT, "projection": 100, "temperature": SLOW},
    "vcr": {"augment": BRIGHT},
    "vcr-code": {"augment": BRIGHT, "projection": 100, "temperature": SLOW},
    "spr-code": {"augment": BRIGHT, "projection": 100, "temperature": SLOW},
} | {name: {"augment": BRIGHT} for name in LAMBDAS}  # fmt: skip
SPR3, SPR6 = ({"spr": SPR(weight=1.0, steps=k, over="sum", prediction=True)} for k in (3, 6))


def vcr(weight: float) -> dict[str, Any]:
    said = {"taken": "n-step", "others": "others", "taken_weight": 1.0, "others_weight": 0.1, "over": "mean"}
    return SPR3 | {"vcr": VCR(weight=weight, steps=3, ramp=50_000, **said)}


TERMS: dict[str, dict[str, Any]] = {
    "sac": {}, "drq": {}, "spr": SPR3, "spr-code": SPR3, "spr-k6": SPR6, "vcr": vcr(1.0), "vcr-code": vcr(1.0),
    "vcr-lambda-0": vcr(0.0), "vcr-lambda-0.2": vcr(0.2), "vcr-lambda-1.0": vcr(1.0),
    "playvirtual": SPR6 | {"cycle": Cycle(weight=1.0, steps=6, ramp=50_000, copies=10)},
    "curl": {"crops": Crops(weight=1.0)},
    "sac-ae": {"reconstruction": Reconstruction(weight=1.0, bits=5, small=1e-6, decay=1e-7)},
}  # fmt: skip


@by_method
def test_the_numbers_of_the_references(name: str):
    config = resolve(name, "dmc", "walker-walk")
    expected = BASE | NUMBERS[name]
    assert {path: getattr(config, path) for path in expected} == expected
    assert {n: term for n, term in vars(config.terms).items() if term is not None} == TERMS[name]
    assert (config.continuous.samples, config.continuous.least) == (10, False)


@by_method
def test_cheetah_learns_slower_unless_the_reference_has_one_rate_for_all(name: str):
    config, usual = resolve(name, "dmc", "cheetah-run"), resolve(name, "dmc", "walker-walk")
    assert config.adam.rate == (1e-3 if name in ("drq", "sac-ae") else 2e-4)
    kept = name in ("drq", "sac-ae", "curl", "playvirtual", "vcr-code", "spr-code")
    assert config.temperature.rate == (usual.temperature.rate if kept else 2e-4)
    assert set(diff(usual, config)) <= {"adam.rate", "temperature.rate"}


def test_the_sweep_over_lambda_meets_vcr():
    assert resolve("vcr-lambda-1.0") == resolve("vcr")
    assert diff(resolve("vcr"), resolve("vcr-lambda-0.2")) == {"terms.vcr.weight": (1.0, 0.2)}


@by_method
def test_a_suite_brings_in_no_part_that_a_method_lacks(name: str):
    plain = resolve(name)
    for suite in ("toy", "gym"):
        config = resolve(name, suite)
        assert [n for n, t in vars(config.terms).items() if t] == list(TERMS[name])
        assert config.crop is None and config.draws == plain.draws and config.tanh == plain.tanh
        # Shifts stand in for crops; only the method that redraws the image has none.
        assert (config.augment.shift == 0) == (name == "sac-ae")
        assert config.augment.intensity == plain.augment.intensity


# Nets at the sizes of the references


def agent_of(name: str):
    config = resolve(name, "dmc", "walker-walk")
    side = config.observation.size
    return make_sac(config, EnvSpec((side, side, 3), Box(ACTIONS), horizon=500, repeat=2), PROTOCOL)


def model(width: int = 512) -> int:
    return (50 + ACTIONS) * width + width + 2 * width + width * 50 + 50


@pytest.fixture(scope="module", params=METHODS)
def built(request):
    """A method, its agent, and the shapes of its state."""
    agent = agent_of(request.param)
    return request.param, agent, jax.eval_shape(agent.init, jnp.asarray(0))


def test_parameters_at_the_size_of_the_paper(built):
    """Nothing is computed: the shapes alone say whether the parts fit together."""
    name, _, state = built
    filters = 32 if name in ("curl", "drq", "sac-ae") else 64
    trunk = 35 * 35 * filters * 50 + 50 + 100
    encoder = 81 * filters + filters + 3 * (9 * filters * filters + filters) + trunk
    critics = 2 * ((50 + ACTIONS) * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 + 1)
    actor = trunk + 50 * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 * 2 * ACTIONS + 2 * ACTIONS
    hidden = {"playvirtual": 100, "vcr-code": 100, "spr-code": 100}.get(name, 1024)
    head = 50 * hidden + hidden + hidden * 50 + 50
    imagines, models = name.startswith(("spr", "vcr", "playvirtual")), model()
    decoder = 51 * 39_200 + 3 * (9 * 32 * 32 + 32) + 9 * 32 * 9 + 9
    expected = {
        "encoder": encoder, "q_head": critics, "actor": actor, "log_alpha": 1,
        "transition": models * imagines, "projection": head * imagines, "prediction": head * imagines,
        "backward": models * (name == "playvirtual"), "likeness": 2500 * (name == "curl"),
        "own": 0,
        "decoder": decoder * (name == "sac-ae"),
    }  # fmt: skip
    sizes = {part: sum(x.size for x in jax.tree.leaves(net)) for part, net in vars(state.online).items()}
    assert sizes == expected
    slow = {part: sum(x.size for x in jax.tree.leaves(net)) for part, net in state.target._asdict().items()}
    assert slow == {"encoder": encoder, "q_head": critics, "projection": head * imagines}
    assert state.online.encoder.trunk.tanh == state.online.actor.trunk.tanh == (name in ("drq", "sac-ae"))


def test_what_each_step_moves(built):
    """Each part that is there by exactly one of four steps, but the encoder and the critics by the terms' too."""
    name, _, state = built
    config = resolve(name, "dmc", "walker-walk")
    there = {part for part, net in vars(state.online).items() if net is not None}
    moves = {step: set(descent.rates) & there for step, descent in descents(config).items()}
    rest = there - {"encoder", "q_head", "actor", "log_alpha"}
    values = {"q_head"} if name.startswith("vcr") else set()
    assert moves == {
        "critic": {"encoder", "q_head"},
        "auxiliary": {"encoder"} | rest | values,
        "actor": {"actor"},
        "temperature": {"log_alpha"},
    }
    # A step keeps moments of what it moves; the terms' is not taken where there are none.
    kept = {step: set(opt.mu) for step, opt in state.opt.items()}
    assert kept == {step: parts for step, parts in moves.items() if rest or step != "auxiliary"}


def test_what_is_asked_of_the_replay(built):
    name, agent, _ = built
    rl, aux = agent.sample
    assert (rl.batch, rl.steps, rl.targets, rl.n, rl.stack) == (128 if name == "sac-ae" else 512, 0, 1, 1, 3)
    if name in ("sac", "drq"):
        assert aux is None
        return
    steps = {"playvirtual": 6, "spr-k6": 6, "curl": 0, "sac-ae": 0}.get(name, 3)
    batch = 512 if name == "curl" else 128
    assert (aux.batch, aux.steps, aux.targets, aux.n, aux.whole) == (batch, steps, steps + 1, 1, True)
