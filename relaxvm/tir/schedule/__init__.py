"""Schedules: changes of loops that leave what a loop function computes as it is.

Enters: a `PrimFunc` or a module of them. Leaves: another, with a trace of how it came about. Each
primitive proves that it is allowed, or refuses with a `ScheduleError`. Not done here: which
primitives to apply (`rules`, `meta_schedule`), lowering (`tir/transform`).
"""

from ...base import ScheduleError, submodules
from .index_map import IndexMap
from .intrin import TensorIntrin, builtins_replaced
from .primitive import PRIMITIVES, BlockRV, ExprRV, LoopRV
from .primitive import Primitive as InstructionKind
from .schedule import Schedule
from .scopes import BlockScope, Dependency, DepKind, ScheduleState
from .state import Path as StmtSRef
from .state import ScheduleDebugMask
from .trace import Instruction, Trace

SBlockRV = BlockRV

# It asks the room above this one about the CPU.
__getattr__ = submodules(__name__, {"relaxvm.target": "default_schedule"})

__all__ = [
    "PRIMITIVES",
    "BlockRV",
    "BlockScope",
    "DepKind",
    "Dependency",
    "ExprRV",
    "IndexMap",
    "Instruction",
    "InstructionKind",
    "LoopRV",
    "SBlockRV",
    "Schedule",
    "ScheduleDebugMask",
    "ScheduleError",
    "ScheduleState",
    "StmtSRef",
    "TensorIntrin",
    "Trace",
    "builtins_replaced",
]
