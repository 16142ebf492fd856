"""What the options of a `VirtualMachine` mean, in all the forms they may be given in."""

from __future__ import annotations

import os
from typing import Any

from ..base import VMTypeError, VMValueError
from .device import Device, cpu
from .fileformat import read
from .program import Program
from .verify import verify_program
from .vm_module import VMModule


def the_device(device: Any) -> Device:
    devices = device if isinstance(device, (list, tuple)) else [cpu() if device is None else device]
    for each in devices:
        if not isinstance(each, Device):
            raise VMTypeError(f"device: wanted a Device such as cpu(), got {type(each).__name__}")
    if not devices:
        raise VMValueError("device: wanted at least one Device")
    first: Device = devices[0]
    return first


def the_program(rt_mod: object, trust: str | None) -> Program:
    if isinstance(rt_mod, VMModule):
        rt_mod = rt_mod.vm.executable
    if isinstance(rt_mod, Program):
        if trust not in (None, "native", "portable"):
            raise VMValueError(f"trust: wanted None, 'native' or 'portable', got {trust!r}")
        verify_program(rt_mod)
        if trust is None or rt_mod.trusted == (trust == "native"):
            return rt_mod
        return rt_mod.with_trust(trust == "native")
    if isinstance(rt_mod, (str, os.PathLike, bytes, bytearray, memoryview)):
        return read(rt_mod, trust, False, Program)
    raise VMTypeError(
        f"VirtualMachine: wanted an Executable, a path or bytes, got {type(rt_mod).__name__}"
    )


def reuses_memory(memory_cfg: object) -> bool:
    """Whether any device is to use pooled memory, in TVM's forms: a name, or names by device."""
    if memory_cfg is None:
        return True
    chosen = list(memory_cfg.values()) if isinstance(memory_cfg, dict) else [memory_cfg]
    for name in chosen:
        if name not in ("naive", "pooled"):
            raise VMValueError(f"memory_cfg: wanted 'naive' or 'pooled', got {name!r}")
    return "pooled" in chosen
