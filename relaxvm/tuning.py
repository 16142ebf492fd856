"""`relaxvm.tune`: schedules found by measuring, for everything that can be built."""

from __future__ import annotations

import contextlib
import os
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from .choices import Choices, model_key
from .ir import IRModule, PassContext, Var
from .meta_schedule import (
    Database,
    Listener,
    Parts,
    Progress,
    Task,
    Tuned,
    Whole,
    check_limits,
    database_of,
    heard,
    interrupts,
    tasks_from,
    tune_kernels,
)
from .pipeline import build, reachable_kernels, ready_to_schedule
from .relax import Function
from .relax.analysis import kernel_calls
from .relax.frontend import onnx
from .runtime import Executable, VirtualMachine, cpu, made_up, sinfo
from .target import Target
from .tir import PrimFunc
from .whole_models import WholeModel

# The part of the time that choices about the whole model may take, and at most.
_WHOLE, _MOST_SECONDS = 0.25, 60.0
# Runs that tell shares.
_RUNS = 3
# Arguments of "main", or what gives those of a program.
Inputs = Sequence[Any] | Callable[[Executable], Sequence[Any]]


def tune(
    mod: Any,
    seconds: float = 120.0,
    *,
    target: Any = None,
    work_dir: str | os.PathLike[str] | None = None,
    max_trials: int | None = None,
    max_trials_per_task: int | None = None,
    num_threads: int | None = None,
    inputs: Inputs | None = None,
    shape_dict: Mapping[str, Any] | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    database: Database | None = None,
    listener: Listener | Literal[False] | None = None,
    whole_model: bool = True,
    **parts: Any,
) -> Tuned:
    """Find schedules that are faster than the default ones, for so many seconds::

        tuned = relaxvm.tune(mod, seconds=60)
        with tuned.database:
            ex = relaxvm.build(mod)

    mod          a loop function, a module of them, a module with graph functions, or an ONNX model
                 (path, bytes, ModelProto)
    target       as in `relaxvm.build`; it has to run on this machine
    work_dir     a folder where all is kept: records (a `JSONDatabase`), what was tried, programs
                 that show wrong results. With what is there from before, tuning goes on. None:
                 nothing stays but what is returned
    max_trials   end after so many candidates, of all kernels or of each
    num_threads  of a parallel loop while measuring; None: as many as the target has cores
    inputs       arguments of "main" for the run that tells the share of each kernel, or a function
                 that gives them for the program; None: random ones, symbolic sizes taken as 64
    shape_dict   of an ONNX model: as in `relax.frontend.onnx.from_onnx`
    confidence   of the comparison by turns that another schedule has to win
    seed         of the search
    database     takes the records instead of one in `work_dir`
    listener     is told what happens: (kind, task or None, text). None: it is shown, as a table in
                 a notebook and on a terminal, else in lines on standard error; False: nothing is
    whole_model  whether a quarter of the time, 60 s at most, goes to choices about the whole model
                 (`Choices`): fusion, layouts, cores, how graph functions run
    parts        fields of `meta_schedule.Parts`: builder, runner, cost_model, measure_callbacks,
                 task_scheduler, space, strategy, special_space, num_tuning_cores. With
                 runner="ray", or a `meta_schedule.runner.RayRunner`, kernels are tuned by the
                 workers of a cluster, all at once

    Every candidate is built and run in processes of their own, its results are compared with those
    of the default schedule. Kernels with symbolic sizes are tuned at those of that run, and must
    not be slower at a quarter and at four times of them. An interrupt (Ctrl-C) ends the search; the
    best so far are compared and kept; another one ends the comparison. Raises ScheduleError if
    there is nothing to tune.
    """
    begun = time.perf_counter()
    # What is wrong is said before a model is built.
    check_limits(seconds, max_trials, max_trials_per_task, num_threads, confidence, seed)
    choices, chosen_parts = Choices(), Parts(**parts)
    kept = database_of(database, None if work_dir is None else pathlib.Path(work_dir))
    chosen, mod = Target.or_current(target), module_of(mod, shape_dict)
    whole = model = None
    tasks: list[Task] = []
    reserved = 0.0
    with Progress.chosen(listener, seconds) as tell, interrupts() as told:
        if whole_model and is_graph(mod) and "main" in mod:
            share = min(_WHOLE * seconds, _MOST_SECONDS)
            whole = Whole()
            with heard():
                model = WholeModel(
                    mod, chosen, lambda program: inputs_for(program, inputs),
                    num_threads=num_threads, confidence=confidence, seconds=min(1.0, share / 8),
                )  # fmt: skip
            choices = model.choose(begun + share, whole, tell)
            reserved = min(model.seconds_of_one, share)
        with choices.passes():
            with contextlib.suppress(KeyboardInterrupt), heard():
                if not told.count:
                    converted = choices.converted(mod)
                    tasks = tasks_of(converted, choices.target(chosen), inputs=inputs)
            tuned = tune_kernels(
                tasks, seconds,
                target=choices.target(chosen), work_dir=work_dir, max_trials=max_trials,
                max_trials_per_task=max_trials_per_task, num_threads=num_threads,
                confidence=confidence, seed=seed, database=kept, listener=tell,
                spent=time.perf_counter() - begun + reserved, parts=chosen_parts,
            )  # fmt: skip
        if whole is not None and model is not None:
            if choices != Choices() or kept.knows_models:
                kept.commit_choices(model_key(mod), choices.as_json(), chosen)
            is_tuned = choices != Choices() or any(task.speedup > 1 for task in tuned.tasks)
            if is_tuned and time.perf_counter() < begun + seconds:
                with contextlib.suppress(KeyboardInterrupt), heard(), kept:
                    whole.final = model.compare(model.default, model.runs(Choices()))
            tuned.whole = whole
    tuned.seconds = time.perf_counter() - begun
    return tuned


def tasks_of(
    mod: Any,
    target: Any = None,
    *,
    inputs: Inputs | None = None,
    shape_dict: Mapping[str, Any] | None = None,
) -> list[Task]:
    """The kernels of a module that a build for `target` would schedule, with their shares of a run.
    Arguments and errors as those of `tune`.
    """
    chosen, mod = Target.or_current(target), module_of(mod, shape_dict)
    if not is_graph(mod):
        alone = {gv.name_hint: fn for gv, fn in mod.items() if isinstance(fn, PrimFunc)}
        return tasks_from(alone, dict.fromkeys(alone, 1 / max(1, len(alone))))
    with PassContext.current().again():
        mod = ready_to_schedule(mod, chosen)
        kernels = kernels_of(mod)
        if kernels and "main" in mod:
            return tasks_from(kernels, *run_of(kernels, mod, chosen, inputs))
        calls = kernel_calls(mod)
        return tasks_from(kernels, {name: calls[name] / calls.total() for name in kernels})


def module_of(mod: Any, shape_dict: Mapping[str, Any] | None = None) -> IRModule:
    """The module of what `tune` takes."""
    if isinstance(mod, PrimFunc):
        return IRModule({"main": mod})
    return mod if isinstance(mod, IRModule) else onnx.from_onnx(mod, shape_dict)


def is_graph(mod: IRModule) -> bool:
    """Whether it has graph functions."""
    return any(isinstance(fn, Function) for fn in mod.functions.values())


def kernels_of(mod: IRModule) -> dict[str, PrimFunc]:
    """{name: loop function} of those that graph functions call."""
    loops = reachable_kernels(mod)
    return {gv.name_hint: fn for gv, fn in loops.items() if isinstance(fn, PrimFunc)}


def run_of(
    kernels: Mapping[str, PrimFunc], mod: IRModule, target: Target, inputs: Inputs | None = None
) -> tuple[dict[str, float], dict[str, dict[str, int | float]]]:
    """Of a run of "main", one thread: {kernel: its part of the time of all}, {kernel: sizes of its
    symbols, and its scalars}.

    mod  as `pipeline.ready_to_schedule` gives it
    """
    program = build(mod, target, pipeline=None, exec_mode="bytecode")
    vm = VirtualMachine(program, cpu(), num_threads=1)
    values = inputs_for(program, inputs)
    reports = [vm.profile("main", *values) for _ in range(_RUNS)]
    report = min(reports, key=lambda r: r.calls_ns)
    times = {row.name: row.total_ns for row in report.calls if row.name in kernels}
    sizes: dict[str, dict[str, int | float]] = {}

    def look(fn: Any, name: str, before_run: bool, result: Any, *args: Any) -> None:
        if before_run and name in kernels:
            buffers = [kernels[name].buffer_map.get(p) for p in kernels[name].params]
            pairs = [pair for b, arg in zip(buffers, args) if b for pair in zip(b.shape, arg.shape)]
            own = {s.name: int(n) for s, n in pairs if isinstance(s, Var)}
            scalars = {
                p.name: arg
                for p, b, arg in zip(kernels[name].params, buffers, args)
                if b is None and isinstance(arg, (int, float))
            }
            sizes.setdefault(name, own | scalars)

    vm.set_instrument(look)
    vm["main"](*values)
    return {name: took / sum(times.values()) for name, took in times.items()}, sizes


def inputs_for(program: Executable, inputs: Inputs | None) -> list[Any]:
    """Arguments for "main": those that are given, or random ones."""
    inputs = random_inputs if inputs is None else inputs
    return list(inputs(program) if callable(inputs) else inputs)


def random_inputs(program: Executable, seed: int = 0) -> list[Any]:
    """Arguments for "main", symbols taken as `made_up.SIZE`. Raises VMValueError for what cannot be
    made up.
    """
    info = program.function("main")
    rng = np.random.default_rng(seed)
    sizes = {s: made_up.SIZE for param in info.params for s in sinfo.symbols_in(param)}
    pairs = zip(info.param_names, info.params)
    return [made_up.value(f"tune: {name}", param, sizes, rng) for name, param in pairs]
