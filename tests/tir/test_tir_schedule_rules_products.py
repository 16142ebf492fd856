"""Schedules of products and transposes of sizes that no vector divides, and of products that read
a transposed copy.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from conv_helpers import AVX2, AVX512

from relaxvm import te, tir
from relaxvm.base import CpuModel
from relaxvm.ir import IRModule, Ramp, Shuffle, walk
from relaxvm.target import build
from relaxvm.tir import PREFETCH, PREFETCH_PANEL, For, ForKind, Schedule
from relaxvm.tir.schedule.plans import plans_for, schedule_function, with_constant_layouts
from relaxvm.tir.schedule.plans.contraction import match_contraction, vector_lanes
from relaxvm.tir.transform import lower_module

CPUS = {
    "avx512": AVX512,
    "avx2": AVX2,
    "two cores": dataclasses.replace(AVX512, cores=2),
    "sse": CpuModel(vector_bits=128),
}


def given(*tensors):
    return te.create_prim_func([*tensors], "int64").with_attr("tir.noalias", True)


def product(m, n, k, turned=(), dtype="float32", bias=False):
    """A product whose inputs named in `turned` are copied with their last axes exchanged first."""
    tensors, sides = [], []
    for name, shape in (("A", (m, k)), ("B", (k, n))):
        x = te.placeholder(shape[::-1] if name in turned else shape, dtype, name)
        tensors.append(x)
        if name in turned:
            x = te.compute(shape, lambda i, j, x=x: x[j, i], name=f"{name}_turned")
        sides.append(x)
    r = te.reduce_axis((0, k), "r")
    a, b = sides
    y = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    if bias:
        tensors.append(te.placeholder((n,), dtype, "bias"))
        y = te.compute((m, n), lambda i, j: y_of(y, tensors[2], i, j), name="D")
    return given(*tensors, y)


def y_of(y, bias, i, j):
    return tir.max(y[i, j] + bias[j], tir.const(0, y.dtype))


def check(fn, cpu, sizes=()):
    rng = np.random.default_rng(0)
    symbols = dict(zip((e for b in fn.buffers for e in b.shape if isinstance(e, tir.Var)), sizes))
    shapes = [[int(tir.evaluate_expr(e, symbols)) for e in b.shape] for b in fn.buffers]
    arrays = [np.asarray(rng.integers(-4, 5, s), str(b.dtype)) for s, b in zip(shapes, fn.buffers)]
    got = [a.copy() for a in arrays]
    tir.interpret(fn, *arrays)
    build(schedule_function(fn, CPUS[cpu]), "llvm")["main"](*got)
    np.testing.assert_array_equal(got[-1], arrays[-1])


SIZES = [(1, 33, 64), (4, 257, 8), (7, 31, 20), (8, 65, 9), (3, 5, 100), (9, 19, 30), (20, 47, 16)]


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("size", SIZES)
def test_columns_that_vectors_do_not_divide(size, cpu):
    check(product(*size, bias=True), cpu)


@pytest.mark.parametrize("dtype", ["float64", "int32", "int8", "float16"])
def test_such_columns_of_other_dtypes(dtype):
    check(product(5, 37, 40, dtype=dtype), "avx512")


def test_their_last_vector_has_fewer_lanes_and_no_condition():
    made = schedule_function(product(7, 67, 64, bias=True), AVX512)
    lowered = lower_module(IRModule({"main": made}))["main"]
    lanes = {n.lanes for n in walk(lowered) if isinstance(n, Ramp)}
    assert lanes == {16, 3}
    assert not any(isinstance(n, tir.IfThenElse) for n in walk(lowered))


@pytest.mark.parametrize(("depth", "rows"), [(768, 13), (1000, 13), (1024, 8), (3072, 8)])
def test_a_tile_has_no_more_rows_pages_apart_than_the_first_cache_has_ways(depth, rows):
    made, _ = with_constant_layouts(product(128, 96, depth), [1], AVX512)
    first, *others = plans_for(Schedule(made), "C", AVX512)
    assert (type(first.plan).__name__, first.plan.rows) == ("Tile", rows)
    # More are predicted to push each other out of it.
    high = next(c.cost for c in others if type(c.plan).__name__ == "Tile" and c.plan.rows == 14)
    assert (high.seconds > 1.1 * first.cost.seconds) == (rows == 8)


def test_the_lanes_of_vectors():
    assert [vector_lanes(n, 16) for n in (1, 3, 10, 16, 17, 36, 48, 257)] == [
        1, 3, 10, 16, 16, 12, 16, 16,
    ]  # fmt: skip


def blocks_of(fn):
    sch = Schedule(fn)
    return {sch.get(b).name_hint for b in sch.get_child_blocks(sch.get_block("root"))}


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("turned", ["A", "B", "AB"])
@pytest.mark.parametrize("size", [(1, 40, 64), (4, 33, 70), (40, 64, 24), (16, 16, 16), (5, 1, 8)])
def test_products_of_transposed_inputs(size, turned, cpu):
    check(product(*size, turned=turned), cpu)


def test_products_of_transposed_inputs_of_unknown_sizes():
    n, k = tir.Var("n", "int64"), tir.Var("k", "int64")
    for sizes in ((5, 7), (1, 64), (0, 3), (3, 0)):
        check(product(n, 33, k, turned="B"), "avx512", sizes)
        check(product(9, n, k, turned="B"), "avx512", sizes)


@pytest.mark.parametrize("rows", [1, 4, 64])
def test_a_product_reads_what_is_transposed_in_front_of_it_itself(rows):
    made = schedule_function(product(rows, 96, 128, turned="B"), AVX512)
    assert "B_turned" not in blocks_of(made)


def test_few_rows_and_a_transposed_matrix_are_sums_along_the_rows_of_both():
    turned = schedule_function(product(4, 96, 128, turned="B"), AVX512)
    loops = [n for n in walk(turned.body) if isinstance(n, For)]
    assert not any(n.kind == ForKind.VECTORIZED for n in loops)


def test_a_left_side_that_is_transposed_first_stays_so():
    made = schedule_function(product(64, 96, 128, turned="A"), AVX512)
    assert any(name.startswith("A_turned") for name in blocks_of(made))


def test_a_transposed_constant_is_kept_in_panels():
    fn = product(64, 96, 128, turned="B")
    made, packs = with_constant_layouts(fn, {1}, AVX512)
    assert list(packs) == [1] and "B_turned" not in blocks_of(made)
    b = np.arange(96 * 128, dtype="float32").reshape(96, 128)
    assert packs[1](b).shape == tuple(int(e) for e in made.buffers[1].shape)
    sch = Schedule(made)
    assert any(match_contraction(sch.get(rv)) for rv in sch.get_child_blocks(sch.get_block("root")))


@pytest.mark.parametrize(
    ("rows", "depth", "ahead", "panel"),
    [(64, 256, 1024, 256 * 32), (64, 4096, 1024, None), (4, 256, None, None), (64, 8, None, None)],
    ids=["spread over the passes", "a large panel", "few rows", "in the first cache"],
)
def test_panels_of_a_constant_are_asked_for_before_they_are_read(rows, depth, ahead, panel):
    fn, packs = with_constant_layouts(product(rows, 768, depth), {1}, AVX512)
    assert packs
    made = schedule_function(fn, AVX512)
    notes = [n.annotations for n in walk(made) if isinstance(n, For)]
    for key, wanted in ((PREFETCH, ahead), (PREFETCH_PANEL, panel)):
        assert [int(n[key]) for n in notes if key in n] == ([] if wanted is None else [wanted])


# -- transposing ---------------------------------------------------------------------------------


def transposed(m, n, dtype="float32", batch=()):
    x = te.placeholder((*batch, m, n), dtype, "X")
    return given(
        x, te.compute((*batch, n, m), lambda *i: x(*i[:-2], i[-1], i[-2]), name="transposed")
    )


TRANSPOSED = [
    ((17, 40), "float32", ()),
    ((33, 65), "float32", (3,)),
    ((16, 100), "float32", ()),
    ((100, 16), "float32", (2, 1)),
    ((5, 200), "float32", ()),
    ((1, 1), "float32", ()),
    ((20, 0), "float32", ()),
    ((19, 21), "float64", ()),
    ((70, 131), "int8", ()),
    ((37, 35), "float16", ()),
]


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize(("shape", "dtype", "batch"), TRANSPOSED)
def test_sides_that_squares_do_not_divide(shape, dtype, batch, cpu):
    check(transposed(*shape, dtype, batch), cpu)


@pytest.mark.parametrize("shape", [(48, 32), (49, 32), (48, 35), (50, 35), (21, 28)])
def test_all_but_a_rest_is_transposed_in_registers(shape):
    lowered = lower_module(IRModule({"main": schedule_function(transposed(*shape), AVX512)}))
    nodes = list(walk(lowered["main"]))
    assert any(isinstance(n, Shuffle) for n in nodes)
    assert not any(isinstance(n, tir.IfThenElse) for n in nodes)


def test_each_part_of_a_loop_that_was_taken_apart_can_be_blockized():
    sch = Schedule(transposed(4, 22))
    block = sch.get_block("transposed")
    whole, rest = sch.loop_partition(sch.get_loops(block)[0], [16, None])
    for part, size, count in ((whole, 8, 2), (rest, 3, 2)):
        _, inner = sch.split(part, [None, size])
        outer = sch.get(sch.blockize(inner))
        assert [int(a.dom.extent) for a in outer.iter_vars if "v_i0" in a.var.name] == [count]
    x = np.arange(88, dtype="float32").reshape(4, 22)
    got = np.zeros((22, 4), "float32")
    tir.interpret(sch.mod["main"], x, got)
    np.testing.assert_array_equal(got, x.T)
