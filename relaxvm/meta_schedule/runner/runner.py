"""What a runner is given, and gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...base import ScheduleError, record, submodules
from ..arg_info import TensorInfo


@record(frozen=False)
class RunnerInput:
    """The file of a kernel, the device, and what it is called with."""

    artifact_path: str
    device_type: str
    args_info: Sequence[TensorInfo]


@record(frozen=False)
class RunnerResult:
    """Seconds of a call, by sample; or what went wrong."""

    run_secs: list[float] | None
    error_msg: str | None = None


class RunnerFuture:
    """A result that may still be coming. Derive from it (`PyRunnerFuture`) by giving `done` and
    `result`, or give the two functions.
    """

    def __init__(
        self,
        f_done: Callable[[], bool] | None = None,
        f_result: Callable[[], RunnerResult] | None = None,
    ) -> None:
        self._f_done, self._f_result = f_done, f_result

    def done(self) -> bool:
        """Whether `result` does not wait."""
        if self._f_done is None:
            raise NotImplementedError(f"{type(self).__name__} does not say when it is done")
        return self._f_done()

    def result(self) -> RunnerResult:
        """The result."""
        if self._f_result is None:
            raise NotImplementedError(f"{type(self).__name__} gives no result")
        return self._f_result()


PyRunnerFuture = RunnerFuture


_KINDS: dict[str, Callable[..., Runner]] = {}


class Runner:
    """Derive from it (`PyRunner`) by giving `run`."""

    def run(self, runner_inputs: Sequence[RunnerInput]) -> list[RunnerFuture]:
        """A future for each."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it runs")

    def close(self) -> None:
        """Give back what it holds."""

    def __init_subclass__(cls, kind: str = "") -> None:
        super().__init_subclass__()
        if kind:
            _KINDS[kind] = cls

    @staticmethod
    def create(kind: str = "local", *args: Any, **options: Any) -> Runner:
        """A runner by its kind: "local", "rpc"."""
        if kind not in _KINDS:
            raise ScheduleError(f"Runner.create: kind is one of {', '.join(_KINDS)}, got {kind!r}")
        return _KINDS[kind](*args, **options)


PyRunner = Runner


__getattr__ = submodules(__name__)
