"""Rules for threads of GPUs. Code is made for CPUs here, so that they leave schedules alone; they
are accepted in lists of rules that were written for several targets.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...base import record, submodules
from ...tir.schedule import BlockRV, Schedule
from .schedule_rule import ScheduleRule


@record(frozen=False)
class AutoBind(ScheduleRule):
    """Bind loops to blocks and threads of a GPU; on a CPU, nothing."""

    max_threadblocks: int = 256
    thread_extents: Sequence[int] | None = None
    max_threads_per_block: int = -1

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        return [sch]


@record(frozen=False)
class CrossThreadReduction(ScheduleRule):
    """Share the steps of a reduction among the threads of a GPU; on a CPU, nothing (`AddRFactor`
    does so there).
    """

    thread_extents: Sequence[int]

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        return [sch]


__getattr__ = submodules(__name__)
