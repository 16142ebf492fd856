"""What a command is given to work on: an ONNX model, a module in a Python file, or a program."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..base import Deferred, LoadError, RelaxvmError
from ..loading import build_settings, is_program
from ..runtime import Executable, load, nearest_names
from .console import Console, few

if TYPE_CHECKING:
    import runpy
    import traceback

    from .. import ir, meta_schedule, pipeline, program_cache, relax
    from ..ir import pass_context
    from ..relax import transform
    from ..relax.frontend import onnx
else:
    # Programs that were built are run without the compiler.
    runpy = Deferred("runpy")
    traceback = Deferred("traceback")
    ir = Deferred("relaxvm.ir")
    meta_schedule = Deferred("relaxvm.meta_schedule")
    pipeline = Deferred("relaxvm.pipeline")
    program_cache = Deferred("relaxvm.program_cache")
    relax = Deferred("relaxvm.relax")
    pass_context = Deferred("relaxvm.ir.pass_context")
    transform = Deferred("relaxvm.relax.transform")
    onnx = Deferred("relaxvm.relax.frontend.onnx")

_MODULE = re.compile(r"(?P<file>.*\.py):(?P<name>\w+)")
# Stage of a build -> what is told of it, from its beginning to that of the next.
_STAGES = {
    "graph_to_legal": "graph passes",
    "legal_to_fused": "fusion",
    "fused_to_planned": "memory plan",
    "pack": "constants packed",
}
_LAST = "pack"


def add_model(parser: argparse.ArgumentParser) -> None:
    """The argument that names what to work on."""
    parser.add_argument(
        "model",
        help="an ONNX model, a program (.rvm), FILE.py:NAME for a module in Python, or digits, a "
        "small ONNX model that comes with relaxvm (images of handwritten digits to probabilities)",
    )


def add_build_options(parser: argparse.ArgumentParser) -> None:
    """How a model is built; a program is built already."""
    group = parser.add_argument_group("how a model is built")
    group.add_argument(
        "--target", help="for which machine: native (default), x86-64-v3, aarch64-linux-gnu, ..."
    )
    group.add_argument(
        "--shape", action="append", default=[], metavar="INPUT=1x3x224x224",
        help="the shape of an input, instead of what the model says; words are symbols",
    )  # fmt: skip
    group.add_argument("--opt-level", type=int, choices=range(5), help="which passes run; 2")
    group.add_argument(
        "--numerics", choices=["exact", "reassociates", "approximate"],
        help="what passes may do to results; approximate",
    )  # fmt: skip
    group.add_argument(
        "--records",
        metavar="PATH",
        help="tuning records: the folder of a JSONDatabase, or its file",
    )


class Model:
    """What a command works on.

    path        as it was given
    is_onnx     an ONNX model
    is_program  a program, which was built already
    mod         the module, None for a program
    shapes      {input: shape} of the option --shape
    """

    def __init__(self, path: str, shapes: Mapping[str, tuple[Any, ...]], console: Console) -> None:
        self.path = path
        self.shapes = dict(shapes)
        self.mod: Any = None
        module = _MODULE.fullmatch(path)
        if path.endswith(".py"):
            raise LoadError(f"{path}: which module of it? {path}:NAME")
        if module is not None and not os.path.exists(path):
            with console.stage(f"{module['file']} run"):
                self.mod = _module_in(module["file"], module["name"])
            self.mod = _with_shapes(self.mod, self.shapes)
        self.is_program = self.mod is None and is_program(path)
        self.is_onnx = self.mod is None and not self.is_program

    @functools.cached_property
    def source(self) -> Any:
        """The ONNX model as it was read."""
        return onnx.model.Model(self.path)

    @functools.cached_property
    def outputs(self) -> list[str]:
        """The names of an ONNX model's outputs; none for others."""
        return [o.name for o in self.source.proto.graph.output] if self.is_onnx else []

    def imported(self, console: Console, **options: Any) -> Any:
        """The module of a model. Raises LoadError for a program, which has none."""
        if self.is_program:
            raise LoadError(
                f"{self.path}: a program, built already; wanted an ONNX model or FILE.py:NAME"
            )
        if self.mod is None:
            with console.stage("import"):
                inputs = [i.name for i in self.source.proto.graph.input]
                for name in self.shapes:
                    if name not in inputs:
                        near = nearest_names(name, inputs)
                        listed = few(inputs) or "none"
                        raise LoadError(f"--shape: no input {name!r}{near}; there are: {listed}")
                self.mod = onnx.from_onnx(self.source, self.shapes, **options)
        return self.mod

    def program(
        self,
        arguments: argparse.Namespace,
        console: Console,
        more: Any = (),
        fresh: bool = False,
        **options: Any,
    ) -> Executable:
        """The model built, as the options say, or out of the cache; a program is loaded.

        more   instruments of the build
        fresh  not out of the cache
        """
        if self.is_program:
            refused = [
                f"--{n.replace('_', '-')}"
                for n in ("target", "opt_level", "numerics", "records")
                if getattr(arguments, n, None) is not None
            ]
            if refused:
                raise LoadError(f"{self.path}: a program, built already: {', '.join(refused)} is "
                                "for models")  # fmt: skip
            with console.stage("load"):
                return load(self.path, mmap=True)

        def built() -> tuple[Executable, Any, list[str]]:
            again = self.mod is None and not more
            held = [self.imported(console)]
            mapped, outputs = self.source.mapped if self.is_onnx else (), self.outputs
            if again:
                # Weights go as they are packed; whoever wants the module after that has it read.
                self.mod = None
                del self.source
            progress = _Progress(console)
            try:
                program = build(held, arguments, [*more, progress], **options)
            finally:
                progress.finish()
            return program, mapped, outputs

        if not self.is_onnx or self.mod is not None or fresh or more or options:
            return built()[0]
        told = [target_text(arguments.target), self.shapes or None, None]
        settings = None if arguments.records else _settings(arguments)
        began = time.perf_counter()
        program, self.outputs = program_cache.cached(self.path, told, settings, built)
        if self.mod is None:
            console.took("load from the cache", time.perf_counter() - began)
        return program


def path_of(text: str) -> str:
    """The path that a user means: `digits` is the model beside this file, if it is no file."""
    if text != "digits" or os.path.exists(text):
        return text
    return os.path.join(os.path.dirname(__file__), "digits.onnx")


def opened(arguments: argparse.Namespace, console: Console) -> Model:
    """What the arguments name."""
    return Model(path_of(arguments.model), shapes_of(arguments.shape), console)


def check_writable(arguments: argparse.Namespace, *options: str) -> None:
    """Files that a command is to write lie in folders that are there, and none is the model."""
    for option in options:
        path = getattr(arguments, option)
        if path is None:
            continue
        if not os.path.isdir(os.path.dirname(path) or ".") or os.path.isdir(path):
            raise LoadError(f"--{option} {path}: wanted a file in a folder that is there")
        if (
            os.path.exists(path)
            and os.path.exists(arguments.model)
            and os.path.samefile(path, arguments.model)
        ):
            raise LoadError(f"--{option} {path}: this is the model; wanted another name")


def shapes_of(texts: list[str]) -> dict[str, tuple[Any, ...]]:
    """{input: shape} of texts such as ``x=1x3x224x224`` or ``x=batch,3``."""
    shapes = {}
    for text in texts:
        name, equals, dims = text.rpartition("=")
        words = re.split(r"\s*,\s*" if "," in dims else "x", dims.strip(" ()[]"))
        words = [w for w in words if w]
        if (
            not equals
            or not name
            or not all(re.fullmatch(r"\d{1,18}|[A-Za-z_]\w*", w) for w in words)
        ):
            raise LoadError(f"--shape: wanted INPUT=1x3x224x224 or INPUT=batch,3, got {text!r}")
        shapes[name] = tuple(int(w) if w.isdigit() else w for w in words)
    return shapes


def target_text(text: str | None) -> str | None:
    """A target as `Target` takes it: the word native, a name of its, or a triple."""
    if text is None or text == "native":
        return None if text is None else "llvm"
    if re.fullmatch(r"[\w.]+(-[\w.]+){1,4}", text) and re.match(
        r"(aarch64|arm|riscv|x86_64|i\d86|powerpc|ppc|s390x|loongarch|wasm)", text
    ):
        return f"llvm -mtriple={text}"
    return text


def pass_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """What a PassContext is given for the options of a build."""
    settings: dict[str, Any] = {}
    if arguments.opt_level is not None:
        settings["opt_level"] = arguments.opt_level
    if arguments.numerics is not None:
        settings["config"] = {"numerics": arguments.numerics}
    return settings


def _settings(arguments: argparse.Namespace) -> str | None:
    """What a build under the options follows, for `program_cache`."""
    settings = pass_settings(arguments)
    if not settings:
        return build_settings()
    with pass_context.PassContext(**settings):
        return build_settings()


def build(
    held: list[Any], arguments: argparse.Namespace, instruments: Sequence[Any] = (), **options: Any
) -> Executable:
    """The module that `held` holds alone, built as the options say."""
    with contextlib.ExitStack() as stack:
        settings = pass_settings(arguments)
        stack.enter_context(pass_context.PassContext(instruments=list(instruments), **settings))
        if arguments.records is not None:
            stack.enter_context(_records(arguments.records))
        return pipeline.build_held(held, target_text(arguments.target), **options)


class _Progress:
    """An instrument that tells how long each stage of a build took."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._stack = contextlib.ExitStack()

    def run_before_pass(self, mod: Any, info: Any) -> None:
        if info.name in _STAGES:
            self._begin(_STAGES[info.name])

    def run_after_pass(self, mod: Any, info: Any) -> None:
        if info.name == _LAST:
            # Under instruments, kernels are compiled anew: only without them the cache is asked.
            pass_context.PassContext.current().override_instruments([])
            self._begin("kernels and functions compiled")

    def _begin(self, stage: str) -> None:
        self.finish()
        self._stack.enter_context(self._console.stage(stage))

    def finish(self) -> None:
        """The stage that runs has ended."""
        self._stack.close()


def _records(path: str) -> Any:
    if os.path.isdir(path):
        return meta_schedule.JSONDatabase(work_dir=path, allow_missing=False)
    workloads = os.path.join(os.path.dirname(path), "database_workload.json")
    if not os.path.isfile(path):
        raise LoadError(f"--records {path}: wanted the folder of a JSONDatabase, or its records")
    # `relaxvm tune -o tuned.json` keeps both in one file.
    pair = (workloads if os.path.exists(workloads) else path, path)
    return meta_schedule.JSONDatabase(*pair, allow_missing=False)


def _module_in(file: str, name: str) -> Any:
    """The module called `name` that a Python file makes; the file is run."""
    try:
        names = runpy.run_path(file, run_name="relaxvm.cli.model")
    except RelaxvmError:
        raise
    except (Exception, SystemExit) as error:  # whatever the file does
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename != file:
            frames = frames.tb_next
        shown = "".join(traceback.format_exception(type(error), error, frames)).rstrip()
        raise LoadError(f"{file} cannot be run\n{shown}") from error
    modules = [n for n, v in names.items() if isinstance(v, ir.IRModule)]
    value = names.get(name)
    if isinstance(value, relax.Function):
        return ir.IRModule({"main": value})
    if name not in modules:
        got = f"got {type(value).__name__}" if name in names else "there is no such name"
        listed = ", ".join(modules) or "none"
        raise LoadError(f"{file}:{name}: wanted an IRModule, {got}; the file has: {listed}")
    return value


def _with_shapes(mod: Any, shapes: Mapping[str, tuple[Any, ...]]) -> Any:
    """`mod` with symbols of `main` bound, so that its parameters have these shapes."""
    if not shapes:
        return mod
    if "main" not in mod:
        raise LoadError("--shape: the module has no function main")
    sizes: dict[str, int] = {}
    params = {p.name_hint: p.struct_info for p in mod["main"].params}
    for name, shape in shapes.items():
        dims = getattr(params.get(name), "dims", None)
        if dims is None or len(dims) != len(shape):
            listed = ", ".join(f"{n}: {info}" for n, info in params.items())
            raise LoadError(
                f"--shape {name}: no input of {len(shape)} dimensions; there are {listed}"
            )
        for dim, size in zip(dims, shape):
            if isinstance(dim, ir.Var) and isinstance(size, int):
                sizes[dim.name] = size
            elif getattr(dim, "value", str(dim)) != size:
                raise LoadError(f"--shape {name}: {dim} cannot become {size}: it is no symbol")
    return transform.BindSymbolicVars(sizes)(mod) if sizes else mod
