"""What one thread of this machine can do at most, measured once per process by machine code that
does nothing else: the yardstick of profiles.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..base import record
from ..base.llvm import Function, Module, Value
from .linking import LinkedCode, started_llvm
from .locks import lock
from .pyabi import never_let_go
from .trampoline import compile_ir

_SIZES_BYTES = (1 << 15, 1 << 18, 1 << 22, 1 << 26)
_CHAINS = 12  # sums that do not wait for each other: enough for two units of latency 4 to 6
_STEPS = 20_000
_UNROLLED = 8
_CYCLES = 8  # of a step of the clock
_COUNTED = ("compute", "wait", "cycle")
_Step = Callable[[Function, Value, Value], Value]
_SECONDS = 0.02


@record
class Roof:
    """Measured rates of one thread: float32 multiplications and additions in registers, and bytes
    per second of reading blocks of several sizes (caches are faster than memory).

    hertz    cycles in a second: of integer operations that wait for each other
    lanes    float32 numbers of a vector
    latency  cycles of a multiplication and addition whose result the next one waits for
    """

    flops_per_second: float
    bytes_per_second: tuple[tuple[int, float], ...]
    hertz: float
    lanes: int
    latency: float

    def bandwidth(self, size_bytes: int) -> float:
        """Bytes per second for a working set of this size: that of the next larger block."""
        for size, rate in self.bytes_per_second:
            if size_bytes <= size:
                return rate
        return self.bytes_per_second[-1][1]

    def least_seconds(self, size_bytes: int, flops: float | None) -> float:
        """The least time that moving so many bytes and so much arithmetic can take."""
        moving = size_bytes / self.bandwidth(size_bytes)
        return max(moving, (flops or 0.0) / self.flops_per_second)

    def __str__(self) -> str:
        rates = ", ".join(
            f"{rate / 1e9:.1f} GB/s up to {_size_text(size)}"
            for size, rate in self.bytes_per_second
        )
        return (
            f"measured in this process, one thread: {self.flops_per_second / 1e9:.1f} GFLOP/s "
            f"(float32, in registers), reading {rates}"
        )


def _size_text(size_bytes: int) -> str:
    return f"{size_bytes >> 20} MiB" if size_bytes >= 1 << 20 else f"{size_bytes >> 10} KiB"


@functools.lru_cache(maxsize=1)
def machine_roof() -> Roof:
    """This machine's rates. The first call takes about a tenth of a second, and llvmlite."""
    # Threads that measure at the same time would be in each other's way.
    with _lock:
        return _measured()


def _measured() -> Roof:
    compute, wait, cycle, read, lanes = _native()
    place = np.ones(16, np.float32)
    hertz = _CYCLES * _STEPS / _seconds(lambda: cycle(place.ctypes.data, _STEPS))
    waits = _seconds(lambda: wait(place.ctypes.data, _STEPS)) / _STEPS
    flops = 2.0 * lanes * _CHAINS * _STEPS
    rate = flops / _seconds(lambda: compute(place.ctypes.data, _STEPS))
    rates = []
    block = np.ones((_SIZES_BYTES[-1] + 64) // 4, np.float32)
    start = block.ctypes.data + -block.ctypes.data % 64
    for size in _SIZES_BYTES:
        # Long enough for the call to cost nothing.
        times = max(1, (1 << 22) // size)
        steps = size // (4 * lanes * _UNROLLED)
        took = _seconds(functools.partial(read, start, steps, times, place.ctypes.data))
        rates.append((size, size * times / took))
    # A larger block is never faster: what says otherwise is noise.
    falling = [(size, max(r for _, r in rates[i:])) for i, (size, _) in enumerate(rates)]
    return Roof(rate, tuple(falling), hertz, lanes, waits * hertz)


_lock = lock()


@functools.cache
def _native() -> tuple[Any, Any, Any, Any, int]:
    """``compute(place, steps)``, ``wait`` and ``cycle`` likewise, ``read(block, steps, times,
    place)``, the lanes of a vector.
    """
    llvm = started_llvm()
    known = llvm.get_host_cpu_features()
    lanes = 16 if known.get("avx512f") else 8 if known.get("avx") else 4
    fused = known.get("avx512f") or known.get("fma") or "aarch64" in llvm.get_default_triple()
    here = {"cpu": llvm.get_host_cpu_name(), "features": known.flatten()}
    code = compile_ir(llvm, _roof_ir(lanes, bool(fused)), **here)
    library = LinkedCode((code,), (*_COUNTED, "read"), {})
    never_let_go(library)
    word, place = ctypes.c_int64, ctypes.c_void_p
    counted = [ctypes.CFUNCTYPE(None, place, word)(library.addresses[name]) for name in _COUNTED]
    read = ctypes.CFUNCTYPE(None, place, word, word, place)(library.addresses["read"])
    return counted[0], counted[1], counted[2], read, lanes


def _roof_ir(lanes: int, fused: bool) -> str:
    floats, ints = f"<{lanes} x float>", f"<{lanes} x i32>"
    width = f'vector-width"="{32 * lanes}"'
    attributes = f'nounwind "prefer-{width} "min-legal-{width}'
    m = Module()

    def fma(f: Function, total: Value, x: Value) -> Value:
        if fused:
            return f.intrinsic("llvm.fma", total, x, x)
        return f.op("fadd", f.op("fmul", total, x), x)

    def cycles(f: Function, total: Value, x: Value) -> Value:
        # One after the other: neither can be put before the other, nor two of a kind be made one.
        for k in range(_CYCLES):
            total = f.op("xor" if k % 2 else "add", total, x)
        return total

    def counted(name: str, of: str, count: int, op: str, step: _Step) -> None:
        f = m.define("void(ptr, i64)", name, attributes)
        place, steps = f.params
        x, before = f.load(of, place, 4), f.block
        with f.for_(steps, guard=""):
            sums = _carried(f, of, count, before, lambda total, k: step(f, total, x))
        f.store(functools.reduce(functools.partial(f.op, op), sums), place, 4)
        f.ret()

    counted("compute", floats, _CHAINS, "fadd", fma)
    counted("wait", floats, 1, "fadd", fma)
    counted("cycle", "i64", 1, "add", cycles)
    f = m.define("void(ptr, i64, i64, ptr)", "read", attributes)
    block, steps, times, place = f.params
    with f.for_(times, guard=""):
        before = f.block
        with f.for_(steps, guard="") as i:
            row = functools.partial(f.element, f"[{_UNROLLED} x {ints}]", block)

            def read(total: Value, k: int) -> Value:
                return f.op("or", total, f.load(ints, f.at(row(i), 4 * lanes * k), 64))

            sums = _carried(f, ints, _UNROLLED, before, read)
        f.forget_memory()
        f.store(functools.reduce(functools.partial(f.op, "or"), sums), place, 4)
    f.ret()
    return m.text()


def _carried(
    f: Function, of: str, count: int, before: str, step: Callable[[Value, int], Value]
) -> list[Value]:
    """So many sums of a loop, from 0 in the block before it: what `step` makes of each."""
    sums = [f.carried(of, (0, before)) for _ in range(count)]
    steps = [step(total, k) for k, (total, _) in enumerate(sums)]
    for (_, add), one in zip(sums, steps):
        add(one, f.block)
    return steps


def _seconds(work: Callable[[], object]) -> float:
    """The shortest of many calls, of which others that use the machine miss some."""
    end, best = time.perf_counter() + _SECONDS, float("inf")
    while True:
        start = time.perf_counter()
        work()
        now = time.perf_counter()
        best = min(best, now - start)
        if now > end:
            return max(best, 1e-9)
