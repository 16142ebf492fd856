"""8-bit floats: arrays, constants, and casts by numpy, by the interpreter and by machine code."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import nd, relax, tir
from relaxvm.base import TIRError, VMTypeError, bits_to_floats, floats_to_bits
from relaxvm.base.dtype import FLOAT8_TYPES, DataType
from relaxvm.ir import FloatImm, Var, const, load_json, save_json, structural_equal
from relaxvm.script import from_source
from relaxvm.tir import interpret

NAMES = list(FLOAT8_TYPES)
CODES = np.arange(256, dtype="uint8")


def samples(dtype):
    """Every value, what lies half way between neighbours, beyond the ends, and random bits."""
    values = np.sort(bits_to_floats(CODES, dtype).astype("float64"))
    values = values[np.isfinite(values)]
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 2**32, 4000, dtype="uint32").view("float32")
    if dtype.kind == "float8_e8m0fnu":
        noise = noise[np.abs(noise) > 2.0**-126]  # ml_dtypes rounds subnormal float32 otherwise
    near = (rng.standard_normal(4000) * np.exp2(rng.integers(-20, 18, 4000))).astype("float32")
    ends = [values[-1] * 1.01, 2 * values[-1] - values[-2], 1e30, np.inf, 0.0, np.nan]
    with np.errstate(all="ignore"):
        both = np.concatenate([values, (values[1:] + values[:-1]) / 2, ends, noise, near])
        return np.concatenate([both, -both]).astype("float32")


@pytest.mark.parametrize("name", NAMES)
def test_rounding_is_that_of_ml_dtypes(name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    theirs, dtype = np.dtype(getattr(ml_dtypes, name)), DataType(name)
    x = samples(dtype)
    with np.errstate(all="ignore"):
        want = x.astype(theirs)
    np.testing.assert_array_equal(bits_to_floats(CODES, dtype), CODES.view(theirs).astype("f4"))
    got = bits_to_floats(floats_to_bits(x, dtype), dtype)
    np.testing.assert_array_equal(got, want.astype("f4"))
    a = nd.array(want)
    assert a.dtype == name and a.shape == x.shape and a.numpy().dtype == theirs


@pytest.mark.parametrize("name", NAMES)
def test_arrays_keep_their_type(name):
    a = nd.array([[1.0, 2.0], [4.0, 0.5]], dtype=name)
    assert a.tolist() == [[1, 2], [4, 0.5]] and a[0, 1].item() == 2
    for same in (pickle.loads(pickle.dumps(a)), nd.from_dlpack(a.to_dlpack())):
        assert same.dtype == name and same.tolist() == a.tolist()
    saved = load_json(save_json(relax.const(a)))
    assert saved.data.dtype == name and saved.data.tolist() == a.tolist()
    assert a.astype("float32").astype(name).tolist() == a.tolist()
    assert nd.array(CODES, dtype=name).dtype == name


@pytest.mark.parametrize("source", ["float32", "float64", "float16", "int32"])
@pytest.mark.parametrize("name", NAMES)
def test_machine_code_and_the_interpreter_cast_as_numpy(name, source):
    dtype = DataType(name)
    values = samples(dtype)
    with np.errstate(all="ignore"):
        if source == "int32":
            x = np.arange(-600, 600, dtype=source)
        else:
            x = values.astype(source)
    n = len(x)
    fn = from_source(f"""
@T.prim_func
def main(
    A: T.Buffer(({n},), "{source}"), B: T.Buffer(({n},), "{name}"), C: T.Buffer(({n},), "float32")
):
    for i in T.serial({n}):
        B[i] = T.Cast("{name}", A[i])
    for i in T.serial({n}):
        C[i] = T.Cast("float32", B[i])
""")
    kernel = tvm.build(fn)
    b, c = nd.empty((n,), name), np.zeros(n, "float32")
    kernel(x, b, c)
    with np.errstate(all="ignore"):
        want = bits_to_floats(floats_to_bits(x.astype("float64"), dtype), dtype)
    np.testing.assert_array_equal(c, want)
    np.testing.assert_array_equal(b.astype("float32").numpy(), want)
    few = slice(0, 300)
    small = from_source(fn.script().replace(str(n), "300"))
    b2, c2 = nd.empty((300,), name), np.zeros(300, "float32")
    interpret(small, np.ascontiguousarray(x[few]), b2, c2)
    np.testing.assert_array_equal(c2, want[few])
    np.testing.assert_array_equal(b2.astype("float32").numpy(), want[few])


def test_vectors_are_cast_as_scalars():
    fn = from_source("""
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float8_e4m3fn")):
    for i in T.vectorized(16):
        B[i] = T.Cast("float8_e4m3fn", A[i])
""")
    x = np.linspace(-500, 500, 16, dtype="float32")
    b = nd.empty((16,), "float8_e4m3fn")
    tvm.build(fn)(x, b)
    assert_same = np.testing.assert_array_equal
    assert_same(b.astype("float32").numpy(), nd.array(x, dtype=b.dtype).astype("float32").numpy())


@pytest.mark.parametrize("path", ["auto", "generic"])
def test_kernels_tell_8_bit_types_apart(path):
    fn = from_source("""
@T.prim_func
def main(A: T.Buffer((4,), "float8_e5m2"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        B[i] = T.Cast("float32", A[i])
""")
    former = tvm.runtime.set_call_path(path)
    try:
        kernel = tvm.build(fn)
    finally:
        tvm.runtime.set_call_path(former)
    out = np.zeros(4, "float32")
    kernel(nd.array([1, 2, 3, 4], dtype="float8_e5m2"), out)
    assert out.tolist() == [1, 2, 3, 4]
    for other in ("float8_e4m3fn", "uint8", "int8"):
        with pytest.raises(VMTypeError, match="float8_e5m2"):
            kernel(nd.array([1, 2, 3, 4], dtype=other), out)
    copy = from_source("""
@T.prim_func
def main(A: T.Buffer((4,), "uint8"), B: T.Buffer((4,), "uint8")):
    for i in range(4):
        B[i] = A[i]
""")
    with pytest.raises(VMTypeError, match="uint8"):
        tvm.build(copy)(nd.array([1, 2, 3, 4], dtype="float8_e5m2"), np.zeros(4, "uint8"))


def test_arithmetic_and_other_small_types_are_refused():
    x = Var("x", "float8_e4m3fn")
    for build in (lambda: x + x, lambda: x < x, lambda: tir.exp(x), lambda: tir.fabs(x)):
        with pytest.raises(TIRError, match="cast"):
            build()
    assert const(448.0, "float8_e4m3fn").value == 448.0
    for value in (449.0, float("inf")):
        with pytest.raises(TIRError, match="does not fit"):
            FloatImm("float8_e4m3fn", value)
    for name in ("float4_e2m1fn", "float6_e2m3fn", "int4"):
        with pytest.raises(VMTypeError, match="unknown dtype"):
            nd.empty((2,), name)


def test_arrays_of_vectors_have_their_lanes_last():
    x = np.arange(24, dtype="float32").reshape(2, 3, 4)
    v = nd.array(x, dtype="float32x4")
    assert (v.shape, v.ndim, v.size, v.dtype) == ((2, 3), 2, 6, "float32x4")
    assert v.numpy().shape == (2, 3, 4)
    w = nd.empty((2, 3), "float32x4")
    w.copyfrom(x)
    np.testing.assert_array_equal(w.numpy(), x)
    assert w[1].shape == (3,) and pickle.loads(pickle.dumps(w)).shape == (2, 3)
    with pytest.raises(ValueError, match="4 lanes"):
        nd.array(np.zeros((2, 3)), dtype="float32x4")


@pytest.mark.parametrize("mode", ["bytecode", "compiled"])
def test_a_graph_casts_from_and_to_8_bits(tmp_path, mode):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((4,), "float8_e4m3fn"))
    with builder.function("main", [x]):
        wide = builder.emit(relax.op.astype(x, "float32"))
        product = builder.emit(relax.op.multiply(wide, relax.const(3.0)))
        builder.emit_func_output(builder.emit(relax.op.astype(product, "float8_e5m2")))
    relax.build(builder.get(), "llvm").export_library(str(tmp_path / "f.rvm"))
    loaded = tvm.runtime.load_module(str(tmp_path / "f.rvm"))
    vm = relax.VirtualMachine(loaded, tvm.cpu(), exec_mode=mode)
    result = vm["main"](nd.array([1, 2, 3, 4], dtype="float8_e4m3fn"))
    assert result.dtype == "float8_e5m2" and result.tolist() == [3, 6, 8, 12]
    for other in ("float8_e5m2", "uint8"):
        with pytest.raises(VMTypeError, match="wanted dtype float8_e4m3fn"):
            vm["main"](nd.array([1, 2, 3, 4], dtype=other))


@pytest.mark.parametrize("name", NAMES)
def test_constants_are_printed_and_read(name):
    b = tir.decl_buffer((2,), name, "b")
    fn = tir.PrimFunc([b], tir.BufferStore(b, const(1.5 if "e8m0" not in name else 2, name), [0]))
    assert structural_equal(from_source(fn.script()), fn)
