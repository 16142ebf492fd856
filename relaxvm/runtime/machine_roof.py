"""What one thread of this machine can do at most, measured once per process by machine code that
does nothing else: the yardstick of profiles.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .trampoline import parse_ir

_SIZES_BYTES = (1 << 15, 1 << 18, 1 << 22, 1 << 26)
_CHAINS = 12  # sums that do not wait for each other: enough for two units of latency 4 to 6
_STEPS = 20_000
_UNROLLED = 8
_SECONDS = 0.02


@dataclass(frozen=True)
class Roof:
    """Measured rates of one thread: float32 multiplications and additions in registers, and bytes
    per second of reading blocks of several sizes (caches are faster than memory).
    """

    flops_per_second: float
    bytes_per_second: tuple[tuple[int, float], ...]

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
    compute, read, lanes = _native()
    place = np.ones(16, np.float32)
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
    return Roof(rate, tuple(falling))


_keep: list[Any] = []


def _native() -> tuple[Any, Any, int]:
    """``compute(place, steps)``, ``read(block, steps, times, place)``, the lanes of a vector."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    known = llvm.get_host_cpu_features()
    lanes = 16 if known.get("avx512f") else 8 if known.get("avx") else 4
    target = llvm.Target.from_default_triple()
    fused = known.get("avx512f") or known.get("fma") or "aarch64" in target.triple
    machine = target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=known.flatten(), opt=2, jit=True
    )
    module = parse_ir(llvm, _roof_ir(lanes, bool(fused)))
    module.triple, module.data_layout = target.triple, str(machine.target_data)
    module.verify()
    code = machine.emit_object(module)
    jit = llvm.create_lljit_compiler(machine, suppress_errors=True)
    builder = llvm.JITLibraryBuilder().add_object_img(code)
    library = builder.export_symbol("compute").export_symbol("read").link(jit, "relaxvm.roof")
    _keep[:] = [jit, library]
    word, place = ctypes.c_int64, ctypes.c_void_p
    compute = ctypes.CFUNCTYPE(None, place, word)(library["compute"])
    read = ctypes.CFUNCTYPE(None, place, word, word, place)(library["read"])
    return compute, read, lanes


def _roof_ir(lanes: int, fused: bool) -> str:
    floats, ints = f"<{lanes} x float>", f"<{lanes} x i32>"
    attributes = f'nounwind "prefer-vector-width"="{32 * lanes}" ' + (
        f'"min-legal-vector-width"="{32 * lanes}"'
    )

    def step(k: int) -> str:
        if fused:
            args = f"{floats} %a{k}, {floats} %x, {floats} %x"
            return f"  %b{k} = call {floats} @llvm.fma.v{lanes}f32({args})"
        return f"  %m{k} = fmul {floats} %a{k}, %x\n  %b{k} = fadd {floats} %m{k}, %x"

    def load(k: int) -> str:
        return (
            f"  %at{k} = getelementptr {ints}, ptr %row, i64 {k}\n"
            f"  %v{k} = load {ints}, ptr %at{k}, align 64\n"
            f"  %o{k} = or {ints} %r{k}, %v{k}"
        )

    def lines(count: int, line: Callable[[int], str]) -> str:
        return "\n".join(map(line, range(count)))

    def joined(kind: str, value: str, what: str, count: int) -> str:
        first = f"  %t0 = {what} {kind} %{value}0, %{value}1\n"
        rest = (f"  %t{k} = {what} {kind} %t{k - 1}, %{value}{k + 1}" for k in range(1, count - 1))
        return first + "\n".join(rest)

    return f"""
declare {floats} @llvm.fma.v{lanes}f32({floats}, {floats}, {floats})

define void @compute(ptr %place, i64 %steps) {attributes} {{
entry:
  %x = load {floats}, ptr %place, align 4
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]
{lines(_CHAINS, lambda k: f"  %a{k} = phi {floats} [ zeroinitializer, %entry ], [ %b{k}, %loop ]")}
{lines(_CHAINS, step)}
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %steps
  br i1 %more, label %loop, label %done
done:
{joined(floats, "b", "fadd", _CHAINS)}
  store {floats} %t{_CHAINS - 2}, ptr %place, align 4
  ret void
}}

define void @read(ptr %block, i64 %steps, i64 %times, ptr %place) {attributes} {{
entry:
  br label %again
again:
  %j = phi i64 [ 0, %entry ], [ %j.next, %done ]
  br label %loop
loop:
  %i = phi i64 [ 0, %again ], [ %i.next, %loop ]
{lines(_UNROLLED, lambda k: f"  %r{k} = phi {ints} [ zeroinitializer, %again ], [ %o{k}, %loop ]")}
  %row = getelementptr [{_UNROLLED} x {ints}], ptr %block, i64 %i
{lines(_UNROLLED, load)}
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %steps
  br i1 %more, label %loop, label %done
done:
{joined(ints, "o", "or", _UNROLLED)}
  call void asm sideeffect "", "~{{memory}}"()
  store {ints} %t{_UNROLLED - 2}, ptr %place, align 4
  %j.next = add i64 %j, 1
  %rounds = icmp slt i64 %j.next, %times
  br i1 %rounds, label %again, label %end
end:
  ret void
}}
"""


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
