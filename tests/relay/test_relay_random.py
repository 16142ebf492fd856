"""Random programs of all that Relay has mean what numpy means: as text, and after every pass."""

from __future__ import annotations

import numpy as np
import pytest
from random_graphs import assert_close, random_graph, run

import relaxvm as tvm
from relaxvm import relay
from relaxvm.ir.transform import Pass
from relaxvm.relax.interp import Evaluator
from relaxvm.relay import transform

FEW = [*range(12)]
MANY = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(100, 400)]


@pytest.mark.parametrize("seed", FEW + MANY)
def test_programs_mean_what_numpy_means_and_return_from_text(seed):
    graph = random_graph(seed, mixed=True)
    mod = graph.mod
    assert_close(run(mod, graph.arguments), graph.expected)
    typed = transform.InferType()(mod)
    text = typed.astext()
    again = relay.parse(text)
    tvm.ir.assert_structural_equal(again, typed)
    assert again.astext() == text
    tvm.ir.assert_structural_equal(relay.parse(mod.astext()), typed)


ARGUMENTS = {
    "ConvertLayout": [{"nn.conv2d": ["NHWC", "OHWI"]}],
    "RewriteAnnotatedOps": ["cpu"],
    "AlterOpLayout": [lambda call: None],
    "SplitArgs": [20],
    "CombineParallelConv2D": [2],
    "CombineParallelDense": [2],
    "CombineParallelBatchMatmul": [2],
    "MergeComposite": [[]],
    "AnnotateTarget": [[]],
}
# What gives other results by intent: gradients too, or numbers of fewer bits.
OTHERS = {"FirstOrderGradient", "ToMixedPrecision", "LazyGradientInit", "un_cps"}
NO_PASSES = {"PassContext", "PassInfo", "Sequential", "Pass", "function_pass", "module_pass"}
NO_PASSES |= {"gradient", "to_cps", "un_cps"}
PASSES = sorted(set(transform.__all__) - NO_PASSES - OTHERS)


def made(name):
    return getattr(transform, name)(*ARGUMENTS.get(name, []))


def test_these_are_all_passes():
    assert len(PASSES) >= 45
    assert all(isinstance(made(name), Pass) for name in PASSES)


def kept_by(names, seed):
    """A module after passes means the same; the one that was given stays as it was."""
    graph = random_graph(seed, size=10, mixed=True)
    mod = graph.mod
    script = mod.script()
    after = tvm.transform.Sequential([made(name) for name in names])(mod)
    assert mod.script() == script, "the module that was given has changed"
    assert_close(run(after, graph.arguments), graph.expected)
    return graph, after


def returns_from_text(mod, graph):
    """What is printed is read as a module that prints and means the same."""
    text = mod.astext()
    again = relay.parse(text)
    assert_close(run(again, graph.arguments), graph.expected)
    assert again.astext() == text


@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(50, 80), marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", PASSES)
def test_a_pass_keeps_what_programs_mean(name, seeds):
    for seed in seeds:
        graph, after = kept_by([name], 1000 * PASSES.index(name) + seed)
        if name != "ToCPS":  # What a continuation gives has no type.
            returns_from_text(transform.InferType()(after), graph)


@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.slow) for s in range(40))])
def test_types_of_a_pass_that_adds_gradients_or_narrows_numbers(seed):
    graph = random_graph(5000 + seed, size=8, control=False)
    typed = transform.InferType()(graph.mod)
    lazy = transform.LazyGradientInit()(typed)
    assert_close(run(lazy, graph.arguments), graph.expected)
    half = transform.ToMixedPrecision("float16")(typed)
    assert half["main"].ret_struct_info == typed["main"].ret_struct_info
    tvm.ir.assert_structural_equal(relay.parse(half.astext()), transform.InferType()(half))


SOME = [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 60))]


@pytest.mark.parametrize("seed", SOME)
def test_gradients_come_beside_the_results_of_any_program(seed):
    graph = random_graph(9500 + seed, size=10, mixed=seed % 2 == 1)
    after = transform.FirstOrderGradient()(graph.mod)
    result, gradients = run(after, graph.arguments)
    assert_close(result, graph.expected)
    assert [g.shape for g in gradients] == [a.shape for a in graph.arguments]
    assert all(np.isfinite(g).all() for g in gradients)
    text = after.astext()
    assert relay.parse(text).astext() == text


@pytest.mark.parametrize("seed", SOME)
def test_programs_return_from_continuation_passing_style(seed):
    graph = random_graph(9000 + seed, size=10, mixed=True)
    mod = transform.InferType()(graph.mod)
    mod["direct"] = transform.un_cps(transform.to_cps(mod["main"], mod))
    assert_close(Evaluator(mod)("direct", *graph.arguments), graph.expected)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(150))
def test_passes_in_any_order_keep_what_programs_mean(seed):
    names = np.random.default_rng(seed).choice(PASSES, 4, replace=False)
    kept_by([str(name) for name in names], 7000 + seed)
