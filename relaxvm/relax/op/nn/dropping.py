"""Dropout: identity for inference, and elements dropped at random where a seed says which."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ....base import UNKNOWN, DataType, Span, StructInfoError
from ...derive import where
from ...expr import Call, Tuple, TupleGetItem
from ...rules import LowerBuilder, Ops
from ...struct_info import (
    Expr,
    PrimStructInfo,
    ShapeExpr,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from ..infer import FLOAT, INTEGER, check_kind, tensor
from ..lower import wide_dtype
from ..meaning import in_wider
from ..names import ops as all_ops
from ..record import Prim, face_of, missing, op
from ..sizes import is_known


def _rate(rate: float) -> None:
    if not 0 <= rate < 1:
        raise StructInfoError(f"rate: wanted a number in [0, 1), got {rate}")


def _identity(builder: LowerBuilder, call: Call) -> Expr:
    data = call.args[0]
    return Tuple((data, builder.emit(all_ops.ones_like(data))))


def _without_seed(builder: LowerBuilder, call: Call, training: bool) -> Expr | None:
    if not training:
        return _identity(builder, call)
    warnings.warn(
        f"nn.dropout drops nothing at training either, as it has no seed{where(call.span)}; "
        "give it one that differs from step to step: dropout(x, rate, seed)",
        UserWarning,
        stacklevel=2,
    )
    return None


@op(
    "nn.dropout",
    numpy=lambda data, *, rate: (data, np.ones_like(data)),
    lower=_identity,
    grad=lambda ops, call, y, gy: (TupleGetItem(gy, 0),),
    decompose=_without_seed,
)
def _dropout(data: Expr, rate: float = 0.5) -> StructInfo:
    """(data, mask): data as it is and a mask of ones, which is what inference means by dropout.

    ``dropout(data, rate, seed)`` is nn.dropout_seeded, which drops elements: see there.
    Raises StructInfoError if `data` is not float or `rate` is not in [0, 1).
    """
    _rate(rate)
    info: TensorStructInfo = tensor(data, "data", FLOAT)
    return TupleStructInfo((info, info))


def _seeded_numpy(data: np.ndarray, seed: Any, *, rate: float) -> tuple[np.ndarray, ...]:
    uniform = all_ops.random.uniform.op.numpy
    drawn = uniform(data.shape, seed, low=0.0, high=1.0, dtype=DataType("float32"))
    mask = drawn >= np.float32(rate)
    result = np.where(mask, in_wider(lambda x: x / (1 - rate))(data), 0)
    return result.astype(data.dtype), mask.astype(data.dtype)


def _drop(builder: LowerBuilder, call: Call) -> Expr:
    data, seed = call.args
    ops, rate = all_ops, call.attrs["rate"]
    info: Any = data.struct_info
    drawn = builder.emit(ops.random.uniform(ShapeExpr(info.dims), seed, dtype="float32"))
    stays = builder.emit(ops.greater_equal(drawn, rate))
    wide: Any = _as_dtype(builder, data, wide_dtype(info.dtype))
    # Not data * mask: what is dropped is 0, also where data is infinite or NaN.
    result = builder.emit(ops.where(stays, builder.emit(wide / (1 - rate)), 0.0))
    return Tuple(tuple(_as_dtype(builder, e, info.dtype) for e in (result, stays)))


def _as_dtype(builder: LowerBuilder, x: Any, dtype: DataType) -> Any:
    return x if x.struct_info.dtype is dtype else builder.emit(all_ops.astype(x, dtype))


def _with_seed(builder: LowerBuilder, call: Call, training: bool) -> Expr | None:
    """For inference identity; for training what the seed says."""
    if not training:
        return _identity(builder, call)
    return None if not is_known(call.args[0].struct_info) else _drop(builder, call)


def _seeded_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, None]:
    g: Any = TupleGetItem(gy, 0)
    return g * TupleGetItem(y, 1) / (1 - call.attrs["rate"]), None


@op(
    "nn.dropout_seeded",
    numpy=_seeded_numpy,
    lower=_drop,
    grad=_seeded_grad,
    layout=missing("what is dropped goes by position"),
    decompose=_with_seed,
)
def dropout_seeded(data: Expr, seed: Prim, rate: float = 0.5) -> StructInfo:
    """(data, mask): elements dropped at random, and 1 where one stays, 0 where one does not.

    seed  an integer: a constant, a symbol, or a tensor without dimensions. The same seed drops the
          same elements: give each layer and each step another
    rate  the probability that an element is dropped; what stays is divided by 1 - rate
    DecomposeOpsForInference makes it identity. Raises StructInfoError if `data` is not float,
    `rate` is not in [0, 1) or `seed` is no integer.
    """
    _rate(rate)
    info: TensorStructInfo = tensor(data, "data", FLOAT)
    of_seed = seed.struct_info
    if isinstance(of_seed, PrimStructInfo):
        check_kind(of_seed.dtype, "seed", INTEGER)
    else:
        tensor(seed, "seed", INTEGER, 0)
    return TupleStructInfo((info, info))


@face_of(_dropout)
def dropout(data: Any, rate: float = 0.5, seed: Any = None, span: Span = UNKNOWN) -> Call:
    if seed is None:
        return _dropout.op.build(data, rate, span=span)
    return dropout_seeded.op.build(data, seed, rate, span=span)
