"""Operators that change the dtype: astype, wrap_param."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import tir
from ...base import UNKNOWN, DataType, Span, StructInfoError, to_numpy_dtype
from ...ir import cast
from ..expr import Call
from ..rules import Ops
from ..struct_info import Expr, StructInfo
from .infer import ANY, array_dtype, check_kind, tensor
from .lower import elementwise, te_lower
from .meaning import convert, from_storage, to_storage
from .record import ELEMENTWISE, face_of, missing, op


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


def _reinterpret_numpy(x: Any, *, dtype: DataType, of: DataType) -> np.ndarray:
    bits = np.ascontiguousarray(to_storage(x, of)).view(to_numpy_dtype(dtype))
    return from_storage(bits.reshape(np.shape(x)), dtype)


@op(
    "reinterpret",
    numpy=_reinterpret_numpy,
    lower=te_lower(lambda x, dtype, of: elementwise(x, lambda v: tir.reinterpret(dtype, v))),
    grad=missing("bits have no gradient"),
    layout=ELEMENTWISE,
)
def _reinterpret(x: Expr, dtype: DataType, of: DataType) -> StructInfo:
    """The bits of the elements of `x` read as elements of `dtype`, which must have as many. A NaN
    of a type that numpy lacks may come with other bits than it had.

    of  what `x` is
    """
    info = tensor(x, "x", ANY)
    if info.dtype not in (of, "void"):
        raise StructInfoError(f"of: wanted {info.dtype}, which x is, got {of}")
    check_kind(array_dtype(dtype), "dtype", ANY)
    if of.bits != dtype.bits or of.is_bool != dtype.is_bool:
        raise StructInfoError(
            f"dtype: wanted {of.bits} bits, which the elements of x have, got {dtype}; astype "
            "converts values"
        )
    return info.replace(dtype=dtype)


@face_of(_reinterpret)
def reinterpret(x: Any, dtype: Any, of: Any = None, span: Span = UNKNOWN) -> Call:
    own = getattr(getattr(x, "struct_info", None), "dtype", of)
    return _reinterpret.op.build(x, dtype, own if of is None else of, span=span)
