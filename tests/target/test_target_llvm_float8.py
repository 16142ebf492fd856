"""Types of a byte and less, which numpy lacks: arrays, constants, and casts by numpy, by the
interpreter and by machine code.
"""

from __future__ import annotations

import pickle
import platform

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import nd, relax, te, tir
from relaxvm.base import CodegenError, TIRError, VMTypeError, bits_to_values, values_to_bits
from relaxvm.base.dtype import SMALL_FLOATS, DataType
from relaxvm.ir import FloatImm, Var, const, load_json, save_json, structural_equal
from relaxvm.relax.interp import Evaluator
from relaxvm.relax.op.meaning import convert
from relaxvm.runtime import dlpack
from relaxvm.script import from_source
from relaxvm.tir import interpret

FLOATS = list(SMALL_FLOATS)
NAMES = [*FLOATS, "int2", "int4", "uint2", "uint4"]
CODES = np.arange(256, dtype="uint8")


def samples(dtype):
    """Every value, what lies half way between neighbours, beyond the ends, and random bits."""
    values = np.sort(bits_to_values(CODES, dtype).astype("float64"))
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
    if dtype.is_int:
        x = np.arange(-300, 300, dtype="float32")  # theirs have no meaning beyond an int8
    with np.errstate(all="ignore"):
        want = x.astype("int64" if dtype.is_int else "float32").astype(theirs)
    codes = CODES[: 1 << dtype.bits]
    np.testing.assert_array_equal(bits_to_values(codes, dtype), codes.view(theirs).astype("f4"))
    got = bits_to_values(values_to_bits(x, dtype), dtype)
    np.testing.assert_array_equal(got, want.astype("f4"))
    a = nd.array(want)
    assert a.dtype == name and a.shape == x.shape and a.numpy().dtype == theirs


@pytest.mark.parametrize("name", NAMES)
def test_arrays_keep_their_type(name):
    half = 0 if DataType(name).is_int else 0.5
    a = nd.array([[1.0, half], [1.0, half]], dtype=name)
    assert a.tolist() == [[1, half], [1, half]] and a[0, 1].item() == half
    copies = [pickle.loads(pickle.dumps(a))]
    if DataType(name).bits == 8:
        copies.append(nd.from_dlpack(a.to_dlpack()))
    else:
        with pytest.raises(BufferError, match="packs"):
            a.to_dlpack()
    for same in copies:
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
        want = convert(x, dtype)
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
    for name in ("float6_e2m3fn", "int3"):
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
    value = 1 if DataType(name).is_int else 2 if "e8m0" in name else 1.5
    fn = tir.PrimFunc([b], tir.BufferStore(b, const(value, name), [0]))
    assert structural_equal(from_source(fn.script()), fn)


@pytest.mark.parametrize("name", ["int2", "uint2", "int4", "uint4", "float4_e2m1fn"])
@pytest.mark.parametrize("mode", ["bytecode", "compiled"])
def test_a_graph_moves_and_casts_every_pattern_of_bits(name, mode):
    n, dtype = tir.Var("n", "int64"), DataType(name)
    x = relax.Var("x", relax.TensorStructInfo((n, 16), name))
    op = relax.op
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        moved = builder.emit(op.reshape(op.permute_dims(op.flip(x, 0)), (16, n)))
        both = builder.emit(op.concat([moved, op.zeros((1, n), name)], axis=0))
        wide = builder.emit(op.astype(both, "float32"))
        again = builder.emit(op.astype(op.multiply(wide, relax.const(2.0)), name))
        builder.emit_func_output(relax.Tuple([both, wide, again]))
    mod = builder.get()
    data = nd.array(CODES.reshape(16, 16), dtype=name)
    want = Evaluator(mod)("main", data)
    vm = relax.VirtualMachine(relax.build(mod, "llvm", exec_mode=mode), tvm.cpu(), exec_mode=mode)
    result = vm["main"](data)
    assert [r.dtype for r in result] == [name, "float32", name]
    for got, wanted in zip(result, want):
        np.testing.assert_array_equal(got.numpy().astype("f4"), wanted.astype("f4"))
    values = bits_to_values(CODES, dtype).reshape(16, 16)[::-1].T
    np.testing.assert_array_equal(want[0][:-1], values)


@pytest.mark.parametrize("name", ["int2", "uint2", "int4", "uint4"])
@pytest.mark.parametrize("mode", ["bytecode", "compiled"])
def test_integers_of_few_bits_wrap(name, mode):
    x, y = (relax.Var(v, relax.TensorStructInfo((16, 16), name)) for v in "xy")
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        sums = [relax.op.add(x, y), relax.op.multiply(x, y), relax.op.maximum(x, y)]
        sums += [relax.op.floor_divide(x, y), relax.op.astype(relax.op.astype(x, "int64"), name)]
        builder.emit_func_output(relax.Tuple([builder.emit(s) for s in sums]))
    mod = builder.get()
    codes = CODES.reshape(16, 16)
    a, b = (nd.array(c, dtype=name) for c in (codes, codes.T))
    vm = relax.VirtualMachine(relax.build(mod, "llvm", exec_mode=mode), tvm.cpu(), exec_mode=mode)
    for got, want in zip(vm["main"](a, b), Evaluator(mod)("main", a, b)):
        assert got.dtype == name
        np.testing.assert_array_equal(got.numpy().astype("int8"), want.astype("int8"))


def test_packed_elements_of_other_libraries_are_refused():
    capsule = nd.array([1, 2], dtype="uint8").to_dlpack()
    tensor, _ = dlpack._tensor_in(capsule)
    tensor.bits = 4
    with pytest.raises(VMTypeError, match="4 bits"):
        nd.from_dlpack(capsule)


@pytest.mark.parametrize(
    ("source", "to"),
    [("uint8", "float8_e5m2"), ("float8_e4m3fnuz", "int8"), ("uint4", "float4_e2m1fn"),
     ("int4", "uint4"), ("float4_e2m1fn", "int4"), ("uint2", "int2")],
)  # fmt: skip
def test_bits_are_read_as_another_type(source, to):
    x = relax.Var("x", relax.TensorStructInfo((256,), source))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.reinterpret(x, to)))
    mod, data = builder.get(), nd.array(CODES, dtype=source)
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
    want = bits_to_values(CODES, DataType(to)) if DataType(to).is_bits else CODES.astype(to)
    if DataType(source).is_small_float:
        want[np.isnan(bits_to_values(CODES, DataType(source)))] = Evaluator(mod)("main", data)[
            np.isnan(bits_to_values(CODES, DataType(source)))
        ]
    for got in (vm["main"](data).numpy(), Evaluator(mod)("main", data)):
        np.testing.assert_array_equal(got.astype("f4"), want.astype("f4"))


@pytest.mark.parametrize("name", ["int4", "uint2", "float4_e2m1fn"])
def test_the_target_c_refuses_less_than_a_byte(name):
    a, b = tir.decl_buffer((4,), "float32", "a"), tir.decl_buffer((4,), name, "b")
    fn = tir.PrimFunc([a, b], tir.BufferStore(b, tir.Cast(name, a[0]), [0]))
    with pytest.raises(CodegenError, match=f"C has no values of dtype {name}"):
        tvm.build(fn, "c")


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="of x86-64")
def test_float16_without_instructions_for_it_is_that_of_numpy():
    x = samples(DataType("float8_e5m2"))
    x = np.concatenate([x, x * np.float32(2.0**-9), np.float32([65519.9, 65520.0, -65536.0])])
    codes = np.arange(65536, dtype="uint16")
    A, B = te.placeholder(codes.shape, "uint16"), te.placeholder(x.shape, "float32")
    wide = te.compute(
        codes.shape, lambda i: tir.reinterpret("float16", A(i)).astype("float32"), "wide"
    )
    narrow = te.compute(
        x.shape, lambda i: tir.reinterpret("uint16", B(i).astype("float16")), "narrow"
    )
    lib = tvm.build(te.create_prim_func([A, B, wide, narrow]), "llvm -mcpu=x86-64")
    widened, narrowed = np.zeros(65536, "float32"), np.zeros(x.shape, "uint16")
    lib["main"](codes, x, widened, narrowed)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(widened, codes.view("float16").astype("float32"))
        np.testing.assert_array_equal(narrowed.view("float16"), x.astype("float16"))
    np.testing.assert_array_equal(np.signbit(narrowed.view("float16")), np.signbit(x))
