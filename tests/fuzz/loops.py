"""Random loop functions under random schedules: they give what they gave as they were written, in
the interpreter, after every lowering pass, as machine code and as rebuilt machine code. For other
CPUs they are compiled only.
"""

from __future__ import annotations

import copy
import random

import numpy as np
from schedule_helpers import KERNELS, SYMBOLS
from target_helpers import as_argument, assert_same

from fuzz.hostile_kernels import KERNELS as BY_HAND
from fuzz.hostile_loops import Writer
from fuzz.loop_programs import INTS, SCALARS, arguments, array_from, program
from fuzz.schedule_steps import random_schedule
from relaxvm import tir
from relaxvm.ir import IRModule, assert_structural_equal
from relaxvm.runtime import Module, NDArray
from relaxvm.script import from_source
from relaxvm.target import compile_prim_funcs, rebuild_kernels
from relaxvm.tir import Schedule
from relaxvm.tir.analysis import verify_well_formed
from relaxvm.tir.schedule import Trace
from relaxvm.tir.transform import (
    LOWER_TIR,
    CanonicalizeLoop,
    CommonSubexprElimTIR,
    ConvertForLoopsToSerial,
    ConvertSSA,
    HoistExpression,
    InjectVirtualThread,
    LowerCrossThreadReduction,
    NarrowDataType,
    ReduceBranchingThroughOvercompute,
    RewriteUnsafeSelect,
    SkipAssert,
    StorageRewrite,
    UnifyThreadBinding,
)

OTHER_PASSES = (
    StorageRewrite(),
    CanonicalizeLoop(),
    RewriteUnsafeSelect(),
    ConvertSSA(),
    UnifyThreadBinding(),
    InjectVirtualThread(),
    LowerCrossThreadReduction(),
    CommonSubexprElimTIR(),
    ConvertForLoopsToSerial(),
    HoistExpression(),
    NarrowDataType(32),
    NarrowDataType(64),
    ReduceBranchingThroughOvercompute(),
    SkipAssert(),
)
CPUS = ("haswell", "skylake-avx512", "sapphirerapids", "znver4", "znver5", "x86-64")
WAYS = ("interpreter", "interpreter", "passes", "machine", "rebuilt", *CPUS)
SOURCES = ("program", "whole_numbers", "hostile", "by_hand", "kernel")


def make(rng: random.Random, sources=SOURCES, ways=WAYS, steps=(2, 6, 12)) -> dict:
    source, way = rng.choice(sources), rng.choice(ways)
    case = {"sizes": [{}], "low": -4, "high": 5, "edges": False, "exact": False}
    if source in ("program", "whole_numbers"):
        # Numbers that no order of adding changes may be scheduled.
        whole = source == "whole_numbers"
        made = program(rng, (*INTS, tir.const(True).dtype) if whole else SCALARS, inexact=False)
        fn = made.func
        case |= {"sizes": [dict(made.sizes)], "edges": True, "exact": True}
        steps = steps if whole else (0,)
    elif source == "hostile":
        kernel = Writer(rng)
        fn = function(kernel.text)
        case["sizes"] = [{"n": n} for n in kernel.sizes]
    elif source == "by_hand":
        fn = function(BY_HAND[rng.choice(list(BY_HAND))])
        case["low"] = 1
    else:
        name = rng.choice(list(KERNELS))
        fn = KERNELS[name]()
        case["sizes"] = [dict(zip("nmk", sizes)) for sizes in SYMBOLS.get(name, [()])]
    count = rng.choice(steps)
    sch, _ = random_schedule(fn, np.random.default_rng(rng.getrandbits(60)), count)
    insts, decisions = sch.trace.as_json() if count else ([], [])
    return {
        **case,
        "way": way,
        "seed": rng.getrandbits(30),
        "decisions": decisions,
        "steps": insts,
        "lines": fn.script().splitlines(),
    }


def function(text: str) -> tir.PrimFunc:
    made = from_source(text)
    return made if isinstance(made, tir.PrimFunc) else made["main"]


def given(fn: tir.PrimFunc, case: dict, sizes: dict) -> list:
    """The arguments of a call."""
    rng = random.Random(case["seed"])
    if case["edges"]:
        return arguments(fn, sizes, rng)
    made = arguments(fn, sizes, rng, edges=False)
    sides = [n for a in made for n in np.shape(a)]
    for k, (a, p) in enumerate(zip(made, fn.params)):
        if p not in fn.buffer_map:
            continue
        dtype, low, high = fn.buffer_map[p].dtype, case["low"], case["high"]
        if dtype == "int32" and low < 0:
            # What may be an index.
            low, high = 0, max(1, min(sides))
        elif dtype.is_int and not dtype.is_signed:
            low = max(low, 0)
        numbers = [rng.randrange(low, high) for _ in range(max(1, np.size(a)))]
        made[k] = array_from(numbers, dtype, np.shape(a))
    return made


def run_machine(fn: tir.PrimFunc, args: list, rebuilt: bool) -> None:
    section = compile_prim_funcs(IRModule({"main": fn}))
    if rebuilt:
        section = rebuild_kernels(section.portable, section.names)
    dtypes = [fn.buffer_map[p].dtype if p in fn.buffer_map else None for p in fn.params]
    ready = [as_argument(a, str(d)) if d else a for a, d in zip(args, dtypes)]
    Module(section, trusted=True)["main"](*ready)
    for a, r in zip(args, ready):
        if isinstance(r, NDArray):
            a[...] = r.array


def same(wanted: list, got: list, fn: tir.PrimFunc, exact: bool) -> None:
    for p, w, g in zip(fn.params, wanted, got):
        if p not in fn.buffer_map:
            continue
        if exact:
            assert_same(g.reshape(-1), w.reshape(-1), str(fn.buffer_map[p].dtype), 0, p.name)
        else:
            # What nobody had written before (NaN) may be anything.
            g[w != w] = w[w != w]
            np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-4)


def check(case: dict) -> bool:
    fn, way = function("\n".join(case["lines"]) + "\n"), case["way"]
    verify_well_formed(fn)
    sch = Schedule(fn, error_render_level="fast")
    Trace.apply_json_to_schedule([case["steps"], case["decisions"]], sch)
    after = sch.mod["main"].with_attr("global_symbol", "main")
    verify_well_formed(after)
    if case["steps"]:
        replay(fn, sch)
    if way in CPUS:
        compile_prim_funcs(IRModule({"main": after}), f"llvm -mtriple=x86_64-linux-gnu -mcpu={way}")
        return True
    for sizes in case["sizes"]:
        args = given(fn, case, sizes)
        wanted, got = copy.deepcopy(args), copy.deepcopy(args)
        tir.interpret(fn, *wanted)
        if way in ("machine", "rebuilt"):
            run_machine(after, got, way == "rebuilt")
        else:
            tir.interpret(after, *got)
        same(wanted, got, fn, case["exact"])
        if way == "passes":
            by_passes(after, args, wanted, case["exact"])
    return True


def replay(fn: tir.PrimFunc, sch: Schedule) -> None:
    """The trace as Python gives the same."""
    scope: dict = {}
    exec(str(sch.trace), {"tir": tir}, scope)
    again = Schedule(fn)
    scope["apply_trace"](again)
    assert_structural_equal(again.mod["main"], sch.mod["main"])


def by_passes(fn: tir.PrimFunc, args: list, wanted: list, exact: bool) -> None:
    """After each lowering pass the results are those of the function as written; so they are if
    one of `OTHER_PASSES` follows.
    """
    mod = IRModule({"main": fn})
    for k, each in enumerate(LOWER_TIR):
        if each.info.name == "InstrumentBoundCheckers":
            continue
        before = mod["main"]
        mod = each(mod)
        verify_well_formed(mod)
        if mod["main"] is before:
            assert each(mod)["main"] is before, f"{each.info.name} finds more the second time"
        got = copy.deepcopy(args)
        tir.interpret(mod["main"], *got)
        same(wanted, got, fn, exact)
        other = OTHER_PASSES[(k + len(args)) % len(OTHER_PASSES)](mod)
        verify_well_formed(other)
        got = copy.deepcopy(args)
        tir.interpret(other["main"], *got)
        same(wanted, got, fn, exact)
