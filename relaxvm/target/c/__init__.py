"""Code generation as C99.

Enters: loop functions and a target of kind "c". Leaves: C files that need no relaxvm, and a
`KernelSection` whose code the system's C compiler made. Not done here: choosing loops
(`tir/schedule`), wrappers for the virtual machine (`target/llvm`), running code (`runtime`).
"""

from ...base import submodules as _submodules

# Late: most programs never ask for it.
_LATER = {
    "build": "compile_kernels",
    "compiler": "find_compiler",
    "parameters": "with_graph with_parameters",
}
__getattr__ = _submodules(__name__, _LATER)
