"""What the functions of all programs call, compiled once for a machine."""

from __future__ import annotations

import contextlib
import functools
import threading
from contextvars import copy_context
from dataclasses import replace

from ... import __version__
from ...base import RelaxvmError
from ...runtime import DiskCache
from ...runtime.locks import lock
from ..target import Target
from .machine import Machine, compile_text, machine_of, producer
from .module import ModuleText
from .net import has_worker
from .vm_support import define_support

# Level 2 gains these nothing.
_OPT_LEVEL = 1
# These, units by what they are made of, VM functions by their program.
objects = DiskCache("objects", 1 << 29)


def support_at_hand(target: Target) -> None:
    """Have compiled what all programs for `target` call, in a thread, if LLVM's process is there:
    while passes run, it has nothing to do.
    """
    if target.kind_name != "llvm" or not has_worker():
        return

    # What fails here fails again where it is needed.
    def prepare_support(machine: Machine) -> None:
        with contextlib.suppress(RelaxvmError):
            compile_support(machine)

    with contextlib.suppress(RelaxvmError, RuntimeError):
        # There may be too many threads, or no more as Python is ending.
        given = prepare_support, machine_of(target)
        threading.Thread(target=copy_context().run, args=given, daemon=True).start()


def compile_support(machine: Machine) -> bytes:
    """What the functions of all programs call."""
    with _support_lock:
        return _support(machine)


_support_lock = lock()


@functools.lru_cache(maxsize=8)
def _support(machine: Machine) -> bytes:
    text = ModuleText(machine)
    define_support(text)
    key = repr(("support", __version__, producer(), machine, text.text())).encode()
    quick = replace(machine, opt_level=min(machine.opt_level, _OPT_LEVEL))
    return objects.kept(key, lambda: compile_text(text.text(), quick).object)
