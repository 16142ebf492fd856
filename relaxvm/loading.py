"""`relaxvm.load`: a model or a program, whatever it is, ready to be called."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any

from . import runtime
from .base import Deferred, LoadError, collecting_seldom
from .runtime import Executable, fileformat, reader, rows_replaced
from .runtime import load as load_executable
from .runtime.files import open_document

if TYPE_CHECKING:
    from . import pipeline, program_cache
    from .relax.frontend import onnx
else:
    # Programs that were built are loaded without the compiler.
    pipeline = Deferred("relaxvm.pipeline")
    program_cache = Deferred("relaxvm.program_cache")
    onnx = Deferred("relaxvm.relax.frontend.onnx")

_HEAD_BYTES = 128
_PASSES = {"pipeline", "relax_pipeline"}


def load(
    source: Any,
    target: Any = None,
    *,
    shape_dict: Mapping[str, Any] | None = None,
    constants: Mapping[str, Any] | None = None,
    trust: str | None = None,
    mmap: bool = True,
    cache: bool = True,
    **options: Any,
) -> Executable:
    """An `Executable`, ready to be called: ``relaxvm.load("model.onnx")["main"](x)``.

    source      an ONNX model (path, bytes, ModelProto), which is imported and built; or a program
                (path or bytes of what `export_library` wrote), which is loaded without the compiler
    target, options         of a model: as in `relax.build`
    shape_dict, constants   of a model: as in `relax.frontend.onnx.from_onnx`
    trust       of a program: as in `runtime.load`
    mmap        of a program in a file: its weights are mapped from it, read when they are first
                used and shared by all processes that run it. Whoever writes such a file must
                replace it, as `export_library` does, never change or cut it: that would kill the
                processes that have it mapped. False reads it.
    cache       of a model in a file: what is built is kept in the user's cache folder (see
                `program_cache`) and taken from there the next time, without the compiler; weights
                in files beside the model are mapped then, as those of a program are, and others
                from the cache. False always builds, and so does RELAXVM_PROGRAM_CACHE=0.

    What a path holds is decided by its first bytes. Raises FrontendError for what is wrong with a
    model, LoadError or VerifyError for what is wrong with a program, OSError for a path that cannot
    be read.
    """
    if is_program(source):
        chosen = {"target": target, "shape_dict": shape_dict, "constants": constants, **options}
        senseless = [name for name, value in chosen.items() if value is not None]
        if senseless:
            raise LoadError(
                f"load: {', '.join(senseless)}: for models; this is a program, built already"
            )
        return load_executable(source, trust, mmap and not isinstance(source, _BYTES))

    def build() -> tuple[Executable, Any, list[str]]:
        is_path = isinstance(source, (str, PathLike))
        # Passes and translations of somebody else may keep what they are given.
        unseen = build_settings() is not None and not _PASSES & options.keys()
        # It is read while the compiler is loaded.
        model = onnx.model.Model(runtime.OnnxFile(source, unseen) if is_path else source)
        with pipeline.worker_at_hand([node.op_type for node in model.proto.graph.node]):
            held = [onnx.from_onnx(model, shape_dict, constants=constants)]
            mapped, outputs = model.mapped, [o.name for o in model.proto.graph.output]
            del model
            return pipeline.build_held(held, target, **options), mapped, outputs

    plain = isinstance(source, (str, PathLike)) and options.keys() <= {"exec_mode", "donate"}
    # The compiler is loaded inside, too: a tenth of the time of that is the collector's.
    with collecting_seldom():
        if not (cache and mmap and plain):
            return build()[0]
        told = [target, shape_dict or None, constants or None, *map(list, sorted(options.items()))]
        return program_cache.cached(source, told, build_settings(), build)[0]


def build_settings() -> str | None:
    """What builds follow in this thread besides their arguments: "" where it is nothing unusual;
    None if it is something of this process alone.
    """
    if "relaxvm.ir" not in sys.modules:
        # Nobody can have entered a context, nor registered anything.
        return None if rows_replaced() else ""
    registry = sys.modules.get("relaxvm.relax.frontend.onnx.registry")
    own = registry is not None and registry.own_translations()
    return None if own else pipeline.settings()


_BYTES = (bytes, bytearray, memoryview)


def is_program(source: Any) -> bool:
    """Whether a path or bytes hold a program, by their first bytes. Raises OSError for a path that
    cannot be read, LoadError for one that is no plain file.
    """
    if isinstance(source, _BYTES):
        head = bytes(memoryview(source).cast("B")[:_HEAD_BYTES])
    elif isinstance(source, (str, PathLike)):
        with open_document(source) as file:
            head = file.read(_HEAD_BYTES)
    else:
        return False
    return reader.magic_of(head) == fileformat.MAGIC
