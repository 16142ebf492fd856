"""From loop functions to machine code.

Enters: `IRModule`s of PrimFuncs and a `Target`. Leaves: `runtime.KernelSection` (object code and
its description) and `runtime.Module`. Not done here: choosing loops (`tir/schedule`), running code
(`runtime`).
"""

from ..base import submodules as _submodules
from .build import build as build
from .build import default_schedule as default_schedule
from .build import plans_of as plans_of
from .codegen_kinds import code_generator as code_generator
from .codegen_kinds import compile_kernels as compile_kernels
from .cpu import cpu_model as cpu_model
from .llvm import Kernels as Kernels
from .llvm import Worker as Worker
from .llvm import WorkerLost as WorkerLost
from .llvm import compile_ahead as compile_ahead
from .llvm import compile_prim_funcs as compile_prim_funcs
from .llvm import compile_program as compile_program
from .llvm import has_python as has_python
from .llvm import in_this_process as in_this_process
from .llvm import llvm_at_hand as llvm_at_hand
from .llvm import machine_of as machine_of
from .llvm import pipes as pipes
from .llvm import rebuild_kernels as rebuild_kernels
from .llvm import receive as receive
from .llvm import send as send
from .llvm import support_at_hand as support_at_hand
from .llvm import worker_at_hand as worker_at_hand
from .target import Target as Target
from .target import TargetKind as TargetKind

__getattr__ = _submodules(__name__)
