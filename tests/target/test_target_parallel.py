"""Parallel loops: machine code on several threads against the interpreter."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

from relaxvm import relax
from relaxvm.base import VMError, VMTypeError, VMValueError
from relaxvm.ir import IRModule
from relaxvm.runtime import cpu, threads
from relaxvm.script import from_source
from relaxvm.script import tir as T
from relaxvm.target import build
from relaxvm.target.llvm import rebuild_kernels
from relaxvm.tir import interpret

POOL = "relaxvm_parallel_for"


@T.prim_func
def row_sums(a: T.handle, b: T.handle):
    n, m = T.int64(), T.int64()
    A = T.match_buffer(a, (n, m), "int64")
    B = T.match_buffer(b, (n,), "int64")
    for i in T.parallel(n):
        B[i] = T.int64(0)
        for j in range(m):
            B[i] = B[i] + A[i, j] * A[i, j]


@T.prim_func
def scratch(A: T.Buffer((300, 64), "float32"), B: T.Buffer((300, 64), "float32")):
    T.func_attr({"tir.noalias": True})
    for i in T.parallel(300):
        with T.block("row"):
            vi = T.axis.spatial(300, i)
            row = T.alloc_buffer((64,), "float32")
            for j in range(64):
                row[j] = A[vi, j] * T.float32(2)
            for j, k in T.grid(64, 8):
                B[vi, j] = row[63 - j] + row[k] * T.float32(0.5)


@T.prim_func
def large_scratch(A: T.Buffer((8, 16384), "float64"), B: T.Buffer((8, 16384), "float64")):
    for i in T.parallel(8):
        with T.block("row"):
            vi = T.axis.spatial(8, i)
            row = T.alloc_buffer((16384,), "float64")
            for j in range(16384):
                row[j] = A[vi, j] + T.float64(1)
            for j in range(16384):
                B[vi, j] = row[16383 - j]


@T.prim_func
def nested(A: T.Buffer((64, 64, 64), "int32"), B: T.Buffer((64, 64, 64), "int32")):
    for i in T.parallel(64):
        for j in T.parallel(64):
            for k in range(64):
                B[i, j, k] = A[i, 63 - j, k] * (i + j) + k


@T.prim_func
def offset(a: T.handle, b: T.handle, start: T.int32, scale: T.float32, flip: T.bool):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i in T.parallel(start, 200000):
        B[i] = T.if_then_else(flip, A[i] * scale, A[i] - scale) + T.Cast("float32", start)


@T.prim_func
def checked(A: T.Buffer((100000,), "int32"), B: T.Buffer((100000,), "int32")):
    for i in T.parallel(100000):
        assert A[i] >= 0, "negative input"
        B[i] = A[i] + 1


@T.prim_func
def twice(A: T.Buffer((100000,), "int32"), B: T.Buffer((100000,), "int32")):
    for i in T.parallel(100000):
        B[i] = A[i] + 1
    for i in T.parallel(100000):
        A[i] = B[i] * 2


@T.prim_func
def tiny(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32")):
    for i in T.parallel(16):
        B[i] = A[i] + 1


@T.prim_func
def tiny_serial(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32")):
    for i in T.serial(16):
        B[i] = A[i] + 1


@T.prim_func
def gather(
    A: T.Buffer((100000,), "int32"),
    I: T.Buffer((100000,), "int32"),
    B: T.Buffer((100000,), "int32"),
):
    for i in T.parallel(100000):
        B[i] = A[I[i]]


def native(fn, threads_wanted=4):
    rt = build(IRModule({"main": fn}))
    rt.num_threads = threads_wanted
    return rt


def regions():
    pool = threads._library()
    return pool.word(threads.layout.REGIONS)


def both(fn, *args):
    """Outputs by the interpreter and by four threads; the latter must have used the pool."""
    given = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    interpret(fn, *given)
    rt = native(fn)
    entry = rt["main"]
    before = regions()
    entry(*args)
    assert regions() > before
    for got, want in zip(args, given):
        np.testing.assert_array_equal(got, want)


def test_reductions_inside_agree_with_the_interpreter():
    rng = np.random.default_rng(0)
    both(row_sums, rng.integers(-9, 9, (97, 500)), np.zeros(97, "int64"))


@pytest.mark.parametrize("shape", [(0, 7), (1, 100000), (5, 0), (3, 3), (2, 100000)])
def test_odd_symbolic_extents_give_the_same(shape):
    a = np.arange(np.prod(shape), dtype="int64").reshape(shape)
    b = np.full(shape[0], -1, "int64")
    native(row_sums)["main"](a, b)
    np.testing.assert_array_equal(b, (a * a).sum(1))


def test_local_buffers_belong_to_one_iteration():
    rng = np.random.default_rng(1)
    a = rng.random((300, 64), "float32")
    b = np.zeros_like(a)
    rt = native(scratch)
    assert POOL in rt.get_source("ll")
    for _ in range(20):
        b[...] = 0
        rt["main"](a, b)
        np.testing.assert_array_equal(b, a[:, ::-1] * 2 + a[:, 7:8])


def test_local_buffers_on_the_heap_belong_to_one_iteration():
    a = np.random.default_rng(2).random((8, 16384))
    b = np.zeros_like(a)
    rt = native(large_scratch)
    assert POOL in rt.get_source("ll")
    for _ in range(20):
        b[...] = 0
        rt["main"](a, b)
        np.testing.assert_array_equal(b, a[:, ::-1] + 1)


def test_a_nested_parallel_loop_runs_inside_its_iteration():
    rng = np.random.default_rng(3)
    a = rng.integers(-99, 99, (64, 64, 64)).astype("int32")
    b = np.zeros_like(a)
    rt = native(nested)
    assert rt.get_source("ll").count(f"call i32 @{POOL}") == 1
    rt["main"](a, b)
    i, j, k = np.ogrid[:64, :64, :64]
    np.testing.assert_array_equal(b, a[:, ::-1] * (i + j) + k)


@pytest.mark.parametrize("flip", [False, True])
def test_scalars_and_a_loop_that_starts_late_are_captured(flip):
    a = np.arange(200100, dtype="float32")
    b = np.zeros_like(a)
    rt = native(offset)
    assert POOL in rt.get_source("ll")
    rt["main"](a, b, 100, 1.5, flip)
    want = (a * np.float32(1.5) if flip else a - np.float32(1.5)) + np.float32(100)
    want[:100] = want[200000:] = 0
    np.testing.assert_array_equal(b, want)


@pytest.mark.parametrize("place", [0, 50000, 99999])
def test_a_failure_in_one_iteration_is_the_failure_of_the_call(place):
    a = np.ones(100000, "int32")
    b = np.zeros_like(a)
    rt = native(checked)
    assert POOL in rt.get_source("ll")
    rt["main"](a, b)
    np.testing.assert_array_equal(b, 2)
    a[place] = -1
    with pytest.raises(VMError, match="negative input"):
        rt["main"](a, b)
    a[place] = 1
    b[...] = 0
    rt["main"](a, b)
    np.testing.assert_array_equal(b, 2)


def test_the_second_loop_sees_all_of_the_first():
    rt = native(twice)
    for k in range(30):
        a = np.full(100000, k, "int32")
        b = np.zeros_like(a)
        rt["main"](a, b)
        np.testing.assert_array_equal(b, k + 1)
        np.testing.assert_array_equal(a, 2 * (k + 1))


def test_a_tiny_parallel_loop_is_a_plain_loop():
    plain, parallel = build(tiny_serial, name="f"), build(tiny, name="f")
    code = [rt.get_source("ll").replace("tiny_serial", "tiny") for rt in (plain, parallel)]
    assert code[0] == code[1]
    assert POOL not in code[1]


def test_code_from_a_file_is_shared_out_unless_its_accesses_depend_on_memory():
    rt = build(IRModule({"sums": row_sums, "gather": gather}))
    assert rt.get_source("ll").count(f"call i32 @{POOL}") == 2
    for fn, shared in ((scratch, True), (gather, False)):
        section = build(IRModule({"main": fn})).section
        rebuilt = rebuild_kernels(section.portable, ("main",))
        assert (threads.POOL_SYMBOL.encode() in rebuilt.native[0].object) is shared


def test_a_budget_of_one_thread_never_uses_the_pool():
    rt = native(twice, 1)
    entry = rt["main"]
    before = regions()
    entry(np.zeros(100000, "int32"), np.zeros(100000, "int32"))
    assert regions() == before


def test_a_wrong_number_of_threads_is_refused():
    rt = build(IRModule({"main": tiny}))
    for wrong, error in ((0, VMValueError), (-1, VMValueError), (10**6, VMValueError)):
        with pytest.raises(error, match="threads"):
            rt.num_threads = wrong
    for wrong in (True, "2", 1.5):
        with pytest.raises(VMTypeError, match="threads"):
            rt.num_threads = wrong
    assert rt.num_threads is None


def test_each_vm_has_its_own_budget():
    text = """
    @I.ir_module
    class M:
        @T.prim_func
        def add(A: T.Buffer((100000,), "int32"), B: T.Buffer((100000,), "int32")):
            for i in T.parallel(100000):
                B[i] = A[i] + 1

        @R.function
        def main(x: R.Tensor((100000,), "int32")) -> R.Tensor((100000,), "int32"):
            with R.dataflow():
                y = R.call_tir(M.add, (x,), R.Tensor((100000,), "int32"))
                R.output(y)
            return y
    """
    ex = relax.build(from_source(textwrap.dedent(text)), target="llvm")
    x = np.arange(100000, dtype="int32")
    used = []
    for count in (1, 3):
        vm = relax.VirtualMachine(ex, cpu(), num_threads=count)
        vm["main"](x)
        before = regions()
        np.testing.assert_array_equal(vm["main"](x).numpy(), x + 1)
        used.append(regions() - before)
    assert used == [0, 1]
    with pytest.raises(VMValueError, match="num_threads"):
        relax.VirtualMachine(ex, cpu(), num_threads=0)
