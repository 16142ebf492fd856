"""The backward pass of image.grid_sample."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....ir import GE, LT, PrimExpr, cast, const
from ....tir import Buffer, IfThenElse, Stmt, seq
from ....tir import all as all_of
from ...expr import Call
from ...rules import LowerBuilder
from ...struct_info import Expr
from ..image import grid_sample, sample_layout
from ..loops import Names, call_sums, for_each, load, store
from ..record import missing, op
from ..sampling import NUMPY, TE, Tap, f64, sample_taps
from .shapes import backward_of

ZERO = const(0, "int64")


def _numpy(output_grad: Any, data: Any, grid: Any, **attrs: Any) -> tuple[np.ndarray, np.ndarray]:
    lay, spatial = sample_layout(attrs["layout"])
    order, sizes = f"NC{spatial}", [*range(1, len(spatial) + 1)]
    x = np.moveaxis(lay.to_plain(np.asarray(data), order), 1, -1).astype("float64")
    g = np.moveaxis(lay.to_plain(np.asarray(output_grad), order), 1, -1).astype("float64")
    sizes, grid = [x.shape[k] for k in sizes], np.asarray(grid)
    axes = [
        sample_taps(grid[..., -1 - k].astype("float64"), np.float64(n), attrs, NUMPY)
        for k, n in enumerate(sizes)
    ]
    batch = np.arange(len(x)).reshape([-1] + [1] * len(sizes))
    of_data, of_grid = np.zeros(x.shape), np.zeros(grid.shape)
    for taps in itertools.product(*axes) if x.size else ():
        inside = np.all([(t.place >= 0) & (t.place < n) for t, n in zip(taps, sizes)], axis=0)
        place = batch, *(np.clip(t.place, 0, n - 1) for t, n in zip(taps, sizes))
        part = np.where(inside[..., None], g, 0.0)
        if taps[0].weight is None:
            np.add.at(of_data, place, part)
            continue
        share = math.prod(t.weight for t in taps)[..., None]
        np.add.at(of_data, place, np.where(inside[..., None], part * share, 0.0))
        value = np.sum(np.where(inside[..., None], part * x[place], 0.0), -1)
        for k in range(len(taps)):
            of_grid[..., -1 - k] += value * _slope(taps, k)
    grad = lay.from_plain(np.ascontiguousarray(np.moveaxis(of_data, -1, 1)), order)
    return grad.astype(np.asarray(data).dtype), of_grid.astype(grid.dtype)


def _slope(taps: Sequence[Tap], k: int) -> Any:
    """By how much the weight of taps grows with the coordinate of axis `k`."""
    return math.prod(t.slope if j == k else t.weight for j, t in enumerate(taps))


def _named(names: Names, taps: list[Tap]) -> list[Tap]:
    return [Tap(*(v if v is None else names.of(v) for v in tap)) for tap in taps]


def _lower(builder: LowerBuilder, call: Call) -> Expr:
    g, data, grid = call.args
    attrs = dict(call.attrs)
    lay, spatial = sample_layout(attrs["layout"])

    def add(g: Buffer, x: Buffer, grid: Buffer, *, out: list[Buffer]) -> Stmt:
        have = lay.sizes(x.shape)
        return for_each(
            grid.shape[:-1],
            lambda *place: _one_place(lay, spatial, have, g, x, grid, out, attrs, place),
            "p",
        )

    return call_sums(builder, call, add, g, data, grid)


def _one_place(
    lay: Any, spatial: str, have: dict[str, Any], g: Buffer, x: Buffer, grid: Buffer,
    sums: list[Buffer], attrs: dict[str, Any], place: tuple[PrimExpr, ...],
) -> Stmt:  # fmt: skip
    """What one place of the grid adds to both gradients."""
    of_data, of_grid = sums
    names, wide = Names(), of_data.dtype
    numbers = [const(k, "int64") for k in range(len(spatial))][::-1]
    axes = [
        _named(names, sample_taps(f64(load(grid, *place, k)), f64(have[a]), attrs, TE))
        for k, a in zip(numbers, spatial)
    ]

    def add(to: Buffer, value: PrimExpr, *index: PrimExpr) -> Stmt:
        return store(to, load(to, *index) + cast(to.dtype, value), *index)

    def channel(c: PrimExpr) -> list[Stmt]:
        own = {"N": place[0], "C": c}
        grad = cast(wide, load(g, *lay.index({**own, **dict(zip(spatial, place[1:]))})))
        steps: list[Stmt] = []
        for taps in itertools.product(*axes):
            source = {a: t.place for a, t in zip(spatial, taps)}
            inside = all_of(
                *(f for a in spatial for f in (GE(source[a], ZERO), LT(source[a], have[a])))
            )
            pixel = lay.index({**own, **source})
            if taps[0].weight is None:
                some = [add(of_data, grad, *pixel)]
            else:
                share = cast(wide, math.prod(t.weight for t in taps))
                some = [add(of_data, grad * share, *pixel)]
                value = grad * cast(wide, load(x, *pixel))
                some += [
                    add(of_grid, value * cast(wide, _slope(taps, k)), *place, number)
                    for k, number in enumerate(numbers)
                ]
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
