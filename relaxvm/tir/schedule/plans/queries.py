"""What rules ask about loops and blocks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ....ir import Call, IntImm, PrimExpr, Var, is_const, walk
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
