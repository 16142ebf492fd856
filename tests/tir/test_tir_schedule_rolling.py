"""rolling_buffer: a window that goes on with a loop is kept, and not computed again."""

from __future__ import annotations

import numpy as np
import pytest
from transform_helpers import parse

import relaxvm as tvm
from relaxvm import te, tir
from relaxvm.ir import assert_structural_equal, walk


def stencils(count, size=12, taps=3):
    """`count` stencils of `taps` along both dimensions, one after the other."""
    stages = [te.placeholder((size, size), "int32", "A")]
    for k in range(count):
        side = size - (k + 1) * (taps - 1)
        stages.append(
            te.compute(
                (side, side),
                lambda i, j, a=stages[-1]: (
                    a[i, j] * 3 + a[i + 1, j] + a[i, j + 1] * 5 + a[i + taps - 1, j + taps - 1]
                ),
                name=f"S{k}",
            )
        )
    return te.create_prim_func([stages[0], stages[-1]])


def same(fn, sch, *shapes):
    x = np.random.default_rng(0).integers(-9, 9, shapes[0]).astype("int32")
    results = [np.zeros(shapes[1], "int32") for _ in range(3)]
    tir.interpret(fn, x, results[0])
    tir.interpret(sch.mod["main"], x, results[1])
    tvm.build(sch.mod, "llvm")["main"](x, results[2])
    assert (results[0] == results[1]).all() and (results[0] == results[2]).all()


def tiled(fn, last, rows, columns):
    sch = tir.Schedule(fn)
    i, j = sch.get_loops(last)
    io, ii = sch.split(i, [None, rows])
    jo, ji = sch.split(j, [None, columns])
    sch.reorder(io, jo, ii, ji)
    return sch, io, jo


def test_a_window_is_kept_from_row_to_row():
    fn = parse("""
def main(A: T.Buffer((12, 4), "int32"), C: T.Buffer((8, 4), "int32")):
    B = T.alloc_buffer((10, 4), "int32")
    for i in range(2):
        for a, j in T.grid(6, 4):
            with T.block("B"):
                v, w = T.axis.spatial(10, i * 4 + a), T.axis.spatial(4, j)
                B[v, w] = A[v, w] + A[v + 2, w]
        for a, j in T.grid(4, 4):
            with T.block("C"):
                v, w = T.axis.spatial(8, i * 4 + a), T.axis.spatial(4, j)
                C[v, w] = B[v, w] * B[v + 2, w]
""")
    sch = tir.Schedule(fn)
    sch.rolling_buffer("B", 0)
    wanted = parse("""
def main(A: T.Buffer((12, 4), "int32"), C: T.Buffer((8, 4), "int32")):
    B = T.alloc_buffer((6, 4), "int32")
    for i in range(2):
        for a, j in T.grid(6, 4):
            with T.block("B"):
                v, w = T.axis.spatial(10, i * 4 + a), T.axis.spatial(4, j)
                T.where(i < 1 or a >= 2)
                B[v % 6, w] = A[v, w] + A[v + 2, w]
        for a, j in T.grid(4, 4):
            with T.block("C"):
                v, w = T.axis.spatial(8, i * 4 + a), T.axis.spatial(4, j)
                C[v, w] = B[v % 6, w] * B[(v + 2) % 6, w]
""")
    for made in walk(sch.mod["main"].body):
        if isinstance(made, tir.BlockRealize) and made.block.name_hint == "B":
            assert str(made.predicate) == "i < 1 or a >= 2"
    stores = [
        n for f in (sch.mod["main"], wanted) for n in walk(f) if isinstance(n, tir.BufferStore)
    ]
    assert [str(n) for n in stores[:2]] == [str(n) for n in stores[2:]]
    same(fn, sch, (12, 4), (8, 4))


@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (2, 8), (1, 2), (8, 1)])
def test_windows_of_two_dimensions_are_computed_once(rows, columns):
    fn = stencils(2)
    sch, _, jo = tiled(fn, "S1", rows, columns)
    sch.compute_at("S0", jo)
    sch.rolling_buffer("S0", 0)
    same(fn, sch, (12, 12), (8, 8))
    (buffer,) = (
        b for n in walk(sch.mod["main"]) if isinstance(n, tir.Block) for b in n.alloc_buffers
    )
    window, whole = (rows + 2, 10) if rows < 8 else (10, columns + 2)
    assert [int(e) for e in buffer.shape] == [window, whole]


def test_buffers_of_a_chain_roll_from_the_last_to_the_first():
    fn = stencils(3, 14)
    sch, io, _ = tiled(fn, "S2", 2, 8)
    sch.compute_at("S1", io)
    sch.compute_at("S0", io)
    sch.rolling_buffer("S1", 0)
    sch.rolling_buffer("S0", 0)
    same(fn, sch, (14, 14), (8, 8))
    shapes = [
        b.shape for n in walk(sch.mod["main"]) if isinstance(n, tir.Block) for b in n.alloc_buffers
    ]
    assert sorted(int(s[0]) for s in shapes) == [4, 6]


def refused(sch, block, match):
    before = sch.mod["main"]
    with pytest.raises(tir.ScheduleError, match=match):
        sch.rolling_buffer(block, 0)
    assert_structural_equal(sch.mod["main"], before)


def test_what_may_not_roll_is_refused():
    fn = stencils(2)
    refused(tir.Schedule(fn), "S0", "use compute_at before")
    refused(tir.Schedule(fn), "S1", "is a parameter")
    sch, io, _ = tiled(fn, "S1", 4, 4)
    sch.compute_at("S0", io)
    sch.parallel(io)
    refused(sch, "S0", "not run one after the other")


REFUSED = """
def main(A: T.Buffer((12,), "int32"), C: T.Buffer((8,), "int32")):
    B = T.alloc_buffer((12,), "int32")
    for i in range(2):
        for a in range(6):
            with T.block("B"):
                v = T.axis.spatial(10, i * 4 + a)
                B[v] = A[v]
        for a in range(4):
            with T.block("C"):
                v = T.axis.spatial(8, i * 4 + a)
                C[v] = B[v] + B[v + 2]
"""


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("B[v + 2]", "B[v + 3]", "only from i \\* 4 to before"),
        ("B[v + 2]", "B[T.max(v - 1, 0)]", "only from i \\* 4 to before"),
        (
            "C[v] = B[v] + B[v + 2]",
            "C[v] = B[v]\n                A[v + 2] = B[v]",
            "depends on|hand values",
        ),
        ("B[v] = A[v]", "T.where(a < 5)\n                B[v] = A[v]", "may not compute all"),
        ("range(2)", "T.vectorized(2)", "one after the other"),
    ],
)
def test_a_window_that_is_left_or_changes_is_refused(old, new, match):
    assert old in REFUSED
    rolled = tir.Schedule(parse(REFUSED))
    rolled.rolling_buffer("B", 0)
    same(parse(REFUSED), rolled, (12,), (8,))
    refused(tir.Schedule(parse(REFUSED.replace(old, new))), "B", match)
