"""Passes that remove blocks: text before and after."""

from __future__ import annotations

import numpy as np
import pytest
from transform_helpers import check, parse

from relaxvm.base import TIRError
from relaxvm.ir import IRModule
from relaxvm.tir import interpret
from relaxvm.tir.transform import (
    ConvertBlocksToOpaque,
    LowerInitBlock,
    LowerMatchBuffer,
    LowerOpaqueBlock,
    PlanAndUpdateBufferAllocationLocation,
    lower_module,
)


def test_init_becomes_a_condition_on_the_reduction_axes():
    check(
        LowerInitBlock(),
        """
def main(A: T.Buffer((4, 8, 2), "float32"), C: T.Buffer((4,), "float32")):
    for i, j, k in T.grid(4, 8, 2):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SRR", [i, j, k])
            T.reads(A[vi, vj, vk])
            T.writes(C[vi])
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + A[vi, vj, vk]
""",
        """
def main(A: T.Buffer((4, 8, 2), "float32"), C: T.Buffer((4,), "float32")):
    for i, j, k in T.grid(4, 8, 2):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SRR", [i, j, k])
            T.reads(A[vi, vj, vk])
            T.writes(C[vi])
            if vj == 0 and vk == 0:
                C[vi] = T.float32(0)
            C[vi] = C[vi] + A[vi, vj, vk]
""",
    )


def test_init_without_reduction_axes_always_runs():
    check(
        LowerInitBlock(),
        """
def main(C: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("C"):
            vi = T.axis.spatial(4, i)
            T.reads()
            T.writes(C[vi])
            with T.init():
                C[vi] = T.float32(1)
            C[vi] = C[vi] * T.float32(2)
""",
        """
def main(C: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("C"):
            vi = T.axis.spatial(4, i)
            T.reads()
            T.writes(C[vi])
            C[vi] = T.float32(1)
            C[vi] = C[vi] * T.float32(2)
""",
    )


NO_INIT = """
def main(C: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("C"):
            vi = T.axis.spatial(4, i)
            C[vi] = T.float32(1)
"""


def test_a_function_without_init_is_returned_as_it_is():
    check(LowerInitBlock(), NO_INIT, NO_INIT)


def test_axes_are_replaced_by_what_they_stand_for():
    check(
        ConvertBlocksToOpaque(),
        """
def main(C: T.Buffer((16,), "float32")):
    for i, j in T.grid(4, 4):
        with T.block("C"):
            v = T.axis.spatial(16, i * 4 + j)
            T.where(i * 4 + j < 15)
            T.reads()
            T.writes(C[v])
            C[v] = T.float32(1)
""",
        """
def main(C: T.Buffer((16,), "float32")):
    for i, j in T.grid(4, 4):
        with T.block("C"):
            T.where(i * 4 + j < 15)
            T.reads()
            T.writes(C[i * 4 + j])
            C[i * 4 + j] = T.float32(1)
""",
    )


def test_axes_of_inner_blocks_see_those_of_outer_ones():
    check(
        ConvertBlocksToOpaque(),
        """
def main(C: T.Buffer((4, 4), "float32")):
    for i in range(4):
        with T.block("outer"):
            vi = T.axis.spatial(4, i)
            T.reads()
            T.writes(C[vi, 0:4])
            for j in range(4):
                with T.block("inner"):
                    wi = T.axis.spatial(4, vi)
                    wj = T.axis.spatial(4, j)
                    T.reads()
                    T.writes(C[wi, wj])
                    C[wi, wj] = T.float32(1)
""",
        """
def main(C: T.Buffer((4, 4), "float32")):
    for i in range(4):
        with T.block("outer"):
            T.reads()
            T.writes(C[i, 0:4])
            for j in range(4):
                with T.block("inner"):
                    T.reads()
                    T.writes(C[i, j])
                    C[i, j] = T.float32(1)
""",
    )


def test_a_buffer_used_inside_one_parallel_loop_moves_into_it():
    check(
        PlanAndUpdateBufferAllocationLocation(),
        """
def main(A: T.Buffer((8, 4), "float32"), C: T.Buffer((8, 4), "float32")):
    B = T.alloc_buffer((4,), "float32")
    for i in T.parallel(8):
        for j in range(4):
            B[j] = A[i, j]
        for j in range(4):
            C[i, j] = B[j]
""",
        """
def main(A: T.Buffer((8, 4), "float32"), C: T.Buffer((8, 4), "float32")):
    with T.block("root"):
        T.reads()
        T.writes()
        for i in T.parallel(8):
            with T.block(""):
                T.reads()
                T.writes()
                B = T.alloc_buffer((4,), "float32")
                for j in range(4):
                    B[j] = A[i, j]
                for j in range(4):
                    C[i, j] = B[j]
""",
    )


def test_a_buffer_does_not_move_into_a_serial_loop():
    # The second iteration reads what the first one left.
    text = """
def main(C: T.Buffer((8,), "float32")):
    B = T.alloc_buffer((1,), "float32")
    for i in range(8):
        if i == 0:
            B[0] = T.float32(5)
        B[0] = B[0] + T.float32(1)
        C[i] = B[0]
"""
    check(PlanAndUpdateBufferAllocationLocation(), text, text)
    c = np.zeros(8, "float32")
    interpret(lower_module(IRModule({"main": parse(text)}))["main"], c)
    assert list(c) == [6, 7, 8, 9, 10, 11, 12, 13]


def test_blocks_become_conditions_allocations_and_their_bodies():
    check(
        LowerOpaqueBlock(),
        """
def main(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
    B = T.alloc_buffer((16,), "float32")
    for i, j in T.grid(16, 1):
        with T.block("B"):
            T.where(i < 10)
            T.reads(A[i])
            T.writes(B[i])
            B[i + j] = A[i]
""",
        """
def main(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
    B = T.allocate([16], "float32", "global")
    B_1 = T.decl_buffer((16,), "float32", data=B)
    for i in range(16):
        if i < 10:
            B_1[i] = A[i]
""",
    )


def test_a_block_that_still_has_axes_is_refused():
    with pytest.raises(TIRError, match="ConvertBlocksToOpaque"):
        LowerOpaqueBlock()(IRModule({"main": parse(NO_INIT)}))


def test_views_are_replaced_by_their_source():
    before = """
def main(A: T.Buffer((16, 16), "float32")):
    for i, j in T.grid(4, 4):
        with T.block("b"):
            vi = T.axis.spatial(4, i)
            vj = T.axis.spatial(4, j)
            s0 = T.int32()
            s1 = T.int32()
            V = T.match_buffer(A[vi * 4:vi * 4 + 4, vj * 4:vj * 4 + 4], (4, 4), strides=[s0, s1])
            for k, l in T.grid(4, 4):
                V[k, l] = V[k, l] + T.Cast("float32", s0)
"""
    fn = parse(before)
    want = np.arange(256, dtype="float32").reshape(16, 16)
    got = want.copy()
    interpret(fn, want)
    lowered = lower_module(IRModule({"main": fn}))["main"]
    interpret(lowered, got)
    assert (got == want).all()
    assert (got - np.arange(256).reshape(16, 16) == 16).all()
    assert "match_buffer" not in lowered.script().replace("T.match_buffer(a", "")


def test_a_view_with_an_offset_of_axes_is_replaced_too():
    before = parse(
        """
def main(A: T.Buffer((8, 4), "float32")):
    for i in range(8):
        with T.block("P"):
            vi = T.axis.spatial(8, i)
            V = T.match_buffer(A[vi, 0:4], (1, 4), "float32", strides=[4, 1], elem_offset=vi * 4)
            for j in range(4):
                with T.block("Q"):
                    vj = T.axis.spatial(4, j)
                    V[0, vj] = T.float32(2)
"""
    )
    mod = LowerMatchBuffer()(ConvertBlocksToOpaque()(IRModule({"main": before})))
    text = mod["main"].script()
    assert "match_buffer" not in text
    assert "A[i, j] = T.float32(2)" in text


def test_a_view_whose_constant_shape_cannot_be_proven_is_asserted():
    text = """
def main(A: T.Buffer((16,), "float32"), n: T.int32):
    with T.block("b"):
        V = T.match_buffer(A[0:n], (4,))
        V[0] = T.float32(1)
"""
    mod = LowerMatchBuffer()(ConvertBlocksToOpaque()(IRModule({"main": parse(text)})))
    assert "assert" in mod["main"].script()


def test_a_view_of_another_dtype_is_refused():
    from relaxvm.ir import Range, const
    from relaxvm.tir import (
        Block,
        BlockRealize,
        BufferRegion,
        Evaluate,
        MatchBufferRegion,
        PrimFunc,
        decl_buffer,
    )

    a, v = decl_buffer((16,), "float32", "A"), decl_buffer((16,), "int32", "V")
    match = MatchBufferRegion(v, BufferRegion(a, (Range.from_min_extent(0, 16),)))
    block = Block((), (), (), "b", Evaluate(const(0)), match_buffers=(match,))
    fn = PrimFunc([a], BlockRealize((), const(True), block))
    with pytest.raises(TIRError, match="is a view of float32"):
        LowerMatchBuffer()(IRModule({"main": fn}))
