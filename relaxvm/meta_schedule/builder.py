"""Builders: candidates to kernels, in processes of their own.

builder = ms.builder.LocalBuilder(max_workers=2, timeout_sec=30)
(result,) = builder.build([ms.builder.BuilderInput(sch.mod, Target("llvm"))])
result.artifact_path                     a kernel library, as `runtime.Module.load` reads
"""

from __future__ import annotations

import math
import pathlib
import queue
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgpack

from ..base import ScheduleError, record, submodules
from ..ir import IRModule, PassContext, save_msgpack
from ..runtime import get_global_func, usable_cores
from ..target import Target
from .processes import Process, default_memory_bytes


@record(frozen=False)
class BuilderInput:
    """A module with one loop function, scheduled, and its target. `params` are taken as in TVM;
    kernels have none.
    """

    mod: IRModule
    target: Any
    params: Mapping[str, Any] | None = None


@record(frozen=False)
class BuilderResult:
    """The file of the kernel, or why there is none."""

    artifact_path: str | None
    error_msg: str | None = None


class Builder:
    """Derive from it (`PyBuilder`) by giving `build`."""

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        """A result for each."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it builds")

    def close(self) -> None:
        """Give back what it holds."""

    @staticmethod
    def create(kind: str = "local", *args: Any, **options: Any) -> Builder:
        """A builder by its kind: "local"."""
        if kind != "local":
            raise ScheduleError(f"Builder.create: kind is local, got {kind!r}")
        return LocalBuilder(*args, **options)


PyBuilder = Builder
create = Builder.create


class LocalBuilder(Builder):
    """Builds in processes of this machine, which outlive neither a crash of LLVM nor the limits.

    max_workers   how many; by default, one per core
    timeout_sec   for each candidate
    memory_bytes  for each candidate; by default 4 GiB, or half of the machine's
    f_build       (module, target, params) -> `runtime.Module`, or the name that it is registered
                  by: then that is called here instead
    """

    def __init__(
        self,
        max_workers: int | None = None,
        timeout_sec: float = 30.0,
        f_build: Callable[..., Any] | str | None = None,
        f_export: None = None,
        initializer: None = None,
        *,
        memory_bytes: int | None = None,
    ) -> None:
        workers = usable_cores() if max_workers is None else max_workers
        if type(workers) is not int or not 1 <= workers <= 1024 or not timeout_sec > 0:
            raise ScheduleError(
                f"LocalBuilder: wanted 1 to 1024 workers and seconds above 0, got {max_workers!r} "
                f"and {timeout_sec!r}"
            )
        if f_export is not None or initializer is not None:
            raise ScheduleError(
                "LocalBuilder: f_export, initializer: kernels are written as files of their own "
                "kind, by processes that get no functions of this one; derive from PyBuilder"
            )
        if isinstance(f_build, str):
            f_build = get_global_func(f_build)
        if f_build is not None and not callable(f_build):
            raise ScheduleError(f"LocalBuilder: f_build is a function, got {f_build!r}")
        self.max_workers, self.timeout_sec, self.f_build = workers, float(timeout_sec), f_build
        memory = default_memory_bytes() if memory_bytes is None else memory_bytes
        self._processes = [Process(memory) for _ in range(workers)]
        # The one that was used last is surely there.
        self._free: queue.LifoQueue[Process] = queue.LifoQueue()
        for process in self._processes:
            self._free.put(process)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._count = 0

    def build_one(
        self, mod: IRModule, target: Any, context: list[Any], seconds: float = math.inf
    ) -> dict[str, Any]:
        """{"module": bytes}, or {"kind", "reason"}; "spent" are seconds. Threads may call it.

        context  of `plain_context`
        seconds  after which it is ended, if that is sooner than `timeout_sec`
        """
        if self.f_build is not None:
            try:
                return {"module": self.f_build(mod, Target(target), None).to_bytes(), "spent": 0.0}
            except Exception as error:  # whatever the user's function raises
                return {"kind": "build", "reason": f"{type(error).__name__}: {error}", "spent": 0.0}
        request = {
            "do": "build",
            "mod": save_msgpack(mod, spans=False),
            "target": Target(target).export(),
            "context": context,
        }
        process = self._free.get()
        try:
            return process.ask(request, min(seconds, self.timeout_sec))
        finally:
            self._free.put(process)

    def build(self, build_inputs: Sequence[BuilderInput]) -> list[BuilderResult]:
        context = plain_context()
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="relaxvm-tune-")
        with ThreadPoolExecutor(self.max_workers) as pool:
            try:
                jobs = [
                    pool.submit(self.build_one, each.mod, each.target, context)
                    for each in build_inputs
                ]
                answers = [job.result() for job in jobs]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self.kill()
                raise
        return [self._written(answer) for answer in answers]

    def _written(self, answer: Mapping[str, Any]) -> BuilderResult:
        if "kind" in answer:
            return BuilderResult(None, f"{answer['kind']}: {answer['reason']}")
        assert self._folder is not None
        self._count += 1
        path = pathlib.Path(self._folder.name) / f"{self._count}.kernels"
        path.write_bytes(answer["module"])
        return BuilderResult(str(path))

    def kill(self) -> None:
        """End its processes, whatever they are doing."""
        for process in self._processes:
            process.kill()

    def close(self) -> None:
        for process in self._processes:
            process.close()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def plain_context() -> list[Any]:
    """The current `PassContext`, for another process. Raises ScheduleError if it holds what cannot
    be sent, such as functions.
    """
    now = PassContext.current()
    plain = [now.opt_level, list(now.required_pass), list(now.disabled_pass), dict(now.config)]
    try:
        msgpack.packb(plain)
    except (TypeError, ValueError, OverflowError) as error:
        raise ScheduleError(
            f"candidates are built in another process, and the PassContext cannot be sent: {error}"
        ) from None
    return plain


__getattr__ = submodules(__name__)
