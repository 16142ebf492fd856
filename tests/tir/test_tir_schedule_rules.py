"""Default schedules: chosen where they fit, and what they compute stays the same."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import te, tir
from relaxvm.arith import Analyzer
from relaxvm.base import CpuModel, ScheduleError
from relaxvm.ir import IRModule, PassContext, walk
from relaxvm.ir.transform import Sequential
from relaxvm.ir.walk import substitute
from relaxvm.script import from_source
from relaxvm.target import cpu_model
from relaxvm.tir import Allocate, For, ForKind
from relaxvm.tir.schedule.plans import DefaultSchedule, schedule_function, tile_shape
from relaxvm.tir.schedule.plans.movement import copy_by_squares
from relaxvm.tir.schedule.plans.sums import keep_orders, sum_orders
from relaxvm.tir.transform import lower_module

RNG = np.random.default_rng(0)
CPUS = {
    "this": dataclasses.replace(cpu_model(), cores=1),
    "narrow": CpuModel(vector_bits=128, vector_registers=16),
    "two cores": dataclasses.replace(cpu_model(), cores=2),
}


def source(params, grid, kinds, body, init=None, symbols=()):
    """A loop function of one block. params: (name, shape); grid: (axis, extent)."""
    names = ", ".join(f"p{i}: T.handle" for i in range(len(params)))
    lines = ["@T.prim_func", f"def main({names}):", '    T.func_attr({"tir.noalias": True})']
    lines += [f"    {s} = T.int64()" for s in symbols]
    for i, (name, shape) in enumerate(params):
        dims = ", ".join(str(d) if isinstance(d, str) else f"T.int64({d})" for d in shape)
        lines.append(f'    {name} = T.match_buffer(p{i}, ({dims},), "float32")')
    axes = ", ".join(a for a, _ in grid)
    extents = ", ".join(str(e) if isinstance(e, str) else f"T.int64({e})" for _, e in grid)
    loops = ", ".join(f"l{a}" for a, _ in grid)
    lines.append(f"    for {loops} in T.grid({extents}):")
    lines.append('        with T.block("out"):')
    lines.append(f'            {axes} = T.axis.remap("{kinds}", [{loops}])')
    if init:
        lines += ["            with T.init():", f"                {init}"]
    lines.append(f"            {body}")
    return from_source("\n".join(lines) + "\n")


def matmul(m, n, k, symbols=()):
    return source(
        [("A", (m, k)), ("B", (k, n)), ("C", (m, n))],
        [("i", m), ("j", n), ("k", k)],
        "SSR",
        "C[i, j] = C[i, j] + A[i, k] * B[k, j]",
        "C[i, j] = T.float32(0)",
        symbols,
    )


def check(fn, shapes, meaning, cpu="this", scheduled=True):
    made = schedule_function(fn, CPUS[cpu])
    assert (made is not fn) is scheduled
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(s).astype("float32") for s in shapes]
    tvm.build(made, target="llvm")["main"](*arrays)
    want = meaning(*[a.astype("float64") for a in arrays[:-1]])
    np.testing.assert_allclose(arrays[-1], want, rtol=1e-4, atol=1e-4 * max(1, np.abs(want).max()))
    return made


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize(
    ("m", "n", "k"), [(32, 64, 24), (37, 48, 19), (5, 40, 64), (128, 10, 33), (29, 1000, 8)]
)
def test_matmul_of_any_size(m, n, k, cpu):
    check(matmul(m, n, k), [(m, k), (k, n), (m, n)], np.matmul, cpu)


@pytest.mark.parametrize("m", [1, 2, 13, 40, 100])
def test_matmul_with_rows_known_only_later(m):
    fn = matmul("m", 48, 32, ["m"])
    check(fn, [(m, 32), (32, 48), (m, 48)], np.matmul)


def test_matrix_times_vector():
    fn = matmul(1, 128, 300)
    check(fn, [(1, 300), (300, 128), (1, 128)], np.matmul)


def test_batched_matmul():
    fn = source(
        [("A", (3, 20, 16)), ("B", (3, 16, 32)), ("C", (3, 20, 32))],
        [("b", 3), ("i", 20), ("j", 32), ("k", 16)],
        "SSSR",
        "C[b, i, j] = C[b, i, j] + A[b, i, k] * B[b, k, j]",
        "C[b, i, j] = T.float32(0)",
    )
    check(fn, [(3, 20, 16), (3, 16, 32), (3, 20, 32)], np.matmul)


def test_a_transposed_right_side_is_packed():
    fn = source(
        [("A", (40, 48)), ("B", (64, 48)), ("C", (40, 64))],
        [("i", 40), ("j", 64), ("k", 48)],
        "SSR",
        "C[i, j] = C[i, j] + A[i, k] * B[j, k]",
        "C[i, j] = T.float32(0)",
    )
    made = check(fn, [(40, 48), (64, 48), (40, 64)], lambda a, b: a @ b.T)
    assert "B_global" in made.script()


def test_a_convolution():
    fn = source(
        [("X", (1, 5, 18, 18)), ("W", (7, 5, 3, 3)), ("C", (1, 7, 16, 16))],
        [("n", 1), ("o", 7), ("h", 16), ("w", 16), ("c", 5), ("r", 3), ("s", 3)],
        "SSSSRRR",
        "C[n, o, h, w] = C[n, o, h, w] + X[n, c, h + r, w + s] * W[o, c, r, s]",
        "C[n, o, h, w] = T.float32(0)",
    )

    def meaning(x, w):
        views = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
        return np.einsum("nchwrs,ocrs->nohw", views, w)

    check(fn, [(1, 5, 18, 18), (7, 5, 3, 3), (1, 7, 16, 16)], meaning)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_sums_along_each_axis(axis):
    names = ["i", "j", "k"]
    kept = [n for n in names if n != names[axis]]
    sizes = dict(zip(names, (12, 33, 20)))
    out = ", ".join(kept)
    fn = source(
        [("A", (12, 33, 20)), ("C", tuple(sizes[n] for n in kept))],
        [*((n, sizes[n]) for n in kept), (names[axis], sizes[names[axis]])],
        "SSR",
        f"C[{out}] = C[{out}] + A[i, j, k]",
        f"C[{out}] = T.float32(0)",
    )
    # The function counts as changed: its sums may be reordered from now on.
    check(fn, [(12, 33, 20), tuple(sizes[n] for n in kept)], lambda a: a.sum(axis))


@pytest.mark.parametrize("worst", [np.nan, np.inf, -np.inf])
def test_a_maximum_keeps_nan_and_infinities(worst):
    fn = source(
        [("A", (3, 100)), ("C", (3,))],
        [("i", 3), ("k", 100)],
        "SR",
        "C[i] = T.max(C[i], A[i, k])",
        'C[i] = T.float32("-inf")',
    )
    made = schedule_function(fn, CPUS["this"])
    a = np.random.default_rng(0).standard_normal((3, 100)).astype("float32")
    a[1, 37] = worst
    c = np.zeros(3, "float32")
    tvm.build(made, target="llvm")["main"](a, c)
    np.testing.assert_array_equal(c, a.max(-1))


def test_much_work_is_shared_out_among_cores():
    def kinds(size, cores):
        cpu = dataclasses.replace(CPUS["this"], cores=cores)
        fn = schedule_function(matmul(size, size, size), cpu)
        return {n.kind for n in walk(fn) if isinstance(n, For)}

    assert ForKind.PARALLEL in kinds(256, 2)
    assert ForKind.PARALLEL not in kinds(256, 1)
    assert ForKind.PARALLEL not in kinds(24, 2)


@pytest.mark.parametrize("batch", [3, "b"])
def test_a_batch_that_may_be_small_shares_out_what_is_inside_as_well(batch):
    b = te.size_var(batch, "int64") if isinstance(batch, str) else batch
    a = te.placeholder((b, 48, 1024), "float32", name="A")
    fn = te.create_prim_func([a, te.compute(a.shape, lambda *i: tir.exp(a(*i)), name="C")])
    made = schedule_function(fn, dataclasses.replace(CPUS["this"], cores=4))
    (shared,) = [n for n in walk(made) if isinstance(n, For) and n.kind == ForKind.PARALLEL]
    least = substitute(shared.extent, {b: tir.IntImm(str(b.dtype), 1)} if batch == "b" else {})
    assert Analyzer().can_prove(least >= 16)
    x = np.random.default_rng(0).standard_normal((3, 48, 1024)).astype("float32")
    y = np.zeros_like(x)
    tvm.build(made, target="llvm")["main"](x, y)
    np.testing.assert_allclose(y, np.exp(x), rtol=1e-5)


def test_rows_inside_a_batch_of_one_are_shared_out_as_they_are():
    n = te.size_var("n", "int64")
    a, b = (te.placeholder((1, k, 12, 64), "float32") for k in (n, 1))
    c = te.compute(
        (1, n + 1, 12, 64), lambda i, j, *k: tir.if_then_else(j < n, a(i, j, *k), b(i, 0, *k))
    )
    made = schedule_function(
        te.create_prim_func([a, b, c]), dataclasses.replace(CPUS["this"], cores=2)
    )
    (shared,) = [n for n in walk(made) if isinstance(n, For) and n.kind == ForKind.PARALLEL]
    assert Analyzer().can_prove_equal(shared.extent, n + 1)


@pytest.mark.parametrize("rows", [1, 3])
def test_a_matrix_with_fewer_blocks_of_columns_than_cores_is_shared_out_by_its_rows(rows):
    cpu = dataclasses.replace(CPUS["this"], cores=4)
    fn = matmul(rows, 512, 2048)
    made = schedule_function(fn, cpu)
    (shared,) = [n for n in walk(made) if isinstance(n, For) and n.kind == ForKind.PARALLEL]
    assert shared.extent.value >= 8
    a, b = (np.random.default_rng(0).standard_normal(s).astype("float32")
            for s in ((rows, 2048), (2048, 512)))  # fmt: skip
    c = np.zeros((rows, 512), "float32")
    tvm.build(made, target="llvm")["main"](a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-3)


def test_functions_that_somebody_scheduled_stay():
    fn = matmul(32, 64, 24)
    own = schedule_function(fn, CPUS["this"])
    mod = IRModule({"main": own})
    assert DefaultSchedule(cpu=CPUS["this"])(mod)["main"] is own
    marked = fn.with_attr("tir.is_scheduled", True)
    mod = IRModule({"main": marked})
    assert DefaultSchedule(cpu=CPUS["this"])(mod)["main"] is marked


def test_exact_numerics_allow_tiles_but_no_other_order_of_sums():
    mod = IRModule({"main": matmul(32, 64, 24)})
    rules = Sequential([DefaultSchedule(cpu=CPUS["this"])])
    with PassContext(config={"numerics": "exact"}):
        exact = rules(mod)["main"]
    assert exact.get_attr("tir.is_scheduled") and not exact.get_attr("tir.reassociate")
    assert rules(mod)["main"].get_attr("tir.reassociate")


def test_exact_numerics_refuse_rules_that_take_sums_apart_and_tell():
    x = te.placeholder((512, 1024), "float32", "x")
    i, j = te.reduce_axis((0, 512)), te.reduce_axis((0, 1024))
    total = te.compute((1,), lambda _: te.sum(x[i, j], axis=[i, j]), "total")
    mod = IRModule({"main": te.create_prim_func([x, total])})
    rules = Sequential([DefaultSchedule(cpu=CPUS["this"])])
    assert "rf" in rules(mod)["main"].script()
    with PassContext(config={"numerics": "exact"}) as ctx:
        assert "rf" not in rules(mod)["main"].script()
    assert [d.text for d in ctx.report if not d.done][0] == (
        "block total not taken by Rows(part=16384): rfactor takes sums apart, and numerics are to "
        "be exact"
    )


def test_exact_numerics_refuse_parts_of_a_sum_that_change_places():
    sch = tir.Schedule(matmul(32, 64, 24))
    block = sch.get_child_blocks(sch.get_block("root"))[0]
    orders = sum_orders(sch, [block])
    i, _, k = sch.get_loops(block)
    outer, inner = sch.split(k, [None, 4])
    sch.reorder(outer, inner, i)
    keep_orders(sch, orders)
    sch.reorder(inner, outer)
    with pytest.raises(ScheduleError, match="another order"):
        keep_orders(sch, orders)
    fused = tir.Schedule(matmul(32, 64, 24))
    block = fused.get_child_blocks(fused.get_block("root"))[0]
    orders = sum_orders(fused, [block])
    first, second = fused.split(fused.fuse(*fused.get_loops(block)), [None, 6])
    keep_orders(fused, orders)
    fused.reorder(second, first)
    with pytest.raises(ScheduleError, match="another order"):
        keep_orders(fused, orders)


def test_exact_numerics_allow_squares_that_are_turned_round():
    sch = tir.Schedule(matmul(32, 64, 24))
    block = sch.get_child_blocks(sch.get_block("root"))[0]
    orders = sum_orders(sch, [block])
    turned = sch.cache_read(block, 0, "global")
    sch.transform_layout(turned, ("write", 0), lambda i, k: (k, i))
    along, across = sch.get_loops(turned)
    copy_by_squares(sch, turned, across, along, 8, (8, 8))
    keep_orders(sch, orders)


def test_tiles_fit_the_registers():
    for registers in (8, 16, 32):
        for rows in (None, 1, 3, 128, 1000):
            for columns in (16, 48, 128, 3072):
                height, vectors = tile_shape(rows, columns, 16, registers)
                assert height * vectors + vectors + 1 <= registers
                assert rows is None or height <= rows
    assert tile_shape(1024, 1024, 16, 32)[0] * tile_shape(1024, 1024, 16, 32)[1] >= 20


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
@pytest.mark.parametrize(("columns", "depth"), [(700, 300), (701, 259), (9000, 20)])
def test_few_rows_and_a_matrix_beyond_the_cache(rows, columns, depth):
    cpu = dataclasses.replace(CPUS["narrow"], l1_bytes=4096, l2_bytes=8192, cores=2)
    fn = schedule_function(matmul(rows, columns, depth), cpu)
    assert {n.kind for n in walk(fn) if isinstance(n, For)} >= {ForKind.UNROLLED}
    a, b = (RNG.standard_normal(s).astype("float32") for s in ((rows, depth), (depth, columns)))
    c = np.empty((rows, columns), "float32")
    tvm.build(fn, target="llvm")["main"](a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("batch", [(), (1,), (1, 1)])
def test_few_rows_of_a_batch_of_one_are_shared_out_once(batch, rows):
    cpu = dataclasses.replace(CPUS["narrow"], l1_bytes=4096, l2_bytes=8192, cores=2)
    a = te.placeholder((*batch, rows, 4096), "float32", "A")
    b, axis = te.placeholder((4096, 96), "float32", "B"), te.reduce_axis((0, 4096), "k")
    c = te.compute(
        (*batch, rows, 96), lambda *i: te.sum(a[(*i[:-1], axis)] * b[axis, i[-1]], axis=axis), "C"
    )
    d = te.compute(c.shape, lambda *i: c[i] + 1.0, "D")
    fn = schedule_function(te.create_prim_func([a, b, d]), cpu)
    shared = [n for n in walk(fn) if isinstance(n, For) and n.kind == ForKind.PARALLEL]
    around = [n for n in walk(fn) if isinstance(n, For) and set(shared) & set(walk(n.body))]
    assert shared
    assert all(int(n.extent) == 1 for n in around)
    x, y = (RNG.standard_normal(s.shape).astype("float32") for s in (a, b))
    out = np.empty(d.shape, "float32")
    tvm.build(fn, target="llvm")["main"](x, y, out)
    np.testing.assert_allclose(out, x @ y + 1, rtol=1e-4, atol=1e-3)


def test_few_rows_and_a_width_known_only_later():
    for depth in (64, 67):
        fn = schedule_function(matmul(1, "n", depth, ["n"]), CPUS["narrow"])
        run = tvm.build(fn, target="llvm")["main"]
        for n in (0, 1, 5, 64, 5000):
            a, b = (RNG.standard_normal(s).astype("float32") for s in ((1, depth), (depth, n)))
            c = np.empty((1, n), "float32")
            run(a, b, c)
            np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("m", "n", "k"), [(37, 64, 40), (128, 40, 33), (5, 1000, 20), (1, 64, 30)])
def test_what_follows_a_contraction_is_computed_in_its_tiles(m, n, k):
    a, b = te.placeholder((m, k), "float32", "A"), te.placeholder((k, n), "float32", "B")
    bias, rest = te.placeholder((n,), "float32", "bias"), te.placeholder((m, n), "float32", "R")
    axis = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), "C")
    d = te.compute((m, n), lambda i, j: c[i, j] + bias[j], "D")
    e = te.compute((m, n), lambda i, j: tvm.tir.max(d[i, j], 0.0) + rest[i, j], "E")
    f = te.compute((m, n), lambda i, j: e[i, j].astype("float64"), "F")
    fn = schedule_function(te.create_prim_func([a, b, bias, rest, f]), CPUS["narrow"])
    # No matrix of sums is written: only tiles of it.
    lowered = lower_module(IRModule({"main": fn}))["main"]
    assert all(
        np.prod([int(x) for x in node.extents]) <= max(64 * k, 256)
        for node in walk(lowered)
        if type(node) is Allocate
    )
    arrays = [RNG.random(s, dtype="float32") for s in ((m, k), (k, n), (n,), (m, n))]
    out = np.empty((m, n))
    tvm.build(fn, target="llvm")["main"](*arrays, out)
    x, y, z, r = arrays
    np.testing.assert_allclose(out, np.maximum(x @ y + z, 0) + r, rtol=1e-4)


@pytest.mark.parametrize(("m", "n", "k"), [(37, 30, 64), (64, 101, 16), (20, 7, 90), (9, 1001, 5)])
@pytest.mark.parametrize("cpu", ["narrow", "two cores"])
def test_columns_that_are_no_whole_vectors(m, n, k, cpu):
    check(matmul(m, n, k), [(m, k), (k, n), (m, n)], np.matmul, cpu)


def test_sizes_known_only_later():
    fn = schedule_function(matmul("m", "n", "k", ["m", "n", "k"]), CPUS["narrow"])
    # Full tiles carry no conditions: the partition made copies of the loop over tiles.
    assert "loop_partition_hint" in fn.script()
    run = tvm.build(fn, target="llvm")["main"]
    for m, n, k in [(0, 4, 4), (4, 0, 4), (1, 1, 1), (13, 29, 7), (40, 64, 33), (7, 100, 1)]:
        a, b = RNG.standard_normal((m, k)), RNG.standard_normal((k, n))
        a, b, c = a.astype("float32"), b.astype("float32"), np.full((m, n), 9, "float32")
        run(a, b, c)
        np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


def test_a_depth_of_zero_gives_zeros():
    fn = schedule_function(matmul("m", "n", "k", ["m", "n", "k"]), CPUS["narrow"])
    run = tvm.build(fn, target="llvm")["main"]
    c = np.full((20, 30), 9, "float32")
    run(np.empty((20, 0), "float32"), np.empty((0, 30), "float32"), c)
    assert not c.any()


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(("m", "n", "k"), [(100, 128, 2048), (51, 1344, 1536), (29, 48, 1300)])
def test_a_deep_product_is_computed_in_blocks(m, n, k, cores):
    cpu = dataclasses.replace(CPUS["narrow"], l1_bytes=4096, l2_bytes=8192, cores=cores)
    fn = schedule_function(matmul(m, n, k), cpu)
    a, b = RNG.standard_normal((m, k)), RNG.standard_normal((k, n))
    a, b, c = a.astype("float32"), b.astype("float32"), np.full((m, n), 9, "float32")
    tvm.build(fn, target="llvm")["main"](a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-3, atol=1e-3)
    # The panels of one block, not of the whole right side.
    lowered = lower_module(IRModule({"main": fn}))["main"]
    sizes = [np.prod([int(e) for e in x.extents]) for x in walk(lowered) if type(x) is Allocate]
    assert max(sizes) < n * k


@pytest.mark.parametrize("m", [1, 2, 3, 7])
@pytest.mark.parametrize(("n", "k"), [(100, 64), (1, 300), (33, 129)])
def test_few_rows_and_a_transposed_matrix_are_read_in_place(m, n, k):
    fn = source(
        [("A", (m, k)), ("B", (n, k)), ("C", (m, n))],
        [("i", m), ("j", n), ("k", k)],
        "SSR",
        "C[i, j] = C[i, j] + A[i, k] * B[j, k]",
        "C[i, j] = T.float32(0)",
    )
    made = check(fn, [(m, k), (n, k), (m, n)], lambda a, b: a @ b.T)
    assert "B_global" not in made.script()


@pytest.mark.parametrize("m", [3, 200])
def test_a_matrix_times_a_column(m):
    check(matmul(m, 1, 300), [(m, 300), (300, 1), (m, 1)], np.matmul)


SMALL = dataclasses.replace(
    CPUS["narrow"], l1_bytes=4096, l2_bytes=32768, l3_bytes=1 << 20, vector_bits=256
)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(("m", "n", "k"), [(100, 256, 200), (83, 1000, 300), (20, 704, 1100)])
@pytest.mark.parametrize("transposed", [False, True])
def test_rows_of_a_large_left_side_are_copied_too(m, n, k, transposed, cores):
    left, index = ((k, m), "A[k, i]") if transposed else ((m, k), "A[i, k]")
    fn = source(
        [("A", left), ("B", (k, n)), ("C", (m, n))],
        [("i", m), ("j", n), ("k", k)],
        "SSR",
        f"C[i, j] = C[i, j] + {index} * B[k, j]",
        "C[i, j] = T.float32(0)",
    )
    made = schedule_function(fn, dataclasses.replace(SMALL, cores=cores))
    a, b, c = (RNG.standard_normal(s).astype("float32") for s in (left, (k, n), (m, n)))
    if m * k * 4 > SMALL.l2_bytes and (transposed or n % 16 == 0):
        assert "A_global" in made.script()
    tvm.build(made, target="llvm")["main"](a, b, c)
    np.testing.assert_allclose(c, (a.T if transposed else a) @ b, rtol=1e-4, atol=1e-3)
    # What is copied is what one block needs, also where the last block is not full.
    lowered = lower_module(IRModule({"main": made}))["main"]
    sizes = [np.prod([int(e) for e in x.extents]) for x in walk(lowered) if type(x) is Allocate]
    assert all(size != m * k for size in sizes)


@pytest.mark.parametrize("known", ["", "n", "k", "nk"])
def test_what_follows_a_product_of_unknown_size_is_computed_in_its_tiles(known):
    m, n, k = (te.var(v, "int64") for v in "mnk")
    n = tvm.tir.const(48, "int64") if "n" in known else n
    k = tvm.tir.const(20, "int64") if "k" in known else k
    a, b = te.placeholder((m, k), "float32", "A"), te.placeholder((k, n), "float32", "B")
    bias = te.placeholder((n,), "float32", "bias")
    axis = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), "C")
    d = te.compute((m, n), lambda i, j: tvm.tir.max(c[i, j] + bias[j], 0.0), "D")
    fn = schedule_function(te.create_prim_func([a, b, bias, d]), CPUS["narrow"])
    lowered = lower_module(IRModule({"main": fn}))["main"]
    # The sums of a tile, and panels; not the sums of all.
    kept = [x.buffer_var.name for x in walk(lowered) if type(x) is Allocate]
    assert "C" not in kept or known == "nk"
    run = tvm.build(fn, target="llvm")["main"]
    for rows in (0, 1, 7, 40):
        columns, depth = 48 if "n" in known else 29, 20 if "k" in known else 33
        x, y, z = (
            RNG.standard_normal(s).astype("float32")
            for s in ((rows, depth), (depth, columns), (columns,))
        )
        out = np.full((rows, columns), 9, "float32")
        run(x, y, z, out)
        np.testing.assert_allclose(out, np.maximum(x @ y + z, 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("k", [200, 1100])
def test_what_follows_a_product_in_blocks(k):
    m, n = 83, 256
    a, b = te.placeholder((m, k), "float32", "A"), te.placeholder((k, n), "float32", "B")
    bias = te.placeholder((n,), "float32", "bias")
    axis = te.reduce_axis((0, k), "k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=axis), "C")
    d = te.compute((m, n), lambda i, j: tvm.tir.max(c[i, j] + bias[j], 0.0), "D")
    fn = schedule_function(te.create_prim_func([a, b, bias, d]), SMALL)
    assert "A_global" in fn.script()
    lowered = lower_module(IRModule({"main": fn}))["main"]
    sizes = [np.prod([int(e) for e in x.extents]) for x in walk(lowered) if type(x) is Allocate]
    # Whole sums go from the registers on; those of several pieces are kept.
    assert (m * n in sizes) == (k > 1024)
    x, y, z = (RNG.standard_normal(s).astype("float32") for s in ((m, k), (k, n), (n,)))
    out = np.full((m, n), 9, "float32")
    tvm.build(fn, target="llvm")["main"](x, y, z, out)
    np.testing.assert_allclose(out, np.maximum(x @ y + z, 0), rtol=1e-4, atol=1e-3)


# -- loops side by side ----------------------------------------------------------------------------


def side_by_side(*stores, n=4096):
    """A function of loops over `n`, each with one of these stores into B, C or D."""
    loops = "".join(
        f"""
    for i in range({n}):
        with T.block("b{k}"):
            v = T.axis.spatial({n}, i)
            {store}
"""
        for k, store in enumerate(stores)
    )
    buffers = ", ".join(f'{b}: T.Buffer(({n},), "float32")' for b in "ABCD")
    return from_source(
        f"# from relaxvm.script import tir as T\n@T.prim_func\ndef f({buffers}):{loops}"
    )


@pytest.mark.parametrize(
    ("stores", "loops"),
    [
        (["B[v] = A[v] + T.float32(1)", "C[v] = A[v] * T.float32(2)"], 1),
        (["B[v] = A[v] + T.float32(1)", "C[v] = B[v] * A[v]", "D[v] = C[v] - B[v]"], 1),
        (["B[v] = A[v] + T.float32(1)", "C[v] = D[v] * T.float32(2)"], 2),
        (["B[v] = A[v] + T.float32(1)", "C[v] = A[4095 - v] * T.float32(2)"], 2),
        (["B[v] = A[v] + T.float32(1)", "C[v] = A[v] + B[4095 - v]"], 2),
        (["B[v] = A[v] + D[4095 - v]", "D[v] = A[v]"], 2),
    ],
)
def test_loops_that_go_through_an_array_in_step_are_one(stores, loops):
    fn = side_by_side(*stores)
    made = schedule_function(fn, CPUS["this"])
    outer = made.body.block.body
    assert (len(outer.seq) if isinstance(outer, tir.SeqStmt) else 1) == loops
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(4096).astype("float32") for _ in range(4)]
    left, right = ([a.copy() for a in args] for _ in range(2))
    tir.interpret(fn, *left)
    tir.interpret(made, *right)
    for a, b in zip(left, right):
        assert np.array_equal(a, b)
