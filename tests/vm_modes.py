"""Both ways to run a program, and both ways into native code, for tests of the virtual machine.

A module whose tests are about the VM says ``pytestmark = pytest.mark.vm_modes``: each of its tests
then runs once per mode, with `mode` the default of every VirtualMachine made in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from relaxvm.runtime import Executable, VirtualMachine, set_call_path
from relaxvm.runtime.kernel import KernelSection
from relaxvm.target import rebuild_kernels

MODES = ("compiled", "bytecode")
VARIANTS = (("compiled", "auto"), ("bytecode", "auto"), ("bytecode", "generic"))
"""(exec_mode, call path): with the generic path there is no machine code to enter."""


@contextlib.contextmanager
def default_mode(mode: str | None) -> Iterator[None]:
    """VMs made inside have this `exec_mode` unless they are told another."""
    defaults = VirtualMachine.__init__.__kwdefaults__
    former, defaults["exec_mode"] = defaults["exec_mode"], mode
    try:
        yield
    finally:
        defaults["exec_mode"] = former


@contextlib.contextmanager
def variant(mode: str, path: str) -> Iterator[None]:
    """VMs made inside run in `mode`, kernels linked inside are entered by `path`."""
    former = set_call_path(path)
    try:
        with default_mode(mode):
            yield
    finally:
        set_call_path(former)


def precompiled(executable: Executable) -> Executable:
    """`executable`, made by hand, with the machine code that compiled mode needs in it."""
    section = executable.kernels or KernelSection((), b"", ())
    executable.kernels = rebuild_kernels(section.portable, section.names, executable)
    return executable
