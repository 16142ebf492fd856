"""Primitives on loops: what they make, that it means the same, and what they refuse."""

import pytest
from schedule_helpers import KERNELS, chain, check_same, in_place, matmul, running_sum, stencil

from relaxvm.ir import assert_structural_equal
from relaxvm.script import from_source
from relaxvm.tir import ForKind, Schedule, ScheduleError

HEAD = "# from relaxvm.script import tir as T\n@T.prim_func\n"

COPY = """
def main(A: T.Buffer((30, 8), "float32"), B: T.Buffer((30, 8), "float32")):
    for i, j in T.grid(30, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
"""


def parse(text):
    return from_source(HEAD + text.strip())


def copy():
    return parse(COPY)


def start(fn, block="B"):
    sch = Schedule(fn)
    b = sch.get_block(block)
    return sch, b, sch.get_loops(b)


def body(head, *axes):
    lines = "\n".join(f"            {a}" for a in axes)
    return f"""
def main(A: T.Buffer((30, 8), "float32"), B: T.Buffer((30, 8), "float32")):
    {head}
        with T.block("B"):
{lines}
            B[vi, vj] = A[vi, vj] * T.float32(2)
"""


def is_now(sch, text):
    assert_structural_equal(sch.mod["main"], parse(text))


# -- split -----------------------------------------------------------------------------------------


def test_split_where_the_factors_divide():
    fn = copy()
    sch, _, (i, _) = start(fn)
    assert len(sch.split(i, [None, 5])) == 2
    is_now(
        sch,
        body(
            "for i_0, i_1, j in T.grid(6, 5, 8):",
            "vi = T.axis.spatial(30, i_0 * 5 + i_1)",
            "vj = T.axis.spatial(8, j)",
        ),
    )
    check_same(fn, sch.mod["main"])


def test_split_with_a_rest_gets_a_predicate():
    fn = copy()
    sch, _, (i, _) = start(fn)
    sch.split(i, [None, 4])
    is_now(
        sch,
        body(
            "for i_0, i_1, j in T.grid(8, 4, 8):",
            "vi = T.axis.spatial(30, i_0 * 4 + i_1)",
            "vj = T.axis.spatial(8, j)",
            "T.where(i_0 * 4 + i_1 < 30)",
        ),
    )
    check_same(fn, sch.mod["main"])


def test_split_of_a_split_of_a_rest():
    fn = copy()
    sch, _, (i, j) = start(fn)
    _, i1 = sch.split(i, [None, 7])
    sch.split(i1, [None, 2])
    sch.fuse(*sch.get_loops(sch.get_block("B"))[:2])
    sch.split(j, [3, None])
    check_same(fn, sch.mod["main"])


@pytest.mark.parametrize(
    ("factors", "reason"),
    [
        ([3, 4], "multiply to 12, which is not shown to be at least its extent 30"),
        ([None, 0], "a factor of loop i is 0; factors are positive"),
        ([None, None], "at most one factor may be None"),
        ([], "no factors"),
    ],
)
def test_split_refuses_bad_factors(factors, reason):
    sch, _, (i, _) = start(copy())
    with pytest.raises(ScheduleError, match=reason):
        sch.split(i, factors)


def test_split_without_predicate_must_divide():
    sch, _, (i, _) = start(copy())
    with pytest.raises(ScheduleError, match="disable_predication forbids"):
        sch.split(i, [None, 4], disable_predication=True)
    sch.split(i, [None, 10], disable_predication=True)


def test_split_of_a_symbolic_extent():
    fn = KERNELS["symbolic_matmul"]()
    sch = Schedule(fn)
    i, j, k = sch.get_loops(sch.get_block("C"))
    sch.split(i, [None, 4])
    sch.split(j, [2, None])
    sch.split(k, [None, 3, 2])
    check_same(fn, sch.mod["main"], "symbolic_matmul")


def test_split_by_an_expression_of_a_size():
    fn = KERNELS["symbolic_matmul"]()
    sch = Schedule(fn)
    i, _, _ = sch.get_loops(sch.get_block("C"))
    n = sch.get(i).extent
    sch.split(i, [None, n // 2 + 1])
    check_same(fn, sch.mod["main"], "symbolic_matmul")
    again = Schedule(fn)
    again.trace.apply_json_to_schedule(sch.trace.as_json(), again)
    assert_structural_equal(again.mod["main"], sch.mod["main"])


def test_a_loop_with_annotations_is_not_replaced():
    sch, _, (i, _) = start(copy())
    sch.annotate(i, "pragma_x", 1)
    with pytest.raises(ScheduleError, match="has annotations"):
        sch.split(i, [None, 2])
    sch.unannotate(i, "pragma_x")
    sch.split(i, [None, 2])


# -- fuse and reorder ------------------------------------------------------------------------------


def test_fuse():
    fn = copy()
    sch, _, (i, j) = start(fn)
    sch.fuse(i, j)
    is_now(
        sch,
        body(
            "for f in range(240):",
            "vi = T.axis.spatial(30, f // 8)",
            "vj = T.axis.spatial(8, f % 8)",
        ),
    )
    check_same(fn, sch.mod["main"])


def test_split_of_a_fused_loop_is_written_with_plain_digits():
    fn = copy()
    sch, _, (i, j) = start(fn)
    f = sch.fuse(i, j)
    sch.split(f, [None, 16])
    is_now(
        sch,
        body(
            "for f0, f1 in T.grid(15, 16):",
            "vi = T.axis.spatial(30, f0 * 2 + f1 // 8)",
            "vj = T.axis.spatial(8, f1 % 8)",
        ),
    )
    check_same(fn, sch.mod["main"])


def test_fuse_refuses_loops_that_do_not_follow_each_other():
    sch, _, (i, j, k) = start(matmul(), "C")
    with pytest.raises(ScheduleError, match="loop k and loop i do not directly follow each other"):
        sch.fuse(i, k)
    with pytest.raises(ScheduleError, match="loop i and loop j do not directly"):
        sch.fuse(j, i)


def test_reorder_of_spatial_and_reduce_loops():
    fn = matmul()
    sch, _, (i, j, k) = start(fn, "C")
    sch.reorder(k, j, i)
    assert [sch.get(v).loop_var.name for v in sch.get_loops(sch.get_block("C"))] == ["k", "j", "i"]
    check_same(fn, sch.mod["main"])


def test_reorder_moves_only_the_loops_given():
    sch, _, (i, j, k) = start(matmul(), "C")
    sch.reorder(k, i)
    assert [sch.get(v).loop_var.name for v in sch.get_loops(sch.get_block("C"))] == ["k", "j", "i"]


def test_reorder_refuses_iterations_that_depend_on_each_other():
    sch, _, (i, j) = start(running_sum)
    with pytest.raises(ScheduleError, match="reads B where other iterations write it"):
        sch.reorder(j, i)


def test_reorder_refuses_a_nest_where_values_are_handed_on():
    fn = parse("""
def main(A: T.Buffer((8, 4), "float32"), C: T.Buffer((8, 4), "float32")):
    B = T.alloc_buffer((4,), "float32")
    for i in range(8):
        for j in range(4):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj] + B[3 - vj]
            with T.block("B"):
                vj = T.axis.spatial(4, j)
                B[vj] = T.float32(1)
""")
    sch, _, (i, j) = start(fn, "C")
    with pytest.raises(ScheduleError, match="hand values on to each other through B"):
        sch.reorder(j, i)


def test_reorder_refuses_two_reduce_loops_of_an_unknown_reduction():
    fn = parse("""
def main(A: T.Buffer((4, 4, 4), "float32"), B: T.Buffer((4,), "float32")):
    for i, k, l in T.grid(4, 4, 4):
        with T.block("B"):
            vi, vk, vl = T.axis.remap("SRR", [i, k, l])
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] * T.float32(0.5) + A[vi, vk, vl]
""")
    sch, _, (i, k, j) = start(fn)
    with pytest.raises(ScheduleError, match="not one that is known to be commutative"):
        sch.reorder(j, k)
    sch.reorder(k, i)
    check_same(fn, sch.mod["main"])


def test_reorder_refuses_loops_of_different_nests():
    sch, _, (i, j) = start(chain())
    others = sch.get_loops(sch.get_block("D"))
    with pytest.raises(ScheduleError, match="not in one nest"):
        sch.reorder(i, others[0])


# -- parallel, vectorize, unroll, bind -------------------------------------------------------------


def test_kinds_of_loops():
    fn = copy()
    sch, _, (i, j) = start(fn)
    j0, j1 = sch.split(j, [None, 4])
    sch.parallel(i)
    sch.unroll(j0)
    sch.vectorize(j1)
    kinds = [ForKind(sch.get(v).kind).name for v in (i, j0, j1)]
    assert kinds == ["PARALLEL", "UNROLLED", "VECTORIZED"]
    check_same(fn, sch.mod["main"])


@pytest.mark.parametrize("how", ["parallel", "vectorize"])
def test_parts_of_fused_loops_run_other_elements(how):
    # Alone, the innermost loop is not seen to move one digit of the sum; with those around it is.
    fn = chain(6, 64)
    sch, _, loops = start(fn, "C")
    parts = sch.split(sch.fuse(*loops), [None, 8, 4])
    getattr(sch, how)(parts[2])
    check_same(fn, sch.mod["main"])


def test_bind_to_a_thread():
    sch, _, (i, j) = start(copy())
    sch.bind(i, "blockIdx.x")
    assert sch.get(i).thread_binding.thread_tag == "blockIdx.x"
    with pytest.raises(ScheduleError, match="wanted one of"):
        sch.bind(j, "nothing")


@pytest.mark.parametrize("how", ["parallel", "vectorize"])
def test_a_reduce_loop_is_not_run_at_once(how):
    sch, _, (_, _, k) = start(matmul(), "C")
    with pytest.raises(ScheduleError, match="moves the reduce axis v_k of block C"):
        getattr(sch, how)(k)


def test_iterations_that_write_the_same_element_are_not_parallel():
    fn = parse("""
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi // 2] = A[vi]
""")
    sch, _, (i,) = start(fn)
    with pytest.raises(ScheduleError, match="not shown to write different elements of B"):
        sch.parallel(i)


def test_scattered_writes_are_not_parallel():
    fn = parse("""
def main(A: T.Buffer((8,), "float32"), I: T.Buffer((8,), "int32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[I[vi]] = A[vi]
""")
    sch, _, (i,) = start(fn)
    with pytest.raises(ScheduleError, match="not shown to write different elements"):
        sch.vectorize(i)


def test_a_producer_inside_a_parallel_loop_needs_no_other_iteration():
    fn = stencil
    sch = Schedule(fn)
    c = sch.get_block("C")
    (i,) = sch.get_loops(c)
    i0, _ = sch.split(i, [None, 4])
    sch.compute_at(sch.get_block("B"), i0)
    sch.parallel(i0)
    check_same(fn, sch.mod["main"], "stencil")


def test_a_producer_in_a_serial_loop_outside_keeps_the_loop_inside_from_being_parallel():
    fn = parse("""
def main(A: T.Buffer((4, 8), "float32"), C: T.Buffer((4, 8), "float32")):
    B = T.alloc_buffer((8,), "float32")
    for i in range(4):
        for j in range(8):
            for u in range(8):
                with T.block("B"):
                    vi, vu = T.axis.remap("SS", [i, u])
                    B[vu] = A[vi, vu]
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vj]
""")
    sch, _, (i, j) = start(fn, "C")
    with pytest.raises(ScheduleError, match="not shown to write different|same elements of B"):
        sch.parallel(j)


def test_vectorize_wants_a_constant_extent():
    sch = Schedule(stencil)
    (i,) = sch.get_loops(sch.get_block("B"))
    with pytest.raises(ScheduleError, match="constant extent"):
        sch.vectorize(i)


# -- the others ------------------------------------------------------------------------------------


def test_add_unit_loop():
    fn = copy()
    sch, b, (i, _) = start(fn)
    sch.add_unit_loop(b)
    sch.add_unit_loop(i)
    assert len(sch.get_loops(b)) == 4
    check_same(fn, sch.mod["main"])


def test_loop_partition():
    fn = copy()
    sch, b, (i, _) = start(fn)
    parts = sch.loop_partition(i, [28, None])
    assert [(int(sch.get(p).min), int(sch.get(p).extent)) for p in parts] == [(0, 28), (28, 2)]
    check_same(fn, sch.mod["main"])
    with pytest.raises(ScheduleError, match="2 blocks are named 'B'"):
        sch.get_block("B")
    other, _, (i, _) = start(fn)
    with pytest.raises(ScheduleError, match="have 31 iterations"):
        other.loop_partition(i, [31])


def test_merge_of_two_nests():
    fn = chain()
    sch = Schedule(fn)
    b, c = sch.get_block("B"), sch.get_block("C")
    sch.merge(sch.get_loops(b)[1], sch.get_loops(c)[1])
    assert sch.get_loops(b) != []
    assert [str(sch.get(v).loop_var.name) for v in sch.get_loops(c)] == ["i_m", "j_m"]
    check_same(fn, sch.mod["main"])


def test_merge_refuses_what_would_read_too_early():
    fn = parse("""
def main(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    B = T.alloc_buffer((8,), "float32")
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi]
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = B[7 - vi]
""")
    sch = Schedule(fn)
    b, c = sch.get_block("B"), sch.get_block("C")
    with pytest.raises(ScheduleError, match="hand values on to each other through B"):
        sch.merge(sch.get_loops(b)[0], sch.get_loops(c)[0])


def test_merge_wants_loops_of_one_kind():
    sch = Schedule(chain())
    b, c = sch.get_loops("B")[0], sch.get_loops("C")[0]
    sch.parallel(b)
    with pytest.raises(ScheduleError, match="is parallel, loop i serial; merge wants loops of one"):
        sch.merge(b, c)
    sch.parallel(c)
    sch.merge(b, c)
    assert sch.mod["main"].script().count("T.parallel") == 1
    check_same(chain(), sch.mod["main"])


def test_reorder_block_iter_var():
    fn = matmul()
    sch, c, _ = start(fn, "C")
    sch.reorder_block_iter_var(c, [2, 0, 1])
    assert [a.var.name for a in sch.get(c).iter_vars] == ["v_k", "v_i", "v_j"]
    check_same(fn, sch.mod["main"])
    with pytest.raises(ScheduleError, match="permutation of 0..2"):
        sch.reorder_block_iter_var(c, [0, 0, 1])


def test_an_update_in_place_is_parallel_but_stays_where_it_is():
    sch = Schedule(in_place)
    a1 = sch.get_block("A1")
    i, j = sch.get_loops(a1)
    sch.reorder(j, i)
    sch.parallel(j)
    with pytest.raises(ScheduleError):
        sch.compute_inline(a1)
    check_same(in_place, sch.mod["main"])


def test_loops_from_a_minimum_other_than_zero():
    fn = parse("""
def main(A: T.Buffer((12,), "float32"), B: T.Buffer((12,), "float32")):
    for i in range(2, 11):
        with T.block("B"):
            vi = T.axis.spatial((2, 11), i)
            B[vi] = A[vi]
""")
    sch, _, (i,) = start(fn)
    i0, i1 = sch.split(i, [None, 4])
    sch.reorder(i1, i0)
    sch.parallel(i1)
    check_same(fn, sch.mod["main"])
