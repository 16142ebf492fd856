"""Default schedules of chains over rows, reductions, transposes and elementwise work."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import te, tir
from relaxvm.base import CpuModel
from relaxvm.ir import Shuffle, walk
from relaxvm.tir import Block, For, ForKind
from relaxvm.tir.schedule.plans import schedule_function
from relaxvm.tir.transform import lower_module

WIDE = CpuModel(vector_bits=256, vector_registers=16, fma=True)
NARROW = CpuModel(vector_bits=128, vector_registers=16)
SHARED = CpuModel(vector_bits=256, vector_registers=16, fma=True, cores=2)


def loops(fn):
    return [n for n in walk(fn) if isinstance(n, For)]


def blocks(fn):
    return [n.name_hint for n in walk(fn) if isinstance(n, Block) and n.name_hint != "root"]


def run(fn, cpu, *arrays):
    made = schedule_function(fn, cpu)
    tvm.build(made, target="llvm")["main"](*arrays)
    return made


def random(shape, dtype="float32", seed=0):
    values = np.random.default_rng(seed).uniform(-2, 2, shape)
    return (values * (30 if np.dtype(dtype).kind in "iu" else 1)).astype(dtype)


def sizes(*given):
    return [te.size_var(n, "int64") if isinstance(n, str) else n for n in given]


# -- chains over rows ------------------------------------------------------------------------------


def softmax(shape, axis, dtype="float32"):
    a = te.placeholder(shape, dtype, name="A")
    k, r = (te.reduce_axis((0, a.shape[axis]), name) for name in "kr")
    rest = [n for d, n in enumerate(a.shape) if d != axis]

    def across(v, i):
        return (*i[:axis], v, *i[axis:])

    def row(i):
        return tuple(v for d, v in enumerate(i) if d != axis)

    top = te.compute(rest, lambda *i: te.max(a(*across(k, i)), axis=[k]), "top")
    e = te.compute(a.shape, lambda *i: tir.exp(a(*i) - top(*row(i))), "exp")
    total = te.compute(rest, lambda *i: te.sum(e(*across(r, i)), axis=[r]), "total")
    out = te.compute(a.shape, lambda *i: e(*i) / total(*row(i)), "out")
    return te.create_prim_func([a, out])


def softmax_of(x, axis):
    x = x.astype("float64")
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("cpu", [WIDE, NARROW, SHARED], ids=["wide", "narrow", "two cores"])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((5, 37), 1), ((1, 1), 1), ((64, 100), 0), ((33, 7), 0), ((2, 9, 5, 40), 1), ((70,), 0)],
)
def test_softmax_along_any_axis(shape, axis, cpu):
    x, y = random(shape), np.zeros(shape, "float32")
    run(softmax(shape, axis), cpu, x, y)
    np.testing.assert_allclose(y, softmax_of(x, axis), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("rows", "columns"), [("n", 33), (6, "m"), ("n", "m")])
@pytest.mark.parametrize("axis", [0, 1])
def test_softmax_of_sizes_known_only_later(rows, columns, axis):
    fn = softmax(sizes(rows, columns), axis)
    for n, m in ((6, 33), (1, 1) if (rows, columns) == ("n", "m") else (6, 33)):
        x, y = random((n, m)), np.zeros((n, m), "float32")
        run(fn, WIDE, x, y)
        np.testing.assert_allclose(y, softmax_of(x, axis), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_softmax_of_other_floats(dtype):
    x, y = random((4, 50), dtype), np.zeros((4, 50), dtype)
    run(softmax((4, 50), 1, dtype), WIDE, x, y)
    np.testing.assert_allclose(y, softmax_of(x, 1), rtol=1e-2 if dtype == "float16" else 1e-12)


def test_a_row_with_nan_or_infinity_spoils_no_other_row():
    x, y = random((4, 40)), np.zeros((4, 40), "float32")
    x[1, 7], x[2, 9], x[3, :20] = np.nan, np.inf, -np.inf
    run(softmax((4, 40), 1), WIDE, x, y)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(y, softmax_of(x, 1), rtol=1e-5, atol=1e-7)


def test_a_softmax_runs_row_by_row_and_keeps_one_row():
    made = schedule_function(softmax((128, 768), 1), WIDE)
    assert len([f for f in loops(made) if getattr(f.extent, "value", 0) == 128]) == 1
    text = lower_module(tvm.IRModule({"main": made})).script()
    assert "768)], " in text or "[T.int64(768)]" in text or "T.allocate([768]" in text
    assert "98304)]" not in text


@pytest.mark.parametrize(
    ("shape", "several"),
    [((96, 64), 8), ((3, 64, 128), 4), ((90, 100), 5), ((97, 64), 1), ((8, 64), 2), ((96, 600), 1)],
)
def test_short_rows_are_taken_several_at_a_time(shape, several):
    fn = softmax(shape, len(shape) - 1)
    rows = loops(schedule_function(fn, WIDE))[len(shape) - 2]
    assert rows.extent.value == shape[-2] // several
    x, y = random(shape), np.zeros(shape, "float32")
    run(fn, WIDE, x, y)
    np.testing.assert_allclose(y, softmax_of(x, len(shape) - 1), rtol=1e-5, atol=1e-7)


def group_norm(n, groups, width, inner):
    channels = groups * width
    a = te.placeholder((n, channels, inner), "float32", name="A")
    k, c = te.reduce_axis((0, inner), "k"), te.reduce_axis((0, width), "c")
    total = te.compute(
        (n, groups), lambda i, g: te.sum(a(i, g * width + c, k), axis=[k, c]), "total"
    )
    mean = te.compute((n, groups), lambda i, g: total(i, g) / float(width * inner), "mean")
    out = te.compute(
        a.shape, lambda i, j, x: (a(i, j, x) - mean(i, j // width)) * mean(i, j // width), "out"
    )
    return te.create_prim_func([a, out])


@pytest.mark.parametrize(("n", "groups", "width", "inner"), [(2, 3, 4, 20), (1, 8, 8, 49)])
def test_groups_of_channels_are_rows(n, groups, width, inner):
    shape = (n, groups * width, inner)
    x, y = random(shape), np.zeros(shape, "float32")
    made = run(group_norm(n, groups, width, inner), WIDE, x, y)
    parts = x.astype("float64").reshape(n, groups, -1)
    mean = parts.mean(-1, keepdims=True)
    want = ((parts - mean) * mean).reshape(shape)
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-5)
    outer = next(f for f in loops(made) if getattr(f.extent, "value", 0) in (n, groups))
    assert len([b for b in blocks(outer) if b in ("mean", "out")]) == 2


def test_rows_of_two_outputs_are_taken_together():
    a = te.placeholder((12, 30), "float32", name="A")
    k = te.reduce_axis((0, 30), "k")
    total = te.compute((12,), lambda i: te.sum(a(i, k), axis=[k]), "total")
    out = te.compute((12, 30), lambda i, j: a(i, j) / total(i), "out")
    x = random((12, 30)) + 3
    s, y = np.zeros(12, "float32"), np.zeros((12, 30), "float32")
    made = run(te.create_prim_func([a, total, out]), WIDE, x, s, y)
    np.testing.assert_allclose(s, x.sum(1), rtol=1e-5)
    np.testing.assert_allclose(y, x / x.sum(1, keepdims=True), rtol=1e-5)
    assert len([f for f in loops(made) if getattr(f.extent, "value", 0) == 12]) == 1


def test_much_work_over_rows_is_shared_out():
    made = schedule_function(softmax((2048, 2048), 1), SHARED)
    assert [f.kind for f in loops(made)].count(ForKind.PARALLEL) == 1


# -- elementwise producers -------------------------------------------------------------------------


def test_a_chain_of_elementwise_stages_becomes_one_loop():
    a = te.placeholder((2, 7, 9), "float32", name="A")
    last = a
    for k in range(10):
        last = te.compute(
            a.shape, lambda *i, t=last, k=k: t(*i) * 0.5 + float(k) if k % 2 else tir.tanh(t(*i))
        )
    x, y = random(a.shape), np.zeros(a.shape, "float32")
    made = run(te.create_prim_func([a, last]), WIDE, x, y)
    want = x.astype("float64")
    for k in range(10):
        want = want * 0.5 + k if k % 2 else np.tanh(want)
    np.testing.assert_allclose(y, want, rtol=1e-5)
    assert len(loops(made)) == len(blocks(made)) == 1
    text = lower_module(tvm.IRModule({"main": made})).script()
    assert "//" not in text
    assert "div" not in text


def test_what_costs_much_and_is_read_twice_is_computed_once():
    a = te.placeholder((8, 16), "float32", name="A")
    e = te.compute(a.shape, lambda i, j: tir.exp(a(i, j)), "e")
    k = te.reduce_axis((0, 16), "k")
    total = te.compute((8,), lambda i: te.sum(e(i, k), axis=[k]), "total")
    out = te.compute(a.shape, lambda i, j: e(i, j) * total(i), "out")
    made = schedule_function(te.create_prim_func([a, out]), WIDE)
    assert made.script().count("T.exp(") == 1


def test_a_stage_that_a_matmul_reads_stays():
    a = te.placeholder((32, 24), "float32", name="A")
    b = te.placeholder((24, 64), "float32", name="B")
    p = te.compute(a.shape, lambda i, j: tir.exp(a(i, j)), "p")
    k = te.reduce_axis((0, 24), "k")
    c = te.compute((32, 64), lambda i, j: te.sum(p(i, k) * b(k, j), axis=[k]), "c")
    x, w, y = random((32, 24)), random((24, 64)), np.zeros((32, 64), "float32")
    made = run(te.create_prim_func([a, b, c]), WIDE, x, w, y)
    np.testing.assert_allclose(y, np.exp(x) @ w, rtol=1e-4, atol=1e-4)
    assert "p" in blocks(made)


# -- reductions ------------------------------------------------------------------------------------


def reduction(shape, axes, kind, dtype="float32"):
    a = te.placeholder(shape, dtype, name="A")
    over = {d: te.reduce_axis((0, a.shape[d]), f"k{d}") for d in axes}
    kept = [n for d, n in enumerate(a.shape) if d not in axes]

    def value(*i):
        left = iter(i)
        read = a(*[over[d] if d in over else next(left) for d in range(len(shape))])
        return getattr(te, kind)(read, axis=list(over.values()))

    return te.create_prim_func([a, te.compute(kept, value, "out")])


REDUCED = [
    ((12, 33, 20), (0,)),
    ((12, 33, 20), (1,)),
    ((12, 33, 20), (2,)),
    ((12, 33, 20), (0, 2)),
    ((12, 33, 20), (0, 1, 2)),
    ((1, 1), (1,)),
    ((40, 3000), (0,)),
    ((64, 8, 256), (0, 1, 2)),
    ((131072,), (0,)),
]


@pytest.mark.parametrize("kind", ["sum", "max", "min"])
@pytest.mark.parametrize(("shape", "axes"), REDUCED)
def test_reductions_along_any_axes(shape, axes, kind):
    x = random(shape)
    want = getattr(np, kind)(x.astype("float64"), axes)
    for cpu in (WIDE, SHARED):
        y = np.zeros(want.shape, "float32")
        run(reduction(shape, axes, kind), cpu, x, y)
        np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "int8", "uint8"])
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_maxima_of_other_dtypes(dtype, axes):
    x = np.abs(random((24, 80), dtype))
    want = x.max(axes)
    y = np.zeros(want.shape, dtype)
    run(reduction((24, 80), axes, "max", dtype), WIDE, x, y)
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("shape", [("n", 20), (12, "m"), ("n", "m")])
def test_sums_of_sizes_known_only_later(shape, axes):
    fn = reduction(sizes(*shape), axes, "sum")
    x = random((12, 20))
    y = np.zeros(x.sum(axes).shape, "float32")
    run(fn, WIDE, x, y)
    np.testing.assert_allclose(y, x.sum(axes), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("worst", [np.nan, np.inf, -np.inf])
def test_maxima_keep_nan_and_infinities(axes, worst):
    x = random((16, 200))
    x[3, 50] = worst
    y = np.zeros(x.max(axes).shape, "float32")
    run(reduction((16, 200), axes, "max"), WIDE, x, y)
    np.testing.assert_array_equal(y, x.max(axes))


def test_a_sum_of_everything_is_a_sum_of_parts():
    made = schedule_function(reduction((256, 1024, 8), (0, 1, 2), "sum"), WIDE)
    assert any("_rf" in name for name in blocks(made))
    text = lower_module(tvm.IRModule({"main": made})).script()
    assert "//" not in text
    assert "div" not in text


# -- transposes ------------------------------------------------------------------------------------


def permuted(shape, order, dtype="float32", scale=False):
    a = te.placeholder(shape, dtype, name="A")
    back = [order.index(d) for d in range(len(order))]

    def value(*i):
        read = a(*[i[k] for k in back])
        return read * 2.0 if scale else read

    return te.create_prim_func([a, te.compute([a.shape[d] for d in order], value, "out")])


@pytest.mark.parametrize("cpu", [WIDE, NARROW, SHARED], ids=["wide", "narrow", "two cores"])
@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ((64, 48), (1, 0)),
        ((40, 24), (1, 0)),
        ((37, 19), (1, 0)),
        ((1, 1), (1, 0)),
        ((2, 16, 5, 24), (0, 2, 3, 1)),
        ((2, 3, 5, 7), (0, 3, 1, 2)),
        ((16, 3, 8), (2, 1, 0)),
        ((4, 6, 16), (1, 0, 2)),
    ],
)
def test_transposes(shape, order, cpu):
    for scale in (False, True):
        x = random(shape)
        y = np.zeros([shape[d] for d in order], "float32")
        run(permuted(shape, order, scale=scale), cpu, x, y)
        np.testing.assert_array_equal(y, x.transpose(order) * (2 if scale else 1))


@pytest.mark.parametrize("dtype", ["int8", "uint16", "float16", "float64", "int64", "bool"])
def test_transposes_of_other_dtypes(dtype):
    x = random((48, 32), "int8").astype(dtype)
    y = np.zeros((32, 48), dtype)
    run(permuted((48, 32), (1, 0), dtype), WIDE, x, y)
    np.testing.assert_array_equal(y, x.T)


def test_a_transpose_of_sizes_known_only_later():
    x, y = random((21, 50)), np.zeros((50, 21), "float32")
    run(permuted(sizes("n", "m"), (1, 0)), WIDE, x, y)
    np.testing.assert_array_equal(y, x.T)


@pytest.mark.parametrize(("cpu", "lanes"), [(WIDE, 8), (NARROW, 4)])
def test_a_transpose_goes_through_registers(cpu, lanes):
    made = schedule_function(permuted((64, 48), (1, 0)), cpu)
    shuffles = [n for n in walk(made) if isinstance(n, Shuffle)]
    assert {n.dtype.lanes for n in shuffles} == {lanes}
    assert not any(isinstance(n, Shuffle) for n in walk(permuted((64, 48), (1, 0))))
