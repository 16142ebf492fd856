"""CompactBufferAllocation: buffers shrink to what one iteration uses, where that is proven."""

from __future__ import annotations

import numpy as np
import pytest
from transform_helpers import parse

import relaxvm as tvm
from relaxvm.ir import IRModule, PassContext, walk
from relaxvm.testing import CheckMeaning
from relaxvm.tir import Allocate, For, ForKind, interpret
from relaxvm.tir.transform import lower_module


def sizes(fn):
    """Shapes of the allocations of the lowered function, flat."""
    lowered = lower_module(IRModule({"main": fn}))["main"]
    return [
        int(np.prod([e.value for e in n.extents])) for n in walk(lowered) if type(n) is Allocate
    ]


def same_before_and_after(fn, *arrays):
    a, b = [x.copy() for x in arrays], [x.copy() for x in arrays]
    interpret(fn, *a)
    tvm.build(fn, target="llvm")["main"](*b)
    for x, y in zip(a, b):
        np.testing.assert_allclose(x, y, rtol=1e-6)


ROWS = """
def main(A: T.Buffer((64, 48), "float32"), B: T.Buffer((64, 48), "float32")):
    W = T.alloc_buffer((64, 48), "float32")
    for i in range(64):
        for j in range(48):
            W[i, j] = A[i, j] * A[i, j]
        for j in range(48):
            B[i, j] = W[i, 47 - j] + T.float32(1)
"""
TILES = """
def main(A: T.Buffer((64, 48), "float32"), B: T.Buffer((64, 48), "float32")):
    W = T.alloc_buffer((64, 48), "float32")
    for io, jo in T.grid(16, 3):
        for i, j0, j1 in T.grid(4, 2, 8):
            W[io * 4 + i, jo * 16 + j0 * 8 + j1] = A[io * 4 + i, jo * 16 + j0 * 8 + j1]
        for k in range(5):
            for i, j in T.grid(4, 16):
                W[io * 4 + i, jo * 16 + j] = W[io * 4 + i, jo * 16 + j] + T.float32(1)
        for i, j in T.grid(4, 16):
            B[io * 4 + i, jo * 16 + j] = W[io * 4 + i, jo * 16 + j]
"""


# Each thread has a buffer of its own, in a block that stands in the loop.
PARALLEL = """
def main(A: T.Buffer((64, 48), "float32"), B: T.Buffer((64, 48), "float32")):
    W = T.alloc_buffer((8, 48, 8), "float32")
    for io in T.parallel(8):
        for j, i in T.grid(48, 8):
            W[(io * 8 + i) // 8, j, (io * 8 + i) % 8] = A[io * 8 + i, j]
        for i, j in T.grid(8, 48):
            B[io * 8 + i, j] = W[(io * 8 + i) // 8, 47 - j, (io * 8 + i) % 8]
"""

# Of an odd number of columns the second phase is shorter: its last element is nobody's.
PHASES = """
def main(A: T.Buffer((64, 48), "float32"), B: T.Buffer((64, 48), "float32")):
    W = T.alloc_buffer((64, 2, 25), "float32")
    for i in range(64):
        for s, k in T.grid(2, 25):
            with T.block("W"):
                vi = T.axis.spatial(64, i)
                vj = T.axis.spatial(49, k * 2 + s)
                T.where(k * 2 + s < 49)
                W[vi, vj % 2, vj // 2] = T.if_then_else(vj < 48, A[vi, vj], T.float32(0))
        for j in range(48):
            B[i, j] = W[i, j % 2, j // 2] + W[i, (j + 1) % 2, (j + 1) // 2]
"""


@pytest.mark.parametrize(("text", "size"), [(ROWS, 48), (TILES, 64), (PARALLEL, 384), (PHASES, 50)])
def test_a_buffer_shrinks_to_one_tile(text, size):
    fn = parse(text)
    assert sizes(fn) == [size]
    a = np.random.default_rng(0).random((64, 48), dtype="float32")
    same_before_and_after(fn, a, np.zeros_like(a))


UP_TO_THE_ROW = """
def main(A: T.Buffer((64, 48), "float32"), B: T.Buffer((64, 48), "float32")):
    W = T.alloc_buffer((64, 48), "float32")
    for i in range(64):
        for j in range(T.min(i, 47)):
            W[i, j] = A[i, j] * A[i, j]
        for j in range(T.min(i, 47)):
            B[i, j] = W[i, j] + T.float32(1)
"""


def test_a_buffer_of_which_each_iteration_uses_more_holds_the_most():
    fn = parse(UP_TO_THE_ROW)
    assert sizes(fn) == [48]
    a = np.random.default_rng(0).random((64, 48), dtype="float32")
    same_before_and_after(fn, a, np.zeros_like(a))


def test_a_size_that_is_known_only_later_stays_one():
    text = """
def main(a: T.handle, b: T.handle):
    n, m = T.int64(), T.int64()
    A = T.match_buffer(a, (n, m), "float32")
    B = T.match_buffer(b, (n, m), "float32")
    W = T.alloc_buffer((n, m), "float32")
    for i in range(n):
        for j in range(m):
            W[i, j] = A[i, j] * A[i, j]
        for j in range(m):
            B[i, j] = W[i, j] + T.float32(1)
"""
    fn = parse(text)
    lowered = lower_module(IRModule({"main": fn}))["main"]
    (allocation,) = [n for n in walk(lowered) if type(n) is Allocate]
    assert [e.name for e in allocation.extents] == ["m"]
    a = np.random.default_rng(0).random((5, 7), dtype="float32")
    same_before_and_after(fn, a, np.zeros_like(a))


KEPT = {
    "handed on to the next iteration": """
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    W = T.alloc_buffer((9,), "float32")
    W[0] = T.float32(0)
    for i in range(8):
        W[i + 1] = W[i] + A[i]
        B[i] = W[i + 1]
""",
    "a neighbour is read": """
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    W = T.alloc_buffer((8,), "float32")
    for i in range(8):
        W[i] = A[i]
        B[i] = W[i] + T.if_then_else(i > 0, W[i - 1], T.float32(0))
""",
    "accumulated over all iterations": """
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    W = T.alloc_buffer((8,), "float32")
    for i in range(8):
        W[i] = T.float32(0)
    for i in range(8):
        W[i] = W[i] + A[i]
        B[i] = W[i]
""",
    "written under a condition": """
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    W = T.alloc_buffer((8,), "float32")
    for i in range(8):
        W[i] = T.float32(3)
    for i in range(8):
        if A[i] > T.float32(0.5):
            W[i] = A[i]
        B[i] = W[i]
""",
    "several elements at once": """
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    W = T.alloc_buffer((8, 4), "float32")
    for i in range(8):
        W[i, T.Ramp(0, 1, 4)] = T.Broadcast(A[i], 4)
        B[i] = A[i]
""",
    "written with gaps": """
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    W = T.alloc_buffer((16,), "float32")
    for z in range(16):
        W[z] = T.float32(2)
    for i in range(1):
        for j in range(8):
            W[j * 2] = A[j]
        for j in range(8):
            B[j] = W[j * 2] + W[j]
""",
    "read in the nest that fills it": """
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    W = T.alloc_buffer((4, 8), "float32")
    for i in range(4):
        for j in range(8):
            W[i, j] = A[j]
            B[j] = W[i, 7 - j] * T.float32(0) + W[i, j]
""",
}


@pytest.mark.parametrize("name", KEPT)
def test_a_buffer_stays_whole_when(name):
    fn = parse(KEPT[name])
    before = [int(np.prod([e.value for e in b.shape])) for b in _allocated(fn)]
    assert sizes(fn) == before
    if name != "read in the nest that fills it":
        a = np.random.default_rng(0).random(8, dtype="float32")
        same_before_and_after(fn, a, np.zeros_like(a))


def _allocated(fn):
    from relaxvm.tir import Block

    return [b for n in walk(fn) if isinstance(n, Block) for b in n.alloc_buffers]


def test_threads_do_not_share_what_was_shrunk_to_one_part():
    fn = parse("""
def main(A: T.Buffer((2, 8, 500), "float32"), B: T.Buffer((2, 8, 500), "float32")):
    W = T.alloc_buffer((2, 8, 500), "float32")
    for n in range(2):
        for o in T.parallel(8):
            for j in range(500):
                W[n, o, j] = A[n, o, j] * A[n, o, j]
            for j in range(500):
                B[n, o, j] = W[n, o, 499 - j] + T.float32(1)
""")
    assert sizes(fn) == [500]
    lowered = lower_module(IRModule({"main": fn}))["main"]
    loops = [n for n in walk(lowered) if isinstance(n, For) and n.kind == ForKind.PARALLEL]
    assert any(type(n) is Allocate for n in walk(loops[0].body))
    a = np.random.default_rng(0).random((2, 8, 500), dtype="float32")
    for _ in range(5):
        same_before_and_after(fn, a, np.zeros_like(a))


def test_an_axis_that_is_kept_whole_may_be_read_under_a_condition():
    fn = parse("""
def main(A: T.Buffer((64, 48), "float32"), B: T.Buffer((64, 50), "float32")):
    W = T.alloc_buffer((64, 48), "float32")
    for i in range(64):
        for j in range(48):
            W[i, j] = A[i, j] * A[i, j]
        for j in range(50):
            B[i, j] = T.if_then_else(j >= 1 and j < 49, W[i, j - 1], T.float32(0))
""")
    assert sizes(fn) == [48]
    a = np.random.default_rng(0).random((64, 48), dtype="float32")
    same_before_and_after(fn, a, np.zeros((64, 50), "float32"))


@pytest.mark.parametrize(("first", "kept"), [(3, 48), (2, 64 * 48)])
def test_neighbouring_parts_are_filled_one_after_the_other(first, kept):
    """All of a row is written before it is read; a gap in it would show what was there before."""
    fn = parse(f"""
def main(A: T.Buffer((64, 48), "float32"), B: T.Buffer((64, 48), "float32")):
    W = T.alloc_buffer((64, 48), "float32")
    for i in range(64):
        for j in range({first}):
            W[i, j] = T.float32(0)
        for j in range(3, 35):
            W[i, j] = A[i, j]
        for j0, j1 in T.grid(1, 13):
            W[i, 35 + j0 * 13 + j1] = T.float32(1)
        for j in range(48):
            B[i, j] = T.if_then_else(j == 45, T.float32(0), W[i, 47 - j] + T.float32(1))
""")
    assert sizes(fn) == [kept]
    a = np.random.default_rng(0).random((64, 48), dtype="float32")
    same_before_and_after(fn, a, np.zeros_like(a))


def test_tiles_beyond_a_symbolic_end_fill_all_of_the_axis():
    fn = parse("""
def main(a: T.handle, b: T.handle, n: T.int64):
    A = T.match_buffer(a, (8, n), "float32")
    B = T.match_buffer(b, (8, n), "float32")
    W = T.alloc_buffer((8, n), "float32")
    for i in range(8):
        for j0, j1 in T.grid((n + 15) // 16, 16):
            with T.block("W"):
                vi = T.axis.spatial(8, i)
                vj = T.axis.spatial(n, j0 * 16 + j1)
                T.where(j0 * 16 + j1 < n)
                W[vi, vj] = A[vi, vj] * A[vi, vj]
        for j in range(n):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                vj = T.axis.spatial(n, j)
                B[vi, vj] = W[vi, n - 1 - vj]
""")
    lowered = lower_module(IRModule({"main": fn}))["main"]
    (made,) = (n for n in walk(lowered) if type(n) is Allocate)
    assert len(made.extents) == 1
    a = np.random.default_rng(0).random((8, 37), dtype="float32")
    out = np.zeros_like(a)
    tvm.build(fn, target="llvm")["main"](a, out, 37)
    np.testing.assert_allclose(out, (a * a)[:, ::-1])


def test_a_region_that_begins_where_a_shrunk_buffer_says_follows_it():
    fn = parse("""
def main(P: T.Buffer((9,), "int32"), A: T.Buffer((20,), "float32"), B: T.Buffer((9,), "float32")):
    W = T.alloc_buffer((9,), "int32")
    for i in range(9):
        with T.block("W"):
            vi = T.axis.spatial(9, i)
            W[vi] = P[vi]
        with T.block("B"):
            vi = T.axis.spatial(9, i)
            T.reads(W[vi], A[W[vi]])
            T.writes(B[vi])
            B[vi] = A[W[vi]]
""")
    check = CheckMeaning()
    with PassContext(instruments=[check]):
        lower_module(IRModule({"main": fn}))
    assert "CompactBufferAllocation" in check.checked


def test_a_bound_of_whole_vectors_is_one_of_their_elements():
    """The last tile has fewer vectors: what is not written there is behind the end."""
    fn = parse("""
def main(A: T.Buffer((4, 52), "float32"), B: T.Buffer((4, 52), "float32")):
    W = T.alloc_buffer((4, 52), "float32", scope="local")
    for i, t in T.grid(4, 7):
        for v, l in T.grid(2, 4):
            with T.block("W"):
                vi = T.axis.spatial(4, i)
                vj = T.axis.spatial(52, (t * 2 + v) * 4 + l)
                T.where(t * 2 + v < 13)
                W[vi, vj] = A[vi, vj] * A[vi, vj]
        for v, l in T.grid(2, 4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                vj = T.axis.spatial(52, t * 8 + (v * 4 + l))
                T.where(t * 8 + (v * 4 + l) < 52)
                B[vi, vj] = W[vi, vj] + T.float32(1)
""")
    lowered = lower_module(IRModule({"main": fn}))["main"]
    (made,) = (n for n in walk(lowered) if type(n) is Allocate)
    assert [e.value for e in made.extents] == [8]
    a = np.random.default_rng(0).random((4, 52), dtype="float32")
    out = np.zeros_like(a)
    tvm.build(fn, target="llvm")["main"](a, out)
    np.testing.assert_allclose(out, a * a + 1, rtol=1e-6)
