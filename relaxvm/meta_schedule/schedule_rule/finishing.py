"""What is drawn for a whole function: how it is shared out, and where its blocks are computed."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ...base import ScheduleError, record, submodules
from ...tir import Block
from ...tir.schedule import BlockRV, Schedule
from ...tir.schedule.analysis import is_output_block
from .multi_level_tiling import TILED
from .reductions import RANDOM_PRODUCER
from .schedule_rule import ScheduleRule

PARALLEL = "meta_schedule.parallel"
VECTORIZE = "meta_schedule.vectorize"
UNROLL = {True: "meta_schedule.unroll_explicit", False: "meta_schedule.unroll_implicit"}
"""On the root block: what `postproc.RewriteParallelVectorizeUnroll` does below it."""


@record(frozen=False)
class ParallelizeVectorizeUnroll(ScheduleRule):
    """How the nests of a function are finished: a remark on its root.

    max_jobs_per_core     jobs are at most so many times the cores; -1: not on several cores
    max_vectorize_extent  how many iterations a vector loop has at most; -1: none
    unroll_max_steps      of which one is drawn: loops of at most so many steps are written out
    unroll_explicit       written out before LLVM sees them, else left for it
    """

    max_jobs_per_core: int = 16
    max_vectorize_extent: int = 16
    unroll_max_steps: Sequence[int] | None = None
    unroll_explicit: bool = True

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        if sch.get_sref(block).scope is not None:
            return [sch]
        if self.max_jobs_per_core != -1:
            sch.annotate(block, PARALLEL, self.max_jobs_per_core * self.cores)
        if self.max_vectorize_extent != -1:
            sch.annotate(block, VECTORIZE, self.max_vectorize_extent)
        if self.unroll_max_steps:
            steps = list(self.unroll_max_steps)
            drawn = sch.sample_categorical(steps, [1.0 / len(steps)] * len(steps))
            sch.annotate(block, UNROLL[self.unroll_explicit], drawn)
        return [sch]


class RandomComputeLocation(ScheduleRule):
    """Compute blocks at a place that is drawn among the loops of what reads them."""

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        node: Block = sch.get(block)
        blocks = [block]
        if RANDOM_PRODUCER in node.annotations:
            sch.unannotate(block, RANDOM_PRODUCER)
            blocks += sch.get_producers(block)
        for each in blocks:
            movable = sch.get_sref(each).scope is not None and not is_output_block(sch, each)
            if movable and TILED not in sch.get(each).annotations:
                with contextlib.suppress(ScheduleError), sch.attempt():
                    place = sch.sample_compute_location(each)
                    sch.compute_at(each, place, preserve_unit_loops=True)
        return [sch]


__getattr__ = submodules(__name__)
