"""VMShapeLower: slots, checks and computed dimensions; and the words of the runtime for them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from relax_vm_helpers import VOID, Body, bindings_of, count_calls, module, tensor

from relaxvm import relax, tir
from relaxvm.base import CodegenError, VerifyError
from relaxvm.ir import IntImm
from relaxvm.relax import (
    Call,
    ExternFunc,
    Function,
    If,
    MatchCast,
    ObjectStructInfo,
    PrimStructInfo,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    ShapeStructInfo,
    TensorStructInfo,
    Tuple,
    TupleStructInfo,
    Var,
)
from relaxvm.relax.transform import VMShapeLower
from relaxvm.relax.vm_info import Names, runtime_info, to_dim
from relaxvm.runtime import dims

OBJECT = ObjectStructInfo()


def symbol(name="n", dtype="int64"):
    return tir.Var(name, dtype)


def lower(fn):
    return VMShapeLower()(module({"main": fn}))["main"]


def calls(fn, name):
    """Plain argument lists of the calls of a builtin; variables by name."""
    found = []
    for block in fn.body.blocks:
        for b in block.bindings:
            op = getattr(b.value, "op", None)
            if isinstance(op, ExternFunc) and op.global_symbol == f"vm.builtin.{name}":
                found.append([plain(a) for a in b.value.args])
    return found


def plain(a):
    if isinstance(a, PrimValue):
        return int(a.value)
    if isinstance(a, Tuple):
        return [plain(f) for f in a.fields]
    return a.name_hint if isinstance(a, Var) else getattr(a, "value", a)


def test_constant_shape_needs_no_heap():
    x = Var("x", tensor((2, 3)))
    made = lower(Body().function([x], x))
    text = "main: parameter x: Tensor((2, 3), float32)"
    assert calls(made, "alloc_shape_heap") == []
    assert calls(made, "check_tensor_info") == [["x", 2, "float32", text]]
    assert calls(made, "match_shape") == [["x", "shape_heap", text, 0, 2, 0, 3]]


def test_symbol_that_nobody_needs_has_no_slot():
    x = Var("x", tensor((symbol(), 3)))
    made = lower(Body().function([x], x))
    assert calls(made, "match_shape")[0][3:] == [2, 0, 0, 3]


def test_symbol_is_stored_then_compared():
    n = symbol()
    x, y = Var("x", tensor((n,))), Var("y", tensor((4, n)))
    made = lower(Body().function([x, y], x))
    assert calls(made, "alloc_shape_heap") == [[1]]
    assert [c[3:] for c in calls(made, "match_shape")] == [[1, 0], [0, 4, 3, 0]]


def test_same_symbol_twice_in_one_shape_is_compared():
    n = symbol()
    x = Var("x", tensor((n, n)))
    made = lower(Body().function([x], x))
    assert calls(made, "match_shape")[0][3:] == [1, 0, 3, 0]


def test_expression_waits_for_its_symbols():
    n, m = symbol("n"), symbol("m")
    x, y = Var("x", tensor((n * m,))), Var("y", tensor((m, n)))
    made = lower(Body().function([x, y], x))
    assert [c[0] for c in calls(made, "match_shape")] == ["y", "x"]
    assert calls(made, "shape_expr") == [["shape_heap", 2, ["$1", "$0", "*"]]]
    assert calls(made, "match_shape")[1][3:] == [3, 2]


def test_symbol_only_in_expressions_is_an_error_naming_it():
    n = symbol("rows")
    x = Var("x", tensor((n * 2,)))
    with pytest.raises(VerifyError, match=r"main: parameter x.*cannot derive rows.*R\.Prim"):
        lower(Body().function([x], x))


def test_undefined_symbol_in_the_body_is_an_error_naming_it():
    n = symbol("cols")
    x = Var("x", tensor((4,)))
    with pytest.raises(VerifyError, match="symbol cols has no value here"):
        lower(Body().function([x], ShapeExpr((n,))))


def test_prim_shape_tuple_and_function_parameters_are_checked():
    n = symbol()
    params = [
        Var("p", PrimStructInfo(value=n)),
        Var("s", ShapeStructInfo((n, 3))),
        Var("t", TupleStructInfo((tensor((n,)), OBJECT, TupleStructInfo((tensor((2,)),))))),
        Var("f", relax.FuncStructInfo((tensor((n,)),), OBJECT)),
        Var("o", OBJECT),
    ]
    counts = count_calls(lower(Body().function(params, params[0])))
    assert {k.removeprefix("vm.builtin."): v for k, v in counts.items()} == {
        "alloc_shape_heap": 1,
        "check_prim_value_info": 1,
        "check_shape_info": 1,
        "check_tuple_info": 2,
        "check_tensor_info": 2,
        "check_func_info": 1,
        "match_prim_value": 1,
        "match_shape": 3,
    }


def test_shape_is_made_once_per_scope():
    n = symbol()
    x, c, b = Var("x", tensor((n,))), Var("c", tensor((), "bool")), Body()
    use = lambda body: body(Call(ExternFunc("f"), (ShapeExpr((n, 2)),), sinfo_args=(OBJECT,)))  # noqa: E731
    t, e = Body(), Body()
    b(If(c, t.seq(use(t)), e.seq(use(e))))
    use(b)
    use(b)
    made = lower(b.function([x, c], use(b), is_pure=False))
    assert count_calls(made)["vm.builtin.make_shape"] == 3
    assert len(calls(made, "make_shape")) == 1


def test_match_cast_checks_only_what_is_not_known():
    n, m = symbol("n"), symbol("m")
    x, b = Var("x", tensor((n,))), Body()
    y = Var("y", tensor((m,)))
    b.bindings.append(MatchCast(y, x, tensor((m,))))
    made = lower(b.function([x], ShapeExpr((m, n))))
    assert len(calls(made, "check_tensor_info")) == 1
    assert [c[3:] for c in calls(made, "match_shape")] == [[1, 0], [1, 1]]
    assert any(isinstance(v, MatchCast) for v in bindings_of(made))


def test_results_that_are_only_declared_are_checked():
    x, b = Var("x", tensor((4,))), Body()
    y = b(Call(ExternFunc("env.f"), (x,), sinfo_args=(tensor((2,)),)))
    b(Call(ExternFunc("env.g"), (x,), sinfo_args=(VOID,)), "_")
    b(Call(ExternFunc("env.h"), (x,), sinfo_args=(OBJECT,)))
    b(Call(ExternFunc("env.d"), (x, y), {"dps": True}, sinfo_args=(VOID,)), "_")
    made = lower(b.function([x], y, is_pure=False))
    text = "main: result of env.f: Tensor((2,), float32)"
    assert calls(made, "check_tensor_info")[1:] == [["lv", 1, "float32", text]]
    assert len(calls(made, "match_shape")) == 2


def test_floating_expression_is_refused():
    f = symbol("f", "float32")
    p = Var("p", PrimStructInfo(value=f))
    assert lower(Body().function([p], PrimValue(f))).body.body is p
    with pytest.raises(CodegenError, match=r"main: a scalar of dtype float32.*loop function"):
        lower(Body().function([p], PrimValue(f + 1.0)))


def test_operation_without_a_meaning_in_the_machine_is_refused():
    n = symbol()
    x = Var("x", tensor((n,)))
    with pytest.raises(CodegenError, match=r"main: tir\.popcount of dtype int64"):
        lower(Body().function([x], PrimValue(tir.popcount(n))))


def test_inner_function_is_refused():
    x, b = Var("x", tensor((4,))), Body()
    b(Function([Var("y", tensor((4,)))], SeqExpr((), x)))
    with pytest.raises(VerifyError, match="run LambdaLift first"):
        lower(b.function([x], x))


# -- words of the runtime -------------------------------------------------------------------------


def test_struct_info_as_the_executable_says_it():
    n, other = symbol("n"), symbol("n")
    names = Names()
    text = lambda info: str(runtime_info(info, names))  # noqa: E731
    assert text(tensor((n, 4))) == "Tensor((n, 4), float32)"
    assert text(tensor((other, n * 2 + 1))) == "Tensor((n_1, n * 2 + 1), float32)"
    assert text(TensorStructInfo(None, None)) == "Tensor()"
    assert text(ShapeStructInfo(ndim=2)) == "Shape(ndim=2)"
    assert text(TupleStructInfo((OBJECT, PrimStructInfo("bool")))) == "Tuple(Object(), Prim(bool))"
    assert text(PrimStructInfo(value=n)) == "Prim(int64, value=n)"
    deep = OBJECT
    for _ in range(100):
        deep = TupleStructInfo((deep,))
    assert len(text(deep)) < 200


def test_deep_expression_is_left_out_of_the_description():
    n = symbol()
    total = n
    for i in range(5000):
        total = total + n * (i + 2)
    assert str(runtime_info(tensor((total,)), Names())) == "Tensor(dtype=float32, ndim=1)"


EXPRESSIONS = st.deferred(
    lambda: st.one_of(
        st.sampled_from(["n", "m"]),
        st.integers(-9, 9),
        st.tuples(st.sampled_from(sorted(BINARY)), EXPRESSIONS, EXPRESSIONS),
    )
)
BINARY = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    # By constructor: constants divided by zero are refused elsewhere.
    "div": tir.FloorDiv,
    "mod": tir.FloorMod,
    "min": tir.min,
    "max": tir.max,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "truncdiv": tir.Div,
    "truncmod": tir.Mod,
    "less": lambda a, b: tir.Cast("int64", a < b),
    "select": lambda a, b: tir.Select(a >= b, a, b),
}


@settings(max_examples=200)
@given(
    EXPRESSIONS,
    st.integers(-20, 20),
    st.integers(-20, 20),
    st.sampled_from(["int64", "int32", "int8"]),
)
def test_programs_mean_what_the_expressions_mean(tree, n_value, m_value, dtype):
    symbols = {"n": symbol("n", dtype), "m": symbol("m", dtype)}

    def build(t):
        if isinstance(t, str):
            return symbols[t]
        if isinstance(t, int):
            return tir.const(t, dtype)
        made = BINARY[t[0]](build(t[1]), build(t[2]))
        return made if made.dtype == dtype else made.astype(dtype)

    expr = build(tree)
    env = {symbols["n"]: n_value, symbols["m"]: m_value}
    want = int(tir.interp.evaluate_expr(expr, env))
    program = to_dim(expr, Names())
    if dtype == "int64":
        try:
            got = dims.evaluate(program, {"n": n_value, "m": m_value})
        except (ValueError, OverflowError):
            return  # past 64 bits: an error, never another number
    else:
        got = dims.evaluate(program, {"n": n_value, "m": m_value})
    assert got == want
    assert not isinstance(expr, IntImm) or isinstance(program, int)


def test_a_module_lowered_already_stays_as_it_is():
    n = symbol()
    x = Var("x", TensorStructInfo((n, 4), "float32"))
    s = Var("s", ShapeStructInfo((n, n * 2)))
    for params in ([x], [s], [Var("o", OBJECT), x], []):
        lowered = VMShapeLower()(module({"main": Function(params, ShapeExpr((4,)))}))
        assert VMShapeLower()(lowered) is lowered
    # What is put in afterwards is lowered.
    lowered = lower(Function([x], ShapeExpr((4,))))
    made = Call(ExternFunc("env.f"), [ShapeExpr((n,))], None, [OBJECT])
    y = Var("y", OBJECT)
    block = relax.BindingBlock([*lowered.body.blocks[0].bindings, relax.VarBinding(y, made)])
    again = VMShapeLower()(module({"main": lowered.replace(body=SeqExpr([block], y))}))
    assert count_calls(again["main"])["vm.builtin.make_shape"] == 1


def test_checks_may_leave_out_what_they_check():
    x = Var("x", TensorStructInfo((symbol(), 4), "float32"))
    fn = VMShapeLower(emit_err_ctx=False)(module({"main": Function([x], x)}))["main"]
    texts = {a.value for b in bindings_of(fn) for a in b.value.args if hasattr(a, "value")}
    assert "main" in texts and not any("parameter" in str(t) for t in texts)
