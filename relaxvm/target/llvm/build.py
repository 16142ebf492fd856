"""From loop functions to a `KernelSection`: units, compiled now or taken from the disk, and the
functions of the virtual machine that call them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgpack

from ...base import LoadError, RelaxvmError, add_note, record
from ...ir import IRModule, PassContext
from ...ir.transform import Pass
from ...runtime import (
    CompiledCode,
    KernelSection,
    NativeCode,
    Program,
    verify_program,
    without_contents,
)
from ...tir import PrimFunc
from ..target import Target
from .codegen import Generator, InnerKernel
from .machine import (
    Machine,
    compile_glue,
    compile_text,
    host_machine,
    machine_of,
    producer,
)
from .module import ModuleText
from .net import prepare as prepare_llvm
from .portable import pack_portable, unpack_portable
from .support import compile_support, objects
from .units import CompiledUnit, Settings, Unit, finish_unit, generate_module, prepare, split
from .vm_program import compile_functions
from .workers import compile_units

MAX_PORTABLE_BYTES = 1 << 28
# What well-typed nodes lead to in places where no builder of ours would put them.
_MISPLACED = (
    TypeError,
    ValueError,
    AttributeError,
    LookupError,
    AssertionError,
    RecursionError,
    ArithmeticError,
    MemoryError,
)
# Machines whose CPython has the layouts of `runtime.pyabi`.
_64_BITS = ("x86_64", "amd64", "aarch64", "arm64", "riscv64", "ppc64le", "powerpc64le")
_P = TypeVar("_P", bound=Program)


class Sources(Mapping[str, str]):
    """The texts of a compiled module by format, made when they are asked for.

    llvm  after LLVM's passes        asm  assembly        ll  as generated

    They show all functions in one module, under symbols without the numbers that tell units apart.
    """

    __slots__ = ("_generated", "_mod", "_settings", "_texts")

    def __init__(self, mod: IRModule, settings: Settings) -> None:
        self._mod, self._settings = mod, settings
        self._generated: Generator | None = None
        self._texts: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        if name not in ("llvm", "asm", "ll"):
            raise KeyError(name)
        if self._generated is None:
            self._generated = generate_module(self._mod, self._settings)
            self._texts["ll"] = self._generated.text((self._generated.wrappers,))
        if name not in self._texts:
            machine, wrappers = self._settings.machine, self._generated.wrappers.text()
            compiled = compile_text(self._generated.text(), machine, ("llvm", "asm"), wrappers)
            self._texts |= {"llvm": compiled.llvm, "asm": compiled.asm}
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(("llvm", "asm", "ll"))

    def __len__(self) -> int:
        return 3


@record
class Kernels:
    """Compiled loop functions.

    section  what a program holds of them
    inner    how its own functions call them, by name
    sources  their texts by format
    """

    section: KernelSection
    inner: Mapping[str, InnerKernel]
    sources: Mapping[str, str]
    _settings: Settings
    _key: str | None


def compile_prim_funcs(mod: IRModule, target: Any = None) -> KernelSection:
    """The loop functions of `mod` as kernels, named by their global names; other functions are
    left out.

    Raises VerifyError for functions that are not well formed, CodegenError for what LLVM has no
    code for.
    """
    return compile_kernels(mod, target).section


def compile_kernels(mod: IRModule, target: Any = None, schedule: Pass | None = None) -> Kernels:
    """The loop functions of `mod`, each unit of them scheduled, lowered by LOWER_TIR and compiled,
    or found on disk.

    schedule  `DefaultSchedule`, or None for functions that stay as they are

    Raises what `compile_prim_funcs` raises.
    """
    target = Target.or_current(target)
    try:
        return _compile(_loop_functions(mod), Settings(machine_of(target), schedule=schedule))
    except RelaxvmError as error:
        add_note(error, f"while compiling the kernels for {target}")
        raise


def compile_program(program: _P, kernels: Kernels) -> _P:
    """A verified program, whose kernels are `kernels`, with machine code for its own functions
    too.
    """
    machine = kernels._settings.machine
    runs = kernels.section.native or not kernels.section.infos
    runs = runs and machine.triple.split("-")[0] in _64_BITS
    compiled = _compile_functions(program, kernels) if runs else None
    if compiled is None:
        return program
    functions, code = compiled
    section = kernels.section
    objects = [each for native in section.native for each in native.objects]
    native = _native(machine, (code, compile_support(machine), *objects), functions)
    return program.with_kernels(KernelSection(section.infos, section.portable, native))


def _native(
    machine: Machine, objects: Sequence[bytes], functions: CompiledCode | None = None
) -> tuple[NativeCode, ...]:
    if not objects:
        return ()
    first, *more = objects
    made_by = producer()
    return (
        NativeCode(
            machine.triple, machine.cpu, machine.features, first, made_by, functions, tuple(more)
        ),
    )


def _compile_functions(program: Program, kernels: Kernels) -> tuple[CompiledCode, bytes] | None:
    """The compiled functions of `program`, if it has any, and their object."""
    settings, whole = kernels._settings, None
    machine = settings.machine
    if kernels._key is not None:
        # A kernel's symbol follows from what it is; its signature, from that and the settings.
        called = [(name, k.symbol, k.failures, k.threads) for name, k in kernels.inner.items()]
        made_of = repr(("functions", kernels._key, machine, called))
        whole = made_of.encode() + b"\0" + without_contents(program)
    data = None if whole is None else objects.get(whole)
    if data is not None:
        plain, code = msgpack.unpackb(data, strict_map_key=False)
        return CompiledCode.from_plain(plain), code
    text = ModuleText(machine, settings.confined)
    functions = compile_functions(text, program, kernels.inner)
    if functions is None:
        return None
    code = compile_glue(text.text(), machine)
    if whole is not None:
        objects.put(whole, msgpack.packb([functions.to_plain(), code], use_bin_type=True))
    return functions, code


def _compile(mod: IRModule, settings: Settings) -> Kernels:
    units, key = split(mod), settings.key()
    if settings.context.instruments:
        # They see what they would see of any module.
        scheduled, lowered = prepare(mod, settings)
        compiled = [finish_unit(unit, settings, scheduled, lowered).compiled() for unit in units]
    else:
        compiled = _compile_or_find(units, settings, key)
    pairs = list(zip(units, compiled))
    for unit, unit_code in pairs:
        unit_code.tell(unit)
    kernels = {info.name: (info, k) for u, c in pairs for info, k in c.kernels(u)}
    names = [gv.name_hint for gv in mod if gv.name_hint in kernels]
    infos = tuple(kernels[name][0] for name in names)
    native = _native(settings.machine, [c.object for c in compiled if c.object])
    return Kernels(
        KernelSection(infos, pack_portable(pairs), native),
        {name: kernels[name][1] for name in names},
        Sources(mod, settings),
        settings,
        key,
    )


def _compile_or_find(units: list[Unit], settings: Settings, key: str | None) -> list[CompiledUnit]:
    here = settings.machine.triple == host_machine().triple
    compiled: dict[int, CompiledUnit] = {}
    if key is not None:
        for i, unit in enumerate(units):
            data = objects.get(unit.key(key))
            unit_code = None if data is None else CompiledUnit.from_bytes(data)
            if unit_code is not None and (not here or unit_code.runs_here()):
                compiled[i] = unit_code
    missing = [i for i in range(len(units)) if i not in compiled]
    if missing:
        prepare_llvm()
    for i, unit_code in zip(missing, compile_units([units[i] for i in missing], settings)):
        compiled[i] = unit_code
        if key is not None:
            objects.put(units[i].key(key), unit_code.to_bytes())
    return [compiled[i] for i in range(len(units))]


def generate_llvm(mod: IRModule, target: Any = None) -> str:
    """The LLVM assembly of the loop functions of `mod`, before LLVM's own passes."""
    return Sources(_loop_functions(mod), Settings(machine_of(target)))["ll"]


def rebuild_kernels(
    portable: bytes, names: tuple[str, ...], program: Program | None = None
) -> KernelSection:
    """The kernels `names` from the portable form in a file, for this computer, and the functions
    of `program`, if it is given.

    Nothing in `portable` is trusted: the result touches no memory but its arguments and its own,
    whatever the bytes say. Raises LoadError (or another RelaxvmError) for bytes that give no such
    kernels.
    """
    if type(portable) is not bytes or len(portable) > MAX_PORTABLE_BYTES:
        raise LoadError(f"portable kernels: wanted at most {MAX_PORTABLE_BYTES} bytes")
    mod = unpack_portable(portable)
    try:
        with PassContext(config={"tir.instrument_bound_checkers": True}):
            kernels = _compile(mod, Settings(host_machine(), confined=True))
    except RelaxvmError:
        raise
    except _MISPLACED as error:
        raise LoadError(
            f"portable kernels: not a valid module ({type(error).__name__}: {error})"
        ) from error
    infos = {info.name: info for info in kernels.section.infos}
    missing = [name for name in names if name not in infos]
    if missing:
        raise LoadError(f"portable kernels: {', '.join(missing)[:200]} are not among them")
    section = KernelSection(tuple(infos[name] for name in names), portable, kernels.section.native)
    if program is None:
        return section
    # The file may lie about its kernels; the functions are compiled for those that were made.
    rebuilt = Program(program.functions, program.constants, program.code, section)
    verify_program(rebuilt)
    rebuilt = compile_program(rebuilt, replace(kernels, section=section))
    assert rebuilt.kernels is not None
    return rebuilt.kernels


def _loop_functions(mod: IRModule) -> IRModule:
    only = mod.clone(functions={})
    for gv, fn in mod.items():
        if isinstance(fn, PrimFunc):
            only[gv] = fn
    return only
