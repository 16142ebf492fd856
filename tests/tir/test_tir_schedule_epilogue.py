"""fuse_reduction_epilogue, read_at, write_at, unsafe_hide_buffer_access."""

import pytest
from schedule_helpers import check_same
from transform_helpers import parse

from relaxvm import te, tir
from relaxvm.ir import assert_structural_equal
from relaxvm.tir.schedule import Trace

SUM = """
def main(A: T.Buffer((6, 8)), B: T.Buffer((6,)), D: T.Buffer((6,))):
    X = T.alloc_buffer((6,), "float32")
    for i, k in T.grid(6, 8):
        with T.block("X"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                X[vi] = T.float32({start})
            X[vi] = {update}
    {between}for i in range({rows}):
        with T.block("D"):
            vi = T.axis.spatial({rows}, i)
            D[{place}] = {value}
"""
FUSED = """
def main(A: T.Buffer((6, 8)), B: T.Buffer((6,)), D: T.Buffer((6,))):
    for i, k in T.grid(6, 8):
        with T.block("X"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                D[vi] = B[vi]
            D[vi] = D[vi] + A[vi, vk]
"""
TWICE = """for i in range(6):
        with T.block("E"):
            vi = T.axis.spatial(6, i)
            {}
    """


def function(**parts):
    usual = {
        "start": 0, "update": "X[vi] + A[vi, vk]", "between": "", "rows": 6, "place": "vi",
        "value": "X[vi] + B[vi]",
    }  # fmt: skip
    return parse(SUM.format(**{**usual, **parts}))


def test_a_sum_begins_with_what_was_added_to_it():
    sch = tir.Schedule(function())
    sch.fuse_reduction_epilogue("X", "D")
    assert_structural_equal(sch.mod["main"], parse(FUSED))
    again = tir.Schedule(function())
    Trace.apply_json_to_schedule(sch.trace.as_json(), again)
    assert_structural_equal(again.mod["main"], parse(FUSED))
    again.decompose_reduction("X", again.get_loops("X")[1])
    check_same(function(), again.mod["main"])


@pytest.mark.parametrize(
    "parts",
    [
        {"value": "B[vi] * T.float32(2) + X[vi]"},
        {"place": "vi // 3 + vi % 3 * 2"},
        {"start": 1, "update": "X[vi] * A[vi, vk]", "value": "X[vi] * B[vi]"},
        {"start": '"-inf"', "update": "T.max(X[vi], A[vi, vk])", "value": "T.max(X[vi], B[vi])"},
        {"value": "X[vi // 3 + vi % 3 * 2] + B[vi]"},
    ],
)
def test_what_is_combined_may_be_anything_in_any_place(parts):
    fn = function(**parts)
    sch = tir.Schedule(fn)
    sch.fuse_reduction_epilogue(sch.get_block("X"), sch.get_block("D"))
    assert len(sch.get_child_blocks("root")) == 1
    check_same(fn, sch.mod["main"])


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"value": "T.max(X[vi], T.float32(0))"}, "is no sum of X and something else"),
        ({"value": "X[vi] - B[vi]"}, "is no sum of X"),
        ({"value": "X[vi] + X[5 - vi]"}, "reads X at several places"),
        ({"value": "B[vi] + A[vi, 0]"}, "does not read X"),
        ({"start": 1}, "that begins with"),
        ({"rows": 5}, "leaves out some of X"),
        ({"between": TWICE.format("D[vi] = X[vi]")}, "block E also uses X"),
        ({"between": TWICE.format("B[vi] = T.float32(1)")}, "block E, between them"),
    ],
)
def test_what_would_change_a_result_is_refused(parts, message):
    fn = function(**parts)
    sch = tir.Schedule(fn)
    with pytest.raises(tir.ScheduleError, match=message):
        sch.fuse_reduction_epilogue("X", "D")
    assert_structural_equal(sch.mod["main"], tir.Schedule(fn).mod["main"])


def test_only_a_reduction_with_an_init_begins_with_anything():
    sch = tir.Schedule(function())
    with pytest.raises(tir.ScheduleError, match="block D is no reduction"):
        sch.fuse_reduction_epilogue("D", "X")
    with pytest.raises(tir.ScheduleError):
        sch.fuse_reduction_epilogue("X", "X")
    sch.decompose_reduction("X", sch.get_loops("X")[1])
    with pytest.raises(tir.ScheduleError, match="is no reduction of one value with an init"):
        sch.fuse_reduction_epilogue("X_update", "D")


def product():
    a, b = te.placeholder((16, 12), name="A"), te.placeholder((12, 16), name="B")
    k = te.reduce_axis((0, 12), "k")
    out = te.compute((16, 16), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return te.create_prim_func([a, b, out])


def test_copies_hold_what_one_iteration_of_a_loop_touches():
    sch = tir.Schedule(product())
    i, j, k = sch.get_loops("C")
    io, ii = sch.split(i, [None, 4])
    sch.reorder(io, j, ii, k)
    read = sch.read_at(io, "C", 0, "local")
    write = sch.write_at(j, "C", 0, "local")
    assert [sch.get(f).extent.value for f in sch.get_loops(read)] == [4, 4, 12]
    assert [sch.get(f).extent.value for f in sch.get_loops(write)] == [4, 16, 4]
    check_same(product(), sch.mod["main"])
    again = tir.Schedule(product())
    sch.trace.apply_to_schedule(again)
    assert_structural_equal(again.mod["main"], sch.mod["main"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda sch, k: sch.read_at(k, "C", 5, "local"), "2 read regions, got the index 5"),
        (lambda sch, k: sch.read_at(k, "C", 0, "no such"), "scope"),
        (lambda sch, k: sch.write_at(k, "C", 0, "local"), "reduc"),
        (lambda sch, k: sch.write_at(k, "C", 1, "local"), "1 write regions, got the index 1"),
    ],
)
def test_copies_that_cannot_stand_there_are_refused(call, message):
    sch = tir.Schedule(product())
    with pytest.raises(tir.ScheduleError, match=message):
        call(sch, sch.get_loops("C")[2])
    assert_structural_equal(sch.mod["main"], product())


def test_what_is_hidden_is_declared_no_more_and_computed_all_the_same():
    sch = tir.Schedule(product())
    sch.unsafe_hide_buffer_access("C", "read", [1])
    (left,) = sch.get(sch.get_block("C")).reads
    assert left.buffer.name == "A"
    again = tir.Schedule(product())
    Trace.apply_json_to_schedule(sch.trace.as_json(), again)
    assert_structural_equal(again.mod["main"], sch.mod["main"])
    check_same(product(), sch.mod["main"])
    for wrong in (("read", [1]), ("read", [-1]), ("load", [0]), ("write", ["C"]), ("read", 0)):
        with pytest.raises(tir.ScheduleError):
            sch.unsafe_hide_buffer_access("C", *wrong)
