"""Random modules of graph functions: after any passes, at any level, in both ways of running them,
with the memory planned or not, they give what numpy gives.
"""

from __future__ import annotations

import contextlib
import random

import numpy as np
from relax_vm_helpers import build_interpreted

from fuzz import graph_programs, language_programs
from relaxvm import relax
from relaxvm.base import VMValueError
from relaxvm.ir import PassContext
from relaxvm.relax import dpl, transform
from relaxvm.relax.analysis import assert_well_formed
from relaxvm.relax.interp import CheckFailed, Evaluator
from relaxvm.runtime import VirtualMachine
from relaxvm.runtime.threads import set_num_threads
from relaxvm.script import from_source

W, SUM = dpl.wildcard, dpl.is_op("relax.add")
PRODUCT = dpl.is_op("relax.multiply")(W(), W()) | dpl.is_op("relax.subtract")(W(), W())
PASSES = {
    p.info.name + ("(call_only)" if p.options else ""): p
    for p in (
        transform.CanonicalizeBindings(),
        transform.CanonicalizeCast(),
        transform.CanonicalizeOps(),
        transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]}),
        transform.ConvertToDataflow(),
        transform.AttachAttrLayoutFreeBuffers(),
        transform.BatchingOps(),
        transform.CombineParallelMatmul(),
        transform.DataflowUseInplaceCalls(),
        transform.DeadCodeElimination(),
        transform.DynamicToStatic(),
        transform.EliminateCommonSubexpr(),
        transform.EliminateCommonSubexpr(call_only=True),
        transform.EtaExpand(expand_global_var=True),
        transform.ExpandTupleArguments(),
        transform.FakeQuantizationToInteger(use_qat=True),
        transform.FlattenNestedTuples(),
        transform.FoldBatchnormToConv2D(),
        transform.FoldConstant(),
        transform.FoldScaleAxis(),
        transform.FuseOpsByPattern([("a.sum", SUM(SUM(W(), W()), W())), ("b.product", PRODUCT)]),
        transform.HoistRowProducts(),
        transform.InlinePrivateFunctions(),
        transform.LambdaLift(),
        transform.LegalizeQnn(),
        transform.MergeCompositeFunctions(),
        transform.Normalize(),
        transform.NormalizeGlobalVar(),
        transform.OptimizeLayoutTransform(),
        transform.PartialEvaluate(),
        transform.RemoveUnusedFunctions(),
        transform.RemoveUnusedOutputs(),
        transform.RemoveUnusedParameters(),
        transform.SimplifyExpr(),
        transform.SplitArgs(2),
        transform.SplitLayoutRewritePreproc(),
        transform.ToNonDataflow(),
        transform.TopologicalSort(),
        transform.TopologicalSort("breadth-first", "from-outputs"),
    )
}
# What a second run right after the first finds nothing to do for.
SETTLED = ("DeadCodeElimination", "LambdaLift", "Normalize", "ToNonDataflow")
# Passes of a build that may be left out.
OPTIONAL = (
    *[
        n
        for n, p in PASSES.items()
        if n not in ("LambdaLift", "Normalize", "ToNonDataflow") and not p.options
    ],
    *("StaticPlanBlockMemory", "KillAfterLastUse", "ComputePrimValue", "FuseOps"),
)


def make(rng: random.Random) -> dict:
    language = rng.random() < 0.3
    programs = language_programs if language else graph_programs
    text = programs.program(rng.getrandbits(40), rng.choice((4, 6, 8, 12, 25)))
    ways = ["interpreted"] if rng.random() < 0.5 else ["bytecode", "compiled"]
    levels = rng.sample(range(5), 1 if "compiled" in ways else 2)
    return {
        "lines": text.splitlines(),
        "language": language,
        "inputs": [rng.getrandbits(30) for _ in range(4)],
        "passes": [] if language else rng.choices(list(PASSES), k=rng.randint(0, 5)),
        "levels": levels,
        "disabled": [n for n in OPTIONAL if rng.random() < 0.2],
        "ways": ways,
        "threads": rng.choice((1, 2)),
    }


def flat(x):
    """The arrays of a result."""
    if isinstance(x, (tuple, list)):
        return [leaf for item in x for leaf in flat(item)]
    return [np.asarray(x.numpy() if hasattr(x, "numpy") else x)]


class Outside:
    """The packed functions of the programs. What `test.keep` was given may never change."""

    def __init__(self):
        self.kept = []

    def functions(self):
        return {
            **language_programs.PACKED,
            "test.keep": self.keep,
            "test.square": self.square,
        }

    def keep(self, x):
        self.kept.append((x, np.array(flat(x)[0])))
        return x

    def square(self, x, out):
        x, out = (getattr(a, "array", a) for a in (x, out))
        np.multiply(x, x, out=out)

    def check(self):
        for x, then in self.kept:
            assert np.array_equal(flat(x)[0], then), "memory that a function kept was used again"


def meaning(mod, args):
    """The arrays and what was printed, or None where the program is to fail."""
    evaluator = Evaluator(mod, Outside().functions())
    try:
        result = flat(evaluator("main", *args))
    except (CheckFailed, ValueError):
        return None
    return [(a.dtype.str, a.shape, a.tolist()) for a in result], evaluator.printed


def machines(mod, case):
    """For each way of running `mod`: its name, its main function, and what it knows outside."""
    for level in case["levels"]:
        context = {"opt_level": level, "disabled_pass": case["disabled"]}
        executable = None
        for way in case["ways"]:
            outside = Outside()
            if way == "interpreted":
                vm = build_interpreted(mod, outside.functions(), context)
            else:
                with PassContext(**context):
                    executable = executable or relax.build(mod, "llvm")
                vm = VirtualMachine(executable, functions=outside.functions(), exec_mode=way)
            yield f"{way} at level {level}", vm["main"], outside


def check(case: dict) -> bool:
    mod = from_source("\n".join(case["lines"]) + "\n")
    assert_well_formed(mod)
    programs = language_programs if case["language"] else graph_programs
    calls = [programs.inputs(seed, mod) for seed in case["inputs"]]
    wanted = [meaning(mod, args) for args in calls]
    changed = mod
    for name in case["passes"]:
        changed = PASSES[name](changed)
        assert_well_formed(changed)
        assert [meaning(changed, args) for args in calls] == wanted, f"changed by {name}"
        if name in SETTLED:
            assert PASSES[name](changed) is changed, f"{name} is not settled"
    former = set_num_threads(case["threads"])
    try:
        for way, main, outside in machines(mod, case):
            earlier = []
            for args, want in zip(calls, wanted):
                before = [a.copy() for a in args]
                if want is None:
                    # Where numpy fails they fail, or have left out what failed: dead code.
                    with contextlib.suppress(VMValueError):
                        main(*args)
                else:
                    earlier.append((flat(main(*args)), want))
                assert all(map(np.array_equal, args, before)), f"{way}: an argument was changed"
                for got, (known, _) in earlier:
                    found = [(a.dtype.str, a.shape, a.tolist()) for a in got]
                    assert found == known, f"{way}: another result"
            outside.check()
    finally:
        set_num_threads(former)
    return any(want is not None for want in wanted)
