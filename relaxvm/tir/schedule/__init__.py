"""Schedules: changes of loops that leave what a loop function computes as it is.

Enters: a `PrimFunc` or a module of them. Leaves: another, with a trace of how it came about. Each
primitive proves that it is allowed, or refuses with a `ScheduleError`. Not done here: which
primitives to apply (`rules`, `meta_schedule`), lowering (`tir/transform`).
"""

from ...base import ScheduleError, submodules
from .index_map import IndexMap
from .intrin import TensorIntrin, builtins_replaced
from .primitive import PRIMITIVES, BlockRV, ExprRV, LoopRV
from .schedule import Schedule
from .state import Path as StmtSRef
from .state import State as ScheduleState
from .trace import Instruction, Trace

SBlockRV = BlockRV

# It asks the room above this one about the CPU.
__getattr__ = submodules(__name__, {"relaxvm.target": "default_schedule"})

__all__ = [
    "PRIMITIVES",
    "BlockRV",
    "ExprRV",
    "IndexMap",
    "Instruction",
    "LoopRV",
    "SBlockRV",
    "Schedule",
    "ScheduleError",
    "ScheduleState",
    "StmtSRef",
    "TensorIntrin",
    "Trace",
    "builtins_replaced",
]
