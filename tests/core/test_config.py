"""Configs to JSON and back, changed, compared and hashed, on the real ones."""

import dataclasses
import json
from typing import Any

import pytest

from vcrl.core.config import change, diff, digest, from_json, from_text, paths, to_json, type_name
from vcrl.core.errors import UserError
from vcrl.core.spec import Discrete
from vcrl.methods.configs import (
    SPR,
    VCR,
    Augment,
    Categorical,
    Priority,
    RainbowConfig,
    ReplayConfig,
    Reward,
    Scalar,
    Terms,
)

PLAIN = RainbowConfig()
FULL = RainbowConfig(augment=Augment(shift=4, intensity=0.05), terms=Terms(spr=SPR(), vcr=VCR()))
CONFIGS = {
    "plain": PLAIN,
    "full": FULL,
    "scalar": RainbowConfig(value=Scalar(), noise=None, replay=ReplayConfig(priority=None), double=False),
    "odd": RainbowConfig(
        replay=ReplayConfig(7, Priority(0.25, (0.5, 0.75))), terms=Terms(vcr=VCR(weight=3.0))
    ),
}


def data(config: Any = FULL) -> Any:
    return json.loads(json.dumps(to_json(config)))


@pytest.mark.parametrize("name", CONFIGS)
def test_round_trip(name: str):
    config = CONFIGS[name]
    back = from_json(RainbowConfig, data(config))
    assert back == config
    assert type(back.value) is type(config.value)
    assert isinstance(back.replay.priority, Priority) == (name != "scalar")
    assert digest(back) == digest(config)


def test_json_says_which_class_a_part_is():
    assert data()["value"] == {"kind": "Categorical", "atoms": 51, "low": -10.0, "high": 10.0}
    assert data(CONFIGS["scalar"])["value"] == {"kind": "Scalar", "huber": 1.0}
    terms = data(PLAIN)["terms"]
    assert terms.pop("kind") == "Terms" and {"spr", "vcr"} <= terms.keys() and set(terms.values()) == {None}
    assert data()["replay"]["priority"]["correction"] == [0.4, 1.0]


def put(tree: Any, path: str, value: Any) -> Any:
    *folders, last = path.split(".")
    here = tree
    for name in folders:
        here = here[name]
    here[last] = value
    return tree


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("hidden", "256", r"config\.hidden: expected int, found '256'"),
        ("hidden", 256.0, r"config\.hidden: expected int, found 256\.0"),
        ("hidden", True, r"config\.hidden: expected int, found True"),  # True is 1 to Python, not to us
        ("double", 1, r"config\.double: expected bool, found 1"),
        ("gamma", "high", r"config\.gamma: expected float, found 'high'"),
        ("gamma", None, r"config\.gamma: expected float, found None"),
        ("noise", "much", r"config\.noise: expected float"),
        ("encoder", 3, r"config\.encoder: expected str, found 3"),
        ("adam.rate", [], r"config\.adam\.rate: expected float"),
        ("adam", 0.1, r"config\.adam: expected an object, found 0\.1"),
        ("terms.vcr", 0.2, r"config\.terms\.vcr: expected VCR or NoneType, found 0\.2"),
        ("terms.vcr.steps", 1.5, r"config\.terms\.vcr\.steps: expected int"),
        ("value", {"kind": "Quantile"}, r"config\.value: kind 'Quantile' is none of Categorical, Scalar"),
        ("value", {"huber": 1.0}, r"config\.value: kind None is none of"),
        (
            "replay.priority.correction",
            [0.4],
            r"config\.replay\.priority\.correction: expected 2 items, found 1",
        ),
        (
            "replay.priority.correction",
            [0.4, "x"],
            r"config\.replay\.priority\.correction\[1\]: expected float",
        ),
        ("replay.priority.correction", 0.4, r"config\.replay\.priority\.correction: expected a list"),
    ],
)
def test_a_wrong_type_is_refused_with_its_path(path: str, value: Any, message: str):
    with pytest.raises(UserError, match=message):
        from_json(RainbowConfig, put(data(), path, value))


def test_unknown_and_missing_names_are_refused_with_their_path():
    with pytest.raises(UserError, match=r"unknown field of config\.adam 'rat': did you mean rate\?"):
        from_json(RainbowConfig, put(data(), "adam.rat", 0.1))
    with pytest.raises(UserError, match=r"unknown field of config 'gama': did you mean gamma\?"):
        from_json(RainbowConfig, put(data(), "gama", 0.1))
    for folder, names in (("terms.vcr", ["ramp"]), ("adam", ["rate", "clip"])):
        broken = data()
        here = broken["terms"]["vcr"] if folder == "terms.vcr" else broken[folder]
        for name in names:
            del here[name]
        with pytest.raises(UserError, match=rf"config\.{folder}: missing {', '.join(names)}$"):
            from_json(RainbowConfig, broken)


def test_the_reader_names_its_file():
    with pytest.raises(UserError, match=r"^run/config\.json\.hidden: expected int"):
        from_json(RainbowConfig, put(data(), "hidden", "x"), "run/config.json")


def test_a_whole_number_is_a_float_where_one_is_asked_for():
    back = from_json(RainbowConfig, put(put(data(), "gamma", 1), "noise", 2))
    assert (back.gamma, back.noise) == (1.0, 2.0)
    assert type(back.gamma) is type(back.noise) is float


def test_type_names_read_well():
    assert type_name(int) == "int"
    assert type_name(float | None) == "float or NoneType"


def test_paths_reach_every_leaf():
    found = paths(FULL)
    assert found["terms.vcr.others_weight"] == 0.1
    assert found["replay.priority.correction"] == (0.4, 1.0)
    assert found["observation.stack"] == 4
    assert paths(PLAIN)["terms.vcr"] is None
    assert not any(dataclasses.is_dataclass(v) for v in found.values())
    # 1 more per leaf of a present term than the None of an absent one
    assert len(found) == len(paths(PLAIN)) + len(dataclasses.fields(SPR)) + len(dataclasses.fields(VCR)) - 2


def test_change_touches_one_leaf_of_a_copy():
    changed = change(FULL, "terms.vcr.ramp", 10)
    assert diff(FULL, changed) == {"terms.vcr.ramp": (50_000, 10)}
    assert FULL.terms.vcr is not None and FULL.terms.vcr.ramp == 50_000
    assert change(PLAIN, "hidden", 64).hidden == 64
    assert change(PLAIN, "gamma", 1).gamma == 1.0
    assert change(PLAIN, "noise", None).noise is None
    assert change(PLAIN, "replay.priority.correction", [0.5, 1]).replay.priority == Priority(
        correction=(0.5, 1.0)
    )


def test_change_takes_whole_parts():
    assert change(PLAIN, "terms.vcr", VCR(weight=1.0)).terms == Terms(vcr=VCR(weight=1.0))
    assert change(FULL, "terms.vcr", None).terms == Terms(spr=SPR())
    assert change(PLAIN, "value", {"kind": "Scalar", "huber": 2}).value == Scalar(huber=2.0)
    assert change(FULL, "replay.priority", None).replay.priority is None


@pytest.mark.parametrize(
    ("path", "nearest"),
    [
        ("gama", "gamma"),
        ("adam.rte", "adam.rate"),
        ("replay.priority.exponnt", "replay.priority.exponent"),
        ("terms.vcr.rmp", "terms.vcr.ramp"),
        ("term.vcr.ramp", "terms.vcr.ramp"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_nearest(path: str, nearest: str):
    with pytest.raises(UserError, match=rf"^unknown setting '{path}': did you mean .*{nearest}") as caught:
        change(FULL, path, 1)
    assert "\n" not in str(caught.value)


def test_a_setting_near_to_nothing_lists_all():
    with pytest.raises(UserError, match=r"unknown setting 'zzz': known: .*gamma.*hidden"):
        change(PLAIN, "zzz", 1)


@pytest.mark.parametrize("path", ["terms.vcr.ramp", "terms.spr.steps"])
def test_a_setting_of_an_absent_term_is_refused(path: str):
    term = path.split(".")[1]
    with pytest.raises(UserError, match=rf"setting '{path}' does not apply: .*no {term}"):
        change(PLAIN, path, 1)


def test_change_refuses_a_wrong_type_with_the_whole_path():
    with pytest.raises(UserError, match=r"^adam\.rate: expected float, found 'fast'"):
        change(PLAIN, "adam.rate", "fast")
    with pytest.raises(UserError, match=r"^hidden: expected int, found 1\.5"):
        change(PLAIN, "hidden", 1.5)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("0.5", 0.5),
        ("1e-4", 1e-4),
        ("-2", -2),
        ("true", True),
        ("False", False),
        ("null", None),
        ("None", None),
        ("small", "small"),
        ("n-step", "n-step"),
        ('"7"', "7"),
        ("[0.4, 1.0]", [0.4, 1.0]),
        ('{"kind": "Scalar", "huber": 1.0}', {"kind": "Scalar", "huber": 1.0}),
        ("", ""),
    ],
)
def test_what_is_typed_on_a_command_line(text: str, value: Any):
    found = from_text(text)
    assert found == value
    assert type(found) is type(value)


def test_diff_is_empty_for_equals_and_shows_both_sides():
    assert diff(FULL, from_json(RainbowConfig, data())) == {}
    assert diff(PLAIN, change(PLAIN, "hidden", 1)) == {"hidden": (256, 1)}
    found = diff(PLAIN, change(PLAIN, "terms.spr", SPR()))
    # What one of the two lacks reads '-'.
    assert found.pop("terms.spr") == (None, "-")
    assert found == {f"terms.spr.{name}": ("-", value) for name, value in vars(SPR()).items()}
    other_value = diff(PLAIN, change(PLAIN, "value", Scalar()))
    assert other_value["value.huber"] == ("-", 1.0)
    assert other_value["value.atoms"] == (51, "-")


def test_digest_is_pinned():
    """The name of a config must survive processes, machines and refactorings: results carry it."""
    # printf '{"kind":"Discrete","n":4}' | sha256sum
    assert digest(Discrete(4)) == "bdfe0e1e"
    assert digest(Categorical()) == digest(Categorical(51, -10.0, 10.0))


def other(value: Any) -> Any:
    """A different value of the same type."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return value + "x"
        case tuple():
            return (*value[:-1], other(value[-1]))
        case _:
            raise AssertionError(value)


def test_digest_changes_with_every_leaf():
    digests = [digest(FULL)]
    absent = {
        "eval_epsilon": 0.5,
        "rl_stride": 2,
        "terms.reward": Reward(),
    }  # of a leaf that is None, something
    for path, value in paths(FULL).items():
        if value is not None or path in absent:
            digests.append(digest(change(FULL, path, absent.get(path) if value is None else other(value))))
    digests += [
        digest(change(FULL, part, None)) for part in ("terms.spr", "terms.vcr", "replay.priority", "noise")
    ]
    digests.append(digest(change(FULL, "value", Scalar())))
    assert len(paths(FULL)) > 30
    assert len(set(digests)) == len(digests)
    assert all(len(d) == 8 and int(d, 16) >= 0 for d in digests)


def test_digest_knows_classes_with_the_same_fields_apart():
    left = dataclasses.make_dataclass("Left", [("x", int)], frozen=True)
    right = dataclasses.make_dataclass("Right", [("x", int)], frozen=True)
    assert digest(left(1)) != digest(right(1))


def test_numbers_beyond_measure_are_words_or_refused():
    assert from_text("9" * 5000) == "9" * 5000 and from_text("[" * 100_000) == "[" * 100_000
    with pytest.raises(UserError, match=r"expected float, found a number of \d+ bits"):
        from_json(float, 10**400)
    assert from_json(float, 10**30) == 1e30
    with pytest.raises(UserError) as caught:
        from_json(int, "1" * 5000, "batch")
    assert len(str(caught.value)) < 150
