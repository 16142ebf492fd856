"""The checks at a kernel's entry: each kind of failure, and what passes."""

from __future__ import annotations

import re

import numpy as np
import pytest
from target_helpers import elementwise

import relaxvm as tvm
from relaxvm import tir
from relaxvm.base import VMTypeError, VMValueError
from relaxvm.ir import IRModule, Var, const
from relaxvm.runtime import NDArray, as_ndarray
from relaxvm.target import build, compile_prim_funcs
from relaxvm.tir import BufferStore, For, PrimFunc, decl_buffer


def func(buffers, body, scalars=(), **attrs):
    handles = [Var(b.name, "handle") for b in buffers]
    return PrimFunc(
        [*handles, *scalars],
        body,
        None,
        dict(zip(handles, buffers)),
        {"global_symbol": "f", **attrs},
    )


def loop(n, make):
    i = Var("i", n.dtype)
    return For(i, const(0, n.dtype), n, "serial", make(i))


def double(noalias=True):
    """b[i] = 2 * a[i] over [n]."""
    n = Var("n", "int64")
    a, b = decl_buffer((n,), "float32", "a"), decl_buffer((n,), "float32", "b")
    attrs = {"tir.noalias": True} if noalias else {}
    return func([a, b], loop(n, lambda i: BufferStore(b, a[i] * 2.0, (i,))), **attrs)


def code(rt, *args, name="f"):
    """(kind, parameter, axis) of the failure of the raw entry, or None."""
    kernel = rt.linked[name]
    number = kernel.call(*[as_ndarray(a) if isinstance(a, np.ndarray) else a for a in args])
    if number is None:
        return None
    assert number > 0, number
    failure = kernel.info.failures[number - 1]
    return failure.kind, failure.param, failure.axis


@pytest.fixture(scope="module")
def doubled():
    return build(double())


def f32(*shape):
    return np.ones(shape, "float32")


def test_a_good_call_returns_nothing(doubled):
    b = np.zeros(5, "float32")
    assert code(doubled, f32(5), b) is None
    assert list(b) == [2] * 5


def test_rank(doubled):
    assert code(doubled, f32(5, 1), f32(5)) == ("ndim", 0, -1)
    assert code(doubled, f32(5), f32()) == ("ndim", 1, -1)


def test_dtype(doubled):
    assert code(doubled, np.ones(5), f32(5)) == ("dtype", 0, -1)
    assert code(doubled, f32(5), np.ones(5, "int32")) == ("dtype", 1, -1)


def test_a_symbol_bound_twice_to_different_sizes(doubled):
    assert code(doubled, f32(5), f32(4)) == ("shape", 1, 0)
    with pytest.raises(VMValueError, match=r"n is 5 from a.shape\[0\]"):
        doubled["f"](f32(5), f32(4))


def test_strides(doubled):
    assert code(doubled, f32(10)[::2], f32(5)) == ("strides", 0, 0)
    # One element, or none, has no strides to speak of.
    assert code(doubled, f32(10)[::10], f32(1)) is None
    assert code(doubled, f32(10)[:0:2], f32(0)) is None


def test_read_only_outputs_but_not_inputs(doubled):
    fixed = f32(5)
    fixed.flags.writeable = False
    assert code(doubled, fixed, f32(5)) is None
    assert code(doubled, f32(5), fixed) == ("readonly", 1, -1)


def test_overlap(doubled):
    base = f32(10)
    assert (
        code(doubled, base[:5], base[4:9]) == ("alias", 1, -1)
        or code(doubled, base[:5], base[4:9])[0] == "alias"
    )
    assert code(doubled, base[:5], base[5:]) is None
    assert code(doubled, base[:0], base[:0]) is None
    with pytest.raises(VMValueError, match="overlap"):
        doubled["f"](base, base)


def test_overlap_is_allowed_without_noalias():
    rt = build(double(noalias=False))
    base = f32(6)
    assert code(rt, base, base) is None
    assert list(base) == [2] * 6


def test_overlap_among_many_arguments_is_found():
    fn = elementwise(
        [("a", "float32")], [("float32", lambda x, k=k: x + float(k)) for k in range(20)], name="f"
    )
    rt = build(fn)
    arrays = [f32(8) for _ in range(21)]
    assert code(rt, *arrays) is None
    assert all((arrays[k + 1] == 1 + k).all() for k in range(20))
    for i, j in ((0, 20), (7, 13), (20, 19), (1, 2)):
        clash = list(arrays)
        clash[i] = clash[j]
        kernel = rt.linked["f"]
        failure = kernel.info.failures[kernel.call(*map(as_ndarray, clash)) - 1]
        assert failure.kind == "alias"
        assert {failure.param, failure.other} == {i, j}
    empty = [f32(0)] * 21
    assert code(rt, *empty) is None


def test_alignment():
    rt = build(double())
    raw = np.zeros(41, "uint8")
    crooked = raw[1:].view("float32") if raw.ctypes.data % 4 == 0 else raw[:40].view("float32")
    # The runtime's own arrays are never crooked; the wrapper says so if one gets through.
    made = object.__new__(NDArray)
    NDArray.__dict__["array"].__set__(made, crooked)
    NDArray.__dict__["dtype"].__set__(made, as_ndarray(f32(1)).dtype)
    NDArray.__dict__["device"].__set__(made, as_ndarray(f32(1)).device)
    kernel = rt.linked["f"]
    number = kernel.call(made, as_ndarray(f32(10)))
    assert kernel.info.failures[number - 1].kind == "align"


def test_constant_and_computed_dimensions():
    n = Var("n", "int32")
    a, b = decl_buffer((n * 2 + 1, 4), "float32", "a"), decl_buffer((n,), "float32", "b")
    rt = build(func([a, b], loop(n, lambda i: BufferStore(b, a[i * 2, 3], (i,)))))
    out = np.zeros(3, "float32")
    assert code(rt, np.arange(28, dtype="float32").reshape(7, 4), out) is None
    assert list(out) == [3, 11, 19]
    assert code(rt, f32(8, 4), out) == ("shape", 0, 0)
    assert code(rt, f32(7, 5), out) == ("shape", 0, 1)


def test_scalars_of_every_dtype_arrive():
    for dtype, value in [
        ("int8", -3),
        ("uint8", 250),
        ("int32", -70000),
        ("uint32", 4000000000),
        ("int64", -(1 << 60)),
        ("uint64", (1 << 64) - 5),
        ("float32", 0.1),
        ("float64", 0.1),
        ("float16", 0.1),
        ("bool", True),
    ]:
        x = Var("x", dtype)
        out = decl_buffer((1,), dtype, "out")
        rt = build(func([out], BufferStore(out, x, (0,)), scalars=[x]))
        result = np.zeros(1, dtype)
        rt["f"](result, value)
        assert result[0] == np.dtype(dtype).type(value), dtype


def test_a_number_where_an_array_is_wanted_and_the_other_way_round(doubled):
    with pytest.raises(VMTypeError):
        doubled["f"](3, f32(5))
    x = Var("x", "int32")
    out = decl_buffer((1,), "int32", "out")
    rt = build(func([out], BufferStore(out, x, (0,)), scalars=[x]))
    with pytest.raises(VMTypeError):
        rt["f"](np.zeros(1, "int32"), np.zeros(1, "int32"))
    with pytest.raises(VMValueError):
        rt["f"](np.zeros(1, "int32"), 1 << 40)


def test_declared_strides_are_bound_and_checked():
    s0 = Var("s0", "int32")
    a = decl_buffer((2, 3), "float32", "a", strides=(s0, 1))
    b = decl_buffer((2, 3), "float32", "b")
    i, j = Var("i"), Var("j")
    body = For(i, 0, 2, "serial", For(j, 0, 3, "serial", BufferStore(b, a[i, j], (i, j))))
    rt = build(func([a, b], body))
    base = np.arange(20, dtype="float32").reshape(2, 10)
    out = np.zeros((2, 3), "float32")
    assert code(rt, base[:, 2:5], out) is None
    assert (out == base[:, 2:5]).all()
    assert code(rt, base[:, ::3][:, :3], out) == ("strides", 0, 1)
    assert code(rt, base[::-1, 2:5], out) is None
    assert (out == base[::-1, 2:5]).all()


def test_symbols_have_an_upper_bound_that_is_enforced():
    n = Var("n", "int64")
    a = decl_buffer((n,), "int8", "a")
    fn = func(
        [a], loop(n, lambda i: BufferStore(a, const(1, "int8"), (i,))), tir_var_upper_bound={"n": 8}
    )
    rt = build(fn)
    assert code(rt, np.zeros(8, "int8")) is None
    assert code(rt, np.zeros(9, "int8")) == ("shape", 0, 0)


def test_parameters_and_access_are_described():
    (info,) = compile_prim_funcs(IRModule({"f": double()})).infos
    assert [str(p) for p in info.params] == ["a: Tensor((n,), float32)", "b: Tensor((n,), float32)"]
    assert [p.access for p in info.params] == ["r", "w"]
    assert info.noalias
    assert re.fullmatch("relaxvm_kernel_f_[0-9a-f]{16}", info.symbol)


def test_names_that_clash_are_made_unique():
    a, b = decl_buffer((4,), "float32", "x"), decl_buffer((4,), "float32", "x")
    i = Var("i")
    body = For(i, 0, 4, "serial", BufferStore(b, a[i] + tir.Cast("float32", i), (i,)))
    (info,) = compile_prim_funcs(IRModule({"f": func([a, b], body)})).infos
    assert [p.name for p in info.params] == ["x", "x_1"]


def test_no_elements_have_no_alignment():
    kernel = build(double())
    odd = np.zeros(64, "uint8")
    empty = np.ndarray((0,), "float32", odd, 64 - odd.ctypes.data % 64 + 3 & 31)
    assert empty.ctypes.data % 4
    for lent in (empty, empty[::-1], tvm.nd.from_dlpack(as_ndarray(empty).to_dlpack())):
        assert code(kernel, lent, empty) is None
