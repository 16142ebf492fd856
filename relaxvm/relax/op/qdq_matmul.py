"""Matrix products of quantised tensors: matmul_integer sums in int32, which wraps, and
qlinear_matmul requantises the sums; matmul_nbits takes weights of a few bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import te
from ...base import DataType, StructInfoError
from ...ir import PrimExpr, cast, const
from ..expr import Call
from ..rules import LowerBuilder
from ..struct_info import Expr, ShapeExpr, StructInfo, TensorStructInfo
from .infer import FLOAT, INTEGER, NUMBER, result_sizes, same_dtype, tensor
from .linalg import matmul_info, matmul_te
from .lower import call_te, rounded, wide_dtype
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
from .record import missing, op
from .sizes import KnownTensor, want_equal

_ROUNDS = missing("rounds to integers")
_INT32 = DataType("int32")


def _products_te(
    dims: Sequence[PrimExpr], a: te.Tensor, b: te.Tensor, za: te.Tensor | None, zb: te.Tensor | None
) -> te.Tensor:
    def prepare(which: int, value: PrimExpr, index: Sequence[PrimExpr]) -> PrimExpr:
        if which == 0:
            return distance(value, za, index[-2] if a.ndim > 1 else None)
        return distance(value, zb, index[-1] if b.ndim > 1 else None)

    return matmul_te(dims, a, b, out_dtype="int32", prepare=prepare)


def _np_products(a: Any, b: Any, za: Any = None, zb: Any = None) -> np.ndarray:
    a, b = np.asarray(a).astype("int32"), np.asarray(b).astype("int32")
    if za is not None:
        a = a - quant_values(za, a.ndim, a.ndim - 2).astype("int32")
    if zb is not None:
        b = b - quant_values(zb, b.ndim, b.ndim - 1).astype("int32")
    return np.asarray(np.matmul(a, b))


def _row(info: KnownTensor) -> PrimExpr | None:
    return info.dims[-2] if info.ndim > 1 else None


def _column(info: KnownTensor) -> PrimExpr | None:
    return info.dims[-1] if info.ndim > 1 else None


def _operands(a: Expr, b: Expr) -> tuple[KnownTensor, KnownTensor]:
    infos = tensor(a, "a", INTEGER), tensor(b, "b", INTEGER)
    for info, name in zip(infos, "ab"):
        one_of(info.dtype, BYTES, name)
    return infos


def _matmul_integer_lower(builder: LowerBuilder, call: Call) -> Expr:
    a, b, *points = call.args
    zeros, which = needed(*points)
    dims = ShapeExpr(result_sizes(call))
    return call_te(builder, call, _matmul_integer_te, dims, a, b, *zeros, which=which)


def _matmul_integer_te(
    dims: Any, a: te.Tensor, b: te.Tensor, *zeros: te.Tensor, which: tuple[int, ...]
) -> te.Tensor:
    za, zb = (dict(zip(which, zeros)).get(k) for k in (0, 1))
    return _products_te(dims, a, b, za, zb)


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
    """Matrix product of (a - a_zero_point) and (b - b_zero_point) in int32; `a` and `b` are int8 or
    uint8.

    Zero points have their operand's dtype: scalars, or one for each row of `a`, for each column of
    `b`.
    """
    one, two = _operands(a, b)
    if a_zero_point is not None:
        quant_info(a_zero_point, "a_zero_point", INTEGER, _row(one), "the rows of a")
        same_as(a_zero_point, one, "a_zero_point", "a")
    if b_zero_point is not None:
        quant_info(b_zero_point, "b_zero_point", INTEGER, _column(two), "the columns of b")
        same_as(b_zero_point, two, "b_zero_point", "b")
    return matmul_info(one, two, _INT32, ("a", "b"))


def _qlinear_matmul_numpy(
    a: Any,
    a_scale: Any,
    a_zero_point: Any,
    b: Any,
    b_scale: Any,
    b_zero_point: Any,
    y_scale: Any,
    y_zero_point: Any,
) -> Any:
    total = _np_products(a, b, a_zero_point, b_zero_point)
    ndim = total.ndim
    sa = quant_values(a_scale, ndim, ndim - 1 - (np.ndim(b) > 1)).astype("float32")
    sb = quant_values(b_scale, ndim, ndim - 1).astype("float32")
    factor = sa * sb / quant_values(y_scale, 1, 0).astype("float32")
    zero = np.asarray(y_zero_point)
    value = np.asarray(total.astype("float32") * factor)
    return np_stored(value, zero.reshape(()), zero.dtype)


def _qlinear_matmul_lower(builder: LowerBuilder, call: Call) -> Expr:
    a, sa, za, b, sb, zb, sy, zy = call.args
    zeros, which = needed(za, zb)
    dims = ShapeExpr(result_sizes(call))
    return call_te(
        builder, call, _qlinear_matmul_te, dims, a, sa, b, sb, sy, zy, *zeros, which=which
    )


def _qlinear_matmul_te(
    dims: Any,
    a: te.Tensor,
    sa: te.Tensor,
    b: te.Tensor,
    sb: te.Tensor,
    sy: te.Tensor,
    zy: te.Tensor,
    *zeros: te.Tensor,
    which: tuple[int, ...],
) -> te.Tensor:
    za, zb = (dict(zip(which, zeros)).get(k) for k in (0, 1))
    total = _products_te(dims, a, b, za, zb)

    def value(*i: PrimExpr) -> PrimExpr:
        row = i[len(dims) - 1 - (b.ndim > 1)] if a.ndim > 1 else None
        column = i[-1] if b.ndim > 1 else None
        scales = cast("float32", quant_at(sa, row)) * cast("float32", quant_at(sb, column))
        factor = scales / cast("float32", quant_at(sy, None))
        return to_stored(cast("float32", total(*i)) * factor, quant_at(zy, None), zy.dtype)

    return te.compute(tuple(dims), value, "requantized")


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
    """matmul_integer requantised to `y_scale` and `y_zero_point`, in the dtype of the latter
    (ONNX's QLinearMatMul).

    The parameters of `a` may have one element for each row, those of `b` for each column.
    """
    one, two = _operands(a, b)
    rows, columns = "the rows of a", "the columns of b"
    quant_info(a_scale, "a_scale", FLOAT, _row(one), rows)
    quant_info(a_zero_point, "a_zero_point", INTEGER, _row(one), rows)
    same_as(a_zero_point, one, "a_zero_point", "a")
    quant_info(b_scale, "b_scale", FLOAT, _column(two), columns)
    quant_info(b_zero_point, "b_zero_point", INTEGER, _column(two), columns)
    same_as(b_zero_point, two, "b_zero_point", "b")
    quant_info(y_scale, "y_scale", FLOAT)
    zero = quant_info(y_zero_point, "y_zero_point", INTEGER)
    one_of(zero.dtype, BYTES, "y_zero_point")
    return matmul_info(one, two, zero.dtype, ("a", "b"))


# -- weights of a few bits -------------------------------------------------------------------------


def _nbits_numpy(
    data: Any, weight: Any, scale: Any, zero_point: Any = None, *, bits: int = 4
) -> Any:
    w, x = np.asarray(weight), np.asarray(data)
    wide = np.dtype("float64" if x.dtype == np.float64 else "float32")
    fields = np.stack([w >> shift & (2**bits - 1) for shift in range(0, 8, bits)], 2).astype(wide)
    zero = 2 ** (bits - 1) if zero_point is None else np.asarray(zero_point).astype(wide)
    centred = fields - np.asarray(zero, wide).reshape(
        np.shape(zero)[:1] + (1, 1) + np.shape(zero)[1:]
    )
    real = centred * np.asarray(scale).astype(wide)[:, None, None]
    return np.matmul(x.astype(wide), real.reshape(-1, w.shape[2])).astype(x.dtype)


def _nbits_te(
    x: te.Tensor, w: te.Tensor, scale: te.Tensor, *zero: te.Tensor, bits: int
) -> te.Tensor:
    wide, (blocks, count, columns) = wide_dtype(x.dtype), w.shape
    each, mask = 8 // bits, const(2**bits - 1, "uint8")
    b, i = te.reduce_axis((0, blocks), "b"), te.reduce_axis((0, count), "i")

    def value(*index: PrimExpr) -> PrimExpr:
        *rows, n = index
        byte = w(b.var, i.var, n)
        middle = cast(wide, zero[0](b.var, n)) if zero else const(2.0 ** (bits - 1), wide)
        first = (b.var * count + i.var) * const(each, "int64")
        total = const(0.0, wide)
        # Columns side by side: a row of bytes is read once, for all numbers in it.
        for part in range(each):
            number = byte >> const(bits * part, "uint8") & mask
            other = cast(wide, x(*rows, first + const(part, "int64")))
            total = total + other * (cast(wide, cast("int32", number)) - middle)
        return te.sum(total * cast(wide, scale(b.var, n)), axis=[b, i])

    return rounded(te.compute((*x.shape[:-1], columns), value, "matmul_nbits"), x.dtype)


def _nbits_lower(builder: LowerBuilder, call: Call) -> Expr:
    return call_te(builder, call, _nbits_te, *call.args, bits=call.attrs["bits"])


@op(
    "matmul_nbits",
    numpy=_nbits_numpy,
    lower=_nbits_lower,
    grad=missing("its weights are integers of a few bits"),
    layout=missing("a product pairs axes by position"),
)
def matmul_nbits(
    data: Expr, weight: Expr, scale: Expr, zero_point: Expr | None = None, bits: int = 4
) -> StructInfo:
    """The product of `data` and weights of 2, 4 or 8 bits, (weight - zero_point) * scale by blocks
    of rows: what onnxruntime calls MatMulNBits. Weights are never in memory as floats.

    data        [..., blocks * bytes * 8 // bits]        returns  [..., n]
    weight      uint8 [blocks, bytes, n]: rows of the matrix side by side in a byte, the first in
                its lowest bits
    scale       [blocks, n], of the dtype of `data`
    zero_point  [blocks, n]; None: 2 ** (bits - 1)
    """
    if bits not in (2, 4, 8):
        raise StructInfoError(f"bits: wanted 2, 4 or 8, got {bits}")
    x, w = tensor(data, "data", FLOAT), tensor(weight, "weight", INTEGER, ndim=3)
    one_of(w.dtype, ("uint8",), "weight")
    others = [tensor(scale, "scale", FLOAT, ndim=2)]
    dtype = same_dtype((x, others[0]), ("data", "scale"))
    if zero_point is not None:
        others.append(tensor(zero_point, "zero_point", NUMBER, ndim=2))
    for info, name in zip(others, ("scale", "zero_point")):
        for axis, dim in ((0, w.dims[0]), (1, w.dims[2])):
            text = "{name}: dimension {axis} is {a}, and that of the weights {b}"
            want_equal(info.dims[axis], dim, text, name=name, axis=axis)
    rows = w.dims[0] * w.dims[1] * const(8 // bits, "int64")
    text = "data: its last dimension is {a}, and the weights have {b} rows"
    want_equal(x.dims[-1], rows, text)
    return TensorStructInfo((*x.dims[:-1], w.dims[2]), dtype, x.vdevice)
