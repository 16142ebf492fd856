"""`relaxvm.tune`: schedules found by measuring, for everything that can be built."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .base import VMValueError
from .ir import IRModule, PassContext
from .meta_schedule import Database, Listener, Task, Tuned, tasks_from, tune_kernels
from .pipeline import build, kernels_to_schedule
from .relax import Function
from .relax.frontend import onnx
from .runtime import VirtualMachine, array, cpu, dims
from .runtime.sinfo import TensorInfo
from .target import Target
from .tir import PrimFunc

# What sizes count as that are known only when a program runs, and runs that tell shares.
_SIZE, _RUNS = 64, 3


def tune(
    mod: Any,
    seconds: float = 120.0,
    *,
    target: Any = None,
    work_dir: str | os.PathLike[str] | None = None,
    max_trials: int | None = None,
    max_trials_per_task: int | None = None,
    num_threads: int | None = None,
    inputs: Sequence[Any] | None = None,
    shape_dict: Mapping[str, Any] | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    database: Database | None = None,
    listener: Listener | None = None,
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
    inputs       arguments of "main" for the run that tells the share of each kernel; None: random
                 ones, symbolic sizes taken as 64
    shape_dict   of an ONNX model: as in `relax.frontend.onnx.from_onnx`
    confidence   of the comparison by turns that another schedule has to win
    seed         of the search
    database     takes the records instead of one in `work_dir`
    listener     is told what happens: (kind, task or None, text)

    Every candidate is built and run in processes of their own, its results are compared with those
    of the default schedule. Kernels with symbolic sizes keep theirs. An interrupt (Ctrl-C) ends the
    search; the best so far are compared and kept. Raises ScheduleError if there is nothing to tune.
    """
    begun = time.perf_counter()
    tasks = tasks_of(mod, target, inputs=inputs, shape_dict=shape_dict)
    return tune_kernels(
        tasks, seconds,
        target=target, work_dir=work_dir, max_trials=max_trials,
        max_trials_per_task=max_trials_per_task, num_threads=num_threads, confidence=confidence,
        seed=seed, database=database, listener=listener, spent=time.perf_counter() - begun,
    )  # fmt: skip


def tasks_of(
    mod: Any,
    target: Any = None,
    *,
    inputs: Sequence[Any] | None = None,
    shape_dict: Mapping[str, Any] | None = None,
) -> list[Task]:
    """The kernels of a module that a build for `target` would schedule, with their shares of a run.
    Arguments and errors as those of `tune`.
    """
    chosen = Target.or_current(target)
    if isinstance(mod, PrimFunc):
        mod = IRModule({"main": mod})
    elif not isinstance(mod, IRModule):
        mod = onnx.from_onnx(mod, shape_dict)
    functions = {gv.name_hint: fn for gv, fn in mod.items()}
    if not any(isinstance(fn, Function) for fn in functions.values()):
        alone = {name: fn for name, fn in functions.items() if isinstance(fn, PrimFunc)}
        return tasks_from(alone, dict.fromkeys(alone, 1 / max(1, len(alone))))
    with PassContext.current().again():
        loops = kernels_to_schedule(mod, chosen)
    kernels = {gv.name_hint: fn for gv, fn in loops.items() if isinstance(fn, PrimFunc)}
    return tasks_from(kernels, shares_of(kernels, mod, chosen, inputs) if kernels else {})


def shares_of(
    kernels: Mapping[str, PrimFunc], mod: IRModule, target: Target, inputs: Sequence[Any] | None
) -> dict[str, float]:
    """{kernel: its part of the time of all kernels of a run of "main"}, one thread."""
    with PassContext.current().again():
        program = build(mod, target, exec_mode="bytecode")
    vm = VirtualMachine(program, cpu(), num_threads=1)
    values = random_inputs(program) if inputs is None else list(inputs)
    reports = [vm.profile("main", *values) for _ in range(_RUNS)]
    report = min(reports, key=lambda r: r.calls_ns)
    times = {row.name: row.total_ns for row in report.calls if row.name in kernels}
    return {name: took / sum(times.values()) for name, took in times.items()}


def random_inputs(program: Any, seed: int = 0) -> list[Any]:
    """Arguments for "main": normal floats; integers 0 and 1, which are in every table."""
    rng = np.random.default_rng(seed)
    values: list[Any] = []
    info = program.function("main")
    for name, param in zip(info.param_names, info.params):
        if not isinstance(param, TensorInfo) or param.shape is None:
            raise VMValueError(f"tune: nothing is made up for {name}, {param}: give `inputs`")
        sizes = {s: _SIZE for d in param.shape for s in dims.symbols_of(d)}
        shape = [int(dims.evaluate(d, sizes)) for d in param.shape]
        dtype = str(param.dtype or "float32")
        if dtype.startswith(("int", "uint", "bool")):
            values.append(array(rng.integers(0, 2, shape).astype(dtype), dtype=dtype))
        else:
            values.append(array(rng.standard_normal(shape, "float32"), dtype=dtype))
    return values
