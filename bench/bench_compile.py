"""What compiling costs: each graph pass on 1,000 and on 10,000 bindings, text, and whole builds.

    make bench                            # with the others
    python bench/bench_compile.py         # a table: µs per binding, and how it grows

Growth is the cost per binding at 10,000 bindings over that at 1,000: 1 where a pass is linear.
"""

from __future__ import annotations

import pathlib
import sys
import time

import numpy as np
import pytest

from relaxvm import relax
from relaxvm.ir import IRModule, structural_equal, structural_hash
from relaxvm.pipeline import FUSED_TO_PLANNED, GRAPH_TO_LEGAL, LEGAL_TO_FUSED
from relaxvm.relax import analysis, transform
from relaxvm.script import from_source

SIZES = (1_000, 10_000)
VEC = relax.TensorStructInfo((8,), "float32")


def graph(size):
    """A function of about `size` bindings: repeated calls, names for names, tuples, constants that
    can be folded, dead code, branches, local and private functions.
    """
    b = relax.BlockBuilder()
    p, q = relax.Var("p", VEC), relax.Var("q", relax.TupleStructInfo([VEC, VEC]))
    with b.function("helper", [p, q], private=True):
        u = b.emit(relax.op.multiply(p, p))
        v = b.emit(relax.op.exp(u))
        helper = b.emit_func_output(relax.Tuple([u, v]))
    x, y, c = (
        relax.Var("x", VEC),
        relax.Var("y", VEC),
        relax.Var("c", relax.TensorStructInfo((), "bool")),
    )
    with b.function("main", [c, x, y]):
        last = x
        for i in range(max(1, size // 40)):
            with b.dataflow():
                for k in range(8):
                    one = b.emit(relax.op.add(last, y))
                    again = b.emit(relax.op.add(last, y))
                    both = b.emit(relax.Tuple([one, again]))
                    last = b.emit(relax.op.multiply(b.emit(both[k % 2]), one))
                w = b.emit(relax.op.negative(relax.const(np.full(8, i, "int32"))))
                wide = b.emit(relax.op.astype(w, "float32"))
                last = b.emit_output(relax.op.maximum(last, wide))
            pair = b.emit(relax.Call(helper, (last, relax.Tuple([last, x]))))
            first = b.emit(pair[0])
            branches = [_branch(first, op) for op in (relax.op.exp, relax.op.sin)]
            last = b.emit(relax.If(c, *branches))
        b.emit_func_output(last)
    return b.get()


def _branch(value, op):
    made = op(value)
    var = relax.Var("t", made.struct_info)
    return relax.SeqExpr([relax.BindingBlock([relax.VarBinding(var, made)])], var)


def closures(size):
    """A function of about `size` bindings, a third of them local functions."""
    x = relax.Var("x", VEC)
    bindings, last = [], x
    for _ in range(size // 3):
        z = relax.Var("z", VEC)
        inner = relax.Function([z], _branch_of(relax.op.add(z, x)))
        f = relax.Var("f", inner.struct_info)
        call = relax.Call(f, (last,))
        last = relax.Var("v", call.struct_info)
        bindings += [relax.VarBinding(f, inner), relax.VarBinding(last, call)]
    main = relax.Function([x], relax.SeqExpr([relax.BindingBlock(bindings)], last))
    return IRModule({"main": main.with_attr("global_symbol", "main")})


def _branch_of(made):
    var = relax.Var("t", made.struct_info)
    return relax.SeqExpr([relax.BindingBlock([relax.VarBinding(var, made)])], var)


def planned(mod, until):
    """`mod` as the pass named `until` finds it in a build."""
    for stage in (GRAPH_TO_LEGAL, LEGAL_TO_FUSED, FUSED_TO_PLANNED):
        for p in stage.passes:
            if p.info.name == until:
                return mod
            if p.info.opt_level <= 2:
                mod = p(mod)
    return mod


def _in_build(p):
    return lambda size: planned(graph(size), p.info.name), p


def _normalise(mod):
    """What Normalize does with functions that it has not seen yet."""
    for fn in mod.functions.values():
        relax.BlockBuilder().normalize(fn)


# name -> (size -> what it works on, what is timed)
CASES = {
    **{
        p.info.name: (graph, p)
        for p in (
            transform.CanonicalizeBindings(),
            transform.FoldConstant(),
            transform.SimplifyExpr(),
            transform.FoldBatchnormToConv2D(),
            transform.FoldScaleAxis(),
            transform.EliminateCommonSubexpr(),
            transform.CombineParallelMatmul(),
            transform.AdjustMatmulOrder(),
            transform.FuseAttention(),
            transform.ExpandTupleArguments(),
            transform.RemoveUnusedOutputs(),
            transform.RemoveUnusedParameters(),
            transform.HoistRowProducts(),
            transform.InlinePrivateFunctions(),
            transform.DeadCodeElimination(),
            transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]}),
            transform.FakeQuantizationToInteger(),
            transform.LegalizeQnn(),
            transform.ToMixedPrecision(),
        )
    },
    "Normalize": (graph, _normalise),
    "LambdaLift": (closures, transform.LambdaLift()),
    **{
        p.info.name: _in_build(p)
        for p in (
            transform.LegalizeOps(),
            transform.FuseOps(),
            transform.FuseTIR(),
            *FUSED_TO_PLANNED.passes,
        )
    },
    "well_formed": (graph, analysis.check_well_formed),
    "free_vars": (graph, lambda mod: analysis.free_vars(mod["main"])),
    "estimate_memory_usage": (graph, analysis.estimate_memory_usage),
    "structural_hash": (graph, structural_hash),
    "structural_equal": (lambda n: (graph(n), graph(n)), lambda two: structural_equal(*two)),
    "print": (graph, lambda mod: mod.script()),
    "parse": (lambda n: _text(graph(n)), from_source),
    "build": (graph, lambda mod: relax.build(mod, "llvm")),
}


def _text(mod):
    head = "from relaxvm.script import ir as I, relax as R, tir as T\n"
    return head + mod.script(show_meta=True)


def seconds(run, given, most=3):
    """The best of a few runs, in seconds of this process: other work on the machine counts less."""
    best = float("inf")
    for _ in range(most):
        start = time.process_time()
        run(given)
        best = min(best, time.process_time() - start)
        if best > 5:
            break
    return best


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", [n for n in CASES if n != "build"])
def bench_pass(benchmark, name, size):
    make, run = CASES[name]
    given = make(size)
    benchmark.group = f"compile: {name}"
    benchmark.pedantic(run, (given,), rounds=3, warmup_rounds=1)
    benchmark.extra_info["us per binding"] = round(benchmark.stats.stats.min / size * 1e6, 2)


@pytest.mark.parametrize("size", SIZES[:1])
def bench_build(benchmark, size):
    given = graph(size)
    benchmark.group = "compile: build"
    benchmark.pedantic(CASES["build"][1], (given,), rounds=2)
    benchmark.extra_info["us per binding"] = round(benchmark.stats.stats.min / size * 1e6, 2)


def transformer(layers=12):
    """A decoder-only transformer of that many layers, small enough to build in seconds."""
    sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "tests" / "relax"))
    import nn_models

    made = nn_models.transformer(layers=layers, dim=64, heads=4, kv_heads=2, vocab=256)
    return made[0] if isinstance(made, tuple) else made


@pytest.mark.parametrize("layers", [1, 12])
def bench_transformer_build(benchmark, layers):
    benchmark.group = "compile: transformer"
    mod = transformer(layers)
    benchmark.pedantic(lambda: relax.build(mod, "llvm"), rounds=2)


def main():
    """Print the table."""
    wanted = sys.argv[1:] or list(CASES)
    print(f"{'':26}" + "".join(f"{n:>12,}" for n in SIZES) + f"{'growth':>10}   µs per binding")
    for name in wanted:
        make, run = CASES[name]
        costs = []
        for size in SIZES:
            if name == "build" and size > 1000:
                continue
            given = make(size)
            costs.append(seconds(run, given) / size * 1e6)
        growth = f"{costs[-1] / costs[0]:10.2f}" if len(costs) > 1 else ""
        print(f"{name:26}" + "".join(f"{c:12.1f}" for c in costs) + growth, flush=True)
    if not sys.argv[1:]:
        for layers in (1, 12):
            mod = transformer(layers)
            start = time.perf_counter()
            relax.build(mod, "llvm")
            print(f"transformer, {layers:2} layers: built in {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
