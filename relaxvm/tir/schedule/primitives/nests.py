"""What primitives make: axes, and blocks under loops of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....arith import as_number
from ....base import DataType
from ....ir import PrimExpr, Range, Var, const
from ...stmt import Block, BlockRealize, Buffer, For, ForKind, IterVar, PrimFunc, Stmt


def new_axis(
    name: str, extent: Any, dtype: DataType | None = None, kind: str = "spatial"
) -> IterVar:
    """An axis of so many values from 0 on, of the dtype of the extent if none is given."""
    dtype = extent.dtype if dtype is None else dtype
    dom = Range.from_min_extent(const(0, dtype), as_number(extent, dtype))
    return IterVar(dom, Var(name, dtype), kind)


def axes_over(shape: Sequence[PrimExpr]) -> tuple[IterVar, ...]:
    """An axis for each dimension."""
    return tuple(new_axis(f"v{k}", e) for k, e in enumerate(shape))


def looped(block: Block) -> Stmt:
    """A block under one loop for each of its axes."""
    loops = [Var(f"ax{k}", a.var.dtype) for k, a in enumerate(block.iter_vars)]
    nest: Stmt = BlockRealize(tuple(loops), const(True), block)
    for v, a in reversed(list(zip(loops, block.iter_vars))):
        nest = For(v, a.range.min, a.range.extent, ForKind.SERIAL, nest)
    return nest


def function_over(buffers: Sequence[Buffer], body: Stmt) -> PrimFunc:
    """A loop function of these buffers."""
    handles = tuple(Var(f"{b.name}_handle", "handle") for b in buffers)
    root = BlockRealize((), const(True), Block((), (), (), "root", body))
    return PrimFunc(handles, root, None, dict(zip(handles, buffers)))
