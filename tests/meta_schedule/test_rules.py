"""TVM's classes of the design space: rules, generators, mutators and postprocessors, and the spaces
that are searched with them. Every schedule computes what the function does.
"""

import contextlib
import json
import random

import numpy as np
import pytest

import relaxvm
from relaxvm import meta_schedule as ms
from relaxvm import te
from relaxvm.base import ScheduleError
from relaxvm.meta_schedule.derived import DerivedError
from relaxvm.meta_schedule.space import Point, Space
from relaxvm.meta_schedule.trace_space import Traced, TraceSpace, UnionSpace, whole_space
from relaxvm.script import tir as T
from relaxvm.tir.schedule import Schedule, Trace

REGISTERED = "meta_schedule.cpu.test_rules_halves"


def product(n=12, k=16, m=24, epilogue=False):
    a, b = te.placeholder((n, k), "float32", "A"), te.placeholder((k, m), "float32", "B")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], r), "C")
    out = te.compute((n, m), lambda i, j: te.max(c[i, j], 0.0), "out") if epilogue else c
    return te.create_prim_func([a, b, out])


def stencil(n=10, m=20):
    a = te.placeholder((n + 2, m + 2), "float32", "A")
    blur = te.compute((n + 2, m), lambda i, j: a[i, j] + a[i, j + 1] + a[i, j + 2], "blur")
    out = te.compute((n, m), lambda i, j: blur[i, j] + blur[i + 1, j] + blur[i + 2, j], "out")
    return te.create_prim_func([a, out])


def triangular(b=3, n=12):
    x, y = te.placeholder((b, n, n), "float32", "X"), te.placeholder((b, n, n), "float32", "Y")
    k = te.reduce_axis((0, n), "k")
    below = lambda z, i, j: te.if_then_else(k <= i, x[z, i, k] * y[z, k, j], 0.0)  # noqa: E731
    return te.create_prim_func(
        [x, y, te.compute((b, n, n), lambda *i: te.sum(below(*i), k), "tri")]
    )


def long_sum(n=2, m=1024):
    a, k = te.placeholder((n, m), "float32", "A"), te.reduce_axis((0, m), "k")
    return te.create_prim_func([a, te.compute((n,), lambda i: te.sum(a[i, k], k), "S")])


def chain():
    a = te.placeholder((8, 16), "float32", "A")
    b = te.compute((8, 16), lambda i, j: a[i, j] + 1.0, "B")
    c = te.compute((16, 8), lambda i, j: b[j, i] * 2.0, "C")
    d = te.compute((16, 8), lambda i, j: te.exp(c[i, j]), "D")
    return te.create_prim_func([a, te.compute((16, 8), lambda i, j: d[i, j] + c[i, j], "E")])


FUNCTIONS = {
    "product": product(),
    "epilogue": product(epilogue=True),
    "stencil": stencil(),
    "triangular": triangular(),
    "sum": long_sum(),
    "chain": chain(),
}


def run(fn, mod):
    rng = np.random.default_rng(0)
    arrays = [
        relaxvm.nd.array((rng.random(list(map(int, b.shape))) * 8).astype(str(b.dtype)))
        for b in fn.buffer_map.values()
    ]
    relaxvm.build(mod, schedule=False)["main"](*arrays)
    return arrays[-1].numpy()


def check_same(fn, *schedules):
    wanted = run(fn, Schedule(fn).mod)
    for sch in schedules:
        np.testing.assert_allclose(run(fn, sch.mod), wanted, rtol=1e-4, atol=1e-4)


def applied(rule, fn, name):
    rule.initialize_with_tune_context(ms.trace_space.Context(None, "llvm -num-cores=4"))
    sch = Schedule(fn)
    return rule.apply(sch, sch.get_block(name))


def names(sch):
    return [sch.get(b).name_hint for b in sch.get_child_blocks(sch.get_block("root"))]


# -- rules -----------------------------------------------------------------------------------------


def inline(**changed):
    options = dict.fromkeys(
        "into_producer into_consumer inline_const_tensor disallow_if_then_else require_injective "
        "require_ordered".split(),
        True,
    )
    return ms.schedule_rule.AutoInline(**{**options, "into_producer": False, **changed})


@pytest.mark.parametrize(
    ("options", "block", "left"),
    [
        ({}, "B", "CDE"),
        ({}, "C", "BCDE"),  # transposes
        ({"require_ordered": False}, "C", "BDE"),
        ({}, "D", "BCE"),
        ({"disallow_op": ["tir.exp"]}, "D", "BCDE"),
        ({}, "E", "BCDE"),
        ({"into_consumer": False}, "B", "BCDE"),
        ({"into_consumer": False, "into_producer": True, "require_injective": False}, "E", "BCDE"),
        ({"into_producer": True, "into_consumer": False, "require_ordered": False}, "C", "BDE"),
    ],
)
def test_auto_inline(options, block, left):
    (sch,) = applied(inline(**options), chain(), block)
    assert names(sch) == list(left)
    check_same(chain(), sch)


def test_windows_are_not_inlined_as_injective():
    assert names(*applied(inline(), stencil(), "blur")) == ["blur", "out"]
    assert names(*applied(inline(require_injective=False), stencil(), "blur")) == ["out"]


def test_constant_scalars_are_inlined():
    a = te.placeholder((4,), "float32", "A")
    one = te.compute((1,), lambda i: te.const(1.5, "float32"), "one")
    fn = te.create_prim_func([a, te.compute((4,), lambda i: a[i] * one[0], "B")])
    rule = ms.schedule_rule.InlineConstantScalars()
    assert names(*applied(rule, fn, "one")) == ["B"]
    assert names(*applied(rule, fn, "B")) == ["one", "B"]


def test_add_rfactor():
    rule = ms.schedule_rule.AddRFactor(max_jobs_per_core=16, max_innermost_factor=64)
    designs = applied(rule, long_sum(), "S")
    assert [names(sch) for sch in designs] == [["S_rf", "S"], ["S_rf", "S"], ["S"]]
    check_same(long_sum(), *designs)
    many = long_sum(600, 8)
    assert len(applied(rule, product(40, 8, 40), "C")) == 1, "enough results to share out"
    assert len(applied(rule, many, "S")) == 3, "nothing of it is reused"


def test_multi_level_tiling():
    reuse = ms.schedule_rule.ReuseType("may", [1, 2], "local")
    assert reuse.as_dict() == {"req": "may", "levels": [1, 2], "scope": "local"}
    rule = ms.schedule_rule.MultiLevelTiling("SSRSRS", max_innermost_factor=8, reuse_write=reuse)
    designs = applied(rule, product(), "C")
    assert [names(sch) for sch in designs] == [["C"], ["C", "C_local"], ["C", "C_local"]]
    plain = designs[0]
    assert len(plain.get_loops(plain.get_block("C"))) == 4 * 2 + 2
    check_same(product(), *designs)
    fused = applied(rule, product(epilogue=True), "C")
    assert [names(sch) for sch in fused] == [["C", "out"]] * 3
    check_same(product(epilogue=True), *fused)
    must = ms.schedule_rule.ReuseType("must", [4], "global")
    reads = ms.schedule_rule.MultiLevelTiling("SSRSRS", reuse_read=must)
    (sch,) = applied(reads, product(), "C")
    assert names(sch) == ["A_global", "B_global", "C"]
    check_same(product(), sch)
    only = ms.schedule_rule.MultiLevelTiling("SRS", filter_fn=lambda block, loops: False)
    assert "tiling_structure" not in applied(only, product(), "C")[0].mod.script()
    n = relaxvm.tir.Var("n", "int64")
    a, k = te.placeholder((n, 8), "float32", "A"), te.reduce_axis((0, 8), "k")
    symbolic = te.create_prim_func(
        [a, te.compute((n, n), lambda i, j: te.sum(a[i, k] * a[j, k], k), "C")]
    )
    (left,) = applied(rule, symbolic, "C")
    assert left.trace.simplified().insts == []


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (lambda: ms.schedule_rule.MultiLevelTiling("SXS"), "letters S and R"),
        (lambda: ms.schedule_rule.MultiLevelTiling("SS", ["threadIdx.x"]), "threads of GPUs"),
        (lambda: ms.schedule_rule.ReuseType("often", [1], "local"), "req is one of no, may, must"),
        (lambda: ms.schedule_rule.ReuseType("may", [0], "local"), "numbers above 0"),
        (
            lambda: ms.schedule_rule.MultiLevelTiling(
                "SRS", reuse_write=ms.schedule_rule.ReuseType("may", [3], "local")
            ),
            "has 3 levels",
        ),
        (lambda: ms.ScheduleRule.create("cuda"), "for CPUs here"),
        (lambda: ms.Postproc.create("cuda"), "for CPUs here"),
        (lambda: ms.Mutator.create("cuda"), "for CPUs here"),
        (lambda: ms.SpaceGenerator.create("sketch"), "post-order-apply, union"),
        (lambda: ms.space_generator.PostOrderApply(sch_rules=[1]), "a list of ScheduleRule"),
        (
            lambda: ms.schedule_rule.MultiLevelTilingWithIntrin("nothing", "SSRSRS"),
            "not registered",
        ),
    ],
)
def test_arguments_that_are_wrong(make, wrong):
    with pytest.raises(ScheduleError, match=wrong):
        make()


def test_tiles_that_become_an_intrinsic():
    a, b = te.placeholder((8, 16), "uint8", "A"), te.placeholder((2, 4, 64), "int8", "B")
    ko, ki = te.reduce_axis((0, 4), "ko"), te.reduce_axis((0, 4), "ki")

    def dot(i, jo, ji):
        products = a[i, ko * 4 + ki].astype("int32") * b[jo, ko, ji * 4 + ki].astype("int32")
        return te.sum(products, [ko, ki])

    fn = te.create_prim_func([a, b, te.compute((8, 2, 16), dot, "C")])
    rule = ms.schedule_rule.MultiLevelTilingWithIntrin("dot_16x4_uint8_int8", "SSRSRS")
    space = TraceSpace(fn, "llvm", ms.space_generator.PostOrderApply(sch_rules=[rule]))
    drawn = space.draw(random.Random(0))
    assert "dot_accumulate" in drawn.fn.script()
    check_same(fn, drawn.schedule)
    (left,) = applied(rule, product(), "C")
    assert left.trace.simplified().insts == []
    # The sums are collected in small buffers, too, and begin with vectors.
    write = ms.schedule_rule.ReuseType("may", [1, 2], "global")
    rule = ms.schedule_rule.MultiLevelTilingWithIntrin(
        "dot_16x4_uint8_int8", "SSRSRS", reuse_write=write
    )
    postprocs = [ms.postproc.RewriteReductionBlock(), ms.postproc.RewriteTensorize(True)]
    space = TraceSpace(fn, "llvm", ms.space_generator.PostOrderApply(None, [rule], postprocs))
    kept = [space.candidate(Traced(trace)) for trace in space.designs]
    assert ["C_global" in c.fn.script() for c in kept] == [False, True, True]
    assert all("T.vectorized" in c.fn.script() for c in kept)
    check_same(fn, *(c.schedule for c in kept))


def test_rules_of_gpus_leave_schedules_alone():
    for rule in (ms.schedule_rule.AutoBind(), ms.schedule_rule.CrossThreadReduction([4, 8])):
        (sch,) = applied(rule, product(), "C")
        assert sch.trace.simplified().insts == []
    sch = Schedule(product())
    for postproc in (
        ms.postproc.RewriteUnboundBlock(),
        ms.postproc.RewriteCooperativeFetch(),
        ms.postproc.VerifyGPUCode(),
        ms.postproc.VerifyVTCMLimit(),
        ms.postproc.DisallowAsyncStridedMemCopy(),
    ):
        assert postproc.apply(sch)
    assert sch.trace.insts == []
    assert ms.mutator.MutateThreadBinding().apply(sch.trace) is None


# -- rules of users --------------------------------------------------------------------------------


@T.prim_func
def named(A: T.Buffer((8, 16), "float32"), B: T.Buffer((8, 16), "float32")):
    for i, j in T.grid(8, 16):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.block_attr({"schedule_rule": "test_rules_halves"})
            B[vi, vj] = A[vi, vj] * 2.0


def test_custom_rules_are_for_the_blocks_that_name_them():
    def halves(sch, block):
        i, _ = sch.get_loops(block)
        sch.parallel(sch.split(i, [2, None])[0])

    generator = ms.space_generator.PostOrderApply()
    with pytest.raises(ScheduleError, match=f"block B wants .*{REGISTERED}"):
        TraceSpace(named, "llvm", generator).draw(random.Random(0))
    relaxvm.register_func(REGISTERED, halves)
    try:
        space = TraceSpace(named, "llvm")
        (design,) = space.designs
        assert [i.name for i in design.insts if i.name in ("split", "parallel")] == [
            "split",
            "parallel",
        ]
        check_same(named, space.draw(random.Random(0)).schedule)
        relaxvm.register_func(REGISTERED, lambda sch, block: 1 / 0, override=True)
        with pytest.raises(DerivedError, match=f"{REGISTERED}, for block B, .*ZeroDivision"):
            TraceSpace(named, "llvm").draw(random.Random(0))
        relaxvm.register_func(REGISTERED, lambda sch, block: "fast", override=True)
        with pytest.raises(DerivedError, match="wanted a Schedule.*got str"):
            TraceSpace(named, "llvm").draw(random.Random(0))
    finally:
        relaxvm.runtime.remove_global_func(REGISTERED)


def test_parts_of_users():
    told = []

    @ms.derived_object
    class Widths(ms.schedule_rule.PyScheduleRule):
        def _initialize_with_tune_context(self, context):
            told.append(context.target)

        def apply(self, sch, block):
            if sch.get(block).name_hint != "out":
                return [sch]
            other = sch.copy()
            other.vectorize(other.split(other.get_loops(block)[-1], [None, 4])[1])
            return [sch, other]

        def clone(self):
            return Widths()

    @ms.derived_object
    class NoVectors(ms.postproc.PyPostproc):
        def initialize_with_tune_context(self, context):
            told.append(context.target)

        def apply(self, sch):
            return "vectorized" not in sch.mod.script()

    @ms.derived_object
    class Forgets(ms.mutator.PyMutator):
        def apply(self, trace):
            return Trace()

    generator = ms.space_generator.PostOrderApply(
        sch_rules=[Widths()], postprocs=[NoVectors()], mutator_probs={Forgets(): 1.0}
    )
    space = TraceSpace(stencil(), "llvm", generator)
    assert len(told) == 2 and len(space.designs) == 2
    rng = random.Random(0)
    for _ in range(8):
        with contextlib.suppress(ScheduleError):
            drawn = space.draw(rng)
    assert 0 < space.refused["NoVectors"] < 8
    assert space.near(drawn.point, rng).point.trace.insts == []
    assert generator.clone().sch_rules[0] is not generator.sch_rules[0]


def test_a_space_generator_of_users_needs_no_init_of_ours():
    @ms.derived_object
    class Halves(ms.space_generator.PySpaceGenerator):
        def __init__(self, block):
            self.block = block

        def generate_design_space(self, mod):
            sch = Schedule(mod)
            loop = sch.get_loops(self.block)[-1]
            sch.split(loop, sch.sample_perfect_tile(loop, 2, 8))
            return [sch]

    @ms.derived_object
    class Filtered(ms.space_generator.PostOrderApply):
        def __init__(self):
            self.sch_rules = []

    context = ms.TuneContext(
        product(), target="llvm", space_generator=Halves("C"), search_strategy="replay-trace"
    )
    context.pre_tuning(max_trials=2, num_trials_per_iter=2)
    assert len(context.generate_measure_candidates()) == 2
    generator = context.space_generator.clone()
    kinds = [type(part) for part in ms.Postproc.create("llvm")]
    assert [type(part) for part in generator.postprocs] == kinds
    assert generator.sch_rules and generator.mutator_probs and generator.block == "C"
    assert len(TraceSpace(product(), "llvm", Filtered()).designs) == 1


@pytest.mark.parametrize("part", ["rule", "postproc", "mutator", "generator", "function"])
def test_what_parts_of_users_raise_names_them(part):
    class Rule(ms.schedule_rule.PyScheduleRule):
        def apply(self, sch, block):
            raise ZeroDivisionError("oh")

    class Postproc(ms.postproc.PyPostproc):
        def apply(self, sch):
            raise ZeroDivisionError("oh")

    class Mutator(ms.mutator.PyMutator):
        def apply(self, trace):
            raise ZeroDivisionError("oh")

    class Generator(ms.space_generator.PySpaceGenerator):
        def generate_design_space(self, mod):
            raise ZeroDivisionError("oh")

    def function(sch):
        raise ZeroDivisionError("oh")

    generator = {
        "rule": lambda: ms.space_generator.PostOrderApply(sch_rules=[Rule()]),
        "postproc": lambda: ms.space_generator.PostOrderApply(postprocs=[Postproc()]),
        "mutator": lambda: ms.space_generator.PostOrderApply(mutator_probs={Mutator(): 1.0}),
        "generator": Generator,
        "function": lambda: ms.space_generator.ScheduleFn(function),
    }[part]()
    space, rng = TraceSpace(product(), "llvm", generator), random.Random(0)
    about = {"rule": "Rule.apply, for block C, raised"}.get(part, part)
    with pytest.raises(DerivedError, match=f"(?i){about}.*ZeroDivisionError: oh"):
        space.near(space.draw(rng).point, rng)


# -- spaces ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FUNCTIONS)
def test_points_give_right_schedules_that_replay(name):
    fn, rng = FUNCTIONS[name], random.Random(5)
    space = TraceSpace(fn, "llvm -num-cores=4")
    drawn = [space.draw(rng) for _ in range(5)]
    near = [space.near(c.point, rng) for c in drawn]
    between = space.between(drawn[0].point, near[1].point, rng)
    assert len({c.key for c in (*drawn, *near)}) > 3
    for each in (drawn[0], near[1], between):
        point = space.point_from_json(json.loads(json.dumps(each.point.as_json())))
        assert point == each.point and space.candidate(point).key == each.key
        again = Schedule(relaxvm.IRModule({"main": space.fn}))
        Trace.apply_json_to_schedule(each.schedule.trace.as_json(), again)
        assert ms.database.key_of(again.mod["main"]) == each.key
    check_same(fn, *(c.schedule for c in (*drawn[:2], near[2], between)))
    assert "meta_schedule.parallel" not in drawn[0].fn.script()


def test_the_default_of_traces_is_the_function_as_it_is_written():
    space = TraceSpace(product(), "llvm")
    default = space.default()
    assert default.key == ms.database.key_of(space.fn)
    assert space.near(default.point, random.Random(0)).key != default.key
    with pytest.raises(ScheduleError, match="JSON form of a trace"):
        space.point_from_json({"no": "trace"})


def test_mutators_change_one_decision():
    space = TraceSpace(stencil(), "llvm -num-cores=4")
    trace = space.draw(random.Random(1)).point.trace
    mutators = {type(m).__name__: m for m in space.generator.mutator_probs}
    for name, mutator in mutators.items():
        mutator.rng = random.Random(2)
        changed = mutator.apply(trace)
        assert changed is not None, name
        differs = [
            (one.name, trace.get_decision(one), changed.get_decision(other))
            for one, other in zip(trace.insts, changed.insts)
            if trace.get_decision(one) != changed.get_decision(other)
            or one.args.get("ann_val") is not other.args.get("ann_val")
        ]
        assert len(differs) == 1, name
        if name == "MutateTileSize":
            assert np.prod(differs[0][1]) == np.prod(differs[0][2])
    assert set(mutators) == {
        "MutateTileSize", "MutateComputeLocation", "MutateUnroll", "MutateParallel"
    }  # fmt: skip
    assert all(mutator.apply(Trace()) is None for mutator in mutators.values())


def test_mutators_of_users_may_take_a_seed_as_tvm_gives_it():
    seeds = []

    @ms.derived_object
    class Undecided(ms.mutator.PyMutator):
        def apply(self, trace, seed):
            seeds.append(seed)
            return Trace(trace.insts, {}) if len(seeds) < 3 else "nothing"

    space = TraceSpace(
        product(), "llvm", ms.space_generator.PostOrderApply(mutator_probs={Undecided(): 1})
    )
    rng = random.Random(0)
    point = space.draw(rng).point
    assert len({space.near(point, rng).key for _ in range(2)}) == len(set(seeds)) == 2
    with pytest.raises(DerivedError, match=r"Undecided\.apply .*wanted a Trace or None, got str"):
        space.near(point, rng)


def test_a_sum_of_no_terms_stays_as_it_is():
    space = TraceSpace(long_sum(3, 0), "llvm -num-cores=4")
    check_same(space.fn, space.draw(random.Random(0)).schedule)


def test_functions_that_schedule_are_designs():
    def tiled(sch):
        i, j, _ = sch.get_loops(sch.get_block("C"))
        sch.split(i, sch.sample_perfect_tile(i, 2, 4))
        other = sch.copy()
        other.vectorize(j)
        return [sch, other]

    space = TraceSpace(product(), "llvm", ms.SpaceGenerator.create(tiled))
    assert len(space.designs) == 2
    rng = random.Random(0)
    both = ms.space_generator.SpaceGeneratorUnion(
        [ms.space_generator.ScheduleFn(tiled), ms.space_generator.PostOrderApply()]
    )
    assert len(both.generate_design_space(relaxvm.IRModule({"main": product()}))) == 5
    check_same(
        product(), *(TraceSpace(product(), "llvm", both).draw(rng).schedule for _ in range(3))
    )


def test_unions_draw_from_all_their_spaces():
    space = whole_space(product(), "llvm -num-cores=2")
    assert space.default().key == Space(product(), "llvm -num-cores=2").default().key
    rng = random.Random(0)
    drawn = [space.draw(rng) for _ in range(12)]
    assert {c.point.space for c in drawn} == {"known", "rules"}
    a, b = (next(c for c in drawn if c.point.space == name) for name in ("known", "rules"))
    assert space.between(a.point, b.point, rng).point.space in ("known", "rules")
    for each in (a, b, space.near(b.point, rng), space.between(b.point, b.point, rng)):
        point = space.point_from_json(json.loads(json.dumps(each.point.as_json())))
        assert space.candidate(point).key == each.key
    assert space.point_from_json(Point(caches=1).as_json()).point == Point(caches=1)
    with pytest.raises(ScheduleError, match="no space is called 'far'; there are: known, rules"):
        space.point_from_json({"space": "far", "point": None})
    assert isinstance(space, UnionSpace) and isinstance(b.point.point, Traced)


# -- postprocessors --------------------------------------------------------------------------------


def test_dynamic_loops_are_refused():
    n = relaxvm.tir.Var("n", "int64")
    a = te.placeholder((n,), "float32", "A")
    fn = te.create_prim_func([a, te.compute((n,), lambda i: a[i] + 1.0, "B")])
    space = TraceSpace(fn, "llvm")
    with pytest.raises(ScheduleError, match="DisallowDynamicLoop refused the candidate"):
        space.draw(random.Random(0))
    assert space.refused == {"DisallowDynamicLoop": 1}


def test_free_layouts_are_those_that_loops_want():
    fn = product(8, 16, 32).with_attr("layout_free_buffers", [1])
    sch = Schedule(fn)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    outer, inner = sch.split(j, [None, 8])
    sch.reorder(outer, i, k, inner)
    assert ms.postproc.RewriteLayout().apply(sch)
    assert names(sch) == ["B_global", "C"]
    assert "layout_rewrite_preproc" in sch.mod.script()
    check_same(fn, sch)


def test_steps_of_one_function_are_done_to_another_with_the_same_block():
    anchor, other = product(), product(12, 16, 25, epilogue=True)
    sch = TraceSpace(anchor, "llvm -num-cores=4").draw(random.Random(3)).schedule
    tiles = [i.name for i in sch.trace.insts].count("sample_perfect_tile")
    for fn in (anchor, other, stencil()):
        again = Schedule(fn)
        ms.trace_apply.schedule_using_anchor_trace(again, sch.trace, "llvm -num-cores=4")
        drawn = [i for i in again.trace.insts if i.name == "sample_perfect_tile"]
        assert len(drawn) == (0 if fn not in (anchor, other) else tiles)
        check_same(fn, again)
    # None of its blocks is named by the trace.
    assert "T.parallel" in again.mod.script()


# -- in a tuning -----------------------------------------------------------------------------------


def test_a_space_without_a_valid_candidate_is_an_error_that_says_what_refused_them():
    class Never(ms.postproc.PyPostproc):
        def apply(self, sch):
            return False

    space = ms.space_generator.PostOrderApply(postprocs=[Never()])
    few = ms.search_strategy.EvolutionarySearch(genetic_max_fail_count=2)
    replays = ms.search_strategy.ReplayTrace(2), ms.search_strategy.ReplayFunc(2)
    for strategy in (few, *replays):
        context = ms.TuneContext(
            product(4, 4, 8), target="llvm -num-cores=1", space_generator=space.clone(),
            search_strategy=strategy.clone(),
        )  # fmt: skip
        context.pre_tuning(max_trials=2, num_trials_per_iter=2)
        told = r"main: no candidate is left: Never refused \d+ \(the last: it gives False\)"
        with pytest.raises(ScheduleError, match=told):
            context.generate_measure_candidates()
    with pytest.raises(ScheduleError, match=r"main: no candidate is left: Never refused \d+"):
        ms.tune_tir(
            product(4, 4, 8), "llvm -num-cores=1", max_trials_global=2, space=space, strategy=few,
            listener=False,
        )  # fmt: skip


def test_users_tune_with_their_own_space():
    def rows(sch):
        i, j, _ = sch.get_loops(sch.get_block("C"))
        sch.reorder(j, i)
        sch.split(i, sch.sample_perfect_tile(i, 2, 4))

    context = ms.TuneContext(
        product(), target="llvm -num-cores=1", space_generator=rows, rand_state=1,
        search_strategy="replay-trace",
    )  # fmt: skip
    context.pre_tuning(max_trials=3, num_trials_per_iter=3)
    candidates = context.generate_measure_candidates()
    assert {len(c.sch.get_loops(c.sch.get_block("C_update"))) for c in candidates} == {4}
    with pytest.raises(DerivedError, match="ZeroDivisionError"):
        ms.tune_tir(
            product(4, 4, 8), "llvm -num-cores=1", max_trials_global=2, space=lambda sch: 1 / 0,
            listener=False,
        )  # fmt: skip


def test_without_a_space_known_plans_and_rules_are_searched():
    drawn = set()
    # A third of 16 is "known", by chance, and fewer where time is short.
    for _ in range(8):
        context = ms.TuneContext(
            triangular(), target="llvm -num-cores=1", search_strategy="evolutionary"
        )
        context.pre_tuning(max_trials=16, num_trials_per_iter=16)
        drawn |= {c.point.space for c in context.generate_measure_candidates()}
        if len(drawn) > 1:
            break
    assert drawn == {"known", "rules"}


def test_vectors_fill_innermost_tiles():
    rule = ms.schedule_rule.MultiLevelTilingWideVector("SSRS", 256)
    (sch,) = applied(rule, product(), "C")
    assert sch.get(sch.get_loops(sch.get_block("C"))[-1]).extent.value % 8 == 0
    check_same(product(), sch)
