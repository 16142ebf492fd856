"""Schedule rules: how the blocks of a function may be scheduled, with what is left open drawn.

Enters: a schedule and a block of it. Leaves: schedules to go on with, whose traces have sampling
instructions. Not done here: in which order blocks and rules come (`space_generator`), what is drawn
(`trace_space`), and the plans of default schedules (`space`).
"""

from functools import partial as _partial

from ...base import submodules as _submodules
from .auto_inline import AutoInline as AutoInline
from .auto_inline import InlineConstantScalars as InlineConstantScalars
from .custom import ApplyCustomRule as ApplyCustomRule
from .finishing import ParallelizeVectorizeUnroll as ParallelizeVectorizeUnroll
from .finishing import RandomComputeLocation as RandomComputeLocation
from .for_gpus import AutoBind as AutoBind
from .for_gpus import CrossThreadReduction as CrossThreadReduction
from .multi_level_tiling import MultiLevelTiling as MultiLevelTiling
from .multi_level_tiling import MultiLevelTilingWideVector as MultiLevelTilingWideVector
from .multi_level_tiling import MultiLevelTilingWithIntrin as MultiLevelTilingWithIntrin
from .multi_level_tiling import ReuseType as ReuseType
from .reductions import AddRFactor as AddRFactor
from .schedule_rule import KINDS as _KINDS
from .schedule_rule import PyScheduleRule as PyScheduleRule
from .schedule_rule import ScheduleRule as ScheduleRule

create = ScheduleRule.create
_KINDS["llvm"] = _KINDS["cpu"] = _KINDS["c"] = [
    ApplyCustomRule,
    InlineConstantScalars,
    _partial(AutoInline, False, True, True, True, True, True, ["tir.exp"]),
    _partial(AddRFactor, 16, 64),
    _partial(MultiLevelTiling, "SSRSRS", None, 64, None, None, ReuseType("may", [1, 2], "local")),
    _partial(ParallelizeVectorizeUnroll, 16, 64, (0, 16, 64, 512)),
    RandomComputeLocation,
]

__getattr__ = _submodules(__name__)
