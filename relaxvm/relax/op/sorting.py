"""Operators that order elements: sort, argsort, topk, searchsorted, bucketize.

NaN counts as greater than everything, as in numpy. argsort and topk are stable in both directions.
The work is done by `vm.library.*`, which is numpy's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...base import DataType, StructInfoError
from ...ir import IntImm, Min, PrimExpr, const
from ..expr import Call, ExternFunc, PrimValue, Tuple, TupleGetItem
from ..rules import LowerBuilder, Ops
from ..struct_info import Expr, StructInfo, TensorStructInfo, TupleStructInfo
from .call import call_dps_packed
from .infer import (
    ANY,
    NUMBER,
    ORDERED,
    axis_of,
    same_dtype,
    tensor,
)
from .record import missing, op
from .sizes import KnownTensor, size_analyzer, want_at_most, want_same

_INDICES = missing("gives indices")


def _packed(call: Call, name: str, *args: Any) -> Expr:
    """The library function `name` on `args`, with outputs as `call` has them."""
    values = Tuple(
        tuple(a if isinstance(a, Expr) else PrimValue(const(int(a), "int64")) for a in args)
    )
    return call_dps_packed(
        ExternFunc(f"vm.library.{name}"), values, call.struct_info, span=call.span
    )


_LONGEST = 1 << 62
"""More than any axis has."""


def _along(info: KnownTensor, axis: int) -> PrimExpr:
    """The size of the axis to work along."""
    if info.ndim == 0:
        raise StructInfoError("wanted a tensor of at least one dimension")
    return info.dims[axis_of(axis, info.ndim)]


def _want_numbers(dtype: DataType, size: PrimExpr, more: int = 0) -> None:
    """`dtype` is one of integers, and holds the indices of an axis of `size`, and `more`."""
    if not dtype.is_int:
        raise StructInfoError(f"dtype: wanted an integer dtype, got {dtype}")
    if dtype.bits < 32 or isinstance(size, IntImm):
        text = "dtype: {dtype} does not hold the indices of an axis of {size}; take a wider one"
        most = const(min(dtype.max_value, _LONGEST) + 1 - more, "int64")
        want_at_most(size, most, text, dtype=dtype)


def _lower_ordered(name: str, options: Callable[[Any], tuple[Any, ...]]) -> Any:
    """The legalisation of an operator that numbers the elements of an axis."""
    return lambda builder, call: _packed(
        call, name, call.args[0], call.attrs["axis"], *options(call.attrs)
    )


def _order(x: Any, axis: int, descending: bool) -> Any:
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    back = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(back, axis)


# -- sort, argsort --------------------------------------------------------------------------------


def _sort_numpy(x: Any, *, axis: int = -1, descending: bool = False) -> Any:
    rows = np.sort(x, axis=axis, kind="stable")
    return np.flip(rows, axis).copy() if descending else rows


def _sort_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    x, axis = call.args[0], call.attrs["axis"]
    order = ops.argsort(x, axis=axis, descending=call.attrs["descending"], dtype="int64")
    return (ops.scatter_elements(ops.zeros_like(x), order, gy, axis=axis),)


@op(
    "sort",
    numpy=_sort_numpy,
    lower=lambda builder, call: _packed(
        call, "sort", call.args[0], call.attrs["axis"], call.attrs["descending"]
    ),
    grad=_sort_grad,
)
def sort(x: Expr, axis: int = -1, descending: bool = False) -> StructInfo:
    """`x` sorted along `axis`; zeros of either sign are equal, and so in any order."""
    info = tensor(x, "x", ANY)
    _along(info, axis)
    return info


@op(
    "argsort",
    numpy=lambda data, *, axis=-1, descending=False, dtype="int32": _order(
        data, axis, descending
    ).astype(str(dtype)),
    lower=_lower_ordered("argsort", lambda attrs: (attrs["descending"],)),
    grad=_INDICES,
)
def argsort(
    data: Expr, axis: int = -1, descending: bool = False, dtype: DataType = DataType("int32")
) -> StructInfo:
    """The indices that sort `data` along `axis`; equal elements keep their order."""
    info = tensor(data, "data", ANY)
    _want_numbers(dtype, _along(info, axis))
    return info.replace(dtype=dtype)


# -- topk -----------------------------------------------------------------------------------------


def _topk_numpy(
    data: Any,
    *,
    k: int = 1,
    axis: int = -1,
    ret_type: str = "both",
    largest: bool = True,
    dtype: Any = "int32",
) -> Any:
    size = data.shape[axis]
    order = np.take(_order(data, axis, largest), np.arange(size if k < 1 else min(k, size)), axis)
    values, indices = np.take_along_axis(data, order, axis), order.astype(str(dtype))
    return {"both": (values, indices), "values": values, "indices": indices}[ret_type]


def _topk_size(size: PrimExpr, k: int) -> PrimExpr:
    if k < 1:
        return size
    count = const(k, "int64")
    analyzer = size_analyzer(size)
    if analyzer.can_prove(size >= count):
        return count
    return size if analyzer.can_prove(size <= count) else Min(size, count)


_PARTS = {"values": 1, "indices": 2, "both": 3}


def _topk_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    data, attrs = call.args[0], dict(call.attrs)
    if attrs["ret_type"] == "indices":
        return (None,)
    of_values = TupleGetItem(gy, 0) if attrs["ret_type"] == "both" else gy
    order = ops.topk(data, **{**attrs, "ret_type": "indices", "dtype": DataType("int64")})
    zeros = ops.zeros_like(data)
    return (ops.scatter_elements(zeros, order, of_values, axis=attrs["axis"]),)


@op(
    "topk",
    numpy=_topk_numpy,
    lower=_lower_ordered("topk", lambda attrs: (attrs["largest"], _PARTS[attrs["ret_type"]])),
    grad=_topk_grad,
)
def topk(
    data: Expr,
    k: int = 1,
    axis: int = -1,
    ret_type: str = "both",
    largest: bool = True,
    dtype: DataType = DataType("int32"),
) -> StructInfo:
    """The `k` largest (or smallest) elements along `axis` in order, and their indices; of equal
    ones the first.

    k         less than 1, or more than there are: all of them
    ret_type  "both": (values, indices); "values"; "indices"
    """
    info = tensor(data, "data", ANY)
    size = _along(info, axis)
    if ret_type not in _PARTS:
        raise StructInfoError(f"ret_type: wanted both, values or indices, got {ret_type!r}")
    _want_numbers(dtype, size)
    dims = list(info.dims)
    dims[axis_of(axis, info.ndim)] = _topk_size(size, k)
    values = TensorStructInfo(dims, info.dtype, info.vdevice)
    indices = values.replace(dtype=dtype)
    if ret_type == "both":
        return TupleStructInfo((values, indices))
    return values if ret_type == "values" else indices


# -- searchsorted, bucketize ----------------------------------------------------------------------


def _searchsorted_numpy(
    sorted_sequence: Any, values: Any, *, right: bool = False, dtype: Any = "int32"
) -> Any:
    side: Any = "right" if right else "left"
    if sorted_sequence.ndim == 1:
        return np.asarray(np.searchsorted(sorted_sequence, values, side)).astype(str(dtype))
    places = np.empty(values.shape, str(dtype))
    for row in np.ndindex(values.shape[:-1]):
        places[row] = np.searchsorted(sorted_sequence[row], values[row], side)
    return places


def _lower_searchsorted(builder: LowerBuilder, call: Call) -> Expr:
    keys, values = call.args
    return _packed(call, "searchsorted", keys, values, call.attrs["right"])


@op(
    "searchsorted",
    numpy=_searchsorted_numpy,
    lower=_lower_searchsorted,
    grad=_INDICES,
    layout=missing("works along the last axis"),
)
def searchsorted(
    sorted_sequence: Expr, values: Expr, right: bool = False, dtype: DataType = DataType("int32")
) -> StructInfo:
    """Where each of `values` would be inserted into the sorted last axis of `sorted_sequence` to
    keep it sorted.

    right  after equal elements, not before
    sorted_sequence has one dimension, or the same leading dimensions as `values`.
    """
    keys, info = (
        tensor(sorted_sequence, "sorted_sequence", ORDERED),
        tensor(values, "values", ORDERED),
    )
    same_dtype((keys, info), ("sorted_sequence", "values"))
    if keys.ndim == 0:
        raise StructInfoError("sorted_sequence: wanted at least one dimension")
    _want_numbers(dtype, keys.dims[-1], 1)
    if keys.ndim > 1 and info.ndim != keys.ndim:
        raise StructInfoError(
            f"values: wanted {keys.ndim} dimensions as sorted_sequence has, got {info.ndim}"
        )
    if keys.ndim > 1:
        text = "values: dimension {k}: wanted {a} as sorted_sequence has, got {b}"
        want_same(keys.dims[:-1], info.dims[:-1], text)
    return info.replace(dtype=dtype)


@op(
    "bucketize",
    numpy=lambda input_tensor, boundaries, *, out_int32=False, right=False: np.asarray(
        np.searchsorted(boundaries, input_tensor, "right" if right else "left")
    ).astype("int32" if out_int32 else "int64"),
    lower=lambda builder, call: _packed(
        call, "searchsorted", call.args[1], call.args[0], call.attrs["right"]
    ),
    grad=_INDICES,
    layout=missing("boundaries have an axis of their own"),
)
def bucketize(
    input_tensor: Expr, boundaries: Expr, out_int32: bool = False, right: bool = False
) -> StructInfo:
    """The number of the bucket, among those between the sorted one-dimensional `boundaries`, that
    each element falls in.

    right  a bucket holds its lower boundary, not its upper one
    """
    info = tensor(input_tensor, "input_tensor", NUMBER)
    keys = tensor(boundaries, "boundaries", NUMBER, 1)
    same_dtype((info, keys), ("input_tensor", "boundaries"))
    return info.replace(dtype=DataType("int32" if out_int32 else "int64"))
