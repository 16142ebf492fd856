"""LLVM itself, through llvmlite: machines, the pass pipeline, object code. Differences of versions
end here.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ...base import CodegenError, config
from ...runtime.locks import lock
from ...runtime.native import rest_while_forking
from .probe import assembly_of_probes

__all__ = ["Machine", "compile_glue", "compile_text", "host_machine", "producer"]

_lock = lock()
# About sixty calls of kernels. Beyond, code is made fast rather than well.
_LARGE_GLUE = 1 << 17


@functools.lru_cache(maxsize=1)
def llvm() -> Any:
    """The llvmlite binding with all its targets ready."""
    try:
        import llvmlite.binding as binding
    except ImportError as error:
        raise CodegenError(
            f"cannot compile: the code generator needs llvmlite: {error}; pip install llvmlite"
        ) from error
    if not hasattr(binding, "create_pass_builder"):
        raise CodegenError(f"llvmlite {_version()} is too old: wanted 0.44 or later")
    for prepare in ("initialize_all_targets", "initialize_all_asmprinters"):
        getattr(binding, prepare)()
    rest_while_forking(binding)
    return binding


def _version() -> str:
    import llvmlite

    return str(llvmlite.__version__)


@functools.lru_cache(maxsize=1)
def producer() -> str:
    """Who makes the object code."""
    version = ".".join(map(str, llvm().llvm_version_info))
    return f"llvmlite {_version()}, LLVM {version}"


@dataclass(frozen=True)
class Machine:
    """For what to generate code. `features` is canonical: sorted "+a,-b" text."""

    triple: str
    cpu: str
    features: str
    opt_level: int = 2

    @property
    def native_half(self) -> bool:
        """Whether the machine converts between float16 and float32 by itself."""
        architecture = self.triple.split("-")[0]
        if architecture in ("x86_64", "i686", "amd64"):
            return "+f16c" in self.features.split(",")
        return architecture in ("aarch64", "arm64")

    def create(self, quick: bool = False) -> Any:
        """LLVM's object for it. Raises CodegenError for a triple that this LLVM has no generator
        for, and for CPUs and features that it does not know.

        quick  whether code is to be made fast rather than well
        """
        binding = llvm()
        try:
            target = binding.Target.from_triple(self.triple)
        except RuntimeError as error:
            raise CodegenError(
                f"no code generator for the triple {self.triple!r} in {producer()}: {error}"
            ) from None
        here = host_machine()
        if (self.triple, self.cpu, self.features) != (here.triple, here.cpu, here.features):
            # LLVM would end the process for what it does not like.
            assembly_of_probes(self.triple, self.cpu, self.features, producer())
        return target.create_target_machine(
            cpu=self.cpu,
            features=self.features,
            opt=0 if quick else max(self.opt_level, 1),
            reloc="pic",
            codemodel="default",
        )


def canonical_features(features: Iterable[str]) -> str:
    """Sorted "+a,-b" text; the last word about a feature counts."""
    state = {}
    for feature in features:
        text = feature.strip()
        if text:
            state[text.lstrip("+-")] = "-" if text.startswith("-") else "+"
    return ",".join(f"{state[name]}{name}" for name in sorted(state))


@functools.lru_cache(maxsize=1)
def host_machine() -> Machine:
    """This computer."""
    binding = llvm()
    present = [f"+{name}" for name, enabled in binding.get_host_cpu_features().items() if enabled]
    return Machine(
        binding.get_default_triple(), binding.get_host_cpu_name(), canonical_features(present)
    )


def has_symbol(name: str) -> bool:
    """Whether this process has a C function of that name."""
    return llvm().address_of_symbol(name) is not None


@dataclass(frozen=True)
class Compiled:
    """What became of a module; parts that were not asked for are empty."""

    object: bytes
    llvm: str
    asm: str


def compile_text(
    text: str, machine: Machine, emit: Iterable[str] = ("object",), straight: str = ""
) -> Compiled:
    """Object code (and, if asked for, optimised LLVM and assembly text) of LLVM assembly.

    emit      any of "object", "llvm", "asm"
    straight  a second module, linked with the first, that needs none of LLVM's passes
    """
    wanted = set(emit)
    unknown = wanted - {"object", "llvm", "asm"}
    if unknown:
        raise CodegenError(f"cannot emit {', '.join(sorted(unknown))}; wanted object, llvm or asm")
    binding = llvm()
    # One at a time: LLVM objects are not shared between threads, but the pass pipeline's options
    # are global.
    with _lock:
        target = machine.create()
        context = _new_context(binding)
        module = _parsed(binding, context, text)
        further = _parsed(binding, context, straight) if straight else None
        _optimise(binding, module, target, machine.opt_level)
        if further is not None:
            module.link_in(further)
        return Compiled(
            target.emit_object(module) if "object" in wanted else b"",
            str(module) if "llvm" in wanted else "",
            target.emit_assembly(module) if "asm" in wanted else "",
        )


def compile_glue(text: str, machine: Machine) -> bytes:
    """Object code of LLVM assembly that is straight code between calls, as the functions of a
    virtual machine are.

    LLVM's whole pipeline does little for them, and its code generator most of the rest. Measured on
    a program of one kernel, with a chain of a hundred and of 1.7 MB of text (12 layers of a
    transformer): milliseconds of passes + code generation, then nanoseconds a call.

        pipeline of level 1     17 + 15    19 + 27    1155 + 823      293    894
        these passes             3 + 14     5 + 27    1050 + 919      293    836
        the same, quickly        4 +  3     4 +  4    1000 +  84      312    873
        two of them, quickly     2 +  2     3 +  3      27 +  53      311    880
    """
    large = len(text) > _LARGE_GLUE
    binding = llvm()
    with _lock:
        target = machine.create(quick=large)
        module = _parsed(binding, _new_context(binding), text)
        options = binding.create_pipeline_tuning_options(speed_level=1)
        builder = binding.create_pass_builder(target, options)
        passes = _glue_passes(binding, builder, large)
        _run(binding, passes, module, builder)
        return bytes(target.emit_object(module))


def _glue_passes(binding: Any, builder: Any, large: bool) -> Any:
    passes = binding.create_new_module_pass_manager()
    if not hasattr(passes, "add_sroa_pass"):
        # llvmlite 0.44 has few passes by themselves.
        return builder.getModulePassManager()
    passes.add_always_inliner_pass()
    passes.add_global_dead_code_eliminate_pass()
    passes.add_sroa_pass()
    passes.add_sccp_pass()
    passes.add_simplify_cfg_pass()
    if not large:
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
    return passes


def _parsed(binding: Any, context: Any, text: str) -> Any:
    """Raises CodegenError for what is no LLVM assembly."""
    try:
        module = binding.parse_assembly(text, context=context)
        if config.checks_enabled():
            module.verify()
    except RuntimeError as error:
        raise CodegenError(f"LLVM refuses the generated module: {error}") from None
    return module


def _new_context(binding: Any) -> Any:
    """A context in which pointers have no element type: the default from llvmlite 0.45 on."""
    import llvmlite

    if getattr(llvmlite, "opaque_pointers_enabled", True):
        return binding.create_context()
    return binding.context.ContextRef(binding.ffi.lib.LLVMPY_ContextCreate(True))


def _optimise(binding: Any, module: Any, target: Any, level: int) -> None:
    """LLVM's own pipeline.

    Measured on twelve kernels (GEMM, two convolutions, pooling, softmax, layer norm, gelu, take,
    transpose, column sums, concat, GEMV; Zen 3, LLVM 22), processor time of LLVM and of the kernel
    against level 2 with all three options:

        without SLP                a tenth faster to compile; depthwise convolution 3.9 times slower
        without unrolling          a tenth to a third; pooling 5.8, depthwise convolution 3.9
        level 1, vectoriser only   a third to a half; the same two 5.8 and 3.4
        level 3                    a twentieth slower to compile; no kernel faster beyond noise

    So none of them goes: what loops nobody has scheduled need, scheduled ones pay little for.
    """
    options = binding.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = level > 1
    options.slp_vectorization = level > 1
    options.loop_unrolling = level > 1
    builder = binding.create_pass_builder(target, options)
    _run(binding, builder.getModulePassManager(), module, builder)


def _run(binding: Any, passes: Any, module: Any, builder: Any) -> None:
    try:
        passes.run(module, builder)
    finally:
        # llvmlite's own disposal is hidden behind one that does nothing: 90 KB a compilation.
        if type(passes)._dispose is binding.ffi.ObjectRef._dispose:
            binding.newpassmanagers.NewPassManager._dispose(passes)
            passes.detach()
