"""From loop functions to a `KernelSection`: verify, lower, generate, optimise, emit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ...base import CodegenError, LoadError, RelaxvmError
from ...ir import GlobalVar, IRModule, PassContext, load_msgpack, save_msgpack
from ...runtime.compiled_code import CompiledCode
from ...runtime.disk_cache import DiskCache
from ...runtime.kernel import KernelSection, NativeCode
from ...runtime.program import Program
from ...runtime.verify import verify_program
from ...tir import PrimFunc
from ...tir.analysis import verify_well_formed
from ...tir.transform import lower_module
from ..target import Target
from .codegen import Generated, generate
from .machine import Machine, canonical_features, compile_text, has_symbol, host_machine, producer
from .vm_program import compile_functions

__all__ = [
    "Kernels",
    "compile_kernels",
    "compile_prim_funcs",
    "compile_program",
    "generate_llvm",
    "machine_of",
    "rebuild_kernels",
]

MAX_PORTABLE_BYTES = 1 << 28
# Machines whose CPython has the layouts of `runtime.pyabi`.
_64_BITS = ("x86_64", "amd64", "aarch64", "arm64", "riscv64", "ppc64le", "powerpc64le")
_P = TypeVar("_P", bound=Program)
_DEFAULT_OPT_LEVEL = 2
# Object code by what LLVM is given: a second build of a model does not wait for LLVM.
_objects = DiskCache("objects", 1 << 29)


class Sources(Mapping[str, str]):
    """The texts of a compiled module by format, made when they are asked for.

    llvm  after LLVM's passes        asm  assembly        ll  as generated
    """

    __slots__ = ("_machine", "_text", "_texts")

    def __init__(self, text: str, machine: Machine) -> None:
        self._text, self._machine = text, machine
        self._texts: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        if name == "ll":
            return self._text
        if name not in ("llvm", "asm"):
            raise KeyError(name)
        if not self._texts:
            compiled = compile_text(self._text, self._machine, ("llvm", "asm"))
            self._texts = {"llvm": compiled.llvm, "asm": compiled.asm}
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(("llvm", "asm", "ll"))

    def __len__(self) -> int:
        return 3


@dataclass(frozen=True)
class Kernels:
    """Compiled kernels, and their texts by format."""

    section: KernelSection
    sources: Mapping[str, str]


def machine_of(target: Any = None) -> Machine:
    """What a target means to LLVM. Without options it is this computer, with all its features."""
    target = Target("llvm") if target is None else Target(target)
    here = host_machine()
    triple = str(target.options.get("mtriple", here.triple))
    level = int(target.options.get("opt-level", _DEFAULT_OPT_LEVEL))
    if not 0 <= level <= 3:
        raise CodegenError(f"target {target}: opt-level is 0 to 3, got {level}")
    is_here = triple == here.triple
    cpu = target.mcpu or (here.cpu if is_here else "")
    if any(c in cpu + triple for c in '\0\n"\\'):
        raise CodegenError(f"target {target}: no such CPU or triple")
    features: list[str] = []
    if is_here and cpu in (here.cpu, "native"):
        cpu = here.cpu
        features = here.features.split(",")
    return Machine(triple, cpu, canonical_features([*features, *target.mattr]), level)


def compile_prim_funcs(mod: IRModule, target: Any = None) -> KernelSection:
    """The loop functions of `mod` as kernels, named by their global names; other functions are
    left out.

    Raises VerifyError for functions that are not well formed, CodegenError for what LLVM has no
    code for.
    """
    return compile_kernels(mod, target).section


def compile_kernels(mod: IRModule, target: Any = None) -> Kernels:
    """`compile_prim_funcs` with the texts."""
    only = _loop_functions(mod)
    machine = machine_of(target)
    portable = save_msgpack(only, spans=False)
    generated = _generate(only, machine, confined=False)
    text = generated.text
    native = (_emit(text, machine),) if generated.infos else ()
    return Kernels(KernelSection(generated.infos, portable, native), Sources(text, machine))


def compile_program(
    mod: IRModule,
    target: Any,
    assemble: Callable[[KernelSection | None], _P],
    functions_too: bool = True,
) -> _P:
    """A program and its machine code: the loop functions of `mod`, and the program's own.

    assemble       makes the verified program, given a kernel section that has no code yet (None
                   if there are no kernels)
    functions_too  False leaves the program's own functions to the interpreter

    Raises what `compile_prim_funcs` raises.
    """
    only = _loop_functions(mod)
    machine = machine_of(target)
    portable = save_msgpack(only, spans=False)
    generated = _generate(only, machine, confined=False)
    section = KernelSection(generated.infos, portable, ())
    program = assemble(section if generated.infos else None)
    functions = None
    if functions_too and machine.triple.split("-")[0] in _64_BITS:
        functions = compile_functions(generated.generator, program)
    if generated.infos or functions is not None:
        native = _emit(generated.text, machine, functions)
        program.kernels = KernelSection(generated.infos, portable, (native,))
    return program


def _emit(text: str, machine: Machine, functions: CompiledCode | None = None) -> NativeCode:
    key = repr((producer(), machine, text)).encode()
    code = _objects.get(key)
    if code is None:
        code = compile_text(text, machine).object
        _objects.put(key, code)
    return NativeCode(machine.triple, machine.cpu, machine.features, code, producer(), functions)


def generate_llvm(mod: IRModule, target: Any = None) -> str:
    """The LLVM assembly of the loop functions of `mod`, before LLVM's own passes."""
    return _generate(_loop_functions(mod), machine_of(target), confined=False).text


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
    mod = load_msgpack(portable) if portable else IRModule({})
    if not isinstance(mod, IRModule):
        raise LoadError(f"portable kernels: wanted a module, got {type(mod).__name__}")
    strange = [gv.name_hint for gv, fn in mod.items() if not isinstance(fn, PrimFunc)]
    if strange:
        raise LoadError(f"portable kernels: {', '.join(strange)[:200]} are no loop functions")
    machine = host_machine()
    try:
        with PassContext(config={"tir.instrument_bound_checkers": True}):
            generated = _generate(mod, machine, confined=True)
    except RelaxvmError:
        raise
    except (
        TypeError,
        ValueError,
        AttributeError,
        KeyError,
        IndexError,
        AssertionError,
        RecursionError,
        ArithmeticError,
        MemoryError,
    ) as error:
        # Well-typed nodes in places where no builder of ours would put them.
        raise LoadError(
            f"portable kernels: not a valid module ({type(error).__name__}: {error})"
        ) from error
    infos = {info.name: info for info in generated.infos}
    missing = [name for name in names if name not in infos]
    if missing:
        raise LoadError(f"portable kernels: {', '.join(missing)[:200]} are not among them")
    chosen = tuple(infos[name] for name in names)
    functions = None
    if program is not None and machine.triple.split("-")[0] in _64_BITS:
        # The file may lie about its kernels; the functions are compiled for those that were made.
        section = KernelSection(chosen, portable, ())
        rebuilt = Program(program.functions, program.constants, program.code, section)
        verify_program(rebuilt)
        functions = compile_functions(generated.generator, rebuilt)
    native = _emit(generated.text, machine, functions)
    return KernelSection(chosen, portable, (native,))


def _loop_functions(mod: IRModule) -> IRModule:
    only = mod.clone(functions={})
    for gv, fn in mod.items():
        if isinstance(fn, PrimFunc):
            only[gv] = fn
    return only


def _generate(mod: IRModule, machine: Machine, *, confined: bool) -> Generated:
    verify_well_formed(mod)
    lowered = lower_module(mod)
    local = machine.triple == host_machine().triple
    return generate(
        lowered,
        _exported(mod),
        triple=machine.triple,
        native_half=machine.native_half,
        confined=confined,
        has_symbol=has_symbol if local else lambda name: True,
    )


def _exported(mod: IRModule) -> list[GlobalVar]:
    """Every function but the private ones that return a value: only other loop functions can use
    those.
    """
    found = []
    for gv, fn in mod.items():
        assert isinstance(fn, PrimFunc)
        private = fn.get_attr("global_symbol") is None
        returns = fn.ret_type is not None and fn.ret_type.dtype.kind != "void"
        if not (private and returns):
            found.append(gv)
    return found
