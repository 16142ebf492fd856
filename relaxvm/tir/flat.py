"""Where the elements of a buffer lie: strides, extents and indices of one dimension, as int64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..base import DataType
from ..ir import Add, Broadcast, Mul, PrimExpr, Ramp, Sub, binary, cast, const, is_const

if TYPE_CHECKING:
    from .stmt import Buffer

_INT64 = DataType("int64")


def strides_of(buffer: Buffer) -> tuple[PrimExpr, ...]:
    """The strides of a buffer in elements, as int64: its own, or those of C order."""
    if buffer.strides:
        return tuple(cast(_INT64, s) for s in buffer.strides)
    strides: list[PrimExpr] = []
    step: PrimExpr = const(1, _INT64)
    for extent in reversed(buffer.shape):
        strides.append(step)
        step = binary(Mul, cast(_INT64, extent), step)
    return tuple(reversed(strides))


def flat_extent(buffer: Buffer) -> PrimExpr:
    """How many elements lie between `data` and the end of the buffer, as int64."""
    if not buffer.strides:
        extent: PrimExpr = const(1, _INT64)
        for e in buffer.shape:
            extent = binary(Mul, extent, cast(_INT64, e))
    else:
        last: PrimExpr = const(0, _INT64)
        for e, stride in zip(buffer.shape, strides_of(buffer)):
            last = binary(
                Add, last, binary(Mul, binary(Sub, cast(_INT64, e), const(1, _INT64)), stride)
            )
        extent = binary(Add, last, const(1, _INT64))
    return binary(Add, extent, cast(_INT64, buffer.elem_offset))


def flat_buffer(buffer: Buffer) -> Buffer:
    """The one-dimensional buffer of scalars over the same memory."""
    if len(buffer.shape) == 1 and is_plain(buffer) and buffer.dtype.lanes == 1:
        return buffer
    lanes = buffer.dtype.lanes
    extent = binary(Mul, flat_extent(buffer), const(lanes, _INT64))
    return buffer.replace(
        dtype=buffer.dtype.element,
        shape=(extent,),
        strides=(),
        elem_offset=const(0, _INT64),
        axis_separators=(),
    )


def flat_index(
    buffer: Buffer,
    indices: tuple[PrimExpr, ...],
    widen: Any = None,
    strides: tuple[PrimExpr, ...] | None = None,
) -> PrimExpr:
    """The element of `data` that an access means, as int64 (a vector if an index is one).

    widen    how an index becomes int64; default: a cast
    strides  `strides_of(buffer)`, if known already
    """
    lanes = max([i.dtype.lanes for i in indices], default=1)
    if lanes == 1 and len(indices) == 1 and is_plain(buffer):
        return _wide(indices[0], widen)
    total: PrimExpr = cast(_INT64, buffer.elem_offset)
    vector: PrimExpr | None = None
    for index, stride in zip(indices, strides_of(buffer) if strides is None else strides):
        if isinstance(index, Ramp):
            base, step = _wide(index.base, widen), _wide(index.stride, widen)
            total = binary(Add, total, binary(Mul, base, stride))
            part: PrimExpr = Ramp(const(0, _INT64), binary(Mul, step, stride), lanes)
        elif isinstance(index, Broadcast):
            total = binary(Add, total, binary(Mul, _wide(index.value, widen), stride))
            continue
        elif index.dtype.lanes > 1:
            part = binary(Mul, cast(_INT64.with_lanes(lanes), index), Broadcast(stride, lanes))
        else:
            total = binary(Add, total, binary(Mul, _wide(index, widen), stride))
            continue
        vector = part if vector is None else _add_vectors(vector, part)
    if lanes == 1:
        return total
    if vector is None:
        return Broadcast(total, lanes)
    return _add_vectors(Broadcast(total, lanes), vector)


def is_plain(buffer: Buffer) -> bool:
    """Whether a buffer starts at `data` and lies in C order."""
    offset = buffer.elem_offset
    return is_const(offset, 0) and not buffer.strides


def _wide(index: PrimExpr, widen: Any) -> PrimExpr:
    widened: PrimExpr = cast(_INT64, index) if widen is None else widen(index)
    return widened


def _add_vectors(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    if isinstance(a, Broadcast) and isinstance(b, Ramp):
        return Ramp(binary(Add, a.value, b.base), b.stride, b.lanes)
    if isinstance(a, Ramp) and isinstance(b, Ramp):
        return Ramp(binary(Add, a.base, b.base), binary(Add, a.stride, b.stride), a.lanes)
    return Add(a, b)
