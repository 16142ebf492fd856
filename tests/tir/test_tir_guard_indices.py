"""GuardIndices: kernels check the indices that nothing proves, and only those."""

from __future__ import annotations

import numpy as np
import pytest
from transform_helpers import parse

import relaxvm as tvm
from relaxvm.base import RelaxvmError
from relaxvm.ir import IRModule, PassContext, walk
from relaxvm.tir.transform import lower_module


def guards(text, **config):
    """How many guards the lowered function carries."""
    with PassContext(config=config):
        return lower_module(IRModule({"main": parse(text)}))["main"].script().count("bound_check")


GATHER = """
def main(I: T.Buffer((8,), "int32"), A: T.Buffer((16, 4), "float32"),
         B: T.Buffer((8, 4), "float32")):
    for i, j in T.grid(8, 4):
        B[i, j] = A[I[i], j]
"""


def test_an_index_from_data_is_guarded_and_a_wild_one_raises():
    assert guards(GATHER) == 1
    fn = tvm.build(IRModule({"main": parse(GATHER)}), target="llvm")["main"]
    a = np.arange(64, dtype="float32").reshape(16, 4)
    i = np.array([0, 15, 3, 3, 7, 1, 2, 9], "int32")
    b = np.zeros((8, 4), "float32")
    fn(i, a, b)
    np.testing.assert_array_equal(b, a[i])
    for wild in (16, -1, 2**31 - 1, -(2**31)):
        i[5] = wild
        with pytest.raises(RelaxvmError, match="buffer A"):
            fn(i, a, b)


def test_a_column_index_cannot_run_into_the_next_row():
    text = """
def main(k: T.int32, A: T.Buffer((4, 4), "float32"), B: T.Buffer((1,), "float32")):
    B[0] = A[0, k]
"""
    fn = tvm.build(IRModule({"main": parse(text)}), target="llvm")["main"]
    a, b = np.arange(16, dtype="float32").reshape(4, 4), np.zeros(1, "float32")
    fn(3, a, b)
    assert b[0] == 3
    for wild in (4, 15, -1, 10**6):
        with pytest.raises(RelaxvmError, match="buffer A"):
            fn(wild, a, b)


def test_a_store_through_a_wild_scalar_raises_and_writes_nothing():
    text = """
def main(k: T.int64, B: T.Buffer((4,), "float32")):
    B[k] = T.float32(1)
"""
    fn = tvm.build(IRModule({"main": parse(text)}), target="llvm")["main"]
    b = np.zeros(4, "float32")
    for wild in (4, -1, 2**62, -(2**63)):
        with pytest.raises(RelaxvmError, match="buffer B"):
            fn(wild, b)
    assert not b.any()


def test_a_mistaken_loop_raises_instead_of_reading_beyond():
    text = """
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i in range(n):
        B[i] = A[i + 1]
"""
    fn = tvm.build(IRModule({"main": parse(text)}), target="llvm")["main"]
    with pytest.raises(RelaxvmError, match="buffer A"):
        fn(np.zeros(5, "float32"), np.zeros(5, "float32"))
    fn(np.zeros(0, "float32"), np.zeros(0, "float32"))


ORDINARY = {
    "matmul": """
def main(a: T.handle, b: T.handle, c: T.handle):
    n, m, k = T.int64(), T.int64(), T.int64()
    A = T.match_buffer(a, (n, k), "float32")
    B = T.match_buffer(b, (k, m), "float32")
    C = T.match_buffer(c, (n, m), "float32")
    for i, j, r in T.grid(n, m, k):
        with T.block("C"):
            vi, vj, vr = T.axis.remap("SSR", [i, j, r])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] += A[vi, vr] * B[vr, vj]
""",
    "padding": """
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n + T.int64(2),), "float32")
    for i in range(n + T.int64(2)):
        B[i] = T.if_then_else(1 <= i and i < n + T.int64(1), A[i - T.int64(1)], T.float32(0))
""",
    "tiled with a tail": """
def main(A: T.Buffer((100,), "float32"), B: T.Buffer((100,), "float32")):
    for io, ii in T.grid(13, 8):
        with T.block("B"):
            v = T.axis.spatial(100, io * 8 + ii)
            T.where(io * 8 + ii < 100)
            B[v] = A[v] + T.float32(1)
""",
    "wrapped around": """
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i in range(n):
        B[i] = A[(i + T.int64(3)) % n]
""",
    "vectors": """
def main(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for i in range(4):
        for j in T.vectorized(16):
            B[i * 16 + j] = A[i * 16 + j]
""",
    "row by row of a reshaped array": """
def main(A: T.Buffer((6, 8), "float32"), B: T.Buffer((48,), "float32")):
    for i in range(48):
        B[i] = A[i // 8, i % 8]
""",
    "row by row of an array that is padded to whole rows": """
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, ((n + T.int64(7)) // T.int64(8), T.int64(8)), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i in range(n):
        B[i] = A[i // T.int64(8), i % T.int64(8)]
""",
    "behind a condition": """
def main(k: T.int64, A: T.Buffer((6,), "float32"), B: T.Buffer((1,), "float32")):
    if k >= T.int64(0) and k < T.int64(6):
        B[0] = A[k]
""",
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_kernels_carry_no_guard(name):
    assert guards(ORDINARY[name]) == 0


def test_a_condition_on_memory_proves_nothing():
    text = """
def main(I: T.Buffer((1,), "int32"), A: T.Buffer((4,), "float32")):
    if I[0] >= 0 and I[0] < 4:
        I[0] = 100
        A[I[0]] = T.float32(1)
"""
    assert guards(text) == 1


def test_the_guard_goes_away_on_request():
    assert guards(GATHER, **{"tir.guard_indices": False}) == 0


def choices(levels):
    a = tvm.te.placeholder((32,), "float32", "a")

    def nested(i):
        x = a[i]
        for k in range(levels):
            x = tvm.tir.if_then_else(i > k, x * 0.5 + x * 0.25, x * x)
        return x

    return tvm.te.create_prim_func([a, tvm.te.compute((32,), nested, "b")])


def test_choices_that_share_expressions_take_no_longer_than_there_are_expressions():
    # There are 2**60 ways through these.
    lowered = lower_module(IRModule({"main": choices(60)}))["main"]
    assert not any(
        getattr(n.op, "name", "") == "tir.bound_check"
        for n in walk(lowered)
        if isinstance(n, tvm.tir.Call)
    )


def test_choices_that_share_expressions_give_what_they_mean():
    values = np.linspace(-1, 1, 32, dtype="float32")
    wanted = values.copy()
    for k in range(9):
        half, quarter = wanted * np.float32(0.5), wanted * np.float32(0.25)
        wanted = np.where(np.arange(32) > k, half + quarter, wanted * wanted)
    got = tvm.nd.empty((32,), "float32")
    tvm.build(IRModule({"main": choices(9)}), "llvm")(tvm.nd.array(values), got)
    np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-4, atol=1e-30)
