"""Products of matrices."""

from __future__ import annotations

from typing import Any

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
    y = _scaled(y, alpha, dtype)
    return y if c is None or beta == 0 else op.add(y, _scaled(c, beta, dtype))


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
    # An integer's factor is a whole number.
    return op.multiply(x, const(factor if dtype.is_float else int(factor), dtype))


@onnx("Einsum", since=12)
def einsum(node: Any, *inputs: Any, equation: str) -> Any:
    return op.einsum(Tuple(inputs), equation.replace(" ", ""))


@onnx("MatMulInteger", since=10)
def matmul_integer(node: Any, a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    return op.matmul_integer(a, b, a_zero, b_zero)
