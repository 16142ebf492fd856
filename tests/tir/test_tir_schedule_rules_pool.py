"""Schedules of pools: what they compute stays the same; their loops have a known form."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from relaxvm import relax, te, tir
from relaxvm.base import CpuModel, RelaxvmError
from relaxvm.ir import IRModule, walk
from relaxvm.relax import op as R
from relaxvm.relax.op.meaning import evaluate
from relaxvm.relax.transform import LegalizeOps, Normalize
from relaxvm.runtime import VirtualMachine, cpu
from relaxvm.tir import Block, BufferStore, For, ForKind, IfThenElse, Schedule, interpret
from relaxvm.tir.schedule.plans import View, schedule_function
from relaxvm.tir.schedule.plans.matches import match_pool
from relaxvm.tir.schedule.plans.pooling import Windows, tile_width
from relaxvm.tir.transform import LOWER_TIR, HoistIfThenElse

nn = R.nn
AVX2 = CpuModel(vector_bits=256, vector_registers=16, fma=True)
SSE = CpuModel(vector_bits=128)
POOLS = {
    (what, ndim): getattr(nn, f"{what}_pool{ndim}d")
    for what in ("max", "avg")
    for ndim in (1, 2, 3)
}
LAYOUTS = {
    1: ("NCW", "NWC", "NCW4c"),
    2: ("NCHW", "NHWC", "NCHW4c"),
    3: ("NCDHW", "NDHWC", "NCDHW4c"),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A pool over data of `shape`; dimensions in `symbolic` are known only when it runs."""

    what: str
    shape: tuple[int, ...]
    layout: str
    attrs: dict
    dtype: str = "float32"
    symbolic: tuple[int, ...] = ()

    def call(self):
        dims = [
            tir.Var(f"s{k}", "int64") if k in self.symbolic else d for k, d in enumerate(self.shape)
        ]
        x = relax.Var("x", relax.TensorStructInfo(dims, self.dtype))
        ndim = len(self.layout.replace("4c", "")) - 2
        return x, POOLS[self.what, ndim](x, layout=self.layout, **self.attrs)

    def module(self):
        x, call = self.call()
        b = relax.BlockBuilder()
        with b.function("main", [x]):
            with b.dataflow():
                out = b.emit_output(call)
            b.emit_func_output(out)
        return b.get()

    def function(self):
        """The loop function of the pool."""
        legal = LegalizeOps()(Normalize()(self.module()))
        return next(fn for gv, fn in legal.items() if gv.name_hint != "main")

    def data(self, rng):
        if not self.dtype.startswith("float"):
            return rng.integers(-100, 100, self.shape).astype(self.dtype)
        x = rng.standard_normal(self.shape).astype(self.dtype)
        if self.what == "max" and x.size > 4:
            x.reshape(-1)[rng.integers(0, x.size, 2)] = np.nan
            x.reshape(-1)[rng.integers(0, x.size, 1)] = -np.inf
        return x

    def compare(self, got, x):
        var, call = self.call()
        want = evaluate(call, {var: x})
        if self.what == "max" or not self.dtype.startswith("float"):
            np.testing.assert_array_equal(got, want)
        else:
            tolerance = 2e-3 if self.dtype == "float16" else 1e-5
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def check(case, seed=0):
    """Built and run, against the operator's meaning."""
    x = case.data(np.random.default_rng(seed))
    main = VirtualMachine(relax.build(case.module(), target="llvm"), cpu())["main"]
    case.compare(main(x).numpy(), x)


def check_interpreted(case, cpu_model, seed=0):
    """Scheduled for a CPU and interpreted."""
    x = case.data(np.random.default_rng(seed))
    var, call = case.call()
    out = np.zeros_like(evaluate(call, {var: x}))
    interpret(schedule_function(case.function(), cpu_model), x, out)
    case.compare(out, x)


def attrs(size, strides=1, padding=0, **more):
    return {"pool_size": size, "strides": strides, "padding": padding, **more}


CASES = {
    "max 3x3/2": Case("max", (1, 3, 20, 20), "NCHW", attrs(3, 2, 1)),
    "max 2x2/2": Case("max", (2, 3, 8, 38), "NCHW", attrs(2, 2)),
    "avg 3x3": Case("avg", (1, 4, 7, 28), "NCHW", attrs(3, 1, 1)),
    "avg 3x3 with its padding": Case(
        "avg", (1, 4, 7, 9), "NCHW", attrs(3, 1, 1, count_include_pad=True)
    ),
    "5x5 over a small image": Case("max", (1, 4, 5, 5), "NCHW", attrs(5, 1, 2)),
    "11x11 over a smaller image": Case("max", (1, 2, 6, 7), "NCHW", attrs(11, 1, 5)),
    "windows in the padding": Case("max", (1, 2, 4, 3), "NCHW", attrs(2, 1, 5)),
    "averages in the padding": Case("avg", (1, 2, 4, 3), "NCHW", attrs(2, 3, 5)),
    "ceil mode": Case("max", (1, 2, 10, 10), "NCHW", attrs(3, 2, 0, ceil_mode=True)),
    "averages of ceil mode": Case("avg", (1, 2, 10, 8), "NCHW", attrs(3, 2, 1, ceil_mode=True)),
    "dilated": Case("max", (1, 2, 12, 19), "NCHW", attrs((2, 3), (1, 2), 2, dilation=(3, 2))),
    "stride 3": Case("max", (1, 2, 12, 70), "NCHW", attrs(3, 3, 1)),
    "stride 5": Case("max", (1, 2, 12, 70), "NCHW", attrs(4, 5, 2)),
    "a long row": Case("max", (1, 2, 3, 131), "NCHW", attrs(3, 1, 1)),
    "padded on one side": Case("max", (1, 2, 6, 6), "NCHW", attrs(2, 1, (0, 0, 1, 1))),
    "one axis": Case("max", (2, 3, 40), "NCW", attrs(3, 2, 1)),
    "one axis, many taps": Case("avg", (2, 3, 40), "NCW", attrs(12, 1, 4)),
    "three axes": Case("max", (1, 2, 4, 5, 6), "NCDHW", attrs(3, 2, 1)),
    "averages over three axes": Case("avg", (1, 2, 4, 5, 6), "NCDHW", attrs((2, 3, 3), 1, 1)),
    "channels last": Case("max", (1, 9, 9, 20), "NHWC", attrs(3, 2, 1)),
    "channels last, shared": Case("avg", (1, 9, 9, 20), "NHWC", attrs(5, 1, 2)),
    "channels in blocks": Case("max", (1, 2, 9, 9, 4), "NCHW4c", attrs(3, 2, 1)),
    "float64": Case("avg", (1, 2, 7, 7), "NCHW", attrs(3, 1, 1), "float64"),
    "float16": Case("avg", (1, 2, 7, 7), "NCHW", attrs(3, 1, 1), "float16"),
    "maxima of float16": Case("max", (1, 2, 7, 40), "NCHW", attrs(3, 2, 1), "float16"),
    "int8": Case("avg", (1, 2, 7, 7), "NCHW", attrs(3, 1, 1), "int8"),
    "maxima of int8": Case("max", (1, 2, 7, 80), "NCHW", attrs(3, 2, 1), "int8"),
    "symbolic batch": Case("max", (2, 3, 9, 9), "NCHW", attrs(3, 2, 1), symbolic=(0,)),
    "symbolic image": Case("max", (2, 3, 9, 37), "NCHW", attrs(3, 2, 1), symbolic=(2, 3)),
    "symbolic, averaged": Case("avg", (2, 3, 9, 37), "NCHW", attrs(3, 1, 1), symbolic=(0, 1, 2, 3)),
    "symbolic, channels last": Case("max", (1, 9, 8, 21), "NHWC", attrs(3, 2, 1), symbolic=(1, 3)),
    "symbolic, under a vector": Case("max", (1, 1, 3, 3), "NCHW", attrs(3, 1, 1), symbolic=(3,)),
    "symbolic, without a window": Case("max", (1, 1, 4, 2), "NCHW", attrs(3, 1), symbolic=(3,)),
    "no batch": Case("max", (0, 3, 9, 9), "NCHW", attrs(3, 2, 1)),
    "no batch, symbolic": Case("avg", (0, 3, 9, 9), "NCHW", attrs(3, 2, 1), symbolic=(0,)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_built_pools_mean_what_the_operator_means(name):
    check(CASES[name])


@pytest.mark.parametrize("name", ["max 3x3/2", "5x5 over a small image", "channels last, shared",
                                  "averages in the padding", "stride 5"])  # fmt: skip
def test_scheduled_pools_mean_the_same_to_the_interpreter(name):
    for model in (AVX2, SSE):
        check_interpreted(CASES[name], model)


def random_case(seed):
    rng = random.Random(seed)
    ndim = rng.choice([1, 2, 2, 2, 3])
    layout = rng.choice(LAYOUTS[ndim])

    def many(values):
        return tuple(rng.choice(values) for _ in range(ndim))

    spatial = iter(rng.choice([1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 24, 33]) for _ in range(ndim))
    sizes = {"N": rng.choice([0, 1, 1, 2]), "C": rng.choice([1, 2, 3, 8]), "4": 4}
    shape = tuple(sizes[a] if a in sizes else next(spatial) for a in layout.removesuffix("c"))
    if layout == LAYOUTS[ndim][1]:
        shape = (*shape, sizes["C"])
    given = attrs(
        many([1, 2, 3, 3, 4, 5]),
        many([1, 1, 2, 2, 3, 5]),
        tuple(rng.choice([0, 0, 1, 1, 2, 3]) for _ in range(2 * ndim)),
        dilation=many([1, 1, 1, 2, 3]),
        ceil_mode=rng.random() < 0.3,
        count_include_pad=rng.random() < 0.4,
    )
    symbolic = tuple(k for k in range(ndim + 2) if rng.random() < 0.25)
    dtype = rng.choice(["float32", "float32", "float64", "float16", "int8", "uint8", "int32"])
    case = Case(rng.choice(["max", "avg"]), shape, layout, given, dtype, symbolic)
    try:
        x, call = case.call()
        evaluate(call, {x: np.zeros(shape, dtype)})
    except RelaxvmError:
        # Windows larger than the padded data: another one.
        return random_case(seed + 1_000_003)
    return case


@pytest.mark.parametrize("seed", range(10))
def test_random_pools(seed):
    check(random_case(seed), seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 220))
def test_more_random_pools(seed):
    check(random_case(seed), seed)


# -- the form of the loops -------------------------------------------------------------------------


def applied(case, model=AVX2):
    """The function with only the rule of pools applied; None if it does not fit."""
    sch = Schedule(case.function(), error_render_level="fast")
    views = [View(sch, rv) for rv in sch.get_child_blocks(sch.get_block("root"))]
    plans = [(view, plan) for view in views if (plan := Windows.choose(view, model)) is not None]
    for view, plan in plans:
        plan.apply(view)
    return next(iter(sch.mod.functions.values())) if plans else None


def vectors_and_loops(fn):
    """(lanes of the vector loops, conditions inside of loops that become vectors or are innermost)
    of a function lowered until vectors are made.
    """
    lowered = IRModule({"main": fn})
    stop = [type(p) for p in LOWER_TIR].index(type(HoistIfThenElse()))
    for each in LOWER_TIR[: stop + 1]:
        lowered = each(lowered)
    loops = [n for n in walk(lowered["main"]) if isinstance(n, For)]
    lanes = [n.extent.value for n in loops if n.kind == ForKind.VECTORIZED]
    branches = [n for f in loops for n in walk(f.body) if isinstance(n, IfThenElse)]
    return lanes, branches


def test_rows_of_a_pool_are_vectors_without_conditions():
    lanes, branches = vectors_and_loops(
        applied(Case("max", (1, 64, 56, 56), "NCHW", attrs(3, 2, 1)))
    )
    assert set(lanes) == {56, 28} and not branches


def test_what_lies_in_a_column_is_reduced_once():
    made = applied(Case("max", (1, 4, 13, 13), "NCHW", attrs(13, 1, 6)))
    taps = [
        [a.dom.extent.value for a in n.iter_vars if a.iter_type == "reduce"]
        for n in walk(made)
        if isinstance(n, Block) and any(a.iter_type == "reduce" for a in n.iter_vars)
    ]
    assert sorted(taps) == [[13], [13]]


def test_the_average_is_taken_where_the_sums_are():
    made = applied(Case("avg", (1, 4, 14, 14), "NCHW", attrs(3, 1, 1)))
    writers = {
        n.name_hint: n
        for n in walk(made)
        if isinstance(n, Block) and isinstance(n.body, BufferStore)
    }
    assert {"avg_pool", "count_H", "count_W"} <= writers.keys()
    outermost = made.body.block.body
    holding = [s for s in outermost.seq if any(n is writers["avg_pool"] for n in walk(s))]
    assert any(n.name_hint == "pool_sum_update" for n in walk(holding[0]) if isinstance(n, Block))


def test_channels_are_vectors_where_they_are_last():
    lanes, _ = vectors_and_loops(applied(Case("max", (1, 9, 9, 24), "NHWC", attrs(3, 2, 1))))
    assert set(lanes) == {24}


def test_plain_loops_are_left_as_they_are():
    assert applied(Case("max", (1, 4, 80, 80), "NCHW", attrs(2, 2))) is None
    assert applied(Case("max", (1, 4, 80), "NCW", attrs(3, 1, 1))) is None


def blocks_of(fn):
    sch = Schedule(fn)
    return [sch.get(b) for b in sch.get_child_blocks(sch.get_block("root"))]


def test_what_is_matched():
    (block,) = blocks_of(Case("max", (1, 4, 9, 9), "NCHW", attrs(3, (1, 2), 1)).function())
    found = match_pool(block)
    assert found.stride == 2 and found.guards and found.along.name == "v_rw"
    assert [v.name for v in found.taps] == ["v_rh"]
    (block,) = blocks_of(Case("max", (1, 9, 9, 4), "NHWC", attrs(3, (1, 2))).function())
    found = match_pool(block)
    assert found.along is None and not found.guards
    assert found.beside[1].name == "v_rw" and found.beside[2] == 2


def test_a_plain_reduction_is_no_pool():
    x = te.placeholder((8, 32), "float32", name="X")
    k = te.reduce_axis((0, 32), "k")
    total = te.compute((8,), lambda i: te.sum(x[i, k.var], [k]), name="S")
    assert match_pool(blocks_of(te.create_prim_func([x, total]))[0]) is None


def test_a_window_over_two_inputs_is_no_pool():
    x, y = (te.placeholder((34,), "float32", name=n) for n in "XY")
    k = te.reduce_axis((0, 3), "k")
    both = te.compute((32,), lambda i: te.sum(x[i + k.var] * y[i + k.var], [k]), name="S")
    assert match_pool(blocks_of(te.create_prim_func([x, y, both]))[0]) is None


def test_widths_of_tiles():
    assert tile_width(56, 8) == 56 and tile_width(0, 8) == 1
    assert tile_width(None, 8) == 16
    assert 112 % tile_width(112, 8) == 0
    assert tile_width(112, 8, chosen=True) == 16
    assert tile_width(1000, 32) <= 64
