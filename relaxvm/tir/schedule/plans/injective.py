"""Elementwise work inside a kernel: producers vanish into the blocks that read them.

    T[i, j] = A[i, j] * 2.0           →    for ij: C[ij] = max(A[ij] * 2.0, 0.0)
    C[i, j] = max(T[i, j], 0.0)

A block is put into its readers if that computes nothing again, or nothing that costs more than the
memory it saves. Loops over what is one run of memory become one.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from ....base import CpuModel, ScheduleError, record
from ....ir import (
    Add,
    Call,
    Cast,
    Div,
    FloorDiv,
    FloorMod,
    IntImm,
    PrimExpr,
    Sub,
    Var,
    is_const,
    post_order,
    walk,
)
from ...stmt import Block, Buffer, BufferLoad, BufferStore
from ..model.facts import BlockKind, facts_of
from ..model.regions import users_of
from ..schedule import Schedule
from .contraction import match_contraction
from .cost import Cost, predict
from .plan import Plan
from .queries import TYPICAL_SIZE, is_copy, no_more, reduces, run_length
from .view import View

# Operations that cost next to nothing beside a load and a store.
_CHEAP = 4
# An expression of more parts would no longer stay in registers.
LARGEST = 400
_CHEAP_CALLS = frozenset({"tir.if_then_else", "tir.likely", "tir.fabs", "tir.isnan"})


def inline_producers(sch: Schedule, blocks: Sequence[Any]) -> Sequence[Any]:
    """Inline the elementwise blocks among `blocks` where that pays; returns those that vanished."""
    gone = []
    for rv in blocks:
        block: Block = sch.get(rv)
        if _is_elementwise(sch, block) and _pays(sch, block):
            with contextlib.suppress(ScheduleError):
                sch.compute_inline(rv)
                gone.append(rv)
    return gone


def _is_elementwise(sch: Schedule, block: Block) -> bool:
    return (
        isinstance(block.body, BufferStore)
        and not block.alloc_buffers
        and facts_of(sch.state, block).kind is BlockKind.COMPLETE
    )


def _pays(sch: Schedule, block: Block) -> bool:
    """Whether to compute the block's expression where it is read."""
    store = block.body
    assert isinstance(store, BufferStore)
    readers, writers = users_of(sch.state, store.buffer.data)
    if not readers or len(writers) != 1:
        return False
    cost = cost_of(store.value)
    times = 0
    for reader in readers:
        loads = _loads(reader, store.buffer)
        times += len(loads)
        contraction = match_contraction(reader)
        if contraction is not None:
            # It reads the streamed input along any axis: the copy into panels turns it round.
            if times > 1 or contraction.streamed.buffer is not store.buffer or not is_copy(store):
                return False
            continue
        if not isinstance(reader.body, BufferStore):
            return False
        once = _at_most_once(reader, store.buffer, loads)
        if not once and (reduces(reader) or cost > 0):
            return False
        if cost + cost_of(reader.body.value) > LARGEST:
            return False
    return times == 1 or cost <= _CHEAP


def cost_of(e: PrimExpr) -> int:
    """Operations of an expression, each counted once however often it is used."""
    total = 0
    for n in walk(e):
        if isinstance(n, Call):
            total += 1 if getattr(n.op, "name", "") in _CHEAP_CALLS else 20
        elif isinstance(n, Div):
            total += 4
        elif isinstance(n, PrimExpr) and not isinstance(n, (BufferLoad, Cast, Var)):
            # Arithmetic of indices is not told from other: it is cheap, and there is little.
            total += 1 if n._children_ else 0
    return total


def _loads(block: Block, buffer: Buffer) -> list[BufferLoad]:
    return [n for n in walk(block.body) if isinstance(n, BufferLoad) and n.buffer is buffer]


def _at_most_once(reader: Block, buffer: Buffer, loads: Iterable[BufferLoad]) -> bool:
    """Whether each of the loads reads no element in two iterations of the reader."""
    axes = {a.var: a.range.extent for a in reader.iter_vars if not is_const(a.range.extent, 1)}
    if no_more(axes.values(), buffer.shape):
        return True
    return all(axes.keys() <= {_axis(i) for i in load.indices} for load in loads)


def _axis(index: PrimExpr) -> Any:
    """The axis of ``axis``, ``axis + c`` or ``axis - c``."""
    while isinstance(index, (Add, Sub)) and isinstance(index.b, IntImm):
        index = index.a
    return index


@record
class Elementwise(Plan):
    """Loops for a block that writes each element once.

    run     how many of the innermost loops become one, where all that the block touches is one run
            of memory, so that no loop is too short for vectors; 0: none do
    splits  (axis, sizes) of loops whose axis is read in periods (tiling, repeating), which are
            split at them, so that an inner loop moves through memory evenly
    """

    run: int = 0
    splits: tuple[tuple[int, tuple[int, ...]], ...] = ()

    @classmethod
    def choose(cls, view: View, cpu: CpuModel) -> Elementwise | None:
        loops = view.by_axis
        if not loops or not view.facts.elementwise:
            return None
        axes = list(loops)
        run = run_length(view.sch, view.block, loops, axes)
        splits = []
        for k, v in enumerate(axes[: len(axes) - run if run > 1 else None]):
            periods = _periods(view.block, v)
            extent = view.extents[v]
            least = _store_lanes(view.block, cpu) if v is axes[-1] else 2
            if periods and extent is not None and _nest(periods, extent, least):
                steps = [b // a for a, b in zip([1, *periods], periods)]
                splits.append((k, tuple(reversed(steps))))
        return cls(run if run > 1 else 0, tuple(splits)) if run > 1 or splits else None

    def others(self, view: View, cpu: CpuModel) -> Iterable[Plan]:
        runs = {0, 2, self.run} if self.run else {0}
        return self.varied(run=runs, splits={(), self.splits})

    def wrong(self, view: View) -> str | None:
        loops = view.by_axis
        if not loops or not view.facts.elementwise:
            return "it does not write each element once, in loops of an axis each"
        axes = list(loops)
        if self.run == 1 or self.run > run_length(view.sch, view.block, loops, axes):
            return f"the {self.run} innermost loops are not one run of memory"
        for k, sizes in self.splits:
            if not 0 <= k < len(axes) - self.run:
                return f"axis {k} cannot be split: there are {len(axes) - self.run} that stay"
            extent, size = view.extents[axes[k]], math.prod(sizes)
            if not sizes or min(sizes) < 1 or extent is None or extent % size:
                return f"axis {k} of {extent or 'unknown size'} cannot be split into {sizes}"
        return None

    def cost(self, view: View, cpu: CpuModel) -> Cost:
        extents = [n or TYPICAL_SIZE for n in view.extents.values()]
        last = dict(self.splits).get(len(extents) - 1)
        inner = math.prod(extents[-self.run :]) if self.run else last[-1] if last else extents[-1]
        # What lies along another axis is read one by one.
        return predict(view.sweep(cpu, inner if view.transposed is None else 1), cpu)

    def apply(self, view: View) -> None:
        sch, loops = view.sch, list((view.by_axis or {}).values())
        if self.run:
            sch.fuse(*loops[-self.run :])
        for k, sizes in self.splits:
            sch.split(loops[k], [None, *sizes])


def _store_lanes(block: Block, cpu: CpuModel) -> int:
    """How many elements of the result are a vector."""
    return cpu.lanes(max(8, *(r.buffer.dtype.bits for r in block.writes)))


def _nest(periods: list[int], extent: int, least: int) -> bool:
    """Whether loops of these sizes lie in one another without a rest, none of them short."""
    sizes = [*periods, extent]
    return periods[0] >= least and all(b % a == 0 for a, b in pairwise(sizes))


def _periods(block: Block, axis: Var) -> list[int]:
    """After how many steps of the axis an index starts again or goes on: c of ``axis // c`` and
    ``axis % c``, and a * c of ``axis // a % c``; growing.
    """
    periods: set[int] = set()
    for access in (n for n in walk(block.body) if isinstance(n, (BufferLoad, BufferStore))):
        # How many steps of the axis make one step of an expression.
        steps: dict[int, int] = {id(axis): 1}
        for e in (e for index in access.indices for e in post_order(index)):
            if not isinstance(e, (FloorDiv, FloorMod)) or id(e.a) not in steps:
                continue
            if isinstance(e.b, IntImm) and e.b.value > 1:
                period = steps[id(e.a)] * e.b.value
                periods.add(period)
                steps[id(e)] = period if isinstance(e, FloorDiv) else steps[id(e.a)]
    return sorted(periods)
