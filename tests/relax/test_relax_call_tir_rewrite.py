"""CallTIRRewrite: outputs become explicit allocations."""

import pytest
from relax_vm_helpers import Body, count_calls, elementwise, gv, module, tensor

from relaxvm import relax
from relaxvm.base import VerifyError
from relaxvm.ir import Op, assert_structural_equal
from relaxvm.relax import DataflowBlock, DataflowVar, TensorStructInfo, Var
from relaxvm.relax.expr import Call
from relaxvm.relax.transform import CallTIRRewrite
from relaxvm.script import ir as I
from relaxvm.script import relax as R
from relaxvm.script import tir as T


@I.ir_module
class Before:
    @T.prim_func
    def exp(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 4), "float32")
        B = T.match_buffer(b, (n, 4), "float32")
        for i, j in T.grid(n, 4):
            with T.block("b"):
                v, w = T.axis.remap("SS", [i, j])
                B[v, w] = T.exp(A[v, w])

    @R.function(pure=False)
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        n = T.int64()
        cls = Before
        lv = R.call_tir(cls.exp, (x,), R.Tensor((n, 4), "float32"))
        gv = R.call_dps_packed("env.f", (x, lv), R.Tensor((n, 4), "float32"))
        return gv


@I.ir_module
class After:
    @T.prim_func
    def exp(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 4), "float32")
        B = T.match_buffer(b, (n, 4), "float32")
        for i, j in T.grid(n, 4):
            with T.block("b"):
                v, w = T.axis.remap("SS", [i, j])
                B[v, w] = T.exp(A[v, w])

    @R.function(pure=False)
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        n = T.int64()
        cls = After
        alloc = R.builtin.alloc_tensor(
            R.shape([n, 4]), R.dtype("float32"), R.prim_value(0), R.str("global")
        )
        _ = cls.exp(x, alloc)
        lv = alloc
        alloc1 = R.builtin.alloc_tensor(
            R.shape([n, 4]), R.dtype("float32"), R.prim_value(0), R.str("global")
        )
        _1 = R.call_packed("env.f", x, lv, alloc1, dps=True, sinfo_args=(R.Tuple,))
        gv = alloc1
        return gv


def test_call_tir_and_dps_calls_get_allocations():
    assert_structural_equal(CallTIRRewrite()(Before), After)


def test_module_without_such_calls_is_the_same_object():
    assert CallTIRRewrite()(After) is After


def test_dataflow_blocks_become_plain():
    x = Var("x", tensor((4,)))
    call = relax.call_tir(gv("f"), (x,), tensor((4,)))
    a = DataflowVar("a", call.struct_info)
    again = relax.call_tir(gv("f"), (a,), tensor((4,)))
    b = Var("b", again.struct_info)
    block = DataflowBlock([relax.VarBinding(a, call), relax.VarBinding(b, again)])
    fn = relax.Function(
        [x], relax.SeqExpr([block], b), is_pure=False, attrs={"global_symbol": "main"}
    )
    made = CallTIRRewrite()(module({"main": fn, gv("f"): elementwise(lambda v: v, 1)}))["main"]
    assert not any(isinstance(block, DataflowBlock) for block in made.body.blocks)
    assert not any(type(b.var) is DataflowVar for block in made.body.blocks for b in block.bindings)
    assert count_calls(made)["relax.builtin.alloc_tensor"] == 2


def test_inplace_call_allocates_only_new_results():
    x, y, b = Var("x", tensor((4,))), Var("y", tensor((4,))), Body()
    outs = [tensor((4,)), tensor((4,))]
    t = b(relax.call_tir_inplace(gv("f"), (x, y), [-1, 1], outs))
    made = CallTIRRewrite()(module({"main": b.function([x, y], t)}))["main"]
    alloc, call, result = made.body.blocks[0].bindings
    assert call.value.args == (x, y, alloc.var)
    assert result.value.fields == (alloc.var, y)


def test_several_results_give_a_tuple():
    x, b = Var("x", tensor((4,))), Body()
    t = b(relax.call_tir(gv("f"), (x,), [tensor((4,)), tensor((2,))]))
    made = CallTIRRewrite()(module({"main": b.function([x], t)}))["main"]
    first, second, call, result = made.body.blocks[0].bindings
    assert call.value.args == (x, first.var, second.var)
    assert result.value.fields == (first.var, second.var)
    assert result.var is t


def test_scalars_make_a_dynamic_call():
    x, b = Var("x", tensor((4,))), Body()
    y = b(relax.call_tir(gv("f"), (x,), tensor((4,)), tir_vars=(7,)))
    made = CallTIRRewrite()(module({"main": b.function([x], y)}))["main"]
    assert count_calls(made)["relax.vm.call_tir_dyn"] == 1


def test_result_of_unknown_shape_is_refused():
    x, b = Var("x", tensor((4,))), Body()
    info = TensorStructInfo(None, "float32", None, 1)
    y = b(Call(Op.get("relax.call_tir"), (gv("f"), relax.Tuple((x,))), None, (info,), info))
    with pytest.raises(VerifyError, match=r"lv = relax\.call_tir.*out_sinfo") as caught:
        CallTIRRewrite()(module({"main": b.function([x], y)}))
    assert "in function main" in caught.value.__notes__
