"""Blocks computed where they are read, or where what they read is."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ...base import ScheduleError, record, submodules
from ...ir import Call, FloatImm, IntImm, Node, Var, walk
from ...tir import Block, BufferLoad, BufferStore
from ...tir.schedule import BlockRV, Schedule
from ...tir.schedule.analysis import is_output_block
from ...tir.schedule.plans import View
from .schedule_rule import ScheduleRule


@record(frozen=False)
class AutoInline(ScheduleRule):
    """Inline blocks that compute each element once.

    into_producer         into what they read
    into_consumer         into what reads them
    inline_const_tensor   also blocks that read nothing
    disallow_if_then_else  not those that choose by a condition
    require_injective     only blocks that read one element of each input for each of theirs
    require_ordered       only those whose axes index their inputs in their own order
    disallow_op           names of functions ("tir.exp") that are not to be computed again
    """

    into_producer: bool
    into_consumer: bool
    inline_const_tensor: bool
    disallow_if_then_else: bool
    require_injective: bool
    require_ordered: bool
    disallow_op: Sequence[str] | None = None

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        if self.allows(sch, block):
            # What is refused for one direction may be done in the other.
            if self.into_consumer and not is_output_block(sch, block):
                with contextlib.suppress(ScheduleError):
                    sch.compute_inline(block)
                    return [sch]
            if self.into_producer:
                with contextlib.suppress(ScheduleError):
                    sch.reverse_compute_inline(block)
        return [sch]

    def allows(self, sch: Schedule, block: BlockRV) -> bool:
        """Whether a block is what the options want."""
        node: Block = sch.get(block)
        if not node.iter_vars or not View(sch, block).facts.elementwise:
            return False
        if not isinstance(node.body, BufferStore):
            return False
        loads = [n for n in walk(node.body.value) if isinstance(n, BufferLoad)]
        ops = {str(getattr(n.op, "name", n.op)) for n in walk(node.body) if isinstance(n, Call)}
        if not loads and not self.inline_const_tensor:
            return False
        if self.disallow_if_then_else and "tir.if_then_else" in ops:
            return False
        if ops & set(self.disallow_op or ()):
            return False
        if self.require_injective and len({n.buffer for n in loads}) < len(
            {(n.buffer, tuple(map(str, n.indices))) for n in loads}
        ):
            return False
        return not self.require_ordered or all(_ordered(node.body, n) for n in loads)


def _ordered(store: BufferStore, load: BufferLoad) -> bool:
    """Whether the axes that index a load do so in the order in which they index the store."""
    written, read = ([v for i in n.indices for v in _axes(i)] for n in (store, load))
    shared = [v for v in read if v in written]
    return shared == sorted(shared, key=written.index)


def _axes(index: Node) -> list[Var]:
    return [n for n in walk(index) if isinstance(n, Var)]


class InlineConstantScalars(ScheduleRule):
    """Inline blocks that keep one constant."""

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        node: Block = sch.get(block)
        store = node.body
        if (
            isinstance(store, BufferStore)
            and isinstance(store.value, (IntImm, FloatImm))
            and node.init is None
            and all(isinstance(n, IntImm) and n.value == 1 for n in store.buffer.shape)
            and sch.get_consumers(block)
        ):
            with contextlib.suppress(ScheduleError):
                sch.compute_inline(block)
        return [sch]


__getattr__ = submodules(__name__)
