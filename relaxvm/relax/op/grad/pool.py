"""The backward passes of nn.max_pool2d and nn.avg_pool2d."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .... import te
from ....base import StructInfoError
from ....ir.expr import And, Max, PrimExpr, Select, cast, const
from ...expr import Call
from ...struct_info import Expr, StructInfo
from ..infer import FLOAT, same_dtype, tensor
from ..loops import require_equal
from ..lower import call_te
from ..nn.window import padding_of, simple, spread, window_count
from ..record import missing, op
from ..search import arg_reducer
from ..statistical import wide_dtype
from .shapes import fits

__all__ = [
    "avg_pool2d_backward",
    "max_pool2d_backward",
]

_SECOND = missing("second derivatives are not taken")
_LAYOUT = missing("the layout is an attribute already")
ZERO, ONE = const(0, "int64"), const(1, "int64")


class _Pool:
    """The attributes of a pool, and its windows: axes are H and W."""

    def __init__(self, attrs: Any) -> None:
        self.pool = spread(attrs["pool_size"], 2, "pool_size")
        self.strides = spread(attrs["strides"], 2, "strides")
        self.padding = padding_of(attrs["padding"], 2)
        self.dilation = spread(attrs["dilation"], 2, "dilation")
        self.ceil, self.all = attrs["ceil_mode"], attrs["count_include_pad"]
        self.layout = attrs["layout"]
        if sorted(self.layout) != sorted("NCHW"):
            raise StructInfoError(
                f"layout: wanted the letters of NCHW in some order, got {self.layout!r}"
            )
        if attrs["out_layout"] not in (None, "", self.layout):
            raise StructInfoError(
                f"out_layout: wanted that of layout, {self.layout!r}, got {attrs['out_layout']!r}"
            )
        self.order = ["NCHW".index(c) for c in self.layout]

    def counts(self, dims: Any) -> list[Any]:
        """How many windows there are, H and W, for data of dimensions `dims` in NCHW."""
        return [
            simple(
                window_count(
                    dims[2 + k],
                    self.pool[k],
                    self.strides[k],
                    self.padding[k],
                    self.padding[2 + k],
                    self.dilation[k],
                    self.ceil,
                )
            )
            for k in range(2)
        ]

    def nchw(self, dims: Any) -> list[Any]:
        return [dims[self.layout.index(c)] for c in "NCHW"]

    def of_layout(self, values: Any) -> list[Any]:
        """Four things in the order NCHW, in the order of the layout."""
        return [values[k] for k in self.order]

    def reader(self, x: te.Tensor) -> Callable[..., PrimExpr]:
        return lambda *at: x(*self.of_layout(at))

    def place(self, k: int, window: PrimExpr, offset: PrimExpr) -> PrimExpr:
        """Where on axis k the element `offset` of a window is read; padding lies outside."""
        return window * self.strides[k] + offset * self.dilation[k] - self.padding[k]

    def windows(self, k: int, position: PrimExpr, offset: PrimExpr, count: PrimExpr) -> Any:
        """The window whose element `offset` is at `position` on axis k, and whether it exists."""
        start = position + self.padding[k] - offset * self.dilation[k]
        step = const(self.strides[k], start.dtype)
        window = te.floordiv(start, step)
        there = And(
            And(
                start >= const(0, start.dtype),
                te.floormod(start, step).equal(const(0, start.dtype)),
            ),
            window < count,
        )
        return window, there


def _pool_info(output_grad: Expr, data: Expr, attrs: dict[str, Any]) -> StructInfo:
    pool = _Pool(attrs)
    x, g = tensor(data, "data", FLOAT, ndim=4), tensor(output_grad, "output_grad", FLOAT, ndim=4)
    same_dtype((g, x), ("output_grad", "data"))
    if x.dims is not None:
        dims = pool.nchw(x.dims)
        wanted = pool.of_layout([*dims[:2], *pool.counts(dims)])
        fits(g, wanted, "output_grad")
    return x


def _pool_lower(compute: Callable[..., te.Tensor]) -> Callable[[Any, Call], Expr]:
    def lower(builder: Any, call: Call) -> Expr:
        g, x = call.args
        pool = _Pool(call.attrs)
        dims = pool.nchw(x.struct_info.dims)  # type: ignore[attr-defined]
        wanted = pool.of_layout([*dims[:2], *pool.counts(dims)])
        require_equal(builder, list(zip(g.struct_info.dims, wanted)))  # type: ignore[attr-defined]
        return call_te(builder, call, lambda g, x: compute(pool, g, x), g, x)

    return lower


def _backward_te(
    pool: _Pool, g: te.Tensor, x: te.Tensor, share: Callable[..., PrimExpr], name: str
) -> te.Tensor:
    """At each element of x, the sum over the windows that hold it of ``share(n, c, window row,
    window column, r, s)``.
    """
    wide = wide_dtype(x.dtype)
    counts = pool.nchw(g.shape)[2:]
    offsets = [te.reduce_axis((0, const(p, "int64")), n) for p, n in zip(pool.pool, "rs")]

    def value(*index: PrimExpr) -> PrimExpr:
        n, c, h, w = pool.nchw(index)
        r, s = (o.var for o in offsets)
        i, row = pool.windows(0, h, r, counts[0])
        j, column = pool.windows(1, w, s, counts[1])
        held = te.if_then_else(And(row, column), share(n, c, i, j, r, s), const(0, wide))
        return te.sum(held, axis=offsets)

    made: te.Tensor = te.compute(x.shape, value, name)
    if made.dtype is x.dtype:
        return made
    return te.compute(x.shape, lambda *i: cast(x.dtype, made(*i)), "rounded")


def _max_te(pool: _Pool, g: te.Tensor, x: te.Tensor) -> te.Tensor:
    wide = wide_dtype(x.dtype)
    read, given = pool.reader(x), pool.reader(g)
    height, width = pool.nchw(x.shape)[2:]
    offsets = [te.reduce_axis((0, const(p, "int64")), n) for p, n in zip(pool.pool, "rs")]
    reducer = arg_reducer(lambda b, a: b > a, -1)

    def winner(n: PrimExpr, c: PrimExpr, i: PrimExpr, j: PrimExpr) -> Any:
        r, s = (o.var for o in offsets)
        y, z = pool.place(0, i, r), pool.place(1, j, s)
        inside = And(And(y >= 0, y < height), And(z >= 0, z < width))
        element = te.if_then_else(inside, read(n, c, y, z), const(0, x.dtype))
        return reducer((r * pool.pool[1] + s, element), axis=offsets, where=inside)

    first = te.compute(tuple(pool.nchw(g.shape)), winner, "winner")[0]

    def share(n: Any, c: Any, i: Any, j: Any, r: Any, s: Any) -> PrimExpr:
        mine = first(n, c, i, j).equal(r * pool.pool[1] + s)
        return Select(mine, cast(wide, given(n, c, i, j)), const(0, wide))

    return _backward_te(pool, g, x, share, "max_pool2d_backward")


def _avg_te(pool: _Pool, g: te.Tensor, x: te.Tensor) -> te.Tensor:
    wide = wide_dtype(x.dtype)
    given = pool.reader(g)
    sizes, counts = pool.nchw(x.shape)[2:], pool.nchw(g.shape)[2:]

    def inside(k: int) -> te.Tensor:
        """How many elements of each window are divided by, along axis k."""
        o = te.reduce_axis((0, const(pool.pool[k], "int64")), "o")

        def counted(i: PrimExpr) -> PrimExpr:
            at = pool.place(k, i, o.var)
            return te.sum(Select(And(at >= 0, at < sizes[k]), ONE, ZERO), axis=o)

        return te.compute((counts[k],), counted, "inside")

    rows, columns = (None, None) if pool.all else (inside(0), inside(1))

    def share(n: Any, c: Any, i: Any, j: Any, r: Any, s: Any) -> PrimExpr:
        divisor: PrimExpr = const(pool.pool[0] * pool.pool[1], "int64")
        if rows is not None and columns is not None:
            divisor = Max(rows(i) * columns(j), ONE)
        return cast(wide, given(n, c, i, j)) / cast(wide, divisor)

    return _backward_te(pool, g, x, share, "avg_pool2d_backward")


def _pool_numpy(average: bool) -> Callable[..., Any]:
    def meaning(output_grad: Any, data: Any, **attrs: Any) -> Any:
        pool = _Pool(attrs)
        kind = np.asarray(data).dtype
        wide = np.float32 if kind == np.float16 else np.float64
        to_nchw = [pool.layout.index(c) for c in "NCHW"]
        x = np.transpose(np.asarray(data), to_nchw)
        g = np.transpose(np.asarray(output_grad), to_nchw).astype(wide)
        made = np.zeros(x.shape, wide)
        for n, c, i, j in np.ndindex(*g.shape):
            held = []
            for r, s in np.ndindex(*pool.pool):
                y = i * pool.strides[0] + r * pool.dilation[0] - pool.padding[0]
                z = j * pool.strides[1] + s * pool.dilation[1] - pool.padding[1]
                if 0 <= y < x.shape[2] and 0 <= z < x.shape[3]:
                    held.append((y, z))
            if average:
                for y, z in held:
                    made[n, c, y, z] += g[n, c, i, j] / (
                        pool.pool[0] * pool.pool[1] if pool.all else len(held)
                    )
            elif held:
                y, z = held[int(np.argmax([x[n, c, y, z] for y, z in held]))]
                made[n, c, y, z] += g[n, c, i, j]
        return np.transpose(made, pool.order).astype(kind)

    return meaning


@op(
    "grad.max_pool2d_backward",
    numpy=_pool_numpy(False),
    lower=_pool_lower(_max_te),
    grad=_SECOND,
    layout=_LAYOUT,
)
def max_pool2d_backward(
    output_grad: Expr,
    data: Expr,
    pool_size: int | tuple[int, ...] = (1, 1),
    strides: int | tuple[int, ...] = (1, 1),
    padding: int | tuple[int, ...] = (0, 0, 0, 0),
    dilation: int | tuple[int, ...] = (1, 1),
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    layout: str = "NCHW",
    out_layout: str | None = None,
) -> StructInfo:
    """The gradient of nn.max_pool2d with respect to `data`, given that of its result: to the first
    greatest element.

    Attributes are those of the pool; layouts have the letters of NCHW in any order.
    """
    return _pool_info(output_grad, data, {**locals()})


@op(
    "grad.avg_pool2d_backward",
    numpy=_pool_numpy(True),
    lower=_pool_lower(_avg_te),
    grad=_SECOND,
    layout=_LAYOUT,
)
def avg_pool2d_backward(
    output_grad: Expr,
    data: Expr,
    pool_size: int | tuple[int, ...] = (1, 1),
    strides: int | tuple[int, ...] = (1, 1),
    padding: int | tuple[int, ...] = (0, 0, 0, 0),
    dilation: int | tuple[int, ...] = (1, 1),
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    layout: str = "NCHW",
    out_layout: str | None = None,
) -> StructInfo:
    """The gradient of nn.avg_pool2d with respect to `data`, given that of its result.

    Attributes are those of the pool; layouts have the letters of NCHW in any order.
    """
    return _pool_info(output_grad, data, {**locals()})
