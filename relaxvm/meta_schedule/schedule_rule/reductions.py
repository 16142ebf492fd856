"""Reductions whose steps are shared out."""

from __future__ import annotations

from ...base import ScheduleError, record, submodules
from ...ir import IntImm
from ...tir import Block
from ...tir.schedule import BlockRV, LoopRV, Schedule
from ...tir.schedule.plans import View
from .multi_level_tiling import reuses
from .schedule_rule import ScheduleRule, loops_by_axis

RANDOM_PRODUCER = "meta_schedule.random_compute_producer"
"""On a block whose producers are computed at places that are drawn."""


@record(frozen=False)
class AddRFactor(ScheduleRule):
    """Reductions with few results, as partial ones that are reduced afterwards: along the outer
    part of the reduction, for cores, or along the inner one, for vectors; and as they are.

    max_jobs_per_core     more results than so many for each core are enough to share out
    max_innermost_factor  how large the inner part is at most; None: any
    """

    max_jobs_per_core: int = 16
    max_innermost_factor: int | None = None

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        if not self._wants(sch, block):
            return [sch]
        plain = sch.copy()
        try:
            fused, spatial = _fused_reduction(sch, block)
            parts = sch.split(
                fused, sch.sample_perfect_tile(fused, 2, self.max_innermost_factor or 1 << 30)
            )
            designs = []
            for part in parts:
                design = sch.copy()
                design.rfactor(part, spatial)
                design.annotate(block, RANDOM_PRODUCER, 1)
                designs.append(design)
        except ScheduleError:
            return [plain]
        return [*designs, plain]

    def _wants(self, sch: Schedule, block: BlockRV) -> bool:
        view = View(sch, block)
        loops = loops_by_axis(sch, block)
        if not loops or not view.facts.commutative or view.block.init is None:
            return False
        sizes = {True: 1, False: 1}
        for axis in view.block.iter_vars:
            extent = axis.range.extent
            sizes[axis.is_reduce] *= extent.value if isinstance(extent, IntImm) else 1
        reduced, results = sizes[True], sizes[False]
        if reduced <= 1:
            return False
        few = results < reduced and results <= self.max_jobs_per_core * self.cores
        return few or not reuses(sch, block)


def _fused_reduction(sch: Schedule, block: BlockRV) -> tuple[LoopRV, int]:
    """The loops that reduce as one, innermost, and how many others there are."""
    node: Block = sch.get(block)
    by_axis = loops_by_axis(sch, block) or {}
    reduced = [by_axis[a.var] for a in node.iter_vars if a.is_reduce and a.var in by_axis]
    moved = [sch.get(loop) for loop in reduced]
    spatial = [loop for loop in sch.get_loops(block) if sch.get(loop) not in moved]
    sch.reorder(*spatial, *reduced)
    return (sch.fuse(*reduced) if len(reduced) > 1 else reduced[0]), len(spatial)


__getattr__ = submodules(__name__)
