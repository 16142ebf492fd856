"""How long is measured, and where."""

from __future__ import annotations

from typing import Any

from ...base import ScheduleError, record, submodules

_MOST = 10**9


@record
class EvaluatorConfig:
    """How long is measured.

    number                  calls in a sample, at least
    repeat                  samples
    min_repeat_ms           how long a sample lasts at least
    enable_cpu_cache_flush  whether caches are emptied before each sample, which is one call then
    """

    number: int = 3
    repeat: int = 1
    min_repeat_ms: int = 100
    enable_cpu_cache_flush: bool = False

    def __post_init__(self) -> None:
        for name, least in (("number", 1), ("repeat", 1), ("min_repeat_ms", 0)):
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= _MOST:
                raise ScheduleError(
                    f"EvaluatorConfig: {name}: wanted {least} to {_MOST}, got {value!r}"
                )

    def as_request(self) -> dict[str, Any]:
        """As the worker takes it."""
        return {
            "number": self.number,
            "repeat": self.repeat,
            "min_repeat_ms": self.min_repeat_ms,
            "cold": bool(self.enable_cpu_cache_flush),
        }


@record
class RPCConfig:
    """Where TVM's tracker is. Nothing here speaks to it."""

    tracker_host: str | None = None
    tracker_port: int | None = None
    tracker_key: str | None = None
    session_priority: int = 1
    session_timeout_sec: int = 10


__getattr__ = submodules(__name__)
