"""Attention: two products with a softmax of the first between them, one block of rows at a time.

    S[b, h, io, ii, j] = sum of Q * K panels     for b, h, io:
    top, W = exp(S - top), total of W                for jo, tile of ii: S[ii, jo tile]    registers
    O[b, h, io, ii, d] = sum of W * V          →     for ii: top, W, total                 one row
    C[b, i, h, d] = O / total                        for tile of ii: O[ii, d tile]         registers
                                                     for ii: C

What is kept of the scores is one block of rows, in the second cache. Both products run in the tiles
of `contraction.py`. The formula (`te/attention.py`) has the blocks of rows as an axis, and the keys
in panels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ....arith import Analyzer, detect_linear_equation
from ....base import CpuModel, NamedTuple, ScheduleError, record
from ....ir import (
    GE,
    GT,
    LE,
    LT,
    Add,
    And,
    FloatImm,
    FloorDiv,
    IntImm,
    Max,
    Min,
    Mul,
    Node,
    PrimExpr,
    Select,
    Sub,
    Var,
    children,
    const,
    descend,
    is_const,
    substitute,
    walk,
)
from ...op import ceildiv
from ...stmt import Block, BufferLoad, BufferStore, For, Stmt
from ...transform import PARTITION_HINT
from ...transform.rewriter import constant
from ..schedule import Schedule
from .contraction import (
    Contraction,
    accumulate,
    in_registers,
    match_contraction,
    partition_tails,
    tile_cost,
    tile_shape,
)
from .cost import Cost, Demand, predict, rates_of
from .plan import Plan
from .queries import TYPICAL_SIZE, axis_loops, extent_of, loops_inside, loops_of, reduces
from .view import View

_WIDTHS = (1, 2, 3, 4, 6)  # vectors in a tile
_MONOTONE = (Add, Sub, Mul, Min, Max, Var, IntImm)


@record
class RowBlocks(Plan):
    """A second product, the first one and all between them under one loop over blocks of rows.

    lanes                      of a vector
    rows, vectors              of the tiles of the first product
    sum_rows, sum_vectors      of those of the second one
    """

    lanes: int
    rows: int
    vectors: int
    sum_rows: int
    sum_vectors: int

    @classmethod
    def choose(cls, view: View, cpu: CpuModel) -> RowBlocks | None:
        a = view.found(_attention_of)
        if a is None:
            return None
        lanes = cpu.lanes(view.block.writes[0].buffer.dtype.bits)
        tiles = [_tile_of(view, a, k, lanes, cpu) for k in (a.first, a.second)]
        (first, second) = tiles
        return None if first is None or second is None else cls(lanes, *first, *second)

    def others(self, view: View, cpu: CpuModel) -> Iterable[Plan]:
        for vectors, rows in in_registers(cpu, _WIDTHS):
            yield replace(self, rows=rows, vectors=vectors)
            yield replace(self, sum_rows=rows, sum_vectors=vectors)

    def wrong(self, view: View) -> str | None:
        a = view.found(_attention_of)
        if a is None:
            return "it is not the second of two products with a softmax between them"
        mine = ((self.rows, self.vectors), (self.sum_rows, self.sum_vectors))
        for k, (height, vectors) in zip((a.first, a.second), mine):
            rows, columns = _sizes_of(view, a, k)
            if rows is None or columns is None or columns % (vectors * self.lanes):
                return f"tiles of {vectors * self.lanes} columns leave a rest of {columns}"
            if height > rows:
                return f"tiles of {height} rows, and there are {rows}"
        return None

    def members(self, view: View) -> Sequence[Any]:
        a: Any = view.found(_attention_of)
        return [a.blocks[k] for k in (*a.between, a.ready, a.packs, a.first, a.second, a.out)]

    def cost(self, view: View, cpu: CpuModel) -> Cost:
        a: Any = view.found(_attention_of)
        cycles, reads = 0.0, 0.0
        out, times = view.block.writes[0].buffer, 1
        rates = rates_of(cpu, self.lanes, out.dtype.bits)
        mine = ((self.rows, self.vectors), (self.sum_rows, self.sum_vectors))
        for k, (height, vectors) in zip((a.first, a.second), mine):
            block: Block = view.sch.get(a.blocks[k])
            sizes = {v.var: constant(v.range.extent) or TYPICAL_SIZE for v in block.iter_vars}
            c = a.products[k]
            rows, columns = sizes[c.row], sizes[c.vector]
            times = math.prod(n for v, n in sizes.items() if v not in c.axes)
            around = math.prod(sizes.values()) // (rows * columns)
            tiles = tile_cost(rows, columns, self.lanes, height, vectors, rates)
            cycles += tiles * rows * columns * around
            reads += float(around * columns * c.streamed.bytes)
        written = math.prod(
            constant(v.range.extent) or TYPICAL_SIZE for v in view.block.iter_vars if v.is_spatial
        )
        size = float(written * out.dtype.itemsize)
        # The keys and values of a head are read again for each block of its rows.
        return predict(Demand(cycles, ((reads, reads / times), (2 * size, size)), times), cpu)

    def apply(self, view: View) -> None:
        sch, rv = view.sch, view.rv
        a: Any = view.found(_attention_of)
        blocks, scores, sums = a.blocks, a.products[a.first], a.products[a.second]
        loops: Any = loops_of(sch, blocks[a.out])
        outer, inner = [], []
        for axis, each in a.rows:
            loop = loops[axis]
            if each > 1:
                loop, rest = sch.split(loop, [None, each])
                inner.append(rest)
            outer.append(loop)
        inner += [loop for axis, loop in loops.items() if axis not in dict(a.rows)]
        sch.reorder(*outer, *inner)
        row_loop = outer[-1]
        # What the second product needs not comes first: the sum of the weights, beside the weights.
        late = sorted(a.between - a.needed, reverse=True)
        early = sorted(a.between & a.needed, reverse=True)
        for k in (*late, a.second, *early, a.first, a.ready):
            sch.compute_at(blocks[k], row_loop)
        # An axis of one place has no loop.
        keys = [axis_loops(sch, rv, loops_inside(sch, rv, row_loop)).get(sums.reduce[0])]
        first = loops_inside(sch, blocks[a.first], row_loop)
        panels = axis_loops(sch, blocks[a.first], first).get(_panel_axis(scores))
        _tile(sch, blocks[a.first], scores, row_loop, (self.rows, self.vectors, self.lanes))
        _tile(sch, rv, sums, row_loop, (self.sum_rows, self.sum_vectors, self.lanes))
        middle = [blocks[k] for k in sorted(a.between)]
        _softmax(sch, middle, row_loop)
        keys += [
            loops_inside(sch, each, row_loop)[-1]
            for each in middle
            if len(loops_inside(sch, each, row_loop)) > 1
        ]
        count = _keys_seen(sch, middle, row_loop)
        if count is not None:
            panel = scores.streamed.buffer.shape[-1]
            limits = [(loop, count) for loop in keys] + [(panels, ceildiv(count, panel))]
            _shorten(sch, row_loop, {sch.get(x).loop_var: n for x, n in limits if x is not None})
        _pack(sch, blocks[a.packs], self.lanes)


# -- what attention is -----------------------------------------------------------------------------


class _Attention(NamedTuple):
    """Two products and what lies between them. Blocks are numbered, in order.

    products  the contractions that blocks are
    between   the blocks after the first product that the last block gets something of
    needed    those that the second product gets something of
    ready     what makes the queries ready
    packs     what packs the keys
    out       what alone reads the second product
    rows      the axes of the last block that blocks of rows are: see `_rows_of`
    """

    blocks: Mapping[int, Any]
    products: Mapping[int, Contraction]
    first: int
    second: int
    out: int
    between: set[int]
    needed: set[int]
    ready: int
    packs: int
    rows: list[tuple[Var, int]]


def _attention_of(view: View) -> _Attention | None:
    """The attention whose second product the block is, of blocks that are not scheduled."""
    sch, sums = view.sch, match_contraction(view.block)
    if sums is None or sums.row is None or len(view.left) < 4 or view.epilogue is None:
        return None
    number = {sch.get(rv): k for k, rv in enumerate(view.left)}
    second, out = number.get(view.block), number.get(sch.get(view.epilogue))
    if second is None or out is None:
        return None
    # What feeds the last block, and what reads each of these.
    readers: dict[int, set[int]] = {out: set()}

    def feeding(reader: int) -> list[int]:
        blocks = (number.get(sch.get(rv)) for rv in sch.get_producers(view.left[reader]))
        known = [k for k in blocks if k is not None]
        for k in known:
            readers.setdefault(k, set()).add(reader)
        return known

    products = {second: sums}
    for k in descend(out, feeding, once=int):
        c = None if k == second else match_contraction(sch.get(view.left[k]))
        if c is not None:
            products[k] = c
        if len(products) > 2:
            return None
    first = next((k for k in products if k != second), None)
    loops = loops_of(sch, view.left[out])
    rows = _rows_of(sch, view.rv, sums, view.epilogue)
    if first is None or loops is None or not rows:
        return None
    after, needed = {first}, {second}
    for k in sorted(readers):
        after |= readers[k] if k in after else set()
    for k in sorted(readers, reverse=True):
        needed |= {k} if readers[k] & needed else set()
    blocks = {k: view.left[k] for k in readers}
    scores = products[first]
    writers = {r.buffer: k for k, rv in enumerate(view.left) for r in sch.get(rv).writes}
    ready, packs = writers.get(scores.broadcast.buffer), writers.get(scores.streamed.buffer)
    if ready is None or packs is None:
        return None
    between = after - {first, second, out}
    return _Attention(blocks, products, first, second, out, between, needed, ready, packs, rows)


def _sizes_of(view: View, a: _Attention, k: int) -> tuple[int | None, int | None]:
    """(rows, columns) of a block of rows of a product."""
    c = a.products[k]
    sizes = {v.var: constant(v.range.extent) for v in view.sch.get(a.blocks[k]).iter_vars}
    return None if c.row is None else sizes[c.row], sizes[c.vector]


def _tile_of(
    view: View, a: _Attention, k: int, lanes: int, cpu: CpuModel
) -> tuple[int, int] | None:
    """(rows, vectors) of the tiles of a product; None if its columns are no whole vectors."""
    rows, columns = _sizes_of(view, a, k)
    widths = [n for n in _WIDTHS if columns and columns % (n * lanes) == 0]
    if not widths or columns is None or rows is None:
        return None
    return tile_shape(rows, columns, lanes, cpu.vector_registers, tuple(widths))


def _panel_axis(c: Contraction) -> Var:
    """The axis over panels of keys."""
    axis = c.streamed.indices[2] if len(c.streamed.indices) == 5 else None
    if not isinstance(axis, Var):
        raise ScheduleError("the keys of attention are in panels")
    return axis


def _keys_seen(sch: Schedule, middle: Sequence[Any], row_loop: Any) -> PrimExpr | None:
    """How many of the first keys any query of a block of rows sees, where a mask over positions
    says so: it is minus infinity after a diagonal. None if all of them.
    """
    for rv in middle:
        block: Block = sch.get(rv)
        mask = block.body.value if isinstance(block.body, BufferStore) else None
        inside = loops_inside(sch, rv, row_loop)
        if not isinstance(mask, Select) or len(inside) != 2:
            continue
        if not isinstance(mask.false_value, FloatImm) or mask.false_value.value != -math.inf:
            continue
        row, key = (sch.get(loop).loop_var for loop in inside)
        values = sch.state.realize(block).iter_values
        seen = substitute(mask.condition, {a.var: v for a, v in zip(block.iter_vars, values)})
        for place in _not_negative(seen):
            parts = detect_linear_equation(place, [key])
            if len(parts) != 2 or not is_const(parts[0], -1):
                continue
            # With the row in one place the last key only grows, or only falls, from row to row.
            last: Node = parts[1]
            nodes = list(descend(last, children))
            if sum(n is row for n in nodes) > 1 or not all(isinstance(n, _MONOTONE) for n in nodes):
                continue
            ends = (const(0, row.dtype), sch.get(inside[0]).extent - const(1, row.dtype))
            start, end = (substitute(parts[1], {row: e}) for e in ends)
            count = Max(start, end) + const(1, row.dtype)
            return Analyzer(wrap=False).simplify(
                Max(Min(count, sch.get(inside[1]).extent), ends[0])
            )
    return None


def _not_negative(condition: PrimExpr) -> Iterator[PrimExpr]:
    """What is at least 0 where a condition holds, of integers."""
    for part in descend(condition, lambda e: (e.a, e.b) if isinstance(e, And) else ()):
        if isinstance(part, (LE, LT, GE, GT)) and part.a.dtype.is_int:
            low, high = (part.a, part.b) if isinstance(part, (LE, LT)) else (part.b, part.a)
            yield high - low - const(isinstance(part, (LT, GT)), low.dtype)


def _shorten(sch: Schedule, loop: Any, limits: Mapping[Var, PrimExpr]) -> None:
    """End loops in `loop` early: past that, scores are minus infinity and weights 0, which changes
    neither maxima nor sums.
    """

    def change(s: Stmt) -> Stmt | None:
        if isinstance(s, For) and s.loop_var in limits:
            return s.replace(extent=limits[s.loop_var])
        return None

    sch.commit(sch.state.rebuild(sch.get(loop), change))


def _rows_of(sch: Schedule, rv: Any, c: Contraction, out: Any) -> list[tuple[Var, int]]:
    """The axes of the block `out` that blocks of rows are, and how many of their values are one:
    in what it reads of the product, they stand before the rows.
    """
    block, reader = sch.get(rv), sch.get(out)
    (write,) = block.writes
    place = next((k for k, r in enumerate(write.region) if r.min is c.row), 0)
    rows: list[tuple[Var, int]] = []
    for load in (n for n in walk(reader.body) if isinstance(n, BufferLoad)):
        if load.buffer is not write.buffer:
            continue
        for index in load.indices[:place]:
            each = 1
            if isinstance(index, FloorDiv) and isinstance(step := index.b, IntImm):
                index, each = index.a, step.value
            if isinstance(index, Var):
                rows.append((index, each))
            elif not isinstance(index, IntImm):
                return []
        return rows
    return []


def _tile(sch: Schedule, rv: Any, c: Contraction, loop: Any, shape: tuple[int, int, int]) -> None:
    """shape: rows, vectors and lanes of a tile"""
    loops = axis_loops(sch, rv, loops_inside(sch, rv, loop))
    if c.row is None or not {c.row, c.vector, *c.reduce} <= loops.keys() or len(c.reduce) != 1:
        raise ScheduleError("a product of attention has a single row, column or term")
    column, row, reduce = loops[c.vector], loops[c.row], loops[c.reduce[0]]
    over = [x for axis, x in loops.items() if axis not in (c.row, c.vector, *c.reduce)]
    height, vectors, lanes = shape
    rows = extent_of(sch, row)
    jo, ji = sch.split(column, [None, vectors * lanes])
    io, ii = sch.split(row, [None, height])
    sch.reorder(*over, jo, io, reduce, ii, ji)
    accumulate(sch, rv, io, [ii, ji], [reduce], lanes, None)
    partition_tails(sch, (io, rows, height))


def _softmax(sch: Schedule, middle: Sequence[Any], loop: Any) -> None:
    """One row after another, the weights and their sum in one loop."""
    rows = [loops_inside(sch, rv, loop)[0] for rv in middle]
    if len(rows) > 1:
        sch.merge(*rows)
    before = None
    for rv in middle:
        inside = loops_inside(sch, rv, loop)
        sums = reduces(sch.get(rv)) and len(inside) == 2
        if sums and before is not None and not reduces(sch.get(before)):
            sch.merge(loops_inside(sch, before, loop)[-1], inside[-1])
        if sums:
            sch.decompose_reduction(rv, sch.get_loops(rv)[-1])
        before = rv


def _pack(sch: Schedule, rv: Any, lanes: int) -> None:
    """Fill the panels a vector of keys at once, each read along its dimensions."""
    loops = loops_of(sch, rv)
    if loops is None:
        return
    *outer, depth, last = loops.values()
    over, within = sch.split(last, [None, lanes])
    sch.reorder(*outer, over, depth, within)
    sch.unroll(within)
    sch.annotate(outer[-1], PARTITION_HINT, True)
