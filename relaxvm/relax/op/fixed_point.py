"""Multiplication by a real number in integers, as gemmlowp and TVM have it.

    scale = multiplier * 2 ** (shift - 31),  2 ** 30 <= multiplier < 2 ** 31
    x * scale ~ (x * multiplier + 2 ** (30 - shift)) >> (31 - shift)

The formula is that of Jacob et al., "Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference" (arXiv 1712.05877), section 2.2. Products are kept exactly and
rounded once, and results saturate where TVM's wrap.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import te, tir
from ...base import DataType, StructInfoError
from ...ir import And, PrimExpr, Select, cast, const, is_const
from ..expr import Call, Constant
from ..rules import LowerBuilder
from ..struct_info import Expr, StructInfo, TensorStructInfo, TupleStructInfo
from .infer import FLOAT, INTEGER, axis_of, dtype_of, tensor
from .lower import call_te, te_lower
from .quant_params import STORED, needed, one_of, quant_at, quant_info, quant_values
from .record import missing, op
from .sizes import ONE, want_equal

ROUNDINGS = {"None": "UPWARD", "UPWARD": "UPWARD", "TONEAREST": "TONEAREST"}
_ROUNDS = missing("rounds to integers")
_BY_PLACE = missing("scales go along an axis that is counted")
# Shifts beyond these give what these give: nothing is left, or all is beyond int32 and more.
_LEAST, _MOST = -33, 34
_WIDE = 1 << 34


def rounding_of(rounding: str) -> str:
    """The rounding that an attribute names. Raises StructInfoError."""
    if rounding not in ROUNDINGS:
        raise StructInfoError(f"rounding: wanted UPWARD or TONEAREST, got {rounding!r}")
    return ROUNDINGS[rounding]


# -- multiplier and shift --------------------------------------------------------------------------


def _multiplier_numpy(input_scale: Any, output_scale: Any) -> tuple[np.ndarray, ...]:
    with np.errstate(all="ignore"):
        ratio = np.asarray(input_scale, "float64") / np.asarray(output_scale, "float64")
    fits = np.isfinite(ratio) & (ratio > 0)
    part, shift = np.frexp(np.where(fits, ratio, 0.0))
    multiplier = np.floor(part * 2.0**31 + 0.5).astype("int64")
    over = multiplier == 1 << 31
    pair = np.where(over, multiplier >> 1, multiplier), np.clip(shift + over, _LEAST, _MOST)
    return tuple(np.asarray(p).astype("int32") for p in pair)


def _multiplier_te(si: te.Tensor, so: te.Tensor) -> list[te.Tensor]:
    def parts(*index: PrimExpr) -> list[PrimExpr]:
        i = index[0] if index else None
        ratio = cast("float64", quant_at(si, i)) / cast("float64", quant_at(so, i))
        # The parts of a double: sign, 11 bits of exponent, 52 of the significand.
        bits = tir.reinterpret("int64", ratio)
        fits = And(bits > const(0, "int64"), bits < const(0x7FF << 52, "int64"))
        significand = (bits & ((1 << 52) - 1)) + (1 << 52)
        multiplier = (significand + (1 << 21)) >> 22
        over = multiplier >> 31
        shift = tir.max(tir.min((bits >> 52) - 1022 + over, const(_MOST, "int64")), _LEAST)
        zero = const(0, "int64")
        return [cast("int32", Select(fits, p, zero)) for p in (multiplier >> over, shift)]

    longest = max((si, so), key=lambda x: (x.ndim, not all(is_const(d, 1) for d in x.shape)))
    return [
        te.compute(longest.shape, lambda *index: parts(*index)[0], "multiplier"),
        te.compute(longest.shape, lambda *index: parts(*index)[1], "shift"),
    ]


@op("fixed_point_multiplier", _multiplier_numpy, te_lower(_multiplier_te), _ROUNDS, _BY_PLACE)
def fixed_point_multiplier(input_scale: Expr, output_scale: Expr) -> StructInfo:
    """multiplier and shift of input_scale / output_scale: two int32 scalars, or vectors if one of
    the scales is. The ratio is taken in float64, its significand rounded half up to 31 bits.

    A ratio that is not positive and finite has the multiplier 0.
    """
    infos = tensor(input_scale, "input_scale", FLOAT), tensor(output_scale, "output_scale", FLOAT)
    for info, name in zip(infos, ("input_scale", "output_scale")):
        if info.ndim > 1:
            raise StructInfoError(
                f"{name}: wanted a scalar or a vector, got {info.ndim} dimensions"
            )
    one, two = ([d for d in info.dims if d is not ONE] for info in infos)
    if one and two:
        want_equal(one[0], two[0], "input_scale has {a} elements, output_scale {b}")
    longest = one or two or max((list(i.dims) for i in infos), key=len)
    return TupleStructInfo([TensorStructInfo(longest, DataType("int32"))] * 2)


# -- to another scale ------------------------------------------------------------------------------


def _rescale_numpy(
    data: Any,
    input_zero_point: Any,
    multiplier: Any,
    shift: Any,
    output_zero_point: Any,
    *,
    axis: int = -1,
    rounding: str = "UPWARD",
    out_dtype: Any = "int8",
) -> np.ndarray:
    x = np.asarray(data)
    axis = axis % max(x.ndim, 1)
    numbers = (input_zero_point, multiplier, shift, output_zero_point)
    z, multiplier, shift, zo = (quant_values(p, x.ndim, axis).astype("int64") for p in numbers)
    product = (x.astype("int64") - z) * multiplier
    right, left = np.maximum(31 - shift, 1), np.maximum(shift - 31, 0)
    away = (product < 0) & (rounding_of(rounding) == "TONEAREST")
    down = (((product - away) >> (right - 1)) + 1) >> 1
    up = np.clip(product, -_WIDE, _WIDE) << left
    limits = np.iinfo(np.dtype(str(out_dtype)))
    moved = np.where(shift < 31, down, up) + zo
    return np.clip(moved, limits.min, limits.max).astype(limits.dtype)


def _rescale_lower(builder: LowerBuilder, call: Call) -> Expr:
    x, z, multiplier, shift, zo = call.args
    ndim = tensor(x, "data").ndim
    axis = axis_of(call.attrs["axis"], ndim) if ndim else None
    zeros, which = needed(z, zo)
    # Constant scales mostly get less.
    shrinks = isinstance(shift, Constant) and bool((shift.data.numpy() < 31).all())
    nearest = rounding_of(call.attrs["rounding"]) == "TONEAREST"
    out = str(DataType(call.attrs["out_dtype"]))
    return call_te(
        builder, call, _rescale_te, x, multiplier, shift, *zeros,
        which=which, axis=axis, nearest=nearest, shrinks=shrinks, out=out,
    )  # fmt: skip


def _rescale_te(
    x: te.Tensor, multiplier: te.Tensor, shift: te.Tensor, *zeros: te.Tensor,
    which: tuple[int, ...], axis: int | None, nearest: bool, shrinks: bool, out: str,
) -> te.Tensor:  # fmt: skip
    z, zo = (dict(zip(which, zeros)).get(k) for k in (0, 1))
    to, zero = DataType(out), const(0, "int64")

    def value(*i: PrimExpr) -> PrimExpr:
        here = None if axis is None else i[axis]
        distance = _wide_distance(x(*i), None if z is None else quant_at(z, here))
        product = distance * cast("int64", quant_at(multiplier, here))
        right = 31 - cast("int64", quant_at(shift, here))
        away = product - cast("int64", product < zero) if nearest else product
        moved = ((away >> (tir.max(right, 1) - 1)) + 1) >> 1
        if not shrinks:
            kept = tir.max(tir.min(product, const(_WIDE, "int64")), -_WIDE)
            moved = Select(right > zero, moved, kept << tir.max(-right, 0))
        if zo is not None:
            moved = moved + cast("int64", quant_at(zo, here))
        low, high = const(to.min_value, "int64"), const(to.max_value, "int64")
        return cast(to, tir.max(tir.min(moved, high), low))

    return te.compute(x.shape, value, "rescaled")


def _wide_distance(x: PrimExpr, z: PrimExpr | None) -> PrimExpr:
    """x - z in int64; machines have few instructions for that, so in int32 where it fits."""
    if z is None:
        return cast("int64", x)
    short = max(x.dtype.bits, z.dtype.bits) <= 16
    wide = "int32" if short else "int64"
    return cast("int64", cast(wide, x) - cast(wide, z))


@op("fixed_point_rescale", _rescale_numpy, _rescale_lower, _ROUNDS, _BY_PLACE)
def fixed_point_rescale(
    data: Expr,
    input_zero_point: Expr,
    multiplier: Expr,
    shift: Expr,
    output_zero_point: Expr,
    axis: int = -1,
    rounding: str = "UPWARD",
    out_dtype: str = "int8",
) -> StructInfo:
    """clip(round((data - input_zero_point) * multiplier * 2 ** (shift - 31)) + output_zero_point)
    in `out_dtype`, with what `fixed_point_multiplier` gives.

    data      int8, uint8, int16, uint16 or int32; the other arguments are integers: scalars, or
              vectors along `axis`
    rounding  of halves: "UPWARD" to the greater number, "TONEAREST" away from zero
    """
    out = dtype_of(out_dtype, "out_dtype")
    one_of(out, STORED, "out_dtype")
    rounding_of(rounding)
    info = tensor(data, "data", INTEGER)
    one_of(info.dtype, STORED, "data")
    along = info.dims[axis_of(axis, info.ndim)] if info.ndim else None
    for x, name in (
        (input_zero_point, "input_zero_point"),
        (multiplier, "multiplier"),
        (shift, "shift"),
        (output_zero_point, "output_zero_point"),
    ):
        quant_info(x, name, INTEGER, along, f"axis {axis}")
    return info.replace(dtype=out)
