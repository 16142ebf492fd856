"""Reductions that are no contractions: sums, maxima and the like along any axes.

    along rows       for i: for k: B[i] += A[i, k]      LLVM keeps vectors of partial results
    of everything    partial results of parts of some thousand elements, then the sum of those
    across rows      for jo: for k: for j in tile: B[j] += A[k, j]
                     a tile of B stays in registers, or, where that reads longer runs of memory, in
                     cache, and takes several rows of A in each step

Loops are put into the order in which the largest operand lies in memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ....base import CpuModel
from ....ir import IntImm, Mul, Node, PrimExpr, Var, children, descend, walk
from ...stmt import Block, Buffer, BufferLoad, BufferStore
from ...transform import PARTITION_HINT
from ..facts import BlockKind, facts_of
from ..reducer import match_reducer
from ..schedule import Schedule
from ..state import addends
from .queries import extent_of, loops_of

# A partial result is of about this many elements: so few that rounding errors stay small, so many
# that combining the results costs nothing.
_PART = 1 << 14
# Rows taken in each step across rows.
_STEP = 4
# Iterations from which on a reduction is long, windows are not.
_LONG = 64
# Vectors of results that are kept in registers while all rows are read.
_IN_REGISTERS = 8


def schedule_reduction(sch: Schedule, rv: Any, cpu: CpuModel) -> bool:
    """Loops for the reduction in block `rv`. False if it is none whose accesses are plain."""
    block: Block = sch.get(rv)
    loops = loops_of(sch, rv)
    if loops is None or facts_of(sch.state, block).kind is not BlockKind.REDUCTION:
        return False
    operand = largest_operand(block)
    if operand is None:
        return False
    if not _is_plain(operand, block):
        return _begin_before(sch, rv, loops)
    order = memory_order(operand, block)
    spatial = [a.var for a in block.iter_vars if a.is_spatial]
    reduce = [a.var for a in block.iter_vars if a.is_reduce]
    if not reduce or not order:
        return False
    spatial.sort(key=lambda v: order.get(v, -1))
    reduce.sort(key=lambda v: order.get(v, -1))
    last = max(order, key=lambda v: order[v])
    if last in reduce:
        _along_rows(sch, rv, loops, spatial, reduce)
    else:
        _across_rows(sch, rv, loops, spatial, reduce, operand, cpu)
    return True


def _begin_before(sch: Schedule, rv: Any, loops: dict[Var, Any]) -> bool:
    """Start the results before the loops over what is reduced, if these are long: a condition that
    asks for the first iteration keeps LLVM from making vectors of them.
    """
    block: Block = sch.get(rv)
    spatial = [loops[a.var] for a in block.iter_vars if a.is_spatial]
    reduce = [loops[a.var] for a in block.iter_vars if a.is_reduce]
    steps = math.prod(extent_of(sch, loop) or _LONG for loop in reduce)
    if not reduce or steps < _LONG:
        return False
    sch.reorder(*spatial, *reduce)
    sch.decompose_reduction(rv, reduce[0])
    return True


# -- what lies where -------------------------------------------------------------------------------


def largest_operand(block: Block) -> BufferLoad | None:
    """The load with most dimensions of what the block does not write itself."""
    own = {r.buffer.data for r in block.writes}
    best: BufferLoad | None = None
    for n in walk(block.body):
        if isinstance(n, BufferLoad) and n.buffer.data not in own:
            if best is None or len(n.indices) > len(best.indices):
                best = n
    return best


def memory_order(load: BufferLoad, block: Block) -> dict[Var, int]:
    """The dimension of the load in which each axis of the block moves; within a dimension, axes
    that take larger steps come first.
    """
    axes = {a.var for a in block.iter_vars}
    order: dict[Var, int] = {}
    for index in load.indices:
        inside = [v for v in walk(index) if isinstance(v, Var) and v in axes]
        for v in sorted(inside, key=lambda v: -_step(index, v)):
            order[v] = len(order)
    return order


def _step(index: PrimExpr, var: Var) -> int:
    """The constant factor of `var` in a sum; 1 if there is none to be seen."""
    for e in addends(index):
        if isinstance(e, Mul) and e.a is var and isinstance(e.b, IntImm):
            return e.b.value
    return 1


def _is_plain(load: BufferLoad, block: Block) -> bool:
    """Whether each axis moves in one dimension at most, and the last dimension has one axis alone:
    no windows that slide.
    """
    axes = {a.var for a in block.iter_vars}
    seen: set[Var] = set()
    for index in load.indices:
        inside = {v for v in walk(index) if isinstance(v, Var) and v in axes}
        if inside & seen:
            return False
        seen |= inside
    return bool(load.indices) and load.indices[-1] in axes


def run_length(sch: Schedule, block: Block, loops: dict[Var, Any], axes: Sequence[Var]) -> int:
    """How many of the axes, counted from the last, are one run of elements in all that the block
    touches, so that their loops can be fused without divisions; at least 1.
    """
    places: list[tuple[Buffer, tuple[PrimExpr, ...]]] = [
        (n.buffer, n.indices) for n in walk(block.body) if isinstance(n, (BufferLoad, BufferStore))
    ]
    elsewhere = _outside_accesses(block)
    count = 1
    while count < len(axes):
        outer, inner = axes[-count - 1], axes[-count]
        if outer in elsewhere or inner in elsewhere:
            break
        if extent_of(sch, loops[outer]) is None or not all(
            _are_neighbours(b, indices, outer, inner, extent_of(sch, loops[inner]))
            for b, indices in places
        ):
            break
        count += 1
    return count


def fuse_run(sch: Schedule, rv: Any, loops: Sequence[Any]) -> None:
    """Make the innermost of these loops around a block one, as far as they are one run."""
    block: Block = sch.get(rv)
    values = dict(zip(sch.state.realize(block).iter_values, block.iter_vars))
    by_axis = {values[sch.get(x).loop_var].var: x for x in loops if sch.get(x).loop_var in values}
    run = run_length(sch, block, by_axis, list(by_axis))
    if run > 1 and list(by_axis.values())[-run:] == list(loops[-run:]):
        sch.fuse(*loops[-run:])


def _outside_accesses(block: Block) -> set[Any]:
    """The variables that the block uses in other ways than as indices."""

    def below(n: Node) -> Sequence[Node]:
        if isinstance(n, BufferStore):
            return (n.value,)
        return () if isinstance(n, BufferLoad) else children(n)

    body: Node = block.body
    return {n for n in descend(body, below, once=id) if isinstance(n, Var)}


def _are_neighbours(
    buffer: Buffer, indices: tuple[PrimExpr, ...], outer: Var, inner: Var, extent: int | None
) -> bool:
    """Whether ``outer * extent + inner`` moves through neighbours in memory, or not at all."""
    using = [k for k, i in enumerate(indices) if any(v is outer or v is inner for v in walk(i))]
    if not using:
        return True
    if len(using) != 2 or buffer.strides or extent is None:
        return False
    first, second = using
    size = buffer.shape[second]
    return (
        second == first + 1
        and indices[first] is outer
        and indices[second] is inner
        and isinstance(size, IntImm)
        and size.value == extent
    )


# -- along rows ------------------------------------------------------------------------------------


def _along_rows(
    sch: Schedule,
    rv: Any,
    loops: dict[Var, Any],
    spatial: list[Var],
    reduce: list[Var],
) -> None:
    block: Block = sch.get(rv)
    sch.reorder(*(loops[v] for v in [*spatial, *reduce]))
    start = len(reduce) - run_length(sch, block, loops, reduce)
    run = [loops[v] for v in reduce[start:]]
    if start == 0 and _may_be_parted(sch, rv) and (parts := _parts(sch, run)) is not None:
        over, within = parts
        sch.fuse(*within)
        partial = sch.rfactor(sch.fuse(*over), 0)
        sch.decompose_reduction(partial, sch.get_loops(partial)[-1])
        sch.decompose_reduction(rv, sch.get_loops(rv)[-1])
        return
    inner = sch.fuse(*run)
    sch.decompose_reduction(rv, loops[reduce[0]] if start else inner)


def _may_be_parted(sch: Schedule, rv: Any) -> bool:
    reducer = match_reducer(sch.get(rv))
    return reducer is not None and reducer.commutative


def _parts(sch: Schedule, run: list[Any]) -> tuple[list[Any], list[Any]] | None:
    """The loops over parts and those inside a part of at most `_PART` elements; None if all is
    little, or if there are no such parts of a good size.

    A part consists of whole inner loops and of one loop that it divides without a rest: so that its
    elements are found without divisions.
    """
    extents: list[int] = []
    for loop in run:
        extent = extent_of(sch, loop)
        if extent is None:
            return None
        extents.append(extent)
    if math.prod(extents) < 4 * _PART:
        return None
    size, k = 1, len(run)
    while k and size * extents[k - 1] <= _PART:
        k -= 1
        size *= extents[k]
    extent = extents[k - 1]
    factor = next(n for n in range(_PART // size, 0, -1) if extent % n == 0)
    if size * factor < _PART // 16:
        return None
    if factor == 1:
        return run[:k], run[k:]
    over, within = sch.split(run[k - 1], [None, factor])
    return [*run[: k - 1], over], [within, *run[k:]]


# -- across rows -----------------------------------------------------------------------------------


def _across_rows(
    sch: Schedule,
    rv: Any,
    loops: dict[Var, Any],
    spatial: list[Var],
    reduce: list[Var],
    operand: BufferLoad,
    cpu: CpuModel,
) -> None:
    bits = operand.buffer.dtype.bits
    tail = _tail(spatial, operand)
    extents = [extent_of(sch, loops[v]) for v in tail]
    registers = _IN_REGISTERS * cpu.lanes(bits)
    width = extents[-1]
    block: Block = sch.get(rv)
    simple = len(block.writes) == 1
    if simple and width is not None and width <= registers and len(tail) == 1:
        outer = [loops[v] for v in spatial if v is not tail[-1]]
        sch.reorder(*outer, *(loops[v] for v in reduce), loops[tail[-1]])
        sch.decompose_reduction(rv, loops[reduce[0]])
        return
    # A tile of a quarter of the first-level cache, of whole rows of the last axes.
    room = max(1, cpu.l1_bytes * 8 // bits // 4)
    tile: list[Any] = []
    hints: list[Any] = []
    for v in reversed(tail):
        extent = extent_of(sch, loops[v])
        if extent is not None and extent <= room:
            tile.insert(0, loops[v])
            room //= max(extent, 1)
            continue
        if room > 1:
            over, within = sch.split(loops[v], [None, room])
            loops[v] = over
            tile.insert(0, within)
            if extent is None or extent % room:
                hints.append(over)
        break
    inside = {id(t) for t in tile}
    outer = [loops[v] for v in spatial if id(loops[v]) not in inside]
    *slow, fast = [loops[v] for v in reduce]
    rows = extent_of(sch, fast)
    if simple and rows is not None and rows % _STEP == 0:
        fast, step = sch.split(fast, [None, _STEP])
        sch.reorder(*outer, *slow, fast, *tile, step)
        sch.unroll(step)
    else:
        sch.reorder(*outer, *slow, fast, *tile)
    sch.decompose_reduction(rv, slow[0] if slow else fast)
    for loop in hints:
        sch.annotate(loop, PARTITION_HINT, True)


def _tail(spatial: list[Var], operand: BufferLoad) -> list[Var]:
    """The spatial axes that the last dimensions of the operand are, in order."""
    tail: list[Var] = []
    for index in reversed(operand.indices):
        if not isinstance(index, Var) or index not in spatial:
            break
        tail.insert(0, index)
    return tail
