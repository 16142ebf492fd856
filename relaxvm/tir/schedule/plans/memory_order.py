"""How the axes of a block lie in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....arith import stride
from ....base import NamedTuple
from ....ir import IntImm, Node, PrimExpr, Var, children, descend, walk
from ...stmt import Block, Buffer, BufferLoad, BufferStore
from ..schedule import Schedule
from .queries import axis_loops, extent_of


def largest_operand(block: Block) -> BufferLoad | None:
    """The load with most dimensions of what the block does not write itself."""
    own = {r.buffer.data for r in block.writes}
    loads = [n for n in walk(block.body) if isinstance(n, BufferLoad) and n.buffer.data not in own]
    return max(loads, key=lambda n: len(n.indices), default=None)


def memory_order(load: BufferLoad, block: Block) -> dict[Var, int]:
    """The dimension of the load in which each axis of the block moves; within a dimension, axes
    that take larger steps come first.
    """
    axes = {a.var for a in block.iter_vars}
    order: dict[Var, int] = {}
    for index in load.indices:
        inside = [v for v in walk(index) if isinstance(v, Var) and v in axes]
        for v in sorted(inside, key=lambda v: -(stride(index, v) or 1)):
            order[v] = len(order)
    return order


def is_plain(load: BufferLoad, block: Block) -> bool:
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
    by_axis = axis_loops(sch, rv, loops)
    axes = sorted(by_axis, key=lambda v: loops.index(by_axis[v]))
    run = run_length(sch, block, by_axis, axes)
    if run > 1 and [by_axis[v] for v in axes[-run:]] == list(loops[-run:]):
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


class Order(NamedTuple):
    """The axes of a reduction whose accesses are plain, in the order of memory.

    operand  the largest of what is read
    tail     the spatial axes that its last dimensions are
    last     the axis along which it lies
    """

    operand: BufferLoad
    spatial: list[Var]
    reduce: list[Var]
    tail: list[Var]
    last: Var


def order_of(block: Block) -> Order | None:
    """None if nothing is reduced, or what is read lies in windows that slide."""
    operand = largest_operand(block)
    if operand is None or not is_plain(operand, block):
        return None
    order = memory_order(operand, block)
    spatial = [a.var for a in block.iter_vars if a.is_spatial]
    reduce = [a.var for a in block.iter_vars if a.is_reduce]
    if not reduce or not order:
        return None
    spatial.sort(key=lambda v: order.get(v, -1))
    reduce.sort(key=lambda v: order.get(v, -1))
    last = max(order, key=lambda v: order[v])
    tail: list[Var] = []
    for index in reversed(operand.indices):
        if not isinstance(index, Var) or index not in spatial:
            break
        tail.insert(0, index)
    return Order(operand, spatial, reduce, tail, last)
