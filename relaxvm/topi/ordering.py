"""Sorting as formulas, for kernels: graphs call the library for it (`relax.op.sort`).

The rank of an element is the number of those that come before it: n * n comparisons along an axis.
Equal elements keep their order; NaN is greater than all else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base import TIRError
from ..ir import EQ, LT, NE, And, IntImm, Not, Or, PrimExpr, Select, cast, const
from ..te import Tensor, compute, reduce_axis
from ..te import sum as te_sum


def argsort(
    data: Tensor,
    valid_count: Any = None,
    axis: int = -1,
    is_ascend: Any = 1,
    dtype: Any = "float32",
) -> Tensor:
    """The indices that sort `data` along `axis`, stable; in `dtype`."""
    if valid_count is not None:
        raise TIRError(
            "argsort: valid_count is not supported: sort the valid part, a strided_slice"
        )
    order = _order(data, axis, not is_ascend)
    return compute(order.shape, lambda *i: cast(dtype, order(*i)), "argsort")


def sort(data: Tensor, axis: int = -1, is_ascend: Any = 1) -> Tensor:
    """`data` sorted along `axis`."""
    return _in_order(data, _order(data, axis, not is_ascend), axis, data.shape[axis])


def topk(
    data: Tensor,
    k: int = 1,
    axis: int = -1,
    ret_type: str = "both",
    is_ascend: Any = False,
    dtype: Any = "int64",
) -> Any:
    """The `k` greatest (`is_ascend`: least) elements along `axis`, and where they stand.

    k         0 or less: all, sorted
    ret_type  "both" (values, indices), "values" or "indices"
    """
    if ret_type not in ("both", "values", "indices"):
        raise TIRError(f"topk: ret_type: wanted both, values or indices, got {ret_type!r}")
    order = _order(data, axis, not is_ascend)
    size = data.shape[axis]
    count = size if k < 1 else k
    if isinstance(size, IntImm) and k > size.value:
        raise TIRError(f"topk: wanted {k} elements of {size}")
    values = _in_order(data, order, axis, count)
    places = compute(values.shape, lambda *i: cast(dtype, order(*i)), "topk_indices")
    return {"both": [values, places], "values": values, "indices": places}[ret_type]


def searchsorted(
    sorted_sequence: Tensor, values: Tensor, right: bool = False, dtype: Any = "int64"
) -> Tensor:
    """How many elements of the sorted last axis come before each of `values`; of equal ones all if
    `right`, else none. `sorted_sequence` has one dimension, or the first ones of `values`.
    """
    if sorted_sequence.dtype is not values.dtype:
        raise TIRError(
            f"searchsorted: wanted one dtype, got {sorted_sequence.dtype} and {values.dtype}"
        )
    shared = sorted_sequence.ndim - 1
    if shared and shared != values.ndim - 1:
        raise TIRError("searchsorted: the sequence has one dimension, or as many as the values")
    along = reduce_axis((0, sorted_sequence.shape[-1]), "k")

    def count(*i: PrimExpr) -> PrimExpr:
        key, value = sorted_sequence(*i[:shared], along.var), values(*i)
        passed = Not(_before(value, key)) if right else _before(key, value)
        return te_sum(cast(dtype, passed), along)

    return compute(values.shape, count, "searchsorted")


def _before(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    less: PrimExpr = LT(a, b)
    # NaN is what is not equal to itself.
    return Or(less, And(EQ(a, a), NE(b, b))) if a.dtype.is_float else less


def _order(data: Tensor, axis: int, descending: bool) -> Tensor:
    """Which element comes first along `axis`, which second, ..."""
    dim = axis % data.ndim
    dtype = data.shape[dim].dtype
    zero = const(0, dtype)

    def moved(index: Any, place: Any) -> list[Any]:
        return [*index[:dim], place, *index[dim + 1 :]]

    other = reduce_axis((0, data.shape[dim]), "k")

    def rank(*i: PrimExpr) -> PrimExpr:
        mine, its = data(*i), data(*moved(i, other.var))
        first, second = (mine, its) if descending else (its, mine)
        level = And(Not(_before(first, second)), Not(_before(second, first)))
        earlier = Or(_before(first, second), And(level, LT(cast(dtype, other.var), i[dim])))
        return te_sum(cast(dtype, earlier), other)

    ranks = compute(data.shape, rank, "rank")
    which = reduce_axis((0, data.shape[dim]), "k")

    def place(*i: PrimExpr) -> PrimExpr:
        here = EQ(ranks(*moved(i, which.var)), i[dim])
        return te_sum(Select(here, cast(dtype, which.var), zero), which)

    return compute(data.shape, place, "order")


def _in_order(data: Tensor, order: Tensor, axis: int, count: Any) -> Tensor:
    dim = axis % data.ndim
    shape = [*data.shape[:dim], count, *data.shape[dim + 1 :]]
    element: Callable[..., Any] = lambda *i: data(*i[:dim], order(*i), *i[dim + 1 :])  # noqa: E731
    return compute(shape, element, "sorted")
