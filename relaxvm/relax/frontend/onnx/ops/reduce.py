"""Sums, extremes and the like along axes, and running sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....expr import const
from ..registry import add, onnx, op
from ..values import dims_of, dtype_of, numbers, shape_expr

Reduce = Callable[[Any, Any, bool], Any]


def _in_floats(reduce: Reduce) -> Reduce:
    """A reduction that is computed in floats, of integers toward zero."""

    def translate(x: Any, axes: Any, keep: bool) -> Any:
        dtype = dtype_of(x)
        if dtype.is_float:
            return reduce(x, axes, keep)
        return op.astype(reduce(op.astype(x, "float64"), axes, keep), dtype)

    return translate


_REDUCE: dict[str, Reduce] = {
    "ReduceL1": lambda x, axes, keep: op.sum(op.abs(x), axes, keep),
    "ReduceL2": _in_floats(lambda x, axes, keep: op.sqrt(op.sum(op.square(x), axes, keep))),
    "ReduceLogSum": lambda x, axes, keep: op.log(op.sum(x, axes, keep)),
    "ReduceLogSumExp": op.logsumexp,
    "ReduceMax": op.max,
    "ReduceMean": _in_floats(op.mean),
    "ReduceMin": op.min,
    "ReduceProd": op.prod,
    "ReduceSum": op.sum,
    "ReduceSumSquare": lambda x, axes, keep: op.sum(op.square(x), axes, keep),
}


def _by_attribute(reduce: Reduce) -> Callable[..., Any]:
    def translate(node: Any, x: Any, *, axes: Any, keepdims: int) -> Any:
        return reduce(x, axes or None, bool(keepdims))

    return translate


def _by_input(reduce: Reduce) -> Callable[..., Any]:
    def translate(
        node: Any, x: Any, axes: Any = None, *, keepdims: int, noop_with_empty_axes: int
    ) -> Any:
        along = () if axes is None else node.ints(axes, "axes")
        if not along and not noop_with_empty_axes:
            return reduce(x, None, bool(keepdims))
        return reduce(x, along, bool(keepdims))

    return translate


def _of_bools(reduce: Reduce) -> Reduce:
    """The least or greatest of bools, too."""

    def translate(x: Any, axes: Any, keep: bool) -> Any:
        if not dtype_of(x).is_bool:
            return reduce(x, axes, keep)
        # The greatest of nothing is the least int8, which is no truth.
        return op.greater(reduce(op.astype(x, "int8"), axes, keep), const(0, "int8"))

    return translate


for _name, _reduce in _REDUCE.items():
    if _name in ("ReduceMax", "ReduceMin"):
        _reduce = _of_bools(_reduce)
    add(_name, _by_attribute(_reduce), since=1)
    add(_name, _by_input(_reduce), since=13 if _name == "ReduceSum" else 18)


@onnx("ArgMax ArgMin")
def arg_extreme(node: Any, x: Any, *, axis: int, keepdims: int, select_last_index: Any = 0) -> Any:
    find = op.argmax if node.proto.op_type == "ArgMax" else op.argmin
    if not select_last_index:
        return op.astype(find(x, axis, bool(keepdims)), "int64")
    from_end = op.astype(find(op.flip(x, axis), axis, bool(keepdims)), "int64")
    last = op.shape_to_tensor(shape_expr([dims_of(x)[axis] - 1]))
    return op.subtract(last, from_end)


@onnx("CumSum", since=11)
def cumulative_sum(node: Any, x: Any, axis: Any, *, exclusive: int, reverse: int) -> Any:
    return _running(op.cumsum, node, x, axis, exclusive, reverse)


@onnx("CumProd", since=26)
def cumulative_product(node: Any, x: Any, axis: Any, *, exclusive: int, reverse: int) -> Any:
    return _running(op.cumprod, node, x, axis, exclusive, reverse)


def _running(f: Any, node: Any, x: Any, axis: Any, exclusive: int, reverse: int) -> Any:
    if numbers(node.graph.elements.of(axis)) is None:
        rank = len(dims_of(x))
        place = node.emit(op.floor_mod(op.reshape(axis, ()), const(rank, dtype_of(axis))))
        y = _running_along(f, x, 0, exclusive, reverse)
        for k in range(1, rank):
            other = _running_along(f, x, k, exclusive, reverse)
            y = op.where(op.equal(place, const(k, dtype_of(axis))), other, y)
        return y
    return _running_along(f, x, int(node.number(axis, "axis")), exclusive, reverse)


def _running_along(f: Any, x: Any, along: int, exclusive: int, reverse: int) -> Any:
    if not reverse:
        return f(x, along, dtype_of(x), bool(exclusive))
    return op.flip(f(op.flip(x, along), along, dtype_of(x), bool(exclusive)), along)
