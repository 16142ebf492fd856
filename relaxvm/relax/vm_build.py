"""Building a module for the virtual machine: passes, bytecode, kernels, one `Executable`.

Also reachable as `relax.build`, `relax.vm.build` and `relaxvm.compile`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import __version__
from ..base import CodegenError, CpuModel, PassError, RelaxvmError, VerifyError, add_note
from ..ir import GlobalVar, IRModule, PassContext
from ..ir.transform import Pass, Sequential
from ..pipeline import (
    FUSED_TO_PLANNED,
    GRAPH_TO_LEGAL,
    LEGAL_TO_FUSED,
    get_pipeline,
    run_stages,
    verify_stage,
)
from ..runtime import ExecBuilder, Executable, Provenance, VirtualMachine
from ..runtime.device import device_name
from ..runtime.kernel import KernelSection
from ..target import Target, compile_program, cpu_model
from ..tir import PrimFunc
from ..tir.analysis import called_functions
from ..tir.schedule.rules import WidenIndices
from .analysis import all_global_vars, assert_well_formed
from .derive import has_place
from .expr import Function, Var, const
from .struct_info import TensorStructInfo, TupleStructInfo
from .transform import BindParams, Normalize, PackConstants
from .transform.scopes import BIND, BRANCH, linearise
from .vm_codegen import emit_functions

__all__ = ["Executable", "VirtualMachine", "build"]

_EXEC_MODES = ("bytecode", "compiled")


def build(
    mod: IRModule,
    target: Any = None,
    params: Mapping[Any, Any] | None = None,
    pipeline: Any = "default",
    tir_pipeline: Any = "default",
    exec_mode: str | None = None,
    *,
    relax_pipeline: Any = None,
    system_lib: bool | None = None,
) -> Executable:
    """Compile a module into an `Executable`, which a `VirtualMachine` runs and a file holds.

    mod        graph functions, and the loop functions they call; others are left out
    target     "llvm", a `Target`, or None for the current target (else the machine this runs on)
    params     {parameter name: array}, bound in every graph function with such a parameter
    pipeline   passes that run first: a name for `get_pipeline`, a `Pass`, or None for a module
               lowered already. What a pipeline leaves to do, the default one does.
               `relax_pipeline` is its newer name.
    tir_pipeline  what schedules the loop functions: "default" (`tir.schedule.rules`), a `Pass`, or
               None to leave them as they are
    exec_mode  "compiled" (as None): graph functions become machine code too; "bytecode": they do
               not, the build is faster, and a VM interprets them

    Raises VerifyError for ill-formed modules, CodegenError for what cannot be compiled; notes name
    pass and function.
    """
    if isinstance(mod, (Function, PrimFunc)):
        mod = IRModule.from_expr(mod)
    if not isinstance(mod, IRModule):
        raise VerifyError(f"build: wanted an IRModule, got {type(mod).__name__}: {mod!r}"[:300])
    _check_mode(exec_mode)
    if system_lib:
        raise PassError(
            "build: system_lib=True: executables are files of their own; use export_library"
        )
    chosen = _target(target)
    if params:
        mod = _bind(mod, params)
    mod, passes = _lower(mod, pipeline if relax_pipeline is None else relax_pipeline)
    schedule = None
    if tir_pipeline == "default":
        schedule = cpu_model(chosen)
        mod = Sequential([WidenIndices(), PackConstants(cpu=schedule)], name="pack")(mod)
    kernels = _reachable_kernels(mod)
    # Default schedules are made where kernels are compiled: those on disk need none.
    if isinstance(tir_pipeline, Pass):
        kernels = tir_pipeline(kernels)
    elif tir_pipeline not in (None, "default"):
        raise PassError(f"build: tir_pipeline is a Pass or 'default', got {tir_pipeline!r}")
    builder = ExecBuilder()
    _vmcodegen(builder, mod, exec_mode)
    return _vmlink(builder, chosen, kernels, passes, exec_mode, schedule)


def _check_mode(exec_mode: str | None) -> None:
    if exec_mode is not None and exec_mode not in _EXEC_MODES:
        raise PassError(f"build: exec_mode is one of {', '.join(_EXEC_MODES)}, got {exec_mode!r}")


def _target(target: Any) -> Target:
    if target is None:
        return Target.current() or Target("llvm")
    return target if isinstance(target, Target) else Target(target)


def _bind(mod: IRModule, params: Mapping[Any, Any]) -> IRModule:
    """`mod` with `params` bound in each public graph function that has parameters of these
    names.
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


def _lower(mod: IRModule, pipeline: Any) -> tuple[IRModule, tuple[str, ...]]:
    """`mod` at stage PLANNED, and the names of the passes that brought it there."""
    if pipeline is not None:
        mod = Normalize()(mod)
    assert_well_formed(mod)
    if pipeline is None:
        verify_stage(mod, "PLANNED")
        return mod, ()
    names: list[str] = []
    if pipeline not in ("default", "default_build"):
        chosen = get_pipeline(pipeline) if isinstance(pipeline, str) else pipeline
        if not isinstance(chosen, Pass):
            raise PassError(f"build: pipeline is a name or a Pass, got {type(chosen).__name__}")
        made = chosen(mod)
        names.extend(_enabled(chosen))
        if made is not mod:
            mod = Normalize()(made)
            assert_well_formed(mod)
    _want_cpus(mod)
    mod = run_stages(mod)
    for stage in (GRAPH_TO_LEGAL, LEGAL_TO_FUSED, FUSED_TO_PLANNED):
        names.extend(_enabled(stage))
    return mod, tuple(names)


def _want_cpus(mod: IRModule) -> None:
    """Raise CodegenError if something is to be on a virtual device that is no CPU."""
    todo = [(gv.name_hint, fn) for gv, fn in mod.items() if isinstance(fn, Function)]
    seen: set[int] = set()
    while todo:
        name, fn = todo.pop()
        places: list[tuple[Any, str]] = [(p.struct_info, p.name_hint) for p in fn.params]
        places.append((fn.ret_struct_info, "the result"))
        for event in linearise(fn):
            if event.kind in (BIND, BRANCH):
                var, value = event.node.var, event.node.value
                places.append((var.struct_info, var.name_hint))
                if isinstance(value, Function):
                    todo.append((name, value))
        while places:
            info, what = places.pop()
            if id(info) in seen:
                continue
            seen.add(id(info))
            if isinstance(info, TupleStructInfo):
                places.extend((field, what) for field in info.fields)
            elif isinstance(info, TensorStructInfo) and has_place(info):
                device = info.vdevice
                if device_name(device.kind)[0] != "cpu":  # type: ignore[union-attr]
                    raise CodegenError(
                        f"{name}: {what} is on {device.script()}, but code is made for CPUs here; "  # type: ignore[union-attr]
                        "put it on one by transform.UpdateVDevice, or leave the device out"
                    )


def _enabled(chosen: Pass) -> list[str]:
    if not isinstance(chosen, Sequential):
        return [chosen.info.name]
    ctx = PassContext.current()
    return [p.info.name for p in chosen.passes if ctx.pass_enabled(p)]


def _reachable_kernels(mod: IRModule) -> IRModule:
    """The loop functions that graph functions call, and those these call."""
    found: dict[str, GlobalVar] = {}
    todo: list[Any] = [fn for fn in mod.functions.values() if isinstance(fn, Function)]
    while todo:
        fn = todo.pop()
        for n in called_functions(fn) if isinstance(fn, PrimFunc) else all_global_vars(fn):
            if n.name_hint not in found:
                callee = mod.get(n)
                if isinstance(callee, PrimFunc):
                    found[n.name_hint] = mod.get_global_var(n.name_hint)
                    todo.append(callee)
    # In the module's order, so that equal modules give equal code.
    kept = {gv: fn for gv, fn in mod.items() if gv.name_hint in found}
    return mod.clone(functions=kept)


def _vmcodegen(builder: ExecBuilder, mod: IRModule, exec_mode: str | None = None) -> IRModule:
    """Emit the graph functions of a module at stage PLANNED; gives the module of the others.

    The bytecode is the same in both modes.
    """
    _check_mode(exec_mode)
    emit_functions(mod, builder)
    return mod.clone({gv: fn for gv, fn in mod.items() if not isinstance(fn, Function)})


def _vmlink(
    builder: ExecBuilder,
    target: Any,
    tir_mod: IRModule | None = None,
    passes: tuple[str, ...] = (),
    exec_mode: str | None = None,
    schedule: CpuModel | None = None,
) -> Executable:
    """The executable of what `builder` holds and the loop functions of `tir_mod`, compiled for
    `target`. Unless `exec_mode` is "bytecode", what `builder` holds is compiled with them.

    schedule  the CPU for which loop functions get default schedules; None: they stay as they are
    """
    chosen = _target(target)
    kernels = IRModule({}) if tir_mod is None else tir_mod

    def assemble(section: KernelSection | None) -> Executable:
        if section is not None:
            builder.add_kernels(section)
        try:
            return builder.get(Provenance("relaxvm", __version__, str(chosen), passes))
        except VerifyError as error:
            raise CodegenError(f"the generated bytecode does not verify: {error}") from error

    try:
        return compile_program(kernels, chosen, assemble, exec_mode != "bytecode", schedule)
    except RelaxvmError as error:
        add_note(error, f"while compiling the kernels for {chosen}")
        raise
