"""Limits of a run: instructions, bytes, depth, time."""

from __future__ import annotations

import numpy as np
import pytest

from relaxvm.base import DataType, LimitError, VMError
from relaxvm.runtime import ExecBuilder, Limits, VirtualMachine

F32 = DataType("float32")


def endless() -> ExecBuilder:
    b = ExecBuilder()
    with b.function("main", 0):
        top = b.label()
        b.place(top)
        b.emit_call("vm.builtin.null_value", [], b.r(0))
        b.emit_goto(top)
    return b


def allocating(rounds: int, keep: bool) -> ExecBuilder:
    """Allocates 1 KiB `rounds` times, keeping all or one at a time."""
    b = ExecBuilder()
    with b.function("main", 0):
        for i in range(rounds):
            storage, tensor = b.r(2 * i), b.r(2 * i + 1)
            b.emit_call("vm.builtin.alloc_storage", [1024, 0, F32, "global"], storage)
            b.emit_call("vm.builtin.alloc_tensor", [storage, 0, (256,), F32], tensor)
            b.emit_call("vm.builtin.kill_object", [storage])
            if not keep:
                b.emit_call("vm.builtin.kill_object", [tensor])
        b.emit_call("vm.builtin.null_value", [], b.r(2 * rounds))
        b.emit_ret(b.r(2 * rounds))
    return b


def test_an_endless_loop_ends_at_its_instruction_limit():
    with pytest.raises(LimitError, match="used up max_instructions=1000") as caught:
        VirtualMachine(endless().get(), max_instructions=1000)["main"]()
    assert "VM function main, instruction" in caught.value.__notes__[0]
    assert isinstance(caught.value, VMError)


def test_the_instruction_limit_is_exact():
    b = ExecBuilder()
    with b.function("main", 0):
        for _ in range(5):
            b.emit_call("vm.builtin.null_value", [], b.r(0))
        b.emit_ret(b.r(0))
    assert VirtualMachine(b.get(), max_instructions=6)["main"]() is None
    vm = VirtualMachine(b.get(), max_instructions=5)
    for _ in range(2):
        with pytest.raises(LimitError):
            vm["main"]()


def test_an_endless_loop_ends_at_its_time_limit():
    with pytest.raises(LimitError, match=r"longer than max_seconds=0\.02"):
        VirtualMachine(endless().get(), max_seconds=0.02)["main"]()


def test_bytes_are_counted_while_they_live():
    kept = allocating(10, keep=True).get()
    freed = allocating(10, keep=False).get()
    VirtualMachine(freed, max_bytes=1024)["main"]()
    with pytest.raises(LimitError, match="more than max_bytes=2048"):
        VirtualMachine(kept, max_bytes=2048)["main"]()
    vm = VirtualMachine(kept, max_bytes=20_000)
    for _ in range(5):
        vm["main"]()


def test_copies_count_as_allocations():
    b = ExecBuilder()
    with b.function("main", 1):
        b.emit_call("vm.builtin.copy", [b.r(0)], b.r(1))
        b.emit_call("vm.builtin.shape_of", [b.r(1)], b.r(2))
        b.emit_call("vm.builtin.shape_to_tensor", [b.r(2)], b.r(2))
        b.emit_ret(b.r(2))
    x = np.zeros(1000, "uint8")
    assert VirtualMachine(b.get(), max_bytes=2000)["main"](x).numpy().tolist() == [1000]
    with pytest.raises(LimitError, match="max_bytes=1000"):
        VirtualMachine(b.get(), max_bytes=1000)["main"](x)


def test_builtins_called_as_values_count_too():
    b = ExecBuilder()
    with b.function("main", 1):
        b.emit_call("vm.builtin.make_tuple", [b.r(0)], b.r(1))
        b.emit_call("vm.builtin.invoke_closure", [b.f("vm.builtin.copy"), b.r(1)], b.r(2))
        b.emit_ret(b.r(2))
    x = np.zeros(1000, "uint8")
    assert VirtualMachine(b.get(), max_bytes=1000)["main"](x).shape == (1000,)
    with pytest.raises(LimitError, match="max_bytes=999"):
        VirtualMachine(b.get(), max_bytes=999)["main"](x)


def test_nothing_is_allocated_past_the_limit():
    b = ExecBuilder()
    with b.function("main", 0):
        b.emit_call("vm.builtin.alloc_storage", [1 << 46, 0, F32, "global"], b.r(0))
        b.emit_ret(None)
    with pytest.raises(LimitError, match="more than max_bytes=0"):
        VirtualMachine(b.get(), max_bytes=0)["main"]()


def test_an_unlimited_run_asks_for_no_counting():
    assert not Limits().counted
    assert not Limits(max_depth=3).counted
    assert Limits(max_seconds=1).counted
    assert Limits(max_bytes=0).counted
