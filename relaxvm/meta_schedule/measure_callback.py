"""What is done with each batch of candidates that were measured.

class Print(ms.measure_callback.PyMeasureCallback):
    def apply(self, task_scheduler, task_id, measure_candidates, builder_results, runner_results):
        print(runner_results[0].run_secs)
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any

from ..base import ScheduleError, submodules
from ..ir import IRModule
from .builder import BuilderResult
from .database import TuningRecord
from .derived import asked
from .runner import RunnerResult


class MeasureCallback:
    """Derive from it (`PyMeasureCallback`) by giving `apply`."""

    def apply(
        self,
        task_scheduler: Any,
        task_id: int,
        measure_candidates: Sequence[Any],
        builder_results: Sequence[BuilderResult],
        runner_results: Sequence[RunnerResult],
    ) -> None:
        """Called with a batch, whose three lists are of one length.

        task_scheduler  with `database_`, `cost_model_` and `tasks_[task_id]`, whose `ctx` is its
                        `TuneContext`
        """
        raise NotImplementedError(f"{type(self).__name__} does not say what it does")

    @staticmethod
    def create(kind: Any = "default") -> Any:
        """A callback by its kind: "add_to_database", "remove_build_artifact", "update_cost_model";
        or "default", the list of all three.
        """
        if kind == "default":
            return [each() for each in _KINDS.values()]
        if kind not in _KINDS:
            listed = ", ".join(["default", *_KINDS])
            raise ScheduleError(f"MeasureCallback.create: kind is one of {listed}, got {kind!r}")
        return _KINDS[kind]()


PyMeasureCallback = MeasureCallback
create = MeasureCallback.create


class AddToDatabase(MeasureCallback):
    """Commit what ran, and what did not, to the database of the scheduler, if it has one."""

    def apply(
        self,
        task_scheduler: Any,
        task_id: int,
        measure_candidates: Sequence[Any],
        builder_results: Sequence[BuilderResult],
        runner_results: Sequence[RunnerResult],
    ) -> None:
        database = task_scheduler.database_
        if database is None:
            return
        ctx = task_scheduler.tasks_[task_id].ctx
        workload = database.commit_workload(IRModule({"main": ctx.space.fn}))
        for candidate, result in zip(measure_candidates, runner_results):
            database.commit_tuning_record(
                TuningRecord.of(
                    candidate.sch,
                    workload,
                    result.run_secs if result.error_msg is None else None,
                    ctx.target,
                    candidate.args_info,
                )
            )


class RemoveBuildArtifact(MeasureCallback):
    """Delete the files of the kernels."""

    def apply(
        self,
        task_scheduler: Any,
        task_id: int,
        measure_candidates: Sequence[Any],
        builder_results: Sequence[BuilderResult],
        runner_results: Sequence[RunnerResult],
    ) -> None:
        for result in builder_results:
            if result.artifact_path is not None:
                with contextlib.suppress(OSError):
                    os.unlink(result.artifact_path)


class UpdateCostModel(MeasureCallback):
    """Let the cost model of the scheduler, if it has one, learn from what was built."""

    def apply(
        self,
        task_scheduler: Any,
        task_id: int,
        measure_candidates: Sequence[Any],
        builder_results: Sequence[BuilderResult],
        runner_results: Sequence[RunnerResult],
    ) -> None:
        if task_scheduler.cost_model_ is None:
            return
        rows = zip(measure_candidates, builder_results, runner_results)
        built = [(c, r) for c, b, r in rows if b.error_msg is None]
        if built:
            candidates, results = (list(column) for column in zip(*built))
            with asked(task_scheduler.cost_model_, "update"):
                task_scheduler.cost_model_.update(
                    task_scheduler.tasks_[task_id].ctx, candidates, results
                )


_KINDS: dict[str, type[MeasureCallback]] = {
    "add_to_database": AddToDatabase,
    "remove_build_artifact": RemoveBuildArtifact,
    "update_cost_model": UpdateCostModel,
}

__getattr__ = submodules(__name__)
