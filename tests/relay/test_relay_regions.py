"""Parts of Relay functions for other code generators, found by patterns or by operators'
attributes.
"""

import numpy as np
import pytest
from random_graphs import assert_close, random_graph, run

import relaxvm as tvm
from relaxvm import relay
from relaxvm.relay import transform
from relaxvm.relay.dataflow_pattern import is_constant, is_op, is_tuple_get_item, wildcard


def var(name, *shape):
    return relay.var(name, shape=shape)


@pytest.fixture(autouse=True)
def library():
    """A code generator "lib" takes exp, and negative of matrices."""
    taken = {"exp": lambda e: True, "negative": lambda e: e.args[0].struct_info.ndim == 2}
    for name, takes in taken.items():
        tvm.ir.register_op_attr(name, "target.lib", takes)
    yield
    for name in taken:
        relay.op.get(name).reset_attr("target.lib")


def network():
    x, w, v = var("x", 3, 4), var("w", 5, 4), var("v", 6, 5)
    hidden = relay.exp(relay.nn.relu(relay.nn.dense(x, w)))
    out = relay.tanh(relay.nn.dense(relay.negative(hidden), v))
    return tvm.IRModule.from_expr(relay.Function([x, w, v], out))


TABLE = [
    (
        "lib.dense_relu",
        is_op("nn.dense")(wildcard(), wildcard()).optional(lambda p: is_op("nn.relu")(p)),
    )
]


def composites(mod):
    return [fn.attrs["Composite"] for fn in mod.functions.values() if "Composite" in fn.attrs]


def regions(mod):
    return [gv.name_hint for gv, fn in mod.items() if "Compiler" in fn.attrs]


def test_patterns_and_operators_become_regions_that_are_merged_and_named():
    mod = network()
    merged = transform.MergeComposite(TABLE)(mod)
    assert composites(merged) == ["lib.dense_relu", "lib.dense_relu"]
    assert "R.nn.relu" not in merged["main"].script()
    annotated = transform.AnnotateTarget("lib")(merged)
    assert composites(annotated) == [*composites(merged), "lib.exp", "lib.negative"]
    joined = transform.MergeCompilerRegions()(annotated)
    parts = transform.PartitionGraph()(joined)
    assert regions(parts) == ["tvmgen_default_lib_main_0"]
    named = transform.PartitionGraph("net")(annotated)
    assert regions(named) == [f"tvmgen_net_lib_main_{i}" for i in range(4)]
    args = [np.random.default_rng(0).random(s).astype("float32") for s in ((3, 4), (5, 4), (6, 5))]
    want = run(transform.InferType()(mod), args)
    for each in (merged, annotated, joined, parts, named):
        assert_close(run(each, args), want)


def test_a_check_sees_the_value_that_matches():
    seen = []

    def check(value):
        seen.append(value.op.name)
        return False

    name, pattern = TABLE[0]
    assert not composites(transform.MergeComposite([(name, pattern, check)])(network()))
    assert set(seen) == {"relax.nn.relu", "relax.matmul"}


def test_an_operator_that_its_function_refuses_stays():
    x = var("x", 4)
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.negative(x)))
    assert not composites(transform.AnnotateTarget(["other", "lib"])(mod))


@pytest.mark.parametrize(
    ("pattern", "build"),
    [
        (is_op("nn.bias_add")(wildcard(), wildcard()), lambda x: relay.nn.bias_add(x, B)),
        (is_op("nn.batch_matmul")(wildcard(), wildcard()), lambda x: relay.nn.batch_matmul(x, x)),
        (is_op("nn.batch_flatten")(wildcard()), relay.nn.batch_flatten),
        (is_op("nn.dropout")(wildcard()), relay.nn.dropout),
        (is_op("nn.global_avg_pool1d")(wildcard()), relay.nn.global_avg_pool1d),
        (is_op("transpose")(wildcard()), relay.transpose),
        (is_op("cast")(wildcard()), lambda x: relay.cast(x, "int32")),
        (is_op("strided_slice")(wildcard()), lambda x: relay.strided_slice(x, [0], [1])),
        (is_op("reshape")(wildcard()), lambda x: relay.reshape(x, (-1,))),
        (wildcard() * is_constant() - wildcard(), lambda x: x * relay.const(2.0) - x),
        (wildcard() / (wildcard() + wildcard()), lambda x: x / (x + x)),
        (is_tuple_get_item(is_op("split")(wildcard()), 1), lambda x: relay.split(x, 2, 1)[1]),
    ],
)
def test_patterns_of_relay_s_names_match_what_these_write(pattern, build):
    x = var("x", 2, 4, 3)
    typed = transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], build(x))))
    values = tvm.relax.analysis.get_var2val(typed["main"])
    assert pattern.match(typed["main"].body.body, values)
    assert not is_op("exp")(wildcard()).match(typed["main"].body.body, values)


B = relay.const(np.ones(4, "float32"))


def test_what_is_no_operator_or_row_is_refused():
    with pytest.raises(tvm.TVMError, match=r"no operator of Relay is named 'nn\.dens'.*nn\.dense"):
        is_op("nn.dens")
    with pytest.raises(tvm.TVMError, match="wanted .name, pattern. or .name, pattern, check."):
        transform.MergeComposite([("lib.x",)])(network())


def test_random_graphs_mean_the_same_in_regions():
    for seed in range(12):
        graph = random_graph(500 + seed, size=10)
        mod = transform.AnnotateTarget("lib")(transform.MergeComposite(TABLE)(graph.mod))
        for each in (mod, transform.PartitionGraph()(transform.MergeCompilerRegions()(mod))):
            assert_close(run(each, graph.arguments), graph.expected)


def test_passes_over_regions_are_of_level_0():
    names = "MergeComposite AnnotateTarget MergeCompilerRegions PartitionGraph"
    assert {getattr(transform, n).info.opt_level for n in names.split()} == {0}
