"""IR that is deep, shared or mistyped: an answer or a typed error, never a crash or a hang."""

import numpy as np
import pytest

from relaxvm import relax, tir
from relaxvm.base import DataType, DTypeError, PassError, RelaxvmError, StructInfoError
from relaxvm.base.dtype import promote
from relaxvm.ir import PassContext, assert_structural_equal
from relaxvm.relax import TensorStructInfo, Tuple, Var, op
from relaxvm.script import from_source

VECTOR = TensorStructInfo((4,), "float32")


def test_an_unknown_dtype_is_a_typed_error_of_both_builtin_kinds():
    for wrong in ("floaty", "float31", 3, None, "float32x0"):
        with pytest.raises(DTypeError) as caught:
            DataType(wrong)
        for kind in (RelaxvmError, TypeError, ValueError):
            assert isinstance(caught.value, kind)
    with pytest.raises(DTypeError, match="cannot combine"):
        promote(DataType("float32x4"), DataType("float32x2"))


def test_a_tuple_nested_very_deep_is_refused():
    value = Var("x", VECTOR)
    for _ in range(20_000):
        value = Tuple((value,))
    with pytest.raises(StructInfoError, match="nested more than"):
        _ = value.struct_info


def test_the_struct_info_of_shared_tuples_is_made_once_each():
    value = Var("x", VECTOR)
    for _ in range(60):
        value = Tuple((value, value))
    info = value.struct_info
    for _ in range(60):
        assert info.fields[0] is info.fields[1]
        info = info.fields[0]
    assert info is VECTOR


@pytest.mark.parametrize(
    "options",
    [
        {"disabled_pass": 3},
        {"required_pass": "Normalize"},
        {"instruments": 3},
        {"config": 3},
        {"config": [("numerics", "exact")]},
    ],
)
def test_a_pass_context_of_wrong_types_is_a_typed_error(options):
    with pytest.raises(PassError, match="PassContext"):
        PassContext(**options)


_WITH_SIZE_ARGUMENT = """
from relaxvm.script import ir as I, relax as R, tir as T

@I.ir_module
class Module:
    @T.prim_func
    def fill(b: T.handle, n: T.int64):
        B = T.match_buffer(b, (n,), "int64")
        for i in range(n):
            B[i] = i

    @R.function
    def main(s: R.Shape(["m"])) -> R.Tensor(("m",), "int64"):
        m = T.int64()
        cls = Module
        y = R.call_tir(cls.fill, (), R.Tensor((m,), "int64"), tir_vars=R.shape([m]))
        return y
"""


def test_a_lowered_call_with_size_arguments_is_printed_and_parsed():
    mod = from_source(_WITH_SIZE_ARGUMENT)
    steps = relax.transform
    for step in (steps.RemovePurityChecking(), steps.CallTIRRewrite(), steps.VMBuiltinLower()):
        mod = step(mod)
        assert_structural_equal(mod, from_source(mod.script()))


def test_a_size_argument_reaches_the_kernel():
    vm = relax.VirtualMachine(relax.build(from_source(_WITH_SIZE_ARGUMENT), "llvm"))
    for size in (0, 1, 9):
        assert vm["main"]((size,)).numpy().tolist() == list(range(size))
    assert vm["main"]((3,)).numpy().dtype == np.int64


def test_infos_of_a_call_that_are_none_point_to_the_source():
    source = _WITH_SIZE_ARGUMENT.replace(
        'y = R.call_tir(cls.fill, (), R.Tensor((m,), "int64"), tir_vars=R.shape([m]))',
        "y = cls.main(s, sinfo_args=(3,))",
    )
    with pytest.raises(RelaxvmError, match=r"sinfo_args=\(3,\)"):
        from_source(source)


def _list_in_itself():
    endless = []
    endless.append(endless)
    return endless


X = Var("x", VECTOR)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: op.nn.global_max_pool2d(_list_in_itself()), "nested too deep, or holds itself"),
        (lambda: op.strided_slice(X, [0], _list_in_itself(), [1]), "nested too deep"),
        (lambda: op.strided_slice(X, dict, [0], [1]), "wanted a sequence of integers"),
        (lambda: op.strided_slice(X, tir.decl_buffer((4,)), [0], [1]), "wanted a sequence of"),
        (lambda: TensorStructInfo(tir.decl_buffer((4,))), "a shape is a sequence of dimensions"),
        (lambda: op.invoke_pure_closure(X, [X], sinfo_args=X), "sinfo_args: wanted struct info"),
        (lambda: op.invoke_pure_closure(X, [X], sinfo_args=np.ones(3)), "wanted struct info"),
        (lambda: op.invoke_pure_closure(X, [X], sinfo_args=_list_in_itself()), "wanted struct"),
        (lambda: op.clip(X, 0, 1, span=[]), "span: got list, no Span"),
        (lambda: op.left_shift(tir.StringImm("s"), 1), "which is no number"),
        (lambda: TensorStructInfo((4,), np.ones(3)), "dtype"),
    ],
    ids=range(11),
)
def test_wrong_arguments_of_operators_are_typed_errors(call, message):
    with pytest.raises(RelaxvmError, match=message):
        call()
