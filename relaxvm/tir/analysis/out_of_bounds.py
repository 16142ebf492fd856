"""Accesses that provably leave their buffer."""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer, Interval, interval_of
from ...base import NamedTuple, VerifyError
from ...ir import (
    INTRINSICS,
    Add,
    Call,
    Cast,
    FloorDiv,
    IntImm,
    IRModule,
    Mul,
    PrimExpr,
    Sub,
    Var,
    descend,
)
from ...ir.transform import prim_func_pass
from ..stmt import BlockRealize, Buffer, BufferLoad, BufferStore, For, IfThenElse, PrimFunc
from .scope import Place, ScopeWalker, operands, post_order_expr


class OutOfBounds(NamedTuple):
    """An access whose index leaves axis `axis` of `buffer` whenever, or at some iteration that, it
    is executed.
    """

    buffer: Buffer
    axis: int
    at: PrimExpr
    least: PrimExpr
    greatest: PrimExpr
    place: str

    def __str__(self) -> str:
        extent = self.buffer.shape[self.axis]
        return (
            f"{self.place}: axis {self.axis} of {self.buffer.name} has {_text(extent)} elements, "
            f"the index runs from {_text(self.least)} to {_text(self.greatest)}"
        )


def _text(e: PrimExpr) -> str:
    if isinstance(e, IntImm):
        return str(e.value)
    return e.name if isinstance(e, Var) else repr(e)


def find_out_of_bounds(func: PrimFunc) -> list[OutOfBounds]:
    """The accesses of `func` that provably leave their buffer, in order. An empty list proves
    nothing.
    """
    finder = _Finder()
    finder.walk_function(func, str(func.get_attr("global_symbol", "main")))
    return finder.found


@prim_func_pass(opt_level=0)
def OOBChecker(fn: PrimFunc, mod: IRModule, ctx: Any) -> PrimFunc:
    """Raise VerifyError, listing them, if accesses provably leave their buffers."""
    problems = find_out_of_bounds(fn)
    if problems:
        raise VerifyError("accesses out of bounds:\n  " + "\n  ".join(map(str, problems)))
    return fn


class _Finder(ScopeWalker):
    def __init__(self) -> None:
        super().__init__()
        self.analyzer = Analyzer(wrap=False)
        self.known: dict[Any, Interval | None] = {}
        self.found: list[OutOfBounds] = []
        # Loops that may run no iteration at all, and conditions, guard what is in them.
        self.guards: dict[int, bool] = {}

    def on_stmt(self, s: Any, place: Place) -> None:
        if isinstance(s, For):
            low = interval_of(s.min, self.known, self.analyzer)
            high = interval_of(s.min + s.extent - 1, self.known, self.analyzer)
            self.known[s.loop_var] = None if low is None or high is None else (low[0], high[1])
            self.guards[id(s.body)] = self._guarded(s) or not self.analyzer.can_prove(s.extent > 0)
            return
        if isinstance(s, BufferStore):
            self._check(s.buffer, s.indices, place, self._guarded(s))
            for e in (*s.indices, s.value):
                self._loads(e, place, self._guarded(s))
        guarded = self._guarded(s)
        if isinstance(s, BlockRealize):
            guarded = guarded or not getattr(s.predicate, "value", 0)
            for axis, value in zip(s.block.iter_vars, s.iter_values):
                self.known[axis.var] = interval_of(value, self.known, self.analyzer)
            for inner in (s.block.init, s.block.body):
                self.guards[id(inner)] = guarded
            return
        guarded = guarded or isinstance(s, IfThenElse) or type(s).__name__ == "While"
        for child in s._children_:
            self.guards[id(child)] = guarded

    def _guarded(self, s: Any) -> bool:
        return self.guards.get(id(s), False)

    def on_defined(self, what: Any, place: Place, again: bool) -> None:
        if isinstance(what, Var) and what.dtype.is_int and what not in self.known:
            if place.label.startswith("let "):
                self.known[what] = None

    def _loads(self, expr: PrimExpr, place: Place, guarded: bool) -> None:
        order = post_order_expr(expr)
        lazy = any(type(n) is Call and n.op is INTRINSICS["if_then_else"] for n in order)
        lazy = lazy or any(type(n).__name__ in ("And", "Or", "Let") for n in order)
        for n in order:
            if type(n) is BufferLoad:
                self._check(n.buffer, n.indices, place, guarded or lazy)

    def _check(self, buffer: Buffer, indices: Any, place: Place, guarded: bool) -> None:
        prove = self.analyzer.can_prove
        for axis, (index, extent) in enumerate(zip(indices, buffer.shape)):
            bounds = interval_of(index, self.known, self.analyzer)
            if bounds is None:
                continue
            low, high = self.analyzer.simplify(bounds[0]), self.analyzer.simplify(bounds[1])
            always = prove(high < 0) or prove(low >= extent)
            sometimes = (
                not guarded and _is_exact(index) and (prove(low < 0) or prove(high >= extent))
            )
            if (always and not guarded) or sometimes:
                here = str(place.below(f"access of {buffer.name}"))
                self.found.append(OutOfBounds(buffer, axis, index, low, high, here))


def _is_exact(index: Any) -> bool:
    """Whether the bounds of `index` are reached: each variable stands once, in sums and constant
    multiples.
    """
    count: dict[int, int] = {}
    for n in descend(index, operands):
        if isinstance(n, Var):
            count[id(n)] = count.get(id(n), 0) + 1
            if count[id(n)] > 1:
                return False
        elif type(n) in (Add, Sub, Cast, FloorDiv, Mul):
            if type(n) in (FloorDiv, Mul) and not isinstance(n.b, IntImm):
                return False
        elif not isinstance(n, IntImm):
            return False
    return True
