"""Expressions of the graph language: what they check and infer when they are built."""

from __future__ import annotations

import numpy as np
import pytest

from relaxvm import ir, relax, tir
from relaxvm.base import Span, StructInfoError, VerifyError
from relaxvm.ir import (
    GlobalVar,
    Var,
    load_json,
    load_msgpack,
    save_json,
    save_msgpack,
    structural_equal,
    structural_hash,
)
from relaxvm.runtime.ndarray import array

n, m = Var("n", "int64"), Var("m", "int64")
Tensor, Tuple, Func = relax.TensorStructInfo, relax.TupleStructInfo, relax.FuncStructInfo
x = relax.Var("x", Tensor((n, 4)))


def test_a_constant_takes_its_dtype_from_struct_info():
    info = Tensor((2,), "float16")
    assert relax.const([1, 2], info).struct_info == info
    assert relax.const([1, 2], Tensor(ndim=1)).struct_info.dtype == "float32"
    with pytest.raises(StructInfoError, match="wanted R.Tensor.*got an array of"):
        relax.const([1, 2, 3], info)


def test_constant_knows_its_shape_and_dtype():
    c = relax.const(np.zeros((2, 3), "int8"))
    assert c.struct_info is Tensor((2, 3), "int8")
    assert relax.const(1.5).struct_info is Tensor((), "float32")
    assert relax.const(1).struct_info is Tensor((), "int32")
    assert relax.const(True).struct_info is Tensor((), "bool")
    assert relax.const([1, 2], "bfloat16").struct_info is Tensor((2,), "bfloat16")


def test_tuple_get_item_checks_its_index():
    t = relax.Var("t", Tuple((Tensor((n,)), Tensor((m,)))))
    assert t[1].struct_info is Tensor((m,))
    for bad in (2, -1, "a"):
        with pytest.raises(StructInfoError, match="no field"):
            relax.TupleGetItem(t, bad)
    with pytest.raises(StructInfoError, match="wanted a tuple"):
        relax.TupleGetItem(x, 0)


def test_a_call_of_a_function_infers_its_result():
    gv = GlobalVar("f", Func([Tensor((n, 4))], Tensor((n,))))
    assert gv(relax.const(np.zeros((3, 4), "float32"))).struct_info is Tensor((3,))
    f = relax.Var("f", gv.struct_info)
    assert f(x).struct_info is Tensor((n,))


def test_a_wrong_argument_names_function_parameter_and_source_line(tmp_path):
    source = tmp_path / "model.py"
    source.write_text("a = 1\ny = f(x)\n")
    fn = relax.Function([relax.Var("image", Tensor((8, 4)))], relax.Tuple(()))
    with pytest.raises(
        StructInfoError, match=r"argument image(.|\n)*model.py:2:5(.|\n)*y = f\(x\)(.|\n)*\^\^\^\^"
    ):
        relax.Call(
            fn, [relax.const(np.zeros((3, 4), "float32"))], span=Span(str(source), 2, 5, 2, 9)
        )


def test_what_is_no_function_cannot_be_called():
    with pytest.raises(StructInfoError, match="x is called, but is no function"):
        relax.Call(x, [])
    with pytest.raises(StructInfoError, match="wanted a function"):
        relax.Call(3, [])


def test_an_extern_call_returns_what_sinfo_args_say():
    call = relax.Call(relax.extern("env.f"), [x], None, [Tensor((n,)), Tensor((m,))])
    assert call.struct_info is Tuple((Tensor((n,)), Tensor((m,))))
    assert relax.extern("env.f")(x).struct_info is relax.ObjectStructInfo()


def test_function_result_mentions_only_symbols_of_parameters():
    y = relax.Var("y", Tensor((m,)))
    cast = relax.BindingBlock([relax.MatchCast(y, x, Tensor((m,)))])
    fn = relax.Function([x], relax.SeqExpr([cast], relax.Tuple((x, y))))
    assert fn.ret_struct_info is Tuple((Tensor((n, 4)), Tensor(None, ndim=1)))


def test_function_parameters_are_vars():
    with pytest.raises(VerifyError, match="parameter is a relax.Var"):
        relax.Function([relax.DataflowVar("a")], x)


def _branch(var, value, info):
    return relax.SeqExpr([relax.BindingBlock([relax.MatchCast(var, value, info)])], var)


def test_if_joins_its_branches():
    cond = relax.Var("c", Tensor((), "bool"))
    y = relax.Var("y", Tensor((m, 4)))
    assert relax.If(cond, x, x).struct_info is Tensor((n, 4))
    assert relax.If(cond, x, y).struct_info is Tensor(None, ndim=2)


def test_if_does_not_leak_symbols_or_variables_of_a_branch():
    cond = relax.Var("c", Tensor((), "bool"))
    a, b = relax.Var("a", Tensor((m, 4))), relax.Var("b", Tensor((m, 4)))
    both = relax.If(cond, _branch(a, x, Tensor((m, 4))), _branch(b, x, Tensor((m, 4))))
    assert both.struct_info is Tensor(None, ndim=2)
    outer = relax.If(cond, _branch(relax.Var("d", Tensor((n, 4))), x, Tensor((n, 4))), x)
    assert outer.struct_info is Tensor((n, 4))
    s = relax.Var("s", relax.ShapeStructInfo(ndim=2))
    bind = relax.BindingBlock([relax.VarBinding(s, relax.op.shape_of(x))])
    t = relax.Var("t", Tensor(s))
    by_var = relax.If(cond, relax.SeqExpr([bind], t), relax.SeqExpr([], t))
    assert by_var.struct_info is Tensor(None, ndim=2)


def test_get_shape_of_gives_the_shape_or_asks_for_it():
    assert relax.get_shape_of(x) is relax.ShapeExpr((n, 4))
    asked = relax.get_shape_of(relax.Var("y", Tensor(None, ndim=2)))
    assert asked.op.name == "relax.shape_of"
    assert asked.struct_info is relax.ShapeStructInfo(ndim=2)
    with pytest.raises(StructInfoError, match="wanted a tensor"):
        relax.get_shape_of(relax.ShapeExpr((n,)))


@pytest.mark.parametrize("value", [None, object(), {1: 2}])
def test_what_is_no_expression_is_refused(value):
    with pytest.raises(StructInfoError, match="wanted a relax expression"):
        relax.Tuple([value])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int8", "bool", "uint64"])
def test_constants_survive_saving_bit_for_bit(dtype):
    c = relax.Constant(array(np.array([[0.0, 1.0], [1.0, 0.0]], "float32"), dtype=dtype))
    for back in (load_json(save_json(c)), load_msgpack(save_msgpack(c))):
        assert structural_equal(c, back)
        assert back.data.dtype is c.data.dtype
        assert structural_hash(c) == structural_hash(back)


def test_constants_are_compared_by_their_bits():
    nan = relax.const(np.array([np.nan], "float32"))
    assert structural_equal(nan, relax.const(np.array([np.nan], "float32")))
    assert not structural_equal(relax.const(np.float32(0.0)), relax.const(np.float32(-0.0)))
    assert not structural_equal(
        relax.const(np.zeros(2, "int32")), relax.const(np.zeros(2, "float32"))
    )
    assert not structural_equal(relax.const(np.zeros((1, 2))), relax.const(np.zeros((2, 1))))


def test_functions_survive_saving():
    fn = relax.Function([x], relax.call_dps_packed("env.f", x, Tensor((n, 4))))
    assert structural_equal(fn, load_msgpack(save_msgpack(fn)))


def test_a_result_declared_finer_than_its_body_is_cast():
    n = tir.Var("n", "int64")
    x = relax.Var("x", relax.TensorStructInfo((n,), "float32"))
    declared = relax.TensorStructInfo((4,), "float32")
    attrs = {"global_symbol": "main"}
    fn = relax.Function([x], relax.op.add(x, x), ret_struct_info=declared, attrs=attrs)
    assert relax.analysis.well_formed(fn)
    vm = relax.VirtualMachine(relax.build(ir.IRModule({"main": fn}), "llvm"))
    assert (vm["main"](np.ones(4, "float32")).numpy() == 2).all()
    with pytest.raises(ValueError, match="4"):
        vm["main"](np.ones(5, "float32"))
    never = relax.TensorStructInfo((4, 4), "float32")
    assert not relax.analysis.well_formed(relax.Function([x], x, ret_struct_info=never))
