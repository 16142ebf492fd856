"""`separate_window`: reductions over windows in two steps."""

from __future__ import annotations

import numpy as np
import pytest
from schedule_helpers import check_same

from relaxvm import te, tir
from relaxvm.base import ScheduleError
from relaxvm.tir import Schedule, interpret


def pool(
    n=9, m=11, taps=(3, 3), strides=(1, 1), padding=(0, 0), dilation=(1, 1), reducer=te.max,
    identity=float("-inf"), guarded=True,
):  # fmt: skip
    """B[i, j] = the reduction over r and s of A[i * stride + r - padding, ...]."""
    a = te.placeholder((n, m), name="A")
    sizes = [
        (size + 2 * p - (t - 1) * d - 1) // s + 1
        for size, t, s, p, d in zip((n, m), taps, strides, padding, dilation)
    ]
    r, s = (te.reduce_axis((0, t), x) for t, x in zip(taps, "rs"))

    def value(i, j):
        y = i * strides[0] + r.var * dilation[0] - padding[0]
        x = j * strides[1] + s.var * dilation[1] - padding[1]
        if not guarded:
            return reducer(a[y, x], [r, s])
        inside = tir.all(y >= 0, y < n, x >= 0, tir.const(m, "int32") > x)
        return reducer(tir.if_then_else(inside, a[y, x], tir.const(identity, "float32")), [r, s])

    return te.create_prim_func([a, te.compute(tuple(sizes), value, "B")])


def separated(fn, padded=False, which=(-1,)):
    sch = Schedule(fn)
    block = sch.get_block("B")
    loops = list(sch.get_loops(block))
    first = sch.separate_window(block, [loops[k] for k in which], padded)
    return sch, first, block


def shape_of(sch, block):
    return [int(e) for e in sch.get(block).writes[0].buffer.shape]


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("strides", [(1, 1), (2, 3)])
@pytest.mark.parametrize("which", [(-1,), (-2,), (-2, -1)])
def test_two_steps_reduce_the_same(padded, strides, which):
    fn = pool(strides=strides, padding=(1, 2), dilation=(2, 1))
    sch, _, _ = separated(fn, padded, which)
    check_same(fn, sch.mod["main"])


def test_places_in_the_data_or_beside_it():
    fn = pool(8, 6, padding=(1, 1))
    sch, first, _ = separated(fn)
    assert shape_of(sch, first) == [8, 6]
    sch, first, second = separated(fn, padded=True)
    assert shape_of(sch, first) == [8, 8]
    assert "if_then_else" not in str(sch.get(second).body)
    assert str(sch.get(first).body).count("if_then_else") == 1


def test_places_that_no_window_has_are_left_out():
    sch, first, _ = separated(pool(9, 12, taps=(3, 2), strides=(1, 3), guarded=False))
    assert shape_of(sch, first) == [7, 11]


def test_sums_keep_zeros_beside_the_data():
    fn = pool(padding=(2, 2), reducer=te.sum, identity=0.0)
    for padded in (False, True):
        sch, _, _ = separated(fn, padded)
        check_same(fn, sch.mod["main"])


def test_one_step_after_the_other():
    fn = pool(padding=(1, 2))
    sch, _, second = separated(fn)
    copy = sch.separate_window(second, [sch.get_loops(second)[-1]], True)
    assert all(a.iter_type == "spatial" for a in sch.get(copy).iter_vars)
    check_same(fn, sch.mod["main"])


def test_parts_of_unequal_length():
    a = te.placeholder((7,), name="A")
    k = te.reduce_axis((0, 4), "k")

    def value(i):
        first, end = i * 7 // 3, ((i + 1) * 7 + 2) // 3
        return te.sum(tir.if_then_else(first + k.var < end, a[first + k.var], 0.0), [k])

    fn = te.create_prim_func([a, te.compute((3,), value, "B")])
    sch, first, _ = separated(fn)
    assert shape_of(sch, first) == [7]
    check_same(fn, sch.mod["main"])


@pytest.mark.parametrize("width", [2, 3, 8])
@pytest.mark.parametrize("padded", [False, True])
def test_symbolic_sizes_down_to_no_window(width, padded):
    m = tir.Var("m", "int64")
    a = te.placeholder((4, m), name="A")
    r = te.reduce_axis((0, 3), "r")
    fn = te.create_prim_func(
        [a, te.compute((4, m - 2), lambda i, j: te.max(a[i, j + r.var], r), "B")]
    )
    sch, _, _ = separated(fn, padded)
    x = np.random.default_rng(0).random((4, width), dtype="float32")
    out, want = (np.zeros((4, width - 2), "float32") for _ in range(2))
    interpret(sch.mod["main"], x, out)
    interpret(fn, x, want)
    np.testing.assert_array_equal(out, want)


def test_what_is_refused():
    sch = Schedule(pool())
    block = sch.get_block("B")
    i, *_ = sch.get_loops(block)
    with pytest.raises(ScheduleError, match="loop i is no reduce axis of block B"):
        sch.separate_window(block, [i])
    with pytest.raises(ScheduleError, match="at least one loop"):
        sch.separate_window(block, [])


def test_a_tap_of_two_inputs_is_refused():
    a, w = te.placeholder((10,), name="A"), te.placeholder((3,), name="W")
    r = te.reduce_axis((0, 3), "r")
    fn = te.create_prim_func(
        [a, w, te.compute((8,), lambda i: te.sum(a[i + r.var] * w[r.var], r), "B")]
    )
    with pytest.raises(ScheduleError, match="reads along v_r in several ways"):
        separated(fn)


def test_a_value_that_depends_on_the_tap_is_refused():
    a = te.placeholder((10,), name="A")
    r = te.reduce_axis((0, 3), "r")
    fn = te.create_prim_func(
        [a, te.compute((8,), lambda i: te.sum(a[i + r.var] * r.var.astype("float32"), r), "B")]
    )
    with pytest.raises(ScheduleError, match="depends on v_r in other ways"):
        separated(fn)


def test_a_first_step_that_may_be_empty_is_refused():
    n = tir.Var("n", "int64")
    a = te.placeholder((n, 10), name="A")
    r, s = te.reduce_axis((0, n), "r"), te.reduce_axis((0, 3), "s")
    fn = te.create_prim_func(
        [a, te.compute((8,), lambda j: te.max(a[r.var, j + s.var], [r, s]), "B")]
    )
    with pytest.raises(ScheduleError, match="v_r may have no iterations"):
        separated(fn)
