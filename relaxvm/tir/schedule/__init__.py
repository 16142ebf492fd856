"""Schedules: changes of loops that leave what a loop function computes as it is.

Enters: a `PrimFunc` or a module of them. Leaves: another, with a trace of how it came about. Each
primitive proves that it is allowed, or refuses with a `ScheduleError`. Not done here: which
primitives to apply (`rules`, `meta_schedule`), lowering (`tir/transform`).
"""

from ...base import ScheduleError as ScheduleError
from ...base import submodules as _submodules
from ..index_map import IndexMap as IndexMap
from .intrin import TensorIntrin as TensorIntrin
from .intrin import builtins_replaced as builtins_replaced
from .primitive import PRIMITIVES as PRIMITIVES
from .primitive import BlockRV as BlockRV
from .primitive import ExprRV as ExprRV
from .primitive import LoopRV as LoopRV
from .primitive import Primitive as _Primitive
from .schedule import Schedule as Schedule
from .scopes import BlockScope as BlockScope
from .scopes import Dependency as Dependency
from .scopes import DepKind as DepKind
from .scopes import ScheduleState as ScheduleState
from .state import Path as _Path
from .state import ScheduleDebugMask as ScheduleDebugMask
from .trace import Instruction as Instruction
from .trace import Trace as Trace

SBlockRV = BlockRV
InstructionKind = _Primitive
StmtSRef = _Path

# It asks the room above this one about the CPU.
__getattr__ = _submodules(
    __name__,
    {"relaxvm.target": "default_schedule plans_of", "rules": "Plan apply_plan plan_from_json"},
)
