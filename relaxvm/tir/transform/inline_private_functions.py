"""Put private loop functions where they are called.

@T.prim_func(private=True)                  @T.prim_func
def sub(p: T.handle, i: T.int32):           def main(A: T.Buffer((8,), "float32")):
    ...                                         for i in range(8):
@T.prim_func                                        ...  # of sub, over A.data and i
def main(A: T.Buffer((8,), "float32")):
    for i in range(8):
        Module.sub(A.data, i)
"""

from __future__ import annotations

from typing import Any

from ...ir import INTRINSICS, Call, GlobalVar, IntImm, IRModule, Node, PassContext, Var, walk
from ...ir import transform as passes
from ..copies import fresh_copy, renew
from ..stmt import Evaluate, LetStmt, PrimFunc, Stmt
from .rewriter import StmtRewriter


@passes.module_pass(opt_level=0)
def InlinePrivateFunctions(mod: IRModule, ctx: PassContext) -> IRModule:
    """Inline private loop functions, and remove those that nothing mentions then.

    Those stay that return a value or early, call themselves, or have buffer parameters: what is
    checked when they are called would be checked no more.
    """
    bodies: dict[str, PrimFunc] = {}
    inlined = mod.clone()
    for name in _callees_first(mod):
        gv = mod.get_global_var(name)
        fn = mod[gv]
        if isinstance(fn, PrimFunc):
            fn = _Inline(bodies).on_function(fn)
            if fn is not mod[gv]:
                inlined.update_func(gv, fn)
            if _can_be_inlined(name, fn):
                bodies[name] = fn
    mentioned = {name for called in _calls(inlined).values() for name in called}
    for name in bodies.keys() - mentioned:
        del inlined[name]
    return inlined if bodies else mod


def _calls(mod: IRModule) -> dict[str, list[str]]:
    return {
        gv.name_hint: [n.name_hint for n in walk(fn) if isinstance(n, GlobalVar)]
        for gv, fn in mod.items()
    }


def _callees_first(mod: IRModule) -> list[str]:
    calls = _calls(mod)
    order: dict[str, None] = {}
    entered: set[str] = set()
    stack = [(name, False) for name in calls]
    while stack:
        name, done = stack.pop()
        if done:
            order[name] = None
        elif name not in entered:
            entered.add(name)
            stack.append((name, True))
            stack += [(callee, False) for callee in calls.get(name, ())]
    return [name for name in order if name in calls]


def _can_be_inlined(name: str, fn: PrimFunc) -> bool:
    if fn.get_attr("global_symbol") is not None or fn.buffer_map:
        return False
    return not any(
        (isinstance(n, GlobalVar) and n.name_hint == name)
        or (isinstance(n, Call) and n.op is INTRINSICS["ret"])
        for n in walk(fn.body)
    )


class _Inline(StmtRewriter):
    def __init__(self, bodies: dict[str, PrimFunc]) -> None:
        super().__init__()
        self.bodies = bodies

    def on_evaluate(self, stmt: Evaluate) -> Stmt:
        call: Any = stmt.value
        called = isinstance(call, Call) and isinstance(call.op, GlobalVar)
        fn = self.bodies.get(call.op.name_hint) if called else None
        if fn is None:
            return stmt
        params = {p: renew(p) for p in fn.params}
        values: dict[Var, Node] = {
            p: arg if isinstance(arg, (Var, IntImm)) else params[p]
            for p, arg in zip(fn.params, call.args)
        }
        body: Stmt = fresh_copy(fn.body, values)
        for p, arg in zip(reversed(fn.params), reversed(call.args)):
            if values[p] is not arg:
                body = LetStmt(params[p], arg, body)
        return body
