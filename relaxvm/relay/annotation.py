"""`relay.annotation`: marks for passes; as a value each is what it marks."""

from __future__ import annotations

from ..base import submodules
from ..relax import op as ops
from . import parts
from .spelling import spelled

on_device = spelled(
    "annotation.on_device",
    lambda body, device, constrain_result=False, constrain_body=True: ops.hint_on_device(
        body, parts.device(device)
    ),
)
stop_fusion = spelled("annotation.stop_fusion", lambda data: data)
checkpoint = spelled("annotation.checkpoint", lambda data: data)

__getattr__ = submodules(__name__)
