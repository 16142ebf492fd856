"""Tensors out of nothing, or out of a shape: constants, ranges, random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from .....base import FrontendError
from .....runtime import array
from ....expr import Constant, PrimValue, const
from ..model import element_dtype
from ..registry import onnx, op
from ..values import dims_of, dtype_of, product, shape_expr


@onnx("Constant")
def constant(
    node: Any,
    *,
    value: Any = None,
    value_float: Any = None,
    value_floats: Any = None,
    value_int: Any = None,
    value_ints: Any = None,
    value_string: Any = None,
    value_strings: Any = None,
    sparse_value: Any = None,
) -> Any:
    if value is not None:
        return Constant(value)
    for number in (value_float, value_floats):
        if number is not None:
            return const(np.array(number, "float32"))
    for number in (value_int, value_ints):
        if number is not None:
            return const(np.array(number, "int64"))
    for text in (value_string, value_strings):
        if text is not None:
            return Constant(array(np.array(text, object)))
    if sparse_value is not None:
        return Constant(node.graph.dense(sparse_value))
    raise FrontendError("wanted one of the attributes value, value_float, value_int, ...")


@onnx("ConstantOfShape", since=9)
def constant_of_shape(node: Any, shape: Any, *, value: Any = None) -> Any:
    fill = const(np.zeros((), "float32")) if value is None else Constant(value)
    dims = node.sizes(shape)
    return op.full(shape_expr(dims), op.reshape(fill, ()), dtype_of(fill))


@onnx("Range", since=11, ignores="stash_type")
def arange(node: Any, start: Any, limit: Any, delta: Any) -> Any:
    dtype = dtype_of(start)
    if dtype.is_float and not all(map(node.is_known, (start, limit, delta))):
        steps = op.ceil(op.divide(op.subtract(limit, start), delta))
        count = op.maximum(op.astype(steps, "int64"), const(0, "int64"))
        (length,) = node.sizes(node.emit(count), "length")
        places = op.astype(op.arange(PrimValue(length), dtype="int64"), dtype)
        return op.add(start, op.multiply(places, delta))
    if dtype.is_float:
        begin, end, step = (node.number(x, "bounds") for x in (start, limit, delta))
        return const(np.arange(begin, end, step).astype(str(dtype)))
    begin, end, step = (node.sizes(x, "bounds")[0] for x in (start, limit, delta))
    return op.arange(PrimValue(begin), PrimValue(end), PrimValue(step), str(dtype))


@onnx("EyeLike", since=9)
def eye_like(node: Any, x: Any, *, dtype: Any, k: int) -> Any:
    kind = dtype_of(x) if dtype is None else element_dtype(dtype, "dtype")
    return op.eye_like(x, k, kind)


@onnx("Shape", since=1)
def shape(node: Any, x: Any, *, start: Any = 0, end: Any = None) -> Any:
    return op.shape_to_tensor(shape_expr(dims_of(x)[slice(start, end)]))


@onnx("Size", since=1)
def size(node: Any, x: Any) -> Any:
    return op.reshape(op.shape_to_tensor(shape_expr([product(dims_of(x))])), ())


@onnx("RandomUniform RandomUniformLike")
def random_uniform(
    node: Any, x: Any = None, *, dtype: Any, high: float, low: float, seed: Any, shape: Any = None
) -> Any:
    dims, kind = _of_random(x, dtype, shape)
    return op.random.uniform(dims, node.seed(seed), low, high, kind)


@onnx("RandomNormal RandomNormalLike")
def random_normal(
    node: Any, x: Any = None, *, dtype: Any, mean: float, scale: float, seed: Any, shape: Any = None
) -> Any:
    dims, kind = _of_random(x, dtype, shape)
    return op.random.normal(dims, node.seed(seed), mean, scale, kind)


@onnx("Multinomial", since=7)
def multinomial(node: Any, x: Any, *, dtype: Any, sample_size: int, seed: Any) -> Any:
    rows, _ = dims_of(x)
    count = product([rows, sample_size])
    drawn = op.random.uniform(shape_expr([count, 1]), node.seed(seed))
    places = op.arange(PrimValue(count), dtype="int64")
    row = op.reshape(op.floor_divide(places, const(sample_size, "int64")), shape_expr([count, 1]))
    weights = op.nn.softmax(op.astype(x, "float32"), 1)
    picked = op.multinomial_from_uniform(weights, drawn, row, "int64")
    return op.astype(
        op.reshape(picked, shape_expr([rows, sample_size])), element_dtype(dtype, "dtype")
    )


def _of_random(x: Any, dtype: Any, shape: Any) -> tuple[Any, Any]:
    dims = shape_expr(shape if x is None else dims_of(x))
    return dims, dtype_of(x) if dtype is None else element_dtype(dtype, "dtype")
