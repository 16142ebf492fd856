"""The backward pass of take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .... import te
from ....base import StructInfoError, VMValueError
from ....ir import And, PrimExpr, Select, cast, const
from ....tir import Buffer, Stmt, seq
from ...expr import Call
from ...rules import LowerBuilder, Ops
from ...struct_info import Expr, StructInfo
from ..infer import FLOAT, INTEGER, axis_of, dims_product, same_dtype, tensor
from ..loops import assert_that, call_sums, for_each, load, store
from ..record import missing, op
from ..sizes import KnownTensor
from .shapes import want_shape

_NUMBERED = missing("axes are numbered by position")
ZERO, ONE = const(0, "int64"), const(1, "int64")


_OUTSIDE = "take_backward: an index is out of bounds"


def _take_numpy(output_grad: Any, x: Any, indices: Any, *, axis: int | None = None) -> Any:
    x, i = np.asarray(x), np.asarray(indices).astype("int64")
    size = x.size if axis is None else x.shape[axis]
    if np.any((i < -size) | (i >= size)):
        raise VMValueError(_OUTSIDE)
    wide = np.float32 if x.dtype == np.float16 else np.float64
    along = 0 if axis is None else axis % x.ndim
    grad = np.zeros((x.size,) if axis is None else x.shape, wide)
    rows = np.moveaxis(grad, along, 0)
    g = np.asarray(output_grad).astype(wide)
    g = np.moveaxis(g, range(along, along + i.ndim), range(i.ndim))
    np.add.at(rows, i % max(size, 1), g)
    return grad.reshape(x.shape).astype(x.dtype)


def _take_dims(x: KnownTensor, indices: KnownTensor, axis: int | None) -> Sequence[PrimExpr]:
    """The dimensions of the result of take."""
    if axis is None:
        return indices.dims
    along = axis_of(axis, x.ndim)
    return (*x.dims[:along], *indices.dims, *x.dims[along + 1 :])


def _take_lower(builder: LowerBuilder, call: Call) -> Expr:
    g, x, indices = call.args
    info, count = tensor(x, "x"), tensor(indices, "indices").ndim
    axis = call.attrs["axis"]
    along = 0 if axis is None else axis_of(axis, info.ndim)

    def fill(g: Buffer, i: Buffer, *, out: list[Buffer]) -> Stmt:
        (total,) = out
        dims = total.shape
        size = dims_product(dims) if axis is None else dims[along]

        def add(*k: PrimExpr) -> Stmt:
            raw = cast("int64", load(i, *k[along : along + count]))
            index: PrimExpr = Select(raw < ZERO, raw + size, raw)
            check = assert_that(And(index >= ZERO, index < size), _OUTSIDE)
            to = [*k[:along], index, *k[along + count :]]
            if axis is None:
                to, rest = [], index
                for d in reversed(dims):
                    to.insert(0, te.floormod(rest, d))
                    rest = te.floordiv(rest, d)
            value = load(total, *to) + cast(total.dtype, load(g, *k))
            return seq(check, store(total, value, *to))

        return for_each(g.shape, add, "k")

    return call_sums(builder, call, fill, g, indices)


def _take_backward_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    return ops.take(gy, call.args[2], axis=call.attrs["axis"]), None, None


@op("grad.take_backward", _take_numpy, _take_lower, _take_backward_grad, _NUMBERED)
def take_backward(output_grad: Expr, x: Expr, indices: Expr, axis: int | None = None) -> StructInfo:
    """The gradient of take with respect to `x`, given that of its result: each index adds its part.

    Negative indices count from the end. The program stops with an error at an index out of bounds.
    """
    g, info = tensor(output_grad, "output_grad", FLOAT), tensor(x, "x", FLOAT)
    i = tensor(indices, "indices", INTEGER)
    same_dtype((g, info), ("output_grad", "x"))
    if axis is not None:
        axis_of(axis, info.ndim)
    wanted = _take_dims(info, i, axis)
    if g.ndim != len(wanted):
        raise StructInfoError(f"output_grad: wanted {len(wanted)} dimensions, got {g.ndim}")
    want_shape(g, wanted, "output_grad")
    return info
