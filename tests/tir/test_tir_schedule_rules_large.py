"""Default schedules of what is larger than the caches: stores past them, rows asked for ahead."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import te, tir
from relaxvm.base import CpuModel
from relaxvm.ir import walk
from relaxvm.tir import NONTEMPORAL, PREFETCH, For, ForKind
from relaxvm.tir.schedule.plans import schedule_function

# Caches so small that little is large.
SMALL = CpuModel(
    vector_bits=256, vector_registers=16, fma=True, l1_bytes=1 << 10, l2_bytes=4 << 10,
    l3_bytes=16 << 10,
)  # fmt: skip
ROOMY = CpuModel(vector_bits=256, vector_registers=16, fma=True)
SHARED = CpuModel(
    vector_bits=256, vector_registers=16, fma=True, l2_bytes=4 << 10, l3_bytes=16 << 10, cores=2
)


def annotated(fn, key):
    return [n for n in walk(fn) if isinstance(n, For) and key in n.annotations]


def vectors(fn):
    return [n.extent.value for n in walk(fn) if isinstance(n, For) and n.kind == ForKind.VECTORIZED]


def elementwise(shape, dtype="float32", function=tir.exp):
    a = te.placeholder(shape, dtype, name="A")
    return te.create_prim_func([a, te.compute(a.shape, lambda *i: function(a(*i)), "out")])


def softmax(rows, columns, dtype="float32", mask=False):
    a = te.placeholder((rows, columns), dtype, name="A")
    args = [a]
    if mask:
        seen = te.placeholder((rows, columns), "bool", name="seen")
        args.append(seen)
        least = tir.const(-1e9, dtype)
        x = te.compute(a.shape, lambda i, j: tir.Select(seen(i, j), a(i, j), least), "masked")
    else:
        x = a
    k, r = te.reduce_axis((0, columns), "k"), te.reduce_axis((0, columns), "r")
    top = te.compute((rows,), lambda i: te.max(x(i, k), axis=[k]), "top")
    e = te.compute((rows, columns), lambda i, j: tir.exp(x(i, j) - top(i)), "exp")
    total = te.compute((rows,), lambda i: te.sum(e(i, r), axis=[r]), "total")
    out = te.compute((rows, columns), lambda i, j: e(i, j) / total(i), "out")
    return te.create_prim_func([*args, out])


def softmax_of(x):
    x = x.astype("float64")
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def values(shape, dtype="float32"):
    return np.random.default_rng(0).uniform(-3, 3, shape).astype(dtype)


def check(fn, cpu, want, *arrays, rtol=1e-5):
    """Results in memory aligned and not are as wanted; returns the schedule."""
    made = schedule_function(fn, cpu)
    run = tvm.build(made, target="llvm")["main"]
    count = want.size
    for shift in (0, 1):
        room = np.zeros(count + 64, arrays[0].dtype)
        start = -room.ctypes.data % 64 // room.itemsize + shift
        y = room[start : start + count].reshape(want.shape)
        run(*arrays, y)
        np.testing.assert_allclose(y, want, rtol=rtol, atol=1e-7)
        assert not room[:start].any()
        assert not room[start + count :].any()
    return made


# -- stores past the caches ------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(8192,), (64, 128), (3, 8, 256), (4, 24, 72)])
def test_large_results_of_elementwise_work_are_stored_past_the_caches(shape):
    x = values(shape)
    made = check(elementwise(shape), SMALL, np.exp(x), x)
    assert len(annotated(made, NONTEMPORAL)) == 1
    assert vectors(made) == [32]


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8"])
def test_vectors_are_as_wide_as_the_dtype_wants(dtype):
    x = values((64, 512), dtype)
    made = check(elementwise((64, 512), dtype, lambda v: v + v), SMALL, x + x, x)
    assert vectors(made) == [4 * 256 // (8 * x.itemsize)]


@pytest.mark.parametrize(
    ("shape", "cpu"),
    [((64, 32), SMALL), ((64, 128), ROOMY), ((63, 67), SMALL)],
    ids=["small", "in cache", "odd"],
)
def test_other_results_are_stored_as_ever(shape, cpu):
    x = values(shape)
    made = check(elementwise(shape), cpu, np.exp(x), x)
    assert not annotated(made, NONTEMPORAL)


def test_sizes_known_only_later_are_stored_as_ever():
    n = te.size_var("n", "int64")
    made = schedule_function(elementwise((n, 256)), SMALL)
    assert not annotated(made, NONTEMPORAL)


def test_what_is_read_again_stays_in_the_caches():
    a = te.placeholder((64, 128), "float32", name="A")
    e = te.compute(a.shape, lambda i, j: tir.exp(a(i, j)), "e")
    k = te.reduce_axis((0, 64), "k")
    total = te.compute((128,), lambda j: te.sum(e(k, j), axis=[k]), "total")
    made = schedule_function(te.create_prim_func([a, e, total]), SMALL)
    assert not annotated(made, NONTEMPORAL)


def test_a_transpose_is_stored_as_ever():
    a = te.placeholder((64, 128), "float32", name="A")
    out = te.compute((128, 64), lambda i, j: a(j, i), "out")
    x = values((64, 128))
    made = check(te.create_prim_func([a, out]), SMALL, x.T, x)
    assert not annotated(made, NONTEMPORAL)


def test_large_results_of_two_threads():
    shape = (1024, 512)
    x = values(shape)
    made = check(elementwise(shape), SHARED, np.exp(x), x)
    assert len(annotated(made, NONTEMPORAL)) == 1
    assert [n.kind for n in walk(made) if isinstance(n, For)].count(ForKind.PARALLEL) == 1


# -- rows asked for ahead --------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("cpu", [SMALL, SHARED], ids=["one core", "two cores"])
def test_rows_from_memory_are_asked_for_while_exp_is_computed(cpu, mask):
    rows, columns = 24, 1024
    x = values((rows, columns))
    seen = np.random.default_rng(1).random((rows, columns)) < 0.7
    arrays = (x, seen) if mask else (x,)
    want = softmax_of(np.where(seen, x, -1e9) if mask else x)
    made = check(softmax(rows, columns, mask=mask), cpu, want, *arrays)
    (ahead,) = annotated(made, PREFETCH)
    assert int(ahead.annotations[PREFETCH]) == columns
    assert "T.exp" in tvm.IRModule({"main": made.with_attr("global_symbol", "main")}).script()
    assert len(annotated(made, NONTEMPORAL)) == 1


@pytest.mark.parametrize(
    ("rows", "columns", "cpu"),
    [(24, 1024, ROOMY), (24, 997, SMALL), (24, 128, SMALL), ("n", 1024, SMALL)],
    ids=["in cache", "odd", "short", "symbolic"],
)
def test_other_rows_are_not_asked_for(rows, columns, cpu):
    n = te.size_var(rows, "int64") if rows == "n" else rows
    x = values((24, columns))
    made = check(softmax(n, columns), cpu, softmax_of(x), x)
    assert not annotated(made, PREFETCH)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_rows_of_other_floats(dtype):
    x = values((24, 2048), dtype)
    tolerance = 0.1 if dtype == "float16" else 1e-12
    made = check(softmax(24, 2048, dtype), SMALL, softmax_of(x), x, rtol=tolerance)
    assert len(annotated(made, PREFETCH)) == 1


def test_a_normalisation_without_much_to_compute_is_left_alone():
    a = te.placeholder((24, 1024), "float32", name="A")
    k = te.reduce_axis((0, 1024), "k")
    total = te.compute((24,), lambda i: te.sum(a(i, k), axis=[k]), "total")
    out = te.compute(a.shape, lambda i, j: a(i, j) - total(i) / 1024.0, "out")
    x = values((24, 1024))
    want = x - x.astype("float64").mean(-1, keepdims=True)
    made = check(te.create_prim_func([a, out]), SMALL, want, x, rtol=1e-4)
    assert not annotated(made, PREFETCH)
