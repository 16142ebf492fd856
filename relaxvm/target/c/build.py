"""`compile_kernels` for targets of kind "c": loop functions as C, compiled by the system's compiler
where there is one.

The virtual machine enters kernels by LLVM's wrappers, which check the arguments; what they call is
the C function.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ...base import RelaxvmError, add_note, record
from ...ir import GlobalVar, IRModule, PassContext
from ...ir.transform import Pass
from ...runtime import KernelInfo, KernelSection, NativeCode
from ...tir import PrimFunc
from ..llvm import Kernels, host_machine, machine_of
from ..llvm.codegen import Generator, generate
from ..llvm.machine import compile_glue, has_symbol, producer
from ..llvm.portable import pack_portable
from ..llvm.units import Settings, exported_functions, finish_unit, prepare, split
from ..target import Target
from .compiler import HOW_TO_GET_ONE, compile_object, find_compiler
from .entry import write_library
from .module import ModuleText, unique_names

# Loops stay loops, with hints: C's compilers make vectors of them, for the machine that they know.
# Elementary functions are the C library's, unless somebody asks for formulas.
_CONFIG = {"tir.VectorizeLoop.explicit_vectors": False}
_DEFAULTS = {"tir.math_formulas": False, "tir.UnrollLoop.explicit_unroll": False}


@record
class Sources(Mapping[str, str]):
    """The texts of a library by format.

    c        the kernels        h  their header        entries  the checked entries
    makefile what makes a library of them

    files        the same by the names of files
    entry_names  what the entry of each kernel is called in C
    """

    files: Mapping[str, str]
    entry_names: Mapping[str, str]

    def __getitem__(self, name: str) -> str:
        return self.files[_FILES[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(_FILES)

    def __len__(self) -> int:
        return len(_FILES)


_FILES = {"c": "kernels.c", "h": "kernels.h", "entries": "entries.c", "makefile": "Makefile"}


def compile_kernels(mod: IRModule, target: Target, schedule: Pass | None = None) -> Kernels:
    """The loop functions of `mod` as kernels whose code a C compiler made, and as C.

    Without a C compiler, or where code calls C functions that this process lacks, there are only
    sources: a RuntimeWarning says so, and running the kernels is an error.

    Raises VerifyError for functions that are not well formed, CodegenError for what C has no code
    for.
    """
    try:
        loops = {gv: fn for gv, fn in mod.items() if isinstance(fn, PrimFunc)}
        return _compile(mod.clone(functions=loops), target, schedule)
    except RelaxvmError as error:
        add_note(error, f"while compiling the kernels for {target}")
        raise


def _compile(mod: IRModule, target: Target, schedule: Pass | None) -> Kernels:
    settings = Settings(machine_of(target))
    current = settings.context
    config = {**_DEFAULTS, **current.config, **_CONFIG}
    with PassContext(
        current.opt_level, current.required_pass, current.disabled_pass, None, config
    ) as within:
        # They see what they would see of any module, but no second context.
        within.instruments = current.instruments
        try:
            # Of a machine of which nothing is known: the C shall run on others, too.
            plain = Settings(replace(settings.machine, cpu="", features=""), schedule=schedule)
            scheduled, lowered = prepare(mod, plain)
        finally:
            within.instruments = []
    text, generated = _generated(mod, lowered, settings)
    objects = _objects(text, generated, settings)
    infos, portable = generated.infos, b""
    native: tuple[NativeCode, ...] = ()
    if objects:
        machine = settings.machine
        made_by = f"{producer()}, C"
        native = (
            NativeCode(
                *(machine.triple, machine.cpu, machine.features, objects[0], made_by),
                more=tuple(objects[1:]),
            ),
        )
        # Without names there is nothing to compile of a unit.
        units = [
            (u, finish_unit(replace(u, names={}), plain, scheduled, lowered).result)
            for u in split(mod)
        ]
        portable = pack_portable(units)
    section = KernelSection(infos, portable, native)
    inner = {gv.name_hint: generated.inner(gv) for gv in _exported(generated, infos)}
    return Kernels(section, inner, Sources(*write_library(text, generated)), settings, None)


def _generated(
    mod: IRModule, lowered: IRModule, settings: Settings
) -> tuple[ModuleText, Generator]:
    text = ModuleText()
    names = unique_names(lowered)
    text.functions_named |= {f"relaxvm_inner_{name}" for name in names.values()}
    generated = generate(
        lowered,
        exported_functions(mod),
        settings.machine,
        symbols=names,
        define=text.add,
    )
    return text, generated


def _exported(generated: Generator, infos: tuple[KernelInfo, ...]) -> list[GlobalVar]:
    names = {info.name for info in infos}
    return [gv for gv in generated.functions if gv.name_hint in names]


def _objects(text: ModuleText, generated: Generator, settings: Settings) -> list[bytes]:
    """The kernels and their wrappers as object code; nothing where that cannot be made."""
    machine = settings.machine
    if not generated.infos or machine.triple != host_machine().triple:
        return []
    missing = sorted(name for name in text.externs if not has_symbol(name))
    compiler = find_compiler()
    if missing or compiler is None:
        why = f"this process has no C function {', '.join(missing)}"
        if compiler is None:
            why = f"no C compiler was found (tried CC, cc, gcc, clang): {HOW_TO_GET_ONE}"
        warnings.warn(
            f"target c: the kernels are made as sources only and cannot run here: {why}",
            RuntimeWarning,
            stacklevel=2,
        )
        return []
    return [
        compile_object(text.text(), compiler, machine),
        compile_glue(generated.wrappers.text(), machine),
    ]
