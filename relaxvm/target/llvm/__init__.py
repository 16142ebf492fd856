"""Code generation through LLVM.

Enters: loop functions and a target. Leaves: a `KernelSection`, LLVM or assembly text.
Not done here: choosing loops (`tir/schedule`), running code (`runtime`).
"""

from .build import (
    Kernels,
    compile_kernels,
    compile_prim_funcs,
    compile_program,
    generate_llvm,
    machine_of,
    rebuild_kernels,
)
from .dot_units import dot_units, vector_units
from .machine import Machine, compile_text, host_machine

__all__ = [
    "Kernels",
    "Machine",
    "compile_kernels",
    "compile_prim_funcs",
    "compile_program",
    "compile_text",
    "dot_units",
    "generate_llvm",
    "host_machine",
    "machine_of",
    "rebuild_kernels",
    "vector_units",
]
