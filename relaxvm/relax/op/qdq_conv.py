"""Convolutions of quantised images: conv2d_integer sums in int32, which wraps, and qlinear_conv2d
requantises the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import te
from ...base import DataType, StructInfoError, VMValueError
from ...ir import PrimExpr, cast, const
from ..expr import Call
from ..rules import LowerBuilder
from ..struct_info import Expr, StructInfo, TensorStructInfo
from .infer import FLOAT, INTEGER, shaped, tensor
from .lower import call_te
from .nn.window import padding_of, spread, te_pad
from .quant_params import (
    BYTES,
    distance,
    needed,
    np_stored,
    one_of,
    quant_at,
    quant_info,
    quant_values,
    same_as,
    to_stored,
)
from .record import Op, missing, op
from .sizes import want_at_most, want_equal, want_multiple

_ROUNDS = missing("rounds to integers")
_INT32 = DataType("int32")


def _order(layout: str, letters: str, name: str) -> tuple[int, ...]:
    """Where each of `letters` stands in `layout`."""
    if sorted(layout) != sorted(letters):
        raise StructInfoError(
            f"{name}: wanted the letters of {letters} in some order, got {layout!r}"
        )
    return tuple(layout.index(c) for c in letters)


def _conv_dims(
    data: Sequence[PrimExpr], weight: Sequence[PrimExpr], attrs: Any
) -> tuple[PrimExpr, ...]:
    """The result's dimensions, in the order NCHW, from data's in NCHW and weight's in OIHW."""
    strides = spread(attrs["strides"], 2, "strides")
    padding = padding_of(attrs["padding"], 2)
    dilation = spread(attrs["dilation"], 2, "dilation")
    dims = []
    for k in range(2):
        span = (weight[2 + k] - 1) * dilation[k] + 1
        padded = data[2 + k] + (padding[k] + padding[2 + k])
        text = "the window of {size} does not fit the padded data, of {most}"
        want_at_most(span, padded, text)
        room = padded - span
        dims.append(te.floordiv(room, const(strides[k], room.dtype)) + 1)
    return (data[0], weight[0], *dims)


def _conv_info(data: Expr, weight: Expr, dtype: DataType, attrs: Any) -> TensorStructInfo:
    infos = tensor(data, "data", INTEGER, ndim=4), tensor(weight, "weight", INTEGER, ndim=4)
    for info, name in zip(infos, ("data", "weight")):
        one_of(info.dtype, BYTES, name)
    n_order = _order(attrs["data_layout"], "NCHW", "data_layout")
    k_order = _order(attrs["kernel_layout"], "OIHW", "kernel_layout")
    groups = attrs["groups"]
    if not 1 <= groups < 2**31:
        raise StructInfoError(f"groups: wanted at least 1 and less than 2**31, got {groups}")
    for name in ("strides", "dilation"):
        spread(attrs[name], 2, name)
    padding_of(attrs["padding"], 2)
    x, w = infos
    d = [x.dims[k] for k in n_order]
    k = [w.dims[i] for i in k_order]
    text = "data has {a} channels, weight takes {each} in each of {groups} groups"
    want_equal(d[1], k[1] * groups, text, each=k[1], groups=groups)
    text = "weight: {size} output channels are not {groups} equal groups"
    want_multiple(k[0], groups, text, groups=groups)
    dims = _conv_dims(d, k, attrs)
    return shaped(x, [dims["NCHW".index(c)] for c in attrs["data_layout"]], dtype)


def _conv_te(
    x: te.Tensor, w: te.Tensor, zx: te.Tensor | None, zw: te.Tensor | None, attrs: Any
) -> te.Tensor:
    """The int32 sums, in NCHW."""
    n_order, k_order = (
        _order(attrs["data_layout"], "NCHW", "data_layout"),
        _order(attrs["kernel_layout"], "OIHW", "kernel_layout"),
    )
    strides = spread(attrs["strides"], 2, "strides")
    padding = padding_of(attrs["padding"], 2)
    dilation = spread(attrs["dilation"], 2, "dilation")
    d, k = [x.shape[a] for a in n_order], [w.shape[a] for a in k_order]
    dims = _conv_dims(d, k, attrs)
    groups = attrs["groups"]
    each = te.floordiv(k[0], const(groups, k[0].dtype))
    before, after = [0] * 4, [0] * 4
    for axis in range(2):
        before[n_order[2 + axis]], after[n_order[2 + axis]] = padding[axis], padding[2 + axis]
    # Padding holds the zero point: so all elements are treated alike.
    fill = const(0, x.dtype) if zx is None else quant_at(zx, None)
    padded = te_pad(x, before, after, fill)
    axes = [te.reduce_axis((0, k[i]), name) for i, name in ((1, "c"), (2, "r"), (3, "s"))]

    def value(n: PrimExpr, o: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
        c, r, s = (a.var for a in axes)
        y, z = i * strides[0] + r * dilation[0], j * strides[1] + s * dilation[1]
        channel = c if groups == 1 else te.floordiv(o, each) * k[1] + c
        where = dict(zip("NCHW", (n, channel, y, z)))
        left = distance(padded(*(where[letter] for letter in attrs["data_layout"])), zx, None)
        there = dict(zip("OIHW", (o, c, r, s)))
        right = distance(w(*(there[letter] for letter in attrs["kernel_layout"])), zw, o)
        return te.sum(left * right, axis=axes)

    return te.compute(dims, value, "conv2d")


def _in_layout(sums: te.Tensor, layout: str, f: Callable[..., PrimExpr]) -> te.Tensor:
    """The tensor of f(value, output channel), `sums` being in NCHW, in `layout`."""
    dims = dict(zip("NCHW", sums.shape))

    def value(*index: PrimExpr) -> PrimExpr:
        place = dict(zip(layout, index))
        return f(sums(*(place[c] for c in "NCHW")), place["C"])

    return te.compute(tuple(dims[c] for c in layout), value, "result")


def _np_conv(x: Any, w: Any, zx: Any, zw: Any, attrs: Any) -> np.ndarray:
    """The int32 sums, in NCHW."""
    outputs = attrs["kernel_layout"].index("O")
    x, w = (
        v.astype("int32") - (0 if z is None else quant_values(z, 4, axis).astype("int32"))
        for v, z, axis in ((x, zx, 1), (w, zw, outputs))
    )
    plain: Any = Op.get("relax.nn.conv2d")
    sums: np.ndarray = plain.numpy(x, w, **attrs, out_layout="NCHW", out_dtype=None)
    if 0 in sums.shape[2:]:
        where = f"the data {x.shape}, padded {attrs['padding']}"
        raise VMValueError(f"the window of {w.shape} does not fit {where}")
    return sums


def _to_layout(sums: np.ndarray, layout: str) -> np.ndarray:
    return np.transpose(sums, ["NCHW".index(c) for c in layout])


def _conv_integer_numpy(
    data: Any, weight: Any, zx: Any = None, zw: Any = None, **attrs: Any
) -> Any:
    return _to_layout(_np_conv(data, weight, zx, zw, attrs), attrs["data_layout"])


def _conv_integer_lower(builder: LowerBuilder, call: Call) -> Expr:
    attrs = dict(call.attrs)
    x, w, *points = call.args
    zeros, which = needed(*points)

    def compute(x: te.Tensor, w: te.Tensor, *zeros: te.Tensor) -> te.Tensor:
        zx, zw = (dict(zip(which, zeros)).get(k) for k in (0, 1))
        sums = _conv_te(x, w, zx, zw, attrs)
        layout = attrs["data_layout"]
        return sums if layout == "NCHW" else _in_layout(sums, layout, lambda v, c: v)

    return call_te(builder, call, compute, x, w, *zeros)


@op(
    "conv2d_integer", _conv_integer_numpy, _conv_integer_lower, missing("its operands are integers")
)
def conv2d_integer(
    data: Expr,
    weight: Expr,
    data_zero_point: Expr | None = None,
    weight_zero_point: Expr | None = None,
    *,
    strides: int | tuple[int, ...] = (1, 1),
    padding: int | tuple[int, ...] = (0, 0),
    dilation: int | tuple[int, ...] = (1, 1),
    groups: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
) -> StructInfo:
    """2-D convolution of (data - data_zero_point) with (weight - weight_zero_point) in int32; both
    are int8 or uint8.

    data               [n, c, h, w] in the order of data_layout, which is the result's too
    weight             [o, c // groups, kh, kw] in the order of kernel_layout
    data_zero_point    a scalar of data's dtype: what padding holds
    weight_zero_point  of weight's dtype: a scalar or one for each output channel
    padding            (top, left, bottom, right), (vertical, horizontal) or one number
    """
    attrs = {
        "strides": strides,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
        "data_layout": data_layout,
        "kernel_layout": kernel_layout,
    }
    info = _conv_info(data, weight, _INT32, attrs)
    x, w = tensor(data, "data"), tensor(weight, "weight")
    if data_zero_point is not None:
        quant_info(data_zero_point, "data_zero_point", INTEGER)
        same_as(data_zero_point, x, "data_zero_point", "data")
    if weight_zero_point is not None:
        outputs = w.dims[kernel_layout.index("O")]
        quant_info(weight_zero_point, "weight_zero_point", INTEGER, outputs, "the output channels")
        same_as(weight_zero_point, w, "weight_zero_point", "weight")
    return info


def _qlinear_conv_numpy(
    data: Any,
    data_scale: Any,
    data_zero_point: Any,
    weight: Any,
    weight_scale: Any,
    weight_zero_point: Any,
    y_scale: Any,
    y_zero_point: Any,
    bias: Any = None,
    **attrs: Any,
) -> Any:
    total = _np_conv(data, weight, data_zero_point, weight_zero_point, attrs)
    if bias is not None:
        total = total + np.asarray(bias).reshape(1, -1, 1, 1)
    sx, sy = (np.asarray(s).reshape(()).astype("float32") for s in (data_scale, y_scale))
    factor = sx * quant_values(weight_scale, 4, 1).astype("float32") / sy
    zero = np.asarray(y_zero_point)
    value = np.asarray(total.astype("float32") * factor)
    return _to_layout(np_stored(value, zero.reshape(()), zero.dtype), attrs["data_layout"])


def _qlinear_conv_lower(builder: LowerBuilder, call: Call) -> Expr:
    x, sx, zx, w, sw, zw, sy, zy, *bias = call.args
    attrs = dict(call.attrs)
    zeros, which = needed(zx, zw)

    def compute(x: Any, sx: Any, w: Any, sw: Any, sy: Any, zy: Any, *rest: Any) -> Any:
        zx, zw = (dict(zip(which, rest)).get(k) for k in (0, 1))
        bias = rest[len(which) :]
        sums = _conv_te(x, w, zx, zw, attrs)

        def value(v: PrimExpr, c: PrimExpr) -> PrimExpr:
            total = v + bias[0](c) if bias else v
            scales = cast("float32", quant_at(sx, None)) * cast("float32", quant_at(sw, c))
            factor = scales / cast("float32", quant_at(sy, None))
            return to_stored(cast("float32", total) * factor, quant_at(zy, None), zy.dtype)

        return _in_layout(sums, attrs["data_layout"], value)

    return call_te(builder, call, compute, x, sx, w, sw, sy, zy, *zeros, *bias)


@op("qlinear_conv2d", _qlinear_conv_numpy, _qlinear_conv_lower, _ROUNDS)
def qlinear_conv2d(
    data: Expr,
    data_scale: Expr,
    data_zero_point: Expr,
    weight: Expr,
    weight_scale: Expr,
    weight_zero_point: Expr,
    y_scale: Expr,
    y_zero_point: Expr,
    bias: Expr | None = None,
    *,
    strides: int | tuple[int, ...] = (1, 1),
    padding: int | tuple[int, ...] = (0, 0),
    dilation: int | tuple[int, ...] = (1, 1),
    groups: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
) -> StructInfo:
    """conv2d_integer, plus `bias` (int32 [o]), requantised to the dtype of `y_zero_point` (ONNX's
    QLinearConv).

    Scales and zero points are scalars; those of `weight` may have one element for each output
    channel.
    """
    attrs = {
        "strides": strides,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
        "data_layout": data_layout,
        "kernel_layout": kernel_layout,
    }
    zero = quant_info(y_zero_point, "y_zero_point", INTEGER)
    one_of(zero.dtype, BYTES, "y_zero_point")
    result = _conv_info(data, weight, zero.dtype, attrs)
    x, w = tensor(data, "data"), tensor(weight, "weight")
    outputs = w.dims[kernel_layout.index("O")]
    quant_info(data_scale, "data_scale", FLOAT)
    quant_info(data_zero_point, "data_zero_point", INTEGER)
    same_as(data_zero_point, x, "data_zero_point", "data")
    quant_info(weight_scale, "weight_scale", FLOAT, outputs, "the output channels")
    quant_info(weight_zero_point, "weight_zero_point", INTEGER, outputs, "the output channels")
    same_as(weight_zero_point, w, "weight_zero_point", "weight")
    quant_info(y_scale, "y_scale", FLOAT)
    if bias is not None:
        info = tensor(bias, "bias", INTEGER, ndim=1)
        one_of(info.dtype, ("int32",), "bias")
        want_equal(info.dims[0], outputs, "bias: wanted {b} elements, got {a}")
    return result
