"""dtypes, spans, errors."""

import copy
import gc
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxvm.base import (
    UNKNOWN,
    DataType,
    DataTypeCode,
    InternalError,
    OpNotImplemented,
    ParseError,
    RelaxvmError,
    Span,
    StructInfoError,
    bfloat16_to_float32,
    collecting_seldom,
    dtype,
    float32_to_bfloat16,
    promote,
    to_numpy_dtype,
)

NAMES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 handle"
).split()


@pytest.mark.parametrize("name", NAMES)
def test_a_dtype_is_its_name_and_is_interned(name):
    assert dtype(name) == name
    assert dtype(name) is DataType(name)
    assert pickle.loads(pickle.dumps(dtype(name))) is dtype(name)
    assert copy.deepcopy(dtype(name)) is dtype(name)


@pytest.mark.parametrize("name", ["int7", "float8", "floatx", "float32x0", "int32x99999999", "f32"])
def test_an_unknown_dtype_is_refused_by_name(name):
    with pytest.raises(ValueError, match="unknown dtype"):
        dtype(name)


def test_what_is_no_dtype_is_a_type_error():
    with pytest.raises(TypeError):
        dtype(3)


def test_numpy_and_python_types_are_understood():
    assert dtype(np.float32) is dtype("float32")
    assert dtype(np.dtype("int8")) is dtype("int8")
    assert dtype(float) is dtype("float64")


def test_vector_dtypes_know_their_element():
    v = dtype("float32x4")
    assert (v.lanes, v.element, v.itemsize) == (4, "float32", 16)
    assert v.element.with_lanes(4) is v
    assert dtype("uint1") is dtype("bool")


@pytest.mark.parametrize(
    ("a", "b", "want"),
    [
        ("int32", "int64", "int64"),
        ("int64", "float32", "float32"),
        ("int32", "uint32", "uint32"),
        ("float16", "bfloat16", "float32"),
        ("bool", "int8", "int8"),
        ("float32", "float32x4", "float32x4"),
    ],
)
def test_promotion(a, b, want):
    assert promote(dtype(a), dtype(b)) == want
    assert promote(dtype(b), dtype(a)) == want


def test_promotion_refuses_handles_and_unequal_vectors():
    with pytest.raises(TypeError):
        promote(dtype("handle"), dtype("int32"))
    with pytest.raises(TypeError):
        promote(dtype("int32x2"), dtype("int32x4"))


def test_bfloat16_bits_survive_the_way_to_float32_and_back():
    bits = np.arange(65536, dtype=np.uint16)
    back = float32_to_bfloat16(bfloat16_to_float32(bits))
    is_nan = np.isnan(bfloat16_to_float32(bits))
    assert np.array_equal(back[~is_nan], bits[~is_nan])
    assert np.isnan(bfloat16_to_float32(back[is_nan])).all()


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_bfloat16_rounds_to_the_nearest_even(x):
    value = np.float32(x)
    got = float(bfloat16_to_float32(float32_to_bfloat16(np.array([value])))[0])
    low = np.array([value]).view(np.uint32) & np.uint32(0xFFFF0000)
    candidates = [low.view(np.float32)[0], (low + np.uint32(0x10000)).view(np.float32)[0]]
    if not np.isfinite(candidates[1]):
        return
    distances = [abs(np.float64(c) - np.float64(value)) for c in candidates]
    if distances[0] != distances[1]:
        assert got == float(candidates[int(np.argmin(distances))])
    else:
        assert int(float32_to_bfloat16(np.array([value]))[0]) % 2 == 0


def test_storage_of_bfloat16_is_uint16_and_handles_have_none():
    assert to_numpy_dtype("bfloat16") == np.uint16
    with pytest.raises(TypeError):
        to_numpy_dtype("handle")


def test_a_span_prints_its_place_and_points_into_the_line(tmp_path):
    file = tmp_path / "f.py"
    file.write_text("x = 1\ny = foo(2)\n")
    span = Span(str(file), 2, 5, 2, 8)
    assert str(span) == f"{file}:2:5"
    assert span.pointer().splitlines()[1].index("^") == 4 + 4


def test_merged_spans_keep_every_part_once():
    a, b = Span("a", 1, 1), Span("b", 2, 2)
    merged = Span.merge(a, UNKNOWN, Span.merge(b, a))
    assert sorted(p.source for p in merged.parts) == ["a", "b"]
    assert Span.merge(a, a) is a
    assert Span.merge() is UNKNOWN


def test_errors_are_also_the_builtin_that_fits():
    assert issubclass(StructInfoError, TypeError)
    assert issubclass(StructInfoError, ValueError)
    assert issubclass(ParseError, SyntaxError)
    assert issubclass(InternalError, RelaxvmError)
    assert "report" in str(InternalError("x"))


@pytest.mark.parametrize(
    ("text", "code"),
    [("int8", 0), ("uint64", 1), ("float32x4", 2), ("handle", 3), ("void", 3), ("bfloat16", 4)],
)
def test_dtypes_have_dlpacks_numbers_for_their_kinds(text, code):
    assert DataType(text).type_code == DataTypeCode(code) == code


def test_an_operator_that_is_not_translated_is_not_implemented():
    assert issubclass(OpNotImplemented, NotImplementedError)
    assert issubclass(OpNotImplemented, RelaxvmError)


def test_the_collector_is_as_before_once_the_last_build_has_ended():
    before = gc.get_threshold()
    with collecting_seldom():
        inside = gc.get_threshold()
        with collecting_seldom():
            assert gc.get_threshold() == inside
        assert gc.get_threshold() == inside
    assert gc.get_threshold() == before
    assert inside[0] > before[0]
    with collecting_seldom():
        gc.set_threshold(0)
    assert gc.get_threshold()[0] == 0
    with collecting_seldom():
        assert gc.get_threshold()[0] == 0
    # Also what somebody had chosen already.
    gc.set_threshold(*inside)
    with collecting_seldom():
        pass
    assert gc.get_threshold() == inside
    gc.set_threshold(*before)


_WITHOUT_BLAKE2 = """
import hashlib, sys
sys.modules["_blake2"] = None
hashlib.blake2b = hashlib.new("sha1")
import relaxvm
from relaxvm.base import blake2b, digest_of
from relaxvm.ir import structural_digest
from relaxvm.runtime import DiskCache, trust
signature = trust.sign(b"a")
assert len(signature) == trust.SIGNATURE_SIZE
assert trust.vouches(b"a", signature) and not trust.vouches(b"b", signature)
hash = blake2b(b"a", digest_size=32)
hash.update(b"b")
assert hash.digest() == digest_of(b"ab") != digest_of(b"a")
assert len(digest_of(b"a", 16)) == 16 and len(structural_digest(1)) == 32
cache = DiskCache("some", 1 << 20)
assert cache.put(b"key", b"value") and cache.get(b"key") == b"value"
"""


def test_a_python_without_keyed_blake2_hashes_and_signs(tmp_path):
    environment = os.environ | {"RELAXVM_CACHE_DIR": str(tmp_path / "cache"), "RELAXVM_CACHE": ""}
    subprocess.run([sys.executable, "-c", _WITHOUT_BLAKE2], env=environment, check=True)
