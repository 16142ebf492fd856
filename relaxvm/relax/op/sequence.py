"""Sequences of a length that run time decides: tensors, or other values, one after the other.

    s = R.sequence.insert(R.sequence.empty("float32", 2), x)      # Sequence(Tensor(ndim=2))
    y = R.sequence.concat(s, axis=0)

What they mean, and what runs (`vm.library.sequence.*`), is `runtime/sequence.py`. Wherever a
sequence is wanted a tuple will do, whose length is known.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...base import DataType, StructInfoError
from ...runtime import SEQUENCES
from ..derive import BaseCheckResult, elements, struct_info_base_check, struct_info_lca
from ..expr import Call, ExternFunc, PrimValue
from ..rules import LowerBuilder, operator_name
from ..struct_info import (
    Expr,
    SequenceStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from .call import call_pure_packed
from .infer import INTEGER, array_dtype, axis_of, tensor
from .record import Operator, P, missing, op


def _lower(builder: LowerBuilder, call: Call) -> Expr:
    numbers = [PrimValue(int(v)) for v in call.attrs.values() if isinstance(v, int)]
    function = ExternFunc(f"vm.library.{operator_name(call)}")
    return call_pure_packed(function, *numbers, *call.args, sinfo_args=call.struct_info)


def _sequence(rule: Callable[P, StructInfo]) -> Operator[P]:
    """The operator of a rule: its meaning has the same name, and says what it is."""
    rule.__doc__ = SEQUENCES[rule.__name__].__doc__
    why = missing("sequences have no gradient"), missing("sequences have no layout")
    name = rule.__name__
    return op(f"sequence.{name}", SEQUENCES[name], _lower, *why, takes_unknown=True)(rule)


def _want(x: Expr) -> StructInfo:
    info = x.struct_info
    if not isinstance(info, (SequenceStructInfo, TupleStructInfo)):
        raise StructInfoError(f"x: wanted a sequence or a tuple, got {info}")
    return info


def _element(x: Expr, more: tuple[StructInfo, ...] = ()) -> StructInfo:
    """What the elements of `x`, and `more`, have in common."""
    infos = (*elements(_want(x)), *more)
    if not infos:
        raise StructInfoError("x: it is empty: no element is known of it")
    dtypes = {str(i.dtype) for i in infos if isinstance(i, TensorStructInfo) and i.dtype != "void"}
    if len(dtypes) > 1 or len({isinstance(i, TensorStructInfo) for i in infos}) > 1:
        wanted, *_, got = infos
        raise StructInfoError(f"wanted elements of one dtype: {wanted}, got {got}")
    return functools.reduce(struct_info_lca, infos)


def _check_position(position: Expr | None) -> None:
    if position is not None:
        info = tensor(position, "position", INTEGER)
        if info.ndim not in (-1, 0, 1):
            raise StructInfoError(f"position: wanted one integer, got {info}")


@_sequence
def construct(fields: Expr) -> StructInfo:
    return SequenceStructInfo(_element(fields))


@_sequence
def empty(dtype: DataType = DataType("float32"), ndim: int = -1) -> StructInfo:
    return SequenceStructInfo(TensorStructInfo(None, array_dtype(dtype), None, ndim))


@_sequence
def length(x: Expr) -> StructInfo:
    _want(x)
    return TensorStructInfo((), "int64")


@_sequence
def at(x: Expr, position: Expr) -> StructInfo:
    _check_position(position)
    return _element(x)


@_sequence
def insert(x: Expr, value: Expr, position: Expr | None = None) -> StructInfo:
    _check_position(position)
    return SequenceStructInfo(_element(x, (value.struct_info,)))


@_sequence
def erase(x: Expr, position: Expr | None = None) -> StructInfo:
    _check_position(position)
    return SequenceStructInfo(_element(x))


@_sequence
def concat(
    x: Expr, otherwise: Expr | None = None, *, axis: int = 0, new_axis: bool = False
) -> StructInfo:
    info = _element(x)
    if not isinstance(info, TensorStructInfo):
        raise StructInfoError(f"x: wanted a sequence of tensors, got elements of {info}")
    if info.ndim >= 0:
        axis_of(axis, info.ndim, "axis", int(new_axis))
    rank = info.ndim + new_axis if info.ndim >= 0 else -1
    result = TensorStructInfo(None, info.dtype, info.vdevice, rank)
    if otherwise is None:
        return result
    other = tensor(otherwise, "otherwise")
    if struct_info_base_check(result, other) is BaseCheckResult.FAIL_L0:
        raise StructInfoError(f"otherwise: wanted {result}, got {other}")
    return result


@_sequence
def split(
    x: Expr, sizes: Expr | None = None, *, axis: int = 0, keepdims: bool = True
) -> StructInfo:
    info = tensor(x, "x")
    place = axis_of(axis, info.ndim)
    if sizes is not None and tensor(sizes, "sizes", INTEGER).ndim > 1:
        raise StructInfoError(f"sizes: wanted an integer or a vector, got {sizes.struct_info}")
    dims: list[Any] = list(info.dims or ())
    gone = sizes is None and not keepdims
    if sizes is None and dims:
        dims[place : place + 1] = [] if gone else [1]
        return SequenceStructInfo(TensorStructInfo(dims, info.dtype, info.vdevice))
    rank = info.ndim - gone if info.ndim >= 0 else -1
    return SequenceStructInfo(TensorStructInfo(None, info.dtype, info.vdevice, rank))
