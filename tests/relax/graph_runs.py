"""Shared by the operators' tests: one call as a program, in both ways of running it."""

from __future__ import annotations

from relax_vm_helpers import build_interpreted

from relaxvm import relax
from relaxvm.runtime import VirtualMachine, cpu


def tensor(name, *shape, dtype="float32"):
    """A variable of that shape."""
    return relax.Var(name, relax.TensorStructInfo(shape, dtype))


def programs(params, call):
    """A function that runs `call` on the values of `params`: kernels interpreted, and by LLVM."""
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(call)
        builder.emit_func_output(out)
    mod = builder.get()
    executable = relax.build(mod, target="llvm", exec_mode="bytecode")
    return [build_interpreted(mod)["main"], VirtualMachine(executable, cpu())["main"]]
