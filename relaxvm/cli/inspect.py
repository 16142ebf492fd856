"""`relaxvm inspect`: what is in a model or a program."""

from __future__ import annotations

import argparse
import collections
from typing import Any

from ..runtime import Executable, VirtualMachine, cpu, write_atomically
from .compile import facts_of
from .console import Console, few, size_text
from .models import add_build_options, add_model, check_writable, opened
from .page import page
from .stages import Stages, nodes_of_instructions

HELP = "show what is in a model or a program"
EXAMPLES = """
    relaxvm inspect model.rvm
    relaxvm inspect model.onnx --html model.html      one page, without a network
    relaxvm inspect model.onnx --ir fused             the module at a stage of the build
"""
_STAGES = ("graph", "legal", "fused", "planned")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    add_model(parser)
    parser.add_argument("--ir", choices=_STAGES, help="show the module at this stage of the build")
    parser.add_argument(
        "--code", action="store_true", help="list the instructions and where they come from"
    )
    parser.add_argument(
        "--decisions", action="store_true", help="what passes did, and why not more"
    )
    parser.add_argument("--html", metavar="FILE", help="write all of it as one page")
    add_build_options(parser)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Show it."""
    check_writable(arguments, "html")
    model = opened(arguments, console)
    stages = Stages()
    program = model.program(arguments, console, [stages])
    if arguments.ir is not None:
        model.imported(console)  # a program has none, which this says
        console.text(str(stages.modules[arguments.ir]))
        console.result({"ir": str(stages.modules[arguments.ir])})
        return 0
    facts = facts_of(program)
    provenance = program.provenance
    facts["made by"] = f"{provenance.producer} {provenance.version}, target {provenance.target}"
    facts["passes"] = ", ".join(dict.fromkeys(provenance.passes))
    if arguments.html:
        with console.stage("page"):
            text = page(arguments.model, program, facts, stages)
            write_atomically(arguments.html, [text.encode()])
    console.table(("what", ""), list(facts.items()), left=2)
    plain: dict[str, Any] = {**facts, "passes": list(provenance.passes)}
    plain["functions"] = _functions(program, console)
    plain["kernels"] = _kernels(program, console)
    plain["storages"] = _storages(program, console)
    if arguments.decisions:
        console.text(f"\n{program.explain()}")
        plain["decisions"] = [str(d) for d in program.explain()]
    if arguments.code:
        plain["code"] = program.as_text(sources=True)
        console.text(f"\n{plain['code']}")
    console.result(plain)
    return 0


def _functions(program: Executable, console: Console) -> list[dict[str, Any]]:
    try:
        vm = VirtualMachine(program, cpu())
    except (LookupError, ValueError) as error:
        # Of another machine, or without the functions that it needs.
        console.warn(f"it cannot run here: {error}")
        return [{"name": f.name, "signature": f.signature()} for f in program.vm_functions]
    rows: list[dict[str, Any]] = []
    for info in program.vm_functions:
        explained = vm.explain(info.name)
        rows.append(
            {"name": info.name, "signature": info.signature(), "mode": explained.mode,
             "reason": explained.reason, "instructions": explained.counts}
        )  # fmt: skip
    console.text()
    console.table(
        ("function", "runs as", "instructions"),
        [(r["name"], r["mode"] + (f" ({r['reason']})" if r["reason"] else ""),
          ", ".join(f"{n} {where}" for where, n in r["instructions"].items())) for r in rows],
        left=3,
    )  # fmt: skip
    return rows


def _kernels(program: Executable, console: Console) -> list[dict[str, Any]]:
    """The kernels, how often they are called, and for which nodes."""
    nodes: dict[str, list[str]] = collections.defaultdict(list)
    calls: collections.Counter[str] = collections.Counter()
    by_place = nodes_of_instructions(program)
    for info in program.vm_functions:
        for pc, each in enumerate(program.instructions(info)):
            function = getattr(each, "func", None)
            if function is not None:
                calls[program.functions[function].name] += 1
                nodes[program.functions[function].name] += by_place.get((info.name, pc), ())
    rows: list[dict[str, Any]] = [
        {"name": kernel.name, "calls": calls[kernel.name],
         "parameters": [str(p) for p in kernel.params],
         "nodes": list(dict.fromkeys(n.removeprefix("ONNX node ") for n in nodes[kernel.name]))}
        for kernel in (program.kernels.infos if program.kernels is not None else ())
    ]  # fmt: skip
    console.text()
    console.table(
        ("kernel", "nodes", "calls"),
        [(r["name"], few(r["nodes"]), r["calls"]) for r in rows],
        left=2,
    )  # fmt: skip
    return rows


def _storages(program: Executable, console: Console) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {"function": plan.name, "instruction": s.instruction, "size": s.size_bytes,
         "tensors": list(s.tensors)}
        for plan in program.memory_plan().values()
        for s in plan.storages
    ]  # fmt: skip
    console.text()
    console.table(
        ("storage", "size", "tensors"),
        [(f"{r['function']}:{r['instruction']}", size_text(r["size"]),
          few(r["tensors"])) for r in rows],
        left=3,
    )  # fmt: skip
    return rows
