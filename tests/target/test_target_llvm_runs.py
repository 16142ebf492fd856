"""Vectors from memory: every few elements, and runs that a condition chooses."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm.ir import Let, Var, const
from relaxvm.script import from_source
from relaxvm.tir import BufferStore, LetStmt, PrimFunc, decl_buffer, interpret, seq

DTYPES = ("float32", "float64", "float16", "int8", "uint16", "int64", "bool")


def data(dtype, size):
    rng = np.random.default_rng(0)
    if dtype == "bool":
        return rng.random(size) < 0.5
    return (rng.random(size) * 100).astype(dtype)


def same(fn, a, size):
    wanted, got = (np.zeros(size, a.dtype) for _ in range(2))
    interpret(fn, a, wanted)
    module = tvm.build(fn, target="llvm")
    module["main"](a, got)
    np.testing.assert_array_equal(got, wanted)
    return module.get_source("llvm")


@pytest.mark.parametrize("lanes", [3, 8, 13])
@pytest.mark.parametrize("stride", [2, 3, 4, 5])
def test_every_few_elements_are_read_and_written(lanes, stride):
    """Of arrays that end with the last one that is read."""
    size = (lanes - 1) * stride + 1
    fn = from_source(f"""
@T.prim_func
def main(A: T.Buffer(({size},), "float32"), B: T.Buffer(({size},), "float32")):
    for i in T.vectorized({lanes}):
        B[i * {stride}] = A[i * {stride}] + T.float32(1)
""")
    same(fn, data("float32", size), size)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_other_element_of_each_dtype(dtype):
    fn = from_source(f"""
@T.prim_func
def main(A: T.Buffer((34,), "{dtype}"), B: T.Buffer((16,), "{dtype}")):
    for i in T.vectorized(16):
        B[i] = A[i * 2 + 1]
""")
    text = same(fn, data(dtype, 34), 16)
    assert "shufflevector" in text and "insertelement" not in text


@pytest.mark.parametrize("step", [-9, -1, 0, 9])
@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_a_constant_distance_apart_have_no_vector_of_places(dtype, step):
    """Also in copies of a loop, from where the run says."""
    size = 8 * abs(step) + 8
    fn = from_source(f"""
@T.prim_func
def main(A: T.Buffer(({size},), "{dtype}"), B: T.Buffer(({size},), "{dtype}")):
    for k in range(2):
        for u in T.unroll(3):
            for i in T.vectorized(8):
                B[k * 3 + u + i * {step} + {max(0, -7 * step)}] = A[
                    k + u + i * {step} + {max(0, -7 * step)}
                ]
""")
    assert "extractelement <8 x i64>" not in same(fn, data(dtype, size), size)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bool"])
def test_a_run_or_a_constant_without_a_branch(dtype):
    zero = f"T.{dtype}(0)"
    fn = from_source(f"""
@T.prim_func
def main(A: T.Buffer((4, 7), "{dtype}"), B: T.Buffer((5, 7), "{dtype}")):
    for i in range(5):
        for j in T.vectorized(7):
            B[i, j] = T.if_then_else(i >= 1, A[i - 1, j], {zero})
""")
    text = same(fn, data(dtype, 28).reshape(4, 7), (5, 7))
    assert "phi <7" not in text


def test_a_run_that_is_converted_or_a_zero():
    fn = from_source("""
@T.prim_func
def main(A: T.Buffer((28,), "int8"), B: T.Buffer((35,), "int8")):
    acc = T.alloc_buffer((7,), "int32")
    for i in range(5):
        for j in T.vectorized(7):
            acc[j] = T.if_then_else(i >= 1, T.Cast("int32", A[i * 7 + j - 7]), 0)
        for j in T.vectorized(7):
            B[i * 7 + j] = T.Cast("int8", acc[j] + 3)
""")
    same(fn, data("int8", 28), 35)


def test_an_index_that_is_checked_is_evaluated_only_where_it_is_needed():
    fn = from_source("""
@T.prim_func
def main(
    A: T.Buffer((2, 8), "float32"), I: T.Buffer((3,), "int32"), B: T.Buffer((3, 8), "float32")
):
    for i in range(3):
        for j in T.vectorized(8):
            B[i, j] = T.if_then_else(i < 2, A[I[i], j], T.float32(7))
""")
    a, out = np.arange(16, dtype="float32").reshape(2, 8), np.zeros((3, 8), "float32")
    tvm.build(fn, target="llvm")["main"](a, np.array([1, 0, 99], "int32"), out)
    np.testing.assert_array_equal(out, [a[1], a[0], [7.0] * 8])


def test_sums_of_a_variable_that_is_bound_again_are_computed_again():
    A, B = decl_buffer((2,), "int64", "A"), decl_buffer((4,), "int64", "B")
    v = Var("v", "int64")
    place = v * 2 + 1
    stores = [
        LetStmt(v, A[i] + 1, BufferStore(B, place * (place + 7), [const(i, "int64")]))
        for i in range(2)
    ]
    twice = Let(v, A[0] + 1, place * 2) * Let(v, A[1] + 1, place * 2)
    body = seq(*stores, BufferStore(B, twice, [const(2, "int64")]))
    same(PrimFunc([A, B], body), np.array([3, 40], "int64"), 4)


COPIES = """
@T.prim_func
def main(A: T.Buffer((256,), "{dtype}"), B: T.Buffer((256,), "{dtype}")):
    for k in range(3):
        for i in T.unroll(4):
            for j in T.unroll(-1, 2):
                {statement}
"""


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int64"])
@pytest.mark.parametrize(
    "statement",
    [
        "B[k * 64 + i * 8 + j + 1] = A[200 - k - i * 16 - j]",
        "B[T.Ramp(k * 64 + i * 16 + (j + 1) * 2, 1, 2)] = A[T.Ramp((i + k) * 8 + j + 9, 1, 2)]",
        "B[T.Ramp(k + i * 60, 3, 5)] = A[T.Ramp(i * 32 + j + 1, 2, 5)] * A[T.Ramp(i, 9, 5)]",
        "B[T.Ramp(i * 8 + j + 1, 30, 5)] = A[T.Ramp(i * 8 + j + 1, 30, 5)]",
        "B[T.Cast('int64', i) * T.int64(9) + T.Cast('int64', j + 1)] = A[i] + A[k + 7 - j]",
        "if i < 2: B[i * 8 + j + 1] = A[k]\n                else: B[i * 8 + j + 1] = A[i]",
        "if i * 2 >= 3 and k < 2: B[i * 8 + j + 1] = A[k + 1 - j]",
        "B[i * 16 + k] = B[i * 16 + k] + A[k * 16 + (j + 1)] * A[i + 3]",
        "B[T.Ramp(i * 8, 1, 8)] = T.if_then_else(k < 2, A[T.Ramp(i * 9 + k, 1, 8)], "
        "T.Broadcast(T.{dtype}(0), 8))",
    ],
)
def test_copies_read_and_write_where_the_interpreter_does(dtype, statement):
    statement = statement.format(dtype=dtype)
    fn = from_source(COPIES.format(dtype=dtype, statement=statement))
    same(fn, data(dtype, 256), 256)


def test_indices_that_wrap_around_between_their_parts():
    """Nothing is read there: the interpreter, and machine code, only add up in 64 bits."""
    huge = (1 << 63) - 8
    fn = from_source(f"""
@T.prim_func
def main(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for k in range(2):
        for i in T.unroll(4):
            B[T.int64({huge}) + T.Cast("int64", k) * T.int64(8) - T.int64({huge}) + i] = A[i]
""")
    same(fn, data("float32", 64), 64)
