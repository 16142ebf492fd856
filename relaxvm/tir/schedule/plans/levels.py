"""Loops in tiles of several levels: what any block can have of which nothing else is known.

    for i, j, k:  C[i, j] += ...        spatial i, j; reduced k
    ->  for io, jo, im, jm, ko, ki, ii, ji:    tiles ((im, ii), (jm, ji), (ki,)), ji in vectors

The default schedule never chooses it; the tuner draws it at random.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Any

from ....base import CpuModel, record
from ....ir import Var
from .contraction import unroll_short
from .plan import Plan
from .view import View

_MOST_UNROLLED = 64


@record
class Levels(Plan):
    """tiles  of each loop, outermost first: of a spatial one the steps of its middle loop and of
              its inner one, of a reduced one the steps of its inner loop; no numbers: it stays
    vector    which loop is innermost and in vectors, 0 the outermost
    local     whether the sums of a tile are kept in registers and written once
    """

    tiles: tuple[tuple[int, ...], ...]
    vector: int = 0
    local: bool = False

    @classmethod
    def choose(cls, view: View, cpu: CpuModel) -> Plan | None:
        return None

    @classmethod
    def random(cls, view: View, cpu: CpuModel, rng: Random) -> Plan | None:
        axes = axes_of(view)
        spatial = [k for k, (_, reduced) in enumerate(axes) if not reduced]
        if not spatial:
            return None
        bits = view.block.writes[0].buffer.dtype.bits if view.block.writes else 32
        lanes = cpu.lanes(bits)
        along = _last_axis(view)
        vector = along if along in spatial and rng.random() < 0.8 else rng.choice(spatial)
        tiles: list[tuple[int, ...]] = []
        left = cpu.vector_registers
        for k, (extent, reduced) in enumerate(axes):
            most = extent or 256
            if reduced:
                tiles.append((_at_most(rng, (1, 2, 4, 8, 16, 64), most),))
                continue
            if k == vector:
                inner = _at_most(rng, [lanes * n for n in (1, 1, 2, 4) if n <= left], most)
                left //= max(1, -(-inner // lanes))
            else:
                inner = _at_most(rng, [n for n in (1, 1, 2, 3, 4, 6, 8) if n <= left], most)
                left //= inner
            middle = _at_most(rng, (1, 1, 2, 4, 8, 16, 32), -(-most // inner))
            tiles.append((middle, inner))
        return cls(tuple(tiles), vector, len(spatial) < len(axes) and rng.random() < 0.7)

    def wrong(self, view: View) -> str | None:
        axes = axes_of(view)
        if not axes:
            return "its axes are not loops, one each"
        if len(self.tiles) != len(axes):
            return f"tiles of {len(self.tiles)} loops, and there are {len(axes)}"
        if self.vector >= len(axes) or axes[self.vector][1]:
            return f"loop {self.vector} is not one of the spatial loops"
        for k, ((extent, reduced), sizes) in enumerate(zip(axes, self.tiles)):
            if len(sizes) != (1 if reduced else 2):
                what = "reduced, it has one size" if reduced else "spatial, it has two sizes"
                return f"loop {k} is {what}, got {list(sizes)}"
            if min(sizes) < 1 or (extent is not None and math.prod(sizes) > 2 * extent):
                return f"tiles of {list(sizes)} steps of loop {k}, which has {extent}"
        if self.local and not any(reduced for _, reduced in axes):
            return "there are no sums to keep in registers"
        return None

    def apply(self, view: View) -> None:
        sch, rv = view.sch, view.rv
        outer, middle, sums, inner = [], [], [], []
        last: Any = None
        for k, (loop, sizes) in enumerate(zip(view.loops, self.tiles)):
            parts = sch.split(loop, [None, *sizes])
            if len(parts) == 2:
                sums.append(parts)
                continue
            outer.append(parts[0])
            middle.append(parts[1])
            if k == self.vector:
                last = parts[2]
            else:
                inner.append(parts[2])
        reduced = [ro for ro, _ in sums] + [ri for _, ri in sums]
        sch.reorder(*outer, *middle, *reduced, *inner, last)
        nests = [rv]
        if self.local:
            write = sch.cache_write(rv, 0, "local")
            sch.reverse_compute_at(write, middle[-1])
            nests.append(write)
        if reduced:
            nests.append(sch.decompose_reduction(rv, reduced[0]))
        for each in nests:
            *rest, columns = sch.get_loops(each)
            sch.vectorize(columns)
            steps = 1
            unrolled = []
            for loop in reversed(rest[-len(inner) :] if inner else ()):
                extent = getattr(sch.get(loop).extent, "value", _MOST_UNROLLED)
                steps *= int(extent)
                if steps <= _MOST_UNROLLED:
                    unrolled.append(loop)
            unroll_short(sch, unrolled)


def axes_of(view: View) -> list[tuple[int | None, bool]]:
    """Of each loop around a block, outermost first, its extent (None where it is a symbol) and
    whether its axis is reduced; empty unless each axis is a loop and can be put anywhere.
    """
    by_axis = view.by_axis or {}
    kinds: dict[Var, tuple[int | None, bool]] = {}
    for axis in view.block.iter_vars:
        if axis.iter_type not in ("spatial", "reduce"):
            return []
        if axis.var in by_axis:
            loop = view.sch.get(by_axis[axis.var]).loop_var
            kinds[loop] = (view.extents[axis.var], axis.is_reduce)
    return [kinds[view.sch.get(loop).loop_var] for loop in view.loops] if kinds else []


def _last_axis(view: View) -> int | None:
    """Which loop is the last index of what the block writes."""
    written = view.block.writes[0].region if view.block.writes else ()
    index = written[-1].min if written else None
    by_axis = view.by_axis or {}
    if not isinstance(index, Var) or index not in by_axis:
        return None
    wanted = view.sch.get(by_axis[index]).loop_var
    return [view.sch.get(loop).loop_var for loop in view.loops].index(wanted)


def _at_most(rng: Random, sizes: Sequence[int], most: int) -> int:
    return rng.choice([n for n in sizes if n <= most] or [1])
