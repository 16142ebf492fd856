"""`relaxvm compile`: a model to one file."""

from __future__ import annotations

import argparse
import collections
import os
import time
from typing import TYPE_CHECKING, Any

from ..base import Deferred, LoadError
from ..runtime import Executable, NDArray, VirtualMachine, cpu, save_param_dict_to_file
from .console import Console, size_text
from .models import Model, add_build_options, add_model, check_writable, opened, target_text

if TYPE_CHECKING:
    from .. import pipeline
    from ..relax import frontend
else:
    pipeline = Deferred("relaxvm.pipeline")
    frontend = Deferred("relaxvm.relax.frontend")

HELP = "build a model and write it into one file"
EXAMPLES = """
    relaxvm compile model.onnx -o model.rvm
    relaxvm compile model.onnx -o model.rvm --shape x=1x3x224x224 --target x86-64-v3
    relaxvm compile model.onnx -o model.rvm --target native,aarch64-linux-gnu
                                                  a file for each: model.native.rvm, ...
    relaxvm compile model.onnx -o model.rvm --weights separate     also writes model.params
    relaxvm compile model.onnx -o model.rvm --c-source             also writes the folder model.c
    relaxvm compile program.py:Module -o program.rvm
    relaxvm compile model.rvm -o here.rvm         machine code for this machine, if it has none
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    add_model(parser)
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="where it is written")
    add_build_options(parser)
    parser.add_argument(
        "--weights", choices=["inside", "separate"], default="inside",
        help="separate: the weights of an ONNX model become inputs, their values a .params file",
    )  # fmt: skip
    parser.add_argument(
        "--strip-debug",
        action="store_true",
        help="leave out which nodes of the model, or source lines, an error is about",
    )
    parser.add_argument(
        "--c-source", action="store_true", help="the kernels as C as well, in a folder beside it"
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Build the model, write the file, tell what is in it."""
    check_writable(arguments, "output")
    began = time.perf_counter()
    model = opened(arguments, console)
    stem = os.path.splitext(arguments.output)[0]
    written = {}
    weights = {}
    if arguments.weights == "separate":
        weights = _weights_apart(model, console)
    targets = (arguments.target or "").split(",")
    if (len(targets) > 1 or arguments.c_source) and not model.is_program:
        model.imported(console)  # once
    programs: dict[str, Executable] = {}
    for target in targets:
        file = arguments.output
        if len(targets) > 1:
            console.note(f"for {target}")
            file = f"{stem}.{target}{os.path.splitext(file)[1]}"
        arguments.target = target or None
        program = model.program(arguments, console, fresh=True)
        if model.is_program and not program.needs():
            program = _for_this_machine(program)
        programs[file] = program.stripped() if arguments.strip_debug else program
    for file, program in programs.items():
        with console.stage("file written"):
            program.export_library(file)
        written[file] = os.path.getsize(file)
    if weights:
        save_param_dict_to_file(weights, f"{stem}.params")
        written[f"{stem}.params"] = os.path.getsize(f"{stem}.params")
    if arguments.c_source:
        target = (target_text(arguments.target) or "llvm").replace("llvm", "c", 1)
        with console.stage("C written"):
            pipeline.build(model.imported(console), target).export_library(f"{stem}.c/")
        files = (os.path.join(f"{stem}.c", name) for name in os.listdir(f"{stem}.c"))
        written |= {file: os.path.getsize(file) for file in files}
    console.note(f"{'in all':<44} {time.perf_counter() - began:8.3f} s")
    facts = facts_of(program)
    sizes = [(file, size_text(count)) for file, count in written.items()]
    console.table(("what", ""), [*facts.items(), *sizes], left=2)
    console.result({**facts, "files": written, "stages": console.stages})
    return 0


def _for_this_machine(program: Executable) -> Executable:
    """A program from elsewhere with machine code that was made here; others as they are."""
    linked = VirtualMachine(program, cpu()).kernels
    if linked is None or linked.source != "rebuilt":
        return program
    return program.with_kernels(linked.section).with_trust(True)


def _weights_apart(model: Model, console: Console) -> dict[str, Any]:
    """Import the model with its weights as inputs; {name: value} of them."""
    if not model.is_onnx:
        raise LoadError("--weights separate: for ONNX models")
    mod, params = frontend.detach_params(model.imported(console, keep_params_in_input=True))
    model.mod = mod
    main_function: Any = mod["main"]
    count = int(main_function.attrs["num_input"])
    names = [p.name_hint for p in main_function.params[count:]]
    return dict(zip(names, params["main"]))


def facts_of(program: Executable) -> dict[str, Any]:
    """What is told of a program that was built: kernels, groups, memory, what fell back."""
    fused = collections.Counter(d.done for d in program.explain().of("FuseOps"))
    compiled = [
        info.name
        for code in (program.kernels.native if program.kernels is not None else ())
        for info in (code.functions.functions if code.functions is not None else ())
    ]
    slow = [info.name for info in program.vm_functions if info.name not in compiled]
    plans = program.memory_plan()
    weights = sum(c.nbytes for c in program.constants if type(c) is NDArray)
    facts: dict[str, Any] = {
        "signature": program.function("main").signature() if "main" in program.globals else "",
        "kernels": 0 if program.kernels is None else len(program.kernels.infos),
        "weights": size_text(weights),
        "memory of intermediate values": "; ".join(
            f"{name}: {'not known: ' + plan.problem if plan.problem else size_text(plan.peak)}"
            for name, plan in plans.items()
        ),
        "run by the interpreter": ", ".join(slow) or "nothing",
        "functions it needs from outside": ", ".join(program.needs()) or "none",
    }
    if program.explain():
        facts["calls fused into others"] = fused[True]
    return facts
