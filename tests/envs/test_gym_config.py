"""Configs are written and read back, and read with suspicion."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vcrl.core.errors import UserError
from vcrl.envs.gym_adapt import Fit
from vcrl.envs.gym_advice import Advice
from vcrl.envs.gym_config import LARGEST, Config, read, write

GOOD = """
[env]
id = "my_games:Harvest-v0"
render = true
size = [48, 64]
gray = true
limit = 200

[train]
steps = 5000

[settings]
observation.stack = 3
value.low = -2.5
terms = {vcr = {weight = 0.5}}
replay.priority.correction = [0.4, 1.0]
"""


def file(tmp_path, text):
    path = tmp_path / "x.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_config_by_hand(tmp_path):
    assert read(file(tmp_path, GOOD)) == Config(
        "my_games:Harvest-v0",
        Fit(render=True, size=(48, 64), gray=True, limit=200),
        5000,
        {
            "observation.stack": 3,
            "value.low": -2.5,
            "terms.vcr.weight": 0.5,
            "replay.priority.correction": [0.4, 1.0],
        },
    )
    assert read(file(tmp_path, "")) == Config(None, Fit(), None, {})


def test_what_is_written_is_read_back_with_a_reason_on_every_line(tmp_path):
    advice = Advice(
        Fit(),
        env={
            "size": ([84, 84], "because\nof this"),
            "gray": (False, 'of "colours"'),
            "key": ("eye", "it sees"),
        },
        train={"steps": (20_000, "the usual")},
        settings={"observation.reward": ("raw", "r"), "value.low": (-1e-05, "l"), "value.high": (1e20, "h")},
    )
    text = write("my_games:Harvest-v0", advice, "vcrl train vcr x.toml --module my_games")
    found = read(file(tmp_path, text))
    assert found == Config(
        "my_games:Harvest-v0",
        Fit(size=(84, 84), key="eye"),
        20_000,
        {"observation.reward": "raw", "value.low": -1e-05, "value.high": 1e20},
    )
    lines = [line for line in text.splitlines() if " = " in line and not line.startswith("#")]
    assert len(lines) == 8 and all(re.search(r"  # \S", line) for line in lines)
    assert "--module my_games" in text and "# because of this" in text


BAD = {
    "[evn]": r"did you mean \[env\]",
    "env = 3": "env must be a table",
    '[env]\nsiez = "x"': "did you mean size",
    "[env]\nsize = 84": "size = 84 must be of type list",
    "[env]\nsize = [84]": r"such as \[84, 84\]",
    "[env]\nsize = [84, 0]": r"such as \[84, 84\]",
    "[env]\nsize = [84.0, 84.0]": r"such as \[84, 84\]",
    "[env]\ngray = 1": "gray = 1 must be of type bool",
    "[env]\nlimit = true": "limit = True must be of type int",
    "[env]\nlimit = -4": "positive number of steps",
    "[env]\nid = 7": "id = 7 must be of type str",
    '[env]\nid = "a b"': "no name of an environment",
    '[env]\nid = "X-v0@render"': "no name of an environment",
    '[env]\nid = "os; rm"': "no name of an environment",
    '[env]\nkey = "a,limit=3"': "letters, digits",
    '[env]\nmodule = "evil"': "unknown name in .env.",
    "[train]\nsteps = 1.5": "whole number",
    "[train]\nseeds = 3": "unknown name in .train.",
    "[env": "no TOML file",
    "x = " + "[" * 5000: "no TOML file",
    b"\xff\xfe": "no TOML file",
    "x = " + "9" * 5000: "no TOML file|unknown part",
    "#" * (LARGEST + 1): "larger than",
}


@pytest.mark.parametrize("text", BAD, ids=lambda text: str(text[:30]))
def test_what_is_wrong_is_one_line(tmp_path, text):
    with pytest.raises(UserError, match=BAD[text]) as caught:
        read(file(tmp_path, text))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_a_file_that_is_not_there_or_cannot_be_read(tmp_path):
    with pytest.raises(UserError, match="check-env NAME --out"):
        read(tmp_path / "none.toml")
    with pytest.raises(UserError, match="cannot read"):
        read(tmp_path)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(
    ["env", "train", "settings", "id", "size", "gray", "key", "limit", "steps", "x.y", '"']
)


@settings(max_examples=150)
@given(st.text(max_size=60) | st.dictionaries(names, values, max_size=4).map(lambda d: as_toml(d)))
def test_nothing_but_a_config_or_one_line_comes_of_a_file(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("fuzz") / "x.toml"
    path.write_bytes(text.encode(errors="ignore"))
    try:
        found = read(path)
    except UserError:
        return
    assert found.name is None or isinstance(found.name, str)
    assert found.steps is None or type(found.steps) is int
    assert all(isinstance(path, str) and not isinstance(v, dict) for path, v in found.settings.items())


def as_toml(data: dict) -> str:
    """Nearly TOML: now and then it is not, which is the point."""

    def one(value) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{k} = {one(v)}" for k, v in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(map(one, value)) + "]"
        return str(value).lower() if isinstance(value, bool) else repr(value)

    return "\n".join(f"{name} = {one(value)}" for name, value in data.items())
