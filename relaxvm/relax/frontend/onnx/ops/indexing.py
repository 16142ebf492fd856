"""Elements found by index or by value: gather and scatter, the greatest, the distinct."""

from __future__ import annotations

from typing import Any

from .....ir import IntImm
from ....expr import PrimValue, const
from ..registry import onnx, op
from ..values import dims_of, dtype_of, product, shape_expr


@onnx("Gather")
def gather(node: Any, x: Any, indices: Any, *, axis: int) -> Any:
    return op.take(x, indices, axis)


@onnx("GatherElements", since=11)
def gather_elements(node: Any, x: Any, indices: Any, *, axis: int) -> Any:
    return op.gather_elements(x, indices, axis)


@onnx("GatherND", since=11)
def gather_nd(node: Any, x: Any, indices: Any, *, batch_dims: Any = 0) -> Any:
    return op.gather_nd(x, indices, batch_dims)


@onnx("TensorScatter", since=24)
def tensor_scatter(
    node: Any, cache: Any, update: Any, begins: Any = None, *, axis: int, mode: str
) -> Any:
    dims = dims_of(update)
    axis %= len(dims)
    places = op.arange(dims[axis])
    if begins is not None:
        places = op.add(op.expand_dims(op.astype(begins, "int64"), 1), places)
    if mode == "circular":
        size = op.full((), PrimValue(dims_of(cache)[axis]), "int64")
        places = op.floor_mod(places, size)
    one: list[Any] = [1] * len(dims)
    one[0] = 1 if begins is None else dims[0]
    one[axis] = dims[axis]
    places = op.broadcast_to(op.reshape(places, shape_expr(one)), shape_expr(dims))
    return op.scatter_elements(cache, places, update, axis)


_REDUCTION = {"none": "update"}


@onnx("ScatterElements Scatter", since=9)
def scatter_elements(
    node: Any, x: Any, indices: Any, updates: Any, *, axis: int, reduction: Any = "none"
) -> Any:
    return _scattered(op.scatter_elements, x, indices, updates, axis, reduction=reduction)


@onnx("ScatterND", since=11)
def scatter_nd(node: Any, x: Any, indices: Any, updates: Any, *, reduction: Any = "none") -> Any:
    return _scattered(op.scatter_nd, x, indices, updates, reduction=reduction)


def _scattered(f: Any, x: Any, indices: Any, updates: Any, *where: Any, reduction: str) -> Any:
    kind = _REDUCTION.get(reduction, reduction)
    if kind == "update" or not dtype_of(x).is_bool:
        return f(x, indices, updates, *where, kind)
    # Truths are added and multiplied as numbers; what is not 0 is one.
    counts = f(op.astype(x, "int64"), indices, op.astype(updates, "int64"), *where, kind)
    return op.not_equal(counts, const(0, "int64"))


@onnx("TopK", since=10, ignores="sorted")
def top_k(node: Any, x: Any, k: Any, *, axis: int, largest: Any = 1) -> Any:
    (count,) = node.sizes(k, "k")
    if not isinstance(count, IntImm):
        # All of them in order, of which the first are taken.
        whole = node.emit(op.topk(x, -1, axis, "both", bool(largest), "int64"))
        return [op.strided_slice(part, [axis], [0], [count]) for part in whole]
    count = count.value
    if count == 0:
        empty = op.strided_slice(x, [axis], [0], [0])
        return empty, op.astype(empty, "int64")
    return list(node.emit(op.topk(x, count, axis, "both", bool(largest), "int64")))


@onnx("TopK", since=1)
def top_k_1(node: Any, x: Any, *, axis: int, k: int) -> Any:
    return list(node.emit(op.topk(x, k, axis, "both", True, "int64")))


@onnx("Compress", since=9)
def compress(node: Any, x: Any, condition: Any, *, axis: Any) -> Any:
    flat = op.squeeze(node.emit(op.nonzero(condition)), 0)
    if axis is None:
        x, axis = op.reshape(x, shape_expr([product(dims_of(x))])), 0
    return op.take(x, flat, axis)


@onnx("Unique", since=11)
def unique(node: Any, x: Any, *, axis: Any, sorted: int) -> Any:
    if axis is None:
        x = op.reshape(x, shape_expr([product(dims_of(x))]))
    kept, *more = node.emit(op.unique(x, bool(sorted), True, True, True, axis))
    if axis is not None:
        dims: list[Any] = list(dims_of(x))
        dims[axis] = None
        kept = node.sized(kept, *dims)
    return [kept, *more]


@onnx("OneHot", since=9)
def one_hot(node: Any, indices: Any, depth: Any, values: Any, *, axis: int) -> Any:
    (count,) = node.sizes(node.emit(op.astype(depth, "int64")), "depth")
    whole = node.emit(op.astype(indices, "int64"))
    size = op.shape_to_tensor(shape_expr([count]))
    whole = op.where(op.less(whole, const(0, "int64")), op.add(whole, size), whole)
    rank = len(dims_of(indices)) + 1
    axis = axis % rank
    places = op.arange(PrimValue(count), dtype="int64")
    places = op.expand_dims(places, tuple(range(1, rank - axis)))
    hot = op.equal(op.expand_dims(whole, axis), places)
    off, on = (op.reshape(op.strided_slice(values, [0], [i], [i + 1]), ()) for i in (0, 1))
    return op.where(hot, on, off)
