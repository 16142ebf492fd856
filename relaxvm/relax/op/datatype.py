"""Operators that change the dtype: astype, wrap_param."""

from __future__ import annotations

from typing import Any

from ...base import DataType
from ...ir import cast
from ..expr import Call
from ..rules import Ops
from ..struct_info import Expr, StructInfo
from .infer import array_dtype, tensor
from .lower import elementwise, te_lower
from .meaning import convert
from .record import ELEMENTWISE, op


def _te_astype(x: Any, dtype: DataType) -> Any:
    return elementwise(x, lambda v: cast(dtype, v))


def _astype_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    own: Any = call.args[0].struct_info
    return (
        ops.astype(gy, own.dtype) if own.dtype.is_float and call.attrs["dtype"].is_float else None,
    )


@op("astype", convert, te_lower(_te_astype), _astype_grad, ELEMENTWISE)
def astype(x: Expr, dtype: DataType) -> StructInfo:
    """x converted to `dtype`. A float becomes an integer toward zero, saturated, NaN 0; integers
    wrap.
    """
    return tensor(x, "x").replace(dtype=array_dtype(dtype))


@op("wrap_param", convert, te_lower(_te_astype), _astype_grad, ELEMENTWISE)
def wrap_param(data: Expr, dtype: DataType = DataType("float32")) -> StructInfo:
    """The model parameter `data`, in `dtype`."""
    return tensor(data, "data").replace(dtype=array_dtype(dtype))
