"""The backward pass of image.grid_sample."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....ir import GE, LT, And, PrimExpr, cast, const
from ....tir import Buffer, IfThenElse, Stmt, seq
from ...expr import Call
from ...rules import LowerBuilder
from ...struct_info import Expr
from ..image import grid_sample
from ..loops import Names, call_sums, for_each, load, store
from ..nn.layout import layout_of
from ..record import missing, op
from ..sampling import NUMPY, TE, Tap, f64, sample_taps
from .shapes import backward_of

ZERO, ONE = const(0, "int64"), const(1, "int64")


def _numpy(output_grad: Any, data: Any, grid: Any, **attrs: Any) -> tuple[np.ndarray, np.ndarray]:
    lay = layout_of(attrs["layout"], "NCHW", "layout")
    x = np.moveaxis(lay.to_plain(np.asarray(data), "NCHW"), 1, -1).astype("float64")
    g = np.moveaxis(lay.to_plain(np.asarray(output_grad), "NCHW"), 1, -1).astype("float64")
    (n, h, w, _), grid = x.shape, np.asarray(grid)
    rows = sample_taps(grid[..., 1].astype("float64"), np.float64(h), attrs, NUMPY)
    columns = sample_taps(grid[..., 0].astype("float64"), np.float64(w), attrs, NUMPY)
    batch = np.arange(n)[:, None, None]
    of_data, of_grid = np.zeros(x.shape), np.zeros(grid.shape)
    for y, wy, sy in rows if x.size else ():
        for c, wx, sx in columns:
            inside = ((y >= 0) & (y < h) & (c >= 0) & (c < w))[..., None]
            place = batch, np.clip(y, 0, h - 1), np.clip(c, 0, w - 1)
            part = np.where(inside, g, 0.0)
            share = 1.0 if wy is None else (wy * wx)[..., None]
            np.add.at(of_data, place, np.where(inside, part * share, 0.0))
            if sx is not None:
                value = np.sum(np.where(inside, part * x[place], 0.0), -1)
                of_grid[..., 0] += value * (wy * sx)
                of_grid[..., 1] += value * (sy * wx)
    grad = lay.from_plain(np.ascontiguousarray(np.moveaxis(of_data, -1, 1)), "NCHW")
    return grad.astype(np.asarray(data).dtype), of_grid.astype(grid.dtype)


def _named(names: Names, taps: list[Tap]) -> list[Tap]:
    return [Tap(*(v if v is None else names.of(v) for v in tap)) for tap in taps]


def _lower(builder: LowerBuilder, call: Call) -> Expr:
    g, data, grid = call.args
    attrs = dict(call.attrs)
    lay = layout_of(attrs["layout"], "NCHW", "layout")

    def add(g: Buffer, x: Buffer, grid: Buffer, *, out: list[Buffer]) -> Stmt:
        have = lay.sizes(x.shape)
        return for_each(
            grid.shape[:3], lambda *place: _one_place(lay, have, g, x, grid, out, attrs, place), "p"
        )

    return call_sums(builder, call, add, g, data, grid)


def _one_place(
    lay: Any, have: dict[str, Any], g: Buffer, x: Buffer, grid: Buffer, sums: list[Buffer],
    attrs: dict[str, Any], place: tuple[PrimExpr, ...],
) -> Stmt:  # fmt: skip
    """What one place of the grid adds to both gradients."""
    of_data, of_grid = sums
    names, wide = Names(), of_data.dtype
    rows, columns = (
        _named(names, sample_taps(f64(load(grid, *place, k)), f64(have[a]), attrs, TE))
        for k, a in ((ONE, "H"), (ZERO, "W"))
    )

    def add(to: Buffer, value: PrimExpr, *index: PrimExpr) -> Stmt:
        return store(to, load(to, *index) + cast(to.dtype, value), *index)

    def channel(c: PrimExpr) -> list[Stmt]:
        n, i, j = place
        grad = cast(wide, load(g, *lay.index({"N": n, "C": c, "H": i, "W": j})))
        steps: list[Stmt] = []
        for y, wy, sy in rows:
            for z, wx, sx in columns:
                inside = And(And(GE(y, ZERO), LT(y, have["H"])), And(GE(z, ZERO), LT(z, have["W"])))
                pixel = lay.index({"N": n, "C": c, "H": y, "W": z})
                share = grad if wy is None else grad * cast(wide, wy * wx)
                some = [add(of_data, share, *pixel)]
                if sx is not None:
                    value = grad * cast(wide, load(x, *pixel))
                    some.append(add(of_grid, value * cast(wide, wy * sx), *place, ZERO))
                    some.append(add(of_grid, value * cast(wide, sy * wx), *place, ONE))
                steps.append(IfThenElse(inside, seq(*some)))
        return steps

    return names.within(for_each([have["C"]], channel, "c"))


grid_sample_backward = op(
    "grad.grid_sample_backward", _numpy, _lower, missing("second derivatives are not taken")
)(
    backward_of(
        __name__,
        grid_sample,
        """The gradients of image.grid_sample with respect to `data` and `grid`, given that of its
        result. Attributes are as there.

        By `grid`, "nearest" is constant, and so is "border" where it holds the outermost pixel.
        """,
        of=2,
    )
)
