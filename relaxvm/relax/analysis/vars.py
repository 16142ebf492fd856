"""Variables, functions and symbols: used, bound, free."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ...ir import GlobalVar, IntImm, IRModule, Node, Op, PrimExpr, post_order, walk
from ...ir import Var as TirVar
from ...tir import PrimFunc
from ..derive import definable_tir_vars_in_struct_info, tir_vars_in_struct_info
from ..expr import Binding, Call, Function, MatchCast, Var
from ..struct_info import Expr, FuncStructInfo, StructInfo
from ..symbols import known_dims


def post_order_visit(expr: Expr, fvisit: Callable[[Expr | GlobalVar], Any]) -> None:
    """Call `fvisit` on every expression below `expr`, operands first, each shared one once."""
    for n in post_order(expr):
        if isinstance(n, (Expr, GlobalVar)):
            fvisit(n)


def _unique(items: Iterable[Any]) -> list[Any]:
    return list({id(item): item for item in items}.values())


def all_vars(expr: Expr) -> list[Var]:
    """Every variable that occurs in `expr`, bound or used, in order of first appearance."""
    return _unique(n for n in post_order(expr) if isinstance(n, Var))


def bound_vars(expr: Expr) -> list[Var]:
    """The variables bound inside `expr`: by bindings and as parameters."""

    def found() -> Iterator[Var]:
        for n in walk(expr):
            if isinstance(n, Binding):
                yield n.var
            elif isinstance(n, Function):
                yield from n.params

    return _unique(found())


def used_vars(expr: Node) -> list[Var]:
    """The variables read in `expr`, in the order in which they are: as values, and as shapes in
    struct info. Binding a variable is no use of it.
    """
    return [n for n in post_order(expr, _read_in) if isinstance(n, Var)]


def _read_in(n: Node) -> Sequence[Node]:
    """What `n` reads; the variables that it binds are not among it, but their struct info is."""
    if isinstance(n, Binding):
        cast = (n.struct_info,) if isinstance(n, MatchCast) else ()
        return (n.value, *cast, n.var.struct_info)
    if isinstance(n, Function):
        return (*(p.struct_info for p in n.params), n.body, n.ret_struct_info)
    return n._children_


def free_vars(expr: Expr) -> list[Var]:
    """The variables that `expr` uses but does not bind."""
    bound = {id(v) for v in bound_vars(expr)}
    return [v for v in used_vars(expr) if id(v) not in bound]


def all_global_vars(expr: Node) -> list[GlobalVar]:
    """The functions of the module that `expr` mentions, in order of first appearance."""
    # Types and scalars, which are most of the nodes, hold none.
    return _unique(n for n in walk(expr, (StructInfo, PrimExpr)) if isinstance(n, GlobalVar))


def called_operators(mod: IRModule) -> list[str]:
    """The operators that the graph functions of `mod` call, one by one, but for those in
    branches.
    """
    bodies = [fn.body for fn in mod.functions.values() if isinstance(fn, Function)]
    blocks = [block for body in bodies for block in getattr(body, "blocks", ())]
    values = [getattr(b, "value", None) for block in blocks for b in block.bindings]
    return [v.op.name for v in values if isinstance(v, Call) and isinstance(v.op, Op)]


def called_global_vars(expr: Expr) -> list[GlobalVar]:
    """The functions of the module that `expr` calls by name, in order of first appearance; those
    that it hands to others, as `call_tir` takes one, are not among them.
    """
    calls = (n for n in walk(expr, (StructInfo, PrimExpr)) if isinstance(n, Call))
    return _unique(n.op for n in calls if isinstance(n.op, GlobalVar))


def kernel_calls(mod: IRModule) -> Counter[str]:
    """{loop function: how many calls of it graph functions have}"""
    return Counter(
        gv.name_hint
        for fn in mod.functions.values()
        if isinstance(fn, Function)
        for call in walk(fn, (StructInfo, PrimExpr))
        if isinstance(call, Call)
        for gv in (call.op, *call.args[:1])
        if isinstance(gv, GlobalVar) and isinstance(mod.get(gv), PrimFunc)
    )


def defined_symbolic_vars(func: Expr) -> list[TirVar]:
    """The symbols that `func` (or an expression) binds: by its parameters' struct info and by
    match_cast.
    """

    def found() -> Iterator[TirVar]:
        for n in walk(func):
            if isinstance(n, MatchCast):
                yield from definable_tir_vars_in_struct_info(n.struct_info)
            elif isinstance(n, Function):
                for p in n.params:
                    yield from definable_tir_vars_in_struct_info(p.struct_info)

    return _unique(found())


def collect_non_negative_expressions(sinfo: StructInfo) -> list[PrimExpr]:
    """The extents in `sinfo`, which cannot be negative, but for plain numbers; each once."""
    shapes = (known_dims(n) for n in walk(sinfo) if isinstance(n, StructInfo))
    extents = (e for shape in shapes for e in shape or ())
    return _unique(e for e in extents if not isinstance(e, IntImm))


def free_symbolic_vars(func: Expr) -> list[TirVar]:
    """The symbols that `func` uses but does not bind."""
    bound = {id(v) for v in defined_symbolic_vars(func)}
    symbols: list[TirVar] = []

    def below(n: Node) -> Sequence[Node]:
        if isinstance(n, (FuncStructInfo, GlobalVar)):
            return ()
        # Attributes may bind symbols of their own, as an index map does.
        for name in n._defs_:
            own = getattr(n, name)
            bound.update(id(v) for v in (own if isinstance(own, tuple) else (own,)))
        return n._children_

    for n in walk(func, into=below):
        if isinstance(n, FuncStructInfo):
            # Its own symbols are bound by each call.
            symbols.extend(tir_vars_in_struct_info(n))
        elif isinstance(n, TirVar):
            symbols.append(n)
    return _unique(v for v in symbols if id(v) not in bound)
