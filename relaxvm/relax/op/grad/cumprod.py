"""The backward pass of cumprod.

Without division, so that it is right where elements are 0: with E_j the product of what stands
before j, the gradient is E_j * R_j, and R_j = gy_j + x_(j+1) * R_(j+1) is one pass from the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ....ir import PrimExpr, cast, const
from ....tir import Buffer, Stmt, seq
from ...expr import Call
from ...rules import LowerBuilder
from ...struct_info import Expr, StructInfo
from ..infer import FLOAT, axis_of, same_dtype, tensor
from ..loops import call_loops, for_each, load, store
from ..lower import wide_dtype
from ..record import missing, op
from .shapes import want_shape

ZERO, ONE = const(0, "int64"), const(1, "int64")


def _numpy(output_grad: Any, x: Any, *, axis: int = 0, exclusive: bool = False) -> Any:
    x = np.asarray(x)
    wide = np.float32 if x.dtype.itemsize == 2 else np.float64
    rows = np.moveaxis(x.astype(wide), axis, 0)
    g = np.moveaxis(np.asarray(output_grad).astype(wide), axis, 0)
    grads, before, rest = np.empty_like(rows), np.ones(rows.shape[1:], wide), 0.0
    for k in range(len(rows)):
        grads[k] = before
        before = before * rows[k]
    for k in reversed(range(len(rows))):
        # `rest` is R of the element before in the exclusive form, which does not hold its own.
        rest = rest if exclusive else g[k] + rest
        grads[k] *= rest
        rest = g[k] + rows[k] * rest if exclusive else rows[k] * rest
    return np.moveaxis(grads, 0, axis).astype(x.dtype)


def _lower(builder: LowerBuilder, call: Call) -> Expr:
    g, x = call.args
    info: Any = x.struct_info
    exclusive = call.attrs["exclusive"]
    along = axis_of(call.attrs["axis"], info.ndim)
    wide = wide_dtype(info.dtype)

    def fill(g: Buffer, x: Buffer, *, out: list[Buffer], scratch: list[Buffer]) -> Stmt:
        (result,), (before, products) = out, scratch
        size = x.shape[along]
        here = load(before, ZERO)

        def row(*outer: PrimExpr) -> Stmt:
            def place(k: PrimExpr) -> list[PrimExpr]:
                return [*outer[:along], k, *outer[along:]]

            def forward(k: PrimExpr) -> Stmt:
                value = cast(wide, load(x, *place(k)))
                return seq(store(products, here, k), store(before, here * value, ZERO))

            def backward(step: PrimExpr) -> Stmt:
                k = size - 1 - step
                value, gy = (cast(wide, load(b, *place(k))) for b in (x, g))
                own = [store(before, here + gy, ZERO)]
                put = store(result, cast(info.dtype, load(products, k) * here), *place(k))
                after = here * value + gy if exclusive else here * value
                return seq(*([] if exclusive else own), put, store(before, after, ZERO))

            return seq(
                store(before, const(1, wide), ZERO),
                for_each([size], forward, "k"),
                store(before, const(0, wide), ZERO),
                for_each([size], backward, "b"),
            )

        return for_each([d for n, d in enumerate(x.shape) if n != along], row)

    scratch = [((ONE,), wide), ((info.dims[along],), wide)]
    return call_loops(builder, call, fill, g, x, scratch=scratch)


@op("grad.cumprod_backward", _numpy, _lower, missing("second derivatives are not taken"))
def cumprod_backward(
    output_grad: Expr, x: Expr, axis: int = 0, exclusive: bool = False
) -> StructInfo:
    """The gradient of ``cumprod(x, axis, exclusive=exclusive)`` with respect to `x`, given that of
    its result; right also where elements are 0.
    """
    g, info = tensor(output_grad, "output_grad", FLOAT), tensor(x, "x", FLOAT)
    same_dtype((g, info), ("output_grad", "x"))
    axis_of(axis, info.ndim)
    want_shape(g, info.dims, "output_grad")
    return info
