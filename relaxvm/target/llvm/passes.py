"""LLVM's work on one module: its passes, and code. Also the program of the process in which that
is done (see `net.py`), so it imports nothing of relaxvm.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import sys
from typing import Any, NamedTuple

_LENGTH = 8
MOST_BYTES = 1 << 32
_AT_ONCE = 1 << 20
# An idle worker goes, and so does one that works when nobody is left who would end it.
_IDLE_SECONDS = 300.0
_ORPHAN_SECONDS = 60.0


class Recipe(NamedTuple):
    """Which of LLVM's passes run.

    level       of the pipeline; None: the few passes that help straight code between calls
    slp         whether statements become vectors; `loops`, whether loops do; without either,
                functions are simplified one by one and no more is done
    code_level  of the code generator: 0 makes code fast rather than well
    unrolls     whether loops that become vectors, and others, are unrolled
    lsr         whether the code generator reduces the strength of loops
    promotes    whether there are sums in other memory than arrays at constant places, which LLVM
                has to find registers for; else the simplifying passes are but four
    """

    level: int | None
    slp: bool
    loops: bool
    code_level: int
    unrolls: bool = True
    lsr: bool = True
    promotes: bool = True

    def __str__(self) -> str:
        if self.level is None:
            return "the passes for straight code"
        if self.level < 2 or self.slp:
            return f"level {self.level}"
        if not self.loops:
            return f"level {self.level} without SLP, vectorised loops and unrolling"
        return f"level {self.level} without SLP{'' if self.unrolls else ' and unrolling'}"


def prepare() -> Any:
    """The llvmlite binding with all its targets. Raises ImportError."""
    import llvmlite.binding as binding

    for each in ("initialize_all_targets", "initialize_all_asmprinters"):
        getattr(binding, each)()
    return binding


def work(binding: Any, request: dict[str, Any], alone: bool) -> tuple[bytes, bytes, bytes]:
    """(object, LLVM text, assembly) of a module; b"" for those that `emit` does not name.

    triple, cpu, features  the machine           text, straight  assembly; the second is linked
    recipe  a `Recipe` as a tuple                                with the first after the passes
    verify  whether to check the text: False     emit            of "object", "llvm", "asm"
    alone   whether nobody else in this process uses LLVM, whose options count for all

    Raises RuntimeError for what LLVM refuses. For what it cannot stand, LLVM ends the process.
    """
    recipe, emit = Recipe(*request["recipe"]), request["emit"]
    target = binding.Target.from_triple(request["triple"]).create_target_machine(
        cpu=request["cpu"],
        features=request["features"],
        opt=recipe.code_level,
        reloc="pic",
        codemodel="default",
    )
    context = _new_context(binding)

    def parsed(text: str) -> Any:
        module = binding.parse_assembly(text, context=context)
        if request.get("verify"):
            module.verify()
        return module

    module = parsed(request["text"])
    further = parsed(request["straight"]) if request.get("straight") else None
    _optimise(binding, module, target, recipe)
    if further is not None:
        module.link_in(further)
    if alone:
        # Loop strength reduction takes a quarter of the code generator's time. Kernels of vectors
        # that are written out run as fast without, with some loops of scalars among them, too;
        # where those are all, a max pool would be a twentieth slower.
        off = "false" if recipe.lsr else "true"
        binding.set_option("relaxvm", f"-disable-lsr={off}")
    return (
        bytes(target.emit_object(module)) if "object" in emit else b"",
        str(module).encode() if "llvm" in emit else b"",
        target.emit_assembly(module).encode() if "asm" in emit else b"",
    )


def _new_context(binding: Any) -> Any:
    """A context in which pointers have no element type: the default from llvmlite 0.45 on."""
    import llvmlite

    if getattr(llvmlite, "opaque_pointers_enabled", True):
        return binding.create_context()
    return binding.context.ContextRef(binding.ffi.lib.LLVMPY_ContextCreate(True))


def _optimise(binding: Any, module: Any, target: Any, recipe: Recipe) -> None:
    """LLVM's own pipeline.

    Measured on twelve kernels (GEMM, two convolutions, pooling, softmax, layer norm, gelu, take,
    transpose, column sums, concat, GEMV; Zen 3, LLVM 22), processor time of LLVM and of the kernel
    against level 2 with all three options:

        without SLP                a tenth faster to compile; depthwise convolution 3.9 times slower
        without unrolling          a tenth to a third; pooling 5.8, depthwise convolution 3.9
        level 1, vectoriser only   a third to a half; the same two 5.8 and 3.4
        level 3                    a twentieth slower to compile; no kernel faster beyond noise

    So none of them goes where loops of scalars are left. Where all is vectors already, the passes
    that make functions simpler at level 1 (SROA, LICM, instcombine) are enough: the kernels of
    ResNet-50 and BERT that have no other loops run as fast, and these passes take half the time.
    Where sums are in arrays at constant places too, four of them are enough, in two fifths of that:
    what does not change in a loop, the text computes before it (`base/llvm.py`).
    """
    options = binding.create_pipeline_tuning_options(
        speed_level=1 if recipe.level is None else recipe.level
    )
    options.loop_vectorization = recipe.loops
    options.loop_unrolling = recipe.loops and recipe.unrolls
    options.slp_vectorization = recipe.slp
    builder = binding.create_pass_builder(target, options)
    if recipe.level is None:
        passes, each = _straight_passes(binding, builder, recipe.code_level == 0), [module]
    elif _only_simplifies(recipe):
        passes = _few_passes(binding, builder, recipe.promotes)
        each = [function for function in module.functions if not function.is_declaration]
    else:
        passes, each = builder.getModulePassManager(), [module]
    try:
        for part in each:
            passes.run(part, builder)
    finally:
        # llvmlite's own disposal is hidden behind one that does nothing: 90 KB a compilation.
        if type(passes)._dispose is binding.ffi.ObjectRef._dispose:
            binding.newpassmanagers.NewPassManager._dispose(passes)
            passes.detach()


def _only_simplifies(recipe: Recipe) -> bool:
    return bool(recipe.level) and not recipe.slp and not recipe.loops


def _few_passes(binding: Any, builder: Any, promotes: bool) -> Any:
    if promotes:
        return builder.getFunctionPassManager()
    passes = binding.create_new_function_pass_manager()
    if not hasattr(passes, "add_sroa_pass"):
        # llvmlite 0.44 has few passes by themselves.
        return builder.getFunctionPassManager()
    passes.add_sroa_pass()
    # Without it, some depthwise convolutions are a twentieth slower; without the next, which orders
    # operands, by which code is scheduled, a tenth: they keep vectors on the stack.
    passes.add_instruction_combine_pass()
    passes.add_reassociate_pass()
    passes.add_simplify_cfg_pass()
    return passes


def _straight_passes(binding: Any, builder: Any, few: bool) -> Any:
    passes = binding.create_new_module_pass_manager()
    if not hasattr(passes, "add_sroa_pass"):
        return builder.getModulePassManager()
    passes.add_always_inliner_pass()
    passes.add_global_dead_code_eliminate_pass()
    passes.add_sroa_pass()
    passes.add_sccp_pass()
    passes.add_simplify_cfg_pass()
    if not few:
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
    return passes


# -- the process -----------------------------------------------------------------------------------


def send(file: Any, data: bytes) -> None:
    """Write one message to a file without a buffer. Raises OSError if nobody reads."""
    left = memoryview(len(data).to_bytes(_LENGTH, "little") + data)
    while left:
        left = left[file.write(left) :]


def receive(file: Any) -> bytes:
    """Read one message from a file without a buffer. Raises EOFError where there is none."""
    size = int.from_bytes(_read(file, _LENGTH), "little")
    if size > MOST_BYTES:
        raise EOFError
    return _read(file, size)


def _read(file: Any, size: int) -> bytes:
    parts = []
    while size:
        part = file.read(min(size, _AT_ONCE))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def pipes() -> tuple[Any, Any]:
    """Where a worker's requests come from and its answers go. What anything prints must not come
    between the answers; and who interrupts the process that builds does not mean its workers.
    """
    source, sink = (os.fdopen(os.dup(fd), mode, buffering=0) for fd, mode in ((0, "rb"), (1, "wb")))
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return source, sink


def serve() -> None:
    """Answer requests by what LLVM refused (b"": nothing) and the three parts that `work` gives."""
    source, sink = pipes()
    binding = prepare()
    send(sink, b"ready")
    with open(os.devnull, "w") as nowhere:
        while True:
            faulthandler.dump_traceback_later(_IDLE_SECONDS, exit=True, file=nowhere)
            try:
                request = pickle.loads(receive(source))
            except EOFError:
                return
            seconds = request["seconds"] or 0
            faulthandler.cancel_dump_traceback_later()
            if seconds:
                faulthandler.dump_traceback_later(
                    seconds + _ORPHAN_SECONDS, exit=True, file=nowhere
                )
            try:
                answer = (b"", *work(binding, request, alone=True))
            except RuntimeError as error:
                answer = (str(error).encode() or b"?", b"", b"", b"")
            for part in answer:
                send(sink, part)


if __name__ == "__main__":
    sys.path[:] = sys.argv[1:]
    serve()
