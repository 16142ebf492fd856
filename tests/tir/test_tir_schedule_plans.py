"""Plans: what is chosen can be read, saved, given by hand, and is refused where it does not fit."""

import dataclasses
import json
import random

import numpy as np
import pytest

from relaxvm import te, tir
from relaxvm.base import CpuModel, Rates, ScheduleError
from relaxvm.ir import PassContext, assert_structural_equal
from relaxvm.script import from_source
from relaxvm.target import cpu_model
from relaxvm.tir.schedule import apply_plan, plan_from_json, plans_of
from relaxvm.tir.schedule.plans import PLANNERS, PLANS, Kind, View, default, plans_for
from relaxvm.tir.schedule.plans.cost import Demand, predict, rates_of

# Caches so small that each kind of schedule is met.
CACHES = {"l1_bytes": 2 << 10, "l2_bytes": 8 << 10, "l3_bytes": 32 << 10}
CPU = CpuModel(vector_bits=256, fma=True, cores=2, **CACHES)
RNG = np.random.default_rng(0)


def tensor(name, shape, dtype="float32"):
    return te.placeholder(shape, dtype, name)


def product(rows=24, columns=40, depth=36, dtype="float32", out="float32"):
    a, b = tensor("A", (rows, depth), dtype), tensor("B", (depth, columns), dtype)
    k = te.reduce_axis((0, depth), name="k")

    def term(i, j):
        return te.sum(a[i, k].astype(out) * b[k, j].astype(out), axis=k)

    return te.create_prim_func([a, b, te.compute((rows, columns), term, name="C")])


def dots(rows=5, columns=32, depth=96):
    a, b = tensor("A", (rows, depth)), tensor("B", (columns, depth))
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), name="C")
    return te.create_prim_func([a, b, c])


def with_epilogue():
    a, b = tensor("A", (16, 64)), tensor("B", (64, 48))
    k = te.reduce_axis((0, 64), name="k")
    s = te.compute((16, 48), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    d = te.compute((16, 48), lambda i, j: tir.max(s[i, j], 0.0), name="D")
    return te.create_prim_func([a, b, d])


def rows_sum(rows=12, columns=200):
    a = tensor("A", (rows, columns))
    k = te.reduce_axis((0, columns), name="k")
    return te.create_prim_func(
        [a, te.compute((rows,), lambda i: te.sum(a[i, k], axis=k), name="C")]
    )


def columns_sum():
    a = tensor("A", (24, 70))
    k = te.reduce_axis((0, 24), name="k")
    return te.create_prim_func([a, te.compute((70,), lambda j: te.sum(a[k, j], axis=k), name="C")])


def everything():
    a = tensor("A", (256, 1024))
    i, k = te.reduce_axis((0, 256)), te.reduce_axis((0, 1024))
    return te.create_prim_func(
        [a, te.compute((1,), lambda _: te.sum(a[i, k], axis=[i, k]), name="C")]
    )


def transposed(cast=False):
    a = tensor("A", (40, 72))

    def element(i, j):
        return a[j, i] * 2.0 if cast else a[j, i]

    return te.create_prim_func([a, te.compute((72, 40), element, name="C")])


def gathered():
    a, index = tensor("A", (64, 80)), tensor("I", (70, 80), "int64")
    c = te.compute((70, 80), lambda i, j: a[tir.min(tir.max(index[i, j], 0), 63), j], name="C")
    return te.create_prim_func([a, index, c])


def tiled():
    a = tensor("A", (6, 8))
    return te.create_prim_func([a, te.compute((6, 32), lambda i, j: a[i, j % 8] + 1.0, name="C")])


KERNELS = {
    "product": (product, Kind.CONTRACTION),
    "few rows": (lambda: product(2, 96, 64), Kind.CONTRACTION),
    "large product": (lambda: product(24, 32, 160), Kind.CONTRACTION),
    "dots": (dots, Kind.CONTRACTION),
    "epilogue": (with_epilogue, Kind.CONTRACTION),
    "bytes": (lambda: product(16, 32, 64, "int8", "int32"), Kind.CONTRACTION),
    "rows": (rows_sum, Kind.REDUCTION),
    "columns": (columns_sum, Kind.REDUCTION),
    "everything": (everything, Kind.REDUCTION),
    "transpose": (transposed, Kind.TRANSPOSE),
    "transpose and more": (lambda: transposed(True), Kind.TRANSPOSE),
    "gather": (gathered, Kind.GATHER),
    "periods": (tiled, Kind.ELEMENTWISE),
}


def conv(data=(1, 4, 9, 10), channels=16, kernel=3, stride=1, groups=1, dtype="float32"):
    n, c, h, w = data
    out = dtype if dtype == "float32" else "int32"
    x, k = tensor("A", data, dtype), tensor("B", (channels, c // groups, kernel, kernel), dtype)
    sizes = (c // groups, kernel, kernel)
    axes = [te.reduce_axis((0, e), name=name) for e, name in zip(sizes, ("c", "r", "s"))]

    def value(i, o, y, z):
        d, r, s = (a.var for a in axes)
        first = o // (channels // groups) * (c // groups) if groups > 1 else 0
        loads = x[i, d + first, y * stride + r, z * stride + s], k[o, d, r, s]
        return te.sum(loads[0].astype(out) * loads[1].astype(out), axis=axes)

    shape = (n, channels, (h - kernel) // stride + 1, (w - kernel) // stride + 1)
    return te.create_prim_func([x, k, te.compute(shape, value, name="C")])


CONVOLUTIONS = {
    "3x3": conv,
    "3x3, strided": lambda: conv((1, 4, 13, 13), 16, stride=2),
    "1x1": lambda: conv((1, 8, 6, 8), 24, 1),
    "depthwise": lambda: conv((1, 16, 10, 10), 16, groups=16),
    "narrow": lambda: conv((1, 8, 6, 8), 16, dtype="int8"),
}
KERNELS |= {name: (make, Kind.CONVOLUTION) for name, make in CONVOLUTIONS.items()}


def softmax(rows=16, columns=48, axis=1):
    a = tensor("A", (rows, columns))
    k, r = (te.reduce_axis((0, a.shape[axis]), name=n) for n in "kr")
    rest = (a.shape[1 - axis],)

    def at(v, i):
        return (i, v) if axis else (v, i)

    top = te.compute(rest, lambda i: te.max(a(*at(k, i)), axis=k), "top")
    e = te.compute(a.shape, lambda *i: tir.exp(a(*i) - top(i[1 - axis])), "exp")
    total = te.compute(rest, lambda i: te.sum(e(*at(r, i)), axis=r), "total")
    return te.create_prim_func([a, te.compute(a.shape, lambda *i: e(*i) / total(i[1 - axis]), "C")])


def pool(last=False, size=12):
    a = tensor("A", (size, size, 8) if last else (2, size, size))
    r, s = te.reduce_axis((0, 5), name="r"), te.reduce_axis((0, 5), name="s")

    def window(*i):
        y, x = i[:2] if last else i[1:]
        y, x = y + r - 2, x + s - 2
        inside = tir.all(y >= 0, y < size, x >= 0, x < size)
        place = (y, x, i[2]) if last else (i[0], y, x)
        return te.sum(tir.if_then_else(inside, a[place], 0.0), axis=[r, s])

    b = te.compute(a.shape, window, name="C")
    return te.create_prim_func([a, te.compute(a.shape, lambda *i: b[i] + 1.0, name="D")])


def attention():
    q, k, v = (tensor(n, (1, s, 1, 16)) for n, s in (("q", 14), ("k", 32), ("v", 32)))
    scale, one = tir.const(0.25, "float32"), tir.const(1, "int64")
    out = te.attention(q, k, v, factor=scale, group=one)
    return te.create_prim_func([q, k, v, out], index_dtype_override="int64")


# What several blocks are together: the function, the block that names them, the plan.
GROUPS = {
    "softmax": (softmax, "C", "RowChain"),
    "softmax across": (lambda: softmax(20, 70, 0), "C", "RowChain"),
    "pool": (pool, "C", "Windows"),
    "pool of channels": (lambda: pool(True), "C", "Windows"),
    "attention": (attention, "sums", "RowBlocks"),
}


def arrays_for(fn):
    made = []
    for param in fn.params:
        buffer = fn.buffer_map[param]
        shape = [int(n.value) for n in buffer.shape]
        dtype = str(buffer.dtype)
        if dtype.startswith("float"):
            made.append(RNG.integers(-4, 5, shape).astype(dtype))  # sums are exact in any order
        else:
            made.append(RNG.integers(-5, 60, shape).astype(dtype))
    return made


def result(fn, arrays):
    copies = [a.copy() for a in arrays]
    tir.interpret(fn, *copies)
    return copies[-1]


def quick_and_slow(names, *slow):
    """The names, those that take seconds marked."""
    return [pytest.param(n, marks=pytest.mark.slow) if n in slow else n for n in names]


@pytest.mark.parametrize("name", KERNELS)
def test_the_kind_of_a_block_is_found_out_from_what_it_computes(name):
    make, kind = KERNELS[name]
    sch = tir.Schedule(make())
    assert View(sch, sch.get_block("C")).kind is kind


@pytest.mark.parametrize("name", quick_and_slow(KERNELS, "large product", "everything", "narrow"))
def test_every_plan_that_is_offered_can_be_saved_and_keeps_what_is_computed(name):
    fn = KERNELS[name][0]()
    arrays = arrays_for(fn)
    wanted = result(fn, arrays)
    choices = plans_for(tir.Schedule(fn), "C", CPU)
    assert choices
    picked = choices[:1] + random.Random(0).sample(choices[1:], min(3, len(choices) - 1))
    for plan, _ in picked if name != "everything" else picked[:2]:
        saved = json.loads(json.dumps(plan.as_json()))
        assert plan_from_json(saved) == plan
        sch = tir.Schedule(fn)
        apply_plan(sch, "C", saved)
        assert sch.mod["main"] is not fn
        np.testing.assert_array_equal(result(sch.mod["main"], arrays), wanted, err_msg=str(plan))


@pytest.mark.parametrize("name", [*KERNELS, *GROUPS])
def test_every_plan_that_is_offered_fits_and_it_is_predicted_what_it_costs(name):
    make, block, *_ = GROUPS[name] if name in GROUPS else (KERNELS[name][0], "C")
    sch = tir.Schedule(make())
    choices, view = plans_for(sch, block, CPU), View(sch, sch.get_block(block))
    assert not any(plan.wrong(view) for plan, _ in choices)
    costs = [cost for _, cost in choices]
    assert costs and all(cost is not None and cost.seconds > 0 for cost in costs)
    assert [c.seconds for c in costs[1:]] == sorted(c.seconds for c in costs[1:])


@pytest.mark.parametrize("name", KERNELS)
def test_the_first_plan_is_the_one_the_default_schedule_takes(name):
    fn = KERNELS[name][0]()
    with PassContext() as context:
        default.schedule_function(fn, CPU)
    (taken,) = [d.text for d in context.report if d.text.startswith("block C taken by")]
    sch = tir.Schedule(tir.transform.with_index_dtype(fn, "int64"))
    assert taken == f"block C taken by {plans_for(sch, 'C', CPU)[0].plan}"


@pytest.mark.parametrize("name", quick_and_slow(GROUPS, "attention", "pool of channels"))
def test_plans_for_several_blocks_are_offered_first_saved_and_keep_what_is_computed(name):
    make, block, kind = GROUPS[name]
    fn = make()
    with PassContext() as context:
        default.schedule_function(fn, CPU)
    fn = tir.transform.with_index_dtype(fn, "int64")
    arrays = arrays_for(fn)
    wanted = result(fn, arrays)
    choices = plans_for(tir.Schedule(fn), block, CPU)
    assert f"block {block} taken by {choices[0].plan}" in [d.text for d in context.report]
    mine = [c.plan for c in choices if type(c.plan).__name__ == kind]
    assert mine[0] == choices[0].plan and choices[0].cost.seconds > 0 and len(mine) > 2
    for plan in (mine[0], *random.Random(0).sample(mine[1:], 2)):
        saved = json.loads(json.dumps(plan.as_json()))
        assert plan_from_json(saved) == plan
        sch = tir.Schedule(fn)
        apply_plan(sch, block, saved)
        assert sch.mod["main"] is not fn
        got = result(sch.mod["main"], arrays)
        np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=1e-6, err_msg=str(plan))


@pytest.mark.parametrize(
    ("name", "plan", "reason"),
    [
        ("softmax", {"plan": "RowChain", "blocks": 5, "rows": 1}, "5 blocks, and 4 share rows"),
        ("softmax", {"plan": "RowChain", "blocks": 1, "rows": 1}, "1 blocks, and 4 share rows"),
        ("softmax", {"plan": "RowChain", "blocks": 4, "rows": 5}, "5 rows at once .* rest of 16"),
        ("softmax", {"plan": "RowChain", "blocks": 4, "rows": 0}, "rows: wanted 1 or more"),
        ("softmax", {"plan": "RowChain", "blocks": 4, "rows": 1, "width": 8}, "they lie along it"),
        ("softmax across", {"plan": "RowChain", "blocks": 4, "rows": 1, "width": 71}, "are 70"),
        ("softmax", {"plan": "Windows", "lanes": 8, "vectors": 1}, "pools no windows"),
        ("pool", {"plan": "Windows", "lanes": 65, "vectors": 1}, "up to 64 lanes"),
        ("pool", {"plan": "Windows", "lanes": 8, "vectors": -1}, "vectors: wanted 1 or more"),
        ("pool", {"plan": "RowChain", "blocks": 2, "rows": 1}, "no block before it shares rows"),
        ("attention", {"plan": "RowBlocks", "lanes": 8, "rows": 4, "vectors": 3, "sum_rows": 4,
                       "sum_vectors": 1}, "tiles of 24 columns leave a rest of 32"),
        ("attention", {"plan": "RowBlocks", "lanes": 8, "rows": 99, "vectors": 1, "sum_rows": 4,
                       "sum_vectors": 1}, "tiles of 99 rows"),
        ("softmax", {"plan": "RowBlocks", "lanes": 8, "rows": 1, "vectors": 1, "sum_rows": 1,
                     "sum_vectors": 1}, "two products"),
    ],
)  # fmt: skip
def test_a_wrong_plan_for_several_blocks_is_refused_and_changes_nothing(name, plan, reason):
    make, block, _ = GROUPS[name]
    sch = tir.Schedule(make())
    before = sch.mod["main"]
    with pytest.raises(ScheduleError, match=reason):
        apply_plan(sch, block, plan)
    assert_structural_equal(sch.mod["main"], before)


def test_predictions_rank_large_tiles_before_single_sums_and_name_what_is_read_from_where():
    choices = plans_of(tir.Schedule(product(512, 512, 512)), "C", "llvm -mcpu=haswell -num-cores=2")
    costs = {str(c.plan): c.cost for c in choices if c.cost is not None}
    single = next(
        cost for plan, cost in costs.items() if plan.startswith("Tile(rows=1, vectors=1,")
    )
    assert choices[0].cost.seconds * 3 < single.seconds
    assert choices[0].cost.threads == 2
    assert "cycles" in str(choices[0]) and "2 threads" in str(choices[0])


def test_predictions_count_the_products_and_loads_that_a_cycle_has_and_change_no_choice():
    wide = CpuModel(vector_bits=512, vector_registers=32, fma=True)
    half = dataclasses.replace(wide, rates=dataclasses.replace(wide.rates, products=1.0))
    fn = conv((1, 64, 18, 34), 64)
    usual, halves = (plans_for(tir.Schedule(fn), "C", cpu) for cpu in (wide, half))
    assert usual[0].plan == halves[0].plan
    cycles, slower = (
        {c.plan: c.cost.cycles for c in choices if c.cost} for choices in (usual, halves)
    )
    full = next(
        p for p in cycles if str(p).startswith("AlongWidth(rows=1, vectors=2, lanes=16, channels=8")
    )
    tiny = dataclasses.replace(full, vectors=1, channels=1)
    # One sum waits for itself, however many products a cycle has; 16 do not.
    assert slower[full] > 1.6 * cycles[full] and slower[tiny] < 1.1 * cycles[tiny]
    assert rates_of(half, 8, 32).products == 2 and rates_of(half, 16, 32).products == 1


def test_what_one_thread_does_alone_and_hands_on_is_predicted_where_others_wait_for_it():
    one, two = (CpuModel(cores=n, rates=Rates(1e9, fork_seconds=0.0, handed=0.5)) for n in (1, 2))
    usual = Demand(1000.0, parts=50)
    handing = usual._replace(alone=200.0, handed=100.0)
    took = [[predict(d, cpu).seconds * 1e9 for d in (usual, handing)] for cpu in (one, two)]
    assert took[0] == pytest.approx([1000, 1200]) and took[1][1] == pytest.approx(took[1][0] + 400)
    assert 500 < took[1][0] < 510 and predict(handing, two).cycles == 1200


def test_blocks_of_pixels_that_leave_a_rest_are_not_offered():
    fn = conv((1, 64, 28, 28), 64, kernel=1)
    choices = plans_for(tir.Schedule(fn), "C", CpuModel(vector_bits=512, vector_registers=32))
    along = [c.plan for c in choices if type(c.plan).__name__ == "AlongPixels"]
    assert {p.block for p in along if p.vectors == 7} > {0, 7}
    assert {p.block for p in along if p.vectors == 2} == {0, 25}


def test_shorter_chains_are_predicted_with_the_blocks_that_they_leave_alone():
    choices = plans_of(tir.Schedule(softmax(512, 1024)), "C", "llvm -mcpu=haswell")
    costs = {c.plan.blocks: c.cost.seconds for c in choices if type(c.plan).__name__ == "RowChain"}
    assert costs[4] < costs[3] < costs[2]


def test_a_plan_is_carried_out_for_users_loops_too():
    fn = product(64, 64, 64)
    sch = tir.Schedule(fn)
    apply_plan(sch, sch.get_block("C"), {"plan": "Tile", "rows": 4, "vectors": 2, "lanes": 8})
    text = sch.mod.script()
    assert "T.vectorized(8)" in text and "T.unroll(4)" in text


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ({"plan": "Tile", "rows": 0, "vectors": 1, "lanes": 8}, "rows: wanted 1 or more, got 0"),
        ({"plan": "Tile", "rows": -3, "vectors": 1, "lanes": 8}, "rows: wanted 1 or more, got -3"),
        ({"plan": "Tile", "rows": 25, "vectors": 1, "lanes": 8}, "tiles of 25 rows.* are 24"),
        ({"plan": "Tile", "rows": 1, "vectors": 9, "lanes": 8}, "tiles of 72 columns.* are 40"),
        ({"plan": "Tile", "rows": 1, "vectors": 10**30, "lanes": 8}, "columns, and there are 40"),
        ({"plan": "Tile", "rows": 1.5, "vectors": 1, "lanes": 8}, "rows: wanted int, got float"),
        ({"plan": "Tile", "rows": True, "vectors": 1, "lanes": 8}, "rows: wanted int, got bool"),
        ({"plan": "Tile", "rows": 1, "vectors": 1}, "wanted the keys rows, vectors, lanes"),
        ({"plan": "Tile", "rows": 1, "vectors": 1, "lanes": 8, "x": 1}, "wanted the keys rows"),
        ({"plan": "Tyle"}, "no plan is called 'Tyle'; did you mean Tile?"),
        ({"rows": 1}, "a map with the key 'plan'"),
        (["Tile"], "a map with the key 'plan'"),
        (None, "a map with the key 'plan'"),
        ({"plan": "Columns"}, r"does not fit block C \(contraction\)"),
        ({"plan": "Gather", "columns": 4}, "gathers nothing"),
        ({"plan": "Transpose", "rows": 4, "columns": 4}, "lies as what it writes"),
        ({"plan": "Elementwise", "run": 2}, "each element once"),
        ({"plan": "Dots", "rows": 1, "columns": 1}, "both lie along the depth"),
        ({"plan": "Streaming", "width": 40, "runs": 8}, "few rows, and there are 24"),
        ({"plan": "Blocked", "rows": 4, "vectors": 1, "lanes": 8, "depth": 7, "panels": 1,
          "tiles": 1}, "pieces of 7 leave a rest of the depth 36"),
        ({"plan": "Blocked", "rows": 4, "vectors": 1, "lanes": 8, "depth": 36, "panels": 6,
          "tiles": 1}, "blocks of 6 panels of 8, and there are 5"),
        ({"plan": "LowPrecision", "rows": 1, "vectors": 1, "lanes": 8, "group": 4,
          "broadcast": "int8", "streamed": "int8"}, "narrow numbers"),
    ],
)  # fmt: skip
def test_a_wrong_plan_is_refused_with_what_is_wrong_and_changes_nothing(plan, reason):
    fn = product()
    sch = tir.Schedule(fn)
    with pytest.raises(ScheduleError, match=reason):
        apply_plan(sch, "C", plan)
    assert_structural_equal(sch.mod["main"], tir.Schedule(fn).mod["main"])
    assert not sch.trace.insts


def nested(make):
    value = make(None)
    for _ in range(100_000):
        value = make(value)
    return value


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (nested(lambda x: [x]), "a map with the key 'plan', .* got list"),
        (nested(lambda x: {"plan": x}), "a map with the key 'plan', .* got dict"),
        (
            {"plan": "Tile", "rows": nested(lambda x: [x]), "vectors": 1, "lanes": 8},
            "int, got list",
        ),
        ({"plan": "Elementwise", "splits": nested(lambda x: [x])}, "wanted"),
        ({"plan": "Elementwise", "splits": nested(lambda x: (x,))}, "wanted"),
        ({"plan": "T" * 10**6}, "no plan is called 'TTTT"),
        ({"plan": "Tile", 1: 2, "rows": 1, "vectors": 1, "lanes": 8}, "wanted the keys rows"),
    ],
    ids=lambda _: "",
)
def test_what_is_no_plan_is_refused_however_deep_or_long_it_is(plan, reason):
    with pytest.raises(ScheduleError, match=reason) as error:
        apply_plan(tir.Schedule(product()), "C", plan)
    assert len(str(error.value)) < 1000


def test_a_plan_is_for_a_block_of_the_schedule_that_is_not_scheduled_yet():
    plan = {"plan": "Tile", "rows": 4, "vectors": 1, "lanes": 8}
    sch = tir.Schedule(product())
    (loop, *_), other = sch.get_loops(sch.get_block("C")), tir.Schedule(product()).get_block("C")
    for block, reason in (
        (loop, "got For"),
        (other, "of this schedule"),
        ("D", "no block is named"),
    ):
        with pytest.raises(ScheduleError, match=reason):
            apply_plan(sch, block, plan)
    apply_plan(sch, "C", plan)
    before, steps = sch.mod["main"], len(sch.trace.insts)
    for again in (plan, {"plan": "Dots", "rows": 1, "columns": 1}, {"plan": "Rows"}):
        for name in ("C_init", "C_update", "C_local"):
            with pytest.raises(ScheduleError, match=f"does not fit block {name}"):
                apply_plan(sch, name, again)
    assert sch.mod["main"] is before and len(sch.trace.insts) == steps


@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("product", {"plan": "Tile"}),
        ("epilogue", {"plan": "Tile", "epilogue": True}),
        ("product", {"plan": "Blocked", "depth": 4, "panels": 1, "tiles": 1}),
        ("product", {"plan": "Ragged", "pack_rows": True}),
        ("3x3", {"plan": "AlongWidth", "channels": 1, "block": 1}),
    ],
)
def test_a_tile_may_be_a_single_sum(name, plan):
    fn = KERNELS[name][0]()
    arrays, sch = arrays_for(fn), tir.Schedule(fn)
    apply_plan(sch, "C", {"rows": 1, "vectors": 1, "lanes": 1, **plan})
    assert sch.mod["main"] is not fn
    np.testing.assert_array_equal(result(sch.mod["main"], arrays), result(fn, arrays))


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("Tile", (2.0, 1, 8), "Tile: rows: wanted int, got float"),
        ("Tile", (2, None, 8), "Tile: vectors: wanted int, got NoneType"),
        ("Tile", (2, True, 8), "Tile: vectors: wanted int, got bool"),
        ("Tile", (2, 1, np.int64(8)), "Tile: lanes: wanted int, got int64"),
        ("Tile", (2, 1, np.zeros(2)), "Tile: lanes: wanted int, got ndarray"),
        ("Tile", (2, 1, 8, 1), "Tile: pack: wanted bool, got int"),
        ("AlongWidth", (1, 1, 8, 1, 1, 0), "AlongWidth: groups: wanted 1 or more, got 0"),
        ("Levels", (3,), "Levels: tiles: wanted a list, got int"),
        ("Elementwise", (0, ((0, 8),)), "Elementwise: splits: wanted a list, got int"),
        ("LowPrecision", (1, 1, 8, 4, 5, "int8"), "LowPrecision: broadcast: wanted the name of"),
        ("LowPrecision", (1, 1, 8, 4, "int8", "i8"), "LowPrecision: streamed: unknown dtype 'i8'"),
    ],
)
def test_a_plan_written_in_python_is_checked_as_one_from_a_file(name, values, reason):
    with pytest.raises(ScheduleError, match=reason):
        PLANS[name](*values)


def test_what_a_plan_holds_is_what_a_file_would_give():
    plan = PLANS["Elementwise"](0, [[0, [8]]])
    assert plan.splits == ((0, (8,)),) and hash(plan) == hash(plan_from_json(plan.as_json()))
    narrow = PLANS["LowPrecision"](1, 1, 8, 4, "uint8", "int8")
    assert narrow.broadcast.bits == 8 and narrow == plan_from_json(narrow.as_json())


@pytest.mark.parametrize(
    ("name", "plan", "reason"),
    [
        ("3x3", {"plan": "AlongWidth", "channels": 17}, "tiles of 17 channels, and there are 16"),
        ("3x3", {"plan": "AlongWidth", "rows": 8}, "tiles of 8 rows, and there are 7"),
        ("3x3", {"plan": "AlongWidth", "vectors": 2}, "tiles of 2 vectors, and there are 1"),
        ("3x3", {"plan": "AlongWidth", "channels": 0}, "channels: wanted 1 or more, got 0"),
        ("3x3", {"plan": "AlongWidth", "block": -1}, "block: wanted 1 or more, got -1"),
        ("3x3", {"plan": "AlongWidth", "block": 3}, "blocks of 3 rows .* leave a rest"),
        ("3x3", {"plan": "AlongWidth", "lanes": 64}, "vectors of 64 lanes, and the width is 8"),
        ("3x3", {"plan": "AlongPixels"}, "read for several pixels"),
        ("1x1", {"plan": "AlongPixels", "block": 7}, "blocks of 7 tiles of pixels, .* are 6"),
        ("1x1", {"plan": "AlongPixels", "rows": 25}, "tiles of 25 channels, and there are 24"),
        ("3x3", {"plan": "AlongChannels", "block": 7, "run": 56}, "it has to be packed"),
        ("3x3", {"plan": "AlongChannels", "run": 5, "pack": True}, "runs of 5 pixels"),
        ("depthwise", {"plan": "AlongChannels", "run": 8, "pack": True}, "tiles of 8 .* are 1"),
        ("3x3", {"plan": "AlongChannels", "vectors": 3, "pack": True}, "tiles of 24 channels"),
        ("3x3", {"plan": "AlongChannels", "run": 8, "pack": True, "parts": 3}, "3 parts of 16"),
        ("3x3", {"plan": "AlongChannels", "run": 8, "pack": True, "placed": True}, "stay in place"),
        ("3x3", {"plan": "DotsOfWindows"}, "wanted the keys"),
        ("narrow", {"plan": "DotsOfWindows", "group": 1, "broadcast": "int8",
                    "streamed": "int16"}, "products of one term are of one dtype"),
        ("3x3", {"plan": "Winograd", "tile": 3}, "tiles of 3 rows .* such of 2 and 4"),
        ("3x3", {"plan": "Winograd", "vectors": 3}, "panels of 24 channels .* leave a rest"),
        ("3x3", {"plan": "Winograd", "rows": 9}, "tiles of 9 pixels, and there are 8 in a row"),
        ("3x3, strided", {"plan": "Winograd"}, "does not slide by one pixel"),
        ("1x1", {"plan": "Winograd"}, "its filter has 1 rows"),
        ("narrow", {"plan": "Winograd"}, "elements as they are"),
    ],
)  # fmt: skip
def test_a_wrong_plan_for_a_convolution_is_refused_with_what_is_wrong(name, plan, reason):
    least = {"AlongWidth": ("channels", "block"), "Winograd": ("tile", "block")}
    least |= {"AlongChannels": ("block",)}
    values = dict.fromkeys(least.get(plan["plan"], ()), 1) | {"rows": 1, "vectors": 1, "lanes": 8}
    values |= {"tile": 4} if plan["plan"] == "Winograd" else {}
    sch = tir.Schedule(CONVOLUTIONS[name]())
    before = sch.mod["main"]
    with pytest.raises(ScheduleError, match=reason):
        apply_plan(sch, "C", values | plan)
    assert_structural_equal(sch.mod["main"], before)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("plan", "height", "width", "stride"),
    [
        ({"plan": "AlongChannels", "rows": 1, "lanes": 4, "block": 2, "pack": True}, 8, "n", 1),
        ({"plan": "AlongWidth", "rows": 1, "lanes": 8, "channels": 2, "block": 1}, "n", 8, 1),
        ({"plan": "AlongWidth", "rows": 1, "lanes": 8, "channels": 2, "block": 1}, "n", 16, 2),
        ({"plan": "AlongWidth", "rows": 2, "lanes": 8, "channels": 2, "block": 4}, "n", 16, 2),
    ],
)
def test_a_convolution_of_unknown_size_of_which_nothing_has_to_be_padded(
    plan, height, width, stride, after
):
    n = tir.Var("n", "int64")
    x = tensor("A", (1, 2, *(n if size == "n" else size for size in (height, width))))
    weight = tensor("B", (4, 2, 1, 1))
    axes = [te.reduce_axis((0, e), name=name) for e, name in zip((2, 1, 1), "crs")]
    c, r, s = (a.var for a in axes)

    def value(i, o, y, z):
        return te.sum(x[i, c, y * stride + r, z * stride + s] * weight[o, c, r, s], axis=axes)

    shape = (1, 4, *(tir.floordiv(size - 1, stride) + 1 for size in x.shape[2:]))
    sums = te.compute(shape, value, name="C")
    out = te.compute(shape, lambda *i: tir.max(sums(*i), 0.0), name="D") if after else sums
    fn = te.create_prim_func([x, weight, out], index_dtype_override="int64")
    sch = tir.Schedule(fn)
    apply_plan(sch, "C", {"vectors": 1, **plan})
    image, factors = RNG.integers(-4, 5, (1, 2, 16, 16)), RNG.integers(-4, 5, (4, 2, 1, 1))
    for size in (3, 8):
        part = image[:, :, : size if height == "n" else height, : size if width == "n" else width]
        sampled = part[:, :, ::stride, ::stride].astype("float32")
        wanted = np.einsum("ichw,oc->iohw", sampled, factors[:, :, 0, 0].astype("float32"))
        arrays = [part.astype("float32"), factors.astype("float32"), np.empty_like(wanted)]
        got = result(sch.mod["main"], arrays)
        np.testing.assert_array_equal(got, np.maximum(wanted, 0) if after else wanted)


def test_fewer_products_are_offered_where_numerics_may_be_approximate_and_refused_where_exact():
    fn = conv((1, 32, 18, 14), 32)
    plan = {"plan": "Winograd", "rows": 4, "vectors": 2, "lanes": 8, "tile": 4, "block": 2}
    with PassContext(config={"numerics": "approximate"}):
        choices = {
            type(c.plan).__name__: c for c in reversed(plans_for(tir.Schedule(fn), "C", CPU))
        }
    assert {"AlongWidth", "AlongChannels", "Winograd"} <= set(choices)
    assert choices["Winograd"].cost.cycles < choices["AlongWidth"].cost.cycles
    with PassContext(config={"numerics": "exact"}), pytest.raises(ScheduleError, match="exact"):
        apply_plan(tir.Schedule(fn), "C", plan)
    with pytest.raises(ScheduleError, match="its filter has 5 rows, and fewer products are known"):
        apply_plan(tir.Schedule(conv((1, 32, 18, 18), 32, 5)), "C", plan)
    few = conv((1, 3, 10, 6), 16)
    for rows in (4, 1):
        sch, arrays = tir.Schedule(few), arrays_for(few)
        apply_plan(sch, "C", {**plan, "rows": rows})
        np.testing.assert_allclose(result(sch.mod["main"], arrays), result(few, arrays), atol=1e-4)


@pytest.mark.parametrize(("rows", "lanes"), [(1, 8), (4, 8), (4, 1), (1, 1)])
def test_tiles_of_unknown_sizes_may_be_one_row_or_one_column(rows, lanes):
    m, n = tir.Var("m", "int64"), tir.Var("n", "int64")
    x, y = te.placeholder((m, 24), name="A"), te.placeholder((24, n), name="B")
    k = te.reduce_axis((0, 24), "k")
    out = te.compute((m, n), lambda i, j: te.sum(x[i, k] * y[k, j], axis=k), name="C")
    fn = te.create_prim_func([x, y, out])
    plan = {"plan": "Ragged", "rows": rows, "vectors": 1, "lanes": lanes, "pack_rows": True}
    sch = tir.Schedule(fn)
    apply_plan(sch, "C", plan)
    arrays = [
        RNG.integers(-4, 5, shape).astype("float32") for shape in ((7, 24), (24, 13), (7, 13))
    ]
    np.testing.assert_array_equal(result(sch.mod["main"], arrays), result(fn, arrays))


def test_panels_of_an_input_that_is_written_are_refused():
    square = from_source(
        "@T.prim_func\n"
        'def main(A: T.Buffer((16, 16), "float32"), B: T.Buffer((16, 16), "float32")):\n'
        "    for i, j, k in T.grid(16, 16, 16):\n"
        '        with T.block("C"):\n'
        '            vi, vj, vk = T.axis.remap("SSR", [i, j, k])\n'
        "            with T.init():\n"
        "                B[vi, vj] = T.float32(0)\n"
        "            B[vi, vj] = B[vi, vj] + A[vi, vk] * B[vk, vj]\n"
    )
    sch = tir.Schedule(square)
    with pytest.raises(ScheduleError, match="does not fit block C .other.|written"):
        apply_plan(sch, "C", {"plan": "Tile", "rows": 2, "vectors": 1, "lanes": 8, "pack": True})


def numbers_for(rng, field):
    if field.type in ("bool", bool):
        return rng.random() < 0.5
    return rng.choice([0, 1, 2, 3, 4, 5, 7, 8, 16, 24, 32, 36, 40, 64, 128, 10**9])


@pytest.mark.parametrize("seed", range(6))
def test_random_plans_are_refused_or_right(seed):
    rng = random.Random(seed)
    name = rng.choice([n for n in KERNELS if n != "everything"])
    fn = KERNELS[name][0]()
    arrays = arrays_for(fn)
    wanted, applied = None, 0
    for _ in range(60):
        cls = PLANS[rng.choice(sorted(PLANS))]
        values = {f.name: numbers_for(rng, f) for f in dataclasses.fields(cls)}
        for key in {"broadcast", "streamed"} & set(values):
            values[key] = rng.choice(["int8", "int16", "uint8"])
        if "splits" in values:
            values["splits"] = [[rng.randrange(3), [rng.choice([1, 2, 8])]]]
        sch = tir.Schedule(fn)
        try:
            apply_plan(sch, "C", {"plan": cls.__name__, **values})
        except ScheduleError:
            continue
        applied += 1
        if applied <= 2:
            wanted = result(fn, arrays) if wanted is None else wanted
            got = result(sch.mod["main"], arrays)
            np.testing.assert_array_equal(got, wanted, err_msg=f"{cls.__name__} {values}")


def test_every_class_of_plans_is_in_the_table_of_planners():
    classes = {p for planners in (*PLANNERS.values(), *default.GROUP_PLANNERS) for p in planners}
    assert classes == set(PLANS.values())
    assert set(PLANNERS) == set(Kind)


def test_plans_for_this_machine_are_those_of_its_model():
    fn = product(64, 64, 64)
    assert plans_of(tir.Schedule(fn), "C")[0] == plans_for(tir.Schedule(fn), "C", cpu_model())[0]
