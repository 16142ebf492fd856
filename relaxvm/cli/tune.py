"""`relaxvm tune`: faster schedules for the kernels of a model, in the time that is seconds."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from typing import TYPE_CHECKING, Any

from ..base import Deferred, LoadError
from .console import Console
from .models import add_build_options, add_model, opened, pass_settings, target_text

if TYPE_CHECKING:
    from .. import meta_schedule, tuning
    from ..ir import pass_context
    from ..meta_schedule import progress
else:
    meta_schedule = Deferred("relaxvm.meta_schedule")
    progress = Deferred("relaxvm.meta_schedule.progress")
    pass_context = Deferred("relaxvm.ir.pass_context")
    tuning = Deferred("relaxvm.tuning")

HELP = "find faster schedules for a model's kernels by measuring"
EXAMPLES = """
    relaxvm tune model.onnx --minutes 5 -o tuned.json
    relaxvm compile model.onnx --records tuned.json -o model.rvm
    relaxvm tune model.onnx --minutes 5 -o tuned.json      again: goes on with what is there
    relaxvm tune program.py:Module --seconds 60 -o tuned --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    add_model(parser)
    parser.add_argument(
        "-o", "--output", required=True, metavar="PLACE",
        help="a file that ends in .json, for the records; or a folder, for the records and all "
        "that was tried, with which tuning goes on",
    )  # fmt: skip
    parser.add_argument("--minutes", type=float, help="how long; 2")
    parser.add_argument("--seconds", type=float, help="how long, instead")
    parser.add_argument("--trials", type=int, help="end after so many candidates")
    parser.add_argument("--threads", type=int, help="of the kernels; as many as there are cores")
    parser.add_argument("--seed", type=int, default=0, help="of the search; 0")
    parser.add_argument(
        "--confidence", type=float, default=0.95, help="that a schedule is faster; 0.95"
    )
    add_build_options(parser)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Tune, write the records, show the table."""
    seconds = _seconds(arguments)
    folder, database = _place(arguments.output)
    model = opened(arguments, console)
    if model.is_program:
        raise LoadError(f"{model.path}: a program, built already: tuning is for models")
    mod = model.imported(console)
    threads = arguments.threads
    with pass_context.PassContext(**pass_settings(arguments)):
        with console.stage("kernels and their shares of a run"):
            tasks = tuning.tasks_of(mod, target_text(arguments.target))
        with _listener(console, seconds) as listener:
            tuned = meta_schedule.tune_kernels(
                tasks, seconds, target=target_text(arguments.target), work_dir=folder,
                max_trials=arguments.trials, num_threads=threads, seed=arguments.seed,
                confidence=arguments.confidence, database=database, listener=listener,
            )  # fmt: skip
    heads, *rows = tuned.rows()
    console.table(heads, rows, title=f"{tuned.seconds:.0f} s, ended by: {tuned.ended}")
    console.text(f"{tuned.speedup:.3f}x of the time in these kernels; records: {arguments.output}")
    console.result({"event": "end", **tuned.to_plain(), "records": arguments.output})
    return 0


def _seconds(arguments: argparse.Namespace) -> float:
    if arguments.minutes is not None and arguments.seconds is not None:
        raise LoadError("--minutes, --seconds: wanted one of them")
    minutes = 2.0 if arguments.minutes is None else arguments.minutes
    seconds = 60.0 * minutes if arguments.seconds is None else arguments.seconds
    if not 0 < seconds < math.inf:
        raise LoadError(f"--minutes, --seconds: wanted a time above 0, got {seconds:g} s")
    return float(seconds)


def _place(output: str) -> tuple[str | None, Any]:
    """(folder for all that is kept, database)"""
    if not output.endswith(".json") or os.path.isdir(output):
        if os.path.isfile(output):
            raise LoadError(f"-o {output}: wanted a folder or a file that ends in .json")
        return output, None
    if not os.path.isdir(os.path.dirname(output) or "."):
        raise LoadError(f"-o {output}: wanted a file in a folder that is there")
    with open(output, "ab"):
        pass  # so that --records finds it, even if nothing is won
    return None, meta_schedule.JSONDatabase(output, output)


def _listener(console: Console, seconds: float) -> Any:
    """A person sees a table or lines; machines get an event a line on standard error."""
    if not console.json:
        return progress.Progress(seconds)
    return progress.Progress.chosen(_event)


def _event(kind: str, task: Any, text: str) -> None:
    plain = {"event": kind, "text": text, "task": task and task.to_plain()}
    print(json.dumps(plain), file=sys.stderr)
