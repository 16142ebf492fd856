"""Scales and zero points of quantised operators: real = (stored - zero_point) * scale."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ....base import DataType, StructInfoError
from ....ir import PrimExpr
from ...expr import Call, Constant, const
from ...struct_info import Expr, ShapeExpr
from ..infer import FLOAT, INTEGER, axis_of, tensor
from ..names import ops
from ..quant_params import is_zero, one_of, quant_info
from ..record import Operator, P, face_of, missing
from ..sizes import ONE, KnownTensor

ROUNDS = missing("rounds to integers")
BY_PLACE = missing("scales go along an axis that is counted")
BY_TABLE: dict[str, Operator[...]] = {}
"""{name of an operator on reals: that of quantised tensors}"""
SMALL = ("int8", "uint8", "int16", "uint16")


# -- numbers as parameters -------------------------------------------------------------------------


def takes_numbers(build: Operator[P]) -> Operator[P]:
    """Decorator: the face of an operator whose scales and zero points may be numbers, or lists of
    them: they are float32 and int32.
    """

    @functools.wraps(build)
    def face(*args: Any, **keywords: Any) -> Call:
        names = [p.name for p in build.op.params]
        values = [as_parameter(n, a) for n, a in zip(names, args)]
        named = {n: as_parameter(n, a) for n, a in keywords.items()}
        return build(*values, *args[len(names) :], **named)

    return face_of(build)(face)


def as_parameter(name: str, value: Any) -> Any:
    """What is given for the parameter `name`, numbers as constants if it is a scale or zero
    point.
    """
    single, plural = ("_scale", "scale", "_zero_point", "zero_point"), ("_scales", "_zero_points")
    if name.endswith(plural) and isinstance(value, (list, tuple)):
        return [as_parameter(name[:-1], v) for v in value]
    plain = isinstance(value, (int, float, list, tuple)) and not isinstance(value, bool)
    if not name.endswith(single) or not plain:
        return value
    try:
        return const(value, "float32" if name.endswith("scale") else "int32")
    except (TypeError, ValueError, OverflowError) as error:
        raise StructInfoError(f"{name}: {error}") from None


# -- what rules ask of them ------------------------------------------------------------------------


def check_scale(x: Expr, name: str, along: PrimExpr | None = None, axis: str = "") -> None:
    """Raise StructInfoError unless `x` can be a scale: a floating scalar, or a vector of `along`
    elements; a constant is positive and finite.
    """
    quant_info(x, name, FLOAT, along, axis)
    if isinstance(x, Constant):
        values = np.asarray(x.data.numpy(), "float64")
        wrong = values[~(np.isfinite(values) & (values > 0))]
        if wrong.size:
            raise StructInfoError(f"{name}: wanted positive finite numbers, got {wrong.flat[0]}")


def check_zero_point(
    x: Expr, name: str, dtype: DataType, along: PrimExpr | None = None, axis: str = ""
) -> None:
    """Raise StructInfoError unless `x` can be a zero point of values of `dtype`: an integer scalar,
    or a vector of `along` elements; a constant is a value of `dtype`.
    """
    quant_info(x, name, INTEGER, along, axis)
    if isinstance(x, Constant):
        values = x.data.numpy()
        wrong = values[(values < dtype.min_value) | (values > dtype.max_value)]
        if wrong.size:
            raise StructInfoError(f"{name}: wanted a value of {dtype}, got {wrong.flat[0]}")


def quantised(
    x: Expr, scale: Expr, zero_point: Expr, name: str, names: tuple[str, str], axis: int | None,
    takes: tuple[str, ...],
) -> KnownTensor:  # fmt: skip
    """The struct info of the stored tensor `x`, its parameters (called `names`) checked.

    axis   along which they may be vectors; None: they are scalars
    takes  the dtypes that it may have
    """
    info = tensor(x, name, INTEGER)
    one_of(info.dtype, takes, name)
    along = None if axis is None or not info.ndim else info.dims[axis_of(axis, info.ndim)]
    check_scale(scale, names[0], along, f"axis {axis}")
    check_zero_point(zero_point, names[1], info.dtype, along, f"axis {axis}")
    return info


def check_output(scale: Expr, zero_point: Expr, dtype: DataType) -> None:
    """Raise StructInfoError unless these are the output's parameters, scalars."""
    check_scale(scale, "output_scale")
    check_zero_point(zero_point, "output_zero_point", dtype)


# -- expressions -----------------------------------------------------------------------------------


def along(parameter: Expr, x: Expr, axis: int) -> Expr:
    """A parameter shaped to broadcast against the tensor `x`."""
    info, ndim = tensor(parameter, "a parameter"), tensor(x, "x").ndim
    if info.ndim == 0:
        return parameter
    shape = [ONE] * ndim
    if ndim:
        shape[axis_of(axis, ndim)] = info.dims[0]
    return ops.reshape(parameter, ShapeExpr(shape))


def distance(x: Expr, zero_point: Expr, axis: int = -1) -> Expr:
    """x - zero_point in int32, which holds it if `x` has 8 or 16 bits."""
    wide = ops.astype(x, "int32")
    if is_zero(zero_point):
        return wide
    return ops.subtract(wide, along(ops.astype(zero_point, "int32"), x, axis))


def is_same(one: Expr, other: Expr) -> bool:
    """Whether two parameters are the same: one expression, or constants of equal elements."""
    if one is other:
        return True
    if not isinstance(one, Constant) or not isinstance(other, Constant):
        return False
    return bool(np.array_equal(one.data.numpy(), other.data.numpy()))


def of_each(x: Expr, f: Callable[[Expr], Expr]) -> Expr:
    """f(x), element by element: of 8 bits, by a table of all 256 values."""
    dtype: Any = tensor(x, "x").dtype
    if dtype.bits != 8:
        return f(x)
    values = const(np.arange(256, dtype="uint8").view(str(dtype)))
    return ops.take(f(values), ops.astype(x, "uint8"), axis=0)


# -- what relax.op has under other names of arguments ----------------------------------------------


def quantize(
    data: Expr,
    output_scale: Any,
    output_zero_point: Any,
    axis: int = -1,
    out_dtype: str = "int8",
) -> Call:
    """`relax.op.quantize`, with the names that Relay has for its arguments; numbers may be given
    for scale and zero point.
    """
    scale, zero = _pair(output_scale, output_zero_point, "output")
    call: Call = ops.quantize(data, scale, zero, axis=axis, out_dtype=out_dtype)
    return call


def dequantize(
    data: Expr,
    input_scale: Any,
    input_zero_point: Any,
    axis: int = -1,
    out_dtype: str = "float32",
) -> Call:
    """`relax.op.dequantize`, with the names that Relay has for its arguments; numbers may be given
    for scale and zero point.
    """
    scale, zero = _pair(input_scale, input_zero_point, "input")
    call: Call = ops.dequantize(data, scale, zero, axis=axis, out_dtype=out_dtype)
    return call


def _pair(scale: Any, zero_point: Any, whose: str) -> list[Any]:
    names = f"{whose}_scale", f"{whose}_zero_point"
    return [as_parameter(n, v) for n, v in zip(names, (scale, zero_point))]
