"""What networks put between their layers: functions of one tensor, and the softmaxes."""

from __future__ import annotations

from typing import Any

from ....expr import const
from ..registry import direct, onnx, op
from ..values import dims_of, dtype_of, product, shape_expr

direct(
    {
        "HardSwish": op.nn.hardswish,
        "Mish": op.nn.mish,
        "Relu": op.nn.relu,
        "Softplus": lambda x: op.logaddexp(x, const(0.0, dtype_of(x))),
        "Softsign": lambda x: op.divide(x, op.add(op.abs(x), const(1.0, dtype_of(x)))),
    }
)


@onnx("PRelu", since=7)
def prelu(node: Any, x: Any, slope: Any) -> Any:
    return op.where(op.less(x, const(0, dtype_of(x))), op.multiply(x, slope), x)


@onnx("PRelu", since=1)
def prelu_1(node: Any, x: Any, slope: Any) -> Any:
    # One slope, or one for each channel.
    behind = tuple(range(1, len(dims_of(x)) - 1))
    return prelu(node, x, op.expand_dims(slope, behind) if behind else slope)


@onnx("LeakyRelu")
def leaky_relu(node: Any, x: Any, *, alpha: float) -> Any:
    return op.nn.leakyrelu(x, alpha)


@onnx("Elu")
def elu(node: Any, x: Any, *, alpha: float) -> Any:
    return op.nn.elu(x, alpha)


@onnx("Celu", since=12)
def celu(node: Any, x: Any, *, alpha: float) -> Any:
    return op.nn.celu(x, alpha)


@onnx("Selu")
def selu(node: Any, x: Any, *, alpha: float, gamma: float) -> Any:
    return op.multiply(op.nn.elu(x, alpha), const(gamma, dtype_of(x)))


@onnx("HardSigmoid")
def hard_sigmoid(node: Any, x: Any, *, alpha: float, beta: float) -> Any:
    return op.nn.hardsigmoid(x, alpha, beta)


@onnx("ThresholdedRelu", since=10)
def thresholded_relu(node: Any, x: Any, *, alpha: float) -> Any:
    dtype = dtype_of(x)
    return op.where(op.greater(x, const(alpha, dtype)), x, const(0.0, dtype))


@onnx("Shrink", since=9)
def shrink(node: Any, x: Any, *, bias: float, lambd: float) -> Any:
    dtype = dtype_of(x)
    if not dtype.is_float:
        wide = node.emit(op.astype(x, "float64"))
        return op.astype(shrink(node, wide, bias=bias, lambd=lambd), dtype)
    by, least, most = (const(v, dtype) for v in (bias, -lambd, lambd))
    above = op.where(op.greater(x, most), op.subtract(x, by), const(0, dtype))
    return op.where(op.less(x, least), op.add(x, by), above)


@onnx("Erf", since=9)
def erf(node: Any, x: Any) -> Any:
    dtype = dtype_of(x)
    return op.erf(x) if dtype.is_float else op.astype(op.erf(op.astype(x, "float64")), dtype)


@onnx("Gelu", since=20)
def gelu(node: Any, x: Any, *, approximate: str) -> Any:
    return op.nn.gelu_tanh(x) if approximate == "tanh" else op.nn.gelu(x)


@onnx("Swish", since=24)
def swish(node: Any, x: Any, *, alpha: float) -> Any:
    if alpha == 1.0:
        return op.nn.silu(x)
    return op.multiply(x, op.sigmoid(op.multiply(x, const(alpha, dtype_of(x)))))


# -- along an axis ---------------------------------------------------------------------------------


@onnx("Softmax", since=13)
def softmax(node: Any, x: Any, *, axis: int) -> Any:
    return op.nn.softmax(x, axis)


@onnx("LogSoftmax", since=13)
def log_softmax(node: Any, x: Any, *, axis: int) -> Any:
    return op.nn.log_softmax(x, axis)


@onnx("Hardmax", since=13)
def hardmax(node: Any, x: Any, *, axis: int) -> Any:
    size, behind = dims_of(x)[axis], -axis - 1 if axis < 0 else len(dims_of(x)) - axis - 1
    if getattr(size, "value", None) == 0:
        return x
    places = op.expand_dims(op.arange(size), tuple(range(1, behind + 1)))
    return op.astype(op.equal(op.argmax(x, axis, True), places), dtype_of(x))


def _flat(fn: Any) -> Any:
    """`fn` as opsets before 13 have it: over all axes from `axis` on, taken together."""

    def flat(node: Any, x: Any, *, axis: int) -> Any:
        dims = dims_of(x)
        axis = axis % len(dims) if dims else 0
        matrix = op.reshape(x, shape_expr([product(dims[:axis]), product(dims[axis:])]))
        return op.reshape(fn(node, node.emit(matrix), axis=1), shape_expr(dims))

    return flat


for _name, _fn in {"Softmax": softmax, "LogSoftmax": log_softmax, "Hardmax": hardmax}.items():
    onnx(_name, since=1)(_flat(_fn))
