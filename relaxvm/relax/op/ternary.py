"""Operators of three operands: where, ewise_fma, clip."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import tir
from ...base import UNKNOWN, DataType, RelaxvmError, Span, StructInfoError
from ...ir import Add, IntImm, Max, Min, Mul, PrimExpr, Select, cast, const
from ..expr import Call, PrimValue, as_relax
from ..rules import Ops
from ..struct_info import Expr, PrimStructInfo, StructInfo, TensorStructInfo
from .broadcast import (
    as_float,
    broadcast_info,
    broadcast_lower,
    match_scalars,
    operand_info,
    unbroadcast,
)
from .infer import ELEMENT, NUMBER, tensor
from .lower import elementwise, te_lower
from .record import ELEMENTWISE, Prim, face_of, op, plain_value

# -- where -----------------------------------------------------------------------------------------


def _where_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    condition, x1, x2 = call.args
    g1 = unbroadcast(ops, ops.where(condition, gy, 0.0), x1)
    g2 = unbroadcast(ops, ops.where(condition, 0.0, gy), x2)
    return None, g1, g2


@op("where", np.where, broadcast_lower(Select), _where_grad, ELEMENTWISE)
def _where(condition: Expr, x1: Expr, x2: Expr) -> StructInfo:
    """x1 where the bool `condition` holds, else x2; all three broadcast. Python numbers take the
    other's dtype.
    """
    info = operand_info(condition, "condition")
    if info.dtype not in ("bool", "void"):
        raise StructInfoError(f"condition: wanted bool, got {info.dtype}; compare it, as in x != 0")
    if not any(isinstance(x.struct_info, TensorStructInfo) for x in (condition, x1, x2)):
        raise StructInfoError("wanted a tensor among condition, x1 and x2")
    names = ("condition", "x1", "x2")
    return broadcast_info((condition, x1, x2), names, ELEMENT, dtypes_of=slice(1, 3))


where = match_scalars(_where, first=1)


def masked_fill(x: Any, mask: Any, value: Any, span: Span = UNKNOWN) -> Call:
    """`x` with `value`, a number or a tensor that broadcasts, where the bool `mask` holds: a call
    of `where`.
    """
    return where(mask, value, x, span=span)


# -- ewise_fma -------------------------------------------------------------------------------------


def _fma_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    x1, x2, x3 = call.args
    grads = (gy * x2, x1), (gy * x1, x2), (gy, x3)
    return tuple(unbroadcast(ops, g, x) for g, x in grads)


@op(
    "ewise_fma",
    numpy=lambda x1, x2, x3: np.add(np.multiply(x1, x2), x3),
    lower=broadcast_lower(lambda a, b, c: Add(Mul(a, b), c)),
    grad=_fma_grad,
    layout=ELEMENTWISE,
)
def _ewise_fma(x1: Expr, x2: Expr, x3: Expr) -> StructInfo:
    """x1 * x2 + x3, the product rounded before it is added; operands broadcast."""
    return broadcast_info((x1, x2, x3), ("x1", "x2", "x3"), NUMBER)


ewise_fma = match_scalars(_ewise_fma)


# -- clip ------------------------------------------------------------------------------------------


def _bound_in(value: Any, kind: np.dtype) -> Any:
    """A bound as a number of the array's dtype; one beyond an integer's range becomes the end of
    the range.
    """
    if kind.kind == "f":
        return kind.type(value)
    ends = np.iinfo(kind)
    return kind.type(min(max(int(value), int(ends.min)), int(ends.max)))


def _clip_meaning(x: np.ndarray, min: Any, max: Any) -> np.ndarray:
    kind = np.asarray(x).dtype
    return np.minimum(np.maximum(x, _bound_in(min, kind)), _bound_in(max, kind))


def _te_bound(value: PrimExpr, dtype: DataType) -> PrimExpr:
    if not dtype.is_float and not isinstance(value, IntImm):
        low, high = dtype.min_value, dtype.max_value
        own = value.dtype
        if own.min_value < low:
            value = Max(value, const(low, own))
        if own.max_value > high:
            value = Min(value, const(high, own))
    elif isinstance(value, IntImm) and not dtype.is_float:
        return const(int(_bound_in(value.value, np.dtype(str(dtype)))), dtype)
    return cast(dtype, value)


def _te_clip(x: Any, min: Any, max: Any) -> Any:
    low, high = _te_bound(min, x.dtype), _te_bound(max, x.dtype)
    return elementwise(x, lambda v: tir.min(tir.max(v, low), high))


def _clip_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    # Where clip changed the element, the result does not move with it.
    x = call.args[0]
    return ops.where(ops.equal(x, y), gy, 0.0), None, None


@op("clip", _clip_meaning, te_lower(_te_clip), _clip_grad, ELEMENTWISE)
def _clip(x: Expr, min: Prim, max: Prim) -> StructInfo:
    """x, but at least `min` and at most `max` (where they cross, `max`); NaN stays.

    The bounds are scalars; whole numbers if x is an integer, for which bounds beyond its range are
    no bounds.
    """
    info = tensor(x, "x", NUMBER)
    for bound, name in ((min, "min"), (max, "max")):
        own = bound.struct_info
        if not isinstance(own, PrimStructInfo):
            raise StructInfoError(
                f"{name}: wanted a scalar value such as R.prim_value(0), got {own}"
            )
        if own.dtype.is_bool or (own.dtype.is_float and info.dtype.is_int):
            raise StructInfoError(
                f"{name}: wanted a {'whole ' if info.dtype.is_int else ''}number, got {own.dtype}"
            )
    return info


def _bound(value: Any, x: Any, name: str) -> Any:
    """A Python number as a scalar of the dtype of `x`."""
    value = value if isinstance(value, Expr) else plain_value(value)
    info = x.struct_info
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return value
    if not isinstance(info, TensorStructInfo) or info.dtype == "void":
        return PrimValue(value)
    if info.dtype.is_float:
        return PrimValue(const(as_float(value, f"clip: {name}"), info.dtype))
    if not info.dtype.is_int:
        return PrimValue(value)
    if math.isinf(value):
        value = info.dtype.max_value if value > 0 else info.dtype.min_value
    if isinstance(value, float) and not value.is_integer():
        raise StructInfoError(
            f"clip: {name}: wanted a whole number beside {info.dtype}, got {value}"
        )
    inside = max(min(int(value), info.dtype.max_value), info.dtype.min_value)
    return PrimValue(const(int(inside), info.dtype))


@face_of(_clip)
def clip(x: Any, min: Any, max: Any, span: Span = UNKNOWN) -> Call:
    try:
        x = as_relax(x)
    except RelaxvmError as error:
        raise StructInfoError(f"clip: argument x: {error}") from None
    return _clip.op.build(x, _bound(min, x, "min"), _bound(max, x, "max"), span=span)
