"""`RayRunner`: kernels run on the machines of a Ray cluster (the extra `ray`)."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from ...base import ScheduleError, submodules
from ..arg_info import TensorInfo
from .config import EvaluatorConfig
from .local_runner import LocalRunner
from .runner import Runner, RunnerFuture, RunnerInput, RunnerResult


class RayRunner(Runner, kind="ray"):
    """Where a tuner searches and measures: `relaxvm.tune(mod, runner=RayRunner(num_workers=8))`, or
    `runner="ray"`.

    num_workers       how many; None: as many as the cluster has room for
    num_cpus          cores of each, which Ray keeps for it: most threads of a parallel loop, and
                      one that searches and builds at a time
    resources         other resources of Ray that each takes, such as {"tuner": 1}
    address           of the cluster; None: the one that `ray.init` was called for, or one on this
                      machine, which ends with this process
    timeout_sec       for each kernel
    evaluator_config  how long `run` measures
    start_sec         how long is waited for the first workers

    relaxvm has to be installed where the workers run. Raises ScheduleError where Ray is not.
    """

    def __init__(
        self,
        num_workers: int | None = None,
        num_cpus: int = 1,
        resources: Mapping[str, float] | None = None,
        address: str | None = None,
        timeout_sec: float = 30.0,
        evaluator_config: EvaluatorConfig | None = None,
        start_sec: float = 120.0,
    ) -> None:
        for name, count in (("num_workers", num_workers), ("num_cpus", num_cpus)):
            if count is not None and (type(count) is not int or count < 1):
                raise ScheduleError(f"RayRunner: {name}: wanted a number above 0, got {count!r}")
        self.num_workers, self.num_cpus = num_workers, num_cpus
        self.resources, self.address = dict(resources or {}), address
        self.timeout_sec, self.start_sec = float(timeout_sec), float(start_sec)
        self.evaluator_config = evaluator_config or EvaluatorConfig()
        self._ray: Any = None

    def cluster(self) -> Any:
        """The module `ray`, of which a cluster was entered."""
        if self._ray is None:
            try:
                import ray
            except ImportError:
                raise ScheduleError(
                    'RayRunner: there is no Ray: install it (pip install "relaxvm[ray]")'
                ) from None
            if not ray.is_initialized():
                ray.init(address=self.address, include_dashboard=False, log_to_driver=False)
            self._ray = ray
        return self._ray

    def options(self) -> dict[str, Any]:
        """What Ray keeps for each worker."""
        return {"num_cpus": self.num_cpus, "resources": self.resources}

    def count(self) -> int:
        """How many workers there are to be."""
        if self.num_workers is not None:
            return self.num_workers
        there = self.cluster().cluster_resources()
        wanted = {"CPU": self.num_cpus, **self.resources}
        return max(1, min(int(there.get(name, 0) // each) for name, each in wanted.items()))

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        """Each as a task of Ray."""
        ray = self.cluster()
        remote = ray.remote(**self.options(), max_retries=2)(_ran)
        return [self._future(ray, remote, one) for one in runner_inputs]

    def _future(self, ray: Any, remote: Any, one: RunnerInput) -> RunnerFuture:
        try:
            data = pathlib.Path(one.artifact_path).read_bytes()
        except OSError as error:
            failed = RunnerResult(None, str(error))
            return RunnerFuture(lambda: True, lambda: failed)
        infos = [info.as_json() for info in one.args_info]
        options = (self.timeout_sec, self.evaluator_config, self.num_cpus)
        answer = remote.remote(data, one.device_type, infos, options)

        def result() -> RunnerResult:
            try:
                return RunnerResult(*ray.get(answer))
            except ray.exceptions.RayError as error:
                return RunnerResult(None, f"the worker was lost: {error}")

        return RunnerFuture(lambda: bool(ray.wait([answer], timeout=0)[0]), result)


def _ran(
    data: bytes, device: str, infos: Sequence[Any], options: tuple[float, EvaluatorConfig, int]
) -> tuple[list[float] | None, str | None]:
    """Run a kernel in a process of a worker."""
    timeout, config, threads = options
    runner = LocalRunner(timeout, config, num_threads=threads)
    try:
        args = [TensorInfo.from_json(info) for info in infos]
        result = runner.run_bytes(data, device, args)
        return result.run_secs, result.error_msg
    finally:
        runner.close()


__getattr__ = submodules(__name__)
