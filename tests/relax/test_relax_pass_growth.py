"""Graph passes on long, deep and odd modules: no recursion, no crash, the same object where nothing
changes.
"""

import functools

import pytest

from relaxvm import relax, te
from relaxvm.base import RelaxvmError
from relaxvm.ir import IRModule
from relaxvm.relax import dpl, transform
from relaxvm.relax.analysis import assert_well_formed, estimate_memory_usage, maybe_written_vars

VEC = relax.TensorStructInfo((4,), "float32")
BOOL = relax.TensorStructInfo((), "bool")


def elementwise(*shape):
    """A loop function of one nest that adds 1."""
    x = te.placeholder(shape, "float32", "x")
    fn = te.create_prim_func([x, te.compute(shape, lambda *i: x(*i) + 1.0, "y")])
    return fn.without_attr("global_symbol").with_attr("operator_name", "relax.increment")


def in_pairs(i):
    return i // 2, i % 2


PASSES = [
    transform.AlterOpImpl(
        op_impl_map={"relax.increment": elementwise(2, 2)},
        op_buffer_transforms={"relax.increment": [in_pairs] * 2},
    ),
    transform.AlterOpLayout(layouts={"relax.nn.conv2d": ["NHWC", "OHWI"]}),
    transform.SplitCallTIRByPattern(
        patterns=[elementwise(4)],
        fcodegen=lambda found: ("env.increment", 1, found[0].matched_buffers[:1]),
    ),
    transform.Normalize(),
    transform.CanonicalizeBindings(),
    transform.AdjustMatmulOrder(),
    transform.BatchingOps(),
    transform.CombineParallelMatmul(),
    transform.CanonicalizeCast(),
    transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]}),
    transform.DeadCodeElimination(),
    transform.DynamicToStatic(),
    transform.EliminateCommonSubexpr(),
    transform.EtaExpand(expand_global_var=True),
    transform.ExpandMatmulOfSum(),
    transform.DefuseOps(),
    transform.ExpandTupleArguments(),
    transform.FuseOpsByPattern([("test.exp", dpl.is_op("relax.exp")(dpl.wildcard()))]),
    transform.MergeCompositeFunctions(),
    transform.RunCodegen(),
    dpl.PatternMatchingRewriter.from_pattern(
        dpl.is_op("relax.negative")(dpl.is_op("relax.negative")(dpl.wildcard())),
        lambda call, found: None,
    ),
    transform.FlattenNestedTuples(),
    transform.FoldBatchnormToConv2D(),
    transform.FoldConstant(),
    transform.FakeQuantizationToInteger(use_qat=True),
    transform.FuseAttention(),
    transform.FuseOps(),
    transform.FoldScaleAxis(),
    transform.HoistRowProducts(),
    transform.Inline(),
    transform.FuseTransposeMatmul(),
    transform.InlinePrivateFunctions(),
    transform.LambdaLift(),
    transform.LegalizeQnn(),
    transform.OptimizeLayoutTransform(),
    transform.PartialEvaluate(),
    transform.RemoveUnusedFunctions(),
    transform.RemoveUnusedOutputs(),
    transform.RemoveUnusedParameters(),
    transform.SimplifyExpr(),
    transform.AttachAttrLayoutFreeBuffers(),
    transform.SplitArgs(2),
    transform.SplitLayoutRewritePreproc(),
    transform.ReorderPermuteDimsAfterConcat(),
    transform.ReorderTakeAfterMatmul(),
    transform.ToMixedPrecision(),
    transform.ToNonDataflow(),
    transform.TopologicalSort(),
    transform.TopologicalSort("breadth-first", "from-outputs"),
    transform.UpdateParamStructInfo(lambda p: None),
]
each_pass = pytest.mark.parametrize("run", PASSES, ids=lambda p: p.info.name)


def module(fn, **more):
    return IRModule({"main": fn.with_attr("global_symbol", "main"), **more})


def seq(bindings, result):
    return relax.SeqExpr([relax.BindingBlock(bindings)] if bindings else [], result)


def bind(name, value, kind=relax.Var):
    var = kind(name, value.struct_info)
    return var, relax.VarBinding(var, value)


@functools.cache
def long_row():
    x = relax.Var("x", VEC)
    last, bindings = x, []
    for i in range(10_000):
        last, b = bind(f"v{i}", relax.op.add(last, x))
        bindings.append(b)
    return module(relax.Function([x], seq(bindings, last)))


@each_pass
def test_ten_thousand_bindings(run):
    assert run(long_row()) is long_row()


@functools.cache
def row_of_kernels():
    increment = relax.GlobalVar("increment")
    last, bindings = relax.Var("x", VEC), []
    first = last
    for i in range(1_000):
        last, b = bind(f"v{i}", relax.op.call_tir(increment, (last,), VEC))
        bindings.append(b)
    row = seq(bindings, last)
    return module(relax.Function([first], row), increment=elementwise(4))


@pytest.mark.parametrize("name", ["AlterOpImpl", "SplitCallTIRByPattern"])
def test_calls_of_kernels_in_a_long_row(name):
    (run,) = (p for p in PASSES if p.info.name == name)
    changed = run(row_of_kernels())
    assert_well_formed(changed)
    (block,) = changed["main"].body.blocks
    assert len(block.bindings) >= 1_000
    assert changed is not row_of_kernels()
    assert run(changed) is changed


@functools.cache
def row_of_names():
    x = relax.Var("x", VEC)
    last, bindings = x, []
    for i in range(2_500):
        a, one = bind(f"a{i}", relax.op.add(last, x))
        t, two = bind(f"t{i}", relax.Tuple([a, x]))
        c, three = bind(f"c{i}", relax.TupleGetItem(t, 0))
        last, four = bind(f"d{i}", c)
        bindings += [one, two, three, four]
    return module(relax.Function([x], seq(bindings, last)))


@each_pass
def test_ten_thousand_bindings_that_all_go_or_change(run):
    made = run(row_of_names())
    if made is not row_of_names():
        assert_well_formed(made)
        assert run(made) is made


@functools.cache
def nested_branches():
    x, c = relax.Var("x", VEC), relax.Var("c", BOOL)
    body = seq([], x)
    for i in range(400):
        value, b = bind(f"v{i}", relax.If(c, body, seq([], x), VEC))
        body = seq([b], value)
    return module(relax.Function([c, x], body))


@each_pass
def test_branches_within_branches(run):
    made = run(nested_branches())
    if made is not nested_branches():
        assert_well_formed(made)


def test_analyses_of_branches_within_branches():
    assert maybe_written_vars(nested_branches()["main"]) == set()
    assert "Function main" in estimate_memory_usage(nested_branches())


@each_pass
def test_functions_calling_functions_in_a_long_row(run):
    functions, gv = {}, None
    for i in range(200):
        x, y = relax.Var("x", VEC), relax.Var("y", VEC)
        value = relax.op.add(x, x) if gv is None else relax.Call(gv, (x, y))
        var, b = bind("v", value)
        fn = relax.Function([x, y], seq([b], var))
        gv = relax.GlobalVar(f"f{i}", fn.struct_info)
        functions[gv] = fn
    x = relax.Var("x", VEC)
    var, b = bind("v", relax.Call(gv, (x, x)))
    mod = module(relax.Function([x], seq([b], var)))
    mod.update(functions)
    made = run(mod)
    assert_well_formed(made)


def _empty():
    return IRModule()


def _nothing_public():
    x = relax.Var("x", VEC)
    return IRModule({"f": relax.Function([x], x), "g": relax.Function([], relax.Tuple(()))})


def _declaration():
    return IRModule({"f": relax.Function.create_empty([relax.Var("x", VEC)], VEC)})


def _only_kernels():
    a = te.placeholder((4,), "float32", "A")
    return IRModule({"k": te.create_prim_func([a, te.compute((4,), lambda i: a[i], name="B")])})


def _mutual():
    x, y = relax.Var("x", VEC), relax.Var("y", VEC)
    info = relax.FuncStructInfo([VEC], VEC)
    f, g = relax.GlobalVar("f", info), relax.GlobalVar("g", info)
    a, one = bind("a", relax.Call(g, (x,)))
    b, two = bind("b", relax.Call(f, (y,)))
    return IRModule(
        {f: relax.Function([x], seq([one], a), VEC), g: relax.Function([y], seq([two], b), VEC)}
    )


def _itself_as_argument():
    x = relax.Var("x", relax.ObjectStructInfo())
    info = relax.FuncStructInfo([relax.ObjectStructInfo()], relax.ObjectStructInfo())
    f = relax.GlobalVar("f", info)
    a, one = bind("a", relax.Call(f, (f,)))
    return IRModule({f: relax.Function([x], seq([one], a), relax.ObjectStructInfo())})


def _empty_blocks():
    x = relax.Var("x", VEC)
    blocks = [relax.BindingBlock([]), relax.DataflowBlock([]), relax.BindingBlock([])]
    return module(relax.Function([x], relax.SeqExpr(blocks, x)))


def _unknown_everything():
    o = relax.ObjectStructInfo()
    x, f = relax.Var("x", o), relax.Var("f", o)
    a, one = bind("a", relax.Call(f, (x, relax.Tuple([x, x]))))
    b, two = bind("b", relax.TupleGetItem(a, 3))
    return module(relax.Function([f, x], seq([one, two], b), o, False))


MODULES = [
    _empty,
    _nothing_public,
    _only_kernels,
    _mutual,
    _itself_as_argument,
    _empty_blocks,
    _unknown_everything,
]


@pytest.mark.parametrize("make", MODULES, ids=lambda f: f.__name__.strip("_"))
@each_pass
def test_odd_modules(run, make):
    mod = make()
    made = run(mod)
    assert_well_formed(made)
    assert {g.name_hint for g in made} == {g.name_hint for g in mod}


def _out_of_normal_form():
    x = relax.Var("x", VEC)
    return module(relax.Function([x], relax.op.add(relax.op.add(x, x), relax.op.exp(x))))


def _unbound():
    x, ghost = relax.Var("x", VEC), relax.Var("ghost", VEC)
    a, one = bind("a", relax.op.add(x, ghost))
    return module(relax.Function([x], seq([one], a)))


def _bound_twice():
    x = relax.Var("x", VEC)
    a, one = bind("a", relax.op.add(x, x))
    return module(relax.Function([x], seq([one, one], a)))


def _missing_function():
    x = relax.Var("x", VEC)
    gone = relax.GlobalVar("gone", relax.FuncStructInfo([VEC], VEC))
    a, one = bind("a", relax.Call(gone, (x,)))
    return module(relax.Function([x], seq([one], a)))


def _wrong_arguments():
    x, y = relax.Var("x", VEC), relax.Var("y", VEC)
    f = relax.GlobalVar("f", relax.FuncStructInfo([VEC, VEC], VEC))
    a, one = bind("a", relax.Call(f, (x, x)))
    return module(relax.Function([x], seq([one], a)), f=relax.Function([y], y))


BROKEN = [
    _declaration,
    _out_of_normal_form,
    _unbound,
    _bound_twice,
    _missing_function,
    _wrong_arguments,
]


@pytest.mark.parametrize("make", BROKEN, ids=lambda f: f.__name__.strip("_"))
@each_pass
def test_ill_formed_modules_give_a_module_or_a_typed_error(run, make):
    try:
        made = run(make())
    except RelaxvmError:
        return
    assert isinstance(made, IRModule)
