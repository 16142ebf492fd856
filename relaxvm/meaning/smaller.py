"""Smaller modules that still show a difference."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ..base import reachable
from ..ir import IRModule
from ..ir.transform import Pass, PassContext
from ..relax import BindingBlock, DataflowVar, Function, SeqExpr, VarBinding
from ..relax import Var as GraphVar
from ..relax.analysis import all_global_vars, assert_well_formed
from ..relax.flow import vars_in
from ..relax.substitute import substitute_graph
from ..tir import PrimFunc
from .outcome import Machine, difference, leaves, trace


class Shrinker:
    """Leaves bindings out of a function, as long as the pass still changes what it means."""

    def __init__(self, machine: Machine, p: Pass | None, name: str, numerics: str) -> None:
        self.machine, self.p, self.name, self.numerics = machine, p, name, numerics

    def smaller(
        self, before: IRModule, after: IRModule, args: Sequence[Any], guilty: VarBinding | None
    ) -> tuple[IRModule, IRModule, Sequence[Any]]:
        """(before, after, arguments) of as few bindings as could be found in the time."""
        best = before, after, args
        fn = before[self.name]
        if self.p is None:
            return best
        if isinstance(fn, PrimFunc):
            return self._tried(IRModule({self.name: fn}), args) or best
        assert isinstance(fn, Function)
        values = {b.var: v for b, v in trace(self.machine, before, self.name, args).values()}
        values.update(zip(fn.params, args))
        rows = [b for block in fn.body.blocks for b in block.bindings]
        name = guilty.var.name_hint if guilty else None
        ends: list[Any] = [fn.body.body, *(b.var for b in rows if b.var.name_hint == name)]
        for end in reversed(ends):
            upto = rows if end is fn.body.body else rows[: 1 + [b.var for b in rows].index(end)]
            reduced = self._reduced(before, fn, upto, end, values)
            if reduced is not None:
                return reduced
        return best

    def _reduced(self, mod: IRModule, fn: Function, rows: list[Any], end: Any, values: Any) -> Any:
        """What is left of `rows`; None if nothing differs with all of them."""
        best = self._with(mod, fn, rows, end, values)
        size = max(1, len(rows) // 2)
        while best is not None and size and time.monotonic() < self.machine.end:
            start = 0
            while start < len(rows) and time.monotonic() < self.machine.end:
                fewer = rows[:start] + rows[start + size :]
                smaller = self._with(mod, fn, fewer, end, values)
                if smaller is None:
                    start += size
                else:
                    best, rows = smaller, fewer
            size //= 2
        return best

    def _with(self, mod: IRModule, fn: Function, rows: list[Any], end: Any, values: Any) -> Any:
        """The function with these bindings only: what others gave are parameters."""
        bound = {b.var for b in rows}
        read = dict.fromkeys(v for b in rows for v in vars_in(b.value) if v not in bound)
        read.update(dict.fromkeys(v for v in vars_in(end) if v not in bound))
        if any(v not in values or not leaves(values[v]) for v in read):
            return None
        renamed: dict[GraphVar, GraphVar] = {
            v: GraphVar(v.name_hint, v.struct_info)
            for v in (*read, *bound)
            if isinstance(v, DataflowVar) and (v in read or v in vars_in(end))
        }
        try:
            blocks: list[BindingBlock] = []
            for block in fn.body.blocks:
                kept = [b for b in block.bindings if b.var in bound and b in rows]
                kept = [b.replace(var=renamed.get(b.var, b.var)) for b in kept]
                if kept:
                    blocks.append(type(block)(tuple(kept)))
            body = substitute_graph(SeqExpr(tuple(blocks), end), renamed)
            params = [v for v in fn.params if v in read]
            params += [v for v in read if v not in fn.params]
            arguments = [renamed.get(v, v) for v in params]
            small = Function(tuple(arguments), body, attrs=fn.attrs, is_pure=fn.is_pure)
            used = reachable(all_global_vars(small), lambda gv: all_global_vars(mod[gv]))
            functions = {gv: mod[gv] for gv in used if gv in mod}
            trial = mod.clone({**functions, mod.get_global_var(self.name): small})
            assert_well_formed(trial)
        except Exception:
            return None
        return self._tried(trial, [values[v] for v in params])

    def _tried(self, mod: IRModule, args: Sequence[Any]) -> Any:
        """(before, after, arguments) if the pass changes what `mod` means."""
        assert self.p is not None
        try:
            with PassContext.current().again() as context:
                context.override_instruments([])
                after = self.p.run(mod, context)
            want, got = (self.machine.outcome(m, self.name, args) for m in (mod, after))
        except Exception:
            return None
        if want.error is not None or not difference(want, got, self.numerics):
            return None
        return mod, after, args
