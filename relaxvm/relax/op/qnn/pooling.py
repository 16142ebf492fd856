"""Averages of quantised tensors, each rounded once."""

from __future__ import annotations

from typing import Any

from ...expr import PrimValue, const
from ...struct_info import Expr
from ..compound import compound
from ..infer import axes_of, dims_product
from ..names import ops
from ..quant_params import BYTES
from .elementwise import rescaled
from .parameters import (
    BY_PLACE,
    ROUNDS,
    check_output,
    distance,
    quantised,
    takes_numbers,
)

_NAMES = ("input_scale", "input_zero_point")


@takes_numbers
@compound("qnn.avg_pool2d", ROUNDS, BY_PLACE)
def avg_pool2d(
    data: Expr,
    input_scale: Expr,
    input_zero_point: Expr,
    output_scale: Expr,
    output_zero_point: Expr,
    pool_size: Any = 1,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: str = "NHWC",
    out_layout: str | None = None,
) -> Expr:
    """`nn.avg_pool2d` of 8-bit data less its zero point, which padding holds, then `requantize` in
    float32 (TONEAREST), so that it is rounded once; a window has at most 65,793 elements, whose sum
    float32 holds. Parameters are scalars.
    """
    info = quantised(data, input_scale, input_zero_point, "data", _NAMES, None, BYTES)
    check_output(output_scale, output_zero_point, info.dtype)
    average = ops.nn.avg_pool2d(
        ops.astype(distance(data, input_zero_point), "float32"),
        pool_size, strides, padding, dilation, ceil_mode, count_include_pad, layout, out_layout,
    )  # fmt: skip
    ratio = ops.divide(ops.astype(output_scale, "float32"), ops.astype(input_scale, "float32"))
    return ops.quantize(average, ratio, output_zero_point, out_dtype=str(info.dtype))


@takes_numbers
@compound("qnn.mean", ROUNDS, BY_PLACE)
def mean(
    x: Expr,
    input_scale: Expr,
    input_zero_point: Expr,
    output_scale: Expr,
    output_zero_point: Expr,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
) -> Expr:
    """The mean of 8-bit data over `axis`: the sum of distances in int32, which wraps, requantised
    (UPWARD) from input_scale / count. Parameters are scalars.
    """
    info = quantised(x, input_scale, input_zero_point, "x", _NAMES, None, BYTES)
    check_output(output_scale, output_zero_point, info.dtype)
    total = ops.sum(distance(x, input_zero_point), axis=axis, keepdims=keepdims)
    count = dims_product(info.dims[a] for a in axes_of(axis, info.ndim))
    whole = ops.multiply(
        ops.astype(output_scale, "float64"), ops.astype(ops.full((), PrimValue(count)), "float64")
    )
    zero = const(0, "int32")
    return rescaled(total, input_scale, zero, whole, output_zero_point, info.dtype)
