"""Products of matrices."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ....expr import Tuple, const
from ..registry import onnx, op
from ..values import dtype_of


@onnx("MatMul")
def matmul(node: Any, a: Any, b: Any) -> Any:
    return op.matmul(a, b)


@onnx("Gemm", since=7)
def gemm(
    node: Any, a: Any, b: Any, c: Any = None, *, alpha: float, beta: float, transA: int, transB: int
) -> Any:
    dtype = dtype_of(a)
    if transA:
        a = op.permute_dims(a)
    y = op.matmul(a, op.permute_dims(b) if transB else b)
    terms = [(y, alpha)] + ([] if c is None or beta == 0 else [(c, beta)])
    # Integers are scaled by whole numbers as they are, by others in float64.
    exact = dtype.is_float or all(float(factor).is_integer() for _, factor in terms)
    wide = dtype if exact else "float64"
    scaled = [_scaled(x if exact else op.astype(x, wide), factor, wide) for x, factor in terms]
    total = functools.reduce(op.add, scaled)
    return total if exact else op.astype(total, dtype)


@onnx("Gemm", since=1)
def gemm_1(
    node: Any,
    a: Any,
    b: Any,
    c: Any,
    *,
    alpha: float,
    beta: float,
    broadcast: int = 1,
    transA: int,
    transB: int,
) -> Any:
    return gemm(node, a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)


def _scaled(x: Any, factor: float, dtype: Any) -> Any:
    if factor == 1.0:
        return x
    return op.multiply(x, const(np.array(factor), dtype))


@onnx("Einsum", since=12)
def einsum(node: Any, *inputs: Any, equation: str) -> Any:
    return op.einsum(Tuple(inputs), equation.replace(" ", ""))


def zero_points(a: Any, a_zero: Any, b_zero: Any) -> tuple[Any, Any]:
    """Zero points as operators of integers take them: not the second without the first."""
    return const(0, dtype_of(a)) if a_zero is None and b_zero is not None else a_zero, b_zero


@onnx("MatMulInteger", since=10)
def matmul_integer(node: Any, a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    return op.matmul_integer(a, b, *zero_points(a, a_zero, b_zero))
