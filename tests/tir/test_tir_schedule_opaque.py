"""Blocks that use memory by way of pointers and views: what they declare is what they do."""

import numpy as np
import pytest
from schedule_helpers import arguments, by_machine, check

from relaxvm.script import from_source
from relaxvm.tir import Schedule, ScheduleError

# Rows of B are read, and rows of C written, by way of views; of the last 4 columns when `part`.
VIEWS = """# from relaxvm.script import tir as T
@T.prim_func
def main(A: T.Buffer((8, 8), "float32"), C: T.Buffer((8, 8), "float32")):
    B = T.alloc_buffer((8, 8), "float32")
    for i, j in T.grid(8, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i in range(4):
        with T.block("C"):
            vi = T.axis.spatial(4, i)
            T.reads(B[vi * 2 : vi * 2 + 2, 0:8])
            T.writes(C[vi * 2 : vi * 2 + 2, 0:8])
            b = T.match_buffer(B[vi * 2 : vi * 2 + 2, 0:8], (2, 8), strides=[8, 1], offset_factor=1)
            c = T.match_buffer(C[vi * 2 : vi * 2 + 2, 0:8], (2, 8), strides=[8, 1], offset_factor=1)
            for j, k in T.grid(2, {columns}):
                c[j, k] = b[1 - j, k] + T.float32(1)
"""
# As tensorized code has it.
POINTERS = """# from relaxvm.script import tir as T
@T.prim_func
def main(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    B = T.alloc_buffer((8,), "float32")
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi]
    for i in range(2):
        with T.block("C"):
            vi = T.axis.spatial(2, i)
            T.reads({reads})
            T.writes(C[vi * 4 : vi * 4 + 4])
            T.evaluate(
                T.call_extern("copy", C.data, B.data, vi * 4, dtype="int32")
            )
"""


def of_views(columns=8):
    return from_source(VIEWS.format(columns=columns))


def of_pointers(reads="B[vi * 4 : vi * 4 + 4]"):
    return from_source(POINTERS.format(reads=reads))


STEPS = {
    "cache_read": lambda sch: sch.cache_read("C", 0, "global"),
    "cache_write": lambda sch: sch.cache_write("C", 0, "global"),
    "cache_write_before": lambda sch: sch.cache_write("B", 0, "local"),
    "compute_at": lambda sch: sch.compute_at("B", sch.get_loops("C")[0]),
}


@pytest.mark.parametrize("run", [None, by_machine])
@pytest.mark.parametrize("name", STEPS)
def test_blocks_with_views(name, run):
    fn = of_views()
    sch = Schedule(fn)
    STEPS[name](sch)
    check(fn, sch, [arguments(fn, np.random.default_rng(0))], *([run] if run else []))


@pytest.mark.parametrize("name", STEPS)
def test_blocks_with_pointers(name):
    sch = Schedule(of_pointers(), debug_mask="all")
    STEPS[name](sch)
    (call,) = (s for s in sch.mod["main"].script().splitlines() if "call_extern" in s)
    assert ("C_global.data" in call, "B_global.data" in call) == (
        name == "cache_write",
        name == "cache_read",
    )


@pytest.mark.parametrize("name", ["cache_read", "cache_write_before", "compute_at"])
def test_what_is_not_declared_is_not_moved(name):
    sch = Schedule(of_pointers(reads=""))
    with pytest.raises(ScheduleError, match="the address of B is taken|is no longer|got the index"):
        STEPS[name](sch)


def test_a_part_of_a_view_is_not_copied_back_whole():
    sch = Schedule(of_views(columns=4))
    with pytest.raises(ScheduleError, match="under a condition"):
        sch.cache_write("C", 0, "global")


# -- one memory by two names -----------------------------------------------------------------------

TWO_NAMES = """# from relaxvm.script import tir as T
@T.prim_func
def main(A: T.Buffer((9,), "float32")):
    {view}
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                {body}
"""
BESIDE = 'if True:\n        B = T.decl_buffer((8,), "float32", data=A.data, elem_offset=1)'
SAME = 'if True:\n        B = T.decl_buffer((9,), "float32", data=A.data)'
MATCHED = (
    'with T.block("root"):\n        B = T.match_buffer(A[1:9], (8,), "float32", offset_factor=1)'
)
READS = "A[vi] = B[vi] * T.float32(2)"
WRITES = "A[vi] = T.float32(1)\n                B[vi] = T.float32(2)"


def over_two_names(view, body):
    fn = from_source(TWO_NAMES.format(view=view, body=body))
    sch = Schedule(fn)
    return sch, sch.get_loops(sch.get_block("B"))[0]


@pytest.mark.parametrize("body", [READS, WRITES], ids=["reads", "writes"])
@pytest.mark.parametrize("view", [BESIDE, MATCHED], ids=["declared", "matched"])
def test_iterations_that_meet_by_another_name_of_the_memory_keep_their_order(view, body):
    sch, loop = over_two_names(view, body)
    with pytest.raises(ScheduleError, match="have an order"):
        sch.parallel(loop)


def test_two_equal_names_of_one_memory_are_one_place():
    sch, loop = over_two_names(SAME, READS)
    sch.parallel(loop)
    a = np.arange(9, dtype="float32")
    by_machine(sch.mod["main"], a)
    assert a.tolist() == [0, 2, 4, 6, 8, 10, 12, 14, 8]


TRANSPOSED = """# from relaxvm.script import tir as T
@T.prim_func
def main(A: T.Buffer((4, 4), "float32"), C: T.Buffer((4, 4), "float32")):
    B = T.decl_buffer((4, 4), "float32", data=A.data, strides=[1, 4])
    for i in range(4):
        for j in range(4):
            with T.block("A"):
                vi, vj = T.axis.remap("SS", [i, j])
                A[vi, vj] = T.float32(1)
    {between}    for j in range(4):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj]
"""


def test_blocks_that_meet_by_another_view_of_the_memory_keep_their_order():
    sch = Schedule(from_source(TRANSPOSED.format(between="")))
    with pytest.raises(ScheduleError, match="B and A are different views of one memory"):
        sch.parallel(sch.get_loops(sch.get_block("A"))[0])
    sch = Schedule(from_source(TRANSPOSED.format(between="for i in range(4):\n    ")))
    one, other = (sch.get_loops(sch.get_block(name))[0] for name in "AC")
    with pytest.raises(ScheduleError, match="B and A are different views of one memory"):
        sch.merge(one, other)
