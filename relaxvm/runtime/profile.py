"""Where the time of one run goes: a clock around every call instruction, and what the calls moved
and computed.

    report = vm.profile("main", x)
    print(report)                        # a table
    report.save_json("profile.json")
    report.save_trace("trace.json")      # for chrome://tracing or ui.perfetto.dev

The run goes instruction by instruction, so the whole takes longer than `vm["main"](x)`; the times
of the calls are theirs, less the cost of reading the clock. Pages of new storages are asked for
before the kernels that write them run.
"""

from __future__ import annotations

import csv
import io
import json
import os
import threading
from collections.abc import Sequence
from dataclasses import field
from time import perf_counter_ns
from typing import Any

from .. import base
from ..base import VMError, record
from .builtin import Storage
from .builtin_row import short_name
from .dims import evaluate
from .disasm import instruction_line
from .kernel import KernelInfo
from .kernel_errors import bindings
from .machine_roof import Roof, machine_roof
from .ndarray import NDArray
from .ops import OpKind
from .program import Program

_PAGE_BYTES = 1 << 12
MAX_EVENTS = 1_000_000
"""Calls that are kept one by one for the trace; the sums count all."""
_KINDS = {
    OpKind.BUILTIN: "builtin",
    OpKind.KERNEL: "kernel",
    OpKind.EXTERN: "extern",
    OpKind.INVOKE: "closure",
}
_SHOWN_INSTRUCTIONS = 40


@record
class ProfileRow:
    """What the calls of one callee, or of one instruction, cost together.

    function, instruction  where; "" and -1 for a sum over all places
    size_bytes             bytes read and written, None where nobody knows
    flops                  arithmetic operations, None where nobody knows
    """

    name: str
    kind: str
    function: str
    instruction: int
    text: str
    count: int
    total_ns: int
    share: float
    size_bytes: int | None
    flops: float | None
    roof_share: float | None

    @property
    def short_name(self) -> str:
        """The name without "vm.builtin."."""
        return short_name(self.name)

    @property
    def mean_ns(self) -> float:
        """Nanoseconds per call."""
        return self.total_ns / self.count

    @property
    def gigabytes_per_second(self) -> float | None:
        """Bytes moved per nanosecond."""
        return self.size_bytes / self.total_ns if self.size_bytes and self.total_ns else None

    @property
    def gigaflops(self) -> float | None:
        """Operations per nanosecond."""
        return self.flops / self.total_ns if self.flops and self.total_ns else None

    def to_plain(self) -> dict[str, Any]:
        """As JSON stores it."""
        plain: dict[str, Any] = {"name": self.name, "kind": self.kind}
        if self.instruction >= 0:
            plain |= {"function": self.function, "instruction": self.instruction, "text": self.text}
        return plain | {
            "count": self.count,
            "total_ns": self.total_ns,
            "mean_ns": self.mean_ns,
            "share": self.share,
            "bytes": self.size_bytes,
            "flops": self.flops,
            "gb_per_s": self.gigabytes_per_second,
            "gflop_per_s": self.gigaflops,
            "roof_share": self.roof_share,
        }


@record(frozen=False)
class _Sum:
    """A row while it grows.

    flops, size_bytes  of the calls whose cost is `known`; `least_s` is what the roof allows for it
    """

    count: int = 0
    total_ns: int = 0
    size_bytes: int = 0
    flops: float | None = None
    known: bool = False
    least_s: float = 0.0

    def add(self, other: _Sum) -> None:
        """Count another in."""
        self.count += other.count
        self.total_ns += other.total_ns
        self.size_bytes += other.size_bytes
        self.known |= other.known
        self.least_s += other.least_s
        if other.flops is not None:
            self.flops = (self.flops or 0.0) + other.flops


class Recorder:
    """Is told of every call of one run, and makes the report."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._clock_ns = _clock_cost_ns()
        self._sums: dict[tuple[str, int, str, str], _Sum] = {}
        self._costs: dict[Any, tuple[int, float | None]] = {}
        self._events: list[tuple[str, str, int, int, str, int]] = []
        self._open: list[tuple[str, int, str, int]] = []
        self._left_out = 0
        self._started = self._ended = 0
        has_kernels = program.kernels is not None and bool(program.kernels.infos)
        self._roof = machine_roof() if has_kernels else None

    def enter(self, caller: Any, pc: int, callee: Any) -> None:
        """A VM function begins."""
        now = perf_counter_ns()
        if not self._open:
            self._started = now
        self._open.append((callee.name, now, "" if caller is None else caller.name, pc))

    def leave(self) -> None:
        """The innermost VM function ends."""
        name, began, caller, pc = self._open.pop()
        self._ended = perf_counter_ns()
        self._event(name, "function", began, self._ended, caller, pc)

    def add(
        self,
        fn: Any,
        pc: int,
        op: Any,
        began: int,
        ended: int,
        operands: Sequence[Any],
        value: Any,
    ) -> None:
        """An instruction called a kernel, an extern, a builtin or a Python closure, which gave
        `value`.
        """
        if type(value) is Storage:
            # The system gives a page when it is first written: let no kernel pay for that.
            value.raw[::_PAGE_BYTES] = 0
        kind = _KINDS[op.kind]
        key = (fn.name, pc, op.symbol, kind)
        call = _Sum(1, max(ended - began - self._clock_ns, 0))
        if kind == "kernel":
            assert self._roof is not None
            call.size_bytes, call.flops = self._cost(op.function.info, operands)
            call.known = True
            call.least_s = self._roof.least_seconds(call.size_bytes, call.flops)
        self._sums.setdefault(key, _Sum()).add(call)
        self._event(op.symbol, kind, began, ended, fn.name, pc)

    def _event(self, name: str, kind: str, began: int, ended: int, where: str, pc: int) -> None:
        if len(self._events) < MAX_EVENTS:
            self._events.append((name, kind, began, ended, where, pc))
        else:
            self._left_out += 1

    def _cost(self, info: KernelInfo, operands: Sequence[Any]) -> tuple[int, float | None]:
        """Bytes moved and operations of one call."""
        shapes = tuple(a.array.shape if type(a) is NDArray else a for a in operands)
        key = (info.name, shapes)
        known = self._costs.get(key)
        if known is None:
            known = self._costs[key] = (_moved_bytes(info, operands), _operations(info, operands))
        return known

    def report(self, name: str, result: Any) -> ProfileReport:
        """The report of a run that has ended."""
        wall_ns = max(self._ended - self._started, 1)
        instructions = [
            self._row(key, each, wall_ns, self._text(key[0], key[1]))
            for key, each in sorted(self._sums.items(), key=lambda item: item[0][:2])
        ]
        callees: dict[tuple[str, int, str, str], _Sum] = {}
        for (_, _, symbol, kind), each in self._sums.items():
            callees.setdefault(("", -1, symbol, kind), _Sum()).add(each)
        rows = [self._row(key, each, wall_ns, "") for key, each in callees.items()]
        rows.sort(key=lambda row: (-row.total_ns, row.name))
        events = [(n, k, b - self._started, e - b, w, pc) for n, k, b, e, w, pc in self._events]
        return ProfileReport(
            name, wall_ns, tuple(rows), tuple(instructions), result, self._clock_ns, self._roof,
            events, self._left_out,
        )  # fmt: skip

    def _row(
        self, key: tuple[str, int, str, str], total: _Sum, wall_ns: int, text: str
    ) -> ProfileRow:
        function, pc, symbol, kind = key
        share = None
        if total.known and total.total_ns:
            share = total.least_s * 1e9 / total.total_ns
        return ProfileRow(
            symbol, kind, function, pc, text, total.count, total.total_ns,
            total.total_ns / wall_ns, total.size_bytes if total.known else None, total.flops, share,
        )  # fmt: skip

    def _text(self, function: str, pc: int) -> str:
        return instruction_line(self._program, self._program.function(function), pc)[:200]


@record(values=False, frozen=False)
class ProfileReport:
    """Where the time of one run went. `str` gives a table.

    wall_ns       from the first instruction to the last, the profiler's own work included
    calls         a row per callee, dearest first
    instructions  a row per call instruction, in order
    result        what the function returned
    clock_ns      what was subtracted from each call for reading the clock
    roof          what one thread of this machine can do; None for a program without kernels
    """

    function: str
    wall_ns: int
    calls: tuple[ProfileRow, ...]
    instructions: tuple[ProfileRow, ...]
    result: Any
    clock_ns: int
    roof: Roof | None
    _events: list[tuple[str, str, int, int, str, int]]
    _left_out: int
    _thread: int = field(default_factory=threading.get_native_id)

    @property
    def calls_ns(self) -> int:
        """Time inside kernels, externs and builtins."""
        return sum(row.total_ns for row in self.calls)

    def table(self, sort: bool = True, aggregate: bool = True, col_sums: bool = True) -> str:
        """The rows as text, one per callee, or one per instruction unless `aggregate`.

        sort  dearest first     col_sums  with a last line of sums
        """
        rows = list(self.calls if aggregate else self.instructions)
        if sort:
            rows.sort(key=lambda row: -row.total_ns)
        cells = [_HEADS, *(_cells(row, aggregate) for row in rows)]
        if col_sums:
            count = sum(row.count for row in rows)
            share = f"{100 * self.calls_ns / self.wall_ns:.1f}%"
            cells.append(("sum", "", str(count), _us(self.calls_ns), share, *[""] * 6))
        return "\n".join(base.table(cells, right=range(2, len(_HEADS))))

    def __str__(self) -> str:
        between = self.wall_ns - self.calls_ns
        return (
            f"{self.function}: {_us(self.wall_ns)} us in all, {_us(self.calls_ns)} us in calls, "
            f"{_us(between)} us between them (this loop and its clock)\n\n"
            f"{self.table()}\n\n{self._instruction_table()}\n\n"
            f"roof: {self.roof or 'there are no kernels'}\n"
            f"{self.clock_ns} ns for reading the clock are taken off each call"
        )

    def _instruction_table(self) -> str:
        dearest = sorted(self.instructions, key=lambda row: -row.total_ns)[:_SHOWN_INSTRUCTIONS]
        lines = [
            f"  {_us(row.total_ns):>10} us  {100 * row.share:5.1f}%  {row.function}:"
            f"{row.instruction:<4} {row.text[:100]}"
            for row in sorted(dearest, key=lambda row: (row.function, row.instruction))
        ]
        left_out = len(self.instructions) - len(dearest)
        if left_out:
            lines.append(f"  ... {left_out} cheaper instructions")
        return "\n".join(["by instruction:", *lines])

    def __repr__(self) -> str:
        return f"<ProfileReport of {self.function}: {_us(self.wall_ns)} us>"

    def to_plain(self) -> dict[str, Any]:
        """The report as dicts, lists, numbers and texts."""
        return {
            "function": self.function,
            "wall_ns": self.wall_ns,
            "calls_ns": self.calls_ns,
            "clock_ns": self.clock_ns,
            "roof": self.roof
            and {
                "how": "measured in this process, one thread",
                "flops_per_second": self.roof.flops_per_second,
                "bytes_per_second": [list(pair) for pair in self.roof.bytes_per_second],
            },
            "calls": [row.to_plain() for row in self.calls],
            "instructions": [row.to_plain() for row in self.instructions],
        }

    def to_json(self) -> str:
        """The report as JSON."""
        return json.dumps(self.to_plain(), indent=1)

    json = to_json

    def csv(self) -> str:
        """One line per instruction, as comma-separated values."""
        out = io.StringIO()
        rows = [row.to_plain() for row in self.instructions]
        writer = csv.DictWriter(out, list(rows[0]) if rows else ["name"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue()

    def save_json(self, path: str | os.PathLike[str]) -> None:
        """Write `to_json()` to a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.to_json())

    def trace_events(self) -> list[dict[str, Any]]:
        """Every call as an event of Chrome's trace format (times in microseconds)."""
        process = os.getpid()
        named = {"ph": "M", "pid": process, "tid": self._thread}
        events: list[dict[str, Any]] = [
            {**named, "name": "process_name", "args": {"name": f"relaxvm {self.function}"}}
        ]
        for name, kind, began, lasted, where, pc in sorted(
            self._events, key=lambda event: (event[2], -event[3])
        ):
            events.append(
                {
                    "name": name,
                    "cat": kind,
                    "ph": "X",
                    "ts": began / 1e3,
                    "dur": lasted / 1e3,
                    "pid": process,
                    "tid": self._thread,
                    "args": {"function": where, "instruction": pc} if pc >= 0 else {},
                }
            )
        return events

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the calls as a trace that chrome://tracing and ui.perfetto.dev open."""
        document = {
            "traceEvents": self.trace_events(),
            "displayTimeUnit": "ns",
            "otherData": {"function": self.function, "events left out": self._left_out},
        }
        with open(path, "w", encoding="utf-8") as file:
            json.dump(document, file)


_HEADS = ("name", "kind", "count", "us", "share", "us/call", "bytes", "GB/s", "FLOP", "GFLOP/s",
          "of roof")  # fmt: skip


def _cells(row: ProfileRow, aggregate: bool) -> tuple[str, ...]:
    name = row.short_name if aggregate else f"{row.function}:{row.instruction} {row.name}"
    return (
        name,
        row.kind,
        str(row.count),
        _us(row.total_ns),
        f"{100 * row.share:.1f}%",
        _us(row.mean_ns),
        "" if row.size_bytes is None else str(row.size_bytes),
        _number(row.gigabytes_per_second),
        "" if row.flops is None else f"{row.flops:.0f}",
        _number(row.gigaflops),
        "" if row.roof_share is None else f"{100 * row.roof_share:.1f}%",
    )


def _us(nanoseconds: float) -> str:
    return f"{nanoseconds / 1e3:.2f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _clock_cost_ns() -> int:
    """What two readings of the clock, with nothing between them, are apart at least."""
    best = 1 << 30
    for _ in range(64):
        began = perf_counter_ns()
        best = min(best, perf_counter_ns() - began)
    return best


def _moved_bytes(info: KernelInfo, operands: Sequence[Any]) -> int:
    """Each tensor once for reading and once for writing, as its access says; of what is read at
    places that data says, as many elements as are written.
    """
    tensors = [
        (param, value.array)
        for param, value in zip(info.params, operands)
        if type(value) is NDArray
    ]
    written = sum(array.size for param, array in tensors if param.written)
    return sum(
        min(array.size, written) * array.itemsize
        if param.access == "g"
        else len(param.access) * array.nbytes
        for param, array in tensors
    )


def _operations(info: KernelInfo, operands: Sequence[Any]) -> float | None:
    """The arithmetic of one call, None if the kernel does not say."""
    if info.flops is None:
        return None
    symbols, _ = bindings(info, operands)
    try:
        return float(evaluate(info.flops, symbols))
    except VMError:
        # An estimate that a strange size takes out of range is no reason to fail the run.
        return None
