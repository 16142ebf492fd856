"""well_formed: every rule has a module that breaks it, and the message says where."""

from __future__ import annotations

import numpy as np
import pytest

from relaxvm import relax, te
from relaxvm.base import Span, VerifyError
from relaxvm.ir import GlobalVar, IRModule, Var
from relaxvm.relax.analysis import assert_well_formed, check_well_formed, well_formed

n, m = Var("n", "int64"), Var("m", "int64")
Tensor, Tuple, Shape = relax.TensorStructInfo, relax.TupleStructInfo, relax.ShapeStructInfo
Object, Prim, Func = relax.ObjectStructInfo, relax.PrimStructInfo, relax.FuncStructInfo
OUT = Tensor((n, 4))
BOOL = Tensor((), "bool")


def var(name="x", info=OUT):
    return relax.Var(name, info)


def dvar(name="lv", info=OUT):
    return relax.DataflowVar(name, info)


def call(*args, out=OUT):
    return relax.call_dps_packed("env.f", args, out)


def bind(v, value):
    return relax.VarBinding(v, value)


def plain(*bindings):
    return relax.BindingBlock(bindings)


def flow(*bindings):
    return relax.DataflowBlock(bindings)


def func(params, blocks, result, ret=None, **more):
    return relax.Function(params, relax.SeqExpr(blocks, result), ret, **more)


def module(fn, **functions):
    return IRModule({"main": fn, **functions})


def kernel(shape=(n, 4), dtype="float32", scalars=()):
    a = te.placeholder(shape, dtype, "A")
    out = te.compute(shape, lambda *i: a(*i) + te.const(1, dtype), name="B")
    return te.create_prim_func([a, out, *scalars]).without_attr("global_symbol")


def good():
    x, c, y, z = var(), var("c", BOOL), var("y"), var("z")
    branch = relax.SeqExpr([plain(bind(var("t"), call(x)))], x)
    lv = dvar()
    shape = var("s", Shape((m,)))
    return func(
        [x, c, shape],
        [
            flow(bind(lv, call(x)), bind(y, call(lv))),
            plain(bind(z, relax.If(c, branch, relax.SeqExpr([], y)))),
            plain(bind(var("w", Tensor((m,))), call(z, out=Tensor((m,))))),
        ],
        relax.Tuple((z, shape)),
    )


def test_a_good_module_is_well_formed():
    assert well_formed(module(good()))
    assert well_formed(good())
    assert assert_well_formed is check_well_formed
    assert not well_formed(func([], [], var()))


def inner_function(result_of):
    x = var()
    y = var("y")
    return func([x], [plain(bind(var("g", result_of.struct_info), result_of))], x), y


def case(name, make, message, *, needs_infos=False):
    return pytest.param(make, message, needs_infos, id=name)


def _twice():
    x, y = var(), var("y")
    return func([x], [plain(bind(y, call(x)), bind(y, call(x)))], y)


def _param_twice():
    x = var()
    return func([x, x], [], x)


def _unbound():
    return func([var()], [plain(bind(var("y"), call(var("ghost"))))], relax.Tuple(()))


def _before():
    x, y, z = var(), var("y"), var("z")
    return func([x], [plain(bind(z, call(y)), bind(y, call(x)))], z)


def _dataflow_escapes():
    x, lv = var(), dvar()
    return func([x], [flow(bind(lv, call(x)))], lv)


def _dataflow_outside():
    x, lv = var(), dvar()
    return func([x], [plain(bind(lv, call(x)))], x)


def _out_of_branch():
    x, c, t, z = var(), var("c", BOOL), var("t"), var("z")
    branch = relax.SeqExpr([plain(bind(t, call(x)))], t)
    both = relax.If(c, branch, relax.SeqExpr([], x))
    return func([x, c], [plain(bind(z, both)), plain(bind(var("w"), call(t)))], z)


def _if_in_dataflow():
    x, c, z = var(), var("c", BOOL), var("z")
    return func([x, c], [flow(bind(z, relax.If(c, x, x)))], z)


def _if_cond():
    x, z = var(), var("z")
    return func([x], [plain(bind(z, relax.If(x, x, x)))], z)


def _nested_call():
    x, y = var(), var("y")
    return func([x], [plain(bind(y, call(call(x))))], y)


def _nested_body():
    x = var()
    return func([x], [], call(x))


def _nested_cast():
    x = var()
    cast = relax.MatchCast(var("y"), call(x), OUT)
    return func([x], [plain(cast)], x)


def _undefined_symbol_in_param():
    return func([var("x", Tensor((m * 2,)))], [], relax.Tuple(()))


def _undefined_symbol_in_call():
    x = var()
    return func([x], [plain(bind(var("y", Tensor((m,))), call(x, out=Tensor((m,)))))], x)


def _undefined_symbol_in_shape():
    return func([var()], [], relax.ShapeExpr((m + 1,)), ret=Shape(ndim=1))


def _undefined_symbol_in_prim():
    return func([var()], [], relax.PrimValue(m), ret=Prim("int64"))


def _symbol_escapes_branch():
    x, c, z = var("x", Tensor(None, ndim=2)), var("c", BOOL), var("z", Tensor(None, ndim=2))
    y = var("y", Tensor((m, 4)))
    branch = relax.SeqExpr([plain(relax.MatchCast(y, x, Tensor((m, 4))))], y)
    both = relax.If(c, branch, relax.SeqExpr([], x))
    late = relax.PrimValue(m)
    return func([x, c], [plain(bind(z, both)), plain(bind(var("p", Prim("int64")), late))], z)


def _symbol_escapes_result():
    x, y = var("x", Tensor(None, ndim=2)), var("y", Tensor((m, 4)))
    return func([x], [plain(relax.MatchCast(y, x, Tensor((m, 4))))], y, ret=Tensor((m, 4)))


def _cast_expression_only():
    x = var("x", Tensor(None, ndim=1))
    cast = relax.MatchCast(var("y", Tensor((m * 2,))), x, Tensor((m * 2,)))
    return func([x], [plain(cast)], relax.Tuple(()))


def _cast_impossible():
    x = var("x", Tensor((3,)))
    return func([x], [plain(relax.MatchCast(var("y", Tensor((4,))), x, Tensor((4,))))], x)


def _impure_in_dataflow():
    x, y = var(), var("y")
    say = relax.call_packed("env.say", x, sinfo_args=OUT)
    return func([x], [flow(bind(y, say))], y, is_pure=False)


def _impure_in_pure():
    x, y = var(), var("y")
    return func([x], [plain(bind(y, relax.call_packed("env.say", x, sinfo_args=OUT)))], y)


def _impure_op():
    x = var()
    return func([x], [plain(bind(var("u", Tuple(())), relax.op.print(x)))], x)


def _wrong_ret():
    x = var()
    return func([x], [], x, ret=Tensor((n, 5)))


def _impossible_ret():
    x = var()
    return func([x], [], x, ret=Tensor((n, 5)))


def _wrong_var_info():
    x, y = var(), var("y", Tensor((n, 5)))
    return func([x], [plain(bind(y, call(x)))], x)


def _wrong_call_info():
    x, y = var(), var("y", Tensor((n, 5)))
    lying = call(x).replace(struct_info=Tensor((n, 5)))
    return func([x], [plain(bind(y, lying))], x)


def _wrong_branch_info():
    x, c, z = var(), var("c", BOOL), var("z", Tensor((n, 5)))
    both = relax.If(c, x, x, Tensor((n, 5)))
    return func([x, c], [plain(bind(z, both))], x)


def _wrong_constant():
    lying = relax.Constant(np.zeros(2, "float32"), Tensor((1000,)))
    return func([], [], relax.Tuple((lying,)))


def _missing_function():
    x, y = var(), var("y")
    gv = GlobalVar("nothing", Func([OUT], OUT))
    return func([x], [plain(bind(y, gv(x)))], y)


def _missing_kernel():
    x, y = var(), var("y")
    return func([x], [plain(bind(y, relax.call_tir(GlobalVar("nothing"), x, OUT)))], y)


def _shape_variable():
    s = var("s", Shape((n, 4)))
    y = var("y", Tensor(s))
    return func([var(), y], [], relax.Tuple(()))


CASES = [
    case("bound twice", _twice, r"in main, variable y: variable y is bound twice"),
    case("parameter twice", _param_twice, r"parameter x is bound twice"),
    case("unbound", _unbound, r"variable y: ghost is not bound"),
    case("before", _before, r"variable z: y is not bound"),
    case("dataflow escapes", _dataflow_escapes, r"lv is a dataflow variable and used outside"),
    case("dataflow outside", _dataflow_outside, r"DataflowVar is bound outside"),
    case("out of branch", _out_of_branch, r"t is used outside the scope"),
    case("if in dataflow", _if_in_dataflow, r"If stands in a dataflow block"),
    case("condition", _if_cond, r"condition of an If is a bool scalar, got R.Tensor"),
    case("nested call", _nested_call, r"variable y: it is not in normal form"),
    case("nested body", _nested_body, r"not bound to a variable: Call"),
    case("nested cast", _nested_cast, r"match_cast is not bound to a variable"),
    case(
        "symbol of parameter",
        _undefined_symbol_in_param,
        r"parameter x: .*symbol m, but no parameter",
    ),
    case("symbol of call", _undefined_symbol_in_call, r"symbol m, but it is not bound"),
    case("symbol of shape", _undefined_symbol_in_shape, r"symbol m is not bound before"),
    case("symbol of scalar", _undefined_symbol_in_prim, r"symbol m is not bound before"),
    case("symbol leaves branch", _symbol_escapes_branch, r"symbol m is not bound"),
    case("symbol leaves function", _symbol_escapes_result, r"mentions m, which no parameter"),
    case("cast to expression", _cast_expression_only, r"symbol m, but nothing determines it"),
    case("cast impossible", _cast_impossible, r"can never be that"),
    case("effect in dataflow", _impure_in_dataflow, r"env.say may have effects .* dataflow block"),
    case(
        "effect in pure function",
        _impure_in_pure,
        r"env.say may have effects .* pure function main",
    ),
    case("effect of operator", _impure_op, r"relax.print may have effects"),
    case(
        "result",
        _wrong_ret,
        r"not what ret_struct_info says(.|\n)*wanted: .*5(.|\n)*got: .*4",
        needs_infos=True,
    ),
    case(
        "result that never is", _impossible_ret, r"not what ret_struct_info says", needs_infos=True
    ),
    case("variable info", _wrong_var_info, r"value does not fit it", needs_infos=True),
    case("call info", _wrong_call_info, r"call gives other struct info", needs_infos=True),
    case("branch info", _wrong_branch_info, r"branch does not fit the If", needs_infos=True),
    case("constant", _wrong_constant, r"constant is not what it says"),
    case("missing function", _missing_function, r"nothing is not in the module; it has: main"),
    case("missing kernel", _missing_kernel, r"nothing is not in the module"),
    case("shape variable", _shape_variable, r"s is not bound"),
]


@pytest.mark.parametrize(("make", "message", "needs_infos"), CASES)
def test_a_broken_rule_is_found_and_named(make, message, needs_infos):
    mod = module(make())
    assert not well_formed(mod)
    with pytest.raises(VerifyError, match=message):
        check_well_formed(mod)
    if needs_infos:
        check_well_formed(mod, check_struct_info=False)


def test_a_function_alone_is_checked_without_its_module():
    check_well_formed(_missing_function())
    with pytest.raises(VerifyError, match="ghost"):
        check_well_formed(_unbound())
    with pytest.raises(VerifyError, match="wanted an IRModule or a Function"):
        check_well_formed(3)


def test_the_message_shows_the_source_line(tmp_path):
    source = tmp_path / "net.py"
    source.write_text("first\n    lv = f(ghost)\n")
    span = Span(str(source), 2, 10, 2, 18)
    bad = relax.VarBinding(var("lv"), call(var("ghost")), span)
    with pytest.raises(
        VerifyError, match=r"in main, variable lv: ghost(.|\n)*net.py:2:10(.|\n)*lv = f\(ghost\)"
    ):
        check_well_formed(module(func([var()], [plain(bad)], relax.Tuple(()))))


def test_calls_between_functions_use_the_module_not_the_global_var():
    x, y = var(), var("y", Tensor((n,)))
    stale = GlobalVar("g", Func([OUT], Tensor((n,))))
    main = func([x], [plain(bind(y, stale(x)))], y)
    g_ok = func(
        [a := var("a")], [plain(bind(b := var("b", Tensor((n,))), call(a, out=Tensor((n,)))))], b
    )
    check_well_formed(module(main, g=g_ok))
    g_other = func([a := var("a")], [], a)
    with pytest.raises(VerifyError, match="call gives other struct info"):
        check_well_formed(module(main, g=g_other))
    g_two = func([var("a"), var("b")], [], relax.Tuple(()))
    with pytest.raises(VerifyError, match="g: wanted 2 arguments, got 1"):
        check_well_formed(module(main, g=g_two))


def test_an_impure_callee_is_found_through_the_module():
    x, y = var(), var("y")
    gv = GlobalVar("g", Func([OUT], OUT, True))
    main = func([x], [plain(bind(y, gv(x)))], y)
    impure = func([a := var("a")], [], a, is_pure=False)
    with pytest.raises(VerifyError, match="g may have effects"):
        check_well_formed(module(main, g=impure))


def test_force_pure_accepts_effects():
    fn = _impure_in_pure().with_attr("relax.force_pure", True)
    check_well_formed(module(fn))


def test_force_pure_is_for_plain_blocks_of_pure_functions():
    fn = _impure_in_pure().with_attr("relax.force_pure", True)
    (block,) = fn.body.blocks
    inside = fn.replace(body=fn.body.replace(blocks=(relax.DataflowBlock(block.bindings),)))
    with pytest.raises(VerifyError, match="is called in a dataflow block"):
        check_well_formed(module(inside))
    with pytest.raises(VerifyError, match="force_pure is for pure functions"):
        check_well_formed(module(fn.replace(is_pure=False)))


def test_a_symbol_belongs_to_one_function():
    x, y = (relax.Var("x", relax.TensorStructInfo((n, 4), "float32")) for _ in range(2))
    both = module(func([x], [], x), g=func([y], [], y))
    check_well_formed(both)  # each binds its own when it runs
    assert not relax.analysis.well_formed(both)
    with pytest.raises(VerifyError, match="in g, parameter x: the symbol n is bound in main too"):
        check_well_formed(both, own_symbols=True)
    assert relax.analysis.well_formed(module(func([x], [], x)))


def test_recursion_is_well_formed():
    x, y, c = var(), var("y"), var("c", BOOL)
    gv = GlobalVar("main", Func([OUT, BOOL], OUT))
    branch = relax.SeqExpr([plain(bind(t := var("t"), gv(x, c)))], t)
    check_well_formed(module(func([x, c], [plain(bind(y, relax.If(c, branch, x)))], y)))


def test_a_closure_may_use_variables_and_symbols_around_it():
    x, a = var(), var("a", Tensor((m,)))
    inner = func([a], [plain(bind(r := var("r"), call(a, x)))], r, ret=OUT)
    f = var("f", inner.struct_info)
    outer = func(
        [x, s := var("s", Tensor((m,)))],
        [plain(bind(f, inner)), plain(bind(y := var("y"), f(s)))],
        y,
    )
    check_well_formed(module(outer))
    with pytest.raises(VerifyError, match="x is not bound"):
        check_well_formed(module(inner))


# -- kernels --------------------------------------------------------------------------------------


def kernel_module(made, prim, params=None):
    x = params[0] if params else var()
    out = var("y", made.struct_info)
    return module(func(params or [x], [plain(bind(out, made))], relax.Tuple(())), k=prim)


K = GlobalVar("k")


def kernel_case(name, arg, out, prim, message, **more):
    return pytest.param(arg, out, prim, message, more, id=name)


@pytest.mark.parametrize(
    ("arg", "out", "prim", "message", "more"),
    [
        kernel_case(
            "dtype",
            Tensor((n, 4), "int32"),
            OUT,
            kernel(),
            r"argument 0 \(x\)(.|\n)*float32(.|\n)*int32",
        ),
        kernel_case("rank", Tensor((n, 4, 1)), OUT, kernel(), r"argument 0"),
        kernel_case("size", Tensor((n, 5)), OUT, kernel(), r"argument 0"),
        kernel_case(
            "output size", OUT, Tensor((n + 1, 4)), kernel(), r"output 0 (.|\n)*where n = n"
        ),
        kernel_case("output dtype", OUT, Tensor((n, 4), "int8"), kernel(), r"output 0"),
        kernel_case("fixed size", OUT, OUT, kernel((3, 5)), r"argument 0"),
        kernel_case(
            "scalar missing", OUT, OUT, kernel(scalars=(Var("k", "int64"),)), r"3 parameters"
        ),
        kernel_case("scalar too many", OUT, OUT, kernel(), r"2 parameters", tir_vars=[n]),
        kernel_case("object", Object(), OUT, kernel(), None),
        kernel_case("unknown", Tensor(None, "void"), OUT, kernel(), None),
        kernel_case("maybe", Tensor((m, 4)), OUT, kernel(), None),
        kernel_case("good", OUT, OUT, kernel(), None),
        kernel_case(
            "scalar", OUT, OUT, kernel(scalars=(Var("k", "int64"),)), None, tir_vars=[n + 1]
        ),
    ],
)
def test_call_tir_is_checked_against_the_kernel(arg, out, prim, message, more):
    x, s = var("x", arg), var("s", Shape((n, m)))
    mod = kernel_module(relax.call_tir(K, x, out, **more), prim, [x, s])
    if message is None:
        check_well_formed(mod)
        return
    with pytest.raises(VerifyError, match=message):
        check_well_formed(mod)


def test_call_tir_inplace_hands_over_only_new_outputs():
    x = var()
    made = relax.call_tir_inplace(K, (x, x), [1], OUT)
    check_well_formed(kernel_module(made, kernel(), [x]))
    with pytest.raises(VerifyError, match="2 parameters"):
        check_well_formed(kernel_module(relax.call_tir_inplace(K, (x,), [0], OUT), kernel(), [x]))


def test_call_tir_of_a_graph_function_is_refused():
    x, a = var(), var("a")
    main = func([x], [plain(bind(y := var("y"), relax.call_tir(GlobalVar("g"), x, OUT)))], y)
    with pytest.raises(VerifyError, match="g is a graph function; call it directly"):
        check_well_formed(module(main, g=func([a], [], a)))


def test_public_names_are_unique_and_agree():
    fn = func([], [], relax.Tuple(()))
    a = fn.with_attr("global_symbol", "a")
    check_well_formed(IRModule({"a": a, "b": fn}))
    with pytest.raises(VerifyError, match="same global_symbol 'a'"):
        check_well_formed(IRModule({"a": a, "k": kernel().with_attr("global_symbol", "a")}))
    with pytest.raises(VerifyError, match="has the name it stands under"):
        check_well_formed(IRModule({"b": a}))
    with pytest.raises(VerifyError, match="is a string"):
        check_well_formed(IRModule({"b": fn.with_attr("global_symbol", 3)}))


def test_long_and_deep_functions_are_checked_without_recursion():
    x, c = var(), var("c", BOOL)
    bindings, last = [], x
    for i in range(10_000):
        v = var(f"v{i}")
        bindings.append(bind(v, call(last)))
        last = v
    check_well_formed(module(func([x], [plain(*bindings)], last)))
    value = x
    for i in range(500):
        v = var(f"w{i}")
        value = relax.SeqExpr([plain(bind(v, relax.If(c, value, x)))], v)
    check_well_formed(module(relax.Function([x, c], value)))


def test_a_variable_out_of_scope_is_named_with_the_line_that_binds_it(tmp_path):
    source = tmp_path / "net.py"
    source.write_text("if c:\n    t = f(x)\ny = f(t)\n")
    x, c, t, y, z = var("x"), var("c", Tensor((), "bool")), var("t"), var("y"), var("z")
    t = relax.Var("t", OUT, Span(str(source), 2, 5))
    branch = relax.SeqExpr([plain(bind(t, call(x)))], t)
    outer = plain(bind(z, relax.If(c, branch, relax.SeqExpr([], x))), bind(y, call(t)))
    fn = relax.Function([c, x], relax.SeqExpr([outer], y))
    with pytest.raises(VerifyError, match=r"t is used outside(.|\n)*net.py:2:5: t = f\(x\)"):
        check_well_formed(fn)


def test_an_escaping_symbol_is_named_with_what_bound_it():
    x, c, t, y = var("x", Tensor(None, ndim=1)), var("c", Tensor((), "bool")), None, None
    k = Var("k", "int64")
    t, u = var("t", Tensor((k,))), var("u", Tensor(None, ndim=1))
    cast = plain(relax.MatchCast(t, x, Tensor((k,))))
    z, y = var("z", Tensor(None, ndim=1)), var("y", Tensor((k,)))
    outer = plain(
        bind(z, relax.If(c, relax.SeqExpr([cast], u), relax.SeqExpr([], x))),
        bind(y, call(x, out=Tensor((k,)))),
    )
    fn = relax.Function([c, x, u], relax.SeqExpr([outer], x))
    with pytest.raises(VerifyError, match="symbol k, but (.|\n)*bound by variable t, in a scope"):
        check_well_formed(fn, check_struct_info=False)
