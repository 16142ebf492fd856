"""Arithmetic, comparisons, logic and conversions, element by element, with broadcasting."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .....base import DataType
from ....expr import const
from ..model import element_dtype, library
from ..registry import add, direct, onnx, op
from ..values import dims_of, dtype_of, shape_expr

direct(
    {
        "Abs": op.abs,
        "Acos": op.acos,
        "Acosh": op.acosh,
        "Asin": op.asin,
        "Asinh": op.asinh,
        "Atan": op.atan,
        "Atanh": op.atanh,
        "BitwiseAnd": op.bitwise_and,
        "BitwiseNot": op.bitwise_not,
        "BitwiseOr": op.bitwise_or,
        "BitwiseXor": op.bitwise_xor,
        "Ceil": op.ceil,
        "Cos": op.cos,
        "Cosh": op.cosh,
        "Exp": op.exp,
        "Floor": op.floor,
        "GreaterOrEqual": op.greater_equal,
        "Identity": lambda x: x,
        "IsNaN": op.isnan,
        "LessOrEqual": op.less_equal,
        "Log": op.log,
        "Neg": op.negative,
        "Not": op.logical_not,
        "Round": op.round,
        "Sigmoid": op.sigmoid,
        "Sign": op.sign,
        "Sin": op.sin,
        "Sinh": op.sinh,
        "Sqrt": op.sqrt,
        "Tan": op.tan,
        "Tanh": op.tanh,
        "Where": op.where,
    }
)

_ARITHMETIC = {"Add": op.add, "Div": op.divide, "Mul": op.multiply, "Sub": op.subtract}
_COMPARISONS = {
    "And": op.logical_and,
    "Equal": op.equal,
    "Greater": op.greater,
    "Less": op.less,
    "Or": op.logical_or,
    "Xor": op.logical_xor,
}

direct({**_ARITHMETIC, **_COMPARISONS}, since=7)


def _old_operand(a: Any, b: Any, axis: int | None, broadcast: int) -> Any:
    """`b` as opsets before 7 broadcast it: its axes stand at those of `a` from `axis` on."""
    if not broadcast or axis is None:
        return b
    rank = len(dims_of(a))
    behind = rank - axis % rank - len(dims_of(b))
    return op.expand_dims(b, tuple(range(-behind, 0))) if behind else b


def _broadcast_by_attribute(f: Any) -> Any:
    def translate(node: Any, a: Any, b: Any, *, axis: Any = None, broadcast: Any = 0) -> Any:
        return f(a, _old_operand(a, b, axis, broadcast))

    return translate


for _name, _fn in {**_ARITHMETIC, **_COMPARISONS, "Pow": op.power}.items():
    add(_name, _broadcast_by_attribute(_fn), since=1)


@onnx("Pow", since=7)
def power(node: Any, x: Any, exponent: Any) -> Any:
    base, other = dtype_of(x), dtype_of(exponent)
    if base is other:
        return op.power(x, exponent)
    # Computed where both fit; the result has the base's dtype.
    wide = str(np.promote_types(_plain(base), _plain(other)))
    return op.astype(op.power(op.astype(x, wide), op.astype(exponent, wide)), base)


def _plain(dtype: DataType) -> str:
    return "float32" if dtype.is_bits else str(dtype)


@onnx("Mod", since=10)
def mod(node: Any, a: Any, b: Any, *, fmod: int) -> Any:
    return op.mod(a, b) if fmod else op.floor_mod(a, b)


@onnx("BitShift", since=11)
def bit_shift(node: Any, x: Any, by: Any, *, direction: str) -> Any:
    return op.left_shift(x, by) if direction == "LEFT" else op.right_shift(x, by)


def _over(node: Any, combine: Any, inputs: Any) -> Any:
    """`combine` of all inputs, bound step by step: nested, they could be too deep."""
    return functools.reduce(lambda a, b: node.emit(combine(a, b)), inputs)


@onnx("Max")
def maximum(node: Any, *inputs: Any) -> Any:
    return _over(node, op.maximum, inputs)


@onnx("Min")
def minimum(node: Any, *inputs: Any) -> Any:
    return _over(node, op.minimum, inputs)


@onnx("Sum")
def total(node: Any, *inputs: Any) -> Any:
    return _over(node, op.add, inputs)


@onnx("Mean")
def mean(node: Any, *inputs: Any) -> Any:
    return op.divide(_over(node, op.add, inputs), const(len(inputs), dtype_of(inputs[0])))


@onnx("Reciprocal")
def reciprocal(node: Any, x: Any) -> Any:
    return op.divide(const(1.0, dtype_of(x)), x)


@onnx("IsInf", since=10)
def is_inf(node: Any, x: Any, *, detect_negative: int, detect_positive: int) -> Any:
    zero = const(0.0, dtype_of(x))
    infinite = op.isinf(x)
    if not detect_negative:
        infinite = op.logical_and(infinite, op.greater(x, zero))
    if not detect_positive:
        infinite = op.logical_and(infinite, op.less(x, zero))
    return infinite


# -- conversions -----------------------------------------------------------------------------------


@onnx("Cast", since=6)
def cast(node: Any, x: Any, *, to: int, saturate: Any = 1, round_mode: Any = "up") -> Any:
    return _cast(node, x, element_dtype(to, "to"), saturate, round_mode)


@onnx("Cast", since=1)
def cast_1(node: Any, x: Any, *, to: str) -> Any:
    return _cast(node, x, element_dtype(library().TensorProto.DataType.Value(to), "to"), 1)


@onnx("CastLike", since=15)
def cast_like(node: Any, x: Any, like: Any, *, saturate: Any = 1, round_mode: Any = "up") -> Any:
    return _cast(node, x, dtype_of(like), saturate, round_mode)


def _cast(node: Any, x: Any, dtype: DataType, saturate: Any, round_mode: str = "up") -> Any:
    own = dtype_of(x)
    if own is dtype:
        return x
    if dtype.is_bool and not own.is_string:
        return op.not_equal(x, const(0, own))
    if dtype.kind == "float8_e8m0fnu":
        return _power_of_two(node, x, saturate, round_mode)
    if own.is_float and dtype.is_int and dtype.bits < 8:
        # What is out of range wraps, as it does for integers.
        return op.astype(op.astype(x, "int32"), dtype)
    if dtype.is_float8 and saturate and own.is_float:
        # What is saturated ends at the greatest value; NaN stays, being in no order.
        wide = x if own == "float64" else op.astype(x, "float32")
        most = const(float(dtype.max_value), dtype_of(wide))
        x = op.minimum(op.maximum(wide, op.negative(most)), most)
    return op.astype(x, dtype)


def _power_of_two(node: Any, x: Any, saturate: Any, round_mode: str) -> Any:
    """Numbers by the exponents of their sizes, rounded up, down or to the nearest one; what is too
    small is the least power of two, what is infinite NaN.
    """

    def number(value: int) -> Any:
        return const(value, "uint32")

    bits = node.emit(op.reinterpret(op.astype(x, "float32"), "uint32"))
    exponent = node.emit(op.bitwise_and(op.right_shift(bits, number(23)), number(255)))
    fraction = node.emit(op.bitwise_and(bits, number(0x7FFFFF)))
    if round_mode == "up":
        grows = op.greater(fraction, number(0))
    elif round_mode == "nearest":
        # Half way is up, but from what is below the least power.
        least = op.where(op.equal(exponent, number(0)), number(0x400001), number(0x400000))
        grows = op.greater_equal(fraction, least)
    elif round_mode == "down":
        grows = op.zeros(shape_expr(dims_of(x)), "bool")
    else:
        raise node.error(f"round_mode: wanted up, down or nearest, got {round_mode!r}")
    last = number(253 if saturate else 254)
    grows = op.logical_and(grows, op.less_equal(exponent, last))
    code = op.astype(op.add(exponent, op.astype(grows, "uint32")), "uint8")
    return op.reinterpret(code, "float8_e8m0fnu")


@onnx("BitCast", since=26)
def bit_cast(node: Any, x: Any, *, to: int) -> Any:
    own, dtype = dtype_of(x), element_dtype(to, "to")
    if own is dtype:
        return x
    if dtype.is_bool:
        return op.not_equal(op.reinterpret(x, "uint8"), const(0, "uint8"))
    # A bool is a byte that is 0 or 1.
    return op.reinterpret(op.astype(x, "uint8") if own.is_bool else x, dtype)


# -- limits ----------------------------------------------------------------------------------------


@onnx("Clip", since=11)
def clip(node: Any, x: Any, least: Any = None, most: Any = None) -> Any:
    if least is not None:
        x = op.maximum(x, op.reshape(least, ()))
    return x if most is None else op.minimum(x, op.reshape(most, ()))


@onnx("Clip", since=1)
def clip_1(node: Any, x: Any, *, min: Any = None, max: Any = None) -> Any:
    dtype = dtype_of(x)
    # The defaults are float32's limits, which float16 has not.
    if min is not None and min > dtype.min_value:
        x = op.maximum(x, const(min, dtype))
    return x if max is None or max >= dtype.max_value else op.minimum(x, const(max, dtype))
