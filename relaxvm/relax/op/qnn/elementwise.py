"""Quantised operators that work element by element, and those that only change the scale."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....base import DataType, StructInfoError
from ...expr import Tuple, TupleGetItem, const
from ...struct_info import Expr, TupleStructInfo
from ..compound import compound
from ..fixed_point import rounding_of
from ..infer import dtype_of, tensor
from ..names import ops
from ..quant_params import BYTES, STORED, one_of
from ..record import Operator
from .parameters import (
    BY_PLACE,
    ROUNDS,
    SMALL,
    along,
    check_output,
    check_scale,
    check_zero_point,
    distance,
    is_same,
    quantised,
    takes_numbers,
)

_COMPUTE = {"None": "int64", "int64": "int64", "float32": "float32", "float64": "float64"}
_SCALARS = ("input_scale", "input_zero_point")


def rescaled(
    x: Expr, scale: Expr, zero_point: Expr, to_scale: Expr, to_zero_point: Expr, dtype: Any,
    axis: int = -1, rounding: str = "UPWARD",
) -> Expr:  # fmt: skip
    """`x` in another scale and zero point, by fixed-point multiplication."""
    parts = ops.fixed_point_multiplier(scale, to_scale)
    return ops.fixed_point_rescale(
        x, zero_point, TupleGetItem(parts, 0), TupleGetItem(parts, 1), to_zero_point,
        axis=axis, rounding=rounding_of(rounding), out_dtype=str(dtype),
    )  # fmt: skip


@takes_numbers
@compound("qnn.requantize", ROUNDS, BY_PLACE)
def requantize(
    data: Expr,
    input_scale: Expr,
    input_zero_point: Expr,
    output_scale: Expr,
    output_zero_point: Expr,
    axis: int = -1,
    rounding: str = "None",
    compute_dtype: str = "None",
    out_dtype: str = "int8",
) -> Expr:
    """`data` in another scale: clip(round((data - input_zero_point) * input_scale / output_scale) +
    output_zero_point).

    rounding       of halves: "UPWARD" (as "None") to the greater number, "TONEAREST" away from
                   zero, in floats to the even number
    compute_dtype  "int64" (as "None"): the scale is a fixed-point number of 31 bits
                   (`fixed_point_multiplier`), all else exact. "float32", "float64": the ratio of
                   scales, the product with the distance, and the sum with output_zero_point are
                   each rounded to it.
    Scales and zero points are scalars or vectors along `axis`. Results saturate.
    """
    out = dtype_of(out_dtype, "out_dtype")
    one_of(out, STORED, "out_dtype")
    if compute_dtype not in _COMPUTE:
        raise StructInfoError(
            f"compute_dtype: wanted int64, float32 or float64, got {compute_dtype!r}"
        )
    real, mode = _COMPUTE[compute_dtype], rounding_of(rounding)
    info = quantised(data, input_scale, input_zero_point, "data", _SCALARS, axis, STORED)
    size = info.dims[axis] if info.ndim else None
    check_scale(output_scale, "output_scale", size, f"axis {axis}")
    check_zero_point(output_zero_point, "output_zero_point", out, size, f"axis {axis}")
    if real == "int64":
        return rescaled(
            data, input_scale, input_zero_point, output_scale, output_zero_point, out, axis, mode
        )
    exact = ops.subtract(
        ops.astype(data, "int64"), along(ops.astype(input_zero_point, "int64"), data, axis)
    )
    ratio = ops.divide(ops.astype(input_scale, real), ops.astype(output_scale, real))
    moved = ops.add(
        ops.multiply(ops.astype(exact, real), along(ratio, data, axis)),
        along(ops.astype(output_zero_point, real), data, axis),
    )
    if mode == "UPWARD":
        return ops.astype(ops.floor(ops.add(moved, const(0.5, real))), out)
    return ops.astype(ops.round(moved), out)


# -- two operands ----------------------------------------------------------------------------------


def _operands(
    lhs: Expr, rhs: Expr, parameters: tuple[Expr, ...], lhs_axis: int, rhs_axis: int
) -> DataType:
    """The dtype of both operands, all that is given checked."""
    ls, lz, rs, rz, so, zo = parameters
    one = quantised(lhs, ls, lz, "lhs", ("lhs_scale", "lhs_zero_point"), lhs_axis, SMALL)
    two = quantised(rhs, rs, rz, "rhs", ("rhs_scale", "rhs_zero_point"), rhs_axis, SMALL)
    if one.dtype is not two.dtype:
        raise StructInfoError(f"the dtypes differ: lhs is {one.dtype}, rhs is {two.dtype}")
    check_output(so, zo, one.dtype)
    return one.dtype


def _at_scale(x: Expr, scale: Expr, zero_point: Expr, to: Expr, axis: int) -> Expr:
    """The distance of `x` from its zero point in the scale `to`, in int32."""
    if is_same(scale, to):
        return distance(x, zero_point, axis)
    return rescaled(x, scale, zero_point, to, const(0, "int32"), "int32", axis)


def _sum(name: str, word: str, combine: Callable[[Expr, Expr], Expr]) -> Operator[...]:
    def rule(
        lhs: Expr,
        rhs: Expr,
        lhs_scale: Expr,
        lhs_zero_point: Expr,
        rhs_scale: Expr,
        rhs_zero_point: Expr,
        output_scale: Expr,
        output_zero_point: Expr,
        lhs_axis: int = -1,
        rhs_axis: int = -1,
    ) -> Expr:
        left, right = (lhs_scale, lhs_zero_point), (rhs_scale, rhs_zero_point)
        out = output_scale, output_zero_point
        dtype = _operands(lhs, rhs, (*left, *right, *out), lhs_axis, rhs_axis)
        # Requantised, both may be as great as int32 has them.
        same = is_same(lhs_scale, output_scale) and is_same(rhs_scale, output_scale)
        wide = "int32" if same else "int64"
        one, two = (
            ops.astype(_at_scale(x, *parameters, output_scale, axis), wide)
            for x, parameters, axis in ((lhs, left, lhs_axis), (rhs, right, rhs_axis))
        )
        moved = ops.astype(output_zero_point, wide)
        total = ops.add(combine(one, two), moved)
        return ops.astype(ops.clip(total, dtype.min_value, dtype.max_value), dtype)

    rule.__name__ = rule.__qualname__ = name
    rule.__doc__ = f"""The {word} of quantised tensors that broadcast, both of one dtype (8 or 16
    bits), which is the result's: each is requantised to `output_scale` (UPWARD, saturated to
    int32), then their {word} is taken exactly and clipped.

    Parameters of an operand are scalars, or vectors along its axis; those of the output scalars.
    """
    return takes_numbers(compound(f"qnn.{name}", ROUNDS, BY_PLACE)(rule))


add = _sum("add", "sum", lambda x, y: ops.add(x, y))
subtract = _sum("subtract", "difference", lambda x, y: ops.subtract(x, y))


@takes_numbers
@compound("qnn.mul", ROUNDS, BY_PLACE)
def mul(
    lhs: Expr,
    rhs: Expr,
    lhs_scale: Expr,
    lhs_zero_point: Expr,
    rhs_scale: Expr,
    rhs_zero_point: Expr,
    output_scale: Expr,
    output_zero_point: Expr,
    lhs_axis: int = -1,
    rhs_axis: int = -1,
) -> Expr:
    """lhs * rhs of quantised tensors that broadcast, both of one dtype (8 bits), which is the
    result's: the product of distances in int32, requantised (UPWARD) from the product of the scales
    in float32.

    Zero points of an operand are scalars, or vectors along its axis; scales are scalars.
    """
    parameters = lhs_scale, lhs_zero_point, rhs_scale, rhs_zero_point
    dtype = _operands(lhs, rhs, (*parameters, output_scale, output_zero_point), lhs_axis, rhs_axis)
    one_of(dtype, BYTES, "lhs")
    for scale, name in ((lhs_scale, "lhs_scale"), (rhs_scale, "rhs_scale")):
        check_scale(scale, name)
    product = ops.multiply(
        distance(lhs, lhs_zero_point, lhs_axis), distance(rhs, rhs_zero_point, rhs_axis)
    )
    scale = ops.multiply(*(_scalar(ops.astype(s, "float32")) for s in (lhs_scale, rhs_scale)))
    zero = const(0, "int32")
    return rescaled(product, scale, zero, output_scale, output_zero_point, dtype)


def _scalar(x: Expr) -> Expr:
    return x if tensor(x, "a scale").ndim == 0 else ops.reshape(x, ())


@takes_numbers
@compound("qnn.concatenate", ROUNDS, BY_PLACE)
def concatenate(
    data: Expr,
    input_scales: Expr,
    input_zero_points: Expr,
    output_scale: Expr,
    output_zero_point: Expr,
    axis: int = 0,
) -> Expr:
    """The tensors of the tuple `data`, of one dtype, requantised (UPWARD) to the output's scale and
    zero point, one after the other along `axis`. All parameters are scalars.
    """
    values, scales, zeros = (
        _fields(x, name)
        for x, name in (
            (data, "data"),
            (input_scales, "input_scales"),
            (input_zero_points, "input_zero_points"),
        )
    )
    if not values or not len(values) == len(scales) == len(zeros):
        raise StructInfoError(
            f"wanted as many scales and zero points as tensors, and some; got {len(values)} "
            f"tensors, {len(scales)} scales, {len(zeros)} zero points"
        )
    parts = []
    for k, (x, s, z) in enumerate(zip(values, scales, zeros)):
        names = f"input_scales: field {k}", f"input_zero_points: field {k}"
        info = quantised(x, s, z, f"data: field {k}", names, None, STORED)
        check_output(output_scale, output_zero_point, info.dtype)
        same = is_same(s, output_scale) and is_same(z, output_zero_point)
        parts.append(x if same else rescaled(x, s, z, output_scale, output_zero_point, info.dtype))
    return ops.concat(Tuple(parts), axis=axis)


def _fields(x: Expr, name: str) -> list[Expr]:
    if isinstance(x, Tuple):
        return list(x.fields)
    info = x.struct_info
    if not isinstance(info, TupleStructInfo):
        raise StructInfoError(f"{name}: wanted a tuple of tensors, got {info}")
    return [TupleGetItem(x, k) for k in range(len(info.fields))]


# -- in floats ------------------------------------------------------------------------------------


@takes_numbers
@compound("qnn.softmax", ROUNDS, BY_PLACE)
def softmax(
    x: Expr,
    scale: Expr,
    zero_point: Expr,
    output_scale: Expr,
    output_zero_point: Expr,
    axis: int = -1,
) -> Expr:
    """`quantize` of the softmax along `axis` of `dequantize`, in float32. Parameters are
    scalars.
    """
    info = quantised(x, scale, zero_point, "x", ("scale", "zero_point"), None, STORED)
    check_output(output_scale, output_zero_point, info.dtype)
    y = ops.nn.softmax(ops.dequantize(x, scale, zero_point), axis=axis)
    return ops.quantize(y, output_scale, output_zero_point, out_dtype=str(info.dtype))
