"""Which code generator compiles for a kind of target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base import CodegenError, PassError
from ..ir import IRModule
from ..ir.transform import Pass
from . import c, llvm
from .llvm import Kernels
from .target import KINDS, Target

# (loop functions, target, what schedules them or None) -> kernels
CodeGenerator = Callable[[IRModule, Target, "Pass | None"], Kernels]
_GENERATORS: dict[str, CodeGenerator] = {"llvm": llvm.compile_kernels}
_GENERATORS["c"] = lambda *given: c.compile_kernels(*given)


def code_generator(kind: str) -> Callable[[CodeGenerator], CodeGenerator]:
    """Decorator: targets named `kind` are compiled by this function, in `relaxvm.build` and in
    `relax.build`; registered again, it takes the place of the older one.

    It takes the loop functions of a module, the `Target` with its options, and the pass that gives
    them schedules, or None where they stay as they are; it gives `Kernels`. Raises PassError for
    "llvm" and "c", and for names that are not identifiers.
    """
    if kind in ("llvm", "c") or not kind.isidentifier():
        raise PassError(f"code_generator: wanted a name that is free, such as mine, got {kind!r}")

    def register(generator: CodeGenerator) -> CodeGenerator:
        if kind not in KINDS:
            KINDS.append(kind)
        _GENERATORS[kind] = generator
        return generator

    return register


def compile_kernels(mod: IRModule, target: Any = None, schedule: Pass | None = None) -> Kernels:
    """The loop functions of `mod` compiled by the code generator of `target`.

    schedule  `DefaultSchedule`, or None for functions that stay as they are

    Raises VerifyError for functions that are not well formed, CodegenError for what the target has
    no code for.
    """
    target = Target.or_current(target)
    kernels = _GENERATORS[target.kind_name](mod, target, schedule)
    if not isinstance(kernels, Kernels):
        raise CodegenError(
            f"the code generator of {target.kind_name} gave {type(kernels).__name__}, not Kernels"
        )
    return kernels
