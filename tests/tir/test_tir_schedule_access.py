"""annotate_buffer_access: what a block says that it touches."""

from __future__ import annotations

import numpy as np
import pytest
from transform_helpers import parse

import relaxvm as tvm
from relaxvm import tir
from relaxvm.ir import assert_structural_equal
from relaxvm.tir.schedule import Trace

PAIRS = """
def main(A: T.Buffer((64,), "float32"), B: T.Buffer((32,), "float32")):
    for i in range(32):
        with T.block("B"):
            vi = T.axis.spatial(32, i)
            T.reads(A[{region}])
            T.writes(B[vi])
            {remark}B[vi] = A[vi * 2] + A[vi * 2 + 1]
"""
BEFORE = PAIRS.format(region="0:64", remark="")
AFTER = PAIRS.format(
    region="vi * 2:vi * 2 + 2",
    remark='T.block_attr({"explicit_read_region": [0]})\n            ',
)


def test_a_block_says_what_it_reads():
    sch = tir.Schedule(parse(BEFORE))
    sch.annotate_buffer_access("B", 0, "read", lambda vi: [(vi * 2, vi * 2 + 2)])
    assert_structural_equal(sch.mod["main"], parse(AFTER))
    again = tir.Schedule(parse(BEFORE))
    Trace.apply_json_to_schedule(sch.trace.as_json(), again)
    assert_structural_equal(again.mod["main"], parse(AFTER))
    scope = {}
    exec(str(sch.trace), scope)
    third = tir.Schedule(parse(BEFORE))
    scope["apply_trace"](third)
    assert_structural_equal(third.mod["main"], parse(AFTER))
    x, y = np.random.default_rng(0).random(64, dtype="float32"), np.zeros(32, "float32")
    tvm.build(sch.mod, "llvm")["main"](x, y)
    assert (y == x[::2] + x[1::2]).all()


def test_one_index_is_a_range_of_one_element():
    sch = tir.Schedule(parse(BEFORE))
    sch.annotate_buffer_access("B", 0, "write", lambda vi: vi)
    (region,) = sch.get(sch.get_block("B")).writes
    assert region.region[0].extent.value == 1
    assert list(sch.get(sch.get_block("B")).annotations["explicit_write_region"]) == [0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (0, "read", lambda vi: [(vi * 2 + 1, vi * 2 + 2)]),
            "touches vi \\* 2 of dimension 0",
        ),
        ((0, "read", lambda vi: [(0, vi * 2 + 1)]), "outside of 0 to before vi \\* 2 \\+ 1"),
        ((0, "read", lambda vi: [(vi, vi), vi]), "wanted 1 ranges of A"),
        ((0, "read", lambda vi, vj: [vi]), "1 axes, got 1 from 2"),
        ((0, "read", lambda vi: [(vi,)]), "a range is \\(begin, end\\), got 1 parts"),
        ((1, "read", lambda vi: [vi]), "1 read regions, got the index 1"),
        ((0, "load", lambda vi: [vi]), 'wanted "read" or "write", got \'load\''),
        ((0, "read", 3), "wanted a function of indices"),
    ],
)
def test_a_region_that_cannot_be_is_refused(arguments, message):
    sch = tir.Schedule(parse(BEFORE))
    with pytest.raises(tir.ScheduleError, match=message):
        sch.annotate_buffer_access("B", *arguments)
    assert_structural_equal(sch.mod["main"], parse(BEFORE))
