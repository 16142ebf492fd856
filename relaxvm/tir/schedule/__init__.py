"""Schedules: changes of loops that leave what a loop function computes as it is.

Enters: a `PrimFunc` or a module of them. Leaves: another, with a trace of how it came about. Each
primitive proves that it is allowed, or refuses with a `ScheduleError`. Not done here: which
primitives to apply (`plans`, `meta_schedule`), lowering (`tir/transform`).
"""

from ...base import ScheduleError as ScheduleError
from ...base import submodules as _submodules
from ..index_map import IndexMap as IndexMap
from .model.primitive import PRIMITIVES as PRIMITIVES
from .model.primitive import BlockRV as BlockRV
from .model.primitive import ExprRV as ExprRV
from .model.primitive import LoopRV as LoopRV
from .model.primitive import Primitive as _Primitive
from .model.scopes import BlockScope as BlockScope
from .model.scopes import Dependency as Dependency
from .model.scopes import DepKind as DepKind
from .model.scopes import ScheduleState as ScheduleState
from .model.state import Path as _Path
from .model.state import ScheduleDebugMask as ScheduleDebugMask
from .model.trace import Instruction as Instruction
from .model.trace import Trace as Trace
from .primitives.intrin import TensorIntrin as TensorIntrin
from .primitives.intrin import builtins_replaced as builtins_replaced
from .schedule import Schedule as Schedule

SBlockRV = BlockRV
InstructionKind = _Primitive
StmtSRef = _Path

# It asks the room above this one about the CPU.
__getattr__ = _submodules(
    __name__,
    {"relaxvm.target": "default_schedule plans_of", "plans": "Plan apply_plan plan_from_json"},
    files="analysis",
)
