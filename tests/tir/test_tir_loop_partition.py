"""LoopPartition, and the two passes that keep what the last tile needs as small as any other."""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm.ir import IRModule, walk
from relaxvm.script import from_source
from relaxvm.tir import Allocate, For, IfThenElse, Schedule
from relaxvm.tir.transform import LoopPartition, lower_module


def parted(body, symbols=()):
    lines = ["@T.prim_func", "def main(a: T.handle):"]
    lines += [f"    {s} = T.int64()" for s in symbols]
    size = "n" if symbols else "T.int64(200)"
    lines += [f'    A = T.match_buffer(a, ({size},), "float32")', *body.splitlines()]
    fn = from_source("\n".join(lines) + "\n")
    return LoopPartition(IRModule({"main": fn}))["main"]


HINT = 'annotations={"loop_partition_hint": True}'
NESTED = f"""
    for i in T.serial(T.int64(3), {HINT}):
        for j in T.serial(T.int64(8), {HINT}):
            for k in range(T.int64(10)):
                if i * T.int64(80) + j * T.int64(10) + k < T.int64(%s):
                    A[i * T.int64(80) + j * T.int64(10) + k] = T.float32(1)
"""


def test_the_last_tiles_of_a_loop_are_split_once_more():
    fn = parted(NESTED % 187)
    # Two full outer tiles; in the third, two full inner ones and one with a condition.
    loops = [(n.loop_var.name, int(n.min), int(n.extent)) for n in walk(fn) if isinstance(n, For)]
    assert sorted(loops) == [
        ("i", 0, 2), ("j", 0, 2), ("j", 0, 8), ("k", 0, 10), ("k", 0, 10), ("k", 0, 10)
    ]  # fmt: skip
    assert len([n for n in walk(fn) if isinstance(n, IfThenElse)]) == 1


def test_iterations_in_which_nothing_happens_are_left_out():
    fn = parted(NESTED % 180)
    loops = [(n.loop_var.name, int(n.min), int(n.extent)) for n in walk(fn) if isinstance(n, For)]
    assert ("j", 0, 2) in loops
    assert not [n for n in walk(fn) if isinstance(n, IfThenElse)]


@pytest.mark.parametrize("limit", [0, 1, 79, 80, 81, 160, 187, 200])
def test_a_split_loop_does_the_same(limit):
    fn = parted(NESTED % limit)
    out = np.zeros(200, "float32")
    tvm.build(fn, target="llvm")["main"](out)
    np.testing.assert_array_equal(out, np.arange(200) < limit)


@pytest.mark.parametrize("n", [0, 1, 9, 10, 79, 80, 95, 160, 161, 239])
def test_a_limit_known_only_later(n):
    fn = parted(NESTED.replace("T.int64(%s)", "n"), ["n"])
    out = np.zeros(n, "float32")
    tvm.build(fn, target="llvm")["main"](out)
    assert out.all()


def test_what_happens_under_no_condition_keeps_its_iterations():
    fn = parted(f"""
    for i in T.serial(T.int64(20), {HINT}):
        A[i] = T.float32(2)
        if i < T.int64(5):
            A[i + T.int64(100)] = T.float32(3)
""")
    out = np.zeros(200, "float32")
    tvm.build(fn, target="llvm")["main"](out)
    np.testing.assert_array_equal(out[:20], 2)
    np.testing.assert_array_equal(out[100:120], [3] * 5 + [0] * 15)


def tiled_copy(panels):
    """A copy of rows in tiles of four, blocks of two tiles; the last ones are not full."""
    fn = from_source("""
@T.prim_func
def main(A: T.Buffer((19, 32), "float32"), C: T.Buffer((19, 32), "float32")):
    for i, j in T.grid(19, 32):
        with T.block("out"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] * T.float32(2)
""")
    sch = Schedule(fn)
    block = sch.get_block("out")
    ib, _, _ = sch.split(sch.get_loops(block)[0], [None, 2, 4])
    copy = sch.cache_read(block, 0, "global")
    if panels:
        sch.transform_layout(copy, ("write", 0), lambda i, j: [i // 4, j, i % 4])
    sch.compute_at(copy, ib)
    sch.split(sch.get_loops(copy)[1], [None, 4])
    return sch.mod["main"]


@pytest.mark.parametrize("panels", [False, True])
def test_the_copy_for_a_block_holds_no_more_than_a_block(panels):
    fn = tiled_copy(panels)
    lowered = lower_module(IRModule({"main": fn}))["main"]
    (size,) = [np.prod([int(e) for e in n.extents]) for n in walk(lowered) if type(n) is Allocate]
    assert size == 8 * 32
    a, c = np.random.default_rng(0).random((19, 32), "float32"), np.zeros((19, 32), "float32")
    tvm.build(fn, target="llvm")["main"](a, c)
    np.testing.assert_array_equal(c, a * 2)


def test_a_condition_to_be_ignored_splits_no_loop():
    body = f"""
    for i in T.serial(T.int64(20), {HINT}):
        if %s:
            A[i] = T.float32(1)
"""
    split = parted(body % "i < T.int64(15)")
    whole = parted(body % "T.ignore_loop_partition(i < T.int64(15))")
    assert [len([n for n in walk(fn) if isinstance(n, IfThenElse)]) for fn in (split, whole)] == [
        0, 1
    ]  # fmt: skip
    given = np.zeros((2, 200), "float32")
    rt = tvm.build(IRModule({"main": whole}))
    rt["main"](given[0])
    tvm.tir.interpret(whole, given[1])
    assert given.sum() == 30
    assert (given[:, :15] == 1).all()
