"""`RPCRunner`, which there is not."""

from __future__ import annotations

from typing import Any

from ...base import ScheduleError, submodules
from .config import RPCConfig
from .runner import Runner


class RPCRunner(Runner, kind="rpc"):
    """Refused: kernels are measured on the machine that builds them. Tune there, and carry the
    database over: its records are starting points elsewhere.
    """

    def __init__(self, rpc_config: RPCConfig | None = None, **options: Any) -> None:
        raise ScheduleError(
            "RPCRunner: there is no RPC: tune on the machine that is tuned for (LocalRunner), and "
            "carry the database over; or derive from PyRunner"
        )


__getattr__ = submodules(__name__)
