"""What is saved comes back: every dtype, every layout, two generations."""

import json
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from vcrl.runs import checkpoint
from vcrl.runs.checkpoint import CODES, Checkpoint, load, save

DTYPES = [ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name) for name in CODES]
SHAPES = [(), (1,), (7,), (3, 5), (2, 0, 4), (2, 3, 4, 5)]


def no_warning(text):
    raise AssertionError(text)


def of(dtype, shape, seed=0):
    """Arbitrary bits, so that NaNs, infinities and the largest integers take part; bools must be 0 or 1."""
    rng = np.random.default_rng(seed)
    if dtype == np.dtype("bool"):
        return np.asarray(rng.integers(0, 2, shape), dtype)
    bits = rng.integers(0, 256, int(np.prod(shape)) * np.dtype(dtype).itemsize, dtype=np.uint8)
    return bits.view(dtype).reshape(shape)


def assert_same(found, wanted):
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=list(CODES))
def test_every_dtype_and_shape_comes_back_bit_for_bit(tmp_path, dtype):
    arrays = {f"a/{i}": of(dtype, shape, i) for i, shape in enumerate(SHAPES)}
    save(tmp_path, 40, arrays, {})
    found = load(tmp_path, no_warning)
    assert isinstance(found, Checkpoint) and found.agent_steps == 40
    assert list(found.arrays) == list(arrays)
    for name in arrays:
        assert_same(found.arrays[name], arrays[name])


def test_all_dtypes_in_one_file_that_the_library_reads_too(tmp_path):
    arrays = {f"net.{d}": of(d, (3, 5), i) for i, d in enumerate(DTYPES)} | {"später": np.arange(3)}
    path = save(tmp_path, 1, arrays, {})
    theirs = load_file(path)
    assert path.name == "000000001.safetensors" and theirs.keys() == arrays.keys()
    for name, array in arrays.items():
        assert theirs[name].tobytes() == array.tobytes()
    assert theirs["net.<class 'ml_dtypes.bfloat16'>"].dtype == np.uint16


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, ml_dtypes.bfloat16])
def test_strided_arrays_are_stored_by_value(tmp_path, dtype):
    base = of(dtype, (6, 8, 4))
    arrays = {
        "transposed": base.T,
        "every other": base[::2, ::-1],
        "fortran": np.asfortranarray(base),
        "repeated": np.broadcast_to(base[0], (3, 8, 4)),
        "scalar": base[2, 3, 1:2].reshape(()),
    }
    save(tmp_path, 0, arrays, {})
    for name, array in load(tmp_path, no_warning).arrays.items():
        assert_same(array, np.array(arrays[name], order="C"))


def test_foreign_byte_order_keeps_its_values(tmp_path):
    save(tmp_path, 0, {"a": np.arange(5, dtype=">i4")}, {})
    found = load(tmp_path, no_warning).arrays["a"]
    assert found.dtype == np.int32 and found.tolist() == [0, 1, 2, 3, 4]


def test_loaded_arrays_belong_to_the_caller(tmp_path):
    save(tmp_path, 0, {"a": np.zeros(4)}, {})
    array = load(tmp_path, no_warning).arrays["a"]
    array += 1
    assert array.tolist() == [1, 1, 1, 1]
    assert load(tmp_path, no_warning).arrays["a"].tolist() == [0, 0, 0, 0]


def test_extra_comes_back_as_it_went_in(tmp_path):
    extra = {"logs": {"metrics": 2**60, "eval": 0}, "x": [0.1, -1e300, None, True, "ü\n\x00"], "e": {}}
    save(tmp_path, 0, {}, extra)
    assert load(tmp_path, no_warning).extra == extra


@pytest.mark.parametrize("extra", [{1: 2}, {"a": (1, 2)}, {"a": {1}}, {"a": np.int64(1)}])
def test_extra_that_json_would_change_is_refused(tmp_path, extra):
    with pytest.raises(TypeError):
        save(tmp_path, 0, {}, extra)
    assert load(tmp_path, no_warning) is None


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_extra_that_json_cannot_say_is_refused(tmp_path, value):
    with pytest.raises(ValueError, match="JSON"):
        save(tmp_path, 0, {}, {"a": value})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "array", [np.array([{}]), np.array(["a"]), np.zeros(2, complex), np.zeros(2, "M8[s]")]
)
def test_nothing_but_numbers_is_stored(tmp_path, array):
    with pytest.raises(TypeError, match="cannot store array 'odd'"):
        save(tmp_path, 0, {"odd": array}, {})
    assert list(tmp_path.iterdir()) == []


def test_reserved_name_is_refused(tmp_path):
    with pytest.raises(TypeError, match="__metadata__"):
        save(tmp_path, 0, {"__metadata__": np.zeros(1)}, {})


def test_nothing_saved_is_none(tmp_path):
    assert load(tmp_path, no_warning) is None
    assert load(tmp_path / "absent", no_warning) is None


def test_two_generations_are_kept(tmp_path):
    for n in (0, 5, 1000, 999_999_999, 1_000_000_000):
        save(tmp_path, n, {"a": np.full(3, n)}, {"n": n})
        assert load(tmp_path, no_warning).extra == {"n": n}
    stems = ("0999999999", "1000000000")
    assert {p.name for p in tmp_path.iterdir()} == {
        f"{s.removeprefix('0')}.{e}" for s in stems for e in ("json", "safetensors")
    }


def test_saving_removes_strays_and_nothing_else(tmp_path):
    for name in (".000000007.safetensors.tmp", "000000003.safetensors", "notes.txt", "0000000001.json"):
        (tmp_path / name).write_text("left behind")
    (tmp_path / "frames").mkdir()
    save(tmp_path, 9, {"a": np.zeros(1)}, {})
    kept = {"000000009.safetensors", "000000009.json", "notes.txt", "frames"}
    assert {p.name for p in tmp_path.iterdir()} == kept


def test_a_future_that_was_not_continued_goes_first(tmp_path):
    for n in (1000, 1200):
        save(tmp_path, n, {"a": np.full(3, n)}, {})
    (tmp_path / "000001200.safetensors").write_bytes(b"")
    assert load(tmp_path, lambda _: None).agent_steps == 1000
    save(tmp_path, 1100, {"a": np.full(3, 1100)}, {})
    assert load(tmp_path, no_warning).agent_steps == 1100
    assert sorted(p.stem for p in tmp_path.glob("*.json")) == ["000001000", "000001100"]


def test_saving_a_step_again_replaces_it(tmp_path):
    for value in (1, 1, 2):
        save(tmp_path, 8, {"a": np.array(value)}, {"v": value})
    found = load(tmp_path, no_warning)
    assert (int(found.arrays["a"]), found.extra) == (2, {"v": 2})


def test_same_content_same_bytes(tmp_path):
    arrays = {f"{d}": of(d, (2, 3)) for d in DTYPES}
    for name in ("one", "two"):
        save(tmp_path / name, 3, arrays, {"x": 1})
    for kind in ("json", "safetensors"):
        one, two = (tmp_path / name / f"000000003.{kind}" for name in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()


def test_manifest_tells_a_reader_what_is_inside(tmp_path):
    save(tmp_path, 3, {"w": np.zeros((2, 3), ml_dtypes.bfloat16), "n": np.array(1)}, {})
    body = json.loads((tmp_path / "000000003.json").read_text())
    assert body["format"] == checkpoint.FORMAT
    assert body["arrays"] == {
        "w": {"shape": [2, 3], "dtype": "bfloat16"},
        "n": {"shape": [], "dtype": "int64"},
    }
    assert body["bytes"] == (tmp_path / "000000003.safetensors").stat().st_size


def test_no_jax():
    modules = "vcrl.runs.checkpoint, vcrl.runs.folder, vcrl.runs.facts"
    code = f"import sys, {modules}; vcrl.runs.facts.facts(); sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
