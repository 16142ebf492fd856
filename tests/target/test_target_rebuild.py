"""Kernels rebuilt from untrusted bytes: they stay inside their memory, and bad bytes are typed
errors.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxvm.base import RelaxvmError, VMValueError
from relaxvm.ir import Call, GlobalVar, IRModule, Ramp, Var, const, load_msgpack, save_msgpack
from relaxvm.runtime import Module
from relaxvm.script import from_source
from relaxvm.target import compile_prim_funcs, rebuild_kernels
from relaxvm.tir import (
    Allocate,
    Broadcast,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    address_of,
    call_extern,
    call_llvm_pure_intrin,
    decl_buffer,
    seq,
    tvm_access_ptr,
)


def parse(text):
    return from_source("# from relaxvm.script import tir as T\n@T.prim_func\n" + text)


def rebuilt(fn):
    """A module rebuilt from the portable form of `fn`, which need not be one that our compiler
    would make.
    """
    mod = fn if isinstance(fn, IRModule) else IRModule({"main": fn})
    return Module(rebuild_kernels(save_msgpack(mod), ("main",)))


OUT_OF_BOUNDS = {
    "constant index": """
def main(A: T.Buffer((4,), "float32"), k: T.int64):
    A[4] = T.float32(1)
""",
    "negative index": """
def main(A: T.Buffer((4,), "float32"), k: T.int64):
    A[k - 5] = T.float32(1)
""",
    "index from the caller": """
def main(A: T.Buffer((4,), "float32"), k: T.int64):
    A[k + 3] = T.float32(1)
""",
    "index that wraps": """
def main(A: T.Buffer((4,), "float32"), k: T.int64):
    A[k * T.int64(4611686018427387904) * T.int64(2)] = T.float32(1)
""",
    "load": """
def main(A: T.Buffer((4,), "float32"), k: T.int64):
    A[0] = A[k + 1000000]
""",
    "row too long": """
def main(A: T.Buffer((2, 2), "float32"), k: T.int64):
    for j in range(5):
        A[0, j] = T.float32(1)
""",
    "loop that goes on": """
def main(A: T.Buffer((4,), "float32"), k: T.int64):
    for i in range(k + 4):
        A[i] = T.float32(1)
""",
    "index in memory": """
def main(A: T.Buffer((4,), "float32"), k: T.int64):
    B = T.alloc_buffer((2,), "int32")
    B[0] = 1 << 20
    A[B[0]] = T.float32(1)
""",
    "local memory": """
def main(A: T.Buffer((4,), "float32"), k: T.int64):
    B = T.alloc_buffer((2,), "int32")
    B[k + 5] = 1
    A[0] = T.Cast("float32", B[k + 6])
""",
    "while": """
def main(A: T.Buffer((4,), "float32"), k: T.int64):
    B = T.alloc_buffer((1,), "int32")
    B[0] = 0
    while B[0] < 100:
        A[B[0]] = T.float32(1)
        B[0] = B[0] + 1
""",
}


@pytest.mark.parametrize("name", OUT_OF_BOUNDS)
def test_an_access_out_of_bounds_leaves_with_a_failure(name):
    text = OUT_OF_BOUNDS[name]
    rt = rebuilt(parse(text))
    around = np.full(64, 7, "float32")
    inside = around[24:28].reshape((2, 2) if "2, 2" in text else (4,))
    with pytest.raises(VMValueError, match="out of bounds"):
        rt(inside, 1)
    assert (around[:24] == 7).all()
    assert (around[28:] == 7).all()


def test_checks_stand_behind_conditions():
    rt = rebuilt(
        parse("""
def main(A: T.Buffer((4,), "float32"), B: T.Buffer((8,), "float32"), k: T.int32):
    for i in range(8):
        B[i] = T.if_then_else(i + k < 4, A[i + k], T.float32(0))
        if k > 0 and A[k - 1] > T.float32(0):
            B[i] = B[i] + T.float32(1)
""")
    )
    a, b = np.array([1, 2, 3, 4], "float32"), np.zeros(8, "float32")
    rt(a, b, 0)
    assert list(b) == [1, 2, 3, 4, 0, 0, 0, 0]
    rt(a, b, 2)
    assert list(b) == [4, 5, 1, 1, 1, 1, 1, 1]


def test_kernels_that_are_provably_inside_carry_no_checks():
    text = """
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, 64), "float32")
    B = T.match_buffer(b, (n, 64), "float32")
    for i, j in T.grid(n, 64):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
"""
    section = rebuild_kernels(save_msgpack(IRModule({"main": parse(text)})), ("main",))
    assert not [f for f in section.infos[0].failures if f.kind == "assert"]
    a = np.ones((3, 64), "float32")
    b = np.zeros((3, 64), "float32")
    Module(section)(a, b)
    assert (b == 2).all()


A = decl_buffer((4,), "float32", "A")
INT = decl_buffer((4,), "int64", "I")


def store(index, buffer=A):
    return PrimFunc(
        [A], BufferStore(buffer, const(1.0, "float32"), (index,)), attrs={"global_symbol": "main"}
    )


def test_vector_accesses_are_checked():
    for index in (
        Ramp(2, 1, 4),
        Ramp(3, -1, 5),
        Ramp(0, 1 << 30, 4),
        Broadcast(const(4), 4),
        Ramp(const(-1), 1, 4),
    ):
        rt = rebuilt(store(index))
        around = np.full(64, 7, "float32")
        with pytest.raises(VMValueError, match="out of bounds"):
            rt(around[24:28])
        assert (around == 7).all()
    i8 = decl_buffer((4,), "int64", "I")
    gather = PrimFunc(
        [i8, A],
        BufferStore(A, const(1.0, "float32"), (i8[Ramp(0, 1, 4)],)),
        attrs={"global_symbol": "main"},
    )
    rt = rebuilt(gather)
    v = np.zeros(4, "float32")
    rt(np.array([3, 2, 0, 0]), v)
    assert list(v) == [1, 0, 1, 1]
    with pytest.raises(VMValueError, match="out of bounds"):
        rt(np.array([3, 2, 4, 0]), v)
    with pytest.raises(VMValueError, match="out of bounds"):
        rt(np.array([3, 2, -1, 0]), v)


def test_a_view_larger_than_its_memory_is_checked():
    view = decl_buffer((1 << 40,), "float32", "V", data=A.data)
    k = Var("k", "int64")
    fn = PrimFunc(
        [A, k],
        DeclBuffer(view, BufferStore(view, const(1.0), (k,))),
        attrs={"global_symbol": "main"},
    )
    rt = rebuilt(fn)
    v = np.zeros(4, "float32")
    rt(v, 3)
    assert v[3] == 1
    for bad in (4, -1, 1 << 39):
        with pytest.raises(VMValueError, match="out of bounds"):
            rt(v, bad)


def test_a_view_of_wider_elements_is_checked_in_its_own_size():
    view = decl_buffer((4,), "float64", "V", data=A.data)
    k = Var("k", "int64")
    fn = PrimFunc(
        [A, k],
        DeclBuffer(view, BufferStore(view, const(1.0, "float64"), (k,))),
        attrs={"global_symbol": "main"},
    )
    rt = rebuilt(fn)
    v = np.zeros(8, "float32")[4:]
    rt(v, 1)
    with pytest.raises(VMValueError, match="out of bounds"):
        rt(v, 2)


def test_memory_whose_size_was_read_from_memory_keeps_that_size():
    b = decl_buffer((INT[0],), "int64", "b")
    body = seq(
        BufferStore(INT, const(1 << 30, "int64"), (0,)),
        BufferStore(b, const(5, "int64"), (INT[1],)),
    )
    fn = PrimFunc(
        [INT],
        Allocate(b.data, "int64", (INT[0],), const(True), DeclBuffer(b, body)),
        attrs={"global_symbol": "main"},
    )
    rt = rebuilt(fn)
    rt(np.array([4, 3, 0, 0]))
    with pytest.raises(VMValueError, match="out of bounds"):
        rt(np.array([4, 4, 0, 0]))
    with pytest.raises(VMValueError, match="out of bounds"):
        rt(np.array([-4, 0, 0, 0]))


def test_strided_and_empty_parameters():
    s = Var("s", "int64")
    n = Var("n", "int64")
    a = decl_buffer((n, 2), "float32", "a", strides=(s, 1))
    k = Var("k", "int64")
    fn = PrimFunc([a, k], BufferStore(a, const(1.0), (k, 0)), attrs={"global_symbol": "main"})
    rt = rebuilt(fn)
    base = np.zeros((4, 8), "float32")
    rt(base[:, :2], 3)
    assert base[3, 0] == 1
    with pytest.raises(VMValueError, match="out of bounds"):
        rt(base[:, :2], 4)
    with pytest.raises(VMValueError, match="out of bounds"):
        rt(np.zeros((0, 2), "float32"), 0)


def test_symbols_too_large_for_index_arithmetic_are_refused_at_the_door():
    n, m = Var("n", "int64"), Var("m", "int64")
    shape_only, b = decl_buffer((n, 0), "int8", "s"), decl_buffer((m,), "float32", "b")
    body = IfThenElse(n * 8 < m, BufferStore(b, const(1.0), (n * 8,)))
    rt = rebuilt(PrimFunc([shape_only, b], body, attrs={"global_symbol": "main"}))
    # n * 8 wraps to a negative number.
    with pytest.raises(VMValueError, match="n is at most"):
        rt(np.empty((1 << 60, 0), "int8"), np.zeros(4, "float32"))


HANDLE = Var("p", "handle")
BEHIND = decl_buffer((9,), "float32", "P", data=HANDLE)
REFUSED = {
    "a call of C": Evaluate(call_extern("int32", "abort")),
    "a C function's result": BufferStore(A, call_extern("float32", "sinf", A[0]), (0,)),
    "an LLVM intrinsic": BufferStore(A, call_llvm_pure_intrin("float32", "llvm.sqrt", A[0]), (0,)),
    "an address": Evaluate(address_of(A[0])),
    "an access pointer": Evaluate(tvm_access_ptr("float32", A.data, 100, 4, 3)),
    "a pointer variable": LetStmt(HANDLE, A.data, BufferStore(BEHIND, const(1.0), (8,))),
    "an unknown function": Evaluate(Call("int32", GlobalVar("nobody"), ())),
    "an undefined variable": BufferStore(A, const(1.0), (Var("i"),)),
    "an undefined buffer": BufferStore(decl_buffer((4,), "float32", "B"), const(1.0), (0,)),
    "too many lanes": BufferStore(A, const(1.0), (Ramp(0, 1, 4096),)),
    "a variable defined twice": (
        lambda i: seq(
            For(i, 0, 4, "serial", For(i, 0, 9, "serial", Evaluate(const(0)))),
            BufferStore(A, const(1.0), (0,)),
        )
    )(Var("i")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_reaches_outside_or_means_nothing_is_refused(name):
    fn = PrimFunc([A], REFUSED[name], attrs={"global_symbol": "main"})
    with pytest.raises(RelaxvmError):
        rebuilt(fn)


def test_a_callee_that_expects_more_memory_is_refused():
    g = GlobalVar("callee")
    big = decl_buffer((100,), "float32", "big")
    callee = PrimFunc([big], BufferStore(big, const(1.0), (99,)), attrs={"global_symbol": "callee"})
    caller = PrimFunc([A], Evaluate(Call("int32", g, (A.data,))), attrs={"global_symbol": "main"})
    with pytest.raises(RelaxvmError, match="cannot be proven"):
        rebuilt(IRModule({g: callee, "main": caller}))


@pytest.mark.parametrize(
    ("dtype", "message"), [("float64", "cannot be proven"), ("float32", None), ("int8", None)]
)
def test_a_callee_sees_no_more_bytes_than_there_are(dtype, message):
    g = GlobalVar("callee")
    other = decl_buffer((4,), dtype, "other")
    callee = PrimFunc(
        [other], BufferStore(other, const(1, dtype), (3,)), attrs={"global_symbol": "callee"}
    )
    caller = PrimFunc([A], Evaluate(Call("int32", g, (A.data,))), attrs={"global_symbol": "main"})
    mod = IRModule({g: callee, "main": caller})
    if message is None:
        rebuilt(mod)["main"](np.zeros(4, "float32"))
    else:
        with pytest.raises(RelaxvmError, match=message):
            rebuilt(mod)


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"\x80", b"x" * 100, save_msgpack(const(1)), "text", None]
)
def test_bytes_that_are_no_module(data):
    with pytest.raises(RelaxvmError):
        rebuild_kernels(data, ("main",))


def test_a_name_that_is_not_there():
    section = compile_prim_funcs(IRModule({"main": store(const(0))}))
    with pytest.raises(RelaxvmError, match="other are not among them"):
        rebuild_kernels(section.portable, ("other",))
    assert rebuild_kernels(section.portable, ()).infos == ()


def test_rebuilding_gives_the_same_interface():
    mod = IRModule({"b": store(const(0)), "a": store(const(1))})
    section = compile_prim_funcs(mod)
    again = rebuild_kernels(section.portable, ("a", "b"))
    assert again.names == ("a", "b")
    params = {info.name: info.params for info in section.infos}
    assert all(info.params == params[info.name] for info in again.infos)
    assert again.portable == section.portable


SAMPLE = """
def main(A: T.Buffer((4, 8), "float32"), B: T.Buffer((8,), "int32"), n: T.int32):
    T.func_attr({"global_symbol": "main", "tir.noalias": True})
    C = T.alloc_buffer((4, 8), "float16")
    for i, j in T.grid(4, 8):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            with T.init():
                C[vi, vj] = T.float16(0)
            C[vi, vj] = T.Cast("float16", A[vi, vj] * T.float32(2)) + C[vi, vj]
    for i in T.vectorized(8):
        B[i] = T.if_then_else(i < n, B[i] // 3, B[i] % 5)
    if n > 3:
        A[0, n % 8] = T.exp(A[1, 0])
    assert n < 100, "small"
    A[3, 7] = T.Cast("float32", C[2, 2])
"""


def check_mutant(data):
    """Bytes give kernels or a typed error."""
    try:
        rebuild_kernels(data, ("main",))
    except RelaxvmError:
        return False
    return True


@settings(max_examples=80)
@given(st.data())
def test_damaged_bytes_give_kernels_or_a_typed_error(data):
    good = save_msgpack(IRModule({"main": parse(SAMPLE)}), spans=False)
    bad = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        bad[data.draw(st.integers(0, len(bad) - 1))] = data.draw(st.integers(0, 255))
    check_mutant(bytes(bad))


def test_the_portable_form_is_the_saved_module():
    section = compile_prim_funcs(IRModule({"main": parse(SAMPLE)}))
    assert isinstance(load_msgpack(section.portable)["main"], PrimFunc)
