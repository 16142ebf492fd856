"""One VM object, many threads at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from vm_kernels import section

from relaxvm.base import DataType
from relaxvm.runtime import ExecBuilder, VirtualMachine

pytestmark = pytest.mark.vm_modes

F32, U8 = DataType("float32"), DataType("uint8")
LENGTH = 1 << 16  # long enough that kernels run without the GIL


def program() -> ExecBuilder:
    """x + 20 * y by kernels into reused memory, once past an extern, and in a callee."""
    b = ExecBuilder()
    b.add_kernels(section())
    for name, steps in (("inner", 10), ("main", 10)):
        with b.function(name, 2, ["x", "y"]):
            last, place = b.r(0), 2
            for i in range(steps):
                storage, tensor = b.r(place), b.r(place + 1)
                place += 2
                b.emit_call("vm.builtin.alloc_storage", [4 * LENGTH, 0, U8, "global"], storage)
                b.emit_call("vm.builtin.alloc_tensor", [storage, 0, (LENGTH,), F32], tensor)
                b.emit_call("add", [last, b.r(1), tensor])
                last = tensor
                if i == 5:
                    b.emit_call("env.look", [last], b.r(place))
                    place += 1
            if name == "main":
                b.emit_call("inner", [last, b.r(1)], b.r(place))
                last = b.r(place)
            b.emit_ret(last)
    return b


def test_thirty_two_threads_get_right_results_from_one_vm():
    vm = VirtualMachine(program().get(), functions={"env.look": lambda x: x})
    barrier = threading.Barrier(32)

    def work(seed):
        barrier.wait()
        wrong = 0
        for turn in range(6):
            x = np.full(LENGTH, seed * 100 + turn, "float32")
            result = vm["main"](x, np.full(LENGTH, seed, "float32"))
            wrong += int((result.numpy() != x + 20 * seed).sum())
        return wrong

    with ThreadPoolExecutor(32) as pool:
        assert sum(pool.map(work, range(32))) == 0


def test_threads_may_fail_and_succeed_side_by_side():
    def look(x):
        if x.numpy()[0] < 0:
            raise ZeroDivisionError
        return x

    vm = VirtualMachine(program().get(), functions={"env.look": look})

    def work(sign):
        x, y = np.full(LENGTH, sign * 50, "float32"), np.ones(LENGTH, "float32")
        outcomes = set()
        for _ in range(6):
            try:
                outcomes.add(float(vm["main"](x, y).numpy()[7]))
            except ZeroDivisionError:
                outcomes.add("failed")
        return outcomes

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(work, [1, -1] * 4))
    assert outcomes == [{70.0}, {"failed"}] * 4


def test_limits_are_counted_per_call():
    vm = VirtualMachine(
        program().get(),
        functions={"env.look": lambda x: x},
        max_instructions=100,
        max_bytes=1 << 23,
    )
    x, y = np.zeros(LENGTH, "float32"), np.ones(LENGTH, "float32")
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: vm["main"](x, y).numpy().max(), range(16)))
    assert results == [20.0] * 16
