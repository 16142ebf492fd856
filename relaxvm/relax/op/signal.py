"""Signals: dft, stft, mel_weight_matrix. Complex numbers are pairs of floats in the last axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base import DataType, StructInfoError
from ...ir import EQ, Or, PrimExpr, cast, const
from ...runtime import library_linalg as library
from ..expr import Call, ExternFunc, PrimValue, Tuple
from ..expr import const as constant
from ..rules import LowerBuilder, Ops
from ..struct_info import Expr, ShapeExpr, StructInfo, TensorStructInfo
from .call import call_dps_packed
from .compound import compound
from .infer import FLOAT, NUMBER, axis_of, check_kind, known_sizes, shape_argument, shaped, tensor
from .names import ops as all_ops
from .record import Shape, missing, op
from .sizes import simplified, want_true

# -- dft -------------------------------------------------------------------------------------------


def _length(info: Any, axis: int, length: Expr | None, attrs: Any) -> PrimExpr:
    """How many numbers the whole transform has."""
    if length is not None:
        sizes = shape_argument(length, "length").values
        if len(sizes) != 1:
            raise StructInfoError(f"length: wanted one number, got {length}")
        return sizes[0]
    size: PrimExpr = info.dims[axis]
    return simplified((size - 1) * 2) if attrs["inverse"] and attrs["onesided"] else size


def _axis(axis: Any, ndim: int) -> int:
    number = axis_of(axis, ndim)
    if number == ndim - 1:
        raise StructInfoError("axis: the last one holds real and imaginary parts")
    return number


def _dft_numpy(data: np.ndarray, length: Any = None, **attrs: Any) -> np.ndarray:
    axis = attrs["axis"] % data.ndim
    count = data.shape[axis] if length is None else int(length[0])
    if length is None and attrs["inverse"] and attrs["onesided"]:
        count = 2 * (count - 1)
    return library.dft_values(data, axis, count, attrs["inverse"], attrs["onesided"])


def _dft_lower(builder: LowerBuilder, call: Call) -> Expr:
    data, *length = call.args
    info, attrs = tensor(data, "data"), call.attrs
    axis = axis_of(attrs["axis"], info.ndim)
    count = _length(info, axis, length[0] if length else None, attrs)
    flags = (const(int(attrs[a]), "int64") for a in ("inverse", "onesided"))
    numbers = const(axis, "int64"), cast("int64", count), *flags
    args = Tuple((data, *map(PrimValue, numbers)))
    return call_dps_packed(ExternFunc("vm.library.dft"), args, call.struct_info, span=call.span)


def _dft_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    """The adjoint: the transform in the other direction, with the other factor."""
    data, *length = call.args
    info, dims = tensor(data, "data"), known_sizes(data)
    inverse, onesided = call.attrs["inverse"], call.attrs["onesided"]
    axis = axis_of(call.attrs["axis"], info.ndim)
    count = _length(info, axis, length[0] if length else None, call.attrs)
    size = ops.full((), PrimValue(cast(info.dtype, count)), info.dtype)
    whole = ShapeExpr([count])
    if not inverse:
        # What is missing of a half is filled with zeros.
        g = ops.multiply(ops.signal.dft(gy, whole, axis=axis, inverse=True), size)
    else:
        g = ops.divide(ops.signal.dft(gy, whole, axis=axis, onesided=onesided), size)
        if onesided:
            half = known_sizes(g)[axis]
            # The first, and the middle one of an even number, stand once in the whole.
            k, total = ops.arange(half), ops.full((), PrimValue(count), "int64")
            once = ops.logical_or(
                ops.equal(k, constant(0, "int64")),
                ops.equal(ops.multiply(k, constant(2, "int64")), total),
            )
            weights = ops.where(once, constant(1, info.dtype), constant(2, info.dtype))
            shape: list[Any] = [1] * info.ndim
            shape[axis] = half
            g = ops.multiply(g, ops.reshape(weights, ShapeExpr(shape)))
    parts = known_sizes(g)
    g = _resized(ops, g, axis, dims[axis])
    g = _resized(ops, g, info.ndim - 1, dims[-1]) if parts[-1] is not dims[-1] else g
    return g, *(None for _ in length)


def _resized(ops: Ops, x: Expr, axis: int, size: PrimExpr) -> Any:
    """`x` cut or filled with zeros behind, to `size` along `axis`."""
    dims = [*known_sizes(x)]
    have, dims[axis] = dims[axis], size
    if have is size:
        return x
    zeros = ops.zeros(ShapeExpr(dims), tensor(x, "x").dtype)
    return ops.strided_slice(
        ops.concat([x, zeros], axis=axis), axes=[axis], begin=[0], end=[size], assume_inbound=True
    )


@op(
    "signal.dft",
    _dft_numpy,
    _dft_lower,
    _dft_grad,
    layout=missing("its last axis is real and imaginary parts"),
)
def dft(
    data: Expr,
    length: Shape | None = None,
    axis: int = -2,
    inverse: bool = False,
    onesided: bool = False,
) -> StructInfo:
    """The discrete Fourier transform along `axis`, as ONNX's DFT has it.

    data      [..., 1] of real numbers, or [..., 2] of real and imaginary parts
    length    (m,): data is cut or filled with zeros to m numbers; None: as many as there are
    inverse   the transform back, divided by m
    onesided  only the first m // 2 + 1 results, which say all of a real signal; with `inverse`,
              data are these, and the result [..., 1] is real
    """
    info = tensor(data, "data", FLOAT)
    if info.ndim < 2:
        raise StructInfoError(f"data: wanted 2 or more dimensions, got {info.ndim}")
    axis = _axis(axis, info.ndim)
    text = "data: wanted 1 or 2 numbers in the last axis, got {n}"
    last, one, two = info.dims[-1], const(1, "int64"), const(2, "int64")
    want_true(Or(EQ(last, one), EQ(last, two)), text, n=last)
    count = _length(info, axis, length, {"inverse": inverse, "onesided": onesided})
    want_true(count >= one, "length: wanted 1 or more, got {n}", n=count)
    dims = [*info.dims[:-1], 1 if inverse and onesided else 2]
    dims[axis] = count // 2 + 1 if onesided and not inverse else count
    return shaped(info, dims)


# -- stft ------------------------------------------------------------------------------------------

_EXPRESSION = missing("that of its expression is taken where it is legalised first")


@compound("signal.stft", _EXPRESSION, missing("its axes have fixed meanings"))
def stft(
    data: Expr,
    window: Expr | None = None,
    frame_step: int = 1,
    frame_length: int | None = None,
    onesided: bool = True,
) -> Expr:
    """The Fourier transforms of frames of a signal, as ONNX's STFT has them.

    data      [batch, length, 1 or 2]     window  [frame_length]: what each frame is multiplied by
    returns   [batch, frames, bins, 2], frames = (length - frame_length) // frame_step + 1
    onesided  only the first frame_length // 2 + 1 bins
    Raises StructInfoError if neither window nor frame_length is given, and for a step below 1.
    """
    info = tensor(data, "data", FLOAT, 3)
    sizes = () if window is None else known_sizes(window, "window")
    if len(sizes) != (window is not None) or not (sizes or frame_length):
        raise StructInfoError("wanted a vector as window, or frame_length")
    width: PrimExpr = sizes[0] if sizes else const(frame_length, "int64")
    whole = width if frame_length is None else const(frame_length, "int64")
    if type(frame_step) is not int or frame_step < 1:
        raise StructInfoError(f"frame_step: wanted 1 or more, got {frame_step}")
    (batch, length, parts), step = known_sizes(data), frame_step
    text = "a frame of {whole} is longer than data, of {n}"
    want_true(length >= whole, text, whole=whole, n=length)
    frames = simplified((length - whole) // step + 1)
    begins = all_ops.expand_dims(all_ops.arange(const(0, "int64"), frames * step, step), 1)
    places = all_ops.add(begins, all_ops.expand_dims(all_ops.arange(width), 0))
    taken = all_ops.take(data, all_ops.reshape(places, ShapeExpr([frames * width])), axis=1)
    x = all_ops.reshape(taken, ShapeExpr([batch, frames, width, parts]))
    if window is not None:
        x = all_ops.multiply(x, all_ops.expand_dims(all_ops.astype(window, info.dtype), 1))
    return all_ops.signal.dft(x, ShapeExpr([whole]), axis=2, onesided=onesided)


# -- mel_weight_matrix -----------------------------------------------------------------------------


def _mel_numpy(
    *, num_mel_bins: int, dft_length: int, sample_rate: int, lower: float, upper: float, dtype: Any
) -> np.ndarray:
    def mel(hertz: Any) -> Any:
        return 2595.0 * np.log10(1.0 + hertz / 700.0)

    # The edges of the triangles: each begins at the middle of the one before.
    steps = np.arange(num_mel_bins + 2) * ((mel(upper) - mel(lower)) / (num_mel_bins + 2))
    hertz = 700.0 * (10.0 ** ((steps + mel(lower)) / 2595.0) - 1.0)
    edges = ((dft_length + 1) * hertz // sample_rate).astype("int64")
    bins = np.arange(dft_length // 2 + 1)[:, None]
    low, middle, high = edges[:-2], edges[1:-1], edges[2:]
    with np.errstate(divide="ignore", invalid="ignore"):
        rising = np.where(low == middle, bins == middle, (bins - low) / (middle - low))
        falling = np.where(high == middle, 0.0, (high - bins) / (high - middle))
    rises, falls = (bins >= low) & (bins <= middle), (bins >= middle) & (bins < high)
    return np.where(falls, falling, np.where(rises, rising, 0.0)).astype(str(dtype))


@op(
    "signal.mel_weight_matrix",
    numpy=_mel_numpy,
    lower=lambda builder, call: constant(_mel_numpy(**dict(call.attrs)), call.attrs["dtype"]),
    grad=missing("it has no arguments"),
    layout=missing("it has no arguments"),
)
def mel_weight_matrix(
    num_mel_bins: int,
    dft_length: int,
    sample_rate: int,
    lower: float,
    upper: float,
    dtype: DataType = DataType("float32"),
) -> StructInfo:
    """What takes a linear spectrum [..., dft_length // 2 + 1] to the mel scale, by a product:
    [dft_length // 2 + 1, num_mel_bins], overlapping triangles between `lower` and `upper` Hz, as
    ONNX's MelWeightMatrix has them.

    Raises StructInfoError if a size is less than 1, or an edge beyond half the sample rate.
    """
    if min(num_mel_bins, dft_length, sample_rate) < 1 or max(num_mel_bins, dft_length) >= 2**31:
        raise StructInfoError(
            "wanted num_mel_bins, dft_length and sample_rate from 1 to 2**31 - 1, got "
            f"{num_mel_bins}, {dft_length} and {sample_rate}"
        )
    if not 0 <= lower < upper <= sample_rate / 2:
        raise StructInfoError(
            f"wanted 0 <= lower < upper <= sample_rate / 2, got {lower}, {upper} and {sample_rate}"
        )
    check_kind(dtype, "dtype", NUMBER)
    return TensorStructInfo((dft_length // 2 + 1, num_mel_bins), dtype)
