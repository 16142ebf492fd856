"""`LocalRunner`: kernels run in a process of this machine."""

from __future__ import annotations

import math
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ...base import DataType, ScheduleError, submodules
from ..arg_info import TensorInfo
from ..arguments import integers_of
from ..processes import Process, default_memory_bytes
from .config import EvaluatorConfig
from .runner import Runner, RunnerFuture, RunnerInput, RunnerResult

# TVM's, which are None by default.
_FUNCTIONS = {"f_alloc_argument", "f_run_evaluator", "f_cleanup", "initializer"}


class LocalRunner(Runner, kind="local"):
    """Runs in a process of this machine, whose crashes and limits stay outside.

    timeout_sec       for each kernel
    evaluator_config  how long is measured
    cooldown_sec      rest between two kernels
    memory_bytes      for each kernel; by default 4 GiB, or half of the machine's
    num_threads       most threads of a parallel loop; one is kept on its core while measuring
    """

    def __init__(
        self,
        timeout_sec: float = 30.0,
        evaluator_config: EvaluatorConfig | None = None,
        cooldown_sec: float = 0.0,
        *,
        memory_bytes: int | None = None,
        num_threads: int = 1,
        **functions: Any,
    ) -> None:
        unknown = functions.keys() - _FUNCTIONS
        if unknown:
            raise TypeError(f"LocalRunner: unknown arguments: {', '.join(sorted(unknown))}")
        wanted = [name for name, value in functions.items() if value is not None]
        if wanted:
            raise ScheduleError(
                f"LocalRunner: {', '.join(wanted)}: kernels run in another process, which gets "
                "no functions of this one; derive from PyRunner to run them otherwise"
            )
        if not timeout_sec > 0 or not cooldown_sec >= 0:
            raise ScheduleError("LocalRunner: wanted timeout_sec above 0, and cooldown_sec from 0")
        self.timeout_sec, self.cooldown_sec = float(timeout_sec), float(cooldown_sec)
        self.evaluator_config = evaluator_config or EvaluatorConfig()
        self.num_threads = num_threads
        memory = default_memory_bytes() if memory_bytes is None else memory_bytes
        self._process = Process(memory)
        self._task: Mapping[str, Any] | None = None
        self._prepared = -1

    def start(self) -> None:
        """Have the process ready. Raises ScheduleError if there can be none."""
        self._process.ready()

    def prepare(self, task: Mapping[str, Any], seconds: float = math.inf) -> dict[str, Any]:
        """Let the kernels that come be checked against the default one, of which `task` tells (see
        `worker._Task`), unless they are already: {} or {"kind", "reason"}, within so many seconds.
        """
        self._process.ready()
        if self._prepared == self._process.generation and self._task is task:
            return {}
        self._task = None
        request = {"do": "prepare", "threads": self.num_threads, **task}
        answer = self._process.ask(request, min(seconds, 2 * self.timeout_sec + 10))
        if "kind" in answer:
            return answer
        self._task, self._prepared = task, self._process.generation
        return {}

    def ask(
        self, task: Mapping[str, Any], request: Mapping[str, Any], seconds: float | None = None
    ) -> dict[str, Any]:
        """The worker's answer about a kernel of `task`. Several tasks may take turns."""
        refused = self.prepare(task)
        if refused:
            return {**refused, "reason": f"of the default schedule: {refused['reason']}"}
        answer = self._process.ask(request, seconds or self.timeout_sec)
        if self.cooldown_sec:
            time.sleep(self.cooldown_sec)
        return answer

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        return [_finished(self._run(each)) for each in runner_inputs]

    def _run(self, one: RunnerInput) -> RunnerResult:
        try:
            module = pathlib.Path(one.artifact_path).read_bytes()
        except OSError as error:
            return RunnerResult(None, str(error))
        return self.run_bytes(module, one.device_type, one.args_info)

    def run_bytes(
        self, module: bytes, device_type: str, args_info: Sequence[TensorInfo]
    ) -> RunnerResult:
        """What is in the file of a kernel, run with these arguments."""
        if device_type not in ("cpu", "llvm", "c"):
            return RunnerResult(None, f"kernels run on a cpu, not on {device_type}")
        specs = [
            [info.dtype, list(info.shape), *integers_of(DataType(info.dtype))] for info in args_info
        ]
        task = {
            "module": module,
            "args": specs,
            "exact": False,
            "bound": 1.0,
            "seed": 0,
        }
        request = {"do": "run", "module": module, "enough": 0.0}
        answer = self.prepare(task) or self.ask(
            task, {**request, **self.evaluator_config.as_request()}
        )
        if "kind" in answer:
            return RunnerResult(None, f"{answer['kind']}: {answer['reason']}")
        return RunnerResult(answer["samples"])

    def kill(self) -> None:
        """End its process, whatever it is doing."""
        self._process.kill()

    def close(self) -> None:
        self._process.close()
        self._prepared = -1


def _finished(result: RunnerResult) -> RunnerFuture:
    return RunnerFuture(lambda: True, lambda: result)


__getattr__ = submodules(__name__)
