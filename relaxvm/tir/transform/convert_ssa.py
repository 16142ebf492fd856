"""Define every variable and buffer once: a second definition is of a new one.

for i in range(8):                          for i in range(8):
    A[i] = 1.0                                  A[i] = 1.0
for i in range(8):                          for i_1 in range(8):
    B[i] = 2.0                                  B[i_1] = 2.0
"""

from __future__ import annotations

from typing import Any

from ...ir import IRModule, Let, Node, PassContext, PrimExpr, Var, load_json, save_json, walk
from ...ir import transform as passes
from ..copies import defined, fresh_copy
from ..stmt import Buffer, DeclBuffer, PrimFunc
from .rewriter import StmtRewriter


@passes.module_pass(opt_level=0)
def ConvertSSA(mod: IRModule, ctx: PassContext) -> IRModule:
    """Define every variable and buffer of the loop functions once, in all of them."""
    result = mod
    seen: set[Node] = set()
    for gv, fn in mod.items():
        if isinstance(fn, PrimFunc):
            own = _of_signature(fn)
            if not seen.isdisjoint(own):
                # What is saved and loaded has variables of its own.
                fn = load_json(save_json(fn))
                own = _of_signature(fn)
            once = _OneDefinition(seen | own).on_function(fn)
            seen.update(own, (d for n in walk(once.body) for d in defined(n)))
            if once is not mod[gv]:
                result = mod.clone() if result is mod else result
                result.update_func(gv, once)
    return result


def with_single_definitions(fn: PrimFunc) -> PrimFunc:
    """`fn`, in which nothing is defined twice."""
    return _OneDefinition(_of_signature(fn)).on_function(fn)


def _of_signature(fn: PrimFunc) -> set[Node]:
    parts = (n for b in fn.buffers for n in walk(b) if isinstance(n, (Var, Buffer)))
    return {*fn.params, *parts}


class _OneDefinition(StmtRewriter):
    def __init__(self, seen: set[Node]) -> None:
        super().__init__()
        self.seen = seen
        self._before = self._once

    def _once(self, n: Any) -> Any:
        """`n`, or a copy with definitions of its own if another one defines the same."""
        if not self.seen.isdisjoint(defined(n)):
            # A view of memory that stays gets a buffer of its own by hand.
            views = [n.buffer] if isinstance(n, DeclBuffer) else []
            n = fresh_copy(n, {b: Buffer(*(getattr(b, f) for f in b._fields)) for b in views})
        self.seen.update(defined(n))
        return n

    def expr(self, e: PrimExpr) -> PrimExpr:
        for n in walk(e):
            if isinstance(n, Let) and n.var in self.seen:
                return fresh_copy(e)
        self.seen.update(n.var for n in walk(e) if isinstance(n, Let))
        return e
