"""From loop functions to machine code.

Enters: `IRModule`s of PrimFuncs and a `Target`. Leaves: `runtime.KernelSection` (object code and
its description) and `runtime.Module`. Not done here: choosing loops (`tir/schedule`), running code
(`runtime`).
"""

from ..base import submodules
from .build import build, default_schedule
from .cpu import cpu_model
from .llvm import compile_kernels, compile_prim_funcs, compile_program, rebuild_kernels
from .target import Target, TargetKind

__getattr__ = submodules(__name__)

__all__ = [
    "Target",
    "TargetKind",
    "build",
    "compile_kernels",
    "compile_prim_funcs",
    "compile_program",
    "cpu_model",
    "default_schedule",
    "rebuild_kernels",
]
