"""Tensor expressions: computed by the interpreter, they are what numpy says."""

import numpy as np
import pytest

from relaxvm import te, tir
from relaxvm.base import TIRError
from relaxvm.ir import Var, assert_structural_equal, walk
from relaxvm.tir.analysis import verify_well_formed
from relaxvm.tir.interp import interpret
from relaxvm.tir.schedule import IndexMap
from relaxvm.tir.stmt import Block

rng = np.random.default_rng(0)


def run(func, *arrays):
    verify_well_formed(func)
    interpret(func, *arrays)


def floats(*shape):
    return rng.standard_normal(shape).astype("float32")


@pytest.mark.parametrize("dom", [4, (0, 4), te.reduce_axis((0, 4)).dom])
def test_a_thread_axis_takes_an_extent_a_pair_or_a_range(dom):
    axis = te.thread_axis(dom, "threadIdx.x")
    assert (axis.dom.min.value, axis.dom.extent.value) == (0, 4)
    assert (axis.thread_tag, axis.var.name) == ("threadIdx.x", "threadIdx.x")


def test_elementwise_with_broadcast():
    a = te.placeholder((3, 4), name="A")
    b = te.placeholder((4,), name="B")
    c = te.compute((3, 4), lambda i, j: te.exp(a[i, j]) + b[j] * 2.0, name="C")
    x, y, out = floats(3, 4), floats(4), np.empty((3, 4), "float32")
    run(te.create_prim_func([a, b, c]), x, y, out)
    np.testing.assert_allclose(out, np.exp(x) + y * 2, rtol=1e-6)


def test_matmul_and_its_blocks():
    n, m, k = 5, 6, 7
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), "k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    func = te.create_prim_func([a, b, c])
    x, y, out = floats(n, k), floats(k, m), np.empty((n, m), "float32")
    run(func, x, y, out)
    np.testing.assert_allclose(out, x @ y, rtol=1e-5, atol=1e-6)
    (block,) = [b for b in walk(func) if isinstance(b, Block) and b.name_hint == "C"]
    assert [v.iter_type for v in block.iter_vars] == ["spatial", "spatial", "reduce"]
    assert block.init is not None
    assert {r.buffer.name for r in block.reads} == {"A", "B"}
    assert [w.buffer.name for w in block.writes] == ["C"]


def test_chains_allocate_intermediates():
    a = te.placeholder((4, 4), name="A")
    b = te.compute((4, 4), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((4, 4), lambda i, j: b[j, i] + 1.0, name="C")
    func = te.create_prim_func([a, c])
    x, out = floats(4, 4), np.empty((4, 4), "float32")
    run(func, x, out)
    np.testing.assert_allclose(out, (x * 2).T + 1)
    assert len(func.params) == 2


def test_symbolic_shapes():
    n = te.var("n", "int64")
    a = te.placeholder((n, 8), name="A")
    r = te.reduce_axis((0, 8), "r")
    b = te.compute((n,), lambda i: te.max(a[i, r], axis=r), name="B")
    func = te.create_prim_func([a, b])
    for size in (1, 5, 0):
        x, out = floats(size, 8), np.empty((size,), "float32")
        run(func, x, out)
        np.testing.assert_array_equal(out, x.max(axis=1, initial=-np.inf))


@pytest.mark.parametrize(
    ("reducer", "meaning"),
    [(te.sum, np.sum), (te.prod, np.prod), (te.max, np.max), (te.min, np.min)],
)
@pytest.mark.parametrize("dtype", ["int32", "float32", "float64", "uint8"])
def test_reductions_of_every_kind(reducer, meaning, dtype):
    a = te.placeholder((3, 4, 5), dtype, name="A")
    i, j = te.reduce_axis((0, 3), "ri"), te.reduce_axis((0, 5), "rj")
    b = te.compute((4,), lambda k: reducer(a[i, k, j], axis=[i, j]), name="B")
    x = rng.integers(1, 4, (3, 4, 5)).astype(dtype)
    out = np.empty(4, dtype)
    run(te.create_prim_func([a, b]), x, out)
    np.testing.assert_allclose(
        out,
        meaning(x, axis=(0, 2), dtype=dtype)
        if meaning in (np.sum, np.prod)
        else meaning(x, axis=(0, 2)),
        rtol=1e-5,
    )


def test_argmax_by_a_reducer_of_two_values():
    def combine(x, y):
        take_left = x[1] >= y[1]
        return tir.Select(take_left, x[0], y[0]), tir.Select(take_left, x[1], y[1])

    argmax = te.comm_reducer(
        combine, lambda t0, t1: (te.const(-1, t0), te.min_value(t1)), name="argmax"
    )
    a = te.placeholder((6, 9), name="A")
    r = te.reduce_axis((0, 9), "r")
    index, value = te.compute((6,), lambda i: argmax((r.var, a[i, r]), axis=r), name="am")
    x = floats(6, 9)
    out_i, out_v = np.empty(6, "int32"), np.empty(6, "float32")
    run(te.create_prim_func([a, index, value]), x, out_i, out_v)
    np.testing.assert_array_equal(out_i, x.argmax(axis=1))
    np.testing.assert_array_equal(out_v, x.max(axis=1))


def test_where_limits_a_reduction():
    a = te.placeholder((8,), name="A")
    r = te.reduce_axis((0, 8), "r")
    b = te.compute((1,), lambda i: te.sum(a[r], axis=r, where=r.var % 2 == 0), name="B")
    x, out = floats(8), np.empty(1, "float32")
    run(te.create_prim_func([a, b]), x, out)
    np.testing.assert_allclose(out[0], x[::2].sum(), rtol=1e-5)


def test_several_results_of_one_compute():
    a = te.placeholder((4,), name="A")
    b, c = te.compute((4,), lambda i: (a[i] + 1.0, a[i] * 3.0), name="BC")
    x, p, q = floats(4), np.empty(4, "float32"), np.empty(4, "float32")
    run(te.create_prim_func([a, b, c]), x, p, q)
    np.testing.assert_allclose(p, x + 1)
    np.testing.assert_allclose(q, x * np.float32(3))


def test_scalar_parameters_and_conditionals():
    n = te.var("n", "int32")
    a = te.placeholder((8,), "int32", name="A")
    b = te.compute((8,), lambda i: te.if_then_else(i < n, a[i], te.const(0, "int32")), name="B")
    x, out = np.arange(8, dtype="int32"), np.empty(8, "int32")
    func = te.create_prim_func([a, n, b])
    verify_well_formed(func)
    interpret(func, x, 3, out)
    np.testing.assert_array_equal(out, np.where(np.arange(8) < 3, x, 0))


def test_a_zero_dimensional_result():
    a = te.placeholder((5,), name="A")
    r = te.reduce_axis((0, 5), "r")
    s = te.compute((), lambda: te.sum(a[r], axis=r), name="S")
    x, out = floats(5), np.empty((), "float32")
    run(te.create_prim_func([a, s]), x, out)
    np.testing.assert_allclose(out, x.sum(), rtol=1e-5)


def test_index_dtype_can_be_chosen():
    a = te.placeholder((4, 4), name="A")
    b = te.compute((4, 4), lambda i, j: a[j, i], name="B")
    func = te.create_prim_func([a, b], index_dtype_override="int64")
    assert all(d.dtype == "int64" for buffer in func.buffers for d in buffer.shape)
    x, out = floats(4, 4), np.empty((4, 4), "float32")
    run(func, x, out)
    np.testing.assert_array_equal(out, x.T)


def index_dtypes(func):
    found = {str(d.dtype) for n in walk(func) if isinstance(n, tir.Buffer) for d in n.shape}
    return found | {str(n.loop_var.dtype) for n in walk(func) if isinstance(n, tir.For)}


def test_indices_take_the_type_of_the_buffers():
    def product(n):
        a, b = te.placeholder((n, 6), name="A"), te.placeholder((6, 5), name="B")
        r = te.reduce_axis((0, 6), "r")
        c = te.compute((n, 5), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
        return [a, b, te.compute((n, 5), lambda i, j: c[i, 4 - j] + 1.0)]

    assert index_dtypes(te.create_prim_func(product(4))) == {"int32"}
    mixed = te.create_prim_func(product(te.var("n", "int64")))
    assert index_dtypes(mixed) == {"int64"}
    assert not any(isinstance(n, tir.Cast) for n in walk(mixed))
    x, y, out = floats(4, 6), floats(6, 5), np.empty((4, 5), "float32")
    run(mixed, x, y, out)
    np.testing.assert_allclose(out, (x @ y)[:, ::-1] + 1, rtol=1e-5)
    for dtype in ("int32", "int64"):
        assert index_dtypes(te.create_prim_func(product(te.var("n")), dtype)) == {dtype}
    with pytest.raises(TIRError, match="signed integer type, got float32"):
        te.create_prim_func(product(4), "float32")


def test_values_of_indices_keep_their_types():
    a = te.compute((4,), lambda i: i * 3, name="A")
    func = te.create_prim_func([a], "int64")
    assert a.dtype == func.buffers[0].dtype == "int32"
    assert index_dtypes(func) == {"int64"}
    out = np.empty(4, "int32")
    run(func, out)
    np.testing.assert_array_equal(out, np.arange(4) * 3)


def test_each_block_has_a_name_of_its_own():
    a = te.placeholder((4, 4), name="A")
    b = te.compute((4, 4), lambda i, j: a[j, i] * 2.0)
    c = te.compute((4, 4), lambda i, j: b[i, j] + 1.0)
    d = te.compute((4, 4), lambda i, j: c[i, j] + b[i, j], name="compute_1")
    e = te.compute((4, 4), lambda i, j: d[i, j], name="root")
    sch = tir.Schedule(te.create_prim_func([a, e]))
    names = [sch.get(r).name_hint for r in sch.get_child_blocks(sch.get_block("root"))]
    assert names == ["compute", "compute_1", "compute_1_1", "root_1"]
    assert all(sch.get(sch.get_block(name)).name_hint == name for name in names)


def test_a_data_dependent_index_is_read_through():
    a = te.placeholder((6,), name="A")
    ids = te.placeholder((3,), "int32", name="ids")
    b = te.compute((3,), lambda i: a[ids[i]], name="B")
    x, k, out = floats(6), np.array([5, 0, 2], "int32"), np.empty(3, "float32")
    run(te.create_prim_func([a, ids, b]), x, k, out)
    np.testing.assert_array_equal(out, x[k])


def test_equal_computations_give_structurally_equal_functions():
    def make():
        a = te.placeholder((4,), name="A")
        return te.create_prim_func([a, te.compute((4,), lambda i: a[i] + 1.0, name="B")])

    assert_structural_equal(make(), make())


def test_long_chains_do_not_recurse():
    t = te.placeholder((2,), name="A")
    first = t
    for _ in range(1500):
        previous = t
        t = te.compute((2,), lambda i, p=previous: p[i] + 1.0, name="B")
    func = te.create_prim_func([first, t])
    assert sum(isinstance(n, Block) for n in walk(func)) == 1501


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda a, r: te.compute((4,), lambda i, j: a[i, j]), "fcompute takes 2"),
        (lambda a, r: te.compute((4,), lambda i: a[i]), "2 dimensions, got 1"),
        (lambda a, r: te.compute((4,), lambda i: te.sum(a[i, r], axis=r) + 1.0), "whole formula"),
        (lambda a, r: te.compute((4,), lambda i: te.sum(a[i, i], axis=i)), "reduce_axis"),
        (lambda a, r: te.compute((-1,), lambda i: a[i, i]), "not negative"),
        (lambda a, r: te.compute((4,), 3), "function of the indices"),
        (lambda a, r: te.placeholder((1.5,)), "integer"),
        (lambda a, r: te.reduce_axis(3), "begin, end"),
        (lambda a, r: te.create_prim_func([a]), "none of the tensors"),
        (lambda a, r: te.create_prim_func([te.compute((4,), lambda i: a[i, i])]), "not among"),
        (lambda a, r: te.create_prim_func([a, a]), "given twice"),
        (lambda a, r: te.create_prim_func(["x"]), "wanted tensors"),
        (lambda a, r: a[0, 1.5], "an index is an integer"),
        (lambda a, r: list(a), "cannot be iterated"),
    ],
)
def test_mistakes_are_named(make, message):
    a = te.placeholder((4, 4), name="A")
    r = te.reduce_axis((0, 4), "r")
    with pytest.raises(TIRError, match=message):
        make(a, r)


def test_tables_come_before_what_else_is_read_with_them():
    a = te.placeholder((4,), name="A")
    twice = te.compute((4,), lambda i: a[i] * 2.0, name="twice")
    table = te.compute((4,), lambda i: (i + 1).astype("float32"), name="table")
    fn = te.create_prim_func([a, te.compute((4,), lambda i: twice[i] / table[i], name="out")])
    names = [n.name_hint for n in walk(fn.body) if isinstance(n, Block)]
    assert sorted(names[1:]) == ["out", "table", "twice"]
    order = [s.body.block.name_hint for s in fn.body.block.body.seq]
    assert order == ["table", "twice", "out"]
    out = np.zeros(4, "float32")
    interpret(fn, np.ones(4, "float32"), out)
    np.testing.assert_allclose(out, 2 / np.arange(1, 5, dtype="float32"))


def test_the_axis_separator_of_te_is_that_of_index_maps():
    def separated(i, j):
        return i, te.AXIS_SEPARATOR, j

    _, separators = IndexMap.from_func_with_separators(separated)
    assert list(separators) == [1]


def test_reducers_of_expressions_combine_them():
    x, i = Var("x", "float32"), Var("i", "int32")
    assert str(te.max(x, 0)) == "T.max(x, T.float32(0))"
    assert str(te.min(i, 1, 2)) == "T.min(T.min(i, 1), 2)"
    assert str(te.sum(x, i)) == 'x + T.Cast("float32", i)'
    assert tir.evaluate_expr(te.max(3, 4)) == 4
