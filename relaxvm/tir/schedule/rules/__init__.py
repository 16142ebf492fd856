"""Default schedules for CPUs, chosen by what a kernel computes.

Enters: loop functions and a `CpuModel`. Leaves: the same functions with good loops. Not done here:
the primitives (`tir/schedule`), searching for better ones (`meta_schedule`).
"""

from .constant_blocks import ConstantBlocks
from .contraction import Contraction, match_contraction, tile_shape
from .default import (
    SCHEDULED,
    DefaultSchedule,
    WidenIndices,
    schedule_function,
    with_constant_blocks,
    with_constant_layouts,
)

__all__ = [
    "ConstantBlocks",
    "Contraction",
    "DefaultSchedule",
    "SCHEDULED",
    "WidenIndices",
    "match_contraction",
    "schedule_function",
    "tile_shape",
    "with_constant_blocks",
    "with_constant_layouts",
]
