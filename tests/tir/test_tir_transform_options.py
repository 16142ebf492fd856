"""What `PassContext(config={...})` says to the passes over loops."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from memory_programs import program
from transform_helpers import check, parse

import relaxvm
from relaxvm import te
from relaxvm.base import PassError, TIRError
from relaxvm.ir import IRModule, PassContext, const, walk
from relaxvm.ir.walk import transform
from relaxvm.tir import (
    Block,
    BlockRealize,
    BufferRegion,
    BufferStore,
    For,
    ForKind,
    IfThenElse,
    MatchBufferRegion,
    PrimFunc,
    decl_buffer,
    interpret,
    seq,
)
from relaxvm.tir.analysis import verify_well_formed
from relaxvm.tir.transform import (
    CommonSubexprElimTIR,
    CompactBufferAllocation,
    HoistedConditionals,
    HoistedLetBindings,
    HoistExpression,
    HoistIfThenElse,
    LoopPartition,
    ReduceBranchingThroughOvercompute,
    RemoveAssume,
    RemoveNoOp,
    RemoveStoreUndef,
    Simplify,
    SkipAssert,
    UseAssumeToReduceBranches,
    VectorizeLoop,
    prim_func_pass,
)


def body_of(pass_, text, **config):
    """The function after `pass_` under `config`, its keys without "tir."."""
    with PassContext(config={f"tir.{k}": v for k, v in config.items()}):
        return pass_(IRModule({"main": parse(text)}))["main"]


def loops(fn):
    return [(n.kind, n.extent.value) for n in walk(fn) if isinstance(n, For)]


# -- keys ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["tir.UnrollLoop", "s_tir.UnrollLoop", "tirx.UnrollLoop"])
def test_the_options_of_a_pass_may_stand_together(key):
    ctx = PassContext(config={key: {"auto_max_step": 16, "explicit_unroll": 0}})
    assert ctx.get("tir.UnrollLoop.auto_max_step") == 16
    assert ctx.get("tir.UnrollLoop.explicit_unroll") is False
    assert ctx.get("tir.UnrollLoop.auto_max_depth") == 8


@pytest.mark.parametrize(
    ("config", "nearest"),
    [
        ({"tir.UnrollLoop": {"auto_max_steps": 16}}, "tir.UnrollLoop.auto_max_step"),
        ({"tir.Simplfy": {"propagate_knowns_to_prove_conditional": True}}, "tir.Simplify"),
        ({"tir.disable_vectorise": True}, "tir.disable_vectorize"),
    ],
)
def test_unknown_keys_name_the_nearest(config, nearest):
    with pytest.raises(PassError, match=f"unknown config key.*did you mean.*{nearest}"):
        PassContext(config=config)


def test_keys_of_passes_that_are_absent_say_why_once():
    with pytest.warns(UserWarning, match="InjectDoubleBuffer.*changes nothing.*a CPU has none"):
        PassContext(config={"tir.InjectDoubleBuffer": {"split_loop": 1}})
    assert not PassContext(config={"tir.InjectDoubleBuffer": {"split_loop": 1}}).config


def test_keys_are_known_before_the_passes_are_imported():
    program = "from relaxvm.ir import PassContext; PassContext(config={'tir.noalias': False})"
    subprocess.run([sys.executable, "-c", program], check=True)


# -- passes of one's own ---------------------------------------------------------------------------

DOUBLED = """
def main(A: T.Buffer((4, 4), "int32"), B: T.Buffer((4, 4), "int32")):
    for i, j in T.grid(4, 4):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * 2
"""


@pytest.mark.parametrize("phase", range(4))
def test_passes_of_a_user_run_in_their_phase(phase):
    seen = []

    @prim_func_pass(opt_level=0)
    def Plus(fn, mod, ctx):
        stores = [n for n in walk(fn.body) if isinstance(n, BufferStore)]
        seen.append((len(stores[0].indices), "T.block" in fn.script()))
        made = fn.body
        for n in stores:
            made = transform(made, lambda m, n=n: m.replace(value=m.value + 1) if m is n else None)
        return fn.replace(body=made)

    with PassContext(config={"tir.add_lower_pass": [(phase, Plus())]}):
        run = relaxvm.build(parse(DOUBLED), target="llvm")
    assert seen[0] == ((2, True) if phase == 0 else (1, False))
    a, b = np.arange(16, dtype="int32").reshape(4, 4), np.zeros((4, 4), "int32")
    run(a, b)
    assert (b == a * 2 + 1).all()


def test_what_a_pass_of_a_user_makes_stays_within_its_memory():
    @prim_func_pass(opt_level=0)
    def Away(fn, mod, ctx):
        def moved(n):
            return n.replace(indices=(n.indices[0] + 1000,)) if type(n) is BufferStore else None

        return fn.replace(body=transform(fn.body, moved))

    with PassContext(config={"tir.add_lower_pass": [(1, Away())]}):
        run = relaxvm.build(parse(DOUBLED), target="llvm")
    with pytest.raises(relaxvm.base.RelaxvmError, match="B"):
        run(np.zeros((4, 4), "int32"), np.zeros((4, 4), "int32"))


@pytest.mark.parametrize("value", [[(4, VectorizeLoop())], [(1, len)], [VectorizeLoop()], ()])
def test_what_is_no_pass_with_a_phase_is_refused(value):
    with pytest.raises(PassError, match="add_lower_pass"):
        PassContext(config={"tir.add_lower_pass": value})


# -- whole functions -------------------------------------------------------------------------------


def test_functions_of_formulas_promise_no_separate_memory_if_told_so():
    x = te.placeholder((8,), "float32", "x")
    y = te.compute((8,), lambda i: x[i] + x[7 - i])
    assert te.create_prim_func([x, y]).get_attr("tir.noalias")
    with PassContext(config={"tir.noalias": False}):
        fn = te.create_prim_func([x, y])
        assert fn.get_attr("tir.noalias") is None
        run = relaxvm.build(fn, target="llvm")
    a, want = np.arange(8, dtype="float32"), np.arange(8, dtype="float32")
    interpret(fn, want, want)
    run(a, a)
    assert (a == want).all()


def test_vectorised_loops_are_serial_if_told_so():
    text = """
def main(A: T.Buffer((8,), "float32")):
    for i in T.vectorized(8):
        A[i] = T.float32(1)
"""
    assert loops(body_of(VectorizeLoop(), text)) == []
    assert loops(body_of(VectorizeLoop(), text, disable_vectorize=True)) == [(ForKind.SERIAL, 8)]


def test_vectorised_loops_stay_marked_if_told_so_unless_they_mind_their_order():
    text = """
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((9,), "float32")):
    for i in T.vectorized(8):
        A[i] = B[i]
    for i in T.vectorized(8):
        B[i + 1] = B[i]
"""
    left = loops(body_of(VectorizeLoop(), text, **{"VectorizeLoop.explicit_vectors": False}))
    assert left == [(ForKind.VECTORIZED, 8), (ForKind.SERIAL, 8)]


# -- LoopPartition ---------------------------------------------------------------------------------

BOUNDED = """
def main(A: T.Buffer((8,), "float32")):
    for i in range(9):
        if i < 8:
            A[i] = T.float32(1)
        else:
            A[0] = T.float32(2)
"""
HINTED = BOUNDED.replace("range(9)", 'T.serial(9, annotations={"loop_partition_hint": True})')
WHOLE = HINTED.replace("i < 8", "A[0] < T.float32(8)").replace("A[i]", "A[i % 8]")


@pytest.mark.parametrize(
    ("text", "option", "extents"),
    [
        (BOUNDED, None, [9]),
        (BOUNDED, "partition_const_loop", [8]),
        (HINTED, None, [8]),
        (HINTED, "no_unroll_loop_with_extent_one", [8, 1]),
        (HINTED, "unroll_loop_with_partition_hint_no_interval", [8]),
        (WHOLE, None, [9]),
        (WHOLE, "unroll_loop_with_partition_hint_no_interval", ["9"]),
    ],
)
def test_loops_are_split_as_configured(text, option, extents):
    fn = body_of(LoopPartition(), text, LoopPartition={option: True} if option else {})
    found = [str(n) if k == ForKind.UNROLLED else n for k, n in loops(fn)]
    assert found == extents
    want, got = np.zeros(8, "float32"), np.zeros(8, "float32")
    interpret(parse(text), want)
    interpret(fn, got)
    assert (got == want).all()


# -- CompactBufferAllocation -----------------------------------------------------------------------


def test_buffers_may_grow_along_an_axis_if_told_so():
    text = """
def main(A: T.Buffer((6, 8), "float32"), B: T.Buffer((6, 8), "float32")):
    with T.block(""):
        T.reads()
        T.writes()
        t = T.alloc_buffer((6, 6))
        for i in range(6):
            for j in range(8):
                with T.block(""):
                    T.where(j < 6)
                    T.reads()
                    T.writes()
                    t[i, j] = A[i, j]
            for j in range(6):
                with T.block(""):
                    T.reads()
                    T.writes()
                    B[i, j] = t[i, j]
"""
    a = np.arange(48, dtype="float32").reshape(6, 8)
    for is_strict, size in ((True, 6), (False, 8)):
        fn = body_of(CompactBufferAllocation(is_strict=is_strict), text)
        assert fn.body.block.alloc_buffers[0].shape[0].value == size
        b = np.zeros((6, 8), "float32")
        interpret(fn, a, b)
        assert (b[:, :6] == a[:, :6]).all()


# -- what buffers are known to hold ----------------------------------------------------------------

KNOWN = {
    "Simplify": {
        "propagate_knowns_to_prove_conditional": True,
        "propagate_knowns_to_simplify_expressions": True,
        "apply_constraints_to_boolean_branches": True,
        "enable_simplify_let_inline": True,
    },
    "RemoveNoOp": {"use_dataflow_analysis": True},
}


def test_a_view_under_the_name_of_its_source_is_that_memory():
    # No script says this, but a function may be built so.
    a = decl_buffer((8,), "int32", "A")
    view = a.replace(name="V")
    zero, one = (const(n, "int32") for n in (0, 1))
    inner = Block(
        (), (), (), "x", BufferStore(view, one, (zero,)),
        match_buffers=(MatchBufferRegion(view, BufferRegion.full_region(a)),),
    )  # fmt: skip
    body = seq(BufferStore(a, zero, (zero,)), BlockRealize((), const(True), inner))
    fn = PrimFunc((a,), body)
    config = {f"tir.Simplify.{k}": v for k, v in KNOWN["Simplify"].items()}
    with PassContext(config=config):
        assert Simplify()(IRModule({"main": fn}))["main"].body is body


@pytest.mark.parametrize(
    "pass_",
    [
        Simplify(),
        RemoveNoOp(),
        HoistExpression(),
        HoistIfThenElse(),
        ReduceBranchingThroughOvercompute(),
        CommonSubexprElimTIR(identify_equiv_terms=True),
    ],
    ids=repr,
)
def test_optional_rewrites_change_no_result(pass_):
    changed = 0
    for seed in range(150):
        text = program(seed)
        fn = parse(text)
        made = body_of(pass_, text, **KNOWN)
        verify_well_formed(made)
        plain = body_of(pass_, text) if pass_.info.name in KNOWN else fn
        changed += made.script() != plain.script()
        arrays = [np.arange(12, dtype="int32").reshape(2, 6) % 5 for _ in range(2)]
        for scalars in ((5, 0), (0, 3)):
            want, got = (a.copy() for a in arrays)
            interpret(fn, *want, *scalars)
            interpret(made, *got, *scalars)
            assert (want == got).all(), f"seed {seed}\n{text}\n{made.script()}"
            if not fn.get_attr("tir.noalias"):
                one, other = want[0].copy(), want[0].copy()
                interpret(fn, one, one, *scalars)
                interpret(made, other, other, *scalars)
                assert (one == other).all(), f"seed {seed}, one array\n{text}\n{made.script()}"
    assert changed > 5


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("A[2] = 7\n    if A[2] < 8:\n        B[0] = A[2]", "A[2] = 7\n    B[0] = 7"),
        (
            "for i in range(8):\n        A[i] = i\n    if A[n % 8] < 8:\n        B[0] = A[5]",
            "for i in range(8):\n        A[i] = i\n    B[0] = 5",
        ),
        (
            "for i in range(8):\n        if i < 6:\n            A[i] = i\n        else:\n"
            "            A[i] = 0\n    B[0] = A[7] + A[3]",
            "for i in range(8):\n        if i < 6:\n            A[i] = i\n        else:\n"
            "            A[i] = 0\n    B[0] = 3",
        ),
        (
            "for i in range(8):\n        T.evaluate(T.assume(i < 6 or A[i] == 0))\n    B[0] = A[6]",
            "for i in range(8):\n        T.evaluate(T.assume(i < 6 or A[i] == 0))\n    B[0] = 0",
        ),
        ("A[n % 8] = 7\n    B[0] = A[3]", None),
        ("for i in range(n):\n        A[3] = 7\n    B[0] = A[3]", None),
        ("for i in range(7):\n        A[i] = 1\n        A[i + 1] = 2\n    B[0] = A[3]", None),
    ],
)
def test_values_that_are_known_replace_loads(before, after):
    head = '\ndef main(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32"), n: T.int32):\n'
    head += '    T.func_attr({"tir.noalias": True})\n    '
    with PassContext(config={f"tir.{k}": v for k, v in KNOWN.items()}):
        check(Simplify(), head + before + "\n", (head + (after or before) + "\n"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("i < 4 and (i < 5 or j == 3)", "i < 4"),
        ("i < 4 or (i < 5 and i >= 4 and j == 3)", "i < 4 or i < 5 and j == 3"),
        ("i < 4 and A[i] == 0 and i < 3", "i < 4 and A[i] == 0 and i < 3"),
    ],
)
def test_conditions_joined_by_and_or_or_hold_in_each_other_if_asked(before, after):
    head = '\ndef main(A: T.Buffer((8,), "int32"), i: T.int32, j: T.int32):\n'
    head += "    if {}:\n        A[0] = 1\n"
    with PassContext(config={"tir.Simplify": KNOWN["Simplify"]}):
        check(Simplify(), head.format(before), head.format(after))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("A[2] = 7\n    A[2] = 7", "A[2] = 7"),
        ("A[2] = A[2]\n    B[0] = 1", "B[0] = 1"),
        ("A[2] = 7\n    B[0] = 1\n    A[2] = 8", "B[0] = 1\n    A[2] = 8"),
        (
            "for i in range(4):\n        A[i] = 7\n    for i in range(8):\n        A[i] = 8",
            "for i in range(8):\n        A[i] = 8",
        ),
        ("for i in range(8):\n        A[i] = 7\n    for i in range(4):\n        A[i] = 8", None),
        ("A[2] = 7\n    B[0] = A[2]\n    A[2] = 8", None),
        ("A[2] = 7\n    A[2] = A[2] + 1", None),
    ],
)
def test_stores_that_change_nothing_are_removed_if_asked(before, after):
    head = '\ndef main(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):\n'
    head += '    T.func_attr({"tir.noalias": True})\n    '
    with PassContext(config={f"tir.{k}": v for k, v in KNOWN.items()}):
        check(RemoveNoOp(), head + before + "\n", head + (after or before) + "\n")


# -- HoistExpression -------------------------------------------------------------------------------

NESTED = """
def main(A: T.Buffer((8,), "int32"), B: T.Buffer((8, 8), "int32"), n: T.int32):
    for i, j in T.grid(8, 8):
        x: T.int32 = n * 2
        if i < 4 and x < 6:
            B[i, j] = T.if_then_else(n < 9, 1, x)
        else:
            B[i, j] = 2
"""


@pytest.mark.parametrize(
    ("conditionals", "lets", "outside"),
    [
        (HoistedConditionals.Never, HoistedLetBindings.Never, []),
        (HoistedConditionals.Never, HoistedLetBindings.LetStmt, ["LetStmt"]),
        (HoistedConditionals.IfElseExpr, HoistedLetBindings.Never, ["n < 9"]),
        (HoistedConditionals.IfElseStmt, HoistedLetBindings.RequiredByConditional, []),
        (
            HoistedConditionals.BooleanExpression,
            HoistedLetBindings.RequiredByConditional,
            ["n * 2 < 6"],
        ),
        (HoistedConditionals.All, HoistedLetBindings.All, ["LetStmt", "x < 6", "n < 9"]),
    ],
)
def test_what_leaves_a_loop_is_configured(conditionals, lets, outside):
    chosen = {"hoisted_conditionals": conditionals, "hoisted_let_bindings": lets.value}
    fn = body_of(HoistExpression(), NESTED, HoistExpression=chosen)
    found, at = [], fn.body
    while not isinstance(at, For):
        found.append(str(at.condition) if isinstance(at, IfThenElse) else type(at).__name__)
        at = at.then_case if isinstance(at, IfThenElse) else at.body
    assert found == outside
    for n in (0, 2, 3, 5, 10):
        want, got = np.zeros((8, 8), "int32"), np.zeros((8, 8), "int32")
        interpret(parse(NESTED), np.zeros(8, "int32"), want, n)
        interpret(fn, np.zeros(8, "int32"), got, n)
        assert (want == got).all()


# -- conditions that do nothing --------------------------------------------------------------------

ASSUMED = "for i in range(16):\n        T.evaluate(T.assume(i < 14 or A[i] == 0))\n    "
LOOP = ASSUMED + "for i in range(16):\n        "


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "if i < 14:\n            B[i] = A[i] + 1\n        else:\n            B[i] = 1",
            "B[i] = A[i] + 1",
        ),
        ("B[i] = T.if_then_else(i < 14, A[i], 0)", "B[i] = A[i]"),
        ("B[i] = T.if_then_else(i >= 14, 0, A[i])", "B[i] = A[i]"),
        ("B[i] = T.if_then_else(i < 14, A[i], 1)", None),
        ("B[i] = T.if_then_else(i < 13, A[i], 0)", None),
        ("B[i] = T.if_then_else(i < 14, A[i + 2], 0)", None),
    ],
)
def test_conditions_that_change_nothing_are_dropped(before, after):
    head = '\ndef main(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32")):\n'
    head += '    T.func_attr({"tir.noalias": True})\n    '
    for pass_ in (ReduceBranchingThroughOvercompute(), UseAssumeToReduceBranches()):
        check(pass_, head + LOOP + before + "\n", head + LOOP + (after or before) + "\n")


def test_what_blocks_assume_is_used_in_blocks():
    head = """
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    T.func_attr({"tir.noalias": True})
    for i in range(16):
        with T.block("a"):
            v = T.axis.spatial(16, i)
            T.evaluate(T.assume(v < 14 or A[v] == T.float32(0)))
    for i in range(16):
        with T.block("b"):
            v = T.axis.spatial(16, i)
            B[v] = """
    before, after = "T.if_then_else(v < 14, A[v], T.float32(0))\n", "A[v]\n"
    check(UseAssumeToReduceBranches(), head + before, head + after)


def test_what_only_tells_the_compiler_something_is_removed():
    head = '\ndef main(A: T.Buffer((16,), "int32"), B: T.Buffer((16,), "int32")):\n    '
    loop = "for i in range(16):\n        {}B[i] = 1\n"
    assume = "T.evaluate(T.assume(i < 14 or A[i] == 0))\n        "
    check(RemoveAssume(), head + loop.format(assume), head + loop.format(""))
    stores = "for i in range(16):\n        {}B[i] = A[i]\n"
    undef = 'B[i] = T.undef(dtype="int32")\n        '
    check(RemoveStoreUndef(), head + stores.format(undef), head + stores.format(""))
    asserted = 'assert A[i] < 4, "too large"\n        '
    check(SkipAssert(), head + stores.format(asserted), head + stores.format(""))
    with pytest.raises(TIRError, match="T.undef"):
        body_of(RemoveStoreUndef(), head + 'A[0] = T.undef(dtype="int32") + 1\n')


# -- CommonSubexprElimTIR --------------------------------------------------------------------------

TWICE = "x: T.int32 = n * 2 + m\n    A[x] = A[x] + "


@pytest.mark.parametrize(
    ("options", "config", "after"),
    [
        ({}, {}, TWICE + "(m + 2 * n)"),
        ({"enable_cse_tir": False}, {}, None),
        ({}, {"disable_cse_tir": True}, None),
        ({"identify_equiv_terms": True}, {}, TWICE + "x"),
        (
            {},
            {"enable_equiv_terms_in_cse_tir": True},
            TWICE + "x",
        ),
    ],
)
def test_terms_that_are_there_twice_become_variables(options, config, after):
    head = '\ndef main(A: T.Buffer((99,), "int32"), n: T.int32, m: T.int32):\n    '
    before = head + "A[n * 2 + m] = A[n * 2 + m] + (m + 2 * n)\n"
    with PassContext(config={f"tir.{k}": v for k, v in config.items()}):
        check(CommonSubexprElimTIR(**options), before, head + after + "\n" if after else before)
