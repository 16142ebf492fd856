"""`relax.builtin.*`: what CallTIRRewrite allocates with, before memory is planned."""

from __future__ import annotations

from ...base import StructInfoError
from ..expr import DataTypeImm
from ..struct_info import Expr, ShapeStructInfo, StructInfo, TensorStructInfo
from .record import Dtype, Prim, Shape, Text, missing, op


def _same_gradient(ops: object, call: object, y: Expr, gy: Expr) -> tuple[Expr, ...]:
    return (gy,)


def allocated(shape: Expr, dtype: Expr) -> TensorStructInfo:
    """The tensor that an allocation of `shape` and `dtype` gives. Raises StructInfoError if they
    are not those.
    """
    if not isinstance(shape.struct_info, ShapeStructInfo):
        raise StructInfoError(f"shape: wanted a shape, got {shape.struct_info}")
    if not isinstance(dtype, DataTypeImm):
        raise StructInfoError(f"dtype: wanted a dtype constant, got {type(dtype).__name__}")
    return TensorStructInfo(shape, dtype.value)


@op(
    "builtin.alloc_tensor",
    numpy=missing("memory"),
    lower=missing("LowerAllocTensor"),
    grad=missing("memory"),
    layout=missing("memory"),
)
def alloc_tensor(
    shape: Shape, dtype: Dtype, runtime_device_index: Prim = 0, storage_scope: Text = "global"
) -> StructInfo:
    """A new, uninitialised tensor."""
    return allocated(shape, dtype)


@op(
    "builtin.stop_lift_params",
    numpy=lambda x: x,
    lower=missing("identity"),
    grad=_same_gradient,
)
def stop_lift_params(x: Expr) -> StructInfo:
    """`x`, and a mark that parameter lifting stops here."""
    return x.struct_info
