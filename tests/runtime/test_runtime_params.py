"""Parameters by name, as bytes and files in TVM's layout."""

import struct

import numpy as np
import pytest

from relaxvm import runtime
from relaxvm.base import LoadError, VMTypeError

DTYPES = "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64".split()
PARAMS = {
    **{f"p.{d}": np.arange(6).reshape(2, 3).astype(d) for d in DTYPES},
    "scalar": np.float32(3),
    "empty": np.zeros((0, 4), "int64"),
    "späť": runtime.array(np.array([1.5, -2]), dtype="bfloat16"),
    "f8": runtime.array([1.0, 2.0], dtype="float8_e4m3fn"),
    "rows": runtime.array(np.arange(8).reshape(2, 4), dtype="float32x4"),
    "transposed": np.arange(6.0).reshape(2, 3).T,
}


def test_what_was_saved_is_loaded(tmp_path):
    path = tmp_path / "params.bin"
    runtime.save_param_dict_to_file(PARAMS, path)
    for loaded in (
        runtime.load_param_dict(runtime.save_param_dict(PARAMS)),
        runtime.load_param_dict(bytearray(runtime.save_param_dict(PARAMS))),
        runtime.load_param_dict_from_file(path),
    ):
        assert list(loaded) == list(PARAMS)
        for name, value in PARAMS.items():
            wanted = runtime.as_ndarray(value)
            assert (loaded[name].dtype, loaded[name].shape) == (wanted.dtype, wanted.shape)
            np.testing.assert_array_equal(loaded[name].numpy(), wanted.numpy())
    assert runtime.load_param_dict(runtime.save_param_dict({})) == {}


def test_the_layout_is_tvms():
    data = runtime.save_param_dict({"w": np.array([[1, 2]], "int16")})
    wanted = struct.pack("<QQQQ", 0xF7E58D4F05049CB7, 0, 1, 1) + b"w" + struct.pack("<Q", 1)
    wanted += struct.pack("<QQiiiBBHqqq", 0xDD5E40F096B4A13F, 0, 1, 0, 2, 0, 16, 1, 1, 2, 4)
    assert data == wanted + b"\1\0\2\0"


def test_a_file_that_is_cut_short_names_place_and_parameter():
    data = bytes(runtime.save_param_dict({"a": np.ones(3, "float32"), "b": np.ones(5, "int64")}))
    for size, message in (
        (20, "the names: 8 bytes wanted at 16, 4 are left"),
        (len(data) - 1, "b: 40 bytes wanted at .*, 39 are left"),
        (len(data) - 100, "a: 12 bytes wanted at .*, 0 are left"),
    ):
        with pytest.raises(LoadError, match=message):
            runtime.load_param_dict(data[:size])


def test_bytes_that_are_no_parameters_are_refused():
    data = bytes(
        runtime.save_param_dict({"a": np.ones((2, 3), "float32"), "b": np.ones(2, "bool")})
    )
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(3000):
        bad = bytearray(data)
        for _ in range(rng.integers(1, 4)):
            bad[rng.integers(len(bad))] = rng.integers(256)
        try:
            runtime.load_param_dict(bad[: rng.integers(len(bad))] if rng.random() < 0.3 else bad)
        except LoadError:
            refused += 1
    assert refused > 1000
    for size in range(len(data)):
        with pytest.raises(LoadError):
            runtime.load_param_dict(data[:size])


def test_a_bool_of_a_file_is_0_or_1():
    data = bytearray(runtime.save_param_dict({"b": np.ones(2, "bool")}))
    data[-1] = 7
    assert runtime.load_param_dict(data)["b"].numpy().view("uint8").tolist() == [1, 1]


@pytest.mark.parametrize("params", [[1], {1: np.ones(2)}, None])
def test_what_is_no_dictionary_by_name_is_refused(params):
    with pytest.raises(TypeError, match="by name"):
        runtime.save_param_dict(params)


@pytest.mark.parametrize("data", ["text", None, [1, 2]])
def test_what_is_no_bytes_is_refused(data):
    with pytest.raises(VMTypeError, match="wanted the bytes of a file, got"):
        runtime.load_param_dict(data)


def test_floats_of_four_bits_come_back():
    params = {"w": runtime.array([1.5, -6.0], dtype="float4_e2m1fn")}
    loaded = runtime.load_param_dict(runtime.save_param_dict(params))["w"]
    assert loaded.dtype == "float4_e2m1fn"
    assert loaded.tolist() == [1.5, -6.0]
