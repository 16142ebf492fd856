"""What a program will allocate, read off its bytecode before anything runs.

    plan = ex.memory_plan()
    plan["main"].peak              4096, or 3072 * n + 1024
    plan["main"].peak_bytes(n=128)
    print(plan)

A storage lives from its allocation to the last time a register that may refer to it is killed or
overwritten. The peak is the largest sum of living storages at any instruction, those of called
functions included; on alternative paths it is the larger one. Not part of it: arguments, constants,
padding for alignment, and what externs allocate or keep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..base import LimitError, VMTypeError, VMValueError, callees_first, record, table
from .constants import integer
from .formula import Formula, Peak
from .limits import Limits
from .memory_trace import Trace, lone_symbols, trace_function
from .program import FunctionInfo, Program
from .sinfo import PrimInfo, dims_of, symbols_in


def _shown(size: Formula | Peak) -> int | str:
    return str(size) if size.constant is None else size.constant


@record
class StoragePlan:
    """A storage of a function: where it is allocated, its bytes, and the tensors in it."""

    instruction: int
    size: Formula
    tensors: tuple[str, ...]

    @property
    def size_bytes(self) -> int | str:
        """A number, or a formula in the symbols as text."""
        return _shown(self.size)


@record
class FunctionPlan:
    """The memory of one function.

    storages  in the order they are allocated
    total     the most it and its callees could hold if nothing were freed before it returns
    problem   why the peak cannot be known beforehand, or ""
    """

    name: str
    storages: tuple[StoragePlan, ...]
    problem: str
    _info: FunctionInfo
    _trace: Trace

    @property
    def peak(self) -> int | str | None:
        """The most bytes alive at once: a number, a formula as text, or None if it is not
        known.
        """
        return None if self.problem else _shown(self._trace.peak)

    @property
    def total(self) -> int | str | None:
        """The sum of all storages, those of callees included; as `peak`."""
        return None if self.problem else _shown(self._trace.total)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols that the peak depends on."""
        return () if self.problem else self._trace.peak.symbols

    @property
    def late_symbols(self) -> tuple[str, ...]:
        """Those of them that get their value only while the function runs."""
        return tuple(s for s in self.symbols if s in self._trace.late)

    def peak_bytes(self, **symbols: int) -> int:
        """The peak for these values of the symbols.

        Raises VMValueError for a missing or unknown symbol, or if the peak is not known.
        """
        if self.problem:
            raise VMValueError(f"{self.name}: the peak is not known: {self.problem}")
        wanted = self._trace.peak.symbols
        params = (name for param in self._info.params for name in symbols_in(param))
        known = dict.fromkeys([*params, *wanted])
        for name, value in symbols.items():
            if name not in known:
                raise VMValueError(
                    f"{self.name}: no symbol {name!r}; it has: {', '.join(known) or 'none'}"
                )
            if isinstance(value, bool) or not isinstance(value, int):
                raise VMTypeError(f"{self.name}: {name}: wanted an int, got {value!r}")
            if value < 0:
                raise VMValueError(f"{self.name}: {name}: wanted a size of at least 0, got {value}")
        missing = [name for name in wanted if name not in symbols]
        if missing:
            raise VMValueError(f"{self.name}: values are needed for {', '.join(missing)}")
        return self._trace.peak.evaluate(symbols)

    def bind(self, args: Sequence[Any]) -> dict[str, int] | None:
        """The symbols' values for a call on these (converted) arguments; None if they do not give
        all.
        """

        def fields_of(value: Any) -> tuple[Any, ...]:
            return value if isinstance(value, tuple) else ()

        values = lone_symbols(self._info.params, args, fields_of, _sizes_of)
        return values if all(name in values for name in self.symbols) else None

    def __str__(self) -> str:
        peak = f"not known: {self.problem}" if self.problem else f"peak {self.peak} bytes"
        rows = [("at", "bytes", "tensors")]
        for s in self.storages:
            tensors = ", ".join(s.tensors[:4]) + _more(s.tensors)
            rows.append((str(s.instruction), str(s.size_bytes), tensors))
        lines = table(rows, right={0, 1}) if self.storages else []
        return "\n  ".join([f"{self.name}: {len(self.storages)} storages, {peak}", *lines])


def _more(tensors: tuple[str, ...]) -> str:
    return f", ... {len(tensors) - 4} more" if len(tensors) > 4 else ""


class MemoryPlan(dict[str, FunctionPlan]):
    """The plans of a program's functions, by name."""

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.values()))

    def __repr__(self) -> str:
        peaks = ", ".join(f"{name}: {plan.peak}" for name, plan in self.items())
        return f"<MemoryPlan {peaks}>"


def plan_memory(program: Program) -> MemoryPlan:
    """The plan of every function of a verified program. About linear in its size."""
    traces: dict[str, Trace] = {}
    for info in _callees_first(program):
        traces[info.name] = trace_function(program, info, traces)
    plans = {}
    for info in program.vm_functions:
        trace = traces.get(info.name) or Trace(
            "it calls itself, or a function that does, any number of times"
        )
        storages = tuple(StoragePlan(s.pc, s.size, tuple(s.tensors)) for s in trace.sites)
        plans[info.name] = FunctionPlan(info.name, storages, trace.problem, info, trace)
    return MemoryPlan(plans)


def _callees_first(program: Program) -> list[FunctionInfo]:
    """The functions in an order in which callees come before callers; recursive ones, and
    what calls those, left out.
    """
    by_name = {info.name: info for info in program.vm_functions}
    calls = {info.name: program.called_functions(info) for info in program.vm_functions}
    order: dict[str, FunctionInfo] = {}
    for name in callees_first(calls, calls):
        if calls[name] <= order.keys():
            order[name] = by_name[name]
    return list(order.values())


def _sizes_of(value: Any, info: Any) -> list[int | None]:
    """The dimensions of a value, where it has as many as `info` says."""
    sizes = (value,) if type(info) is PrimInfo else getattr(value, "shape", value)
    if not isinstance(sizes, tuple) or len(sizes) != len(dims_of(info)):
        return []
    return [size if type(size) is int else None for size in sizes]


class MemoryGuard:
    """Admits calls whose plan stays within a number of bytes.

    fits_if_kept  whether even storages that are kept from call to call stay within it
    """

    __slots__ = ("_limit", "_limits", "_plan", "_watched", "fits_if_kept")

    def __init__(self, program: Program, limit: int, limits: Limits) -> None:
        if integer(limit, "memory_limit_bytes") < 0:
            raise VMValueError(f"memory_limit_bytes: wanted at least 0, got {limit}")
        self._limit = limit
        self._limits = limits
        least = limit if limits.max_bytes is None else min(limit, limits.max_bytes)
        self._watched = replace(limits, max_bytes=least)
        self._plan = plan_memory(program)
        totals = [plan.total for plan in self._plan.values()]
        self.fits_if_kept = all(type(total) is int and total <= limit for total in totals)

    def admit(self, info: FunctionInfo, args: Sequence[Any]) -> Limits:
        """The limits to run under. Raises LimitError if the plan says that a call on `args` needs
        too much.
        """
        plan = self._plan[info.name]
        if plan.problem:
            return self._watched
        values = plan.bind(args)
        if values is None or any(number < 0 for number in values.values()):
            return self._watched
        needed = plan._trace.peak.evaluate(values)
        if needed > self._limit:
            where = ", ".join(f"{name} = {values[name]}" for name in plan.symbols)
            formula = f" ({plan.peak} with {where})" if where else ""
            raise LimitError(
                f"{info.name}: needs {needed} bytes at once{formula}, more than "
                f"memory_limit_bytes={self._limit}; nothing was run. "
                "Give smaller arguments or a larger limit"
            )
        return self._limits
