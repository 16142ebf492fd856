"""Convolutions of three rows in fewer products."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from conv_helpers import AVX2, AVX512, Case

import relaxvm as tvm
from relaxvm import relax, te, tir
from relaxvm.ir import PassContext, walk
from relaxvm.ir.walk import transform
from relaxvm.relax import op as R
from relaxvm.relax.transform import BindParams
from relaxvm.runtime import VirtualMachine, cpu
from relaxvm.tir import interpret
from relaxvm.tir.schedule.plans import plans_for, schedule_function, with_constant_layouts
from relaxvm.tir.schedule.plans.winograd import with_fewer_products
from relaxvm.tir.schedule.primitives.fewer_products import matrices

CPUS = {
    "avx2": AVX2,
    "avx512": AVX512,
    "two cores": dataclasses.replace(AVX2, cores=2),
    "sse": dataclasses.replace(AVX2, vector_bits=128),
    # Weights too large for tiles of four rows.
    "small caches": dataclasses.replace(AVX2, l1_bytes=1 << 11, l2_bytes=1 << 12),
}
CASES = {
    "rows of four": Case((1, 32, 12, 12), 32, padding=(1, 1)),
    "a row is left over": Case((2, 32, 13, 14), 32, padding=(1, 1)),
    "two rows are left over": Case((1, 33, 14, 11), 32, padding=(1, 1)),
    "three rows are left over": Case((1, 40, 15, 17), 32, padding=(1, 1)),
    "without padding": Case((1, 32, 18, 16), 64),
    "without padding, rows left over": Case((1, 32, 17, 16), 32),
    "padded widely": Case((1, 32, 9, 12), 32, padding=(3, 2)),
    "bias and relu": Case((1, 32, 12, 16), 32, padding=(1, 1), after="bias"),
    "bias and relu, rows left over": Case((3, 32, 13, 16), 32, padding=(1, 1), after="bias"),
    "residual": Case((1, 32, 16, 9), 96, padding=(1, 1), after="residual"),
    "calls": Case((1, 32, 14, 14), 32, padding=(1, 1), after="exp"),
    "one column": Case((1, 32, 130, 2), 32, (3, 1)),
    "a column of taps": Case((1, 32, 14, 14), 32, (3, 1), padding=(1, 0)),
    "five columns of taps": Case((1, 32, 12, 14), 32, (3, 5), padding=(1, 2)),
    "batch known late": Case((2, 32, 13, 12), 32, padding=(1, 1), symbolic=True),
    "batch of none": Case((0, 32, 13, 12), 32, padding=(1, 1), symbolic=True),
}


def check(case, cpu, run=None):
    fn, packs = with_fewer_products(case.function(), [1], CPUS[cpu])
    assert list(packs) == [1]
    made = schedule_function(fn, CPUS[cpu])
    assert any(isinstance(n, tir.Block) and n.name_hint == "products_update" for n in walk(made))
    arrays, want = case.arrays(np.random.default_rng(3))
    arrays[1] = packs[1](arrays[1])
    (run or tvm.build(made, target="llvm")["main"])(*([made] if run else []), *arrays)
    scale = np.abs(want).max(initial=1)
    np.testing.assert_allclose(arrays[-1], want, rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.parametrize("name", CASES)
def test_fewer_products_give_the_same_result(name):
    check(CASES[name], "avx2")


@pytest.mark.slow
@pytest.mark.parametrize("cpu", [c for c in CPUS if c != "avx2"])
@pytest.mark.parametrize("name", CASES)
def test_fewer_products_for_other_cpus(name, cpu):
    check(CASES[name], cpu)


def test_weights_that_do_not_fit_get_tiles_of_two_rows():
    case = Case((1, 32, 13, 12), 32, padding=(1, 1))
    shapes = [
        with_fewer_products(case.function(), [1], CPUS[c])[0].buffers[1].shape[1].value
        for c in ("avx2", "small caches")
    ]
    assert shapes == [6, 4]
    check(case, "small caches")


def test_threads_share_tiles_and_not_inputs_that_one_of_them_transformed():
    two = dataclasses.replace(AVX512, cores=2, l2_bytes=1 << 20)
    fn, _ = with_fewer_products(Case((1, 64, 56, 56), 64, padding=(1, 1)).function(), [1], two)
    first, *others = (
        c
        for c in plans_for(tir.Schedule(fn), "products", two)
        if type(c.plan).__name__ == "Winograd"
    )
    alone = dataclasses.replace(first.plan, block=14)
    cost = next(c.cost for c in others if c.plan == alone)
    assert first.plan.block < 14 and cost.seconds > 1.1 * first.cost.seconds
    inside = [n for n in walk(schedule_function(fn, two)) if isinstance(n, tir.For)]
    (shared,) = (n for n in inside if n.kind == tir.ForKind.PARALLEL)
    assert {"inputs", "products_update"} <= {
        n.name_hint for n in walk(shared) if isinstance(n, tir.Block)
    }


@pytest.mark.slow
def test_the_schedule_means_the_same_to_the_interpreter():
    check(Case((1, 32, 13, 10), 32, padding=(1, 1), after="bias"), "avx512", run=interpret)


@pytest.mark.parametrize("outputs", [2, 4])
def test_the_matrices_filter(outputs):
    rng, m = np.random.default_rng(0), matrices(outputs)
    data, taps = rng.standard_normal(outputs + 2), rng.standard_normal(3)
    got = m.result @ ((m.weight @ taps) * (m.data @ data))
    np.testing.assert_allclose(got, np.correlate(data, taps, "valid"), atol=1e-12)


@pytest.mark.parametrize(
    "case",
    [
        Case((1, 32, 16, 16), 40, padding=(1, 1)),  # vectors do not divide the channels
        Case((1, 16, 16, 16), 32, padding=(1, 1)),  # few products
        Case((1, 32, 11, 11), 32, padding=(1, 1)),  # few pixels
        Case((1, 64, 16, 16), 64, padding=(1, 1), groups=2),
        Case((1, 32, 16, 16), 32, padding=(1, 1), groups=32),
        Case((1, 32, 31, 31), 32, strides=(2, 2), padding=(1, 1)),
        Case((1, 32, 16, 31), 32, strides=(1, 2), padding=(1, 1)),
        Case((1, 32, 16, 16), 32, dilation=(2, 1), padding=(2, 1)),
        Case((1, 32, 16, 16), 32, dilation=(1, 2), padding=(1, 2)),
        Case((1, 32, 16, 16), 32, (5, 5), padding=(2, 2)),
        Case((1, 32, 16, 16), 32, (1, 3), padding=(0, 1)),
        Case((1, 64, 16, 16), 64, (1, 1)),
    ],
)
def test_what_stays_as_it_is(case):
    fn = case.function()
    assert with_fewer_products(fn, [1], AVX2)[1] == {}
    assert with_fewer_products(CASES["rows of four"].function(), [0], AVX2)[1] == {}


@pytest.mark.parametrize(
    "term",
    [
        lambda x, w: x.astype("int32").astype("float32") * w,
        lambda x, w: x * w.astype("float16").astype("float32"),
        lambda x, w: (x * w).astype("int32").astype("float32"),
    ],
)
def test_products_that_are_cast_stay(term):
    x, w = te.placeholder((1, 32, 16, 16), name="X"), te.placeholder((32, 32, 3, 3), name="W")
    c, r, s = (te.reduce_axis((0, n)) for n in (32, 3, 3))
    out = te.compute(
        (1, 32, 14, 14),
        lambda n, o, i, j: te.sum(term(x[n, c, i + r, j + s], w[o, c, r, s]), (c, r, s)),
    )
    assert with_fewer_products(te.create_prim_func([x, w, out]), [1], AVX2)[1] == {}


def changed(fn, change):
    """`fn` with another realization of the block that convolves, from `change`."""

    def visit(n):
        return change(n) if isinstance(n, tir.BlockRealize) and n.block.init is not None else None

    return fn.replace(body=transform(fn.body, visit))


def beside(realize):
    """Another block in the same loops."""
    extra = tir.Block((), (), (), "extra", tir.Evaluate(tir.const(0)))
    return tir.SeqStmt((realize, tir.BlockRealize((), tir.const(True), extra)))


def started_at_one(realize):
    block = realize.block
    init = block.init.replace(value=tir.const(1.0, "float32"))
    return realize.replace(block=block.replace(init=init))


@pytest.mark.parametrize(
    "change",
    [
        beside,
        started_at_one,
        lambda realize: realize.replace(block=realize.block.replace(init=None)),
        lambda realize: realize.replace(predicate=realize.iter_values[2] < 10),
    ],
)
def test_sums_that_skip_something_start_elsewhere_or_share_loops_stay(change):
    fn = Case((1, 32, 16, 16), 32).function()
    assert list(with_fewer_products(changed(fn, lambda realize: None), [1], AVX2)[1]) == [1]
    assert with_fewer_products(changed(fn, change), [1], AVX2)[1] == {}


def test_only_approximate_numerics_have_fewer_products():
    fn = CASES["rows of four"].function()
    exact, fewer = (with_constant_layouts(fn, [1], AVX2, a)[0] for a in (False, True))
    assert [f.buffers[1].ndim for f in (exact, fewer)] == [5, 5]
    assert [f.buffers[1].shape[1].value for f in (exact, fewer)] == [32, 6]


@pytest.mark.parametrize("last", ["products", "results", "turned"])
def test_products_with_other_blocks_around_them_get_other_schedules(last):
    x = te.placeholder((1, 3, 6, 8, 10), "float32", name="X")
    u = te.placeholder((2, 6, 8, 3, 16), "float32", name="U")
    v = te.compute(x.shape, lambda *i: x(*i) + 1, name="inputs")
    c, s = te.reduce_axis((0, 8), "c"), te.reduce_axis((0, 3), "s")
    made = te.compute(
        (1, 2, 3, 8, 6, 16),
        lambda n, p, t, w, a, o: te.sum(v[n, t, a, c, w + s] * u[p, a, c, s, o], (c, s)),
        name="products",
    )
    if last != "products":
        made = te.compute(made.shape, lambda *i, m=made: m(*i) * m(*i), name="results")
    if last == "turned":
        made = te.compute((6, 16), lambda a, o, m=made: m[0, 1, 2, 3, a, o] + m[0, 0, 0, 0, a, o])
    fn = te.create_prim_func([x, u, made])
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal([int(e) for e in b.shape]).astype("float32") for b in fn.buffers]
    wanted = [a.copy() for a in arrays]
    interpret(fn, *wanted)
    tvm.build(schedule_function(fn, AVX512), target="llvm")["main"](*arrays)
    np.testing.assert_allclose(arrays[-1], wanted[-1], rtol=1e-4, atol=1e-4)


# -- in a program ----------------------------------------------------------------------------------


def f32(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def built(numerics, **config):
    """Two convolutions, the second with a residual sum written over its input."""
    weights = {"w1": f32(32, 32, 3, 3), "w2": f32(32, 32, 3, 3)}
    shapes = {"x": (1, 32, 14, 14)} | {k: w.shape for k, w in weights.items()}
    x, w1, w2 = (relax.Var(k, relax.TensorStructInfo(s, "float32")) for k, s in shapes.items())
    builder = relax.BlockBuilder()
    with builder.function("main", [x, w1, w2]):
        with builder.dataflow():
            first = builder.emit(R.nn.relu(R.nn.conv2d(x, w1, padding=1)))
            second = builder.emit(R.add(R.nn.conv2d(first, w2, padding=1), first))
            out = builder.emit_output(R.nn.relu(second))
        builder.emit_func_output(out)
    mod = BindParams("main", weights)(builder.get())
    with PassContext(config={"numerics": numerics}):
        return relax.build(mod, target="llvm")


def test_it_is_told():
    told = [d.text for n in ("exact", "approximate") for d in built(n).report]
    assert sum("in fewer products, by tiles of 4 rows" in text for text in told) == 2


def test_a_program_differs_by_roundings_only():
    x = f32(1, 32, 14, 14)
    exact, fewer = (
        VirtualMachine(built(n), cpu())["main"](x).numpy() for n in ("exact", "approximate")
    )
    np.testing.assert_allclose(fewer, exact, atol=1e-5 * np.abs(exact).max())


def test_a_program_gives_the_same_bits_in_both_ways_of_running_and_with_any_threads():
    x, ex = f32(1, 32, 14, 14), built("approximate")
    runs = [
        VirtualMachine(ex, cpu(), num_threads=n, exec_mode=mode)["main"](x).numpy()
        for n in (1, 2)
        for mode in ("compiled", "bytecode")
    ]
    for other in runs[1:]:
        np.testing.assert_array_equal(runs[0], other)
