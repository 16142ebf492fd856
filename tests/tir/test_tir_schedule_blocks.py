"""Primitives on blocks: where they are computed, how reductions are cut, what they refuse."""

import numpy as np
import pytest
from schedule_helpers import KERNELS, chain, check_same, conv1d, full_sum, matmul, row_max, stencil

from relaxvm import te, tir
from relaxvm.ir import assert_structural_equal
from relaxvm.script import from_source
from relaxvm.script import tir as T
from relaxvm.tir import Schedule, ScheduleError

HEAD = "# from relaxvm.script import tir as T\n@T.prim_func\n"


def parse(text):
    return from_source(HEAD + text.strip())


def names(sch):
    return [sch.get(b).name_hint for b in sch.get_child_blocks(sch.get_block("root"))]


def loop_names(sch, block):
    return [sch.get(v).loop_var.name for v in sch.get_loops(sch.get_block(block))]


TWO = """
def main(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    B = T.alloc_buffer((8,), "float32")
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = B[vi] + T.float32(1)
"""


def test_what_a_block_goes_on_from_in_place_is_its_producer():
    sch = Schedule(
        parse("""
def main(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = A[vi] * T.float32(2)
    for i in range(8):
        with T.block("D"):
            vi = T.axis.spatial(8, i)
            C[vi] = C[vi] + T.float32(1)
""")
    )
    c, d = sch.get_block("C"), sch.get_block("D")
    assert [sch.get(b).name_hint for b in sch.get_producers(d)] == ["C"]
    assert [sch.get(b).name_hint for b in sch.get_consumers(c)] == ["D"]


# -- inlining --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "block"), [("compute_inline", "B"), ("reverse_compute_inline", "C")]
)
def test_inlining(how, block):
    fn = parse(TWO)
    sch = Schedule(fn)
    getattr(sch, how)(sch.get_block(block))
    left = "B" if block == "C" else "C"
    want = parse(f"""
def main(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("{left}"):
            vi = T.axis.spatial(8, i)
            C[vi] = A[vi] * T.float32(2) + T.float32(1)
""")
    assert_structural_equal(sch.mod["main"], want)
    check_same(fn, sch.mod["main"])


def test_inlining_of_a_whole_chain():
    fn = chain()
    sch = Schedule(fn)
    for name in ("B", "C"):
        sch.compute_inline(sch.get_block(name))
    assert names(sch) == ["D"]
    check_same(fn, sch.mod["main"])


@pytest.mark.parametrize(
    ("fn", "block", "reason"),
    [
        (matmul, "C", "it is a reduction"),
        (matmul, "D", "seen outside of block root"),
        (conv1d, "Z", "seen outside"),
    ],
)
def test_inlining_refuses(fn, block, reason):
    sch = Schedule(fn())
    with pytest.raises(ScheduleError, match=reason):
        sch.compute_inline(sch.get_block(block))


def test_inlining_refuses_if_an_input_is_written_in_between():
    fn = parse(
        TWO.replace(
            'for i in range(8):\n        with T.block("C")',
            """for i in range(8):
        with T.block("A"):
            vi = T.axis.spatial(8, i)
            A[vi] = T.float32(0)
    for i in range(8):
        with T.block("C")""",
        )
    )
    sch = Schedule(fn)
    with pytest.raises(
        ScheduleError, match="block A writes A, which it reads, before block C runs"
    ):
        sch.compute_inline(sch.get_block("B"))


def test_inlining_a_padding_into_a_convolution():
    fn = conv1d()
    sch = Schedule(fn)
    sch.compute_inline(sch.get_block("P"))
    sch.reverse_compute_at(sch.get_block("Z"), sch.get_loops(sch.get_block("Y"))[1])
    assert names(sch) == ["Y", "Z"]
    check_same(fn, sch.mod["main"])


# -- moving ----------------------------------------------------------------------------------------


def test_compute_at_computes_what_is_needed():
    fn = stencil
    sch = Schedule(fn)
    b, c = sch.get_block("B"), sch.get_block("C")
    i0, _ = sch.split(sch.get_loops(c)[0], [None, 4])
    sch.compute_at(b, i0)
    assert loop_names(sch, "B") == ["i_0", "ax0"]
    assert sch.get(sch.get_loops(b)[1]).extent.value == 6
    check_same(fn, sch.mod["main"], "stencil")


def test_compute_at_of_a_reduction():
    fn = row_max()
    sch = Schedule(fn)
    i, _ = sch.get_loops(sch.get_block("C"))
    sch.compute_at(sch.get_block("B"), i)
    assert loop_names(sch, "B") == ["i", "ax0"]
    check_same(fn, sch.mod["main"])


def test_compute_at_of_a_block_with_a_layout_of_its_own():
    fn = KERNELS["transpose"]()
    sch = Schedule(fn)
    b = sch.get_block("B")
    sch.transform_block_layout(b, lambda i, j: (i // 2, j, i % 2))
    (i,) = sch.get_loops(sch.get_block("C"))
    i0, _ = sch.split(i, [None, 4])
    sch.compute_at(b, i0)
    assert loop_names(sch, "B")[0] == "i_0"
    check_same(fn, sch.mod["main"])


def test_a_digit_cut_with_a_rest_survives_fusing():
    fn = KERNELS["broadcast"]()
    sch = Schedule(fn)
    d = sch.get_block("D")
    sch.transform_layout(
        sch.cache_write(d, 0, "local"), ("read", 0), lambda i, j: (j // 3, i, j % 3)
    )
    copy = sch.get_block("D_local")
    ax0, ax1 = sch.get_loops(copy)
    sch.compute_at(d, ax1)
    sch.fuse(ax0, ax1)
    check_same(fn, sch.mod["main"])


@pytest.mark.parametrize("guarded_by", ["the block", "the expression"])
def test_compute_at_reads_no_index_that_a_condition_guards(guarded_by):
    where = "T.where(i * 3 + j < 6)" if guarded_by == "the block" else ""
    value = "C[I[vi]]" if where else "T.if_then_else(vi < 6, C[I[vi]], T.float32(0))"
    fn = parse(f"""
def main(A: T.Buffer((8,), "float32"), I: T.Buffer((6,), "int32"), B: T.Buffer((9,), "float32")):
    C = T.alloc_buffer((8,), "float32")
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = A[vi]
    for i, j in T.grid(3, 3):
        with T.block("B"):
            vi = T.axis.spatial(9, i * 3 + j)
            {where}
            B[vi] = {value}
""")
    sch = Schedule(fn)
    sch.compute_at(sch.get_block("C"), sch.get_loops(sch.get_block("B"))[1])
    values, indices = np.arange(8, dtype="float32"), np.array([3, 0, 7, 7, 1, 2], "int32")
    result = np.zeros(9, "float32")
    tir.interpret(sch.mod["main"], values, indices, result)
    np.testing.assert_array_equal(result, [*values[indices], 0, 0, 0])


def test_compute_at_refuses_an_output():
    sch = Schedule(chain())
    with pytest.raises(ScheduleError, match="seen outside of block root"):
        sch.compute_at(sch.get_block("D"), sch.get_loops(sch.get_block("C"))[0])


def test_compute_at_refuses_if_a_consumer_is_elsewhere():
    sch = Schedule(chain())
    with pytest.raises(ScheduleError, match="block D, which uses B of block B, is not in loop i"):
        sch.compute_at(sch.get_block("B"), sch.get_loops(sch.get_block("C"))[0])


def test_compute_at_does_not_start_a_reduction_again():
    sch = Schedule(matmul())
    c = sch.get_block("C")
    i, j, k = sch.get_loops(c)
    sch.reverse_compute_at(sch.get_block("D"), j)
    init = sch.decompose_reduction(c, i)
    with pytest.raises(
        ScheduleError,
        match="which uses C of block C_init, is not in loop k|in later iterations of loop k",
    ):
        sch.compute_at(init, k)
    sch.compute_at(init, j)
    check_same(matmul(), sch.mod["main"])


def test_reverse_compute_at_refuses_an_incomplete_reduction():
    sch = Schedule(matmul())
    _, _, k = sch.get_loops(sch.get_block("C"))
    with pytest.raises(ScheduleError, match="reduces over loop k: its result is not complete"):
        sch.reverse_compute_at(sch.get_block("D"), k)


def test_reverse_compute_at_refuses_neighbours():
    fn = stencil
    sch = Schedule(fn)
    (i,) = sch.get_loops(sch.get_block("B"))
    with pytest.raises(ScheduleError, match="cannot be moved|would read B before"):
        sch.reverse_compute_at(sch.get_block("C"), i)


@pytest.mark.parametrize("index", [-1, -2, 0])
def test_places_in_the_body(index):
    fn = chain()
    sch = Schedule(fn)
    sch.compute_at(sch.get_block("C"), sch.get_loops(sch.get_block("D"))[0])
    i, _ = sch.get_loops(sch.get_block("D"))
    sch.compute_at(sch.get_block("B"), i, index=index)
    check_same(fn, sch.mod["main"])


# -- caches ----------------------------------------------------------------------------------------


def test_cache_read_and_write():
    fn = parse(TWO)
    sch = Schedule(fn)
    b = sch.get_block("B")
    read = sch.cache_read(b, 0, "local")
    write = sch.cache_write(b, 0, "global")
    assert names(sch) == ["A_local", "B", "B_global", "C"]
    assert sch.get(read).writes[0].buffer.scope() == "local"
    assert sch.get(write).reads[0].buffer.name == "B_global"
    check_same(fn, sch.mod["main"])


def test_cache_read_for_one_of_two_consumers():
    fn = chain()
    sch = Schedule(fn)
    b, c, d = (sch.get_block(x) for x in "BCD")
    sch.cache_read(c, "B", "local", [c])
    assert sch.get(d).reads[1].buffer.name == "B" or sch.get(d).reads[0].buffer.name == "B"
    assert {r.buffer.name for r in sch.get(c).reads} == {"B_local", "A"}
    assert len(sch.get_consumers(b)) == 2
    check_same(fn, sch.mod["main"])


def test_cache_write_of_a_tile_of_accumulators():
    fn = matmul(8, 8, 6)
    sch = Schedule(fn)
    c = sch.get_block("C")
    sch.reverse_compute_at(sch.get_block("D"), sch.get_loops(c)[0])
    i, j, k = sch.get_loops(c)
    j0, j1 = sch.split(j, [None, 4])
    sch.reorder(j0, k, j1)
    cached = sch.cache_write(c, 0, "local")
    sch.reverse_compute_at(cached, j0)
    sch.decompose_reduction(c, k)
    check_same(fn, sch.mod["main"])


def test_cache_read_names_what_is_there():
    sch = Schedule(parse(TWO))
    with pytest.raises(ScheduleError, match="has 1 read regions, got the index 3"):
        sch.cache_read(sch.get_block("B"), 3, "local")
    with pytest.raises(ScheduleError, match="does not read Q; it does: A"):
        sch.cache_read(sch.get_block("B"), "Q", "local")


def test_cache_inplace():
    fn = KERNELS["in_place"]()
    sch = Schedule(fn)
    sch.cache_inplace(sch.get_block("A1"), 0, "local")
    assert names(sch) == ["A_local", "A1", "A_local", "B", "A2"]
    check_same(fn, sch.mod["main"])


def test_reindex_makes_windows_of_a_convolution():
    fn = conv1d()
    sch = Schedule(fn)
    made = sch.reindex(sch.get_block("Y"), ("read", 0))
    assert [int(r.buffer.ndim) for r in sch.get(made).writes] == [3]
    check_same(fn, sch.mod["main"])


def test_reindex_cache_with_a_layout():
    fn = matmul()
    sch = Schedule(fn)
    c = sch.get_block("C")
    packed = sch.reindex_cache_read(c, "B", "local", lambda i, j, k: (j // 4, k, j % 4))
    sch.reindex_cache_write(c, "C", "local", lambda i, j, k: (j, i))
    assert [int(e) for e in sch.get(packed).writes[0].buffer.shape] == [2, 6, 4]
    check_same(fn, sch.mod["main"])


# -- reductions ------------------------------------------------------------------------------------


def test_decompose_reduction():
    fn = matmul()
    sch = Schedule(fn)
    c = sch.get_block("C")
    i, j, k = sch.get_loops(c)
    sch.reorder(i, k, j)
    init = sch.decompose_reduction(c, k)
    assert sch.get(init).name_hint == "C_init"
    assert sch.get(c).name_hint == "C_update"
    assert loop_names(sch, "C_init") == ["i", "j_init"]
    check_same(fn, sch.mod["main"])


def test_decompose_reduction_refuses_a_loop_inside_the_reduction():
    sch = Schedule(matmul())
    c = sch.get_block("C")
    i, j, k = sch.get_loops(c)
    sch.reorder(k, i, j)
    with pytest.raises(ScheduleError, match="loop k, outside of loop i, moves a reduce axis"):
        sch.decompose_reduction(c, i)
    sch.decompose_reduction(c, k)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_rfactor(axis):
    fn = matmul()
    sch = Schedule(fn)
    c = sch.get_block("C")
    _, _, k = sch.get_loops(c)
    k0, _ = sch.split(k, [None, 4])
    partial = sch.rfactor(k0, axis)
    sch.parallel(sch.get_loops(partial)[2])
    assert sch.get(partial).name_hint == "C_rf"
    check_same(fn, sch.mod["main"])


def test_rfactor_of_a_tail_keeps_partial_results_whole():
    fn = full_sum(5, 3)
    sch = Schedule(fn)
    _, r, s = sch.get_loops(sch.get_block("B"))
    f = sch.fuse(r, s)
    _, inner = sch.split(f, [None, 4])
    sch.rfactor(inner, 0)
    check_same(fn, sch.mod["main"])


def argmax(n=4, m=7):
    a = te.placeholder((n, m), name="A")
    index = te.placeholder((n, m), "int32", name="I")

    def identity(t0, t1):
        return tir.const(-1, t0), te.min_value(t1)

    reducer = te.comm_reducer(
        lambda x, y: (
            tir.Select(x[1] >= y[1], x[0], y[0]),
            tir.Select(x[1] >= y[1], x[1], y[1]),
        ),
        identity,
        name="argmax",
    )
    k = te.reduce_axis((0, m), name="k")
    where, value = te.compute((n,), lambda i: reducer((index[i, k], a[i, k]), axis=k), name="R")
    return te.create_prim_func([index, a, where, value])


def test_rfactor_of_argmax_only_by_its_outermost_loop():
    fn = argmax()
    sch = Schedule(fn)
    block = sch.get_child_blocks(sch.get_block("root"))[0]
    _, k = sch.get_loops(block)
    k0, k1 = sch.split(k, [None, 3])
    with pytest.raises(ScheduleError, match="takes the first"):
        sch.rfactor(k1, 0)
    sch.rfactor(k0, 0)
    check_same(fn, sch.mod["main"])


def test_rfactor_refuses_a_spatial_loop():
    sch = Schedule(matmul())
    with pytest.raises(ScheduleError, match="loop i moves spatial axes of block C"):
        sch.rfactor(sch.get_loops(sch.get_block("C"))[0], 0)


# -- blocks of loops, intrinsics -------------------------------------------------------------------


@T.prim_func
def dot_desc(a: T.handle, b: T.handle, c: T.handle):
    A = T.match_buffer(a, (4,), "float32")
    B = T.match_buffer(b, (4, 1), "float32")
    C = T.match_buffer(c, (1,), "float32")
    with T.block("root"):
        T.reads(C[0], A[0:4], B[0:4, 0])
        T.writes(C[0])
        for k in range(4):
            with T.block("update"):
                vk = T.axis.reduce(4, k)
                C[0] = C[0] + A[vk] * B[vk, 0]


@T.prim_func
def dot_impl(a: T.handle, b: T.handle, c: T.handle):
    s, t = T.int32(), T.int32()
    A = T.match_buffer(a, (4,), "float32", offset_factor=1)
    B = T.match_buffer(b, (4, 1), "float32", strides=[s, t], offset_factor=1)
    C = T.match_buffer(c, (1,), "float32", offset_factor=1)
    with T.block("root"):
        T.reads(C[0], A[0:4], B[0:4, 0])
        T.writes(C[0])
        for k in T.unroll(4):
            C[0] = C[0] + A[k] * B[k, 0]


tir.TensorIntrin.register("test_schedule.dot4", dot_desc, dot_impl, override=True)


def test_blockize():
    fn = matmul(8, 8, 8)
    sch = Schedule(fn)
    c = sch.get_block("C")
    i, j, k = sch.get_loops(c)
    i0, i1 = sch.split(i, [None, 4])
    k0, k1 = sch.split(k, [None, 4])
    sch.reorder(i0, j, k0, i1, k1)
    outer = sch.blockize(i1)
    assert [int(a.dom.extent) for a in sch.get(outer).iter_vars] == [2, 8, 2]
    assert [sch.get(v).loop_var.name for v in sch.get_loops(outer)] == ["i_0", "j", "k_0"]
    sch.parallel(i0)
    sch.reorder(k0, i0)
    check_same(fn, sch.mod["main"])


def test_blockize_refuses_a_tail():
    sch = Schedule(matmul(7, 5, 6))
    c = sch.get_block("C")
    i, j, k = sch.get_loops(c)
    i0, i1 = sch.split(i, [None, 4])
    sch.reorder(i0, j, k, i1)
    with pytest.raises(ScheduleError, match="over inner and outer loops"):
        sch.blockize(i1)


def test_blockize_refuses_a_loop_whose_range_follows_another():
    @T.prim_func
    def main(A: T.Buffer((6, 2), "float32"), B: T.Buffer((2,), "float32")):
        for i in range(6):
            for j in range(T.min(i + 1, 2)):
                with T.block("B"):
                    v = T.axis.spatial(2, j)
                    B[v] = A[0, v]

    sch = Schedule(main)
    with pytest.raises(ScheduleError, match="range of loop j follows"):
        sch.blockize(sch.get_loops(sch.get_block("B"))[1])


def test_blockize_of_a_loop_that_another_of_one_iteration_bounds():
    @T.prim_func
    def main(A: T.Buffer((1, 1), "float32"), B: T.Buffer((1, 1), "float32")):
        for i in range(1):
            for j in range(T.min(i + 1, 1)):
                with T.block("B"):
                    vi, vj = T.axis.spatial(1, i), T.axis.spatial(1, j)
                    B[vi, vj] = A[vi, vj]

    sch = Schedule(main)
    outer = sch.blockize(sch.get_loops(sch.get_block("B"))[0], preserve_unit_iters=False)
    # Outside of the block nothing says what i is.
    tir.analysis.verify_well_formed(sch.mod["main"])
    assert not sch.get(outer).iter_vars
    check_same(main, sch.mod["main"])


def test_tensorize():
    fn = matmul(8, 8, 8)
    sch = Schedule(fn)
    c = sch.get_block("C")
    i, _, k = sch.get_loops(c)
    _, k1 = sch.split(k, [None, 4])
    sch.decompose_reduction(c, i)
    sch.tensorize(k1, "test_schedule.dot4")
    assert "match_buffer" in sch.mod["main"].script()
    sch.parallel(i)
    check_same(fn, sch.mod["main"])


def test_tensorize_keeps_the_init_of_a_block():
    fn = matmul(8, 8, 8)
    sch = Schedule(fn)
    c = sch.get_block("C")
    _, _, k = sch.get_loops(c)
    _, k1 = sch.split(k, [None, 4])
    outer = sch.blockize(k1)
    sch.tensorize(outer, "test_schedule.dot4")
    check_same(fn, sch.mod["main"])


def test_tensorize_refuses_another_computation():
    a, b = te.placeholder((8, 8), name="A"), te.placeholder((8, 8), name="B")
    r = te.reduce_axis((0, 8), name="k")
    c = te.compute((8, 8), lambda i, j: te.sum(a[i, r] + b[r, j], axis=r), name="C")
    sch = Schedule(te.create_prim_func([a, b, c]))
    block = sch.get_block("C")
    _, k1 = sch.split(sch.get_loops(block)[2], [None, 4])
    sch.decompose_reduction(block, sch.get_loops(block)[0])
    with pytest.raises(ScheduleError, match="is not what test_schedule.dot4 computes"):
        sch.tensorize(k1, "test_schedule.dot4")
    with pytest.raises(ScheduleError, match="is not registered"):
        sch.tensorize(k1, "nothing")


def test_intrinsics_have_the_same_buffers_twice():
    @T.prim_func
    def longer(a: T.handle, b: T.handle, c: T.handle):
        A = T.match_buffer(a, (8,), "float32")
        B = T.match_buffer(b, (4, 1), "float32")
        C = T.match_buffer(c, (1,), "float32")
        C[0] = A[7] + B[0, 0]

    with pytest.raises(ScheduleError, match=r"the shape \(4\) in desc and \(8\) in impl"):
        tir.TensorIntrin.register("test_schedule.longer", dot_desc, longer)
    with pytest.raises(ScheduleError, match="a name is text, got int"):
        tir.TensorIntrin.register(5, dot_desc, dot_impl)
    with pytest.raises(ScheduleError, match="impl is a PrimFunc"):
        tir.TensorIntrin.register("test_schedule.none", dot_desc, None)


def test_intrinsics_are_known_by_name():
    assert tir.TensorIntrin.get("test_schedule.dot4").desc is dot_desc
    assert tir.TensorIntrin.get("nothing", allow_missing=True) is None
    with pytest.raises(ScheduleError, match="registered already"):
        tir.TensorIntrin.register("test_schedule.dot4", dot_desc, dot_impl)


# -- layouts and padding ---------------------------------------------------------------------------


def test_transform_layout_of_an_allocated_buffer():
    fn = matmul(8, 6, 5)
    sch = Schedule(fn)
    c = sch.get_block("C")
    sch.transform_layout(c, ("write", 0), lambda i, j: (i // 4, j, i % 4))
    assert [int(e) for e in sch.get(c).writes[0].buffer.shape] == [2, 6, 4]
    check_same(fn, sch.mod["main"])


def test_transform_layout_of_a_parameter_changes_the_signature():
    fn = matmul(4, 6, 5)
    sch = Schedule(fn)
    sch.transform_layout(sch.get_block("C"), ("read", 1), lambda k, j: (j, k))
    b = sch.mod["main"].buffers[1]
    assert [int(e) for e in b.shape] == [6, 5]
    rng = np.random.default_rng(0)
    x, y = (rng.random(s).astype("float32") for s in ((4, 5), (5, 6)))
    want, got = (np.zeros((4, 6), "float32") for _ in range(2))
    tir.interpret(fn, x, y, want)
    tir.interpret(sch.mod["main"], x, np.ascontiguousarray(y.T), got)
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_transform_layout_with_padding():
    fn = matmul(5, 6, 4)
    sch = Schedule(fn)
    sch.transform_layout(sch.get_block("C"), ("write", 0), lambda i, j: (i // 4, j, i % 4), 0.0)
    assert names(sch) == ["C_pad", "C", "D"]
    check_same(fn, sch.mod["main"])


@pytest.mark.parametrize(
    ("index_map", "reason"),
    [
        (lambda i, j: (i + j,), "not shown to map different elements"),
        (lambda i: (i,), "has 2 dimensions, the index map takes 1"),
    ],
)
def test_transform_layout_refuses(index_map, reason):
    sch = Schedule(matmul())
    with pytest.raises(ScheduleError, match=reason):
        sch.transform_layout(sch.get_block("C"), ("write", 0), index_map)


def test_transform_block_layout():
    fn = chain(6, 4)
    sch = Schedule(fn)
    b = sch.get_block("B")
    sch.transform_block_layout(b, lambda i, j: (i * 4 + j,))
    assert len(sch.get_loops(b)) == 1
    check_same(fn, sch.mod["main"])
    c = Schedule(matmul())
    with pytest.raises(ScheduleError, match="mixes reduce and spatial axes"):
        c.transform_block_layout(c.get_block("C"), lambda i, j, k: (i * 6 + k, j))


def test_decompose_padding():
    fn = conv1d()
    sch = Schedule(fn)
    p = sch.get_block("P")
    fill = sch.decompose_padding(p, sch.get_loops(p)[0])
    assert names(sch) == ["P_pad_const", "P", "Y", "Z"]
    assert sch.get(fill).reads == ()
    check_same(fn, sch.mod["main"])


def test_pad_einsum():
    fn = matmul(5, 7, 3)
    sch = Schedule(fn)
    c = sch.get_block("C")
    sch.pad_einsum(c, [4, 4, 4])
    assert names(sch) == ["A_pad", "B_pad", "C", "C_pad", "D"]
    assert [int(sch.get(v).extent) for v in sch.get_loops(c)] == [8, 8, 4]
    check_same(fn, sch.mod["main"])


def test_pad_einsum_of_windows():
    fn = conv1d()
    sch = Schedule(fn)
    y = sch.get_block("Y")
    sch.pad_einsum(y, [1, 4, 1, 1])
    assert names(sch) == ["P", "P_pad", "Y", "Y_pad", "Z"]
    assert [int(d) for d in sch.get(y).reads[0].buffer.shape] == [2, 14]
    check_same(fn, sch.mod["main"])
    # A padded tap would meet elements that are no padding.
    with pytest.raises(ScheduleError, match="which is no axis"):
        Schedule(fn).pad_einsum("Y", [1, 1, 1, 4])


def test_pad_einsum_refuses_where_zeros_would_count():
    sch = Schedule(row_max())
    with pytest.raises(ScheduleError, match="is not a sum"):
        sch.pad_einsum(sch.get_block("B"), [1, 3])


def test_pad_einsum_of_symbolic_sizes():
    fn = KERNELS["symbolic_matmul"]()
    sch = Schedule(fn)
    sch.pad_einsum(sch.get_block("C"), [4, 8, 2])
    check_same(fn, sch.mod["main"], "symbolic_matmul")


# -- how buffers are kept --------------------------------------------------------------------------


def test_set_scope_and_annotations():
    fn = parse(TWO)
    sch = Schedule(fn)
    b = sch.get_block("B")
    sch.set_scope(b, 0, "local")
    sch.storage_align(b, 0, 0, 16, 4)
    sch.annotate(b, "hint", [1, "two", {"three": 3}])
    block = sch.get(b)
    assert block.writes[0].buffer.scope() == "local"
    assert block.annotations["buffer_dim_align"] == ((0, 0, 16, 4),)
    check_same(fn, sch.mod["main"])
    with pytest.raises(ScheduleError, match="is a parameter"):
        sch.set_scope(sch.get_block("C"), 0, "local")
    with pytest.raises(ScheduleError, match="no annotation 'nothing'"):
        sch.unannotate(b, "nothing")


def test_unsafe_set_dtype():
    fn = parse(TWO)
    sch = Schedule(fn)
    sch.unsafe_set_dtype(sch.get_block("B"), 0, "float64")
    assert "float64" in sch.mod["main"].script()
    check_same(fn, sch.mod["main"])


# -- cases that the random battery found -----------------------------------------------------------


def test_a_consumer_does_not_move_into_a_loop_without_iterations():
    fn = full_sum()
    sch = Schedule(fn)
    (i, *_) = sch.get_loops(sch.get_block("B"))
    _, empty = sch.loop_partition(i, [1, None])
    with pytest.raises(ScheduleError, match="may have no iterations|2 blocks|is not in loop"):
        sch.reverse_compute_at(sch.get_block("C"), empty)


def test_padding_wants_the_loops_for_itself():
    fn = chain()
    sch = Schedule(fn)
    c = sch.get_block("C")
    sch.compute_at(c, sch.get_loops(sch.get_block("D"))[0])
    with pytest.raises(ScheduleError, match="holds something else"):
        sch.pad_einsum(sch.get_block("D"), [4, 1])


def test_padding_an_axis_that_indexes_nothing_is_refused():
    sch = Schedule(full_sum())
    b = sch.get_block("B")
    sch.transform_block_layout(b, lambda i, r, s: (r, s, i))
    with pytest.raises(ScheduleError, match="does not index what it writes"):
        sch.pad_einsum(b, [1, 1, 2])


def test_rfactor_wants_the_start_of_the_reduction():
    sch = Schedule(matmul())
    k = sch.get_loops(sch.get_block("C"))[2]
    _, rest = sch.loop_partition(k, [1, None])
    with pytest.raises(ScheduleError, match="not shown to start with its least value"):
        sch.rfactor(rest, 0)


def test_rfactor_of_a_loop_beside_one_that_may_be_empty():
    sch = Schedule(KERNELS["symbolic_matmul"]())
    k = sch.get_loops(sch.get_block("C"))[2]
    k0, k1 = sch.split(k, [None, 4])
    with pytest.raises(ScheduleError, match="loop r_0 may have no iterations"):
        sch.rfactor(k1, 0)
    sch.rfactor(k0, 0)
    check_same(KERNELS["symbolic_matmul"](), sch.mod["main"], "symbolic_matmul")


def test_a_reindexed_result_is_not_copied_over_what_another_block_wrote():
    fn = matmul(2, 3, 0)
    sch = Schedule(fn)
    with pytest.raises(ScheduleError, match="block C_empty also writes C"):
        sch.reindex(sch.get_block("C"), ("write", 0))


def test_a_write_cache_is_copied_out_before_readers_in_the_same_loops():
    fn = chain()
    sch = Schedule(fn)
    b, c = sch.get_block("B"), sch.get_block("C")
    sch.merge(sch.get_loops(b)[0], sch.get_loops(c)[0])
    sch.cache_write(b, 0, "local")
    assert names(sch) == ["B", "B_local", "C", "D"]
    check_same(fn, sch.mod["main"])


COUNTER = """
def main(B: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    Z = T.alloc_buffer((1,), "float32")
    P = T.alloc_buffer((8,), "float32")
    with T.block("Z0"):
        Z[0] = T.float32(0)
    for i in range(8):
        with T.block("Z"):
            Z[0] = Z[0] + T.float32(1)
        with T.block("P"):
            vi = T.axis.spatial(8, i)
            P[vi] = Z[0]
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = P[vi] + B[vi]
"""


def test_a_value_that_moves_on_is_not_read_later():
    sch = Schedule(parse(COUNTER))
    p, c = sch.get_block("P"), sch.get_block("C")
    with pytest.raises(ScheduleError, match="may write the same elements again in loop i"):
        sch.compute_inline(p)
    with pytest.raises(ScheduleError):
        sch.compute_at(p, sch.get_loops(c)[0])


def test_a_consumer_does_not_move_beside_an_unfinished_producer():
    fn = parse("""
def main(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    Y = T.alloc_buffer((8,), "float32")
    X = T.alloc_buffer((8, 2), "float32")
    for i in range(8):
        with T.block("Y"):
            vi = T.axis.spatial(8, i)
            Y[vi] = A[vi]
        for j in range(2):
            with T.block("X"):
                vi, vj = T.axis.remap("SS", [i, j])
                X[vi, vj] = A[vi] * T.float32(2)
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = X[vi, 0] + Y[7 - vi]
""")
    sch = Schedule(fn)
    i, j = sch.get_loops(sch.get_block("X"))
    for loop in (i, j):
        with pytest.raises(ScheduleError, match="not finished with Y|would read Y|cannot be moved"):
            sch.reverse_compute_at(sch.get_block("C"), loop)


def test_an_expression_does_not_move_beside_an_unfinished_producer():
    fn = parse("""
def main(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    Y = T.alloc_buffer((8,), "float32")
    X = T.alloc_buffer((8,), "float32")
    for i in range(8):
        with T.block("Y"):
            vi = T.axis.spatial(8, i)
            Y[vi] = A[vi]
        with T.block("X"):
            vi = T.axis.spatial(8, i)
            X[vi] = A[vi] * T.float32(2)
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = X[vi] + Y[7 - vi]
""")
    sch = Schedule(fn)
    with pytest.raises(ScheduleError, match="exactly one producer|between them or in the same"):
        sch.reverse_compute_inline(sch.get_block("C"))


def test_an_expression_over_more_than_was_written_stays():
    fn = parse("""
def main(A: T.Buffer((5,), "float32"), C: T.Buffer((8,), "float32")):
    B = T.alloc_buffer((5,), "float32")
    for i in range(5):
        with T.block("B"):
            vi = T.axis.spatial(5, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = T.if_then_else(vi < 5, B[vi], T.float32(0), dtype="float32")
""")
    sch = Schedule(fn)
    with pytest.raises(ScheduleError, match="block C reads more than block B is shown to write"):
        sch.reverse_compute_inline(sch.get_block("C"))
    sch.compute_inline(sch.get_block("B"))
    check_same(fn, sch.mod["main"])


def test_a_region_of_several_elements_is_no_single_access():
    # Found by random programs: which of both elements the copy held was never asked.
    @T.prim_func
    def mirrored(a: T.Buffer((8,), "int32"), b: T.Buffer((8,), "int32")):
        for i in range(8):
            with T.block("b"):
                v = T.axis.spatial(8, i)
                T.reads(a[T.min(v, 7 - v) : T.max(v, 7 - v) + 1])
                T.writes(b[v])
                x: T.int32 = a[7 - v]
                b[v] = a[v] - x

    sch = tir.Schedule(mirrored)
    sch.transform_block_layout("b", lambda i: i)
    with pytest.raises(ScheduleError, match="at 2 places|than one element at a time"):
        sch.reindex("b", ("read", 0))
