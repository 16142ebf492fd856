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

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any

from ....arith import Analyzer, detect_linear_equation
from ....base import CpuModel, ScheduleError
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
from ..schedule import Schedule
from .contraction import (
    Contraction,
    accumulate,
    epilogue_of,
    match_contraction,
    partition_tails,
    tile_shape,
)
from .queries import extent_of, loops_inside, loops_of, reduces

_MONOTONE = (Add, Sub, Mul, Min, Max, Var, IntImm)


def schedule_attention(sch: Schedule, blocks: Sequence[Any], cpu: CpuModel) -> Sequence[Any]:
    """Put the blocks of each attention under one loop over its blocks of rows, the products in
    tiles; returns those blocks.
    """
    taken: list[Any] = []
    products = [match_contraction(sch.get(rv)) for rv in blocks]
    if sum(c is not None for c in products) < 2:
        return taken
    number = {sch.get(rv): k for k, rv in enumerate(blocks)}
    # Of what another rule has taken and split nothing is known here.
    readers = [
        {number[b] for b in map(sch.get, sch.get_consumers(rv)) if b in number} for rv in blocks
    ]
    for k, c in enumerate(products):
        out = epilogue_of(sch, blocks[k]) if c is not None and c.row is not None else None
        if out is None or sch.get(out) not in number:
            continue
        last = number[sch.get(out)]
        before = _before(readers, last)
        first = [n for n in before - {k} if products[n] is not None]
        if len(first) == 1:
            taken += _schedule(sch, blocks, readers, before, (first[0], k, last), cpu)
    return taken


def _before(readers: Sequence[set[int]], last: int) -> set[int]:
    """The blocks that block `last` gets something of, and itself."""
    feeding = {last}
    for k in reversed(range(last)):
        if readers[k] & feeding:
            feeding.add(k)
    return feeding


def _schedule(
    sch: Schedule,
    blocks: Sequence[Any],
    readers: Sequence[set[int]],
    before: set[int],
    ends: tuple[int, int, int],
    cpu: CpuModel,
) -> Sequence[Any]:
    """The first product, the second one and what reads that, and all between them.

    before  the blocks that the last one gets something of
    """
    first, second, out = ends
    scores, sums = (match_contraction(sch.get(blocks[k])) for k in (first, second))
    assert scores is not None
    assert sums is not None
    axes, loops = _rows_of(sch, blocks[second], sums, blocks[out]), loops_of(sch, blocks[out])
    if loops is None or not axes:
        return ()
    after = {first}
    for k in range(first, out):
        after |= readers[k] if k in after else set()
    between = after & before - {*ends}
    writers = {r.buffer: k for k, rv in enumerate(blocks) for r in sch.get(rv).writes}
    ready, packs = writers.get(scores.broadcast.buffer), writers.get(scores.streamed.buffer)
    if ready is None or packs is None:
        return ()
    outer, inner = [], []
    for axis, each in axes:
        loop = loops[axis]
        if each > 1:
            loop, rest = sch.split(loop, [None, each])
            inner.append(rest)
        outer.append(loop)
    inner += [loop for axis, loop in loops.items() if axis not in dict(axes)]
    sch.reorder(*outer, *inner)
    row_loop = outer[-1]
    # What the second product needs not comes first: the sum of the weights, beside the weights.
    needed = _before(readers, second)
    late = sorted(between - needed, reverse=True)
    early = sorted(between & needed, reverse=True)
    for k in (*late, second, *early, first, ready):
        sch.compute_at(blocks[k], row_loop)
    # An axis of one place has no loop.
    keys = [_loops_inside(sch, blocks[second], row_loop).get(sums.reduce[0])]
    panels = _loops_inside(sch, blocks[first], row_loop).get(_panel_axis(scores))
    for k, c in ((first, scores), (second, sums)):
        _tile(sch, blocks[k], c, row_loop, cpu)
    middle = [blocks[k] for k in sorted(between)]
    _softmax(sch, middle, row_loop)
    keys += [
        loops_inside(sch, rv, row_loop)[-1]
        for rv in middle
        if len(loops_inside(sch, rv, row_loop)) > 1
    ]
    count = _keys_seen(sch, middle, row_loop)
    if count is not None:
        panel = scores.streamed.buffer.shape[-1]
        limits = [(loop, count) for loop in keys] + [(panels, ceildiv(count, panel))]
        _shorten(sch, row_loop, {sch.get(x).loop_var: n for x, n in limits if x is not None})
    _pack(sch, blocks[packs], scores, cpu)
    return [blocks[k] for k in (*between, ready, packs, *ends)]


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
        if not isinstance(mask.false_value, FloatImm) or mask.false_value.value != -inf:
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


def _tile(sch: Schedule, rv: Any, c: Contraction, loop: Any, cpu: CpuModel) -> None:
    loops = _loops_inside(sch, rv, loop)
    if c.row is None or not {c.row, c.vector, *c.reduce} <= loops.keys() or len(c.reduce) != 1:
        raise ScheduleError("a product of attention has a single row, column or term")
    column, row, reduce = loops[c.vector], loops[c.row], loops[c.reduce[0]]
    over = [x for axis, x in loops.items() if axis not in (c.row, c.vector, *c.reduce)]
    lanes = cpu.lanes(sch.get(rv).writes[0].buffer.dtype.bits)
    columns, rows = extent_of(sch, column), extent_of(sch, row)
    widths = [n for n in (1, 2, 3, 4, 6) if columns and columns % (n * lanes) == 0]
    if not widths or columns is None or rows is None:
        raise ScheduleError("a product of attention has columns that are no whole vectors")
    height, vectors = tile_shape(rows, columns, lanes, cpu.vector_registers, widths)
    jo, ji = sch.split(column, [None, vectors * lanes])
    io, ii = sch.split(row, [None, height])
    sch.reorder(*over, jo, io, reduce, ii, ji)
    accumulate(sch, rv, io, [ii, ji], [reduce], lanes, None)
    partition_tails(sch, (io, rows, height))


def _loops_inside(sch: Schedule, rv: Any, outer: Any) -> dict[Var, Any]:
    """{axis: loop} of the loops inside `outer` that are an axis each."""
    by_var = {sch.get(loop).loop_var: loop for loop in loops_inside(sch, rv, outer)}
    block: Block = sch.get(rv)
    values: Sequence[PrimExpr] = sch.state.realize(block).iter_values
    return {a.var: by_var[v] for a, v in zip(block.iter_vars, values) if v in by_var}


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


def _pack(sch: Schedule, rv: Any, c: Contraction, cpu: CpuModel) -> None:
    """Fill the panels a vector of keys at once, each read along its dimensions."""
    loops = loops_of(sch, rv)
    if loops is None:
        return
    *outer, depth, last = loops.values()
    lanes = cpu.lanes(c.streamed.buffer.dtype.bits)
    over, within = sch.split(last, [None, lanes])
    sch.reorder(*outer, over, depth, within)
    sch.unroll(within)
    sch.annotate(outer[-1], PARTITION_HINT, True)
