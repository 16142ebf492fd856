"""Relay's constructors: what they make, what `isinstance` says of it, and its parts by Relay's
names.
"""

from __future__ import annotations

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relax, relay
from relaxvm.base import PassError, StructInfoError, VerifyError
from relaxvm.relax.interp import Evaluator


def run(mod, *arrays):
    return Evaluator(mod)("main", *arrays)


def test_isinstance_knows_what_relay_s_names_make():
    x, y = relay.var("x", shape=(2,)), relay.Var("y", relay.TensorType((2,)))
    made = {
        relay.Var: x,
        relay.Constant: relay.const(1),
        relay.Call: relay.add(x, y),
        relay.Function: relay.Function([x], x),
        relay.If: relay.If(relay.const(True), x, y),
        relay.Let: relay.Let(y, x, y),
        relay.Tuple: relay.Tuple([x, y]),
        relay.TupleGetItem: relay.TupleGetItem(relay.var("t"), 0),
        relay.GlobalVar: relay.GlobalVar("f"),
        relay.TensorType: x.checked_type,
        relay.TupleType: relay.Tuple([x]).checked_type,
        relay.FuncType: relay.Function([x], x).checked_type,
        relay.Any: relay.Any(),
    }
    for kind, value in made.items():
        assert [k for k in made if isinstance(value, k)] == [kind]
    assert isinstance(relay.TensorType((2,)), relay.TensorType)
    assert all(isinstance(v, relay.Expr) for v in list(made.values())[:8])


def test_types_know_sizes_and_go_where_types_go():
    x = relay.var("x", shape=(2, 3), dtype="int8")
    type_ = x.checked_type
    assert [int(n) for n in type_.shape] == [2, 3] == list(type_.concrete_shape)
    assert type_.dtype == "int8" and type_ == relay.TensorType((2, 3), "int8")
    assert type_ == relax.TensorType(2, "int8") != relay.TensorType((3, 2), "int8")
    assert relay.var("y", type_).struct_info is x.struct_info
    pair = relay.TupleType([type_, relay.scalar_type("bool")])
    fn = relay.Function([x], relay.Tuple([x, relay.const(True)]), pair)
    assert fn.ret_type.fields[0].shape == type_.shape and fn.type_params == ()
    assert fn.checked_type.arg_types[0] == type_ and fn.checked_type.ret_type == fn.ret_type
    again = relay.FuncType([type_], fn.ret_type)
    assert relay.var("f", fn.checked_type).struct_info.ret is again.ret is pair
    assert relay.var("z").type_annotation is None and x.type_annotation == type_
    assert relay.Function([x], relay.var("z")).ret_type is None
    with pytest.raises(StructInfoError, match="the sizes of .* are not known"):
        _ = relay.var("x", shape=(relay.Any(),)).checked_type.concrete_shape
    with pytest.raises(StructInfoError, match="wanted a type, got int"):
        relay.var("x", 3)


def test_a_let_has_a_variable_a_value_and_a_body():
    x, a, b = relay.var("x", shape=(2,)), relay.var("a", shape=(2,)), relay.var("b", shape=(2,))
    inner = relay.Let(b, relay.negative(a), relay.add(a, b))
    let = relay.Let(a, relay.exp(x), inner)
    assert (let.var, let.body) == (a, inner) and let.value.op.name == "relax.exp"
    body = relax.transform.Normalize()(tvm.IRModule.from_expr(relay.Function([x], let)))[
        "main"
    ].body
    seen = []
    while isinstance(body, relay.Let):
        var, value, body = body.let
        seen.append(value.op.name)
    assert seen == ["relax.exp", "relax.negative", "relax.add"]
    with pytest.raises(VerifyError, match="binds nothing"):
        _ = relax.SeqExpr((), x).var


def test_lets_may_be_as_many_as_a_program_has():
    x = relay.var("x", shape=(2,))
    names = [x, *(relay.var(f"v{k}", shape=(2,)) for k in range(3000))]
    body = names[-1]
    for before, name in zip(names[-2::-1], names[:0:-1]):
        body = relay.Let(name, relay.negative(before), body)
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], body)))
    values = np.array([1, -2], "float32")
    np.testing.assert_array_equal(run(mod, values), values)


@pytest.mark.parametrize("typed", [True, False])
def test_operators_are_found_by_name_and_called_with_attributes(typed):
    x = relay.var("x", shape=(2, 3)) if typed else relay.var("x")
    dense = relay.Call(relay.op.get("nn.dense"), [x, relay.const(np.ones((4, 3)), "float32")])
    out = relay.Call(relay.op.get("sum"), [dense], {"axis": 1, "keepdims": True})
    both = relay.Call(relay.op.get("concatenate"), [relay.Tuple([out, out])], {"axis": 0})
    mod = tvm.IRModule.from_expr(relay.Function([x], both))
    if not typed:
        declared = relax.transform.UpdateParamStructInfo(lambda p: relay.TensorType((2, 3)))
        mod = relay.transform.InferType()(declared(relax.transform.Normalize()(mod)))
    assert run(mod, np.ones((2, 3), "float32")).tolist() == [[12.0]] * 4
    assert tvm.ir.Op.get("nn.dense") is relay.op.get("nn.dense")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda x: relay.op.get("nn.denze"), "did you mean nn.dense"),
        (lambda x: relay.Call(relay.op.get("exp"), [x, x]), "got 2 operands"),
        (lambda x: relay.Call(relay.op.get("add"), [x]), "relay.add: missing .* 'rhs'"),
        (lambda x: relay.Call(relay.op.get("exp"), [x], {"axis": 1}), "relay.exp: .* 'axis'"),
        (lambda x: relay.TupleGetItem(x, 0), "wanted a tuple"),
        (lambda x: relay.var("x", "float32", shape=(2,)), "got both"),
        (lambda x: relay.split(x, 3), "axis 0, of size 2, has no 3 equal parts"),
        (lambda x: relay.transform.FuseOps()(relay.Function([x], x)), "IRModule, got a Function"),
        (lambda x: tvm.IRModule.from_expr(3), "wanted a function or an expression, got int"),
    ],
)
def test_wrong_calls_are_errors_that_say_what_is_wrong(wrong, message):
    with pytest.raises((StructInfoError, ValueError, VerifyError, PassError), match=message):
        wrong(relay.var("x", shape=(2,)))


def test_an_expression_becomes_a_function_of_its_free_variables():
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    mod = tvm.IRModule.from_expr(relay.subtract(y, relay.exp(x)))
    assert list(mod["main"].params) == [y, x]
    assert tvm.IRModule.from_expr(mod) is mod
    zeros = np.zeros(2, "float32")
    assert run(mod, zeros, zeros).tolist() == [-1, -1]


def test_values_stand_for_variables():
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    fn = relay.bind(relay.Function([x, y], relay.subtract(x, y)), {y: relay.const([1.0, 2.0])})
    assert list(fn.params) == [x]
    assert run(tvm.IRModule.from_expr(fn), np.zeros(2, "float32")).tolist() == [-1, -2]
    assert relay.bind(relay.exp(x), {x: y}).args[0] is y


def test_names_may_repeat():
    x, y = relay.var("x", shape=(2,)), relay.var("x", shape=(2,))
    mod = relay.transform.InferType()(
        tvm.IRModule.from_expr(relay.Function([x, y], relay.subtract(x, y)))
    )
    got = run(tvm.script.from_source(mod.script()), np.ones(2, "float32"), np.zeros(2, "float32"))
    assert got.tolist() == [1, 1]


def test_modules_hold_functions_under_global_variables():
    mod, gv, x = tvm.IRModule(), relay.GlobalVar("g1"), relay.var("x", shape=(2,))
    fn = relay.Function([x], relay.exp(x)).with_attr("Inline", tvm.tir.IntImm("int32", 1))
    mod[gv] = fn
    mod["main"] = relay.Function([x], gv(x))
    assert mod.get_global_var("g1") is gv in mod.functions
    assert [v.name_hint for v in mod.get_global_vars()] == ["g1", "main"]
    assert mod["g1"].attrs["Inline"] == 1
    mod.update(tvm.IRModule.from_expr(relay.Function([x], gv(gv(x)))))
    assert run(relay.transform.InferType()(mod), np.zeros(2, "float32")) == pytest.approx(np.e)
