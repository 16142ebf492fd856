"""`relaxvm profile`: where the time of a run goes."""

from __future__ import annotations

import argparse
from typing import Any

from ..base import LoadError
from ..runtime import VirtualMachine, cpu, write_atomically
from .compile import facts_of
from .console import Console
from .inputs import add_input_options, inputs_of
from .models import add_build_options, add_model, check_writable, opened
from .page import page
from .stages import Stages, nodes_of_instructions

HELP = "tell where the time of a run goes, by kernel and by node of the model"
EXAMPLES = """
    relaxvm profile model.onnx
    relaxvm profile model.onnx --trace trace.json       for ui.perfetto.dev
    relaxvm profile model.rvm --top 50
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    add_model(parser)
    add_input_options(parser)
    parser.add_argument("--runs", type=int, default=5, help="the fastest of so many; 5")
    parser.add_argument("--top", type=int, default=20, help="rows of each table; 20")
    parser.add_argument("--trace", metavar="FILE", help="write every call as a trace for Perfetto")
    parser.add_argument(
        "--html", metavar="FILE", help="write the times into one page, as inspect's"
    )
    add_build_options(parser)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Show the tables, write the trace."""
    if arguments.runs < 1 or arguments.top < 0:
        raise LoadError(f"--runs, --top: wanted counts, got {arguments.runs} and {arguments.top}")
    check_writable(arguments, "trace", "html")
    model = opened(arguments, console)
    stages = Stages()
    program = model.program(arguments, console, [stages])
    vm = VirtualMachine(program, cpu(), num_threads=1)
    inputs = inputs_of(arguments, program, console, model.shapes)
    with console.stage(f"{arguments.runs} runs, one thread"):
        reports = [vm.profile("main", *inputs.values()) for _ in range(arguments.runs)]
    report = min(reports, key=lambda r: r.calls_ns)
    nodes = nodes_of_instructions(program)
    console.table(
        ("kernel", "calls", "us", "share", "us/call", "GB/s", "GFLOP/s", "of roof"),
        [
            (r.short_name, r.count, f"{r.total_ns / 1e3:.1f}",
             _percent(r.share), f"{r.mean_ns / 1e3:.1f}", _rate(r.gigabytes_per_second),
             _rate(r.gigaflops), _percent(r.roof_share))
            for r in report.calls[: arguments.top]
        ],
        title=f"{report.calls_ns / 1e6:.3f} ms in calls; roof: {report.roof or 'none'}",
    )  # fmt: skip
    by_node = _by_node(report, nodes)
    if by_node:
        console.text()
        console.table(
            ("node of the model", "kernel", "us", "share", "of roof"),
            [
                (label, row.name, f"{row.total_ns / 1e3:.1f}", _percent(row.share),
                 _percent(row.roof_share))
                for label, row in by_node[: arguments.top]
            ],
            left=2,
        )  # fmt: skip
    if arguments.trace:
        report.save_trace(arguments.trace)
        console.note(f"{arguments.trace}: open it in ui.perfetto.dev")
    if arguments.html:
        text = page(arguments.model, program, facts_of(program), stages, report)
        write_atomically(arguments.html, [text.encode()])
    plain = report.to_plain()
    plain["nodes"] = [{"nodes": label, **row.to_plain()} for label, row in by_node]
    console.result(plain)
    return 0


def _by_node(report: Any, nodes: Any) -> list[tuple[str, Any]]:
    """(nodes, row) of the instructions that compute some, dearest first."""
    rows = [
        (
            " + ".join(
                name.removeprefix("ONNX node ") for name in nodes[r.function, r.instruction]
            ),
            r,
        )
        for r in report.instructions
        if (r.function, r.instruction) in nodes
    ]
    return sorted(rows, key=lambda row: -row[1].total_ns)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}%"


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:.2f}"
