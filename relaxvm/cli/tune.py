"""`relaxvm tune`: faster schedules for the kernels of a model, in the time that is seconds."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
from typing import TYPE_CHECKING, Any

from ..base import Deferred, LoadError
from ..runtime import made_up
from .console import Console
from .inputs import add_input_options, inputs_of
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
    relaxvm tune model.onnx --minutes 5 -o tuned --runner ray --address auto --worker-cpus 2
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
    parser.add_argument(
        "--confidence", type=float, default=0.95, help="that a schedule is faster; 0.95"
    )
    parser.add_argument(
        "--kernels-only", action="store_true",
        help="try nothing on the model as a whole: fusion, layouts, cores",
    )  # fmt: skip
    parser.add_argument(
        "--runner", choices=("local", "ray"), default="local",
        help="ray: the workers of a Ray cluster tune (the extra ray); local",
    )  # fmt: skip
    ray = parser.add_argument_group("with --runner ray")
    ray.add_argument("--address", help="of the cluster; else one on this machine")
    ray.add_argument("--workers", type=int, help="how many; as many as there is room for")
    ray.add_argument("--worker-cpus", type=int, default=1, metavar="N", help="cores of each; 1")
    ray.add_argument(
        "--worker-resource", action="append", default=[], metavar="NAME=AMOUNT",
        help="what else Ray keeps for each",
    )  # fmt: skip
    add_input_options(parser, made_up.SIZE, " and of the search")
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
        with _listener(console, seconds) as listener:
            tuned = tuning.tune(
                mod, seconds, target=target_text(arguments.target), work_dir=folder,
                max_trials=arguments.trials, num_threads=threads, seed=arguments.seed,
                confidence=arguments.confidence, database=database, listener=listener,
                inputs=lambda program: list(
                    inputs_of(arguments, program, console, model.shapes, made_up.SIZE).values()
                ),
                whole_model=not arguments.kernels_only, runner=_runner(arguments),
            )  # fmt: skip
    heads, *rows = tuned.rows()
    console.table(heads, rows, title=f"{tuned.seconds:.0f} s, ended by: {tuned.ended}")
    if tuned.whole is not None:
        console.text(str(tuned.whole))
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


def _runner(arguments: argparse.Namespace) -> Any:
    """ "local", or the workers that are asked for."""
    of_ray = {
        "address": arguments.address,
        "num_workers": arguments.workers,
        "num_cpus": arguments.worker_cpus,
        "resources": dict(map(_amount, arguments.worker_resource)),
    }
    if arguments.runner == "ray":
        return meta_schedule.runner.RayRunner(**of_ray)
    if of_ray != {"address": None, "num_workers": None, "num_cpus": 1, "resources": {}}:
        raise LoadError(
            "--address, --workers, --worker-cpus, --worker-resource: wanted --runner ray"
        )
    return arguments.runner


def _amount(text: str) -> tuple[str, float]:
    name, _, amount = text.partition("=")
    with contextlib.suppress(ValueError):
        if name and 0 < float(amount) < math.inf:
            return name, float(amount)
    raise LoadError(f"--worker-resource {text}: wanted NAME=AMOUNT, such as tuner=1")


def _place(output: str) -> tuple[str | None, Any]:
    """(folder for all that is kept, database)"""
    if not output.endswith(".json") or os.path.isdir(output):
        if os.path.isfile(output):
            raise LoadError(f"-o {output}: wanted a folder or a file that ends in .json")
        return output, None
    if not os.path.isdir(os.path.dirname(output) or "."):
        raise LoadError(f"-o {output}: wanted a file in a folder that is there")
    return None, meta_schedule.JSONDatabase(output, output)


def _listener(console: Console, seconds: float) -> Any:
    """A person sees a table or lines; machines get an event a line on standard error."""
    return progress.Events(seconds) if console.json else progress.Progress(seconds)
