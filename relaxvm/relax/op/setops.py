"""Operators whose result's shape depends on data: unique, nonzero. A fresh symbol stands for the
size.

The work is done by `vm.library.*` when the program runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ir import PrimExpr, const
from ...ir import Var as TirVar
from ..expr import Call, ExternFunc, PrimValue
from ..rules import LowerBuilder
from ..struct_info import Expr, StructInfo, TensorStructInfo, TupleStructInfo
from .call import call_pure_packed
from .infer import axis_of, dims_product, tensor, tensor_of
from .record import missing, op
from .sizes import simplified

_BY_DATA = missing("where elements go depends on data")


def _call_library(
    builder: LowerBuilder, name: str, args: tuple[Any, ...], wanted: StructInfo, loose: StructInfo
) -> Expr:
    """What the library function `name` gives, of `loose` struct info, bound to `wanted` with its
    fresh symbols.
    """
    values = [a if isinstance(a, Expr) else PrimValue(const(int(a), "int64")) for a in args]
    call = call_pure_packed(ExternFunc(f"vm.library.{name}"), *values, sinfo_args=loose)
    return builder.match_cast(builder.emit(call), wanted)


# -- nonzero --------------------------------------------------------------------------------------


def _lower_nonzero(builder: LowerBuilder, call: Call) -> Expr:
    x = call.args[0]
    ndim = max(tensor_of(x).ndim, 1)
    wanted = TensorStructInfo((ndim, TirVar("nonzeros", "int64")), "int64")
    return _call_library(builder, "nonzero", (x,), wanted, TensorStructInfo(None, "int64", None, 2))


@op(
    "nonzero",
    numpy=lambda x: np.stack(np.nonzero(np.atleast_1d(x))).astype("int64"),
    lower=_lower_nonzero,
    grad=missing("gives indices"),
    layout=_BY_DATA,
)
def nonzero(x: Expr) -> StructInfo:
    """The indices of the elements of `x` that are not zero: int64 [ndim, count], in row-major
    order.

    A tensor without dimensions counts as one of a single element.
    """
    info = tensor(x, "x")
    return TensorStructInfo(None, "int64", info.vdevice, 2)


# -- unique ---------------------------------------------------------------------------------------


def _unique_numpy(
    x: Any,
    *,
    sorted: bool = True,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
) -> Any:
    flat = x.reshape(-1) if axis is None else np.moveaxis(x, axis, 0)
    rows = [row.tobytes() if axis is not None and row.size == 0 else row for row in flat]
    kept: list[int] = []
    inverse = []
    for n, row in enumerate(rows):
        place = next((p for p, m in enumerate(kept) if _same(rows[m], row, axis is None)), None)
        if place is None:
            place = len(kept)
            kept.append(n)
        inverse.append(place)
    order = list(range(len(kept)))
    if sorted and order and np.size(flat):
        if axis is None:
            order = list(np.argsort(flat[kept], kind="stable"))
        else:
            keys = flat[kept].reshape(len(kept), -1)
            order = list(np.lexsort(keys.T[::-1]))
    first = np.asarray(kept, "int64")[order]
    new_of = {old: new for new, old in enumerate(order)}
    numbers = np.asarray([new_of[i] for i in inverse], "int64")
    values = (
        flat[first] if axis is None else np.ascontiguousarray(np.moveaxis(flat[first], 0, axis))
    )
    parts = [values]
    parts += [first] if return_index else []
    parts += [numbers] if return_inverse else []
    parts += [np.bincount(numbers, minlength=len(kept)).astype("int64")] if return_counts else []
    return parts[0] if len(parts) == 1 else tuple(parts)


def _same(a: Any, b: Any, nan_is_one: bool) -> bool:
    if isinstance(a, bytes):
        return True
    return bool(np.all(a == b)) or (nan_is_one and a != a and b != b)


def _lower_unique(builder: LowerBuilder, call: Call) -> Expr:
    x, attrs = call.args[0], call.attrs
    info: Any = x.struct_info
    axis = attrs["axis"]
    parts = sum(
        bit
        for bit, name in ((1, "return_index"), (2, "return_inverse"), (4, "return_counts"))
        if attrs[name]
    )
    count = TirVar("distinct", "int64")
    if axis is None:
        dims: list[PrimExpr] = [count]
        total = simplified(dims_product(info.dims))
    else:
        along = axis_of(axis, info.ndim)
        dims = [count if k == along else d for k, d in enumerate(info.dims)]
        total = info.dims[along]
    wanted = [TensorStructInfo(dims, info.dtype)]
    for bit, size in ((1, count), (2, total), (4, count)):
        if parts & bit:
            wanted.append(TensorStructInfo((size,), "int64"))
    loose = [w.replace(shape=None) for w in wanted]
    args = (x, axis or 0, axis is None, not attrs["sorted"], parts)
    if len(wanted) == 1:
        return _call_library(builder, "unique", args, wanted[0], loose[0])
    both = TupleStructInfo(tuple(wanted)), TupleStructInfo(tuple(loose))
    return _call_library(builder, "unique", args, *both)


@op("unique", _unique_numpy, _lower_unique, _BY_DATA, _BY_DATA)
def unique(
    x: Expr,
    sorted: bool = True,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
) -> StructInfo:
    """The distinct elements of `x` in one dimension, or its distinct slices along `axis`.

    sorted          in ascending order; else in the order they are met first
    return_index    also where each is met first
    return_inverse  also the number of each element (flat, or along `axis`) among the distinct ones
    return_counts   also how often each is met
    What is added makes the result a tuple; it is int64 of one dimension. NaN is equal to NaN, but
    not within slices.
    """
    info = tensor(x, "x")
    if axis is not None:
        axis_of(axis, info.ndim)
    values = TensorStructInfo(None, info.dtype, info.vdevice, 1 if axis is None else info.ndim)
    numbers = TensorStructInfo(None, "int64", info.vdevice, 1)
    extra = sum((return_index, return_inverse, return_counts))
    return TupleStructInfo((values,) + (numbers,) * extra) if extra else values
