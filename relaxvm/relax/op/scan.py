"""Running sums and products: cumsum, cumprod. One pass over the axis; 16-bit floats accumulate in
float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...base import DataType, StructInfoError
from ...base import dtype as as_dtype
from ...ir import Add, Mul, PrimExpr, cast, const
from ...tir import Buffer, Stmt, seq
from ..expr import Call
from ..rules import LowerBuilder, Ops
from ..struct_info import Expr, StructInfo, TensorStructInfo
from .infer import ANY, NUMBER, axis_of, dims_product, tensor, tensor_of
from .linalg import accumulator
from .loops import call_loops, for_each, load, store
from .meaning import convert, value_dtype
from .record import op

ZERO, ONE = const(0, "int64"), const(1, "int64")


def _meaning(f: Any, start: int) -> Callable[..., Any]:
    def run(data: Any, *, axis: Any = None, dtype: Any = None, exclusive: bool = False) -> Any:
        x = np.asarray(data)
        out = value_dtype(dtype) if dtype else x.dtype
        if axis is None:
            x, axis = x.reshape(-1), 0
        kinds = (x.dtype, out)
        floats = [d for d in kinds if d.kind == "f"]
        wide = out
        if floats:
            wide = np.dtype("float64" if any(d.itemsize == 8 for d in floats) else "float32")
        # Elements take the result's dtype before they are combined if that is an integer.
        x = x.astype(wide) if out.kind == "f" else convert(x, as_dtype(str(out)))
        sums = f.accumulate(x, axis=axis, dtype=x.dtype)
        if exclusive and sums.shape[axis]:
            first = np.full_like(np.take(sums, [0], axis), start)
            sums = np.concatenate([first, np.delete(sums, -1, axis)], axis)
        return sums.astype(out)

    return run


def _lower(combine: Callable[[PrimExpr, PrimExpr], PrimExpr], start: int) -> Callable[..., Expr]:
    def lower(builder: LowerBuilder, call: Call) -> Expr:
        (x,) = call.args
        info: Any = x.struct_info
        dtype = tensor_of(call).dtype
        wide = accumulator([info.dtype], dtype) if dtype.is_float else dtype
        axis = call.attrs["axis"]
        exclusive = call.attrs["exclusive"]
        axis = None if axis is None else axis_of(axis, info.ndim)

        def fill(source: Buffer, *, out: list[Buffer], scratch: list[Buffer]) -> Stmt:
            (result,), (total,) = out, scratch
            scanned = list(range(info.ndim)) if axis is None else [axis]
            rest = [k for k in range(info.ndim) if k not in scanned]
            here = load(total, ZERO)

            def step(outer: tuple[PrimExpr, ...], inner: tuple[PrimExpr, ...]) -> Stmt:
                place: list[Any] = [None] * info.ndim
                for k, i in zip((*rest, *scanned), (*outer, *inner)):
                    place[k] = i
                to = place
                if axis is None:
                    flat: PrimExpr = ZERO
                    for k, i in zip(scanned, inner):
                        flat = flat * source.shape[k] + i
                    to = [flat]
                # Integers take the result's dtype first, as numpy has it.
                add = store(total, combine(here, cast(wide, load(source, *place))), ZERO)
                put = store(result, cast(dtype, here), *to)
                return seq(put, add) if exclusive else seq(add, put)

            def row(*outer: PrimExpr) -> Stmt:
                extents = [source.shape[k] for k in scanned]
                reset = store(total, const(start, wide), ZERO)
                return seq(reset, for_each(extents, lambda *inner: step(outer, inner), "k"))

            return for_each([source.shape[k] for k in rest], row)

        return call_loops(builder, call, fill, x, scratch=[((ONE,), wide)])

    return lower


def _info(data: Expr, axis: int | None, dtype: Any) -> StructInfo:
    info = tensor(data, "data", ANY if dtype else NUMBER)
    out = as_dtype(dtype) if dtype else info.dtype
    if dtype and not (out.is_float or out.is_int):
        raise StructInfoError(f"dtype: wanted a number's dtype, got {out}")
    if axis is not None:
        axis_of(axis, info.ndim)
        return info if out is info.dtype else info.replace(dtype=out)
    return TensorStructInfo((dims_product(info.dims),), out, info.vdevice)


def _cumsum_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Expr]:
    x: Any = call.args[0]
    axis = call.attrs["axis"]
    along = 0 if axis is None else axis
    g = ops.flip(gy, axis=along)
    g = ops.cumsum(g, axis=along, exclusive=call.attrs["exclusive"])
    g = ops.flip(g, axis=along)
    info = tensor_of(x)
    if axis is None:
        g = ops.reshape(g, info.shape if info.shape is not None else ops.shape_of(x))
    if tensor_of(g).dtype is not info.dtype:
        g = ops.astype(g, info.dtype)
    return (g,)


def _cumprod_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Expr]:
    x: Any = call.args[0]
    axis, info = call.attrs["axis"], x.struct_info
    g: Any = gy
    flat = ops.flatten(x) if axis is None else x
    if tensor_of(g).dtype is not info.dtype:
        flat = ops.astype(flat, g.struct_info.dtype)
    grad = ops.grad.cumprod_backward(
        g, flat, axis=0 if axis is None else axis, exclusive=call.attrs["exclusive"]
    )
    if axis is None:
        grad = ops.reshape(grad, info.shape if info.shape is not None else ops.shape_of(x))
    if tensor_of(g).dtype is not info.dtype:
        grad = ops.astype(grad, info.dtype)
    return (grad,)


@op("cumsum", _meaning(np.add, 0), _lower(Add, 0), _cumsum_grad)
def cumsum(
    data: Expr,
    axis: int | None = None,
    dtype: str | DataType | None = None,
    exclusive: bool = False,
) -> StructInfo:
    """Running sums along `axis`; None: of the flattened tensor.

    dtype      of the result (default: that of data); integers are summed in it and wrap
    exclusive  each sum without its own element: it starts with 0
    """
    return _info(data, axis, dtype)


@op("cumprod", _meaning(np.multiply, 1), _lower(Mul, 1), _cumprod_grad)
def cumprod(
    data: Expr,
    axis: int | None = None,
    dtype: str | DataType | None = None,
    exclusive: bool = False,
) -> StructInfo:
    """Running products along `axis`; None: of the flattened tensor.

    dtype      of the result (default: that of data); integers are multiplied in it and wrap
    exclusive  each product without its own element: it starts with 1
    """
    return _info(data, axis, dtype)
