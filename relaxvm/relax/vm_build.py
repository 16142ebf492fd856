"""What a build does besides passes: binds parameters, finds kernels, puts bytecode and kernels
together. `build` itself is `pipeline.build`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .. import __version__
from ..base import CodegenError, PassError, RelaxvmError, VerifyError, reachable, submodules
from ..ir import IRModule, PrimExpr, substitute, transform, walk
from ..runtime import ExecBuilder, KernelSection, Provenance, device_name
from ..runtime import Executable as Executable
from ..runtime import VirtualMachine as VirtualMachine
from ..target import Target, compile_kernels, compile_program
from ..tir import PrimFunc
from ..tir.analysis import called_functions
from .analysis import all_global_vars
from .derive import place_of
from .expr import ExternFunc, Function, Var, const
from .struct_info import StructInfo, parts
from .transform import BindParams
from .vm_codegen import emit_functions

# It stands above this room.
__getattr__ = submodules(__name__, {"relaxvm.pipeline": "build"})


VMExecutable = Executable
"""TVM's older name."""


def module_to_build(
    mod: object, tir_pipeline: object, exec_mode: object, system_lib: object
) -> IRModule:
    """The module to build. Raises VerifyError or PassError for arguments that `build` does not
    take.
    """
    if isinstance(mod, (Function, PrimFunc)):
        mod = IRModule.from_expr(mod)
    if not isinstance(mod, IRModule):
        raise VerifyError(f"build: wanted an IRModule, got {type(mod).__name__}: {mod!r}"[:300])
    if exec_mode not in (None, "bytecode", "compiled"):
        raise PassError(f"build: exec_mode is one of bytecode, compiled, got {exec_mode!r}")
    if system_lib:
        raise PassError(
            "build: system_lib=True: executables are files of their own; use export_library"
        )
    if not isinstance(tir_pipeline, transform.Pass) and tir_pipeline not in (None, "default"):
        raise PassError(f"build: tir_pipeline is a Pass or 'default', got {tir_pipeline!r}")
    return _without_externs(mod)


def _without_externs(mod: IRModule) -> IRModule:
    """`mod` with packed functions called by the names they are registered under."""
    externs = {gv.name_hint: fn for gv, fn in mod.items() if isinstance(fn, ExternFunc)}
    if not externs:
        return mod
    functions = {}
    for gv, fn in mod.items():
        if isinstance(fn, Function):
            called = [v for v in all_global_vars(fn) if v.name_hint in externs]
            fn = substitute(fn, {v: externs[v.name_hint] for v in called})
        if gv.name_hint not in externs:
            functions[gv] = fn
    return mod.clone(functions)


def bind_params(mod: IRModule, params: Mapping[Any, Any]) -> IRModule:
    """`mod` with `params` bound in each public graph function that has parameters of these
    names.

    Raises VerifyError for a name that no function has.
    """
    params = {key: _shared(value) for key, value in params.items()}
    left = dict(params)
    for gv, fn in mod.items():
        if not isinstance(fn, Function):
            continue
        names = {p.name_hint for p in fn.params}
        here = {
            key: value
            for key, value in params.items()
            if (key in fn.params if isinstance(key, Var) else key in names)
        }
        if here:
            mod = BindParams(gv.name_hint, here)(mod)
            for key in here:
                left.pop(key, None)
    if left:
        unknown = ", ".join(str(getattr(key, "name_hint", key)) for key in left)
        raise VerifyError(f"build: params: no function has a parameter named {unknown}")
    return mod


def _shared(value: Any) -> Any:
    """An array as one constant for all functions; anything else, and what cannot be one, as it is:
    BindParams says which parameter it was given for.
    """
    if not hasattr(value, "__array__") or not getattr(value, "shape", ()):
        return value
    try:
        return const(value)
    except (RelaxvmError, TypeError, ValueError):
        return value


def check_devices(mod: IRModule) -> None:
    """Raise CodegenError if something is to be on a virtual device that is no CPU."""
    for gv, fn in mod.items():
        if not isinstance(fn, Function):
            continue
        places: dict[int, tuple[StructInfo, str]] = {}
        for n in walk(fn, (StructInfo, PrimExpr)):
            if isinstance(n, Function):
                places.setdefault(id(n.ret_struct_info), (n.ret_struct_info, "the result"))
            elif isinstance(n, Var):
                places.setdefault(id(n.struct_info), (n.struct_info, n.name_hint))
        for info, what in places.values():
            for part in parts(info):
                device = place_of(part)
                if device is None or device_name(device.kind)[0] == "cpu":
                    continue
                raise CodegenError(
                    f"{gv.name_hint}: {what} is on {device.script()}, but code is made for CPUs "
                    "here; put it on one by transform.UpdateVDevice, or leave the device out"
                )


def reachable_kernels(mod: IRModule) -> IRModule:
    """The loop functions that graph functions call, and those these call."""

    def called(name: str) -> Iterator[str]:
        fn = mod[name]
        mentioned = called_functions(fn) if isinstance(fn, PrimFunc) else all_global_vars(fn)
        return (gv.name_hint for gv in mentioned if isinstance(mod.get(gv), PrimFunc))

    graphs = [gv.name_hint for gv, fn in mod.items() if isinstance(fn, Function)]
    reached = reachable(graphs, called)
    # In the module's order, so that equal modules give equal code.
    kernels = {gv: fn for gv, fn in mod.items() if gv.name_hint in reached}
    return mod.clone({gv: fn for gv, fn in kernels.items() if isinstance(fn, PrimFunc)})


def assemble(
    bytecode: ExecBuilder,
    kernels: KernelSection,
    target: Target,
    passes: tuple[str, ...] = (),
    wait: bool = True,
) -> Executable:
    """The verified program of `bytecode` and the kernels that it calls, made by `passes`. See
    `ExecBuilder.get` for `wait`.
    """
    if kernels.infos:
        bytecode.add_kernels(kernels)
    try:
        return bytecode.get(Provenance("relaxvm", __version__, str(target), passes), wait)
    except VerifyError as error:
        raise CodegenError(f"the generated bytecode does not verify: {error}") from error


def _vmcodegen(builder: ExecBuilder, mod: IRModule, exec_mode: str | None = None) -> IRModule:
    """Emit the graph functions of a module at stage PLANNED; gives the module of the others.

    The bytecode is the same in both modes.
    """
    emit_functions(mod, builder)
    return mod.clone({gv: fn for gv, fn in mod.items() if not isinstance(fn, Function)})


def _vmlink(builder: ExecBuilder, target: Any, tir_mod: IRModule | None = None) -> Executable:
    """The executable of what `builder` holds and the loop functions of `tir_mod`, all compiled for
    `target`.
    """
    target = Target.or_current(target)
    kernels = compile_kernels(tir_mod or IRModule({}), target)
    return compile_program(assemble(builder, kernels.section, target), kernels)
