"""Rewrites that are right although TVM refuses them, each with the reason; and near ones that are
not, which are refused. What is right is compared with the interpreter on random inputs.
"""

import numpy as np
import pytest
from schedule_helpers import arguments, by_machine, check

from relaxvm.script import from_source
from relaxvm.tir import Schedule, ScheduleError

HEAD = """# from relaxvm.script import tir as T
@T.prim_func
def main(A: T.Buffer((8, 8)), B: T.Buffer((8, 8)), C: T.Buffer((8,))):
"""
INIT = "with T.init():\n    C[vi] = T.float32(0)\n"


def block(loops, axes, store, name="B", alloc=""):
    """A block over A, B and C: `loops` are headers, one inside the other."""
    lines = [*loops.split("\n"), f'with T.block("{name}"):', *axes.split("\n")]
    depth = len(loops.split("\n"))
    text = "".join(f"{'    ' * (k + 1)}{line}\n" for k, line in enumerate(lines[: depth + 1]))
    inner = "    " * (depth + 2)
    text += "".join(f"{inner}{line}\n" for line in (*axes.split("\n"), *store.split("\n")))
    return (f"    {alloc}\n" if alloc else "") + text


GRID = "for i, j in T.grid(8, 8):"
PLAIN = 'vi, vj = T.axis.remap("SS", [i, j])'
COPY = "B[vi, vj] = A[vi, vj] * T.float32(2)"
SUM = 'vi, vk = T.axis.remap("SR", [i, j])'
STEP = "C[vi] = C[vi] + A[vi, vk]"


def loops(sch, name="B"):
    return sch.get_loops(name)


def turn(sch):
    sch.reorder(*reversed(loops(sch)))


def both_sums():
    first = block("for i in range(8):\nfor j in range(8):", SUM, INIT + STEP)
    second = INIT.replace("C[vi]", "B[vi, 0]") + "B[vi, 0] = B[vi, 0] + A[vk, vi]"
    inner = block("for j in range(8):", SUM, second, "D")
    return first + "".join(f"    {line}\n" for line in inner.splitlines())


def pair(first, second="C[vi] = X[vi, 0]", axes="vi = T.axis.spatial(8, i)", name="C"):
    alloc = "X = T.alloc_buffer((8, 8))"
    return block(GRID, PLAIN, first, alloc=alloc) + block("for i in range(8):", axes, second, name)


WIDER = {
    # Axes do not care from where loops count: their values stay the same ones.
    "split_from_2": (
        block("for i in range(2, 8):\nfor j in range(8):", PLAIN, COPY),
        lambda s: s.split(loops(s)[0], [None, 4]),
    ),
    "fuse_from_2": (
        block("for i in range(2, 8):\nfor j in range(3, 8):", PLAIN, COPY),
        lambda s: s.fuse(*loops(s)),
    ),
    # Each iteration writes its own element, or the same value into the same one: any order does.
    "reorder_of_a_binding_that_is_no_sum": (
        block(GRID, "vi = T.axis.spatial(8, i)\nvj = T.axis.spatial(8, (i + j) % 8)", COPY),
        turn,
    ),
    "reorder_of_repeated_writes": (
        block(GRID, "vi = T.axis.spatial(8, i)\nvj = T.axis.spatial(8, T.min(j * j, 7))", COPY),
        turn,
    ),
    # Which iterations run depends on their own numbers, not on their order.
    "reorder_under_a_condition": (
        block(GRID, f"T.where(i * 8 + j < 50)\n{PLAIN}", COPY),
        turn,
    ),
    # What an iteration reads and writes is its own, also where it was there before.
    "parallel_in_place": (
        block(GRID, PLAIN, "B[vi, vj] = B[vi, vj] * T.float32(2) + A[vi, vj]"),
        lambda s: s.parallel(loops(s)[0]),
    ),
    "parallel_rows_of_an_update": (
        block(GRID, SUM, STEP),
        lambda s: s.parallel(loops(s)[0]),
    ),
    "parallel_part_of_a_result": (
        block(
            "for i, j in T.grid(8, 4):",
            "vi = T.axis.spatial(8, i)\nvj = T.axis.spatial(4, j)",
            COPY,
        ),
        lambda s: s.parallel(loops(s)[0]),
    ),
    # Sums may be reordered, so partial ones may be kept; the start is added once, at the end.
    "rfactor_from_any_start": (
        block(GRID, SUM, INIT.replace("T.float32(0)", "A[vi, 3]") + STEP),
        lambda s: s.rfactor(loops(s)[1], 0),
    ),
    "rfactor_beside_another_reduction": (
        both_sums(),
        lambda s: s.rfactor(loops(s)[1], 0),
    ),
    "rfactor_of_max_and_sum": (
        block(
            GRID,
            SUM,
            "with T.init():\n    C[vi] = T.float32(0)\n    B[vi, 0] = T.float32(-9)\n"
            "C[vi] = C[vi] + A[vi, vk]\nB[vi, 0] = T.max(B[vi, 0], A[vi, vk])",
        ).replace("B[vi, 0]", "D[vi]"),
        lambda s: s.rfactor(loops(s)[1], 0),
    ),
    # A result that is a parameter is written by the copy out of the padded buffer.
    "pad_einsum_of_a_result": (
        block(GRID, SUM, INIT + "C[vi] = C[vi] + A[vi, vk] * D[vk]"),
        lambda s: s.pad_einsum("B", [3, 5]),
    ),
    # Loops that run a block again with the same axes do no more than once.
    "a_layout_of_iterations_that_are_repeated": (
        block(
            "for f in range(64):\nfor u in range(2):",
            "vi = T.axis.spatial(8, f // 8)\nvj = T.axis.spatial(8, f % 8)",
            COPY,
        ),
        lambda s: s.transform_block_layout("B", lambda i, j: (j, i)),
    ),
    # No access goes to a place between: each old index has one new place, in bounds.
    "a_layout_with_places_that_nobody_uses": (
        pair("X[vi, vj] = A[vi, vj]"),
        lambda s: s.transform_layout("B", "X", lambda i, j: (i // 3, j, i % 3)),
    ),
    "a_whole_number_as_padding_of_floats": (
        pair("X[vi, vj] = A[vi, vj]"),
        lambda s: s.transform_layout("B", "X", lambda i, j: (i // 3, j, i % 3), pad_value=7),
    ),
    # The producer runs where the consumer used what it wrote, and nowhere else.
    "a_row_into_its_producer": (
        pair("X[vi, vj] = A[vi, vj]", "C[vi] = X[5, vi]"),
        lambda s: s.reverse_compute_inline("C"),
    ),
    "a_condition_into_the_producer": (
        pair(
            "X[vi, vj] = A[vi, vj]", "C[vi] = X[vi, 2]", "T.where(i < 5)\nvi = T.axis.spatial(8, i)"
        ),
        lambda s: s.reverse_compute_inline("C"),
    ),
    # Iterations of one kind of loop or another do the same one after the other.
    "merge_of_an_unrolled_loop": (
        pair("X[vi, vj] = A[vi, vj]", "C[vi] = A[vi, 1]"),
        lambda s: (s.unroll(loops(s, "C")[0]), s.merge(loops(s)[0], loops(s, "C")[0])),
    ),
    # What is not copied is not changed: the condition says where the value is the constant.
    "decompose_padding_of_an_expression": (
        block(
            GRID,
            PLAIN,
            "B[vi, vj] = T.if_then_else(vi >= 2, A[vi - 2, vj] * A[vi, vj], T.float32(3))",
        ),
        lambda s: s.decompose_padding("B", loops(s)[1]),
    ),
    # Parts of a reduction in their order; only the first contains the start.
    "partition_of_a_reduction": (
        block(GRID, SUM, INIT + STEP),
        lambda s: s.loop_partition(loops(s)[1], [3, None]),
    ),
    # The block that other loops share is moved alone; its iterations stay the same ones.
    "reverse_compute_at_a_parallel_loop": (
        pair("X[vi, vj] = A[vi, vj]"),
        lambda s: (s.parallel(loops(s)[0]), s.reverse_compute_at("C", loops(s)[0])),
    ),
}


def function(text):
    head = HEAD.replace("C: T.Buffer((8,))", "C: T.Buffer((8,)), D: T.Buffer((8,))")
    return from_source(head + text)


@pytest.mark.parametrize("run", [None, by_machine])
@pytest.mark.parametrize("name", WIDER)
def test_what_is_right_is_done(name, run):
    text, step = WIDER[name]
    fn = function(text)
    sch = Schedule(fn, debug_mask="all")
    step(sch)
    inputs = [arguments(fn, np.random.default_rng(seed)) for seed in range(3)]
    check(fn, sch, inputs, *([run] if run else []))


REFUSED = {
    "fuse_of_a_triangle": (
        block("for i in range(8):\nfor j in range(i + 1):", PLAIN, COPY),
        lambda s: s.fuse(*loops(s)),
    ),
    "reorder_of_a_triangle": (
        block("for i in range(8):\nfor j in range(i + 1):", PLAIN, COPY),
        turn,
    ),
    # Lanes would write one element at once.
    "vectorize_of_repeated_writes": (
        block(GRID, "vi = T.axis.spatial(8, i)\nvj = T.axis.spatial(8, T.min(j * j, 7))", COPY),
        lambda s: s.vectorize(loops(s)[1]),
    ),
    "parallel_in_place_of_a_neighbour": (
        block(GRID, PLAIN, "B[vi, vj] = B[(vi + 1) % 8, vj] + A[vi, vj]"),
        lambda s: s.parallel(loops(s)[0]),
    ),
    "parallel_steps_of_an_update": (block(GRID, SUM, STEP), lambda s: s.parallel(loops(s)[1])),
    "reorder_of_an_axis_with_an_order": (
        block(GRID, "vi = T.axis.opaque(8, i)\nvj = T.axis.spatial(8, j)", COPY),
        turn,
    ),
    "rfactor_without_a_start": (block(GRID, SUM, STEP), lambda s: s.rfactor(loops(s)[1], 0)),
    "rfactor_of_a_difference": (
        block(GRID, SUM, INIT + "C[vi] = A[vi, vk] - C[vi]"),
        lambda s: s.rfactor(loops(s)[1], 0),
    ),
    "decompose_under_a_reduce_loop": (
        block("for j, i in T.grid(8, 8):", SUM, INIT + STEP),
        lambda s: s.decompose_reduction("B", loops(s)[1]),
    ),
    "merge_that_reads_ahead": (
        pair("X[vi, vj] = A[vi, vj]", "C[vi] = X[7 - vi, 1]"),
        lambda s: s.merge(loops(s)[0], loops(s, "C")[0]),
    ),
    "inlining_an_update_in_place": (
        pair("X[vi, vj] = X[vi, vj] + A[vi, vj]"),
        lambda s: s.compute_inline("B"),
    ),
    "a_layout_that_joins_elements": (
        pair("X[vi, vj] = A[vi, vj]"),
        lambda s: s.transform_layout("B", "X", lambda i, j: (i // 2, j)),
    ),
    "a_layout_of_iterations_that_mixes_kinds": (
        block(GRID, SUM, INIT + STEP),
        lambda s: s.transform_block_layout("B", lambda i, k: (i * 8 + k,)),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_right_is_refused(name):
    text, step = REFUSED[name]
    sch = Schedule(function(text))
    before = sch.mod["main"]
    with pytest.raises(ScheduleError):
        step(sch)
    assert sch.mod["main"] is before
