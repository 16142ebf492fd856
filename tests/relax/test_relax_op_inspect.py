"""inspect.*, size, and the views x.shape, x.ndim, x.dtype of an expression."""

from __future__ import annotations

import numpy as np
import pytest
from op_table import Case, Sym, T, check, check_errors

from relaxvm import relax
from relaxvm.base import VMError
from relaxvm.ir import Var
from relaxvm.relax import op as R
from relaxvm.runtime import VirtualMachine, cpu

UNKNOWN = relax.TensorStructInfo(None, "void")
I = R.inspect
PLAIN = (
    I.tensor_dtype_code,
    I.tensor_dtype_bits,
    I.tensor_dtype_lanes,
    I.tensor_ndim,
    I.tensor_byte_offset,
    I.tensor_elem_offset,
)
OF_AXIS = (I.tensor_shape_i, I.tensor_stride_i)


def unknown(dtype):
    return UNKNOWN


def of_rank_2(dtype):
    return relax.TensorStructInfo(None, dtype, ndim=2)


CASES = [
    Case(R.size, T("n", 4), dtypes=("float32", "bool", "bfloat16")),
    Case(R.size, T(), dtypes=("float32",)),
    Case(R.size, T(0, 3), dtypes=("float32",)),
    Case(R.size, T("n", "m", 2), dtypes=("float32",)),
    Case(R.size, T(2, 3, info=of_rank_2), dtypes=("float32",)),
    *(Case(f, T("n", 4), dtypes=("float32", "int8", "bool")) for f in PLAIN),
    *(Case(f, T(2, 4, info=unknown), dtypes=("float32", "uint16")) for f in PLAIN),
    *(Case(f, T("n", 4), axis, dtypes=("float32",)) for f in OF_AXIS for axis in (0, 1)),
    *(
        Case(f, T(2, 4, info=unknown), axis, dtypes=("float32",))
        for f in OF_AXIS
        for axis in (0, 1)
    ),
    *(Case(f, T(2, 4), Sym("one"), dtypes=("float32",)) for f in OF_AXIS),
]


def test_every_function_means_what_numpy_says():
    check(CASES)


def test_what_is_known_is_said():
    n = Var("n", "int64")
    x = relax.Var("x", relax.TensorStructInfo((n, 4), "float16"))
    assert x.ndim.struct_info.value.value == 2
    assert x.shape[0].struct_info.value is n
    assert x.shape[1].struct_info.value.value == 4
    assert [x.dtype.code.struct_info.value.value, x.dtype.bits.struct_info.value.value] == [2, 16]
    assert x.dtype.lanes.struct_info.value.value == 1
    assert x.strides[0].struct_info is relax.PrimStructInfo("int64")
    assert x.byte_offset.op.short == "inspect.tensor_byte_offset"
    assert x.elem_offset.op.short == "inspect.tensor_elem_offset"


def test_an_axis_that_is_not_there_stops_the_program():
    x = relax.Var("x", UNKNOWN)
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(x.shape[2]))
    vm = VirtualMachine(relax.build(builder.get()), cpu())
    assert vm["main"](np.ones((2, 3, 5))) == 5
    with pytest.raises(VMError, match="wanted an axis of 0 to 1, got 2"):
        vm["main"](np.ones((2, 3)))


def test_mistakes():
    x = relax.Var("x", relax.TensorStructInfo((2, 3), "float32"))
    s = relax.ShapeExpr((2,))
    check_errors(
        [
            (lambda: x.shape[2], r"inspect.tensor_shape_i: axis: wanted 0 to 1, got 2"),
            (lambda: x.shape[-1], "axis: wanted 0 to 1, got -1"),
            (lambda: x.strides[1.5], "axis: wanted an integer dtype, got float32"),
            (lambda: x.shape[x], "axis: wanted a scalar value"),
            (lambda: list(x.shape), "cannot be iterated"),
            (lambda: s.ndim, "tensor: wanted a tensor, got R.Shape"),
            (lambda: R.size(s), "x: wanted a tensor"),
        ]
    )


def test_a_number_of_a_tensor_of_unknown_rank_is_unknown():
    x = relax.Var("x", relax.TensorStructInfo(None, "float32"))
    assert R.inspect.tensor_ndim(x).struct_info.value is None
