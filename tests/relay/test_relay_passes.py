"""Relay's passes by Relay's names and levels, as tutorials show them; what they leave means the
same.
"""

import numpy as np
import pytest
from random_graphs import assert_close, random_graph, run

import relaxvm as tvm
from relaxvm import relax, relay
from relaxvm.ir import structural_equal
from relaxvm.relay import transform
from relaxvm.relay.transform import (
    BackwardFoldScaleAxis,
    CombineParallelConv2D,
    CombineParallelDense,
    DefuseOps,
    FoldConstant,
    ForwardFoldScaleAxis,
    FuseOps,
    InferType,
    PlanDevices,
    RewriteAnnotatedOps,
    SimplifyInference,
)

LEVELS = {
    "InferType": 0,
    "RemoveUnusedFunctions": 1,
    "DeadCodeElimination": 1,
    "SimplifyInference": 0,
    "SimplifyExpr": 0,
    "Inline": 1,
    "FuseOps": 0,
    "DefuseOps": 3,
    "FoldConstant": 2,
    "FoldScaleAxis": 3,
    "BackwardFoldScaleAxis": 3,
    "ForwardFoldScaleAxis": 3,
    "FoldExplicitPadding": 0,
    "FlattenAtrousConv": 0,
    "CombineParallelConv2D": 4,
    "CombineParallelDense": 4,
    "CombineParallelBatchMatmul": 4,
    "EliminateCommonSubexpr": 3,
    "CanonicalizeOps": 3,
    "CanonicalizeCast": 3,
    "AlterOpLayout": 3,
    "ConvertLayout": 3,
    "FastMath": 4,
    "DynamicToStatic": 3,
    "EtaExpand": 1,
    "PartialEvaluate": 1,
    "LazyGradientInit": 2,
    "LambdaLift": 1,
    "RewriteAnnotatedOps": 1,
    "PlanDevices": 0,
    "DivToMul": 0,
    "SplitArgs": 1,
    "ToANormalForm": 1,
    "ToBasicBlockNormalForm": 1,
    "ToGraphNormalForm": 1,
    "ToMixedPrecision": 0,
    "LabelOps": 1,
    "Defunctionalization": 0,
    "ToCPS": 0,
    "FirstOrderGradient": 0,
}


@pytest.mark.parametrize("name", LEVELS)
def test_passes_have_relay_s_levels(name):
    info = getattr(transform, name)().info
    assert (info.name, info.opt_level) == (name, LEVELS[name])


def var(name, *shape):
    return relay.var(name, shape=shape)


def module(params, body):
    return tvm.IRModule.from_expr(relay.Function(params, body))


def operators(fn):
    """The names of the operators of a function in their order, those of functions in it too."""
    fn = fn["main"] if isinstance(fn, tvm.IRModule) else fn
    calls = [b.value for b in bindings(fn) if isinstance(b.value, relax.Call)]
    names = [getattr(c.op, "name", "a function") for c in calls]
    return [name.removeprefix("relax.") for name in names]


def bindings(fn):
    found = []
    for block in fn.body.blocks:
        for b in block.bindings:
            found += bindings(b.value) if isinstance(b.value, relax.Function) else [b]
    return found


def inputs_of(mod, seed=0):
    rng = np.random.default_rng(seed)
    shapes = [[int(d) for d in p.struct_info.dims] for p in mod["main"].params]
    return [rng.uniform(0.5, 2, s).astype("float32") for s in shapes]


def same(before, after):
    args = inputs_of(before)
    assert_close(run(after, args), run(before, args))
    return after


# -- every pass on random graphs -------------------------------------------------------------------

OPTIONS = {
    "ConvertLayout": [{"nn.conv2d": ["NHWC", "OHWI"]}],
    "RewriteAnnotatedOps": ["cpu"],
    "AlterOpLayout": [lambda call: None],
    "SplitArgs": [20],
    "CombineParallelConv2D": [2],
    "CombineParallelDense": [2],
    "CombineParallelBatchMatmul": [2],
    "EtaExpand": [],
}
LOOSE = ("LazyGradientInit", "FastMath", "ToMixedPrecision", "FirstOrderGradient")
ANY_GRAPH = [name for name in LEVELS if name not in LOOSE]


@pytest.mark.parametrize("name", ANY_GRAPH)
def test_a_pass_keeps_what_random_graphs_mean(name):
    one = getattr(transform, name)(*OPTIONS.get(name, []))
    for seed in range(6):
        graph = random_graph(100 * ANY_GRAPH.index(name) + seed, size=10)
        mod = graph.mod
        text = mod.script()
        after = one(mod)
        assert mod.script() == text, "the module that was given has changed"
        assert_close(run(after, graph.arguments), graph.expected)
        if name not in ("ToGraphNormalForm", "ToCPS"):
            assert structural_equal(InferType()(after), after), "types are not known any more"


@pytest.mark.slow
def test_passes_in_any_order_keep_what_random_graphs_mean():
    rng = np.random.default_rng(3)
    for seed in range(150):
        graph = random_graph(9000 + seed, size=14)
        names = [str(n) for n in rng.choice(ANY_GRAPH, 4, replace=False)]
        mod = graph.mod
        for name in names:
            mod = getattr(transform, name)(*OPTIONS.get(name, []))(mod)
        assert_close(run(mod, graph.arguments), graph.expected)


def test_what_nothing_changes_is_as_the_expression_says():
    x = var("x", 2, 3)
    a, b = relay.exp(x), relay.negative(x)
    mod = module([x], relay.Tuple([relay.add(b, a), relay.multiply(a, a)]))
    typed = InferType()(mod)
    assert operators(typed) == ["negative", "exp", "add", "multiply"]
    for name in (
        "DeadCodeElimination",
        "EliminateCommonSubexpr",
        "FoldConstant",
        "CanonicalizeOps",
    ):
        assert structural_equal(getattr(transform, name)()(mod), typed)


def test_a_deep_graph_is_no_deeper_for_a_pass():
    x = var("x", 2)
    y = x
    for _ in range(3000):
        y = relay.exp(y)
    for one in (FuseOps(), FoldConstant(), SimplifyInference()):
        after = one(module([x], y))
    assert len(operators(after)) == 3000


# -- SimplifyInference -----------------------------------------------------------------------------


def batch_norm(x, **options):
    gamma, beta, mean, variance = (var(n, 4) for n in ("gamma", "beta", "mean", "variance"))
    out, _, _ = relay.nn.batch_norm(x, gamma, beta, mean, variance, **options)
    return [x, gamma, beta, mean, variance], out


def test_a_batch_norm_is_a_scale_and_a_shift_and_a_dropout_is_nothing():
    params, out = batch_norm(var("x", 2, 4, 3, 3))
    before = module(params, relay.nn.dropout(out))
    after = SimplifyInference()(before)
    assert (
        operators(after)
        == (
            "add sqrt divide multiply expand_dims multiply negative multiply add expand_dims add"
        ).split()
    )
    same(before, after)


@pytest.mark.parametrize(("scale", "center"), [(False, True), (True, False), (False, False)])
@pytest.mark.parametrize("axis", [1, -1])
def test_a_batch_norm_without_scale_or_center_leaves_these_out(scale, center, axis):
    x = var("x", 2, 4) if axis == 1 else var("x", 2, 3, 4)
    before = module(*batch_norm(x, scale=scale, center=center, axis=axis))
    after = same(before, SimplifyInference()(before))
    assert operators(after).count("multiply") == 2 + scale
    assert operators(after).count("add") == 2 + center


def test_the_other_norms_are_written_out():
    x, gamma, beta = var("x", 2, 4, 3, 3), var("gamma", 4), var("beta", 4)
    for norm in (
        relay.nn.layer_norm(x, gamma, beta, axis=1),
        relay.nn.instance_norm(x, gamma, beta),
        relay.nn.group_norm(x, gamma, beta, num_groups=2),
    ):
        before = module([x, gamma, beta], norm)
        after = same(before, SimplifyInference()(before))
        assert not any("norm" in name for name in operators(after))


# -- FuseOps ---------------------------------------------------------------------------------------


def test_a_chain_becomes_one_primitive_function():
    x = var("x", 10, 20)
    y = x
    for _ in range(5):
        y = relay.add(y, relay.const(1.0))
    before = module([x], relay.exp(y))
    after = FuseOps()(before)
    p = var("p", 10, 20)
    y = p
    for _ in range(5):
        y = relay.add(y, relay.const(1.0))
    inner = relay.Function([p], relay.exp(y)).with_attr("Primitive", 1)
    assert structural_equal(after, InferType()(module([x], relay.Call(inner, [x]))))
    assert structural_equal(DefuseOps()(after), InferType()(before))
    same(before, after)


def test_a_sum_ends_a_group():
    x = var("x", 20, 20)
    total = relay.sum(relay.add(relay.add(x, x), x), axis=1, keepdims=True)
    before = module([x], relay.add(total, x))
    after = FuseOps()(before)
    names = [b.var.name_hint for b in after["main"].body.blocks[0].bindings]
    assert [n for n in names if n.startswith("fused")] == ["fused_add_add_sum", "fused_add"]
    assert structural_equal(DefuseOps()(after), InferType()(before))


def test_a_dense_layer_with_its_transpose_and_activation_is_one_function():
    x, w = var("x", 4, 8), var("w", 6, 8)
    before = module([x, w], relay.nn.relu(relay.nn.dense(x, w)))
    after = FuseOps()(before)
    functions = [b for b in after["main"].body.blocks[0].bindings if "fused" in b.var.name_hint]
    assert len(functions) == 1 and operators(after)[-2] == "nn.relu"
    ex = relax.build(after)
    args = inputs_of(before)
    assert_close(relax.VirtualMachine(ex)["main"](*args).numpy(), run(before, args))


def test_parts_of_a_split_are_taken_outside():
    x = var("x", 1, 6)
    first, _, last = relay.split(x, 3, axis=1)
    before = module([x], relay.concatenate([relay.exp(first), relay.negative(last)], axis=1))
    assert structural_equal(DefuseOps()(FuseOps()(before)), InferType()(before))
    same(before, FuseOps()(before))
    alone = FuseOps(0)(before)
    assert alone.script().count("Primitive") == 4
    same(before, alone)


def test_constant_tensors_are_arguments_unless_they_are_linked():
    x = var("x", 4)
    before = module([x], relay.multiply(relay.add(x, relay.const(2.0)), relay.const([1.0] * 4)))
    for link, count in ((False, 2), (True, 1)):
        after = same(before, FuseOps(link_params=link)(before))
        (fn,) = [b.value for b in after["main"].body.blocks[0].bindings][:1]
        assert len(fn.params) == count


# -- scales ----------------------------------------------------------------------------------------


def conv(weight, scale, bias=None):
    x = var("x", 1, 4, 6, 6)
    y = relay.nn.conv2d(x, weight, padding=1)
    y = y if bias is None else relay.add(y, relay.expand_dims(bias, 1, 2))
    return x, relay.multiply(relay.nn.relu(y), scale)


SCALE = relay.const(np.arange(1, 7, dtype="float32").reshape(6, 1, 1))
WEIGHT = relay.const(np.random.default_rng(0).standard_normal((6, 4, 3, 3)).astype("float32"))


def test_a_scale_after_a_convolution_goes_into_its_weight():
    x, y = conv(WEIGHT, SCALE)
    before = module([x], y)
    after = same(before, BackwardFoldScaleAxis()(before))
    assert operators(after) == ["squeeze", "expand_dims", "multiply", "nn.conv2d", "nn.relu"]
    folded = same(before, FoldConstant()(after))
    assert operators(folded) == ["nn.conv2d", "nn.relu"]


def test_weights_and_biases_that_are_parameters_are_scaled_too():
    w, b = var("w", 6, 4, 3, 3), var("b", 6)
    x, y = conv(w, SCALE, b)
    before = module([x, w, b], y)
    after = same(before, BackwardFoldScaleAxis()(before))
    assert (
        operators(after)
        == ("squeeze expand_dims multiply nn.conv2d multiply expand_dims add nn.relu").split()
    )


def test_a_scale_before_a_convolution_goes_into_its_weight():
    x, w = var("x", 1, 4, 6, 6), var("w", 6, 4, 3, 3)
    scale = relay.const(np.arange(1, 5, dtype="float32").reshape(4, 1, 1))
    y = relay.nn.conv2d(relay.nn.relu(relay.multiply(x, scale)), w)
    before = module([x, w], y)
    after = same(before, ForwardFoldScaleAxis()(before))
    assert operators(after) == ["nn.relu", "squeeze", "expand_dims", "multiply", "nn.conv2d"]


def test_a_scale_that_may_be_negative_does_not_pass_a_relu():
    x, y = conv(WEIGHT, relay.const(-np.ones((6, 1, 1), "float32")))
    before = module([x], y)
    assert structural_equal(BackwardFoldScaleAxis()(before), InferType()(before))


# -- combining -------------------------------------------------------------------------------------


def dense_layers(count, bias=False, units=(4, 4, 4)):
    x = var("x", 3, 5)
    weights = [var(f"w{i}", units[i], 5) for i in range(count)]
    biases = [var(f"b{i}", units[i]) for i in range(count)] if bias else []
    parts = [relay.nn.dense(x, w) for w in weights]
    parts = [relay.nn.bias_add(p, b) for p, b in zip(parts, biases)] if bias else parts
    return module([x, *weights, *biases], relay.Tuple(parts))


def test_dense_layers_of_one_input_become_one_batched_product():
    before = dense_layers(2)
    after = same(before, CombineParallelDense(min_num_branches=2)(before))
    assert operators(after) == ("stack stack permute_dims matmul split squeeze squeeze".split())
    assert structural_equal(CombineParallelDense()(before), InferType()(before)), "3 by default"


def test_biases_after_dense_layers_are_added_at_once():
    before = dense_layers(3, bias=True)
    after = same(before, CombineParallelDense()(before))
    assert operators(after).count("add") == 1


def test_dense_layers_are_put_side_by_side_where_they_are_not_stacked():
    before = dense_layers(3, units=(4, 2, 6))
    assert structural_equal(CombineParallelDense()(before), InferType()(before)), "of other shapes"
    after = same(before, CombineParallelDense(to_batch=False)(before))
    assert operators(after) == ["concat", "permute_dims", "matmul", *["strided_slice"] * 3]


def test_convolutions_of_one_input_become_one():
    x = var("x", 1, 3, 5, 5)
    weights = [var(f"w{i}", n, 3, 1, 1) for i, n in enumerate((4, 6))]
    other = var("other", 2, 3, 3, 3)
    parts = [relay.nn.conv2d(x, w) for w in (*weights, other)]
    before = module([x, *weights, other], relay.Tuple(parts))
    after = same(before, CombineParallelConv2D(min_num_branches=2)(before))
    expected = ["concat", "nn.conv2d", "strided_slice", "strided_slice", "nn.conv2d"]
    assert operators(after) == expected


# -- devices ---------------------------------------------------------------------------------------


def on(value, device="cuda"):
    return relax.op.hint_on_device(value, device)


def annotated():
    x, y = var("x", 4), var("y", 4)
    sum_ = relay.add(x, y)
    root = on(relay.sqrt(sum_))
    return [x, y], root, on(relay.exp(relay.subtract(root, relay.log(sum_))))


def copies(mod):
    """(value, device) of every copy."""
    return [
        (b.value.args[0].name_hint, b.value.attrs["dst_vdevice"].kind)
        for b in bindings(mod["main"])
        if isinstance(b.value, relax.Call) and b.value.op.name == "relax.to_vdevice"
    ]


@pytest.mark.parametrize(
    "plan", [RewriteAnnotatedOps(1), RewriteAnnotatedOps("cpu"), PlanDevices()]
)
def test_three_copies_stand_where_devices_meet(plan):
    params, _, out = annotated()
    before = module(params, out)
    after = plan(before)
    assert operators(after) == (
        "add to_vdevice sqrt to_vdevice log subtract to_vdevice exp".split()
    )
    assert [device for _, device in copies(after)] == ["cuda", "llvm", "cuda"]
    assert "hint_on_device" not in after.script()
    assert_close(run(after, inputs_of(before)), run(before, inputs_of(before)))


def test_a_value_is_copied_to_a_device_once():
    params, root, out = annotated()
    before = module(params, relay.Tuple([out, relay.negative(root), relay.exp(root)]))
    assert len(copies(RewriteAnnotatedOps("cpu")(before))) == 3


def test_a_copy_that_is_missing_is_an_error():
    params, _, out = annotated()
    after = RewriteAnnotatedOps("cpu")(module(params, out))
    value = next(b.var for b in bindings(after["main"]) if b.var.struct_info.vdevice.kind == "cuda")
    with pytest.raises(tvm.TVMError, match="bring one to the other by R.to_vdevice"):
        relay.add(value, after["main"].params[0])


def test_one_value_on_two_devices_is_refused():
    x = var("x", 4)
    y = relay.exp(x)
    with pytest.raises(tvm.TVMError, match="is to be on .* and on"):
        RewriteAnnotatedOps("cpu")(module([x], relay.add(on(y), on(y, "opencl"))))


def test_branches_copy_what_they_need_and_give_it_back():
    c, x = relay.var("c", "bool"), var("x", 4)
    both = relay.If(c, on(relay.exp(x)), relay.negative(x))
    before = module([c, x], relay.add(both, x))
    after = RewriteAnnotatedOps("cpu")(before)
    args = [np.array(True), np.ones(4, "float32")]
    assert_close(run(after, args), run(before, args))
    assert after.script().count("R.to_vdevice") == 2


# -- forms -----------------------------------------------------------------------------------------


def with_calls():
    """Two functions, of which one calls the other in both branches."""
    g, p = relay.GlobalVar("g"), relay.var("p", shape=(2,))
    mod = tvm.IRModule()
    mod[g] = relay.Function([p], relay.exp(p))
    c, x = relay.var("c", "bool"), relay.var("x", shape=(2,))
    twice = relay.Call(g, [relay.negative(relay.Call(g, [x]))])
    mod["main"] = relay.Function([c, x], relay.If(c, twice, relay.Call(g, [x])) + x)
    return mod


@pytest.mark.parametrize("choice", [True, False])
def test_continuation_passing_style_computes_the_same(choice):
    mod = with_calls()
    args = [np.array(choice), np.array([0.5, 1], "float32")]
    want = run(InferType()(mod), args)
    after = transform.ToCPS()(mod)
    assert_close(run(after, args), want)
    assert_close(relax.VirtualMachine(relax.build(after))["main"](*args).numpy(), want)
    for calls in (b.value for b in bindings(after["g_cps"]) if isinstance(b.value, relax.Call)):
        assert calls.op is not after.get_global_var("g")
    mod["direct"] = transform.un_cps(transform.to_cps(mod["main"], mod))
    assert_close(tvm.relax.interp.Evaluator(mod)("direct", *args), want)


def test_what_takes_no_continuation_is_refused():
    x = var("x", 2)
    with pytest.raises(tvm.TVMError, match="a function whose last parameter takes its result"):
        transform.un_cps(relay.Function([x], relay.exp(x)))


def test_graph_normal_form_nests_and_the_next_pass_names():
    x = var("x", 2)
    mod = module([x], relay.exp(relay.negative(x)))
    nested = transform.ToGraphNormalForm()(mod)
    assert not nested["main"].body.blocks
    assert structural_equal(transform.ToANormalForm()(nested), InferType()(mod))


def test_equal_primitive_functions_have_equal_labels():
    x, y = var("x", 2, 3), var("y", 2, 3)
    parts = [relay.sum(relay.exp(v), axis=1) for v in (x, y)]
    mod = transform.LabelOps()(FuseOps()(module([x, y], relay.Tuple([*parts, relay.tanh(x)]))))
    functions = [b.value for b in mod["main"].body.blocks[0].bindings]
    labels = [f.attrs["hash"] for f in functions if isinstance(f, relax.Function)]
    assert len(labels) == 3 and len(set(labels)) == 2
    assert structural_equal(transform.LabelOps()(mod), mod)


def test_functions_as_values_become_data_by_a_call_or_a_pass():
    x = var("x", 2)
    p = var("p", 2)
    inner = relay.Function([p], relay.exp(p))
    fn = relay.Function([x], relay.Call(inner, [x]))
    args = [np.ones(2, "float32")]
    after = transform.Defunctionalization(fn, tvm.IRModule())
    assert_close(run(tvm.IRModule({"main": after}), args), np.exp(args[0]))
    assert_close(
        run(transform.Defunctionalization()(tvm.IRModule.from_expr(fn)), args), np.exp(args[0])
    )


def test_mixed_precision_is_float16():
    x, w = var("x", 4, 8), var("w", 6, 8)
    mod = module([x, w], relay.nn.dense(x, w))
    assert "float16" in transform.ToMixedPrecision()(mod).script()
    with pytest.raises(tvm.TVMError, match="wanted float16, got 'int4'"):
        transform.ToMixedPrecision("int4")(mod)


def test_inlined_functions_go_and_others_stay():
    mod = with_calls()
    main = mod["main"]
    mod["g"] = mod["g"].with_attr("Inline", tvm.tir.IntImm("int32", 1))
    mod["unused"] = relay.Function([var("p", 2)], var("p", 2))
    after = transform.Inline()(mod)
    assert sorted(gv.name_hint for gv in after.get_global_vars()) == ["main", "unused"]
    assert mod["main"] is main
    used = transform.RemoveUnusedFunctions()(mod)
    assert sorted(gv.name_hint for gv in used.get_global_vars()) == ["g", "main"]
    alone = transform.RemoveUnusedFunctions(["unused"])(mod)
    assert [gv.name_hint for gv in alone.get_global_vars()] == ["unused"]


def test_functions_that_call_themselves_are_not_inlined():
    f, x = relay.GlobalVar("f"), var("x", 2)
    mod = tvm.IRModule()
    again = relay.Function([x], relay.Call(f, [relay.exp(x)]), relay.TensorType((2,)))
    mod[f] = again.with_attr("Inline", 1)
    mod["main"] = relay.Function([x], relay.Call(f, [x]), relay.TensorType((2,)))
    assert len(transform.Inline()(mod).get_global_vars()) == 2


def test_how_many_operators_become_one_is_limited_by_relay_s_key():
    x = var("x", 4)
    y = x
    for _ in range(8):
        y = relay.exp(y)
    mod = module([x], y)
    for config in ({"relay.FuseOps.max_depth": 4}, {"relay.FuseOps": {"max_depth": 4}}):
        with tvm.transform.PassContext(config=config):
            assert FuseOps()(mod).script().count("Primitive") == 2
