"""Quantised tensors: real = (stored - zero_point) * scale.

    quantize     stored = clip(round(real / scale) + zero_point)          rounding ties to even
    dequantize   real = (stored - zero_point) * scale
    requantize   from one scale and zero point to another
    matmul_integer, conv2d_integer      sums of (a - a_zero_point) * (b - b_zero_point), in int32
    qlinear_matmul, qlinear_conv2d      the same, requantised

A scale or zero point is a scalar (or has one element), or a vector along an axis. Scaling is done in float32 (in float64 beside
float64), so results are those of ONNX's operators. Sums in int32 wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import te, tir
from ...base import DataType, StructInfoError
from ...base import dtype as as_dtype
from ...ir.expr import And, IntImm, Max, Min, PrimExpr, cast, const
from ..derive import plain_text, prove_dims
from ..expr import Call
from ..struct_info import Expr, ShapeExpr, StructInfo, TensorStructInfo
from .infer import FLOAT, INTEGER, axis_of, tensor
from .kernel import same_dims
from .linalg import matmul_info, matmul_te, product_operands
from .lower import call_te
from .meaning import value_dtype
from .record import missing, op

__all__ = [
    "conv2d_integer",
    "dequantize",
    "matmul_integer",
    "qlinear_conv2d",
    "qlinear_matmul",
    "quantize",
    "requantize",
]

_ROUNDS = missing("rounds to integers")
_AXIS = missing("its axis is numbered by position")
_LAYOUT = missing("the layout is an attribute already")
_INT32 = DataType("int32")
_STORED = ("int8", "uint8", "int16", "uint16", "int32")
_BYTES = ("int8", "uint8")


# -- parameters: scalars, or vectors along an axis ----------------------------------------------------------------------


def _one_of(dtype: DataType, names: Sequence[str], what: str) -> None:
    if dtype.kind != "void" and str(dtype) not in names:
        raise StructInfoError(f"{what}: wanted {', '.join(names)}, got {dtype}")


def _parameter(
    x: Expr, name: str, takes: Any, along: PrimExpr | None = None, axis_word: str = ""
) -> TensorStructInfo:
    """The struct info of a scale or zero point: a scalar, or a vector as long as the axis `along` (None: unknown)."""
    info = tensor(x, name, takes)
    if info.ndim not in (-1, 0, 1):
        raise StructInfoError(f"{name}: wanted a scalar or a vector, got {info.ndim} dimensions")
    if info.ndim == 1 and info.dims is not None and not _is_one(info.dims[0]):
        if axis_word == "":
            raise StructInfoError(
                f"{name}: wanted a scalar, got a vector of {plain_text(info.dims[0])}"
            )
        if along is not None and prove_dims(info.dims[0], along) is False:
            raise StructInfoError(
                f"{name}: wanted a scalar or a vector of {plain_text(along)}, the size of {axis_word}; "
                f"got {plain_text(info.dims[0])} elements"
            )
    return info


def _is_one(dim: PrimExpr) -> bool:
    return isinstance(dim, IntImm) and dim.value == 1


def _checked(builder: Any, x: Expr, along: PrimExpr | None) -> Expr:
    """A parameter whose length the program has checked; `along` None: it is a scalar."""
    info: Any = x.struct_info
    if info.ndim == 0 or _is_one(info.dims[0]):
        return x
    return same_dims(builder, x, {0: const(1, "int64") if along is None else along})


def _at(x: te.Tensor, i: PrimExpr | None) -> PrimExpr:
    """The parameter for index `i` of its axis."""
    if x.ndim == 0:
        return x()
    if i is None or _is_one(x.shape[0]):
        return x(const(0, "int64"))
    return x(i)


def _np_at(x: Any, ndim: int, axis: int) -> np.ndarray:
    """A parameter shaped to broadcast against a tensor of `ndim` dimensions."""
    x = np.asarray(x)
    if x.size == 1 and x.ndim <= 1:
        return x.reshape(())
    return x.reshape([-1 if k == axis else 1 for k in range(ndim)]) if x.ndim else x


# -- rounding to stored values ------------------------------------------------------------------------------------------


def _real_dtype(*dtypes: Any) -> DataType:
    return DataType("float64" if any(str(d) == "float64" for d in dtypes) else "float32")


def _stored(value: PrimExpr, zero_point: PrimExpr, out: DataType) -> PrimExpr:
    """`value` rounded, shifted by the zero point and clipped to `out`. NaN gives the zero of a cast, 0, clipped."""
    wide = DataType("float64") if out.bits == 32 or value.dtype.bits == 64 else DataType("float32")
    shifted = cast(wide, tir.round(value)) + cast(wide, zero_point)
    low, high = const(float(out.min_value), wide), const(float(out.max_value), wide)
    return cast(out, Max(Min(shifted, high), low))


def _np_stored(value: np.ndarray, zero_point: Any, out: Any) -> np.ndarray:
    dtype = np.dtype(str(out))
    exact = dtype.itemsize == 4 or value.dtype == np.float64
    wide = np.dtype("float64" if exact else "float32")
    shifted = np.rint(value).astype(wide) + np.asarray(zero_point).astype(wide)
    limits = np.iinfo(dtype)
    clipped = np.clip(shifted, wide.type(limits.min), wide.type(limits.max))
    return np.where(np.isnan(clipped), 0, clipped).astype(dtype)


# -- quantize and dequantize --------------------------------------------------------------------------------------------


def _out(out_dtype: Any, names: Sequence[str]) -> DataType:
    made = as_dtype(out_dtype)
    _one_of(made, names, "out_dtype")
    return made


def _axis_dim(info: TensorStructInfo, axis: int) -> tuple[int, PrimExpr | None]:
    if info.ndim == 0:
        return 0, None
    at = axis_of(axis, info.ndim)
    return at, info.dims[at] if info.dims is not None and info.ndim != -1 else None


def _quantize_numpy(
    data: Any, scale: Any, zero_point: Any, *, axis: int = -1, out_dtype: Any = "int8"
) -> Any:
    x = np.asarray(data)
    real = np.dtype(str(_real_dtype(x.dtype, np.asarray(scale).dtype)))
    axis = axis % max(x.ndim, 1)
    s, z = (_np_at(p, x.ndim, axis) for p in (scale, zero_point))
    return _np_stored(np.asarray(x.astype(real) / s.astype(real)), z, out_dtype)


def _dequantize_numpy(
    data: Any, scale: Any, zero_point: Any, *, axis: int = -1, out_dtype: Any = "float32"
) -> Any:
    x = np.asarray(data)
    out = value_dtype(out_dtype)
    real = np.dtype(str(_real_dtype(out, np.asarray(scale).dtype)))
    axis = axis % max(x.ndim, 1)
    s, z = (_np_at(p, x.ndim, axis) for p in (scale, zero_point))
    distance = x.astype("int64") - z.astype("int64")
    return np.asarray(distance.astype(real) * s.astype(real)).astype(out)


def _elementwise_lower(
    formula: Callable[..., PrimExpr], parameters: int
) -> Callable[[Any, Call], Expr]:
    """A legalisation element by element, with `parameters` arguments that are scalars or vectors along `axis`."""

    def compute(x: te.Tensor, *rest: te.Tensor, axis: int | None, out: str) -> te.Tensor:
        def value(*i: PrimExpr) -> PrimExpr:
            here = None if axis is None else i[axis]
            return formula(x(*i), *(_at(p, here) for p in rest), out=DataType(out))

        return te.compute(x.shape, value, "quantized")  # type: ignore[no-any-return]

    def lower(builder: Any, call: Call) -> Expr:
        x, *rest = call.args
        info: Any = x.struct_info
        axis, along = _axis_dim(info, call.attrs["axis"])
        checked = [_checked(builder, p, along) for p in rest[:parameters]]
        out = str(call.struct_info.dtype)  # type: ignore[attr-defined]
        return call_te(
            builder, call, compute, x, *checked, axis=axis if info.ndim else None, out=out
        )

    return lower


def _quantize_formula(x: PrimExpr, s: PrimExpr, z: PrimExpr, *, out: DataType) -> PrimExpr:
    real = _real_dtype(x.dtype, s.dtype)
    return _stored(cast(real, x) / cast(real, s), z, out)


def _dequantize_formula(x: PrimExpr, s: PrimExpr, z: PrimExpr, *, out: DataType) -> PrimExpr:
    real = _real_dtype(out, s.dtype)
    return cast(out, cast(real, cast("int64", x) - cast("int64", z)) * cast(real, s))


@op(
    "quantize",
    numpy=_quantize_numpy,
    lower=_elementwise_lower(_quantize_formula, 2),
    grad=_ROUNDS,
    layout=_AXIS,
)
def quantize(
    data: Expr, scale: Expr, zero_point: Expr, axis: int = -1, out_dtype: str = "int8"
) -> StructInfo:
    """clip(round(data / scale) + zero_point) in `out_dtype` (int8, uint8, int16, uint16 or int32); ties to even.

    scale       floating; a scalar or a vector along `axis`       zero_point  an integer, likewise
    """
    out = _out(out_dtype, _STORED)
    info = tensor(data, "data", FLOAT)
    _, along = _axis_dim(info, axis)
    _parameter(scale, "scale", FLOAT, along, f"axis {axis}")
    _parameter(zero_point, "zero_point", INTEGER, along, f"axis {axis}")
    return info.replace(dtype=out)


@op(
    "dequantize",
    numpy=_dequantize_numpy,
    lower=_elementwise_lower(_dequantize_formula, 2),
    grad=missing("data and zero point are integers, and scales are constants"),
    layout=_AXIS,
)
def dequantize(
    data: Expr, scale: Expr, zero_point: Expr, axis: int = -1, out_dtype: str = "float32"
) -> StructInfo:
    """(data - zero_point) * scale in `out_dtype`, a floating dtype; `data` is int8, uint8, int16, uint16 or int32."""
    out = _out(out_dtype, ("float16", "bfloat16", "float32", "float64"))
    info = tensor(data, "data", INTEGER)
    _one_of(info.dtype, _STORED, "data")
    _, along = _axis_dim(info, axis)
    _parameter(scale, "scale", FLOAT, along, f"axis {axis}")
    _parameter(zero_point, "zero_point", INTEGER, along, f"axis {axis}")
    return info.replace(dtype=out)


# -- requantize ---------------------------------------------------------------------------------------------------------


def _requantize_numpy(
    data: Any, input_scale: Any, input_zero_point: Any, output_scale: Any, output_zero_point: Any,
    *, axis: int = -1, out_dtype: Any = "int8",
) -> Any:  # fmt: skip
    x = np.asarray(data)
    axis = axis % max(x.ndim, 1)
    given = (input_scale, input_zero_point, output_scale, output_zero_point)
    s, z, so, zo = (_np_at(p, x.ndim, axis) for p in given)
    distance = (x.astype("int64") - z.astype("int64")).astype("float32")
    factor = s.astype("float32") / so.astype("float32")
    return _np_stored(np.asarray(distance * factor), zo, out_dtype)


def _requantize_formula(
    x: PrimExpr, s: PrimExpr, z: PrimExpr, so: PrimExpr, zo: PrimExpr, *, out: DataType
) -> PrimExpr:
    distance = cast("float32", cast("int64", x) - cast("int64", z))
    return _stored(distance * (cast("float32", s) / cast("float32", so)), zo, out)


@op(
    "requantize",
    numpy=_requantize_numpy,
    lower=_elementwise_lower(_requantize_formula, 4),
    grad=_ROUNDS,
    layout=_AXIS,
)
def requantize(
    data: Expr,
    input_scale: Expr,
    input_zero_point: Expr,
    output_scale: Expr,
    output_zero_point: Expr,
    axis: int = -1,
    out_dtype: str = "int8",
) -> StructInfo:
    """`data` in another scale: clip(round((data - input_zero_point) * (input_scale / output_scale)) + output_zero_point).

    Scales and zero points are scalars or vectors along `axis`; ties round to even.
    """
    out = _out(out_dtype, _STORED)
    info = tensor(data, "data", INTEGER)
    _one_of(info.dtype, _STORED, "data")
    _, along = _axis_dim(info, axis)
    for x, name, takes in (
        (input_scale, "input_scale", FLOAT),
        (input_zero_point, "input_zero_point", INTEGER),
        (output_scale, "output_scale", FLOAT),
        (output_zero_point, "output_zero_point", INTEGER),
    ):
        _parameter(x, name, takes, along, f"axis {axis}")
    return info.replace(dtype=out)


# -- integer matrix products --------------------------------------------------------------------------------------------


def _distance(value: PrimExpr, zero_point: te.Tensor | None, i: PrimExpr | None) -> PrimExpr:
    wide = cast("int32", value)
    return wide if zero_point is None else wide - cast("int32", _at(zero_point, i))


def _products_te(
    dims: Sequence[PrimExpr], a: te.Tensor, b: te.Tensor, za: te.Tensor | None, zb: te.Tensor | None
) -> te.Tensor:
    def prepare(which: int, value: PrimExpr, at: Sequence[PrimExpr]) -> PrimExpr:
        if which == 0:
            return _distance(value, za, at[-2] if a.ndim > 1 else None)
        return _distance(value, zb, at[-1] if b.ndim > 1 else None)

    return matmul_te(dims, a, b, out_dtype="int32", prepare=prepare)


def _np_products(a: Any, b: Any, za: Any = None, zb: Any = None) -> np.ndarray:
    a, b = np.asarray(a).astype("int32"), np.asarray(b).astype("int32")
    if za is not None:
        a = a - _np_at(za, a.ndim, a.ndim - 2).astype("int32")
    if zb is not None:
        b = b - _np_at(zb, b.ndim, b.ndim - 1).astype("int32")
    return np.asarray(np.matmul(a, b))


def _row(info: TensorStructInfo) -> PrimExpr | None:
    return info.dims[-2] if info.dims is not None and info.ndim > 1 else None


def _column(info: TensorStructInfo) -> PrimExpr | None:
    return info.dims[-1] if info.dims is not None and info.ndim > 1 else None


def _operands(a: Expr, b: Expr) -> tuple[TensorStructInfo, TensorStructInfo]:
    infos = tensor(a, "a", INTEGER), tensor(b, "b", INTEGER)
    for info, name in zip(infos, "ab"):
        _one_of(info.dtype, _BYTES, name)
    return infos


def _same_as(zero_point: Expr, info: TensorStructInfo, name: str, of: str) -> None:
    have = zero_point.struct_info.dtype  # type: ignore[attr-defined]
    if "void" not in (str(have), str(info.dtype)) and have is not info.dtype:
        raise StructInfoError(f"{name}: wanted {info.dtype}, the dtype of {of}; got {have}")


def _rows_word(info: TensorStructInfo, word: str) -> str:
    return "" if info.ndim == 1 else word


def _matmul_integer_lower(builder: Any, call: Call) -> Expr:
    a, b, *zeros = call.args
    one: Any = a.struct_info
    two: Any = b.struct_info
    dims, b = product_operands(builder, call, a, b)
    checked = [_checked(builder, z, d) for z, d in zip(zeros, (_row(one), _column(two)))]

    def compute(dims: Any, a: te.Tensor, b: te.Tensor, *zeros: te.Tensor) -> te.Tensor:
        return _products_te(dims, a, b, *(*zeros, None, None)[:2])

    return call_te(builder, call, compute, ShapeExpr(dims), a, b, *checked)


@op(
    "matmul_integer",
    numpy=_np_products,
    lower=_matmul_integer_lower,
    grad=missing("its operands are integers"),
    layout=missing("a product pairs axes by position"),
)
def matmul_integer(
    a: Expr, b: Expr, a_zero_point: Expr | None = None, b_zero_point: Expr | None = None
) -> StructInfo:
    """Matrix product of (a - a_zero_point) and (b - b_zero_point) in int32; `a` and `b` are int8 or uint8.

    Zero points have their operand's dtype: scalars, or one for each row of `a`, for each column of `b`.
    """
    one, two = _operands(a, b)
    if a_zero_point is not None:
        _parameter(a_zero_point, "a_zero_point", INTEGER, _row(one), _rows_word(one, "the rows of a"))
        _same_as(a_zero_point, one, "a_zero_point", "a")
    if b_zero_point is not None:
        _parameter(
            b_zero_point, "b_zero_point", INTEGER, _column(two), _rows_word(two, "the columns of b")
        )
        _same_as(b_zero_point, two, "b_zero_point", "b")
    return matmul_info(one, two, _INT32, ("a", "b"))


def _qlinear_matmul_numpy(
    a: Any, a_scale: Any, a_zero_point: Any, b: Any, b_scale: Any, b_zero_point: Any, y_scale: Any,
    y_zero_point: Any,
) -> Any:  # fmt: skip
    total = _np_products(a, b, a_zero_point, b_zero_point)
    ndim = total.ndim
    sa = _np_at(a_scale, ndim, ndim - 1 - (np.ndim(b) > 1)).astype("float32")
    sb = _np_at(b_scale, ndim, ndim - 1).astype("float32")
    factor = sa * sb / _np_at(y_scale, 1, 0).astype("float32")
    zero = np.asarray(y_zero_point)
    value = np.asarray(total.astype("float32") * factor)
    return _np_stored(value, zero.reshape(()), zero.dtype)


def _qlinear_matmul_lower(builder: Any, call: Call) -> Expr:
    a, sa, za, b, sb, zb, sy, zy = call.args
    row, column = _row(a.struct_info), _column(b.struct_info)  # type: ignore[arg-type]
    dims, b = product_operands(builder, call, a, b)
    sa, za = (_checked(builder, p, row) for p in (sa, za))
    sb, zb = (_checked(builder, p, column) for p in (sb, zb))
    sy, zy = (_checked(builder, p, None) for p in (sy, zy))
    return call_te(
        builder, call, _qlinear_matmul_te, ShapeExpr(dims), a, sa, za, b, sb, zb, sy, zy
    )


def _qlinear_matmul_te(
    dims: Any, a: te.Tensor, sa: te.Tensor, za: te.Tensor, b: te.Tensor, sb: te.Tensor, zb: te.Tensor,
    sy: te.Tensor, zy: te.Tensor,
) -> te.Tensor:  # fmt: skip
    total = _products_te(dims, a, b, za, zb)

    def value(*i: PrimExpr) -> PrimExpr:
        row = i[len(dims) - 1 - (b.ndim > 1)] if a.ndim > 1 else None
        column = i[-1] if b.ndim > 1 else None
        scales = cast("float32", _at(sa, row)) * cast("float32", _at(sb, column))
        factor = scales / cast("float32", _at(sy, None))
        return _stored(cast("float32", total(*i)) * factor, _at(zy, None), zy.dtype)

    return te.compute(tuple(dims), value, "requantized")  # type: ignore[no-any-return]


@op(
    "qlinear_matmul",
    numpy=_qlinear_matmul_numpy,
    lower=_qlinear_matmul_lower,
    grad=_ROUNDS,
    layout=missing("a product pairs axes by position"),
)
def qlinear_matmul(
    a: Expr,
    a_scale: Expr,
    a_zero_point: Expr,
    b: Expr,
    b_scale: Expr,
    b_zero_point: Expr,
    y_scale: Expr,
    y_zero_point: Expr,
) -> StructInfo:
    """matmul_integer requantised to `y_scale` and `y_zero_point`, in the dtype of the latter (ONNX's QLinearMatMul).

    The parameters of `a` may have one element for each row, those of `b` for each column.
    """
    one, two = _operands(a, b)
    rows, columns = _rows_word(one, "the rows of a"), _rows_word(two, "the columns of b")
    _parameter(a_scale, "a_scale", FLOAT, _row(one), rows)
    _parameter(a_zero_point, "a_zero_point", INTEGER, _row(one), rows)
    _same_as(a_zero_point, one, "a_zero_point", "a")
    _parameter(b_scale, "b_scale", FLOAT, _column(two), columns)
    _parameter(b_zero_point, "b_zero_point", INTEGER, _column(two), columns)
    _same_as(b_zero_point, two, "b_zero_point", "b")
    _parameter(y_scale, "y_scale", FLOAT)
    zero = _parameter(y_zero_point, "y_zero_point", INTEGER)
    _one_of(zero.dtype, _BYTES, "y_zero_point")
    return matmul_info(one, two, zero.dtype, ("a", "b"))


# -- integer convolution ------------------------------------------------------------------------------------------------


def _window(value: Any, name: str, least: int, count: int) -> tuple[int, ...]:
    """`count` integers >= `least`, spelt by one, by two (for four: top and left alike bottom and right) or by all."""
    given = (value,) if isinstance(value, int) else tuple(value)
    if any(isinstance(v, bool) or not isinstance(v, int) or v < least for v in given):
        raise StructInfoError(f"{name}: wanted integers of at least {least}, got {value!r}")
    if len(given) == 1:
        return given * count
    if len(given) == 2 and count == 4:
        return (*given, *given)
    if len(given) != count:
        raise StructInfoError(f"{name}: wanted 1, 2 or {count} integers, got {value!r}")
    return given


def _order(layout: str, letters: str, name: str) -> tuple[int, ...]:
    """Where each of `letters` stands in `layout`."""
    if sorted(layout) != sorted(letters):
        raise StructInfoError(f"{name}: wanted the letters of {letters} in some order, got {layout!r}")
    return tuple(layout.index(c) for c in letters)


def _conv_dims(
    data: Sequence[PrimExpr], weight: Sequence[PrimExpr], attrs: Any
) -> tuple[PrimExpr, ...]:
    """The result's dimensions, in the order NCHW, from data's in NCHW and weight's in OIHW."""
    strides = _window(attrs["strides"], "strides", 1, 2)
    padding = _window(attrs["padding"], "padding", 0, 4)
    dilation = _window(attrs["dilation"], "dilation", 1, 2)
    made = []
    for k in range(2):
        span = (weight[2 + k] - 1) * dilation[k] + 1
        room = data[2 + k] + (padding[k] + padding[2 + k]) - span
        if isinstance(room, IntImm) and room.value < 0:
            raise StructInfoError(
                f"the window of {plain_text(span)} does not fit the padded data, of "
                f"{plain_text(data[2 + k] + (padding[k] + padding[2 + k]))}"
            )
        made.append(te.floordiv(room, const(strides[k], room.dtype)) + 1)
    return (data[0], weight[0], *made)


def _conv_info(data: Expr, weight: Expr, dtype: DataType, attrs: Any) -> TensorStructInfo:
    infos = tensor(data, "data", INTEGER, ndim=4), tensor(weight, "weight", INTEGER, ndim=4)
    for info, name in zip(infos, ("data", "weight")):
        _one_of(info.dtype, _BYTES, name)
    n_order = _order(attrs["data_layout"], "NCHW", "data_layout")
    k_order = _order(attrs["kernel_layout"], "OIHW", "kernel_layout")
    groups = attrs["groups"]
    if groups < 1:
        raise StructInfoError(f"groups: wanted at least 1, got {groups}")
    for name, least, count in (("strides", 1, 2), ("padding", 0, 4), ("dilation", 1, 2)):
        _window(attrs[name], name, least, count)
    x, w = infos
    if x.dims is None or w.dims is None:
        return TensorStructInfo(None, dtype, x.vdevice, 4)
    d = [x.dims[k] for k in n_order]
    k = [w.dims[i] for i in k_order]
    if prove_dims(d[1], k[1] * groups) is False:
        raise StructInfoError(
            f"data has {plain_text(d[1])} channels, weight takes {plain_text(k[1])} in each of "
            f"{groups} groups"
        )
    if isinstance(k[0], IntImm) and k[0].value % groups:
        raise StructInfoError(f"weight: {k[0].value} output channels are not {groups} equal groups")
    made = _conv_dims(d, k, attrs)
    return TensorStructInfo([made["NCHW".index(c)] for c in attrs["data_layout"]], dtype, x.vdevice)


def _conv_te(
    x: te.Tensor, w: te.Tensor, zx: te.Tensor | None, zw: te.Tensor | None, attrs: Any
) -> te.Tensor:
    """The int32 sums, in NCHW."""
    n_order, k_order = (
        _order(attrs["data_layout"], "NCHW", "data_layout"),
        _order(attrs["kernel_layout"], "OIHW", "kernel_layout"),
    )
    strides = _window(attrs["strides"], "strides", 1, 2)
    padding = _window(attrs["padding"], "padding", 0, 4)
    dilation = _window(attrs["dilation"], "dilation", 1, 2)
    d, k = [x.shape[a] for a in n_order], [w.shape[a] for a in k_order]
    dims = _conv_dims(d, k, attrs)
    groups = attrs["groups"]
    each = te.floordiv(k[0], const(groups, k[0].dtype))
    axes = [te.reduce_axis((0, k[i]), name) for i, name in ((1, "c"), (2, "r"), (3, "s"))]

    def value(n: PrimExpr, o: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
        c, r, s = (a.var for a in axes)
        y = i * strides[0] + r * dilation[0] - padding[0]
        z = j * strides[1] + s * dilation[1] - padding[1]
        channel = c if groups == 1 else te.floordiv(o, each) * k[1] + c
        inside = And(And(y >= 0, y < d[2]), And(z >= 0, z < d[3]))
        where = dict(zip("NCHW", (n, channel, y, z)))
        element = x(*(where[letter] for letter in attrs["data_layout"]))
        zero = const(0, "int32")
        left = te.if_then_else(inside, _distance(element, zx, None), zero)
        there = dict(zip("OIHW", (o, c, r, s)))
        right = _distance(w(*(there[letter] for letter in attrs["kernel_layout"])), zw, o)
        return te.sum(left * right, axis=axes)  # type: ignore[no-any-return]

    return te.compute(dims, value, "conv2d")  # type: ignore[no-any-return]


def _in_layout(made: te.Tensor, layout: str, f: Callable[..., PrimExpr]) -> te.Tensor:
    """The tensor of f(value, output channel), `made` being in NCHW, in `layout`."""
    dims = dict(zip("NCHW", made.shape))

    def value(*index: PrimExpr) -> PrimExpr:
        at = dict(zip(layout, index))
        return f(made(*(at[c] for c in "NCHW")), at["C"])

    return te.compute(tuple(dims[c] for c in layout), value, "result")  # type: ignore[no-any-return]


def _np_conv(x: Any, w: Any, zx: Any, zw: Any, attrs: Any) -> np.ndarray:
    """The int32 sums, in NCHW."""
    x = np.transpose(x, _order(attrs["data_layout"], "NCHW", "data_layout")).astype("int32")
    w = np.transpose(w, _order(attrs["kernel_layout"], "OIHW", "kernel_layout")).astype("int32")
    x = x if zx is None else x - _np_at(zx, 4, 1).astype("int32")
    w = w if zw is None else w - _np_at(zw, 4, 0).astype("int32")
    strides = _window(attrs["strides"], "strides", 1, 2)
    top, left, bottom, right = _window(attrs["padding"], "padding", 0, 4)
    dilation = _window(attrs["dilation"], "dilation", 1, 2)
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    groups, (o, c, r, s) = attrs["groups"], w.shape
    rows = (x.shape[2] - (r - 1) * dilation[0] - 1) // strides[0] + 1
    columns = (x.shape[3] - (s - 1) * dilation[1] - 1) // strides[1] + 1
    made = np.zeros((x.shape[0], o, rows, columns), "int32")
    for g in range(groups):
        part = x[:, g * c : (g + 1) * c]
        own = slice(g * (o // groups), (g + 1) * (o // groups))
        for i in range(r):
            for j in range(s):
                y, z = i * dilation[0], j * dilation[1]
                seen = part[:, :, y : y + (rows - 1) * strides[0] + 1 : strides[0]]
                seen = seen[:, :, :, z : z + (columns - 1) * strides[1] + 1 : strides[1]]
                made[:, own] += np.einsum("nchw,oc->nohw", seen, w[own, :, i, j])
    return made


def _to_layout(made: np.ndarray, layout: str) -> np.ndarray:
    return np.transpose(made, ["NCHW".index(c) for c in layout])


def _conv_integer_numpy(data: Any, weight: Any, zx: Any = None, zw: Any = None, **attrs: Any) -> Any:
    return _to_layout(_np_conv(data, weight, zx, zw, attrs), attrs["data_layout"])


def _conv_operands(builder: Any, call: Call, data: Expr, weight: Expr) -> tuple[Expr, PrimExpr]:
    """`data` with its channels checked, and the number of output channels."""
    attrs = call.attrs
    d: Any = data.struct_info
    w: Any = weight.struct_info
    where = _order(attrs["kernel_layout"], "OIHW", "kernel_layout")
    channel = _order(attrs["data_layout"], "NCHW", "data_layout")[1]
    wanted = w.dims[where[1]] * attrs["groups"]
    return same_dims(builder, data, {channel: wanted} if d.dims is not None else {}), w.dims[where[0]]


def _conv_integer_lower(builder: Any, call: Call) -> Expr:
    data, weight, *zeros = call.args
    data, outputs = _conv_operands(builder, call, data, weight)
    checked = [_checked(builder, z, d) for z, d in zip(zeros, (None, outputs))]
    attrs = dict(call.attrs)

    def compute(x: te.Tensor, w: te.Tensor, *zeros: te.Tensor) -> te.Tensor:
        made = _conv_te(x, w, *(*zeros, None, None)[:2], attrs)
        layout = attrs["data_layout"]
        return made if layout == "NCHW" else _in_layout(made, layout, lambda v, c: v)

    return call_te(builder, call, compute, data, weight, *checked)


@op(
    "conv2d_integer",
    numpy=_conv_integer_numpy,
    lower=_conv_integer_lower,
    grad=missing("its operands are integers"),
    layout=_LAYOUT,
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
    """2-D convolution of (data - data_zero_point) with (weight - weight_zero_point) in int32; both are int8 or uint8.

    data               [n, c, h, w] in the order of data_layout, which is the result's too
    weight             [o, c // groups, kh, kw] in the order of kernel_layout
    data_zero_point    a scalar of data's dtype: what padding holds
    weight_zero_point  of weight's dtype: a scalar or one for each output channel
    padding            (top, left, bottom, right), (vertical, horizontal) or one number
    """
    attrs = {
        "strides": strides, "padding": padding, "dilation": dilation, "groups": groups,
        "data_layout": data_layout, "kernel_layout": kernel_layout,
    }  # fmt: skip
    made = _conv_info(data, weight, _INT32, attrs)
    x: Any = data.struct_info
    w: Any = weight.struct_info
    if data_zero_point is not None:
        _parameter(data_zero_point, "data_zero_point", INTEGER)
        _same_as(data_zero_point, x, "data_zero_point", "data")
    if weight_zero_point is not None:
        outputs = w.dims[kernel_layout.index("O")] if w.dims is not None else None
        _parameter(weight_zero_point, "weight_zero_point", INTEGER, outputs, "the output channels")
        _same_as(weight_zero_point, w, "weight_zero_point", "weight")
    return made


def _qlinear_conv_numpy(
    data: Any, data_scale: Any, data_zero_point: Any, weight: Any, weight_scale: Any,
    weight_zero_point: Any, y_scale: Any, y_zero_point: Any, bias: Any = None, **attrs: Any,
) -> Any:  # fmt: skip
    total = _np_conv(data, weight, data_zero_point, weight_zero_point, attrs)
    if bias is not None:
        total = total + np.asarray(bias).reshape(1, -1, 1, 1)
    sx, sy = (np.asarray(s).reshape(()).astype("float32") for s in (data_scale, y_scale))
    factor = sx * _np_at(weight_scale, 4, 1).astype("float32") / sy
    zero = np.asarray(y_zero_point)
    value = np.asarray(total.astype("float32") * factor)
    return _to_layout(_np_stored(value, zero.reshape(()), zero.dtype), attrs["data_layout"])


def _qlinear_conv_lower(builder: Any, call: Call) -> Expr:
    x, sx, zx, w, sw, zw, sy, zy, *bias = call.args
    x, outputs = _conv_operands(builder, call, x, w)
    sx, zx, sy, zy = (_checked(builder, p, None) for p in (sx, zx, sy, zy))
    sw, zw = (_checked(builder, p, outputs) for p in (sw, zw))
    bias = [same_dims(builder, b, {0: outputs}) for b in bias]
    attrs = dict(call.attrs)

    def compute(x: Any, sx: Any, zx: Any, w: Any, sw: Any, zw: Any, sy: Any, zy: Any, *bias: Any) -> Any:
        made = _conv_te(x, w, zx, zw, attrs)

        def value(v: PrimExpr, c: PrimExpr) -> PrimExpr:
            total = v + bias[0](c) if bias else v
            scales = cast("float32", _at(sx, None)) * cast("float32", _at(sw, c))
            factor = scales / cast("float32", _at(sy, None))
            return _stored(cast("float32", total) * factor, _at(zy, None), zy.dtype)

        return _in_layout(made, attrs["data_layout"], value)

    return call_te(builder, call, compute, x, sx, zx, w, sw, zw, sy, zy, *bias)


@op(
    "qlinear_conv2d",
    numpy=_qlinear_conv_numpy,
    lower=_qlinear_conv_lower,
    grad=_ROUNDS,
    layout=_LAYOUT,
)
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
    """conv2d_integer, plus `bias` (int32 [o]), requantised to the dtype of `y_zero_point` (ONNX's QLinearConv).

    Scales and zero points are scalars; those of `weight` may have one element for each output channel.
    """
    attrs = {
        "strides": strides, "padding": padding, "dilation": dilation, "groups": groups,
        "data_layout": data_layout, "kernel_layout": kernel_layout,
    }  # fmt: skip
    zero = _parameter(y_zero_point, "y_zero_point", INTEGER)
    _one_of(zero.dtype, _BYTES, "y_zero_point")
    made = _conv_info(data, weight, zero.dtype, attrs)
    x: Any = data.struct_info
    w: Any = weight.struct_info
    outputs = w.dims[kernel_layout.index("O")] if w.dims is not None else None
    _parameter(data_scale, "data_scale", FLOAT)
    _parameter(data_zero_point, "data_zero_point", INTEGER)
    _same_as(data_zero_point, x, "data_zero_point", "data")
    _parameter(weight_scale, "weight_scale", FLOAT, outputs, "the output channels")
    _parameter(weight_zero_point, "weight_zero_point", INTEGER, outputs, "the output channels")
    _same_as(weight_zero_point, w, "weight_zero_point", "weight")
    _parameter(y_scale, "y_scale", FLOAT)
    if bias is not None:
        info = tensor(bias, "bias", INTEGER, ndim=1)
        _one_of(info.dtype, ("int32",), "bias")
        if info.dims is not None and outputs is not None:
            if prove_dims(info.dims[0], outputs) is False:
                raise StructInfoError(
                    f"bias: wanted {plain_text(outputs)} elements, got {plain_text(info.dims[0])}"
                )
    return made
