"""What rules ask about loops and blocks, and how the axes of a block lie in memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ....arith import stride
from ....base import NamedTuple
from ....ir import Call, IntImm, Node, PrimExpr, Var, children, descend, is_const, walk
from ...stmt import Block, BlockRealize, Buffer, BufferLoad, BufferStore, IterVar, Stmt
from ..model.facts import facts_of
from ..schedule import Schedule

TYPICAL_SIZE = 64
"""What a size counts as that is known only when the kernel runs."""


def root_of(sch: Schedule, func_name: str | None = None) -> Any:
    """The outermost block of a function (of that which is worked on), whatever its name."""
    fn: Any = sch.state.fn if func_name is None else sch.mod[func_name]
    body = fn.body
    root = body.block.name_hint if isinstance(body, BlockRealize) else "root"
    return sch.get_block(root, func_name)


def reduces(block: Block) -> bool:
    """Whether a block has a reduce axis."""
    return any(axis.is_reduce for axis in block.iter_vars)


def calls_of(block: Block) -> int:
    """How many functions a block computes for each element."""
    return sum(isinstance(n, Call) for n in walk(block.body))


def extent_of(sch: Schedule, loop: Any) -> int | None:
    """The loop's extent if it is a constant."""
    e = sch.get(loop).extent
    return e.value if isinstance(e, IntImm) else None


def product_of(sizes: Iterable[int | None]) -> int | None:
    """The product of sizes, None if one of them is known only when the kernel runs."""
    known: list[Any] = list(sizes)
    return None if None in known else math.prod(known)


def never_runs(sch: Schedule, rv: Any) -> bool:
    """Whether a loop around a block is known to have no iteration. There is nothing to gain then,
    and a cost by element or a share of the work would divide by zero.
    """
    return any(extent_of(sch, loop) == 0 for loop in sch.get_loops(rv))


def axis_loops(sch: Schedule, rv: Any, loops: Sequence[Any]) -> dict[Var, Any]:
    """{axis: loop} of the axes of a block that are one of these loops each."""
    block, by_var = sch.get(rv), {sch.get(loop).loop_var: loop for loop in loops}
    axes = zip(block.iter_vars, sch.state.realize(block).iter_values)
    return {axis.var: by_var[value] for axis, value in axes if value in by_var}


def loops_of(sch: Schedule, rv: Any) -> dict[Var, Any] | None:
    """{axis: loop} if each axis of the block is one loop of its own, and there are no others."""
    loops = sch.get_loops(rv)
    by_axis = axis_loops(sch, rv, loops)
    return by_axis if len(by_axis) == len(loops) == len(sch.get(rv).iter_vars) else None


def loops_inside(sch: Schedule, rv: Any, outer: Any) -> list[Any]:
    """The loops around a block that are in `outer`, outermost first."""
    wanted, loops = sch.get(outer), list(sch.get_loops(rv))
    return loops[next(k for k, x in enumerate(loops) if sch.get(x) is wanted) + 1 :]


def no_more(extents: Iterable[PrimExpr], shape: Iterable[PrimExpr]) -> bool:
    """Whether the product of `extents` is at most that of `shape`, whatever the symbols are."""
    few, many, symbols = 1, 1, []
    for e in extents:
        if isinstance(e, IntImm):
            few *= e.value
        else:
            symbols.append(e)
    for e in shape:
        if isinstance(e, IntImm):
            many *= e.value
        elif e in symbols:
            symbols.remove(e)
        else:
            return False
    return not symbols and few <= many


def last_moving(indices: Sequence[PrimExpr], buffer: Buffer) -> Any:
    """The last index along which a buffer has more than one element."""
    sizes = zip(reversed(indices), reversed(buffer.shape))
    return next((i for i, n in sizes if not is_const(n, 1)), None)


def is_copy(store: Stmt) -> bool:
    """Whether a statement copies elements with other axes, or axes in another order."""
    value = store.value if isinstance(store, BufferStore) else None
    if (
        not isinstance(store, BufferStore)
        or not isinstance(value, BufferLoad)
        or value.dtype.lanes != 1
        or value.dtype.bits < 8
    ):
        return False
    for indices in (store.indices, value.indices):
        plain = [i for i in indices if not isinstance(i, IntImm)]
        if not all(isinstance(i, Var) for i in plain) or len(set(plain)) != len(plain):
            return False
    return value.buffer.data is not store.buffer.data


def is_pointwise(sch: Schedule, rv: Any, buffer: Buffer) -> bool:
    """Whether a block writes each element of its result once, and reads `buffer` just there."""
    reader: Block = sch.get(rv)
    if not isinstance(reader.body, BufferStore) or reader.init is not None:
        return False
    axes = reader.iter_vars
    reads = [n for n in walk(reader.body) if isinstance(n, BufferLoad) and n.buffer is buffer]
    return (
        facts_of(sch.state, reader).elementwise
        and _same(reader.body.indices, axes)
        and all(_same(n.indices, axes) for n in reads)
    )


def _same(indices: Sequence[PrimExpr], axes: Sequence[IterVar]) -> bool:
    """Whether the indices are the axes; one of a single value may be written as that."""
    return len(indices) == len(axes) and all(
        i is a.var or (is_const(a.range.extent, 1) and i is a.range.min)
        for i, a in zip(indices, axes)
    )


# -- how axes lie in memory ------------------------------------------------------------------------


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
